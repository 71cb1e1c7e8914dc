#!/bin/sh
# Runs the tests and ends with a summary in the form of pytest's.
exec python3 -B "${TEST_DIR:-/tests}/test_outputs.py"

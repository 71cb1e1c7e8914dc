#!/bin/sh
# Runs the checks and ends with a summary in the form of pytest's.
exec sh "${TEST_DIR:-/tests}/test_outputs.sh"

#!/bin/sh
set -eu
cp "$(dirname "$0")/order.py" /workspace/order.py

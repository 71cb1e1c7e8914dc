#!/bin/sh
# Accepts only the expected file, byte for byte.
reward=0
if cmp /workspace/stock.csv /tests/expected.csv; then
    reward=1
elif [ -f /workspace/stock.csv ]; then
    diff /tests/expected.csv /workspace/stock.csv
fi
mkdir -p /logs/verifier
echo "$reward" > /logs/verifier/reward.txt
[ "$reward" -eq 1 ]

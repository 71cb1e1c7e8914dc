#!/bin/sh
# Accepts only the expected file, byte for byte.
reward=0
if cmp /app/relay.conf /tests/expected.conf; then
    reward=1
else
    diff /tests/expected.conf /app/relay.conf
fi
mkdir -p /logs/verifier
echo "$reward" > /logs/verifier/reward.txt
[ "$reward" -eq 1 ]

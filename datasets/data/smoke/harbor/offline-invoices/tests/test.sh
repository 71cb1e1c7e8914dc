#!/bin/sh
reward=0
python3 -B /tests/check.py && reward=1
mkdir -p /logs/verifier
echo "$reward" > /logs/verifier/reward.txt
[ "$reward" -eq 1 ]

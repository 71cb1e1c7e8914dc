#!/bin/sh
# Compares the stored table, and what the script prints for this and for two other directories.
export LC_ALL=C
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
mkdir "$work/empty"
: > "$work/nothing"

prints() { # prints DIRECTORY EXPECTED
    timeout 10 sh /workspace/merge-hosts.sh "$1" > "$work/out" && diff "$2" "$work/out"
}
reward=0
if cmp /tests/expected-hosts /workspace/hosts &&
    prints /workspace/hosts.d /tests/expected-hosts &&
    prints /tests/other /tests/expected-other &&
    prints "$work/empty" "$work/nothing"; then
    reward=1
fi
mkdir -p /logs/verifier
echo "$reward" > /logs/verifier/reward.txt
[ "$reward" -eq 1 ]

#!/bin/sh
# Modes and contents are graded apart; the reward needs both.
export LC_ALL=C
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
modes=0 content=0

if cd /workspace/site; then
    {
        find . ! -type l -exec stat -c '%a %F %n' {} +
        find . -type l -exec sh -c 'echo "link $1 -> $(readlink "$1")"' sh {} \;
    } | sort > "$work/modes"
    sort /tests/expected-modes.txt | diff - "$work/modes" && modes=1

    find . -type f -exec cksum {} + | sort | diff /tests/expected-sums.txt - && content=1
fi

reward=$((modes * content))
mkdir -p /logs/verifier
printf '{"reward": %d, "modes": %d, "content": %d}\n' "$reward" "$modes" "$content" > /logs/verifier/reward.json
[ "$reward" -eq 1 ]

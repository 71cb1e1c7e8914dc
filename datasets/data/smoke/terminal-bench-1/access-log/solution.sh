#!/bin/sh
set -eu
export LC_ALL=C
cd /workspace
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

shape='^[^ ]+ - - \[[^] ]+ [^] ]+\] "[^" ]+ [^" ]+ [^" ]+" [0-9][0-9][0-9] ([0-9]+|-)$'
grep -E "$shape" access.log > "$work/good"
{
    echo "requests $(wc -l < "$work/good" | tr -d ' ')"
    echo "malformed $(grep -Ev "$shape" access.log | grep -c .)"
    awk '{ sum += $10 } END { printf "bytes %d\n", sum }' "$work/good"
    awk '{ n[$9]++ } END { for (code in n) print "status", code, n[code] }' "$work/good" | sort
    awk '{ n[$1]++ } END { for (client in n) print "client", client, n[client] }' "$work/good" |
        sort -k3,3nr -k2,2 | head -n 3
    awk '$9 >= 500 { sub(/\?.*/, "", $7); n[$7]++ } END { for (path in n) print "failing", path, n[path] }' \
        "$work/good" | sort -k3,3nr | head -n 1
} > report.txt

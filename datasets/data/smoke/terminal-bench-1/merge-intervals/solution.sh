#!/bin/sh
set -eu
cat > /workspace/intervals.py <<'PYTHON'
"""Half-open integer intervals, as pairs (start, end)."""


def merge(intervals):
    """The fewest intervals, ascending, that cover the same moments."""
    merged = []
    for start, end in sorted(pair for pair in intervals if pair[0] < pair[1]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def free(busy, start, end):
    """The moments of (start, end) that no interval of `busy` covers, as merge() would give them."""
    gaps = []
    for busy_start, busy_end in merge(busy):
        if start < min(busy_start, end):
            gaps.append((start, min(busy_start, end)))
        start = max(start, busy_end)
    if start < end:
        gaps.append((start, end))
    return gaps
PYTHON

"""Durations such as `1d 2h`, in whole seconds."""

import re

SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
PART = re.compile(r"(\d+)\s*([dhms])\s*")


def parse_duration(text):
    """Seconds in a duration like `1h 30m`; units must go from large to small, each at most once."""
    text = text.strip().lower()
    position, total, previous = 0, 0, None
    while position < len(text):
        part = PART.match(text, position)
        if part is None:
            raise ValueError(f"not a duration: {text!r}")
        seconds = SECONDS[part.group(2)]
        if previous is not None and seconds >= previous:
            raise ValueError(f"units out of order: {text!r}")
        total += int(part.group(1)) * seconds
        previous = seconds
        position = part.end()
    if previous is None:
        raise ValueError("empty duration")
    return total


def format_duration(seconds, parts=None):
    """The shortest exact text for a number of seconds; with `parts`, only that many leading units."""
    if seconds < 0:
        return "-" + format_duration(-seconds, parts)
    words = []
    for unit, size in SECONDS.items():
        count, seconds = divmod(seconds, size)
        if count:
            words.append(f"{count}{unit}")
    if not words:
        return "0s"
    return " ".join(words[:parts])

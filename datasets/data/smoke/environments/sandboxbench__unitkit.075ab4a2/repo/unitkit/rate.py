"""Rates of transfer, and what follows from them."""

from unitkit.duration import format_duration
from unitkit.size import format_size


def format_rate(count, seconds):
    """Bytes per second as text; `stalled` when nothing moved."""
    if seconds <= 0:
        raise ValueError("a rate needs a positive time")
    if count == 0:
        return "stalled"
    return f"{format_size(count / seconds)}/s"


def time_left(done, total, seconds):
    """How long the rest will take at the average rate so far, in the two leading units."""
    if done > total:
        raise ValueError("more done than there is")
    if done == 0:
        return "unknown"
    return format_duration(round(seconds * (total - done) / done), parts=2)

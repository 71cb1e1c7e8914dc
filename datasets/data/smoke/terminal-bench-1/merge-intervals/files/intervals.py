"""Half-open integer intervals, as pairs (start, end)."""


def merge(intervals):
    """The fewest intervals, ascending, that cover the same moments."""
    raise NotImplementedError


def free(busy, start, end):
    """The moments of (start, end) that no interval of `busy` covers, as merge() would give them."""
    raise NotImplementedError

"""Sizes such as `1.5 KiB`, in bytes."""

import re
from decimal import Decimal

BINARY = ["B", "KiB", "MiB", "GiB", "TiB"]
DECIMAL = ["B", "kB", "MB", "GB", "TB"]
SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def factors():
    """Lower-case unit -> bytes. A bare number counts bytes."""
    known = {"": 1}
    for base, names in ((1024, BINARY), (1000, DECIMAL)):
        for power, name in enumerate(names):
            known[name.lower()] = base**power
    return known


def parse_size(text):
    """Bytes in a size like `1.5 KiB` or `2MB`; a fraction of a byte is an error."""
    size = SIZE.fullmatch(text)
    if size is None or size.group(2).lower() not in factors():
        raise ValueError(f"not a size: {text!r}")
    count = Decimal(size.group(1)) * factors()[size.group(2).lower()]
    if count != int(count):
        raise ValueError(f"not a whole number of bytes: {text!r}")
    return int(count)


def format_size(count, binary=True):
    """Bytes in the largest unit that leaves at least 1, with one decimal unless it is zero."""
    base, names = (1024, BINARY) if binary else (1000, DECIMAL)
    power = 0
    while power + 1 < len(names) and count >= base ** (power + 1):
        power += 1
    text = f"{count / base**power:.1f}"
    return f"{text.removesuffix('.0')} {names[power]}"

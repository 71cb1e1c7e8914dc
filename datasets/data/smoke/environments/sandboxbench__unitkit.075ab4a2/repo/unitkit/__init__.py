"""Durations, sizes and rates as people write them."""

from unitkit.duration import format_duration, parse_duration
from unitkit.rate import format_rate, time_left
from unitkit.size import format_size, parse_size

__all__ = ["format_duration", "format_rate", "format_size", "parse_duration", "parse_size", "time_left"]

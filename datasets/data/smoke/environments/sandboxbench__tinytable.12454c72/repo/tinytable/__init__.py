"""Small tables in memory."""

from tinytable.csvio import from_csv, to_csv
from tinytable.render import to_markdown, to_text
from tinytable.table import Table

__all__ = ["Table", "from_csv", "to_csv", "to_markdown", "to_text"]

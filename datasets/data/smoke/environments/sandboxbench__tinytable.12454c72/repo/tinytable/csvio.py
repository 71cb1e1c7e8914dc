"""Tables from and to CSV text. Empty fields are None, numbers are numbers."""

import csv
import io

from tinytable.table import Table


def value(field):
    """What a field means: None, an int, a float or text."""
    if field == "":
        return None
    for kind in (int, float):
        try:
            return kind(field)
        except ValueError:
            continue
    return field


def from_csv(text):
    """A table from CSV text whose first line names the columns; ValueError when it has no lines."""
    lines = [line for line in csv.reader(io.StringIO(text)) if line]
    if not lines:
        raise ValueError("CSV text without a header")
    return Table(lines[0], ([value(field) for field in line] for line in lines[1:]))


def to_csv(table):
    """CSV text with a header; lines end in a line feed."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(table.rows)
    return out.getvalue()

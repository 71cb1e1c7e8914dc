"""Tables as text for people."""


def cell(value):
    """A value as text; None is a dash."""
    return "-" if value is None else str(value)


def numeric(table, at):
    """Whether a column holds numbers, and at least one."""
    values = [row[at] for row in table.rows if row[at] is not None]
    return bool(values) and all(isinstance(value, (int, float)) for value in values)


def to_text(table):
    """Columns padded to the same width, two blanks apart; numbers to the right, no blanks at line ends."""
    lines = [table.columns, *([cell(value) for value in row] for row in table.rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(table.columns))]
    right = [numeric(table, at) for at in range(len(table.columns))]
    padded = (
        "  ".join(
            text.rjust(width) if number else text.ljust(width)
            for text, width, number in zip(line, widths, right)
        )
        for line in lines
    )
    return "\n".join(line.rstrip() for line in padded) + "\n"


def to_markdown(table):
    """A Markdown table; numeric columns are aligned to the right, `|` in values is escaped."""
    rules = ["---:" if numeric(table, at) else "---" for at in range(len(table.columns))]
    rows = [[cell(value).replace("|", "\\|") for value in row] for row in table.rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in [table.columns, rules, *rows])

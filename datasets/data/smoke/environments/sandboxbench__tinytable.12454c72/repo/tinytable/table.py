"""A table: named columns, and rows as tuples. No method changes the table it is called on."""


class Table:
    def __init__(self, columns, rows=()):
        self.columns = tuple(columns)
        if len(set(self.columns)) != len(self.columns):
            raise ValueError("a column occurs twice")
        self.rows = [tuple(row) for row in rows]
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{len(row)} values for {len(self.columns)} columns")

    def __eq__(self, other):
        return isinstance(other, Table) and (self.columns, self.rows) == (other.columns, other.rows)

    def index(self, column):
        """The position of a column; KeyError if there is none of that name."""
        if column not in self.columns:
            raise KeyError(column)
        return self.columns.index(column)

    def select(self, *columns):
        """Only these columns, in this order."""
        positions = [self.index(column) for column in columns]
        return Table(columns, ([row[at] for at in positions] for row in self.rows))

    def where(self, column, accept):
        """Only the rows whose value in the column is accepted."""
        at = self.index(column)
        return Table(self.columns, (row for row in self.rows if accept(row[at])))

    def sort_by(self, column, descending=False):
        """Rows by the column's value; equal values keep their order, None goes last either way."""
        at = self.index(column)
        known = [row for row in self.rows if row[at] is not None]
        unknown = [row for row in self.rows if row[at] is None]
        return Table(self.columns, sorted(known, key=lambda row: row[at], reverse=descending) + unknown)

    def group_sum(self, by, column):
        """The sum of a column for each value of another, in order of first occurrence; None adds nothing."""
        by_at, at = self.index(by), self.index(column)
        sums = {}
        for row in self.rows:
            sums[row[by_at]] = sums.get(row[by_at], 0) + (row[at] or 0)
        return Table((by, column), sums.items())

import unittest

from tinytable import Table

STOCK = Table(
    ("item", "yard", "count"),
    [("rope", "east", 4), ("cleat", "west", None), ("buoy", "east", 9), ("lamp", "west", 4)],
)


class TestTable(unittest.TestCase):
    def test_select(self):
        self.assertEqual(STOCK.select("count", "item").rows[0], (4, "rope"))

    def test_where(self):
        self.assertEqual([row[0] for row in STOCK.where("yard", lambda yard: yard == "east").rows], ["rope", "buoy"])

    def test_unknown_column(self):
        with self.assertRaises(KeyError):
            STOCK.select("price")

    def test_uneven_row(self):
        with self.assertRaises(ValueError):
            Table(("a", "b"), [(1,)])

    def test_repeated_column(self):
        with self.assertRaises(ValueError):
            Table(("a", "a"))


class TestSort(unittest.TestCase):
    def test_ascending(self):
        self.assertEqual([row[0] for row in STOCK.sort_by("item").rows], ["buoy", "cleat", "lamp", "rope"])

    def test_equal_values_keep_their_order(self):
        self.assertEqual([row[0] for row in STOCK.sort_by("count").rows[:2]], ["rope", "lamp"])

    def test_none_goes_last(self):
        for descending in (False, True):
            self.assertEqual(STOCK.sort_by("count", descending).rows[-1][0], "cleat")

    def test_descending(self):
        self.assertEqual([row[0] for row in STOCK.sort_by("count", True).rows], ["buoy", "rope", "lamp", "cleat"])

    def test_original_is_unchanged(self):
        STOCK.sort_by("item")
        self.assertEqual(STOCK.rows[0][0], "rope")


class TestGroup(unittest.TestCase):
    def test_sums(self):
        self.assertEqual(STOCK.group_sum("yard", "count"), Table(("yard", "count"), [("east", 13), ("west", 4)]))

    def test_only_none(self):
        self.assertEqual(Table(("a", "b"), [("x", None)]).group_sum("a", "b").rows, [("x", 0)])

import unittest

from tinytable import Table, to_markdown, to_text

STOCK = Table(("item", "count"), [("rope", 4), ("storm lantern", None), ("cleat", 120)])


class TestText(unittest.TestCase):
    def test_numbers_to_the_right(self):
        self.assertEqual(
            to_text(STOCK),
            "item           count\nrope               4\nstorm lantern      -\ncleat            120\n",
        )

    def test_no_blanks_at_line_ends(self):
        text = to_text(STOCK.select("count", "item"))
        self.assertEqual(text, "count  item\n    4  rope\n    -  storm lantern\n  120  cleat\n")

    def test_header_only(self):
        self.assertEqual(to_text(Table(("a", "bc"))), "a  bc\n")


class TestMarkdown(unittest.TestCase):
    def test_alignment(self):
        self.assertEqual(to_markdown(STOCK).splitlines()[1], "| --- | ---: |")

    def test_bars_are_escaped(self):
        self.assertIn("| a\\|b |", to_markdown(Table(("x",), [("a|b",)])))

    def test_column_without_values_is_text(self):
        self.assertEqual(to_markdown(Table(("x",), [(None,)])), "| x |\n| --- |\n| - |\n")

import unittest

from tinytable import Table, from_csv, to_csv


class TestRead(unittest.TestCase):
    def test_kinds_of_values(self):
        self.assertEqual(from_csv("a,b,c,d\n1,2.5,x,\n").rows, [(1, 2.5, "x", None)])

    def test_quoted_fields(self):
        self.assertEqual(from_csv('a,b\n"1,5","say ""hi"""\n').rows, [("1,5", 'say "hi"')])

    def test_blank_lines_are_skipped(self):
        self.assertEqual(len(from_csv("a\n\n1\n\n2\n").rows), 2)

    def test_no_header(self):
        with self.assertRaises(ValueError):
            from_csv("\n")


class TestWrite(unittest.TestCase):
    def test_none_is_empty(self):
        self.assertEqual(to_csv(Table(("a", "b"), [(None, 1)])), "a,b\n,1\n")

    def test_round_trip(self):
        table = Table(("name", "n"), [("a, b", 1), ('"c"', None), ("d", 0.5)])
        self.assertEqual(from_csv(to_csv(table)), table)

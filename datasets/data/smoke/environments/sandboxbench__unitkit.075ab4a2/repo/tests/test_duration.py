import unittest

from unitkit import format_duration, parse_duration


class TestParse(unittest.TestCase):
    def test_single_unit(self):
        self.assertEqual(parse_duration("90s"), 90)

    def test_several_units(self):
        self.assertEqual(parse_duration(" 1D 2h3m 4s "), 93784)

    def test_out_of_order(self):
        for text in ("1m 1h", "1h 2h"):
            with self.assertRaises(ValueError):
                parse_duration(text)

    def test_not_a_duration(self):
        for text in ("", "  ", "soon", "1h soon", "1.5h", "-1s"):
            with self.assertRaises(ValueError):
                parse_duration(text)


class TestFormat(unittest.TestCase):
    def test_zero(self):
        self.assertEqual(format_duration(0), "0s")

    def test_skips_empty_units(self):
        self.assertEqual(format_duration(86405), "1d 5s")

    def test_leading_parts(self):
        self.assertEqual(format_duration(93784, parts=2), "1d 2h")

    def test_negative(self):
        self.assertEqual(format_duration(-61), "-1m 1s")

    def test_round_trip(self):
        for seconds in (1, 59, 60, 3599, 3600, 86399, 1234567):
            self.assertEqual(parse_duration(format_duration(seconds)), seconds)

import unittest

from unitkit import format_size, parse_size


class TestParse(unittest.TestCase):
    def test_bare_number(self):
        self.assertEqual(parse_size("512"), 512)

    def test_binary_units(self):
        self.assertEqual(parse_size("1.5 KiB"), 1536)
        self.assertEqual(parse_size("2mib"), 2 * 1024**2)

    def test_decimal_units(self):
        self.assertEqual(parse_size("1.5 kB"), 1500)
        self.assertEqual(parse_size("2GB"), 2 * 1000**3)

    def test_fraction_of_a_byte(self):
        with self.assertRaises(ValueError):
            parse_size("0.3 B")

    def test_exact_decimals(self):
        self.assertEqual(parse_size("0.007 kB"), 7)

    def test_unknown_unit(self):
        for text in ("3 parsecs", "3 KiBs", "", "KiB", "-1 B", "1e3"):
            with self.assertRaises(ValueError):
                parse_size(text)


class TestFormat(unittest.TestCase):
    def test_small(self):
        self.assertEqual(format_size(1023), "1023 B")

    def test_unit_boundary(self):
        self.assertEqual(format_size(1024), "1 KiB")
        self.assertEqual(format_size(1000, binary=False), "1 kB")

    def test_one_decimal(self):
        self.assertEqual(format_size(1536), "1.5 KiB")

    def test_largest_unit(self):
        self.assertEqual(format_size(5000 * 1024**4), "5000 TiB")

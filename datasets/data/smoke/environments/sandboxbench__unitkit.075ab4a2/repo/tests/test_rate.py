import unittest

from unitkit import format_rate, time_left


class TestRate(unittest.TestCase):
    def test_rate(self):
        self.assertEqual(format_rate(3 * 1024**2, 2), "1.5 MiB/s")

    def test_stalled(self):
        self.assertEqual(format_rate(0, 5), "stalled")

    def test_no_time(self):
        with self.assertRaises(ValueError):
            format_rate(10, 0)


class TestTimeLeft(unittest.TestCase):
    def test_two_leading_units(self):
        self.assertEqual(time_left(1, 101, 75), "2h 5m")

    def test_done(self):
        self.assertEqual(time_left(7, 7, 3), "0s")

    def test_nothing_done_yet(self):
        self.assertEqual(time_left(0, 7, 3), "unknown")

    def test_too_much_done(self):
        with self.assertRaises(ValueError):
            time_left(8, 7, 3)

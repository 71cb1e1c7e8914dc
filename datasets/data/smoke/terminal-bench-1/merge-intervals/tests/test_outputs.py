"""Tests of /workspace/intervals.py. Run as a program, it prints a summary in the form of pytest's."""

import importlib.util
import random
import sys
import traceback


def solution():
    spec = importlib.util.spec_from_file_location("intervals", "/workspace/intervals.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def moments(intervals):
    return {moment for start, end in intervals for moment in range(start, end)}


def pairs(covered):
    """The fewest intervals that cover a set of moments: slow and obvious, to compare with."""
    starts = sorted(moment for moment in covered if moment - 1 not in covered)
    ends = sorted(moment + 1 for moment in covered if moment + 1 not in covered)
    return list(zip(starts, ends))


def cases():
    generator = random.Random(20)
    for _ in range(300):
        starts = [generator.randrange(-20, 20) for _ in range(generator.randrange(8))]
        yield [(start, start + generator.randrange(6)) for start in starts]


def as_pairs(intervals):
    return [tuple(pair) for pair in intervals]


def test_merge_nothing():
    assert as_pairs(solution().merge([])) == []


def test_merge_touching_and_empty():
    assert as_pairs(solution().merge([(5, 7), (1, 3), (3, 5), (9, 9)])) == [(1, 7)]


def test_merge_contained():
    assert as_pairs(solution().merge([(0, 10), (2, 3), (11, 12)])) == [(0, 10), (11, 12)]


def test_merge_any_iterable():
    assert as_pairs(solution().merge(iter([(3, 4), (1, 2)]))) == [(1, 2), (3, 4)]


def test_merge_leaves_argument_alone():
    intervals = [(3, 4), (1, 2)]
    solution().merge(intervals)
    assert intervals == [(3, 4), (1, 2)]


def test_merge_against_sets():
    merge = solution().merge
    for intervals in cases():
        assert as_pairs(merge(intervals)) == pairs(moments(intervals)), intervals


def test_free_against_sets():
    free = solution().free
    for busy in cases():
        expected = pairs(moments([(-5, 12)]) - moments(busy))
        assert as_pairs(free(busy, -5, 12)) == expected, busy


def test_free_of_empty_range():
    assert as_pairs(solution().free([(0, 5)], 7, 7)) == []


def test_large_input():
    intervals = [(3 * n, 3 * n + 2) for n in range(100_000)]
    random.Random(21).shuffle(intervals)
    module = solution()
    assert len(module.merge(intervals)) == 100_000
    assert len(module.free(intervals, 0, 300_000)) == 100_000


def main():
    summary = []
    for name, test in sorted(globals().items()):
        if name.startswith("test_"):
            try:
                test()
                summary.append(f"PASSED tests/test_outputs.py::{name}")
            except BaseException as error:  # the solution may raise anything, SystemExit too
                traceback.print_exc()
                summary.append(f"FAILED tests/test_outputs.py::{name} - {type(error).__name__}")
    print(" short test summary info ".center(80, "="))
    print("\n".join(summary))
    return any(line.startswith("FAILED") for line in summary)


if __name__ == "__main__":
    sys.exit(main())

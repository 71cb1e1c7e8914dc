"""Runs tests/test_*.py with unittest and prints one line per test, in the form of pytest --verbose.

    tests/test_x.py::TestClass::test_name PASSED

Exits with 0 only if at least one test ran and all of them passed.
"""

import importlib.util
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent


class Verbose(unittest.TestResult):
    """Prints the outcome of every test as soon as it has ended."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def startTest(self, test):
        super().startTest(test)
        self.outcome = "PASSED"
        self.details = ""

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.outcome, self.details = "FAILED", self.failures[-1][1]

    def addError(self, test, error):
        super().addError(test, error)
        self.outcome, self.details = "ERROR", self.errors[-1][1]

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.outcome = "SKIPPED"

    def stopTest(self, test):
        super().stopTest(test)
        print(f"{self.path}::{type(test).__name__}::{test._testMethodName} {self.outcome}")
        if self.details:
            print(self.details)


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return unittest.defaultTestLoader.loadTestsFromModule(module)


def main():
    # Compiled files are keyed by whole seconds and size: a quick edit could go unnoticed.
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(ROOT))
    ran, passed = 0, True
    for path in sorted((ROOT / "tests").glob("test_*.py")):
        result = Verbose(path.relative_to(ROOT).as_posix())
        try:
            suite = load(path)
        except Exception as error:
            print(f"{result.path} ERROR\n{error!r}")
            passed = False
            continue
        suite.run(result)
        ran += result.testsRun
        passed = passed and result.wasSuccessful()
    print(f"ran {ran} tests: {'all passed' if passed else 'some did not pass'}")
    return 0 if ran and passed else 1


if __name__ == "__main__":
    sys.exit(main())

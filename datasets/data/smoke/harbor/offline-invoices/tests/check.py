"""Exits 0 only for the expected totals, written as integers, in a sandbox that has no route out."""

import json
import pathlib
import sys


def routes_out():
    """Interfaces other than loopback that the kernel would route IPv4 packets to."""
    table = pathlib.Path("/proc/net/route")
    rows = table.read_text().splitlines()[1:] if table.exists() else []
    return sorted({row.split()[0] for row in rows if row.split()} - {"lo"})


def main():
    if routes_out():
        return f"the task asks for no network, but there are routes through {routes_out()}"
    try:
        totals = json.loads(pathlib.Path("/workspace/totals.json").read_text())
    except (OSError, ValueError) as error:
        return f"no usable totals.json: {error}"
    expected = json.loads(pathlib.Path("/tests/expected.json").read_text())
    # Compared as text, so that 1310.0 and True are not taken for integers.
    if json.dumps(totals, sort_keys=True) != json.dumps(expected, sort_keys=True):
        return f"expected {expected}, found {totals}"
    return None


if __name__ == "__main__":
    sys.exit(main())

"""A check of an official client against a running emulator: what the checks of all vendors do alike.

With EMULATOR_URL in the environment, and this directory in PYTHONPATH.
"""

import json
import os
import sys
import urllib.request
from contextlib import contextmanager

EMULATOR = os.environ["EMULATOR_URL"]
passed = []


def admin(method, path, body=None):
    """What an admin route of the emulator answers."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{EMULATOR}/__emulator/{path}", data, headers, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def script(*rules):
    """The faults that requests meet from now on."""
    admin("PUT", "faults", {"rule": list(rules)})


def requests(method, end):
    """Requests since the check began, to paths with this end."""
    seen = admin("GET", "requests")
    return [request for request in seen if request["method"] == method and request["path"].endswith(end)]


@contextmanager
def check(name):
    """One check: all is well before it, and after it."""
    admin("DELETE", "requests")
    try:
        yield
    except BaseException:
        print(f"FAILED  {name}", file=sys.stderr)
        raise
    finally:
        script()
    passed.append(name)
    print(f"ok  {name}", flush=True)


def same(got, wanted):
    assert got == wanted, f"{got!r} is not {wanted!r}"

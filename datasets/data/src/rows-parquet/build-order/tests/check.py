"""Exits 0 only when /workspace/order.py answers every case as asked."""

import random
import subprocess
import sys


def run(text):
    return subprocess.run(
        [sys.executable, "-B", "/workspace/order.py"], input=text, capture_output=True, text=True, timeout=20
    )


def chain(length):
    lines = [f"n{i:05}: n{i + 1:05}" for i in range(length)]
    random.Random(5).shuffle(lines)
    return "\n".join(lines), [f"n{i:05}" for i in range(length, -1, -1)]


ORDERED = {
    "nothing": ("", []),
    "ties go by name": ("b:\na:\nB:\n", ["B", "a", "b"]),
    "a name frees an earlier one": ("a: c\nb:\nc:\n", ["b", "c", "a"]),
    "only a dependency": ("app: lib util\nlib: util\n", ["util", "lib", "app"]),
    "listed twice": ("app: z\n\napp : a\n  a:z  \n", ["z", "a", "app"]),
    "same dependency twice": ("a: b b\na: b\n", ["b", "a"]),
    "a long chain": chain(10_000),
}
CYCLIC = {
    "itself": "a: a\n",
    "ring": "x:\na: b\nb: c\nc: a\n",
    "behind a ring": "z: a\na: b\nb: a\n",
}


def main():
    for name, (text, expected) in ORDERED.items():
        done = run(text)
        if done.returncode != 0 or done.stdout.split("\n") != [*expected, ""]:
            return f"{name}: exit code {done.returncode}, output {done.stdout[:300]!r}, errors {done.stderr[-300:]!r}"
    for name, text in CYCLIC.items():
        done = run(text)
        if done.returncode != 3 or done.stdout or len(done.stderr.splitlines()) != 1:
            return f"{name}: exit code {done.returncode}, output {done.stdout[:300]!r}, errors {done.stderr[-300:]!r}"
    return None


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.TimeoutExpired as error:
        sys.exit(str(error))

"""Prints the names of a dependency list in build order, or exits with 3."""

import heapq
import sys

dependencies = {}
for line in sys.stdin:
    if line.strip():
        target, _, rest = line.partition(":")
        names = rest.split()
        dependencies.setdefault(target.strip(), set()).update(names)
        for name in names:
            dependencies.setdefault(name, set())

waiting = {name: len(needs) for name, needs in dependencies.items()}
dependents = {name: [] for name in dependencies}
for name, needs in dependencies.items():
    for need in needs:
        dependents[need].append(name)

ready = [name for name, count in waiting.items() if count == 0]
heapq.heapify(ready)
order = []
while ready:
    name = heapq.heappop(ready)
    order.append(name)
    for dependent in dependents[name]:
        waiting[dependent] -= 1
        if waiting[dependent] == 0:
            heapq.heappush(ready, dependent)

if len(order) < len(dependencies):
    print("order.py: some names depend on themselves", file=sys.stderr)
    sys.exit(3)
sys.stdout.writelines(f"{name}\n" for name in order)

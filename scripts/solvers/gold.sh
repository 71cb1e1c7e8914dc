#!/bin/sh
# A command solver that runs the task's own reference solution, where an image carries it. It is here to test the path of a
# command solver; to compare backends use `--solver gold`, which brings the solution with it.
#
#   sandbox-bench run … --solver command-file:scripts/solvers/gold.sh
set -eu
for script in /solution/solve.sh /oracle/solution.sh "$BENCH_TASK_WORKDIR/solution.sh"; do
    if [ -f "$script" ]; then
        echo "running $script"
        if command -v bash >/dev/null 2>&1; then exec bash "$script"; else exec sh "$script"; fi
    fi
done
echo "gold.sh: the image of $BENCH_TASK_ID carries no solution; use --solver gold" >&2
exit 2

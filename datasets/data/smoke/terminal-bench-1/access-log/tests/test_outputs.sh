#!/bin/sh
# One test per kind of line of the report, and one for the report as a whole.
export LC_ALL=C
report=/workspace/report.txt
expected=${TEST_DIR:-/tests}/expected-report.txt

lines() { grep "^$1 " "$2"; }
same() { [ -f "$report" ] && [ "$(lines "$1" "$report")" = "$(lines "$1" "$expected")" ]; }
whole() { [ -f "$report" ] && cmp "$report" "$expected"; }

failed=0
summary=
record() { # record NAME COMMAND...
    name=$1; shift
    if "$@"; then
        status=PASSED
    else
        status=FAILED
        failed=$((failed + 1))
    fi
    summary="$summary$status tests/test_outputs.sh::$name
"
}
record test_requests same requests
record test_malformed same malformed
record test_bytes same bytes
record test_statuses same status
record test_clients same client
record test_failing_path same failing
record test_whole_report whole

echo "=========================== short test summary info ============================"
printf '%s' "$summary"
[ "$failed" -eq 0 ]

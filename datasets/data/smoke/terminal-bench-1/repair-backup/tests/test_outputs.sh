#!/bin/sh
# Each test runs /workspace/backup.sh on directories of its own.
export LC_ALL=C
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

backup() { sh /workspace/backup.sh "$@" > "$work/out" 2> "$work/err"; }
printed() { [ "$(cat "$work/out")" = "$1" ]; }
names() { ls -A "$1"; }

test_plain_names() {
    mkdir in && echo one > in/a.txt && echo two > in/b.txt
    backup in out && printed "copied 2" && cmp in/a.txt out/a.txt && cmp in/b.txt out/b.txt
}
test_odd_names() {
    mkdir "in put" && echo 1 > "in put/two words.txt" && echo 2 > "in put/-n.txt" && echo 3 > "in put/*.txt"
    backup "in put" "out put" && printed "copied 3" && [ "$(names "out put" | wc -l)" -eq 3 ] &&
        cmp "in put/two words.txt" "out put/two words.txt" && cmp ./"in put/*.txt" ./"out put/*.txt" &&
        cmp "in put/-n.txt" "out put/-n.txt"
}
test_dashed_directories() {
    mkdir ./-in && echo 1 > ./-in/a.txt
    backup -in -out && printed "copied 1" && cmp ./-in/a.txt ./-out/a.txt
}
test_only_regular_text_files() {
    mkdir -p in/sub.txt && echo 1 > in/sub.txt/deep.txt && echo 2 > in/a.text && echo 3 > in/b.txt && echo 4 > in/txt
    backup in out && printed "copied 1" && [ "$(names out)" = b.txt ]
}
test_missing_parents_are_created() {
    mkdir in && echo 1 > in/a.txt
    backup in "$PWD/new/deep er/out" && printed "copied 1" && cmp in/a.txt "new/deep er/out/a.txt"
}
test_existing_copy_is_replaced() {
    mkdir in out && echo new > in/a.txt && echo old > out/a.txt && echo kept > out/b.txt
    backup in out && printed "copied 1" && cmp in/a.txt out/a.txt && [ "$(cat out/b.txt)" = kept ]
}
test_nothing_to_copy() {
    mkdir in && echo 1 > in/readme.md
    backup in out && printed "copied 0" && [ -d out ] && [ -z "$(names out)" ]
}
test_source_is_not_a_directory() {
    echo 1 > in
    backup in out
    [ $? -eq 2 ] && printed "" && [ -s "$work/err" ] && [ ! -e out ]
}

failed=0
summary=
for name in test_plain_names test_odd_names test_dashed_directories test_only_regular_text_files \
    test_missing_parents_are_created test_existing_copy_is_replaced test_nothing_to_copy \
    test_source_is_not_a_directory; do
    mkdir "$work/$name"
    if (cd "$work/$name" && "$name") > "$work/log" 2>&1; then
        status=PASSED
    else
        status=FAILED
        failed=$((failed + 1))
        echo "--- $name"
        cat "$work/log" "$work/out" "$work/err" 2>/dev/null
    fi
    summary="$summary$status tests/test_outputs.sh::$name
"
done
echo "=========================== short test summary info ============================"
printf '%s' "$summary"
[ "$failed" -eq 0 ]

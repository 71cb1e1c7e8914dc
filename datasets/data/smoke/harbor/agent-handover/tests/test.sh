#!/bin/sh
# Tries, as the account `agent`, what it must and must not be able to do.
desk=/workspace/desk
fails=0
can() { # can WHAT COMMAND...
    what=$1; shift
    if "$@" >/dev/null 2>&1; then echo "ok: can $what"; else echo "FAILED: cannot $what"; fails=$((fails + 1)); fi
}
cannot() {
    what=$1; shift
    if "$@" >/dev/null 2>&1; then echo "FAILED: can $what"; fails=$((fails + 1)); else echo "ok: cannot $what"; fi
}
append() { echo x >> "$1"; }
create() { echo x > "$1/note-$$" && rm "$1/note-$$"; }

can    "be agent"               [ "$(id -un)" = agent ]
cannot "be root"                [ "$(id -u)" -eq 0 ]
can    "read the report"        cmp "$desk/report.txt" /tests/report.txt
cannot "change the report"      append "$desk/report.txt"
cannot "remove the report"      rm -f "$desk/report.txt"
cannot "create on the desk"     create "$desk"
can    "see the token's name"   [ -f "$desk/token.txt" ]
cannot "read the token"         cat "$desk/token.txt"
can    "create in the inbox"    create "$desk/inbox"
can    "read the welcome"       cmp "$desk/inbox/welcome.txt" /tests/welcome.txt
cannot "change the welcome"     append "$desk/inbox/welcome.txt"
cannot "remove the welcome"     rm -f "$desk/inbox/welcome.txt"

reward=0
[ "$fails" -eq 0 ] && reward=1
echo "$reward" > /logs/verifier/reward.txt
[ "$reward" -eq 1 ]

#!/bin/sh
# Sends requests as several clients, one after the other, and compares what is appended to the replies.
queue=/workspace/queue

send() { # a pipe that nobody reads would block its writer
    timeout 3 sh -c 'printf "%s\n" "$@" > /workspace/queue/requests' sh "$@"
}
running() {
    [ -s "$queue/pid" ] && kill -0 "$(cat "$queue/pid")"
}
replies() { # the replies to this run of the verifier, whose ids nobody could know before
    grep "^r$$-" "$queue/replies"
}
answered() { # waits up to 3 seconds for N replies
    tries=0
    until [ "$(replies | wc -l)" -ge "$1" ]; do
        tries=$((tries + 1))
        [ "$tries" -le 60 ] || return 1
        sleep 0.05
    done
}
expected() {
    printf '%s\n' "r$$-1 HELLO" "r$$-2 TWO  BLANKS, 3 * [STARS]" "r$$-3 BACK\\NSLASH" "r$$-4 -N" "r$$-5  LAST ONE "
}
check() {
    running && [ -p "$queue/requests" ] || return 1
    send "r$$-1 hello" && answered 1 || return 1
    send "r$$-2 two  blanks, 3 * [stars]" "r$$-3 back\\nslash" && answered 3 || return 1
    send "r$$-4 -n" && send "r$$-5  Last One " && answered 5 || return 1
    [ "$(replies)" = "$(expected)" ] && running
}

reward=0
check && reward=1
[ -f "$queue/replies" ] && cat "$queue/replies"
mkdir -p /logs/verifier
echo "$reward" > /logs/verifier/reward.txt
[ "$reward" -eq 1 ]

# Ends every process of one command, wherever it went: the marked ones (see run.sh), and all descendants of these that
# shed the mark. Neither setsid, nor a double fork, nor another user, nor a cleared environment hides a process.
# POSIX sh builtins only, so that it works when no process can be forked any more.
#
# sh -c SCRIPT sh BYTES BYTES ROOT GRACE SECONDS
#   BYTES    the mark as /proc shows it, for shells that count blocks of 512 and of 1024 bytes
#   ROOT     pid of the command's wrapper if it could not be marked, else 0
#   GRACE    seconds between the request to end (SIGTERM) and SIGKILL; 0: no request
#   SECONDS  when to give up
# Prints `gone`, or `left` and the pids that survived.
small=$1 large=$2 root=$3 grace=$4 seconds=$5
exec 2>/dev/null

now() {
    read -r up rest </proc/uptime
    up=${up%.*}
}

look() {
    pid=$1 state= parent=
    while read -r key value rest; do
        case $key in
        State:) state=$value ;;
        PPid:) parent=$value && break ;;
        esac
    done <"/proc/$pid/status"
    case $state in '' | Z | X) return 1 ;; esac
    [ "$pid" = "$root" ] && return 0
    case $found in *" $parent "*) return 0 ;; esac
    while read -r key kind unit size rest; do
        [ "$kind" = file ] && break
    done <"/proc/$pid/limits"
    [ "$size" = "$small" ] || [ "$size" = "$large" ]
}

scan() {
    found=' ' more=1
    while [ -n "$more" ]; do
        more=
        for entry in /proc/[0-9]*; do
            pid=${entry#/proc/}
            case $found in *" $pid "*) continue ;; esac
            look "$pid" && found="$found$pid " more=1
        done
    done
    [ "$found" != ' ' ]
}

now
give_up=$((up + seconds)) until=$((up + grace))

if [ "$grace" -gt 0 ] && scan; then
    kill -TERM $found
    # No pause between two looks: a pause is a process, and a shell that cannot fork one gives up altogether.
    while scan && now && [ "$up" -lt "$until" ]; do :; done
fi

# Stopped before they are killed: a process that forks faster than we look cannot outrun that.
while scan && now && [ "$up" -le "$give_up" ]; do
    held=
    while [ "$found" != "$held" ] && now && [ "$up" -le "$give_up" ]; do
        held=$found
        kill -STOP $found
        scan
    done
    kill -KILL $found
done

if scan; then
    echo "left$found"
else
    echo gone
fi

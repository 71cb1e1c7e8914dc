# Runs one command and frames what it writes, so that the host can tell the command's output from the engine's
# own words, and its end from the end of what it left in the background. POSIX sh builtins only: nothing is forked
# but the command itself.
#
# sh -c SCRIPT sh FRAME MARK WATCH COMMAND...
#   FRAME  random text of the frame marks
#   MARK   soft file-size limit, in blocks of the shell, far beyond any real file; children inherit it, and kill.sh
#          knows them by it
#   WATCH  1: tell whether the sandbox has no process after the command that it did not have before
#
# Opening mark on each stream: RS FRAME '<' [PID MARKED] RS LF; closing mark: RS FRAME '>' [facts] RS LF, facts on stderr.
# The line ends are for backends that pass output on line by line.
frame=$1 mark=$2 watch=$3
shift 3
exec 3>&2 2>/dev/null

processes() { pids=$*; }

nothing_new() {
    for pid in $pids; do
        case " $before " in *" $pid "*) ;; *) return 1 ;; esac
    done
}

memory_kills() {
    kills=
    for file in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
        [ -r "$file" ] && while read -r key value; do
            [ "$key" = oom_kill ] && kills=$value
        done <"$file"
    done
}

usage() {
    peak= cpu_us= cpu_ns=
    for file in /sys/fs/cgroup/memory.peak /sys/fs/cgroup/memory/memory.max_usage_in_bytes; do
        [ -r "$file" ] && read -r peak <"$file"
    done
    [ -r /sys/fs/cgroup/cpu.stat ] && read -r key cpu_us </sys/fs/cgroup/cpu.stat
    [ -r /sys/fs/cgroup/cpuacct/cpuacct.usage ] && read -r cpu_ns </sys/fs/cgroup/cpuacct/cpuacct.usage
}

# The mark counts only if others can see it: not every kernel shows it. Shells count blocks of 512 or of 1024 bytes.
mark() {
    ulimit -S -f "$1" || return 1
    while read -r key kind unit size rest; do
        [ "$kind" = file ] && break
    done </proc/self/limits
    [ "$size" = $(($1 * 512)) ] || [ "$size" = $(($1 * 1024)) ]
}

marked=0
mark "$mark" && marked=1
same=
[ "$watch" = 1 ] && processes /proc/[0-9]* && before=$pids
memory_kills
kills_before=$kills
printf '\036%s<\036\n' "$frame"
printf '\036%s<%s %s\036\n' "$frame" "$$" "$marked" >&3
read -r start rest </proc/uptime

# In a subshell of its own and by `exec`, so that the program is found in PATH and never taken for a builtin.
(exec "$@" 2>&3 3>&-)
code=$?

read -r end rest </proc/uptime
memory_kills
usage
[ "$watch" = 1 ] && processes /proc/[0-9]* && nothing_new && same=1
printf '\036%s>\036\n' "$frame"
printf '\036%s>code=%s start=%s end=%s kills=%s/%s peak=%s cpu_us=%s cpu_ns=%s same=%s\036\n' "$frame" "$code" \
    "$start" "$end" "$kills_before" "$kills" "$peak" "$cpu_us" "$cpu_ns" "$same" >&3
exit "$code"

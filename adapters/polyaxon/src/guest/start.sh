# Starts one command with its output in files, which the host reads as bytes: what the daemon itself captures is text, and
# would change bytes that are none. POSIX sh; needs mkdir.
#
# sh -c SCRIPT sh DIR CWD MAKE STDIN COMMAND...
#   DIR    where the files `out` and `err` go
#   CWD    working directory; empty: where the daemon starts commands
#   MAKE   1: make it if it is not there
#   STDIN  0: nothing to read
# Prints a word if the command cannot be started.
dir=$1 cwd=$2 make=$3 stdin=$4
shift 4
if [ -n "$cwd" ]; then
    if [ "$make" = 1 ] && [ ! -d "$cwd" ]; then mkdir -p "$cwd" 2>/dev/null; fi
    cd "$cwd" 2>/dev/null || { echo no-directory; exit 125; }
fi
{ mkdir -p "${dir%/*}" && mkdir -m 700 "$dir"; } || { echo no-place; exit 125; }
[ "$stdin" = 1 ] || exec </dev/null
exec "$@" >"$dir/out" 2>"$dir/err"

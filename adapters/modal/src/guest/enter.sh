# Prepares what the service is not told of, then runs one command.
#
# sh -c SCRIPT sh DIR STDIN COMMAND...
#   DIR    working directory of this command; empty: the sandbox's own, which is made if it is missing
#   STDIN  1: the command reads what the service sends; else nothing
# Ends with 120 if the directory cannot be used: then the command was not run.
own=$SANDBOX_BENCH_WORKDIR dir=$1 stdin=$2
unset SANDBOX_BENCH_WORKDIR
shift 2
if [ -n "$dir" ]; then
    cd -- "$dir" 2>/dev/null || exit 120
elif [ -n "$own" ]; then
    cd -- "$own" 2>/dev/null || { mkdir -p -- "$own" && cd -- "$own"; } || exit 120
fi
[ "$stdin" = 1 ] || exec </dev/null
exec "$@"

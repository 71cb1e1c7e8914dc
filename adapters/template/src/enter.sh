# Sets the directory, which the service cannot, then runs one command.
#
# sh -c SCRIPT sh MAKE DIR COMMAND...
#   MAKE   1: the directory is made if it is missing
#   DIR    working directory; empty: where we are
# What it says is read by sandbox_bench_kit::guest::not_become.
make=$1 dir=$2
shift 2
if [ -n "$dir" ]; then
    cd -- "$dir" 2>/dev/null || { [ "$make" = 1 ] && mkdir -p -- "$dir" && cd -- "$dir"; } || {
        echo "sandbox-bench: no such directory: $dir" >&2
        exit 120
    }
fi
exec "$@"

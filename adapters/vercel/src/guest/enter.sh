# Prepares what the service cannot be told of, then runs one command.
#
# sh -c SCRIPT sh MAKE DIR INPUT COMMAND...
#   MAKE   1: the directory is made if it is missing
#   DIR    working directory; empty: where we are
#   INPUT  file with the command's stdin, removed once it is open; empty: no stdin
# Ends with 120 if the directory, with 121 if the input cannot be used: then the command was not run.
make=$1 dir=$2 input=$3
shift 3
if [ -n "$dir" ]; then
    cd -- "$dir" 2>/dev/null || { [ "$make" = 1 ] && mkdir -p -- "$dir" && cd -- "$dir"; } || exit 120
fi
if [ -n "$input" ]; then
    [ -r "$input" ] || exit 121
    exec <"$input"
    rm -f -- "$input"
else
    exec </dev/null
fi
exec "$@"

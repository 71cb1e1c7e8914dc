# Prints what two files hold from some byte on: of the one on stdout, of the other on stderr.
#
# sh -c SCRIPT sh DIR OUT ERR LIMIT
#   DIR       directory of the files `out` and `err`; one that is not there yet is empty
#   OUT, ERR  bytes to pass over
#   LIMIT     most bytes of each
exec 3>&2 2>/dev/null
tail -c "+$(($2 + 1))" -- "$1/out" | head -c "$4"
tail -c "+$(($3 + 1))" -- "$1/err" | head -c "$4" >&3

# Runs one command whose output goes to files, which only this user can read.
#
# sh -c SCRIPT sh DIR COMMAND...
#   DIR  directory for the files `out` and `err`; it must not be there yet
# Ends with 121 if they cannot be made: then the command was not run.
dir=$1
shift
mkdir -m 0700 -- "$dir" || exit 121
exec "$@" >"$dir/out" 2>"$dir/err"

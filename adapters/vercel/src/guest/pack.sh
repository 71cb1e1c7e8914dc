# Packs a file or directory, for the sandbox's own user to read. The archive is in a directory that nobody but root can list.
#
# sh -c SCRIPT sh PARENT NAME ARCHIVE LIMIT
# Prints the size of the archive in bytes. Ends with 120 if there is no such path, with 121 if there is no tar, with 122 if the archive is larger than LIMIT bytes.
umask 022
cd -- "$1" 2>/dev/null || exit 120
[ -e "$2" ] || [ -L "$2" ] || exit 120
command -v tar >/dev/null || exit 121
mkdir -p -m 0711 -- "${3%/*}" || exit
trap '[ "$done" ] || rm -f -- "$3"' EXIT
# One byte more than the limit tells that there is more.
code=$({ { tar -cf - -- "$2"; echo $? >&3; } | head -c "$(($4 + 1))" >"$3"; } 3>&1)
size=$(wc -c <"$3") || exit
[ "$size" -le "$4" ] || exit 122
# 1: files changed while they were read; the archive is sound all the same.
[ "$code" -le 1 ] || exit 1
done=1
echo "$size"

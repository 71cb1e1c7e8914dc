# Packs a file or directory into an archive: sh -c SCRIPT sh FILE FROM LIMIT. Prints the archive's size. Needs tar, head, wc.
file=$1 from=$2 limit=$3
[ -e "$from" ] || [ -L "$from" ] || exit 95
while [ "$from" != / ] && [ "${from%/}" != "$from" ]; do from=${from%/}; done
name=${from##*/} dir=${from%/*}
[ -n "$name" ] || name=.
umask 077
mkdir -p "${file%/*}"
exec 3>&1
# One byte more than allowed tells that there is more. The exit code of tar comes on its own way past the pipe.
code=$({ { tar -cf - -C "${dir:-/}" -- "$name" 2>/dev/null; echo $? >&4; } | head -c "$((limit + 1))" >"$file"; } 4>&1)
size=$(wc -c <"$file") || exit 96
[ "$((size))" -le "$limit" ] || { rm -f "$file"; exit 97; }
# 1: a file changed or vanished while it was read, which an archive of a living sandbox may show.
[ "$code" = 0 ] || [ "$code" = 1 ] || { rm -f "$file"; echo "tar: exit code $code" >&2; exit 98; }
echo "$((size))" >&3

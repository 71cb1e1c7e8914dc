# Unpacks an uploaded archive below the root: sh -c SCRIPT sh FILE SIZE. Removes the archive. Needs tar and wc.
file=$1
size=$(wc -c <"$file") || exit 96
[ "$((size))" = "$2" ] || { echo "the archive has $((size)) of $2 bytes" >&2; rm -f "$file"; exit 97; }
umask 022
tar -xpf "$file" -C / 2>&1 >/dev/null
code=$?
rm -f "$file"
[ "$code" = 0 ] || exit 98

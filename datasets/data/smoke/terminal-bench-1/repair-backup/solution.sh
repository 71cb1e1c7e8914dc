#!/bin/sh
set -eu
cat > /workspace/backup.sh <<'SCRIPT'
#!/bin/sh
# backup.sh SOURCE DEST: copies the notes (*.txt) of SOURCE into DEST.
set -eu

# A leading dash would be taken for an option.
path() { case $1 in -*) printf './%s\n' "$1" ;; *) printf '%s\n' "$1" ;; esac; }
source=$(path "$1")
dest=$(path "$2")

if [ ! -d "$source" ]; then
    echo "backup.sh: $source is not a directory" >&2
    exit 2
fi

mkdir -p "$dest"
copied=0
for note in "$source"/*.txt; do
    # An unmatched pattern stays as it is; a link is not a regular file.
    if [ -f "$note" ] && [ ! -L "$note" ]; then
        cp "$note" "$dest/"
        copied=$((copied + 1))
    fi
done
echo "copied $copied"
SCRIPT

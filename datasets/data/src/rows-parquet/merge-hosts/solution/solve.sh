#!/bin/sh
set -eu
cat > /workspace/merge-hosts.sh <<'SCRIPT'
#!/bin/sh
# merge-hosts.sh DIRECTORY: prints one host table made from DIRECTORY/*.hosts.
export LC_ALL=C
cd "$1" || exit
for file in ./*.hosts; do
    [ -f "$file" ] && cat "$file" && echo
done | awk '
    { sub(/#.*/, "") }
    NF >= 2 {
        for (i = 2; i <= NF; i++) {
            name = tolower($i)
            if (!(name in owner)) {
                owner[name] = $1
                if ($1 in names) {
                    names[$1] = names[$1] " " name
                } else {
                    order[++count] = $1
                    names[$1] = name
                }
            }
        }
    }
    END { for (i = 1; i <= count; i++) printf "%s\t%s\n", order[i], names[order[i]] }
'
SCRIPT
sh /workspace/merge-hosts.sh /workspace/hosts.d > /workspace/hosts

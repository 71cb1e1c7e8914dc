# Packs a file or directory to stdout.
#
# sh -c SCRIPT sh PARENT NAME LIMIT
# Ends with 120 if there is no such path, with 121 if there is no tar, with 122 if the archive is larger than LIMIT bytes.
cd -- "$1" 2>/dev/null || exit 120
[ -e "$2" ] || [ -L "$2" ] || exit 120
command -v tar >/dev/null || exit 121
exec 4>&1
# One byte more than the limit tells that there is more.
code=$({ { tar -cf - -- "$2"; echo $? >&3; } | head -c "$(($3 + 1))" >&4; } 3>&1)
# 1: files changed while they were read; the archive is sound all the same. 141: cut at the limit.
case $code in 0 | 1) ;; 141) exit 122 ;; *) exit 1 ;; esac

#!/bin/sh
set -eu
cd /workspace/queue
cat > service.sh <<'SCRIPT'
#!/bin/sh
export LC_ALL=C
# Opened for reading and writing, the pipe never reaches its end when a client leaves.
exec 3<> requests
echo $$ > pid
while IFS= read -r request <&3; do
    id=${request%% *}
    printf '%s %s\n' "$id" "$(printf '%s' "${request#* }" | tr a-z A-Z)" >> replies
done
SCRIPT

rm -f requests pid
mkfifo requests
: > replies
setsid nohup sh service.sh > service.log 2>&1 < /dev/null &

tries=0
until [ -s pid ]; do
    tries=$((tries + 1))
    [ "$tries" -le 200 ] || { cat service.log; exit 1; }
    sleep 0.05
done

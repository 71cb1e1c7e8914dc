#!/bin/sh
set -eu
# The service must not depend on /solution, which is only there for this phase.
cp "$(dirname "$0")/server.py" /workspace/server.py
rm -f /workspace/port
setsid nohup python3 -B /workspace/server.py > /workspace/server.log 2>&1 < /dev/null &

tries=0
until [ -s /workspace/port ]; do
    tries=$((tries + 1))
    [ "$tries" -le 200 ] || { cat /workspace/server.log; exit 1; }
    sleep 0.05
done

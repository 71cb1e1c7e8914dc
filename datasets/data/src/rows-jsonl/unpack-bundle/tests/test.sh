#!/bin/sh
# Compares the names, checksums and sizes in both directories, and the index.
export LC_ALL=C
files() { # files DIRECTORY: checksum, size and path of everything in it
    (cd "/workspace/$1" && find . ! -type d -exec cksum {} + | sed 's|\./||' | sort -k3)
}
reward=0
if files unpacked | diff /tests/unpacked.txt - &&
    files quarantine | diff /tests/quarantine.txt - &&
    diff /tests/index.txt /workspace/index.txt &&
    [ -f /workspace/incoming/bundle.tar.gz ]; then
    reward=1
fi
mkdir -p /logs/verifier
echo "$reward" > /logs/verifier/reward.txt
[ "$reward" -eq 1 ]

#!/bin/sh
set -eu
cd /workspace/desk
chmod 0644 report.txt inbox/welcome.txt
chmod 0600 token.txt
# Sticky: anyone may add a note, nobody may remove another's.
chmod 1777 inbox

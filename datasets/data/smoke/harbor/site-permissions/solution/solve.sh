#!/bin/sh
set -eu
cd /workspace/site
find . -type d -exec chmod 0755 {} +
find . -type f -exec chmod 0644 {} +
chmod 0755 bin/serve.sh bin/check-links
find private -type d -exec chmod 0700 {} +
find private -type f -exec chmod 0600 {} +

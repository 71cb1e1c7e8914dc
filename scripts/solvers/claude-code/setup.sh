#!/bin/sh
# Installs Claude Code 2.1.332 into the sandbox. For --solver-setup; runs as root, needs a network.
set -eu
if ! command -v npm >/dev/null 2>&1; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ca-certificates git nodejs npm >/dev/null
fi
npm install --global --silent --prefix /opt/solver @anthropic-ai/claude-code@2.1.332
/opt/solver/bin/claude --version

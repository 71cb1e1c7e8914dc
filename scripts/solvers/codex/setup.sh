#!/bin/sh
# Installs Codex 0.171.0 into the sandbox. For --solver-setup; runs as root, needs a network.
set -eu
if ! command -v npm >/dev/null 2>&1; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ca-certificates git nodejs npm >/dev/null
fi
npm install --global --silent --prefix /opt/solver @openai/codex@0.171.0
/opt/solver/bin/codex --version

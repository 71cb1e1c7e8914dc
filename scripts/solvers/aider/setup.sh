#!/bin/sh
# Installs aider 0.86.2 into the sandbox. For --solver-setup; runs as root, needs a network.
set -eu
if ! python3 -m venv --help >/dev/null 2>&1 || ! command -v git >/dev/null 2>&1; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        ca-certificates git python3 python3-venv >/dev/null
fi
python3 -m venv /opt/solver
/opt/solver/bin/pip install --quiet --disable-pip-version-check aider-chat==0.86.2
/opt/solver/bin/aider --version

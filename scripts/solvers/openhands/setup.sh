#!/bin/sh
# Installs the OpenHands command line into the sandbox, with a Python 3.12 of its own where there is none. For
# --solver-setup; runs as root, needs a network.
set -eu
if ! python3 -m venv --help >/dev/null 2>&1 || ! command -v git >/dev/null 2>&1; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        ca-certificates git python3 python3-venv >/dev/null
fi
python=$(command -v python3.12 || true)
if [ -n "$python" ]; then
    "$python" -m venv /opt/solver
    /opt/solver/bin/pip install --quiet --disable-pip-version-check openhands==1.16.0
else
    python3 -m venv /opt/uv
    /opt/uv/bin/pip install --quiet --disable-pip-version-check uv
    UV_PYTHON_INSTALL_DIR=/opt/python /opt/uv/bin/uv venv --quiet --python 3.12 /opt/solver
    VIRTUAL_ENV=/opt/solver /opt/uv/bin/uv pip install --quiet openhands==1.16.0
fi
/opt/solver/bin/openhands --help >/dev/null

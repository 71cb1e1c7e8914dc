#!/bin/sh
# Makes a virtual environment with the Python version that a repository's manifest names.
#
#   python.sh VERSION DIRECTORY
set -eu

for python in "python$1" python3 python; do
  if "$python" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null; then
    exec "$python" -m venv "$2"
  fi
done
if command -v uv >/dev/null 2>&1; then
  exec uv venv --seed --python "$1" "$2"
fi
echo "Python $1 is not here, and there is no uv to get it with" >&2
exit 1

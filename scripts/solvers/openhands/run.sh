#!/bin/sh
# OpenHands on a task. Forward LLM_API_KEY and, for another endpoint, LLM_BASE_URL; name the model with --model.
set -eu
: "${LLM_API_KEY:?openhands: no key; --forward-env LLM_API_KEY}"
LLM_MODEL=${BENCH_MODEL:-${LLM_MODEL:-}}
[ -n "$LLM_MODEL" ] || { echo "openhands: no model; give --model" >&2; exit 2; }
export LLM_MODEL
exec /opt/solver/bin/openhands --headless --override-with-envs --json --file "$BENCH_TASK_FILE"

#!/bin/sh
# mini-swe-agent on a task. Forward the key that the model's provider wants, such as OPENAI_API_KEY or OPENROUTER_API_KEY;
# name the model with --model, as LiteLLM does: openrouter/some/model.
set -eu
[ -n "${BENCH_MODEL:-}" ] || { echo "mini-swe-agent: no model; give --model" >&2; exit 2; }
mkdir -p /logs/agent 2>/dev/null || true
MSWEA_GLOBAL_CONFIG_DIR=$(mktemp -d)
export MSWEA_GLOBAL_CONFIG_DIR MSWEA_CONFIGURED=true MSWEA_SILENT_STARTUP=1
exec /opt/solver/bin/mini --yolo --exit-immediately --model "$BENCH_MODEL" --task "$(cat "$BENCH_TASK_FILE")" \
    --output /tmp/mini-swe-agent.json

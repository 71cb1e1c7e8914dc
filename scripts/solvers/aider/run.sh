#!/bin/sh
# aider on a task. Forward the key that the model's provider wants, such as OPENAI_API_KEY or OPENROUTER_API_KEY; name the
# model with --model, as aider does: openrouter/some/model.
set -eu
[ -n "${BENCH_MODEL:-}" ] || { echo "aider: no model; give --model" >&2; exit 2; }
mkdir -p /tmp/aider
# Its own files stay out of the working directory. It edits files and runs the commands that it proposes.
exec /opt/solver/bin/aider --model "$BENCH_MODEL" --message-file "$BENCH_TASK_FILE" --yes-always --no-git \
    --no-check-update --no-show-release-notes --analytics-disable --no-pretty --no-stream \
    --input-history-file /tmp/aider/input --chat-history-file /tmp/aider/chat.md

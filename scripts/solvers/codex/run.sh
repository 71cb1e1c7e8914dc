#!/bin/sh
# Codex on a task. Forward OPENAI_API_KEY.
set -eu
: "${OPENAI_API_KEY:?codex: no key; --forward-env OPENAI_API_KEY}"
CODEX_HOME=$(mktemp -d)
export CODEX_HOME
trap 'rm -rf "$CODEX_HOME"' EXIT
printenv OPENAI_API_KEY | /opt/solver/bin/codex login --with-api-key >/dev/null
unset OPENAI_API_KEY
/opt/solver/bin/codex exec --json --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox \
    ${BENCH_MODEL:+--model "$BENCH_MODEL"} - <"$BENCH_TASK_FILE"

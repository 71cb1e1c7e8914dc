#!/bin/sh
# Claude Code on a task. Forward ANTHROPIC_API_KEY, or ANTHROPIC_AUTH_TOKEN and ANTHROPIC_BASE_URL for a gateway.
set -eu
[ -n "${ANTHROPIC_API_KEY:-}${ANTHROPIC_AUTH_TOKEN:-}" ] || {
    echo "claude-code: no key; --forward-env ANTHROPIC_API_KEY" >&2
    exit 2
}
mkdir -p /logs/agent 2>/dev/null || true
# As root it works unattended only where it is told that this is a sandbox.
export IS_SANDBOX=1 DISABLE_AUTOUPDATER=1 CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1
exec /opt/solver/bin/claude --print --dangerously-skip-permissions --verbose --output-format stream-json \
    ${BENCH_MODEL:+--model "$BENCH_MODEL"} <"$BENCH_TASK_FILE"

#!/bin/sh
# chat.sh with the Vercel AI Gateway. One file is sent to the sandbox, so it is joined with chat.sh first:
#
#   cat scripts/solvers/ai-gateway.sh scripts/solvers/chat.sh >solver.sh
#   sandbox-bench run … --solver command-file:solver.sh --forward-env AI_GATEWAY_API_KEY --model some/model
key=${AI_GATEWAY_API_KEY:-${VERCEL_OIDC_TOKEN:-}}
: "${key:?forward it: --forward-env AI_GATEWAY_API_KEY (or VERCEL_OIDC_TOKEN)}"
export CHAT_BASE_URL="${AI_GATEWAY_BASE_URL:-https://ai-gateway.vercel.sh/v1}" CHAT_API_KEY="$key"
export CHAT_MODEL="${AI_GATEWAY_MODEL:-}"
unset key AI_GATEWAY_API_KEY VERCEL_OIDC_TOKEN

#!/bin/sh
# chat.sh with OpenRouter. One file is sent to the sandbox, so it is joined with chat.sh first:
#
#   cat scripts/solvers/openrouter.sh scripts/solvers/chat.sh >solver.sh
#   sandbox-bench run … --solver command-file:solver.sh --forward-env OPENROUTER_API_KEY --model some/model
: "${OPENROUTER_API_KEY:?forward it: --forward-env OPENROUTER_API_KEY}"
export CHAT_BASE_URL="${OPENROUTER_BASE_URL:-https://openrouter.ai/api/v1}" CHAT_API_KEY="$OPENROUTER_API_KEY"
export CHAT_MODEL="${OPENROUTER_MODEL:-}"
unset OPENROUTER_API_KEY

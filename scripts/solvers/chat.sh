#!/bin/sh
# A model that works inside the sandbox with nothing but a shell: asks any OpenAI-compatible endpoint for the next command,
# runs it, says what came of it. Needs curl and python3 in the sandbox, and a network. The key is in the sandbox, so give
# it one with a limit.
#
#   CHAT_API_KEY=… sandbox-bench run … --solver command-file:scripts/solvers/chat.sh \
#       --forward-env CHAT_API_KEY,CHAT_BASE_URL --model some/model
#
# openrouter.sh and ai-gateway.sh are this with the variables of those gateways.
#
#   CHAT_BASE_URL   such as https://openrouter.ai/api/v1
#   CHAT_API_KEY    its key; may be empty
#   BENCH_MODEL     the model (--model), else CHAT_MODEL
#   CHAT_TURNS      most commands [30]
set -eu
: "${CHAT_BASE_URL:?forward it: --forward-env CHAT_BASE_URL}"
model=${BENCH_MODEL:-${CHAT_MODEL:-}}
[ -n "$model" ] || { echo "chat.sh: no model; give --model" >&2; exit 2; }
for tool in curl python3; do
    command -v $tool >/dev/null 2>&1 || { echo "chat.sh: needs $tool in the sandbox" >&2; exit 2; }
done
mkdir -p /logs/agent 2>/dev/null || true
state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
umask 077
# By a file: a key on a command line is seen by everybody.
printf 'header = "Authorization: Bearer %s"\n' "${CHAT_API_KEY:-}" >"$state/curl"
export CHAT_STATE="$state" CHAT_URL="${CHAT_BASE_URL%/}/chat/completions" CHAT_NAME="$model"
unset CHAT_API_KEY
exec python3 -c '
import json, os, subprocess, sys

state, turns = os.environ["CHAT_STATE"], int(os.environ.get("CHAT_TURNS", "30"))
system = (
    "You do a task on a Linux machine, alone. Answer with exactly one shell command in a block that begins with ```sh and "
    "ends with ```. You are told its output. When the task is done, answer with DONE and no block."
)
messages = [
    {"role": "system", "content": system},
    {"role": "user", "content": open(os.environ["BENCH_TASK_FILE"]).read()},
]


def ask():
    body = json.dumps({"model": os.environ["CHAT_NAME"], "messages": messages})
    command = [
        "curl", "--silent", "--show-error", "--fail-with-body", "--max-time", "300", "--retry", "5",
        "--config", state + "/curl", "--header", "Content-Type: application/json", "--data-binary", "@-",
        os.environ["CHAT_URL"],
    ]
    answer = subprocess.run(command, input=body.encode(), stdout=subprocess.PIPE, timeout=2400)
    if answer.returncode:
        sys.exit("chat.sh: curl ended with %d: %s" % (answer.returncode, answer.stdout.decode(errors="replace")[:400]))
    answer = json.loads(answer.stdout)
    print("usage:", json.dumps(answer.get("usage")), flush=True)
    return answer["choices"][0]["message"]["content"] or ""


for turn in range(turns):
    said = ask()
    print("model:", said, flush=True)
    messages.append({"role": "assistant", "content": said or "(nothing)"})
    if "```" not in said:
        if "DONE" in said:
            sys.exit(0)
        messages.append({"role": "user", "content": "Answer with one command in a ```sh block, or with DONE."})
        continue
    command = said.split("```", 2)[1].split("\n", 1)[-1]
    try:
        ran = subprocess.run(
            ["sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120
        )
        told = "exit code %d\n%s" % (ran.returncode, ran.stdout.decode(errors="replace"))
    except subprocess.TimeoutExpired:
        told = "the command took longer than 120 s and was stopped"
    if len(told) > 16000:
        told = told[:8000] + "\n[...]\n" + told[-8000:]
    print(told, flush=True)
    messages.append({"role": "user", "content": told})
sys.exit("chat.sh: the model used up %d turns" % turns)
'

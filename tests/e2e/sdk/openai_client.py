"""Asks the tests' chat-completions server with the official client: what it understands, the server says correctly.

    openai_client.py BASE_URL KEY
"""

import json
import sys

import openai

base, key = sys.argv[1:]
client = openai.OpenAI(base_url=base, api_key=key, max_retries=0)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "run_command",
            "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
        },
    }
]


def ask(text, **more):
    return client.chat.completions.create(model="scripted", messages=[{"role": "user", "content": text}], **more)


def raises(kind, *arguments, **more):
    try:
        ask(*arguments, **more)
    except kind:
        return
    raise AssertionError(f"{arguments}: no {kind.__name__}")


# Whole answers.
answer = ask("say")
assert answer.choices[0].message.content == "Grüße, it is done.", answer
assert answer.choices[0].finish_reason == "stop"
assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
assert ask("refuse").choices[0].message.refusal == "No."
calls = ask("call", tools=TOOLS).choices[0].message.tool_calls
assert [json.loads(call.function.arguments) for call in calls] == [{"command": "ls"}, {"command": "pwd"}], calls

# Streams.
text, usage = "", None
for chunk in ask("say", stream=True, stream_options={"include_usage": True}):
    usage = chunk.usage or usage
    text += "".join(choice.delta.content or "" for choice in chunk.choices)
assert text == "Grüße, it is done." and usage.completion_tokens > 1, (text, usage)
arguments = {}
for chunk in ask("call", tools=TOOLS, stream=True):
    for choice in chunk.choices:
        for part in choice.delta.tool_calls or []:
            arguments[part.index] = arguments.get(part.index, "") + (part.function.arguments or "")
assert [json.loads(text) for text in arguments.values()] == [{"command": "ls"}, {"command": "pwd"}], arguments

# Errors.
raises(openai.RateLimitError, "429")
raises(openai.InternalServerError, "500")
raises(openai.BadRequestError, "say", extra_body={"no_such_field": 1})
raises(openai.BadRequestError, "say", stream_options={"include_usage": True})
try:
    client.chat.completions.create(model="no-such-model", messages=[{"role": "user", "content": "x"}])
    raise AssertionError("no NotFoundError")
except openai.NotFoundError:
    pass
try:
    openai.OpenAI(base_url=base, api_key="wrong", max_retries=0).chat.completions.create(
        model="scripted", messages=[{"role": "user", "content": "x"}]
    )
    raise AssertionError("no AuthenticationError")
except openai.AuthenticationError:
    pass
print("the official client understands the server")

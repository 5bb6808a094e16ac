"""Prompts that transformers writes by chat templates of published models. `make templates` runs it, and then the tests that
write the same ones here; nothing of it is committed.

    python make_templates.py --templates FOLDER --out FILE

FOLDER has a `NAME.jinja` each. FILE is a list of `{name, source, prompts}`; a prompt is what `Conversation` holds, and what
transformers makes of it: `prompt`, or null where the template refuses it.
"""

import argparse
import datetime
import json
import os
import pathlib

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from transformers.utils import chat_template_utils

# Those of golden/tiny-llama.
TOKENS = dict(bos_token="<|im_start|>", eos_token="<|im_end|>")
DAY = datetime.datetime(2024, 7, 25, 12, 0, 0)

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city <now> & later, in \"°C\"",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Its name"},
                "days": {"type": ["integer", "null"], "minimum": 1, "default": 3},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                "at": {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]},
            },
            "required": ["city"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "The time", "parameters": {"type": "object", "properties": {}}}}
SYSTEM = {"role": "system", "content": " Be brief. "}
USER = {"role": "user", "content": "What is the weather in Zürich?\n"}
# Mistral's templates take ids of nine letters and digits.
CALLS = [
    {"id": "abcdefgh1", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2, "at": {"lat": 47.4}}}},
]
CALL = {"role": "assistant", "content": "", "tool_calls": CALLS}
THOUGHT = {**CALL, "reasoning_content": "The city is in Switzerland."}
RESULT = {"role": "tool", "tool_call_id": "abcdefgh1", "name": "get_weather", "content": "{\"temperature\": 21.5}"}
ANSWER = {"role": "assistant", "content": "21.5 °C."}
THANKS = {"role": "user", "content": "Thanks!"}

CASES = {
    "plain": dict(messages=[SYSTEM, USER]),
    "no system": dict(messages=[USER]),
    "turns": dict(messages=[SYSTEM, USER, ANSWER, THANKS]),
    "no generation prompt": dict(messages=[SYSTEM, USER, ANSWER], add_generation_prompt=False),
    "tools": dict(messages=[SYSTEM, USER], tools=[WEATHER, CLOCK]),
    "tools, no system": dict(messages=[USER], tools=[WEATHER]),
    "called": dict(messages=[SYSTEM, USER, CALL, RESULT], tools=[WEATHER, CLOCK]),
    "called and answered": dict(messages=[USER, CALL, RESULT, ANSWER, THANKS], tools=[WEATHER]),
    "thought and called": dict(messages=[USER, THOUGHT, RESULT], tools=[WEATHER]),
    "not thinking": dict(messages=[USER], kwargs=dict(enable_thinking=False)),
    "thinking": dict(messages=[USER], kwargs=dict(enable_thinking=True)),
    "effort": dict(messages=[SYSTEM, USER], kwargs=dict(reasoning_effort="high")),
}


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return DAY


def prompt(source, messages, tools=None, kwargs=None, add_generation_prompt=True):
    try:
        [rendered], _ = chat_template_utils.render_jinja_template(
            conversations=[messages],
            tools=tools,
            chat_template=source,
            add_generation_prompt=add_generation_prompt,
            **TOKENS,
            **(kwargs or {}),
        )
    except Exception as error:
        return dict(prompt=None, why=f"{type(error).__name__}: {error}")
    return dict(prompt=rendered)


def as_the_api_has_it(message):
    """Arguments of calls are text there."""
    calls = message.get("tool_calls")
    if calls is None:
        return message
    text = lambda call: {**call["function"], "arguments": json.dumps(call["function"]["arguments"], ensure_ascii=False)}
    return {**message, "tool_calls": [{**call, "function": text(call)} for call in calls]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--templates", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    chat_template_utils.datetime = Clock
    written = []
    for path in sorted(args.templates.glob("*.jinja")):
        source = path.read_text()
        prompts = []
        for name, case in CASES.items():
            messages = [as_the_api_has_it(message) for message in case["messages"]]
            prompts.append({"case": name, **case, "messages": messages, **prompt(source, **case)})
        written.append({"name": path.stem, "source": source, "prompts": prompts})
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(written, ensure_ascii=False, indent=1))
    print(f"{len(written)} templates, {sum(p['prompt'] is not None for w in written for p in w['prompts'])} prompts: {args.out}")


main()

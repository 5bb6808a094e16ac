"""Answers in each form: what models write, and what they may write by mistake."""

import dataclasses
import json
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Text:
    """An answer, in a row of the table."""

    row: str
    name: str
    text: str
    reasoning: str | None = None
    tools: str | None = None


def _schema(**properties):
    return {"type": "object", "properties": properties}


SCHEMAS = {
    "get_weather": _schema(
        city={"type": "string"},
        days={"type": "integer"},
        exact={"type": "boolean"},
        at={"type": "object", "properties": {"lat": {"type": "number"}}},
        tags={"type": "array"},
    ),
    "note": _schema(text={"type": "string"}, mood={"type": ["string", "null"]}),
    "clock": _schema(),
}

WEATHER = ("get_weather", {"city": "Paris"})
CLOCK = ("clock", {})
NESTED = {"city": "Zürich", "days": 2, "exact": True, "at": {"lat": 47.4, "of": [-1, 0.5, {}]}, "tags": [["a"], []]}


def note(text):
    return [("note", {"text": text})]


# Calls that every form has a text of, and every chat template too.
CALLS = {
    "one": [WEATHER],
    "three": [WEATHER, CLOCK, *note("late")],
    "no arguments": [CLOCK],
    "nested": [("get_weather", NESTED)],
    "quotes": note("He said: \"it's in C:\\new\\\", 'so'"),
    "unicode": note("naïve ☃ 👩‍👩‍👧 日本"),
    "brackets": note("a[0] = {b: (c)}; }]) <d> ``` //"),
    "lines": note("one\n\n  two\tthree\n"),
}


def _json(value):
    return json.dumps(value, ensure_ascii=False)


def _text(value):
    return value if isinstance(value, str) else _json(value)


@dataclasses.dataclass(frozen=True)
class Form:
    # A call, and what stands before, between and behind calls.
    call: Callable[[str, dict, int], str]
    open: str = ""
    between: str = ""
    close: str = ""
    # Around text before calls, and behind them.
    before: str = "{}"
    behind: str = "{}"
    # Texts of this form alone.
    own: dict[str, str] = dataclasses.field(default_factory=dict)

    def write(self, calls):
        written = [self.call(name, arguments, at) for at, (name, arguments) in enumerate(calls)]
        return self.open + self.between.join(written) + self.close


def _hermes(name, arguments, _):
    return f"<tool_call>\n{_json({'name': name, 'arguments': arguments})}\n</tool_call>"


def _coder(name, arguments, _):
    parameters = "".join(f"<parameter={key}>\n{_text(value)}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>"


def _glm(name, arguments, _):
    pairs = "".join(
        f"<arg_key>{key}</arg_key>\n<arg_value>{_text(value)}</arg_value>\n" for key, value in arguments.items()
    )
    return f"<tool_call>{name}\n{pairs}</tool_call>"


def _deepseek_v3(name, arguments, _):
    return f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{_json(arguments)}\n```<｜tool▁call▁end｜>"


def _deepseek_v31(name, arguments, _):
    return f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{_json(arguments)}<｜tool▁call▁end｜>"


def _kimi(name, arguments, at):
    return (
        f"<|tool_call_begin|>functions.{name}:{at}<|tool_call_argument_begin|>{_json(arguments)}<|tool_call_end|>"
    )


def _pythonic(name, arguments, _):
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def _harmony(name, arguments, _):
    return f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{_json(arguments)}<|call|>"


_HERMES = Form(
    _hermes,
    between="\n",
    own={
        "arguments first": '<tool_call>\n{"arguments": {"city": "Paris"}, "name": "get_weather"}\n</tool_call>',
        "arguments in a string": '<tool_call>{"name": "get_weather", "arguments": "{\\"city\\": \\"Paris\\"}"}</tool_call>',
        "arguments left out": '<tool_call>{"name": "clock"}</tool_call>',
        "on one line": '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>',
        "no end mark": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}',
        "two in one mark": '<tool_call>\n{"name": "clock", "arguments": {}}\n{"name": "clock", "arguments": {}}\n</tool_call>',
        "no JSON": "<tool_call>soon</tool_call>",
        "array": '<tool_call>[{"name": "clock", "arguments": {}}]</tool_call>',
        "nearly": 'A <tool> or {"name": "clock"}.',
        "own marks in a string": Form(_hermes).write(note("<tool_call></tool_call>")),
    },
)

FORMS = {
    "qwen25": _HERMES,
    "hermes": _HERMES,
    "qwen3_coder": Form(
        _coder,
        between="\n",
        own={
            "on one line": "<tool_call><function=get_weather><parameter=city>Paris</parameter></function></tool_call>",
            "no outer mark": "<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>",
            "null": _coder("note", {"text": "a", "mood": "null"}, 0),
            "number in a string": _coder("note", {"text": "3"}, 0),
            "no number": _coder("get_weather", {"days": "soon"}, 0),
            "python's words": _coder("get_weather", {"exact": "True"}, 0),
            "unknown parameter": _coder("get_weather", {"other": "1"}, 0),
            "space in the name": "see <function=a b>c",
            "nearly": "A <tool> or <function>.",
            "own marks in a string": _coder("note", {"text": "<tool_call> <function=f></tool_call>"}, 0),
        },
    ),
    "llama3": Form(
        lambda name, arguments, _: _json({"name": name, "parameters": arguments}),
        between="; ",
        before="{}<|python_tag|>",
        own={
            "behind a mark": '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}',
            "arguments by the other word": '{"name": "get_weather", "arguments": {"city": "Paris"}}',
            "with a type": '{"type": "function", "name": "get_weather", "parameters": {"city": "Paris"}}',
            "ended": '<|python_tag|>{"name": "clock", "parameters": {}}<|eom_id|>',
            "code": '<|python_tag|>print("hi")',
            "object that is no call": '{"city": "Paris"}',
            "object in text": 'It is {"name": "clock"}.',
            "nearly": "{a} or {",
            "own marks in a string": '<|python_tag|>{"name": "note", "parameters": {"text": "<|python_tag|>;"}}',
        },
    ),
    "mistral": Form(
        lambda name, arguments, _: f"[TOOL_CALLS]{name}[ARGS]{_json(arguments)}",
        own={
            "array": '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}}]',
            "array of three": "[TOOL_CALLS] "
            + _json([{"name": name, "arguments": arguments} for name, arguments in CALLS["three"]]),
            "array with an id": '[TOOL_CALLS][{"name": "clock", "arguments": {}, "id": "Abcdefgh1"}]',
            "with an id": "[TOOL_CALLS]clock[CALL_ID]Abcdefgh1[ARGS]{}",
            "no mark before arguments": '[TOOL_CALLS]get_weather{"city": "Paris"}',
            "no call": "[TOOL_CALLS] none today",
            "nearly": "[TOOL] or [1, 2]",
            "own marks in a string": '[TOOL_CALLS]note[ARGS]{"text": "[TOOL_CALLS]x[ARGS]{}"}',
        },
    ),
    "deepseekv3": Form(
        _deepseek_v3,
        open="<｜tool▁calls▁begin｜>",
        between="\n",
        close="<｜tool▁calls▁end｜>",
        own={
            "no JSON": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>soon<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            "fence in text": '```json\n{"city": "Paris"}\n```',
            "nearly": "A <｜tool｜> or <tool>.",
            "own marks in a string": "<｜tool▁calls▁begin｜>"
            + _deepseek_v3("note", {"text": "<｜tool▁call▁end｜>"}, 0)
            + "<｜tool▁calls▁end｜>",
        },
    ),
    "deepseekv31": Form(
        _deepseek_v31,
        open="<｜tool▁calls▁begin｜>",
        close="<｜tool▁calls▁end｜>",
        own={
            "no JSON": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>soon<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            "nearly": "A <｜tool｜> or <tool>.",
            "own marks in a string": "<｜tool▁calls▁begin｜>"
            + _deepseek_v31("note", {"text": "<｜tool▁call▁end｜>"}, 0)
            + "<｜tool▁calls▁end｜>",
        },
    ),
    "glm45": Form(
        _glm,
        between="\n",
        own={
            "on one line": "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>",
            "null": _glm("note", {"text": "a", "mood": "null"}, 0),
            "number in a string": _glm("note", {"text": "3"}, 0),
            "no number": _glm("get_weather", {"days": "soon"}, 0),
            "unknown parameter": _glm("get_weather", {"other": "x"}, 0),
            "JSON": '<tool_call>{"name": "clock", "arguments": {}}</tool_call>',
            "nearly": "A <tool> or <arg_key>.",
            "own marks in a string": _glm("note", {"text": "<tool_call> <arg_key>"}, 0),
        },
    ),
    "kimi_k2": Form(
        _kimi,
        open="<|tool_calls_section_begin|>",
        close="<|tool_calls_section_end|>",
        own={
            "no section": _kimi("clock", {}, 0),
            "no index": "<|tool_calls_section_begin|><|tool_call_begin|>clock<|tool_call_argument_begin|>{}<|tool_call_end|>"
            "<|tool_calls_section_end|>",
            "nearly": "A <|tool|> or functions.clock:0.",
            "own marks in a string": "<|tool_calls_section_begin|>"
            + _kimi("note", {"text": "<|tool_call_end|>"}, 0)
            + "<|tool_calls_section_end|>",
        },
    ),
    "pythonic": Form(
        _pythonic,
        open="[",
        between=", ",
        close="]",
        own={
            "in marks": "<|python_start|>[clock()]<|python_end|>",
            "python's words": "[get_weather(exact=True, at={'x': None}, tags=(1, 2_000))]",
            "spaces": "[ get_weather( city = 'Paris' ) , clock() ]",
            "list": "[1, 2]",
            "subscript": "a[f(x)] = b[0]",
            "two lists": "[clock()]\n[clock()]",
            "nearly": "[clock(] or [f",
            "own marks in a string": "[note(text='[clock()]')]",
        },
    ),
    "gpt-oss": Form(
        _harmony,
        between="<|start|>assistant",
        before="<|channel|>commentary<|message|>{}<|end|><|start|>assistant",
        behind="<|start|>assistant<|channel|>final<|message|>{}<|return|>",
        own={
            "recipient first": "<|start|>assistant to=functions.clock<|channel|>commentary json<|message|>{}<|call|>",
            "thought": "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant" + _harmony("clock", {}, 0),
            "final": "<|channel|>final<|message|>Four.<|return|>",
            "call to a builtin": '<|channel|>analysis to=python code<|message|>print("hi")<|call|>',
            "nearly": "A <|channel| or <|x|>.",
            "own marks in a string": _harmony("note", {"text": "<|x|> <channel>"}, 0),
        },
    ),
}


def tool_texts(form, writer):
    """Of calls, of text around them, and of calls that are none or are cut off."""
    texts = {name: writer.write(calls) for name, calls in CALLS.items()}
    one, clock = writer.write([WEATHER]), writer.write([CLOCK])
    texts |= {
        "before": writer.before.format("Let me see.\n") + one,
        "behind": one + writer.behind.format("\nThere."),
        "around": writer.before.format("Let me see.\n\n") + writer.write(CALLS["three"]) + writer.behind.format("\n\nThere."),
        "empty": "",
        "space": " \n",
        "plain": "Four.\n\n  It is 2 + 2 < 5, so <b>\"four\"</b> {4} [4].\n",
        "unknown tool": writer.write([("other", {"a": 1})]),
        "cut in arguments": one[: one.index("Paris") + 3],
        "cut in the name": one[: one.index("get_weather") + 5],
        "cut in a mark": one[:5],
        "cut behind the name": one[: one.index("get_weather") + 11],
        "cut in the end": clock[:-3],
        "twice": one + "\n" + clock,
    }
    texts |= writer.own
    # Channels hold both.
    reasoning = form if form == "gpt-oss" else None
    return [Text(form, name, text, reasoning, tools=form) for name, text in texts.items()]


MARKS = {
    "deepseek-r1": ("<think>", "</think>"),
    "qwen3": ("<think>", "</think>"),
    "qwen3-thinking": ("<think>", "</think>"),
    "glm45": ("<think>", "</think>"),
    "kimi": ("◁think▷", "◁/think▷"),
    "kimi_k2": ("<think>", "</think>"),
    "mistral": ("[THINK]", "[/THINK]"),
}


def reasoning_texts(form, open, close):
    texts = {
        "marked": f"{open}\nTwo and two.\n{close}\n\nFour.",
        "closed alone": f"Two and two.\n{close}\n\nFour.",
        "none": "Four.",
        "off": f"{open}\n\n{close}\n\nFour.",
        "cut": f"{open}\nTwo and",
        "cut in the end": f"{open}Two and two.{close[:-2]}",
        "cut in the beginning": open[:-2],
        "opened alone": open,
        "empty": "",
        "behind nothing": f"{open}Two.{close}",
        "half marks": f"{open}a {close[:3]} {open[:3]} < [ b{close}c {close[:4]}",
        "opened twice": f"{open}a{open}b{close}c",
        "closed twice": f"{open}a{close}b{close}c",
        "space before": f" \n{open} a {close} b ",
        "unicode": f"{open}naïve ☃ 👩‍👩‍👧{close}日本",
        "lines": f"{open}\n\na\n\n\nb\n{close}\n\n\nc\n\nd\n",
        "behind text": f"See {open}a{close}b",
        "call inside": f"{open}a <tool> b{close}c",
    }
    return [Text(f"{form} reasoning", name, text, reasoning=form) for name, text in texts.items()]


def _said(channel, text, end=None):
    end = {"final": "<|return|>"}.get(channel, "<|end|>") if end is None else end
    return f"<|channel|>{channel}<|message|>{text}{end}"


def channel_texts(form):
    then = "<|start|>assistant"
    texts = {
        "marked": _said("analysis", "Two and two.") + then + _said("final", "Four."),
        "no end": _said("analysis", "Two.") + then + _said("final", "Four.", ""),
        "final alone": _said("final", "Four.", ""),
        "none": "Four.",
        "cut": _said("analysis", "Two and", ""),
        "cut in the end": _said("analysis", "Two and two.", "<|en"),
        "cut in a header": "<|channel|>anal",
        "cut in the next header": _said("analysis", "Two.") + then + "<|chan",
        "empty": "",
        "empty reasoning": _said("analysis", "") + then + _said("final", "Four."),
        "twice": _said("analysis", "a") + then + _said("analysis", "b") + then + _said("final", "c"),
        "commentary": _said("analysis", "a") + then + _said("commentary", "b") + then + _said("final", "c"),
        "half marks": _said("analysis", "a <| b <|x|> <") + then + _said("final", "c |> <|"),
        "unicode": _said("analysis", "naïve ☃ 👩‍👩‍👧") + then + _said("final", "日本"),
        "lines": _said("analysis", "\n\na\n\nb\n") + then + _said("final", "\n\nc\n\nd\n"),
        "role first": then + _said("analysis", "a") + then + _said("final", "b"),
    }
    return [Text(f"{form} reasoning", name, text, reasoning=form) for name, text in texts.items()]


def texts():
    written = [text for form, writer in FORMS.items() for text in tool_texts(form, writer)]
    thought = [text for form, marks in MARKS.items() for text in reasoning_texts(form, *marks)]
    return written + thought + channel_texts("gpt-oss")

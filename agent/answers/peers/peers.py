"""Parsers of others. Each takes an answer as its server hands it over: whole, or as a stream of deltas."""

import functools
import json
import logging
import pathlib
import re
import sys
import types


# Tokens of models' vocabularies, which come whole.
MARKS = [
    *("<think>", "</think>", "◁think▷", "◁/think▷", "[THINK]", "[/THINK]"),
    *("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    *("<|python_tag|>", "<|eom_id|>", "<|python_start|>", "<|python_end|>", "[TOOL_CALLS]", "[CALL_ID]"),
    *("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁sep｜>"),
    *("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"),
    *("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_end|>"),
    *("<|tool_call_argument_begin|>", "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"),
    *("<|end|>", "<|call|>", "<|return|>"),
]


class Tokenizer:
    """Marks are a token each, and so is any other character."""

    all_special_tokens, all_special_ids = [], []

    def __init__(self, marks):
        self.tokens = [*marks, *map(chr, range(0x20000))]
        self.ids = {token: index for index, token in enumerate(self.tokens)}
        self.pattern = re.compile("|".join([*map(re.escape, marks), "."]), re.DOTALL)

    def get_vocab(self):
        return self.ids

    def split(self, text):
        return self.pattern.findall(text)

    def encode(self, text):
        return [self.ids[token] for token in self.split(text)]

    def decode(self, ids):
        return "".join(self.tokens[index] for index in ids)


class ChannelTokenizer(Tokenizer):
    """With the numbers of gpt-oss's own vocabulary, which vLLM's parser of channels reads."""

    def __init__(self, encoding):
        super().__init__([])
        self.encoding = encoding

    def encode(self, text):
        return self.encoding.encode(text, allowed_special="all")

    def decode(self, ids):
        return self.encoding.decode(ids)


TOKENIZER = Tokenizer([*MARKS, "[ARGS]"])
# Of Mistral's models that write arrays; vLLM's parser goes by what a vocabulary lacks.
OLDER_TOKENIZER = Tokenizer(MARKS)


def tokenizer_of(text):
    return OLDER_TOKENIZER if re.search(r"\[TOOL_CALLS\] ?\[\{", text.text) else TOKENIZER


class Answer:
    """What deltas join to."""

    def __init__(self):
        self.reasoning, self.text, self.calls = "", "", {}

    def add(self, reasoning=None, text=None):
        self.reasoning += reasoning or ""
        self.text += text or ""

    def add_call(self, index, name, arguments):
        call = self.calls.setdefault(index, {"name": "", "arguments": ""})
        call["name"] += name or ""
        call["arguments"] += arguments or ""

    def parts(self):
        return {"reasoning": self.reasoning, "text": self.text, "calls": list(self.calls.values())}


class Sglang:
    """`sglang.srt.function_call` and `sglang.srt.parser.reasoning_parser`, one behind the other as serving_chat.py has
    them."""

    name = "SGLang"

    def __init__(self, source, schemas):
        # Its packages as folders alone: what they import at their top wants a GPU's libraries.
        for package in ("sglang", "sglang.srt", "sglang.srt.entrypoints", "sglang.srt.entrypoints.openai"):
            module = types.ModuleType(package)
            module.__path__ = [str(pathlib.Path(source, *package.split(".")))]
            sys.modules[package] = module
        # The one function that the protocol takes from there makes grammars.
        tools = sys.modules["sglang.utils"] = types.ModuleType("sglang.utils")
        tools.convert_json_schema_to_str = None
        logging.getLogger("sglang").setLevel(logging.CRITICAL)
        from sglang.srt.entrypoints.openai.protocol import Function, Tool
        from sglang.srt.function_call.function_call_parser import FunctionCallParser
        from sglang.srt.parser.reasoning_parser import ReasoningParser

        self.parsers = FunctionCallParser, ReasoningParser
        self.tools = [Tool(function=Function(name=name, parameters=schema)) for name, schema in schemas.items()]

    def reads(self, text):
        return True

    def _parsers(self, text):
        calls, reasoning = self.parsers
        return (
            text.tools and calls(self.tools, text.tools),
            text.reasoning and reasoning(text.reasoning, tool_call_parser_active=text.tools is not None),
        )

    def whole(self, text):
        calls, reasoning = self._parsers(text)
        answer, rest = Answer(), text.text
        if reasoning:
            thought, rest = reasoning.parse_non_stream(rest)
            answer.add(reasoning=thought)
        if calls and calls.has_tool_call(rest):
            rest, found = calls.parse_non_stream(rest)
            for index, call in enumerate(found):
                answer.add_call(index, call.name, call.parameters)
        answer.add(text=rest)
        return answer.parts()

    def streamed(self, text, pieces):
        calls, reasoning = self._parsers(text)
        answer = Answer()
        for piece, is_last in [*((piece, False) for piece in pieces), ("", True)]:
            rest = piece
            if reasoning:
                thought, rest = reasoning.parse_stream_chunk(rest)
                answer.add(reasoning=thought)
                if is_last:
                    thought, more = reasoning.parse_stream_end()
                    answer.add(reasoning=thought)
                    rest = (rest or "") + (more or "")
            if not calls:
                answer.add(text=rest)
                continue
            for said, found in [calls.parse_stream_chunk(rest), *([calls.parse_stream_end()] if is_last else [])]:
                answer.add(text=said)
                for call in found:
                    answer.add_call(call.tool_index, call.name, call.parameters)
        if calls:
            self._add_unsent(calls.detector, answer)
        return answer.parts()

    def _add_unsent(self, detector, answer):
        """Arguments that its server sends when the answer has ended: `_check_for_unstreamed_tool_args`."""
        index = len(detector.prev_tool_call_arr) - 1
        if 0 <= index < len(detector.streamed_args_for_tool):
            arguments = detector.prev_tool_call_arr[index].get("arguments", {})
            whole = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            sent = detector.streamed_args_for_tool[index]
            if whole.startswith(sent):
                answer.add_call(index, None, whole[len(sent) :])


class Vllm:
    """`vllm.parser`, which puts its `reasoning` and `tool_parsers` together."""

    name = "vLLM"

    TOOLS = {
        "qwen25": "hermes",
        "hermes": "hermes",
        "qwen3_coder": "qwen3_coder",
        "llama3": "llama3_json",
        "mistral": "mistral",
        "deepseekv3": "deepseek_v3",
        "deepseekv31": "deepseek_v31",
        "glm45": "glm45",
        "glm47": "glm47",
        "kimi_k2": "kimi_k2",
        "pythonic": "pythonic",
        "gpt-oss": "openai",
    }
    REASONING = {
        "deepseek-r1": "deepseek_r1",
        "qwen3": "qwen3",
        "qwen3-thinking": "qwen3",
        "glm45": "glm45",
        "kimi_k2": "kimi_k2",
        "mistral": "mistral",
        "gpt-oss": "openai_gptoss",
    }

    def __init__(self, schemas):
        logging.disable(logging.ERROR)
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
        from vllm.entrypoints.openai.parser.harmony_utils import get_encoding
        from vllm.parser.parser_manager import ParserManager

        self.channels = ChannelTokenizer(get_encoding())
        # Not to be kept: of channels there is one class, which remembers what the last caller asked for.
        self.parser_of = functools.partial(ParserManager.get_parser, enable_auto_tools=True)
        functions = [{"name": name, "parameters": schema} for name, schema in schemas.items()]
        self.request = ChatCompletionRequest(
            messages=[], tools=[{"type": "function", "function": function} for function in functions]
        )

    def reads(self, text):
        return (text.tools in self.TOOLS or text.tools is None) and (
            text.reasoning in self.REASONING or text.reasoning is None
        )

    def _tokenizer(self, text):
        return self.channels if text.reasoning == "gpt-oss" else tokenizer_of(text)

    def _parser(self, text):
        parser = self.parser_of(
            tool_parser_name=self.TOOLS.get(text.tools),
            reasoning_parser_name=self.REASONING.get(text.reasoning),
            is_harmony=text.reasoning == "gpt-oss",
        )
        return parser(self._tokenizer(text), self.request.tools if text.tools else None)

    def whole(self, text):
        ids = self._tokenizer(text).encode(text.text)
        reasoning, rest, calls = self._parser(text).parse(text.text, self.request, text.tools is not None, ids)
        answer = Answer()
        answer.add(reasoning, rest)
        for index, call in enumerate(calls or []):
            answer.add_call(index, call.name, call.arguments)
        return answer.parts()

    def streamed(self, text, pieces):
        parser, encode = self._parser(text), self._tokenizer(text).encode
        answer = Answer()
        for piece, is_last in [*((piece, False) for piece in pieces), ("", True)]:
            delta = parser.parse_delta(piece, encode(piece), self.request, [], finished=is_last)
            if delta is None:
                continue
            answer.add(delta.reasoning, delta.content)
            for call in delta.tool_calls or []:
                function = call.function
                answer.add_call(call.index, function and function.name, function and function.arguments)
        return answer.parts()


def outcome(read):
    """What a parser reads, or how it fails."""
    try:
        return read()
    except Exception as error:
        return {"failure": f"{type(error).__name__}: {error}"}


def halves(cut):
    return [["".join(cut[:at]), "".join(cut[at:])] for at in range(1, len(cut))]

"""Answers that transformers writes by chat templates of published models: assistant messages with calls, as the models
were trained on them."""

import itertools

import jinja2.sandbox

# Kimi's templates append to a list, which the sandbox of transformers refuses; servers render them with their own.
jinja2.sandbox.ImmutableSandboxedEnvironment = jinja2.sandbox.SandboxedEnvironment
from transformers.utils import chat_template_utils  # noqa: E402

from texts import CALLS, SCHEMAS, Text  # noqa: E402

TOKENS = dict(bos_token="<|im_start|>", eos_token="<|im_end|>")
CLOCK = {"type": "function", "function": {"name": "clock", "description": "The time", "parameters": SCHEMAS["clock"]}}
USER = {"role": "user", "content": "Hello"}
THOUGHT = "First this.\n\nThen that."

# A family's template each, with the forms of reasoning and of calls that it writes.
TEMPLATES = {
    "Bielik-11B-v3.0-Instruct": ("qwen3", "hermes"),
    "GLM-4.6": ("glm45", "glm45"),
    "GLM-4.7-Flash": ("glm45", "glm47"),
    "Kimi-K2-Instruct": (None, "kimi_k2"),
    "Kimi-K2-Thinking": ("kimi_k2", "kimi_k2"),
    "MiMo-VL": (None, "hermes"),
    "Mistral-Small-3.2-24B-Instruct-2506": (None, "mistral"),
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": ("qwen3", "qwen3_coder"),
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": (None, "hermes"),
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": (None, "hermes"),
    "Qwen-QwQ-32B": ("qwen3", "qwen25"),
    "Qwen-Qwen2.5-7B-Instruct": (None, "qwen25"),
    "Qwen-Qwen3-0.6B": ("qwen3", "qwen25"),
    "Qwen3-Coder": (None, "qwen3_coder"),
    "Qwen3.5-4B": ("qwen3", "qwen3_coder"),
    "Reka-Edge": ("qwen3", "hermes"),
    "Spark2.5": ("glm45", "glm47"),
    "StepFun3.5-Flash": ("qwen3", "qwen3_coder"),
    "deepseek-ai-DeepSeek-V3.1": ("qwen3", "deepseekv31"),
    "ibm-granite-granite-4.0": (None, "hermes"),
    "llama-cpp-deepseek-r1": ("deepseek-r1", "deepseekv3"),
    "meta-llama-Llama-3.1-8B-Instruct": (None, "llama3"),
    "meta-llama-Llama-3.2-3B-Instruct": (None, "llama3"),
    "meta-llama-Llama-3.3-70B-Instruct": (None, "llama3"),
    "mistralai-Ministral-3-14B-Reasoning-2512": ("mistral", "mistral"),
    "mistralai-Mistral-Nemo-Instruct-2407": (None, "mistral"),
    "moonshotai-Kimi-K2": (None, "kimi_k2"),
    "openai-gpt-oss-120b": ("gpt-oss", "gpt-oss"),
    "poolside-Laguna-S-2.1": ("glm45", "glm47"),
    "unsloth-mistral-Devstral-Small-2507": (None, "mistral"),
}


def _render(template, source, messages, **variables):
    # Some list tools even where a request has none, and fail without any.
    tools = [CLOCK] if template.endswith("tool_use") else None
    [text], _ = chat_template_utils.render_jinja_template(
        [messages], tools=tools, chat_template=source, **TOKENS, **variables
    )
    return text


def _call(template, at, name, arguments):
    # Mistral's templates take ids of nine letters and digits; Kimi's write them as the call's name.
    id = f"functions.{name}:{at}" if "Kimi" in template else f"abcdefgh{at}"
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _answer(template, source, message):
    """What the template writes of a message, between what opens an answer and what ends one."""
    opening = _render(template, source, [USER], add_generation_prompt=True)
    # Reasoning that a prompt opens is an answer's own otherwise.
    before, user, behind = opening.rpartition(USER["content"])
    opening = before + user + behind.partition("<think>")[0]
    said = _render(template, source, [USER, {"role": "assistant", "content": "SAID"}])
    written = _render(template, source, [USER, message])
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(opening, written))
    answer = written[len(list(same)) :].removesuffix(said.rpartition("SAID")[2])
    return f"<think>{answer}" if answer.startswith("</think>") else answer


def texts(folder):
    found = {}
    for template, (reasoning, tools) in TEMPLATES.items():
        # SGLang's name for those of its models that break no lines.
        row = f"{'glm45' if tools == 'glm47' else tools} templates"
        source = (folder / f"{template}.jinja").read_text()
        for (name, calls), thought in itertools.product(CALLS.items(), ["", THOUGHT] if reasoning else [""]):
            calls = [_call(template, at, *call) for at, call in enumerate(calls)]
            message = {"role": "assistant", "content": "", "reasoning_content": thought, "tool_calls": calls}
            try:
                text = _answer(template, source, message)
            except jinja2.TemplateError:  # It writes no more than one call.
                continue
            name = f"{template}: {name}" + (", thought" if thought else "")
            # Templates of one family write the same.
            found.setdefault((row, text), Text(row, name, text, reasoning, tools))
    return list(found.values())

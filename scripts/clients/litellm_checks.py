"""LiteLLM, unmodified, by its providers openai and hosted_vllm."""

import asyncio
import json

import litellm
from harness import MESSAGES, MODEL, TOO_LONG, check, frees_the_worker, main, refused

litellm.suppress_debug_info = True


class Server:
    def __init__(self, url):
        self.base_url = f"{url}/v1"

    def settings(self, model=MODEL, provider="openai", **extra):
        own = {"api_base": self.base_url, "api_key": "none", "num_retries": 0, "max_retries": 0}
        own |= {"model": f"{provider}/{model}", "temperature": 0, "max_tokens": 16}
        return own | extra

    def chat(self, messages=MESSAGES, **extra):
        return litellm.completion(messages=messages, **self.settings(**extra))


def content(chunks):
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


@check
def chat(server):
    texts = set()
    for provider in ("openai", "hosted_vllm"):
        answer = server.chat(provider=provider)
        assert answer.usage.completion_tokens > 0, answer
        texts.add(answer.choices[0].message.content)
    later = asyncio.run(litellm.acompletion(messages=MESSAGES, **server.settings()))
    texts.add(later.choices[0].message.content)
    assert len(texts) == 1, texts
    return texts.pop()


@check
def stream_with_usage(server):
    chunks = list(server.chat(stream=True, stream_options={"include_usage": True}))
    counts = [chunk.usage for chunk in chunks if getattr(chunk, "usage", None)]
    assert len(counts) == 1 and counts[0].completion_tokens > 0, counts
    assert content(chunks) == server.chat().choices[0].message.content
    return content(chunks)


@check
def choices_logprobs_seed_and_stop(server):
    answer = server.chat(n=3, temperature=1.2, seed=5)
    texts = [choice.message.content for choice in answer.choices]
    assert len(set(texts)) == 3, texts
    scored = server.chat(logprobs=True, top_logprobs=2).choices[0]
    tokens = [token["token"] for token in scored.logprobs["content"]]
    assert "".join(tokens) == scored.message.content
    short = server.chat(stop=["France"]).choices[0].message.content
    assert short == scored.message.content.split("France")[0] != scored.message.content
    return texts


@check
def completions(server):
    settings = server.settings(provider="text-completion-openai")
    answer = litellm.text_completion(prompt=["The sea is", "The sky is"], **settings)
    texts = [choice.text for choice in answer.choices]
    assert len(texts) == 2, texts
    return texts


@check
def responses(server):
    settings = server.settings()
    settings["max_output_tokens"] = settings.pop("max_tokens")
    answer = litellm.responses(input=MESSAGES, **settings)
    text = "".join(part.text for item in answer.output for part in item.content)
    assert text == server.chat().choices[0].message.content, answer
    events = list(litellm.responses(input=MESSAGES, stream=True, **settings))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == text
    return text


@check
def wrong_model(server):
    for provider in ("openai", "hosted_vllm"):
        refused(litellm.NotFoundError, lambda: server.chat(model="other", provider=provider))


@check
def too_long_a_prompt(server):
    """What LiteLLM's context_window_fallbacks catch."""
    messages = [{"role": "user", "content": TOO_LONG}]
    for provider in ("openai", "hosted_vllm"):
        for stream in (False, True):
            ask = {"provider": provider, "stream": stream}
            refused(litellm.ContextWindowExceededError, lambda: server.chat(messages, **ask))


@check
def a_required_tool(server):
    parameters = {"type": "object", "properties": {"zone": {"enum": ["UTC", "CET"]}}, "required": ["zone"]}
    tool = {"type": "function", "function": {"name": "now", "parameters": parameters}}
    said = []
    for provider in ("openai", "hosted_vllm"):
        ask = {"tools": [tool], "tool_choice": "required", "max_tokens": 200, "provider": provider}
        answer = server.chat(**ask).choices[0]
        assert answer.finish_reason == "tool_calls", answer
        said.append(json.loads(answer.message.tool_calls[0].function.arguments)["zone"])
    return said


@check
def json_of_a_schema(server):
    schema = {"type": "object", "properties": {"open": {"type": "boolean"}}, "required": ["open"]}
    format = {"type": "json_schema", "json_schema": {"name": "door", "schema": schema}}
    answer = server.chat(response_format=format, max_tokens=60).choices[0].message.content
    assert isinstance(json.loads(answer)["open"], bool), answer
    return answer


@check
def a_stream_that_is_left(server):
    stream = server.chat(stream=True, max_tokens=4000, extra_body={"ignore_eos": True})
    next(stream)
    frees_the_worker(stream.completion_stream.close)


main(Server)

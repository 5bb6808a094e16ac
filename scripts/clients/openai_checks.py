"""openai-python, unmodified, and SGLang's /generate by plain HTTP.

Every answer is validated strictly against openai-python's own types, which are generated from
OpenAI's reference, field by field.
"""

import asyncio
import json
import re
import urllib.request
from typing import Literal

import openai
import pydantic
from harness import MESSAGES, MODEL, TOO_LONG, check, frees_the_worker, main, refused
from openai.types import Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk


def chat(client, **extra):
    """A chat's answer, validated against the reference."""
    settings = {"model": MODEL, "messages": MESSAGES, "temperature": 0, "max_tokens": 32, **extra}
    raw = client.chat.completions.with_raw_response.create(**settings)
    ChatCompletion.model_validate_json(raw.http_response.text, strict=True)
    return raw.parse()


def chat_stream(client, **extra):
    """The chunks of a streamed chat, each validated against the reference as it was sent."""
    settings = {"model": MODEL, "messages": MESSAGES, "temperature": 0, "max_tokens": 32, **extra}
    raw = client.chat.completions.with_raw_response.create(stream=True, **settings)
    lines = [line for line in raw.http_response.iter_lines() if line]
    assert all(line.startswith("data: ") for line in lines) and lines[-1] == "data: [DONE]", lines
    events = [line.removeprefix("data: ") for line in lines[:-1]]
    chunks = [ChatCompletionChunk.model_validate_json(event, strict=True) for event in events]
    parsed = list(client.chat.completions.create(stream=True, **settings))
    choices = range(settings.get("n", 1))
    assert all(content(parsed, index) == content(chunks, index) for index in choices)
    return chunks


def complete(client, prompt, **extra):
    """A completion's answer, validated against the reference."""
    settings = {"model": MODEL, "prompt": prompt, "temperature": 0, "max_tokens": 16, **extra}
    raw = client.completions.with_raw_response.create(**settings)
    sent = json.loads(raw.http_response.text)
    for choice in sent["choices"] if extra.get("echo") and "logprobs" in extra else []:
        # Nothing predicts a prompt's first token. The API says null; its types leave that out.
        for name in ("token_logprobs", "top_logprobs"):
            assert choice["logprobs"][name].pop(0) is None, choice
    Completion.model_validate_json(json.dumps(sent), strict=True)
    return raw.parse()


def generate(client, body):
    """SGLang's own API, by plain HTTP."""
    url = str(client.base_url).removesuffix("/v1/") + "/generate"
    request = urllib.request.Request(url, json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def content(chunks, index=0):
    own = [choice for chunk in chunks for choice in chunk.choices if choice.index == index]
    return "".join(choice.delta.content or "" for choice in own)


@check
def models(client):
    listed = client.models.list().data
    assert [model.id for model in listed] == [MODEL], listed
    Model.model_validate(listed[0].model_dump(), strict=True)
    assert client.models.retrieve(MODEL).id == MODEL
    # SGLang's, by which tools size their prompts.
    return listed[0].id, listed[0].max_model_len, listed[0].root


@check
def chat_plain(client):
    answer = chat(client)
    choice = answer.choices[0]
    assert choice.message.role == "assistant" and choice.finish_reason in ("stop", "length")
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens is not None
    return choice.message.content


@check
def chat_streamed(client):
    chunks = chat_stream(client, stream_options={"include_usage": True})
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens > 0
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert content(chunks) == chat(client).choices[0].message.content
    return content(chunks)


@check
def chat_logprobs(client):
    answer = chat(client, logprobs=True, top_logprobs=4)
    tokens = answer.choices[0].logprobs.content
    assert all(len(token.top_logprobs) == 4 for token in tokens)
    assert all(token.top_logprobs[0].token == token.token for token in tokens), "greedy"
    text = bytes(byte for token in tokens for byte in token.bytes).decode()
    assert text == answer.choices[0].message.content
    return [(token.token, token.logprob) for token in tokens]


@check
def chat_choices(client):
    answer = chat(client, n=3, temperature=1.2, seed=5)
    texts = [choice.message.content for choice in answer.choices]
    assert [choice.index for choice in answer.choices] == [0, 1, 2] and len(set(texts)) == 3
    chunks = chat_stream(client, n=3, temperature=1.2, seed=5)
    assert [content(chunks, index) for index in range(3)] == texts
    return texts


@check
def chat_stop(client):
    whole = chat(client).choices[0].message.content
    word = whole.split()[4]
    answer = chat(client, stop=[word]).choices[0]
    assert answer.finish_reason == "stop" and answer.message.content == whole.split(word)[0]
    assert content(chat_stream(client, stop=[word])) == answer.message.content
    return answer.message.content


@check
def chat_system_and_parts(client):
    parts = [{"type": "text", "text": "Say"}, {"type": "text", "text": "hello."}]
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": parts}]
    settings = {"model": MODEL, "messages": messages, "temperature": 0, "max_completion_tokens": 3}
    answer = client.chat.completions.create(**settings)
    assert answer.usage.completion_tokens == 3, answer.usage
    return answer.choices[0].message.content


@check
def completion_shapes(client):
    one = complete(client, "The sea is")
    two = complete(client, ["The sea is", "The sky is"], n=2)
    assert len(two.choices) == 4 and two.choices[0].text == one.choices[0].text
    ids = complete(client, [504, 3301, 314])
    lists = complete(client, [[504, 3301, 314], [504]])
    assert ids.usage.prompt_tokens == 3 and lists.choices[0].text == ids.choices[0].text
    return [choice.text for answer in (one, two, ids, lists) for choice in answer.choices]


@check
def completion_logprobs(client):
    logprobs = complete(client, "The sea is", logprobs=3).choices[0].logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.text_offset)
    return list(zip(logprobs.tokens, logprobs.token_logprobs))


def lists(choices):
    """The log probabilities of a choice, over all of its events, list by list."""
    names = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
    parts = [choice.logprobs for choice in choices if choice.logprobs]
    return {name: [place for part in parts for place in getattr(part, name)] for name in names}


@check
def completion_scored(client):
    """What evaluations ask: log probabilities of prompts, with a few tokens more or none."""
    prompts = ["The sea is blue, and so is the sky.", "Cats purr."]
    settings = {"echo": True, "logprobs": 2}
    scored = complete(client, prompts, max_tokens=0, **settings)
    assert scored.usage.completion_tokens == 0 and scored.usage.prompt_tokens > len(prompts)
    scores = [lists([choice]) for choice in scored.choices]
    for prompt, choice, parts in zip(prompts, scored.choices, scores):
        assert choice.text == prompt == "".join(parts["tokens"]), choice
        assert choice.finish_reason == "length"
        assert len({len(part) for part in parts.values()}) == 1
        assert all(prompt[at:].startswith(t) for t, at in zip(parts["tokens"], parts["text_offset"]))
    more = complete(client, prompts, max_tokens=3, n=2, **settings)
    for choice in more.choices:
        prompt = scores[choice.index // 2]
        assert all(part[:-3] == prompt[name] for name, part in lists([choice]).items()), choice
    for answer, extra in ((scored, {"max_tokens": 0}), (more, {"max_tokens": 3, "n": 2})):
        stream = client.completions.create(
            model=MODEL, prompt=prompts, temperature=0, stream=True, **settings, **extra
        )
        events = [choice for chunk in stream for choice in chunk.choices]
        for choice in answer.choices:
            own = [event for event in events if event.index == choice.index]
            assert "".join(event.text for event in own) == choice.text
            assert lists(own) == lists([choice])
    return [scores, [lists([choice]) for choice in more.choices]]


@check
def completion_streamed(client):
    settings = {"model": MODEL, "prompt": "The sea is", "temperature": 0, "max_tokens": 16}
    chunks = list(client.completions.create(stream=True, **settings))
    text = "".join(choice.text for chunk in chunks for choice in chunk.choices)
    assert text == complete(client, "The sea is").choices[0].text
    return text


@check
def sampling_knobs(client):
    extra = {"top_k": 40, "min_p": 0.05, "repetition_penalty": 1.1, "min_tokens": 4}
    answer = chat(
        client,
        temperature=0.8,
        top_p=0.9,
        seed=3,
        presence_penalty=0.2,
        frequency_penalty=0.2,
        logit_bias={"504": -5},
        user="someone",
        extra_body=extra,
    )
    biased = chat(client, logit_bias={"504": 100}, max_tokens=4, logprobs=True).choices[0]
    assert {token.token for token in biased.logprobs.content} == {"The"}, biased
    return answer.choices[0].message.content


@check
def wrong_names_and_values(client):
    wrong = refused(openai.NotFoundError, lambda: chat(client, model="other"))
    assert wrong.code == "model_not_found", wrong
    cold = refused(openai.BadRequestError, lambda: chat(client, temperature=-1))
    assert cold.param == "temperature", cold
    gone = refused(openai.NotFoundError, lambda: client.models.retrieve("other"))
    return wrong.code, cold.param, gone.status_code


@check
def too_long_a_prompt(client):
    for ask in (
        lambda: chat(client, messages=[{"role": "user", "content": TOO_LONG}]),
        lambda: complete(client, TOO_LONG),
        lambda: chat(client, max_tokens=9000),
    ):
        why = refused(openai.BadRequestError, ask)
        assert why.code == "context_length_exceeded", why
    return "context_length_exceeded"


TIDE = {
    "name": "tide",
    "description": "The next high tide at a harbour",
    "parameters": {
        "type": "object",
        "properties": {"harbour": {"enum": ["Brest", "Cork"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["harbour", "days"],
        "additionalProperties": False,
    },
}
TOOLS = [{"type": "function", "function": TIDE}, {"type": "function", "function": {"name": "clock"}}]


def is_tide(arguments):
    arguments = json.loads(arguments)
    assert sorted(arguments) == ["days", "harbour"], arguments
    assert arguments["harbour"] in ("Brest", "Cork") and 1 <= arguments["days"] <= 9, arguments


@check
def a_required_call(client):
    choice = {"type": "function", "function": {"name": "tide"}}
    ask = {"tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": False, "max_tokens": 200}
    answer = chat(client, **ask).choices[0]
    assert answer.finish_reason == "tool_calls" and answer.message.content is None, answer
    [call] = answer.message.tool_calls
    is_tide(call.function.arguments)
    deltas = [chunk.choices[0].delta for chunk in chat_stream(client, **ask) if chunk.choices]
    parts = [call for delta in deltas for call in delta.tool_calls or []]
    assert parts[0].id.startswith("call_") and parts[0].function.name == "tide", parts[0]
    assert "".join(part.function.arguments for part in parts) == call.function.arguments
    return call.function.arguments


@check
def a_call_and_its_result(client):
    """The answer of a tool is part of the history that the model reads."""
    ask = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 200}
    call = chat(client, **ask).choices[0].message
    result = {"role": "tool", "tool_call_id": call.tool_calls[0].id, "content": "At noon."}
    history = [*MESSAGES, call.model_dump(exclude_none=True), result]
    answer = chat(client, messages=history, tools=TOOLS)
    assert answer.usage.prompt_tokens > chat(client, tools=TOOLS).usage.prompt_tokens
    return answer.choices[0].message.content or answer.choices[0].message.tool_calls[0].function.name


@check
def parsed_answers(client):
    """The reference's own helper, which sends strict schemas."""

    class City(pydantic.BaseModel):
        name: str
        river: Literal["Seine", "Thames"]

    ask = {"model": MODEL, "messages": MESSAGES, "temperature": 0, "max_tokens": 200}
    answer = client.chat.completions.parse(response_format=City, **ask)
    return answer.choices[0].message.parsed.model_dump_json()


@check
def constrained_by_others_fields(client):
    ask = {"messages": MESSAGES, "max_tokens": 60}
    said = []
    for body, pattern in (
        ({"regex": "[0-9]{2}-[a-f]{3}"}, r"\d\d-[a-f]{3}"),
        ({"guided_choice": ["Paris", "London"]}, "Paris|London"),
        ({"ebnf": 'root ::= "yes" | "no"'}, "yes|no"),
        ({"structured_outputs": {"json": {"type": "integer", "minimum": 5, "maximum": 7}}}, "[5-7]"),
    ):
        text = chat(client, extra_body=body, **ask).choices[0].message.content
        assert re.fullmatch(pattern, text), (body, text)
        said.append(text)
    return said


@check
def what_is_not_supported(client):
    why = refused(openai.BadRequestError, lambda: chat(client, extra_body={"functions": [TIDE]}))
    assert why.param == "functions", why
    unenforced = {"name": "n", "schema": {"type": "array", "uniqueItems": True}}
    format = {"type": "json_schema", "json_schema": unenforced}
    why = refused(openai.BadRequestError, lambda: chat(client, response_format=format))
    assert why.param == "response_format" and "uniqueItems" in why.message, why
    return why.message


@check
def the_name_default(client):
    text = chat(client, model="default").choices[0].message.content
    assert text == chat(client).choices[0].message.content
    return text


@check
def a_stream_that_is_left(client):
    stream = client.chat.completions.create(
        model=MODEL,
        messages=MESSAGES,
        stream=True,
        max_tokens=4000,
        extra_body={"ignore_eos": True},
    )
    next(iter(stream))
    frees_the_worker(stream.close)


@check
def async_gathered(client):
    async def ask(count):
        other = openai.AsyncOpenAI(base_url=client.base_url, api_key="none")
        one = {"model": MODEL, "messages": MESSAGES, "temperature": 0, "max_tokens": 12}
        answers = await asyncio.gather(
            *(other.chat.completions.create(**one) for _ in range(count))
        )
        stream = await other.chat.completions.create(
            stream=True, stream_options={"include_usage": True}, **one
        )
        chunks = [chunk async for chunk in stream]
        await other.close()
        return [answer.choices[0].message.content for answer in answers], chunks

    texts, chunks = asyncio.run(ask(10))
    assert len(texts) == 10 and set(texts) == {content(chunks)}, texts
    assert chunks[-1].usage.completion_tokens > 0
    return texts[0]


@check
def generate_plain_and_batch(client):
    sampling = {"temperature": 0, "max_new_tokens": 8}
    one = generate(client, {"text": "The sea is", "sampling_params": sampling})
    assert one["meta_info"]["completion_tokens"] == len(one["output_ids"])
    body = {"text": ["The sea is", "The sky is"], "sampling_params": sampling}
    two = generate(client, body)
    assert two[0]["output_ids"] == one["output_ids"]
    body = {"input_ids": [504, 3301, 314], "sampling_params": sampling, "return_logprob": True}
    ids = generate(client, body | {"logprob_start_len": 0, "top_logprobs_num": 2})
    prompt = [entry[1] for entry in ids["meta_info"]["input_token_logprobs"]]
    assert prompt == [504, 3301, 314], prompt
    return [one["output_ids"], two[1]["output_ids"], ids["meta_info"]["output_token_logprobs"]]


main(lambda url: openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0))

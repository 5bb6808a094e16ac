"""openai-python's Responses API, unmodified: whole, streamed, parsed, and with tools.

Every answer and every event is validated strictly against openai-python's own types, which are
generated from OpenAI's reference, field by field.
"""

import json
from typing import Literal

import openai
import pydantic
from harness import QUESTION, TOO_LONG, MODEL, check, frees_the_worker, main, refused
from openai.types.responses import Response, ResponseStreamEvent

EVENT = pydantic.TypeAdapter(ResponseStreamEvent)
TIDE = {
    "type": "function",
    "name": "tide",
    "description": "The next high tide at a harbour",
    "parameters": {
        "type": "object",
        "properties": {"harbour": {"enum": ["Brest", "Cork"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["harbour", "days"],
        "additionalProperties": False,
    },
    "strict": False,
}
TOOLS = [TIDE, {"type": "function", "name": "clock", "parameters": None, "strict": None}]
CALL = {"tools": TOOLS, "tool_choice": {"type": "function", "name": "tide"}, "parallel_tool_calls": False}


def settings(extra):
    return {"model": MODEL, "input": QUESTION, "temperature": 0, "max_output_tokens": 32, **extra}


def respond(client, **extra):
    """An answer, validated against the reference."""
    raw = client.responses.with_raw_response.create(**settings(extra))
    Response.model_validate_json(raw.http_response.text, strict=True)
    return raw.parse()


def events(client, **extra):
    """The events of a streamed answer, each validated against the reference as it was sent."""
    raw = client.responses.with_raw_response.create(stream=True, **settings(extra))
    lines = [line for line in raw.http_response.iter_lines() if line]
    assert len(lines) % 2 == 0 and lines[-1] != "data: [DONE]", lines[-2:]
    read = []
    for name, data in zip(lines[::2], lines[1::2]):
        data = data.removeprefix("data: ")
        event = EVENT.validate_json(data, strict=True)
        assert name == f"event: {event.type}" and json.loads(data)["type"] == event.type, name
        assert event.sequence_number == len(read), event
        read.append(event)
    return read


def names(read):
    """The types of the events, with those that repeat once."""
    types = [event.type.removeprefix("response.") for event in read]
    return [name for at, name in enumerate(types) if at == 0 or types[at - 1] != name]


def text_of(read):
    return "".join(event.delta for event in read if event.type == "response.output_text.delta")


@check
def plain(client):
    answer = respond(client, max_output_tokens=200)
    [message] = answer.output
    assert answer.status == message.status == "completed" and answer.incomplete_details is None, answer
    assert message.type == "message" and message.id.startswith("msg_") and answer.id.startswith("resp_")
    usage = answer.usage
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    assert answer.output_text == message.content[0].text
    return answer.output_text


@check
def cut(client):
    answer = respond(client, max_output_tokens=4)
    assert answer.status == "incomplete" and answer.incomplete_details.reason == "max_output_tokens"
    assert answer.output[0].status == "incomplete" and answer.usage.output_tokens == 4
    assert events(client, max_output_tokens=4)[-1].type == "response.incomplete"
    return answer.output_text


@check
def as_a_chat_answers(client):
    """The same conversation has the same prompt, by both APIs."""
    history = [
        {"role": "user", "content": "Name a river."},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "The Seine.", "annotations": []}]},
        {"role": "user", "content": [{"type": "input_text", "text": "And"}, {"type": "input_text", "text": "a sea."}]},
    ]
    answer = respond(client, instructions="Be brief.", input=history)
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Name a river."},
        {"role": "assistant", "content": "The Seine."},
        {"role": "user", "content": "And a sea."},
    ]
    chat = client.chat.completions.create(model=MODEL, messages=messages, temperature=0, max_tokens=32)
    assert answer.output_text == chat.choices[0].message.content, (answer, chat)
    assert answer.usage.input_tokens == chat.usage.prompt_tokens
    return answer.output_text


@check
def what_was_asked_is_in_the_answer(client):
    asked = {"instructions": "Be brief.", "metadata": {"a": "b"}, "top_p": 0.5, "user": "someone", "truncation": "disabled"}
    asked |= {"reasoning": {"effort": "low", "summary": "auto"}, "store": True, "service_tier": "auto"}
    answer = respond(client, **asked)
    assert (answer.instructions, answer.metadata, answer.user) == ("Be brief.", {"a": "b"}, "someone")
    assert (answer.temperature, answer.top_p, answer.max_output_tokens) == (0, 0.5, 32)
    assert (answer.tools, answer.tool_choice, answer.parallel_tool_calls) == ([], "auto", True)
    assert answer.reasoning.effort == "low" and answer.text.format.type == "text"
    assert answer.store is False and answer.background is False and answer.previous_response_id is None
    return answer.output_text


@check
def streamed(client):
    read = events(client, max_output_tokens=200)
    expected = ["created", "in_progress", "output_item.added", "content_part.added", "output_text.delta"]
    expected += ["output_text.done", "content_part.done", "output_item.done", "completed"]
    assert names(read) == expected, names(read)
    answer = respond(client, max_output_tokens=200)
    assert text_of(read) == read[-1].response.output_text == answer.output_text
    last = read[-1].response
    assert last.usage.output_tokens == answer.usage.output_tokens and read[0].response.usage is None
    assert {event.response.id for event in read if hasattr(event, "response")} == {last.id}
    assert {event.item_id for event in read if hasattr(event, "item_id")} == {last.output[0].id}
    return text_of(read)


@check
def streamed_by_the_helper(client):
    with client.responses.stream(**settings({"max_output_tokens": 200})) as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        last = stream.get_final_response()
    assert "".join(deltas) == last.output_text and last.status == "completed"
    return last.output_text


@check
def logprobs(client):
    asked = {"include": ["message.output_text.logprobs"], "top_logprobs": 3}
    answer = respond(client, **asked)
    tokens = answer.output[0].content[0].logprobs
    assert all(len(token.top_logprobs) == 3 for token in tokens)
    assert all(token.top_logprobs[0].token == token.token for token in tokens), "greedy"
    assert bytes(byte for token in tokens for byte in token.bytes).decode() == answer.output_text
    read = events(client, **asked)
    deltas = [event for event in read if event.type == "response.output_text.delta"]
    streamed = [token for event in deltas for token in event.logprobs]
    assert [(t.token, t.logprob) for t in streamed] == [(t.token, t.logprob) for t in tokens]
    return [(token.token, token.logprob) for token in tokens]


class City(pydantic.BaseModel):
    name: str
    river: Literal["Seine", "Thames"]


@check
def parsed(client):
    answer = client.responses.parse(text_format=City, **settings({"max_output_tokens": 200}))
    city = answer.output_parsed
    assert answer.text.format.type == "json_schema" and isinstance(city, City), answer
    with client.responses.stream(text_format=City, **settings({"max_output_tokens": 200})) as stream:
        assert stream.get_final_response().output_parsed == city
    answer = respond(client, text={"format": {"type": "json_object"}}, max_output_tokens=400)
    assert answer.output_text.startswith("{"), answer
    return city.model_dump_json()


def is_tide(arguments):
    arguments = json.loads(arguments)
    assert sorted(arguments) == ["days", "harbour"], arguments
    assert arguments["harbour"] in ("Brest", "Cork") and 1 <= arguments["days"] <= 9, arguments


@check
def a_required_call(client):
    answer = respond(client, max_output_tokens=200, **CALL)
    [call] = answer.output
    assert (call.type, call.name, call.status) == ("function_call", "tide", "completed"), call
    assert call.call_id.startswith("call_") and call.id.startswith("fc_")
    is_tide(call.arguments)
    assert answer.tool_choice.name == "tide" and [tool.name for tool in answer.tools] == ["tide", "clock"]
    read = events(client, max_output_tokens=200, **CALL)
    expected = ["created", "in_progress", "output_item.added", "function_call_arguments.delta"]
    expected += ["function_call_arguments.done", "output_item.done", "completed"]
    assert names(read) == expected, names(read)
    kind = "response.function_call_arguments.delta"
    deltas = "".join(event.delta for event in read if event.type == kind)
    assert deltas == call.arguments == read[-3].arguments and read[-3].name == "tide"
    return call.arguments


@check
def a_call_and_its_output(client):
    """What was called, and what it gave, are part of the history that the model reads."""
    asked = [{"role": "user", "content": QUESTION}]
    called = respond(client, input=asked, max_output_tokens=200, **CALL)
    output = {"type": "function_call_output", "call_id": called.output[0].call_id, "output": "At noon."}
    answer = respond(client, input=[*asked, *called.output, output], tools=TOOLS)
    chats = [{"type": "function", "function": {k: v for k, v in tool.items() if k != "type" and v is not None}} for tool in TOOLS]
    call = {"id": "call_1", "type": "function", "function": {"name": "tide", "arguments": called.output[0].arguments}}
    messages = [*asked, {"role": "assistant", "content": "", "tool_calls": [call]}]
    messages += [{"role": "tool", "tool_call_id": "call_1", "content": "At noon."}]
    chat = client.chat.completions.create(model=MODEL, messages=messages, tools=chats, temperature=0, max_tokens=32)
    assert answer.usage.input_tokens == chat.usage.prompt_tokens, (answer.usage, chat.usage)
    return answer.output_text or answer.output[0].name


@check
def a_parsed_call(client):
    class Tide(pydantic.BaseModel):
        harbour: Literal["Brest", "Cork"]

    tool = openai.pydantic_function_tool(Tide, name="tide")["function"]
    ask = settings({"tools": [{"type": "function", **tool}], "tool_choice": "required", "parallel_tool_calls": False})
    answer = client.responses.parse(**ask | {"max_output_tokens": 200})
    assert sorted(answer.output[0].parsed_arguments) == ["harbour"], answer
    return answer.output[0].arguments


@check
def what_needs_state_is_refused(client):
    for field, value in {
        "previous_response_id": "resp_1",
        "conversation": "conv_1",
        "background": True,
        "prompt": {"id": "pmpt_1"},
        "truncation": "auto",
    }.items():
        why = refused(openai.BadRequestError, lambda: respond(client, **{field: value}))
        assert (why.param, why.code) == (field, "unsupported_parameter"), why
    gone = refused(openai.NotFoundError, lambda: client.responses.retrieve("resp_1"))
    assert gone.code == "response_not_found", gone
    refused(openai.NotFoundError, lambda: client.responses.delete("resp_1"))
    return gone.message


@check
def what_is_not_served_is_refused(client):
    image = [{"type": "input_image", "image_url": "https://example.com/a.png", "detail": "auto"}]
    params = []
    for extra in (
        {"input": [{"role": "user", "content": image}]},
        {"input": [{"type": "item_reference", "id": "msg_1"}]},
        {"input": [{"type": "computer_call_output", "call_id": "a", "output": {}}]},
        {"tools": [{"type": "web_search"}]},
        {"tools": [{"type": "file_search", "vector_store_ids": ["a"]}]},
        {"tools": [{"type": "mcp", "server_label": "a", "server_url": "https://example.com"}]},
        {"tools": TOOLS, "tool_choice": {"type": "web_search_preview"}},
        {"include": ["file_search_call.results"]},
        {"extra_body": {"max_tokens": 3}},
        {"temperature": -1},
        {"max_output_tokens": 0},
        {"text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "array", "uniqueItems": True}}}},
    ):
        params.append(refused(openai.BadRequestError, lambda: respond(client, **extra)).param)
    assert params == [
        "input[0].content[0].type",
        "input[0].type",
        "input[0].type",
        "tools[0].type",
        "tools[0].type",
        "tools[0].type",
        "tool_choice.type",
        "include[0]",
        "max_tokens",
        "temperature",
        "max_output_tokens",
        "text.format",
    ], params
    long = refused(openai.BadRequestError, lambda: respond(client, input=TOO_LONG))
    assert (long.param, long.code) == ("input", "context_length_exceeded"), long
    other = refused(openai.NotFoundError, lambda: respond(client, model="other"))
    return params, other.code


@check
def a_stream_that_is_left(client):
    ask = settings({"max_output_tokens": 4000, "extra_body": {"ignore_eos": True}})
    stream = client.responses.create(stream=True, **ask)
    next(iter(stream))
    frees_the_worker(stream.close)


main(lambda url: openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0))

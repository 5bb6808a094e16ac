"""LangChain's ChatOpenAI and OpenAI, unmodified."""

import asyncio

import openai
from harness import MODEL, QUESTION, TOO_LONG, check, frees_the_worker, main, refused
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI, OpenAI
from pydantic import BaseModel


class City(BaseModel):
    """A city."""

    name: str


class Server:
    def __init__(self, url):
        self.base_url = f"{url}/v1"

    def settings(self, **extra):
        own = {"base_url": self.base_url, "api_key": "none", "max_retries": 0}
        return own | {"model": MODEL, "temperature": 0, "max_tokens": 16} | extra

    def chat(self, **extra):
        return ChatOpenAI(**self.settings(**extra))

    def complete(self, **extra):
        return OpenAI(**self.settings(**extra))


@check
def invoke_and_batch(server):
    one = server.chat().invoke(QUESTION)
    assert one.usage_metadata["output_tokens"] > 0, one
    batch = server.chat().batch([QUESTION] * 4)
    assert {answer.content for answer in batch} == {one.content}
    later = asyncio.run(server.chat().ainvoke(QUESTION))
    assert later.content == one.content
    return one.content


@check
def stream_with_usage(server):
    chunks = list(server.chat(stream_usage=True).stream(QUESTION))
    text = "".join(chunk.content for chunk in chunks)
    assert text == server.chat().invoke(QUESTION).content
    counts = [chunk.usage_metadata for chunk in chunks if chunk.usage_metadata]
    assert len(counts) == 1 and counts[0]["output_tokens"] > 0, counts
    return text


@check
def logprobs_seed_and_stop(server):
    answer = server.chat().bind(logprobs=True, top_logprobs=2).invoke(QUESTION)
    tokens = answer.response_metadata["logprobs"]["content"]
    assert "".join(token["token"] for token in tokens) == answer.content
    warm = server.chat(temperature=1.1, seed=7)
    said = warm.invoke(QUESTION).content
    assert said == warm.invoke(QUESTION).content
    assert said != server.chat(temperature=1.1, seed=8).invoke(QUESTION).content
    short = server.chat().invoke(QUESTION, stop=["France"]).content
    assert short == answer.content.split("France")[0] != answer.content
    return short


@check
def choices(server):
    made = server.chat(n=3, temperature=1.2, seed=5).generate([[HumanMessage(QUESTION)]])
    texts = [choice.text for choice in made.generations[0]]
    assert len(set(texts)) == 3, texts
    return texts


@check
def completions(server):
    made = server.complete().generate(["The sea is", "The sky is"])
    texts = [choices[0].text for choices in made.generations]
    assert server.complete().invoke("The sea is") == texts[0]
    assert "".join(server.complete().stream("The sea is")) == texts[0]
    return texts


@check
def wrong_model(server):
    why = refused(openai.NotFoundError, lambda: server.chat(model="other").invoke(QUESTION))
    return why.code


@check
def too_long_a_prompt(server):
    """What LangChain's fallbacks and trimming catch."""
    refused(ContextOverflowError, lambda: server.chat().invoke(TOO_LONG))
    refused(ContextOverflowError, lambda: list(server.chat().stream(TOO_LONG)))


@check
def structured_output(server):
    model = server.chat(max_tokens=200)
    return [
        model.with_structured_output(City, method=method).invoke(QUESTION).name
        for method in ("function_calling", "json_schema")
    ]


@check
def a_required_tool(server):
    model = server.chat(max_tokens=200).bind_tools([City], tool_choice="any")
    [call, *_] = model.invoke(QUESTION).tool_calls
    assert call["name"] == "City" and isinstance(call["args"]["name"], str), call
    streamed = None
    for part in model.stream(QUESTION):
        streamed = part if streamed is None else streamed + part
    assert streamed.tool_calls[0]["args"] == call["args"], streamed
    return call["args"]["name"]


@check
def responses(server):
    """The same by OpenAI's newer API: text, streams, schemas, and a tool with its output in the next turn."""
    model = server.chat(max_tokens=200, use_responses_api=True)
    one = model.invoke(QUESTION)
    assert one.usage_metadata["output_tokens"] > 0, one
    parts = list(model.stream(QUESTION))
    assert len(parts) > 2 and "".join(part.text for part in parts) == one.text
    city = model.with_structured_output(City, method="json_schema").invoke(QUESTION).name
    called = model.bind_tools([City], tool_choice="any", parallel_tool_calls=False).invoke(QUESTION)
    [call] = called.tool_calls
    history = [HumanMessage(QUESTION), called, ToolMessage("Noted.", tool_call_id=call["id"])]
    return one.text, city, call["args"]["name"], model.bind_tools([City]).invoke(history).text or "a call"


@check
def a_stream_that_is_left(server):
    stream = server.chat(max_tokens=4000, extra_body={"ignore_eos": True}).stream(QUESTION)
    next(stream)
    frees_the_worker(stream.close)


main(Server)

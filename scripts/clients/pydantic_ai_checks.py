"""pydantic-ai, unmodified."""

import asyncio

from harness import MODEL, QUESTION, TOO_LONG, check, main, refused
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings


class City(BaseModel):
    name: str


class Server:
    def __init__(self, url):
        self.base_url = f"{url}/v1"

    def agent(self, name=MODEL, api=OpenAIChatModel, **extra):
        provider = OpenAIProvider(base_url=self.base_url, api_key="none")
        settings = ModelSettings(temperature=0, max_tokens=16)
        model = api(name, provider=provider, settings=settings)
        return Agent(model, retries=0, **extra)


@check
def run(server):
    answer = server.agent().run_sync(QUESTION)
    assert answer.usage.output_tokens > 0, answer
    return answer.output


@check
def a_second_turn(server):
    agent = server.agent(system_prompt="Be brief.")
    first = agent.run_sync("Say hello.")
    second = agent.run_sync("Again.", message_history=first.all_messages())
    assert second.usage.input_tokens > first.usage.total_tokens, "the first turn is not in it"
    return second.output


@check
def stream(server):
    async def ask():
        async with server.agent().run_stream(QUESTION) as answer:
            return [part async for part in answer.stream_text(delta=True, debounce_by=None)]

    parts = asyncio.run(ask())
    assert len(parts) > 1, parts
    assert "".join(parts).strip() == server.agent().run_sync(QUESTION).output.strip()
    return "".join(parts)


@check
def errors(server):
    gone = refused(ModelHTTPError, lambda: server.agent("wrong").run_sync(QUESTION))
    assert gone.status_code == 404 and gone.body["code"] == "model_not_found", gone
    long = refused(ModelHTTPError, lambda: server.agent().run_sync(TOO_LONG))
    assert long.status_code == 400 and long.body["code"] == "context_length_exceeded", long
    return gone.status_code, long.status_code


@check
def structured_output(server):
    """A prompted one is JSON of the model's own choice, which rarely is a city."""
    settings = ModelSettings(temperature=0, max_tokens=200)
    ways = (ToolOutput, NativeOutput)
    cities = [
        server.agent(output_type=way(City)).run_sync(QUESTION, model_settings=settings).output
        for way in ways
    ]
    return [city.name for city in cities]


@check
def responses(server):
    """The same by OpenAI's newer API, whose items are the history of the next turn."""
    settings = ModelSettings(temperature=0, max_tokens=200)
    agent = server.agent(api=OpenAIResponsesModel, instructions="Be brief.")
    first = agent.run_sync("Say hello.", model_settings=settings)
    second = agent.run_sync("Again.", message_history=first.all_messages(), model_settings=settings)
    assert second.usage.input_tokens > first.usage.total_tokens, "the first turn is not in it"

    async def ask():
        async with agent.run_stream("Say hello.", model_settings=settings) as answer:
            return [part async for part in answer.stream_text(delta=True, debounce_by=None)]

    parts = asyncio.run(ask())
    assert len(parts) > 1 and "".join(parts).strip() == first.output.strip(), parts
    cities = [
        server.agent(api=OpenAIResponsesModel, output_type=way(City)).run_sync(QUESTION, model_settings=settings).output
        for way in (ToolOutput, NativeOutput)
    ]
    return [first.output, second.output, *(city.name for city in cities)]


main(Server)

"""instructor, unmodified."""

import logging

import instructor
import openai
from harness import MODEL, check, main
from instructor.core.exceptions import IncompleteOutputException, InstructorRetryException
from pydantic import BaseModel

logging.getLogger("instructor").setLevel(logging.CRITICAL)
MESSAGES = [{"role": "user", "content": "What is the capital of France?"}]


class City(BaseModel):
    name: str


class Server:
    def __init__(self, url):
        self.openai = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)

    def ask(self, mode, **extra):
        client = instructor.from_openai(self.openai, mode=mode)
        settings = {"model": MODEL, "messages": MESSAGES, "temperature": 0, "max_tokens": 40}
        settings |= {"max_retries": 0, "response_model": City}
        return client.chat.completions.create(**settings | extra)


@check
def without_a_model_of_the_answer(server):
    answer = server.ask(instructor.Mode.MD_JSON, response_model=None)
    return answer.choices[0].message.content


@check
def markdown_json_reaches_the_model(server):
    """The demo model rarely writes the JSON that is asked for; that it was asked is what counts."""
    try:
        answer = server.ask(instructor.Mode.MD_JSON)
        return answer.name
    except (IncompleteOutputException, InstructorRetryException) as why:
        assert why.last_completion is not None, why
        return why.last_completion.choices[0].message.content


@check
def by_a_tool_and_by_a_schema(server):
    modes = (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA)
    return [server.ask(mode, max_tokens=200).name for mode in modes]


main(Server)

"""The command `llm`, unmodified, with the models of an extra-openai-models.yaml."""

import json
import os
import subprocess
import sys
import tempfile

from harness import MODEL, QUESTION, TOO_LONG, check, main

PROGRAM = os.path.join(os.path.dirname(sys.executable), "llm")
# At temperature 1 alone a small model loses itself in a free string now and then, up to the bound.
SEEDED = ("-o", "seed", "3", "-o", "top_p", "0.9", "-o", "max_tokens", "400")


class Server:
    def __init__(self, url):
        self.home = tempfile.TemporaryDirectory()
        models = [self.model(url, MODEL, MODEL), self.model(url, "wrong", "other")]
        models.append({**self.model(url, "text", MODEL), "completion": True})
        able = {"supports_schema": True, "supports_tools": True}
        models.append({**self.model(url, "able", MODEL), **able})
        with open(os.path.join(self.home.name, "extra-openai-models.yaml"), "w") as file:
            json.dump(models, file)  # which is YAML too

    @staticmethod
    def model(url, name, served):
        return {"model_id": name, "model_name": served, "api_base": f"{url}/v1"}

    def ask(self, prompt, *options, model=MODEL):
        command = [PROGRAM, "-m", model, "--no-log", *options]
        home = {"LLM_USER_PATH": self.home.name, "OPENAI_API_KEY": "none"}
        return subprocess.run(
            command, input=prompt, text=True, capture_output=True, env=os.environ | home
        )

    def answer(self, prompt, *options, **extra):
        settings = ("-o", "temperature", "0", "-o", "max_tokens", "16")
        done = self.ask(prompt, *settings, *options, **extra)
        assert done.returncode == 0, done.stderr
        return done.stdout


@check
def chat(server):
    streamed = server.answer(QUESTION)
    whole = server.answer(QUESTION, "--no-stream")
    assert streamed == whole and len(whole) > 10, (streamed, whole)
    return whole


@check
def system_prompt_and_seed(server):
    brief = server.answer(QUESTION, "-s", "Be brief.", "-o", "seed", "3")
    assert brief != server.answer(QUESTION)
    return brief


@check
def completion(server):
    return server.answer("The sea is", model="text")


@check
def errors(server):
    wrong = server.ask(QUESTION, model="wrong")
    assert wrong.returncode != 0 and "model_not_found" in wrong.stderr, wrong
    long = server.ask(TOO_LONG)
    assert long.returncode != 0 and "context_length_exceeded" in long.stderr, long


@check
def a_schema(server):
    done = server.ask(QUESTION, "--schema", "name, population int", *SEEDED, model="able")
    assert done.returncode == 0, done
    city = json.loads(done.stdout)
    assert isinstance(city["population"], int), city
    return city["name"]


@check
def tools_are_offered(server):
    done = server.ask(QUESTION, "--tool", "llm_version", *SEEDED, model="able")
    assert done.returncode == 0, done
    return done.stdout.strip()


main(Server)

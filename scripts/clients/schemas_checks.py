"""JSON schemas at temperature 1: each answer ends, and is valid by jsonschema, which is not ours.

A model of this size loses itself in what has no end: a text once in some thirty answers, digits of fractions and seconds, lists, trees.
So texts have 300 characters at most, lists 40 elements, numbers bounds, and the least likely tenth of tokens is not drawn.
"""

import concurrent.futures
import hashlib
import json

import jsonschema
import openai
from harness import MODEL, check, main

ANSWERS = 10
VALIDATOR = jsonschema.Draft202012Validator
QUESTION = "Fill in this form for the city of Paris, with short values of one or two words:"
TEXT = {"type": "string", "maxLength": 300}
PRICE = {"type": "number", "minimum": 0, "maximum": 100, "multipleOf": 0.25}


def object_of(properties, required=None, **more):
    required = list(properties) if required is None else required
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False, **more}


RECURSION = "a recursion that may end"
# No keyword bounds its depth, and this model now and then puts boxes into boxes without end.
RECURSIONS_CUT_MAX = 2
BOX = object_of({"name": {"enum": ["oak", "ash", "elm"]}, "inside": {"$ref": "#/$defs/box"}}, ["name"])
SCHEMAS = {
    "a text": object_of({"city": TEXT}),
    "texts": object_of({"first": TEXT, "last": TEXT, "nickname": TEXT}),
    "optional keys": object_of({"name": TEXT, "age": {"type": "integer"}, "email": TEXT}, ["name"]),
    "an enum": object_of({"colour": {"enum": ["red", "green", "blue"]}, "count": {"enum": [1, 2, 3, None]}}),
    "a constant": object_of({"kind": {"const": "city"}, "name": TEXT}),
    "numbers within bounds": object_of(
        {"day": {"type": "integer", "minimum": 1, "maximum": 31}, "price": PRICE, "below": {"type": "integer", "exclusiveMaximum": 0, "minimum": -9}}
    ),
    "a nested object": object_of({"where": object_of({"city": TEXT, "at": object_of({"lat": PRICE, "lon": PRICE})})}),
    "a list of texts": object_of({"tags": {"type": "array", "items": TEXT, "minItems": 1, "maxItems": 4}}),
    "a list of flags": object_of({"flags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 40}}),
    "a list of objects": object_of(
        {"stops": {"type": "array", "items": object_of({"name": TEXT, "hour": {"type": "integer", "minimum": 0, "maximum": 23}}), "minItems": 2, "maxItems": 3}}
    ),
    "one of two kinds": object_of({"value": {"anyOf": [{"type": "integer"}, object_of({"text": TEXT})]}}),
    "a text or null": object_of({"note": {"type": ["string", "null"]}}),
    "a reference": object_of({"home": {"$ref": "#/$defs/place"}, "work": {"$ref": "#/$defs/place"}}, **{"$defs": {"place": object_of({"city": TEXT})}}),
    RECURSION: {"$ref": "#/$defs/box", "$defs": {"box": BOX}},
    "a pattern": object_of({"plate": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3,4}$"}}),
    "a date": object_of({"on": {"type": "string", "format": "date"}}),
    "an id and an address": object_of({"id": {"type": "string", "format": "uuid"}, "ip": {"type": "string", "format": "ipv4"}}),
    "texts within bounds": object_of({"code": {"type": "string", "minLength": 3, "maxLength": 8}, "open": {"type": "boolean"}}),
    "free keys": {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1, "maxProperties": 3},
    "a tuple": object_of({"pair": {"type": "array", "prefixItems": [TEXT, {"type": "integer", "minimum": 0, "maximum": 5000}], "minItems": 2, "items": False}}),
}


class Cut(str):
    """An answer that did not end by itself."""


class Server:
    def __init__(self, url):
        self.openai = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=300)

    def answer(self, name, schema, seed):
        format = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}
        messages = [{"role": "user", "content": f"{QUESTION} {json.dumps(schema)}"}]
        ask = {"model": MODEL, "messages": messages, "temperature": 1.0, "top_p": 0.9, "seed": seed}
        ask["max_tokens"] = 2048
        choice = self.openai.chat.completions.create(response_format=format, **ask).choices[0]
        if choice.finish_reason != "stop":
            return Cut(f"{name}, seed {seed}: ...{choice.message.content[-60:]!r}")
        VALIDATOR(schema, format_checker=VALIDATOR.FORMAT_CHECKER).validate(json.loads(choice.message.content))
        return choice.message.content


@check
def answers_are_valid(server):
    """With a seed, they are the same on a pair as on one worker."""
    asks = [(name, schema, seed) for name, schema in SCHEMAS.items() for seed in range(ANSWERS)]
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda ask: server.answer(*ask), asks))
    cut = [answer for answer in answers if isinstance(answer, Cut)]
    bounded = [answer for answer in cut if not answer.startswith(RECURSION)]
    assert not bounded and len(cut) <= RECURSIONS_CUT_MAX, cut
    longest = max(len(answer) for answer in answers if not isinstance(answer, Cut))
    digest = hashlib.sha256("\n".join(answers).encode()).hexdigest()[:16]
    ended = len(answers) - len(cut)
    return f"{ended} of {len(answers)} answers to {len(SCHEMAS)} schemas end, the longest of {longest} characters; {digest}"


main(Server)

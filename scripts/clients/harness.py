"""What every client's script does: ask each server the same, and print a line for each check.

A script is run as SCRIPT URL...; the first URL is a unified agent's, and the others must answer
as it does. A check takes what `connect` makes of a URL. What it returns must be the same on all
servers, and not empty; one whose answer cannot be the same returns None.
"""

import json
import os
import sys
import time
import traceback
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = "smollm2"
QUESTION = "Name the capital of France, then say why the sky is blue."
MESSAGES = [{"role": "user", "content": QUESTION}]
# More tokens than the model's context of 8192 has places for.
TOO_LONG = "word " * 9000
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def refused(kind, call):
    """The error of this kind that the call must end in."""
    try:
        answer = call()
    except kind as why:
        return why
    except Exception as why:
        raise AssertionError(f"{type(why).__name__} instead of {kind.__name__}: {why}") from why
    raise AssertionError(f"served instead of {kind.__name__}: {answer!r:.200}")


def running():
    """Requests that the workers hold, by their own metrics."""
    held = 0
    for worker in os.environ["PDSERVE_WORKERS"].split():
        with urllib.request.urlopen(f"{worker}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        counts = [line for line in lines if line.startswith("pdserve_num_running_reqs ")]
        assert len(counts) == 1, f"{worker}/metrics has no pdserve_num_running_reqs"
        held += float(counts[0].split()[1])
    return held


def within(seconds, holds, what):
    """Waits until this holds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.02)


def frees_the_worker(stop):
    """A stream was begun; once it is stopped, no worker computes any more."""
    within(5, lambda: running() > 0, "a worker runs the stream")
    stop()
    within(5, lambda: running() == 0, "the workers are free after the stream was left")


def server(url):
    """The server's JSON of GET, by plain HTTP."""
    with urllib.request.urlopen(url) as answer:
        return json.load(answer)


def has_text(answer):
    """No text of these checks is empty on a server that works."""
    parts = answer if isinstance(answer, list | tuple) else [answer]
    return len(parts) > 0 and "" not in parts


def main(connect):
    clients = {url: connect(url) for url in sys.argv[1:]}
    failed = 0
    for function in CHECKS:
        url = None
        try:
            answers = []
            for url, client in clients.items():
                answers.append(function(client))
            assert all(answer == answers[0] for answer in answers), f"answers differ: {answers}"
            assert has_text(answers[0]), f"an empty answer: {answers[0]!r}"
            print(f"ok    {function.__name__:30} {str(answers[0])[:90]!r}", flush=True)
        except Exception as why:  # the other checks still count
            failed += 1
            steps = traceback.extract_tb(why.__traceback__)
            ours = [step for step in steps if os.path.dirname(step.filename) == HERE]
            place = f"{os.path.basename(ours[-1].filename)}:{ours[-1].lineno}"
            failure = f"{url} {place} {type(why).__name__}: {why}"
            print(f"FAIL  {function.__name__:30} {failure[:2000]}", flush=True)
    sys.exit(1 if failed else 0)

"""What disaggregation adds to a request's first token on one machine: time to the first streamed
token through router, prefill and decode, beside one monolithic agent, in alternation; medians.
"""

import argparse
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import time
import urllib.request

PROMPT_LENS = [32, 128, 512, 1024]


class Fleet:
    def __init__(self, release, model, transport):
        self.children = []
        self.agent(release, model, "127.77.1.1", "--disaggregation-mode", "null")
        for host, mode in [("127.77.1.2", "prefill"), ("127.77.1.3", "decode")]:
            self.agent(release, model, host, "--disaggregation-mode", mode,
                       "--disaggregation-transfer-backend", transport)
        self.start(f"{release}/pd-router", "--pd-disaggregation", "--host", "127.77.1.4",
                   "--port", "30000", "--prefill", "http://127.77.1.2:30000", "8998",
                   "--decode", "http://127.77.1.3:30000")
        self.wait("127.77.1.1", "/health")
        self.wait("127.77.1.4", "/ready")

    def start(self, *command):
        self.children.append(subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def agent(self, release, model, host, *flags):
        self.start(f"{release}/pd-agent", "--model-path", model, "--host", host, "--port", "30000",
                   "--disable-radix-cache", *flags)

    def wait(self, host, path):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"http://{host}:30000{path}", timeout=1) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                pass
            time.sleep(0.01)
        sys.exit(f"{host}{path} is not ready after 60 s")

    def stop(self):
        for child in self.children:
            child.terminate()
        for child in self.children:
            child.wait()


def first_token_ms(host, ids):
    body = json.dumps({"input_ids": ids, "stream": True, "sampling_params": {
        "temperature": 0, "max_new_tokens": 4, "ignore_eos": True}})
    connection = http.client.HTTPConnection(host, 30000, timeout=60)
    started = time.perf_counter()
    connection.request("POST", "/generate", body, {"content-type": "application/json"})
    answer = connection.getresponse()
    line = answer.readline()
    elapsed = (time.perf_counter() - started) * 1e3
    assert answer.status == 200 and line.startswith(b"data:"), (answer.status, line)
    answer.read()
    connection.close()
    return elapsed


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--release", required=True)
    args.add_argument("--model", required=True)
    args.add_argument("--out", required=True)
    args.add_argument("--rounds", type=int, default=9)
    args = args.parse_args()

    random.seed(2)
    rows = []
    for transport in ["shm", "tcp"]:
        fleet = Fleet(args.release, args.model, transport)
        try:
            for length in PROMPT_LENS:
                ids = [random.randrange(100, 40000) for _ in range(length)]
                times = {"127.77.1.1": [], "127.77.1.4": []}
                for warm in [True] + [False] * args.rounds:
                    for host, measured in times.items():
                        elapsed = first_token_ms(host, ids)
                        if not warm:
                            measured.append(elapsed)
                one, pair = (statistics.median(t) for t in times.values())
                rows.append({"transport": transport, "prompt_tokens": length,
                             "monolithic_ms": one, "disaggregated_ms": pair,
                             "added_ms": pair - one})
        finally:
            fleet.stop()
    with open(args.out, "w") as out:
        json.dump({"host_cores": os.cpu_count(), "rounds": args.rounds, "rows": rows}, out, indent=1)
    print(f"{'transport':<10} {'prompt':>7} {'monolithic ms':>14} {'disaggregated ms':>17} {'added ms':>9}")
    for row in rows:
        print(f"{row['transport']:<10} {row['prompt_tokens']:>7} {row['monolithic_ms']:>14.1f} "
              f"{row['disaggregated_ms']:>17.1f} {row['added_ms']:>9.1f}")


if __name__ == "__main__":
    main()

"""What drafts bring: answers of SmolLM2 with speculative decoding beside those without, one request at a time, in
alternation; medians. An answer that differs from the one without drafts ends the run.
"""

import argparse
import json
import os
import re
import statistics
import sys
import time
import urllib.request

import models
from engines import PdAgent

K = 4
# Of an answer; those behind the first are measured.
TOKENS = 129
PROSE = ["The lighthouse keeper climbed the stairs one last time, and", "Rust is a programming language that",
         "Dear Sir or Madam, I am writing to you because"]
FACTS = "\n".join(f"{name} was born in {year} in {town} and works as a {job}." for name, year, town, job in [
    ("Ada", 1815, "London", "mathematician"), ("Grace", 1906, "New York", "rear admiral"),
    ("Alan", 1912, "Maida Vale", "logician"), ("Edsger", 1930, "Rotterdam", "programmer"),
    ("Barbara", 1939, "Los Angeles", "professor"), ("Donald", 1938, "Milwaukee", "writer")])
COPY = [f"The list:\n{FACTS}\n\nThe list once more, word for word:\n"]


class Asked:
    """An agent, and what it was measured to do."""

    def __init__(self, name, args, model, host, *flags):
        self.agent = PdAgent(name, args.scratch, args.agent, model, args.threads, host, *flags)
        self.seconds = {}

    def answer(self, prompt, sampling):
        """Token ids; the time behind the first one counts."""
        params = {"temperature": 0, "ignore_eos": True} | sampling
        started = time.perf_counter()
        self.agent.post("/generate", {"text": prompt, "sampling_params": params | {"max_new_tokens": 1}})
        first = time.perf_counter() - started
        started = time.perf_counter()
        output = self.agent.post("/generate", {"text": prompt, "sampling_params": params | {"max_new_tokens": TOKENS}})
        self.seconds.setdefault((prompt, str(sampling)), []).append(time.perf_counter() - started - first)
        return output["output_ids"]

    def tokens_per_s(self):
        return (TOKENS - 1) * len(self.seconds) / sum(map(statistics.median, self.seconds.values()))

    def total(self, name):
        with urllib.request.urlopen(self.agent.base + "/metrics") as answer:
            found = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", answer.read().decode(), re.MULTILINE)
        return sum(map(float, found))


def measured(title, args, model, flags, prompts):
    samplings = [{}, {"temperature": 0.8, "sampling_seed": 7}]
    plain = Asked("drafts-none", args, model, "127.77.3.1")
    try:
        drafted = Asked("drafts-some", args, model, "127.77.3.2", "--speculative-num-steps", str(K), *flags)
        try:
            for _ in range(args.rounds):
                for prompt in prompts:
                    for sampling in samplings:
                        answers = [asked.answer(prompt, sampling) for asked in [plain, drafted]]
                        if answers[0] != answers[1]:
                            sys.exit(f"{title}: drafts change the answer to {prompt!r} with {sampling}: {answers}")
            drafts, accepted, steps = (
                drafted.total(f"pdserve_spec_{name}_total") for name in ["draft_tokens", "accepted_tokens", "verify"])
            answered = args.rounds * len(prompts) * len(samplings) * (TOKENS - 1)
            row = {"title": title, "drafts": drafts, "drafts_per_token": drafts / answered,
                   "accepted_share": accepted / max(drafts, 1), "tokens_per_step": (steps + accepted) / max(steps, 1),
                   "plain_tokens_per_s": plain.tokens_per_s(), "tokens_per_s": drafted.tokens_per_s()}
        finally:
            drafted.agent.close()
    finally:
        plain.agent.close()
    print(f"{title:<46} {row['drafts_per_token']:>12.2f} {100 * row['accepted_share']:>9.0f} % "
          f"{row['tokens_per_step']:>12.2f} {row['plain_tokens_per_s']:>12.1f} {row['tokens_per_s']:>9.1f} "
          f"{row['tokens_per_s'] / row['plain_tokens_per_s']:>7.2f}", flush=True)
    return row


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--agent", required=True)
    args.add_argument("--model", required=True, help="SmolLM2 as GGUF")
    args.add_argument("--scratch", required=True)
    args.add_argument("--out", required=True)
    args.add_argument("--threads", type=int, default=2)
    args.add_argument("--rounds", type=int, default=5)
    args = args.parse_args()

    os.makedirs(args.scratch, exist_ok=True)
    bf16 = models.smollm2_bf16(args.model, f"{args.scratch}/smollm2-bf16")
    standalone = ["--speculative-algorithm", "STANDALONE", "--speculative-draft-model-path"]
    print(f"{'model, drafts of':<46} {'drafts/token':>12} {'accepted':>11} {'tokens/step':>12} {'tok/s plain':>12} "
          f"{'drafted':>9} {'ratio':>7}")
    rows = [
        measured("BF16, itself", args, bf16, [*standalone, bf16], PROSE),
        measured("BF16, its Q4_1", args, bf16, [*standalone, args.model], PROSE),
    ]
    for layers in [10, 28]:
        first = models.first_layers(bf16, f"{args.scratch}/smollm2-bf16-first-{layers}", layers)
        rows.append(measured(f"BF16, its first {layers} layers", args, bf16, [*standalone, first], PROSE))
    ngram = ["--speculative-algorithm", "NGRAM"]
    rows += [
        measured("BF16, n-grams, prose", args, bf16, ngram, PROSE),
        measured("BF16, n-grams, a copying prompt", args, bf16, ngram, COPY),
        measured("Q4_1, n-grams, a copying prompt", args, args.model, ngram, COPY),
    ]
    with open(args.out, "w") as out:
        json.dump({"host_cores": os.cpu_count(), "threads": args.threads, "rounds": args.rounds, "drafts_max": K,
                   "tokens": TOKENS, "rows": rows}, out, indent=1)


if __name__ == "__main__":
    main()

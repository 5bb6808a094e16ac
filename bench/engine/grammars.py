"""What a grammar costs: decoding by JSON schemas of 1, 10 and 100 properties beside decoding freely, pd-agent and
llama.cpp by turns, the same file, prompt, temperature 1 and seeds; the mask of a token; compiling. Medians of rounds.
On a machine that others use, processor time says more than the clock, and one thread more than two, which wait for
each other.

pdserve is measured twice: as it is, and without jumps over text that the schema forces; the answers must be the same.
llama.cpp is measured twice: as llama-cpp-python samples, which applies the grammar to all tokens of the vocabulary, and
as llama.cpp's own programs do, which draw first and apply it to all tokens when the drawn one is refused.
"""

import argparse
import ctypes
import json
import math
import os
import re
import statistics
import sys
import time
import urllib.request

import numpy

from engines import LlamaCpp, PdAgent

TOKENS, SEEDS = 65, [11, 12, 13]
PROMPT = "<|im_start|>user\nMake up a record, as JSON.<|im_end|>\n<|im_start|>assistant\n"
KINDS = [{"type": "string", "enum": ["red", "green", "blue"]}, {"type": "integer"}, {"type": "boolean"},
         {"type": "array", "items": {"type": "string"}, "maxItems": 4}, {"type": "number"}, {"type": "string"}]


def record(properties):
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def fields(count):
    return {f"field_{i}": KINDS[i % len(KINDS)] for i in range(count)}


SCHEMAS = {"1 property": record({"text": {"type": "string"}}), "10 properties": record(fields(10)),
           "100 properties in 10": record({f"part_{i}": record(fields(10)) for i in range(10)})}


class Decoded:
    """Tokens behind each answer's first, and what they took, by the clock and of processors."""

    def __init__(self):
        self.seconds, self.processor_s, self.tokens, self.masks, self.ids = 0.0, 0.0, 0, [], []

    def add(self, seconds, processor_s, tokens):
        self.seconds += seconds
        self.processor_s += processor_s
        self.tokens += tokens

    def rates(self):
        return self.tokens / self.seconds, self.tokens / self.processor_s


class Ours:
    def __init__(self, name, args, host, *flags):
        self.agent = PdAgent(name, args.scratch, args.agent, args.model, args.threads, host, *flags)

    def answer(self, ids, seed, schema, tokens):
        params = {"temperature": 1.0, "sampling_seed": seed, "max_new_tokens": tokens, "ignore_eos": True}
        if schema:
            params["json_schema"] = json.dumps(schema)
        used, started = self.processor_s(), time.perf_counter()
        output = self.agent.post("/generate", {"input_ids": ids, "sampling_params": params})
        return time.perf_counter() - started, self.processor_s() - used, output

    def processor_s(self):
        with open(f"/proc/{self.agent.process.pid}/stat") as stat:
            fields = stat.read().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def decoded(self, ids, schema):
        found, texts = Decoded(), []
        for seed in SEEDS:
            first_s, first_processor_s, _ = self.answer(ids, seed, schema, 1)
            seconds, processor_s, output = self.answer(ids, seed, schema, TOKENS)
            found.add(seconds - first_s, processor_s - first_processor_s, len(output["output_ids"]) - 1)
            found.ids.append(output["output_ids"])
            if output["meta_info"]["finish_reason"]["type"] == "stop":
                texts.append(output["text"])
        return found, texts

    def metrics(self, name):
        with urllib.request.urlopen(self.agent.base + "/metrics") as answer:
            text = answer.read().decode()
        buckets = re.findall(rf'^{name}_bucket{{.*le="(\S+)"}} (\S+)$', text, re.MULTILINE)
        [total] = re.findall(rf"^{name}_sum(?:{{.*}})? (\S+)$", text, re.MULTILINE)
        return [(float(end.replace("+Inf", "inf")), float(count)) for end, count in buckets], float(total)

    def total(self, name):
        with urllib.request.urlopen(self.agent.base + "/metrics") as answer:
            return sum(map(float, re.findall(rf"^{name}(?:{{.*}})? (\S+)$", answer.read().decode(), re.MULTILINE)))

    def compiled(self, ids, schema, mark):
        """Seconds to compile a schema that was not compiled before."""
        name = "pdserve_grammar_compilation_time_seconds"
        _, before = self.metrics(name)
        self.answer(ids, 1, schema | {"title": mark}, 1)
        return self.metrics(name)[1] - before


class Llama(LlamaCpp):
    def __init__(self, args):
        super().__init__("llama.cpp", args.model, args.threads)
        self.words = self.api.llama_model_get_vocab(self.model)
        kind = numpy.dtype([("id", numpy.int32), ("logit", numpy.float32), ("p", numpy.float32)])
        self.all = numpy.zeros(self.vocab, kind)
        self.one = numpy.zeros(1, kind)

    def ids(self, text):
        ids = (ctypes.c_int32 * 512)()
        return list(ids[:self.api.llama_tokenize(self.words, text.encode(), len(text.encode()), ids, 512, False, True)])

    def grammar(self, schema):
        """And seconds for the conversion and for the rest."""
        from llama_cpp.llama_grammar import json_schema_to_gbnf
        started = time.perf_counter()
        text = json_schema_to_gbnf(json.dumps(schema))
        converted = time.perf_counter()
        sampler = self.api.llama_sampler_init_grammar(self.words, text.encode(), b"root")
        assert sampler, text
        return sampler, converted - started, time.perf_counter() - converted

    def array(self, rows):
        data = rows.ctypes.data_as(ctypes.POINTER(self.api.llama_token_data))
        return self.api.llama_token_data_array(data, len(rows), -1, False)

    def apply(self, grammar, rows, masks):
        array = self.array(rows)
        started = time.perf_counter()
        self.api.llama_sampler_apply(grammar, ctypes.byref(array))
        masks[-1] += time.perf_counter() - started
        return array

    def by_mask(self, chain, grammar, masks):
        logits = self.api.llama_get_logits_ith(self.context, -1)
        self.all["id"] = numpy.arange(self.vocab)
        self.all["logit"] = numpy.ctypeslib.as_array(logits, (self.vocab,))
        array = self.apply(grammar, self.all, masks)
        self.api.llama_sampler_apply(chain, ctypes.byref(array))
        token = array.data[array.selected].id
        self.api.llama_sampler_accept(chain, token)
        return token

    def next(self, chain, grammar, drawn_first, masks):
        if not grammar:
            return self.api.llama_sampler_sample(chain, self.context, -1)
        masks.append(0.0)
        token = None
        if drawn_first:
            token = self.api.llama_sampler_sample(chain, self.context, -1)
            self.one["id"], self.one["logit"] = token, 1.0
            self.apply(grammar, self.one, masks)
            if not math.isfinite(self.one["logit"][0]):
                token = None
        token = self.by_mask(chain, grammar, masks) if token is None else token
        if not self.api.llama_vocab_is_eog(self.words, token):
            self.api.llama_sampler_accept(grammar, token)
        return token

    def decoded(self, ids, schema, drawn_first=False):
        found, texts = Decoded(), []
        for seed in SEEDS:
            grammar = schema and self.grammar(schema)[0]
            chain = self.api.llama_sampler_chain_init(self.api.llama_sampler_chain_default_params())
            self.api.llama_sampler_chain_add(chain, self.api.llama_sampler_init_temp(1.0))
            self.api.llama_sampler_chain_add(chain, self.api.llama_sampler_init_dist(seed))
            self.clear()
            self.prompt(ids)
            answer = [self.next(chain, grammar, drawn_first, found.masks)]
            used, started = time.process_time(), time.perf_counter()
            while len(answer) < TOKENS and not (grammar and self.api.llama_vocab_is_eog(self.words, answer[-1])):
                self.step([(answer[-1], len(ids) + len(answer) - 1, 0, True)])
                answer.append(self.next(chain, grammar, drawn_first, found.masks))
            found.add(time.perf_counter() - started, time.process_time() - used, len(answer) - 1)
            if self.api.llama_vocab_is_eog(self.words, answer[-1]):
                texts.append(self.text(answer[:-1]))
            self.api.llama_sampler_free(chain)
            if grammar:
                self.api.llama_sampler_free(grammar)
        return found, texts

    def text(self, ids):
        buffer, out = ctypes.create_string_buffer(256), b""
        for token in ids:
            length = self.api.llama_token_to_piece(self.words, token, buffer, 256, 0, False)
            out += buffer.raw[:length]
        return out.decode(errors="replace")


def quantile(buckets, share):
    """By buckets, as Prometheus interpolates."""
    wanted, below, start = share * buckets[-1][1], 0.0, 0.0
    for end, count in buckets:
        if count >= wanted:
            return start + (end - start) * (wanted - below) / max(count - below, 1)
        below, start = count, end
    return start


def since(buckets, before):
    return [(end, count - earlier) for (end, count), (_, earlier) in zip(buckets, before)]


def measured(name, schema, ours, walking, llama, ids, rounds):
    rates = {"ours free": [], "ours": [], "ours walking": [], "llama free": [], "llama mask": [], "llama drawn": []}
    compiles = {"ours": [], "llama convert": [], "llama init": []}
    masks = {"llama mask": [], "llama drawn": []}
    ended, valid = {"ours": 0, "llama": 0}, {"ours": 0, "llama": 0}
    before = None
    for turn in range(rounds + 1):
        warm = turn == 0
        print(f"{name}, round {turn} of {rounds}", file=sys.stderr)
        ours.agent.resume()
        free, (found, texts) = ours.decoded(ids, None)[0], ours.decoded(ids, schema)
        compile_s = ours.compiled(ids, schema, f"{name} {turn}")
        if warm:
            before = ours.metrics("pdserve_grammar_mask_time_seconds"), jumps(ours)
        ours.agent.pause()
        walking.agent.resume()
        walked, _ = walking.decoded(ids, schema)
        walking.agent.pause()
        if walked.ids != found.ids:
            sys.exit(f"{name}: jumps change an answer: {found.ids}, {walked.ids}")
        grammar, convert_s, init_s = llama.grammar(schema)
        llama.api.llama_sampler_free(grammar)
        runs = {"ours free": free, "ours": found, "ours walking": walked, "llama free": llama.decoded(ids, None)[0]}
        runs["llama mask"], masked_texts = llama.decoded(ids, schema)
        runs["llama drawn"], drawn_texts = llama.decoded(ids, schema, True)
        if warm:
            continue
        for kind, run in runs.items():
            rates[kind].append(run.rates())
            masks.get(kind, []).extend(run.masks)
        for kind, seconds in zip(compiles, [compile_s, convert_s, init_s]):
            compiles[kind].append(seconds)
        for kind, all_texts in [("ours", texts), ("llama", masked_texts + drawn_texts)]:
            ended[kind] += len(all_texts)
            valid[kind] += sum(map(is_record, all_texts))
    ours.agent.resume()
    after = ours.metrics("pdserve_grammar_mask_time_seconds"), jumps(ours)
    ours.agent.pause()
    forced, accepted = (now - then for now, then in zip(after[1], before[1]))
    after, before = after[0], before[0]
    buckets = since(after[0], before[0])
    row = {"schema": name, "bytes": len(json.dumps(schema)),
           "tok_s": {kind: statistics.median(rate for rate, _ in found) for kind, found in rates.items()},
           "tok_processor_s": {kind: statistics.median(rate for _, rate in found) for kind, found in rates.items()},
           "compile_ms": {kind: 1e3 * statistics.median(found) for kind, found in compiles.items()},
           "jump_tokens": forced, "jump_accepted_tokens": accepted,
           "mask_us": {"ours": [1e6 * quantile(buckets, 0.5), 1e6 * quantile(buckets, 0.99),
                                1e6 * (after[1] - before[1]) / buckets[-1][1]]},
           "ended": ended, "ended_valid": valid, "all_tok_s": rates, "ours_mask_buckets": buckets[:-1]}
    for kind, seconds in masks.items():
        found = [*numpy.quantile(seconds, [0.5, 0.99]), statistics.mean(seconds)]
        row["mask_us"][kind] = [1e6 * one for one in found]
    return row


def jumps(ours):
    """Tokens that grammars forced and those that were drawn, so far."""
    return [ours.total(f"pdserve_grammar_jump{kind}_tokens_total") for kind in ["", "_accepted"]]


def is_record(text):
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def show(rows):
    rates = f"{'free':>6} {'grammar':>8} {'ratio':>6}"
    print(f"{'tokens per second':<50} {rates}   of a processor {rates}   mask, µs {'p50':>6} {'p99':>7} {'mean':>6}   "
          "compile, ms")
    for row in rows:
        compiles = row["compile_ms"]
        llama_ms = f"{compiles['llama convert']:.1f} + {compiles['llama init']:.1f}"
        for title, free, kind, ms in [("pdserve", "ours free", "ours", f"{compiles['ours']:.1f}"),
                                      ("pdserve, a step for each token", "ours free", "ours walking", ""),
                                      ("llama-cpp-python, all tokens", "llama free", "llama mask", llama_ms),
                                      ("llama.cpp, the drawn token first", "llama free", "llama drawn", llama_ms)]:
            cells = []
            for rate, width in [(row["tok_s"], 6), (row["tok_processor_s"], 23)]:
                cells.append(f"{rate[free]:>{width}.1f} {rate[kind]:>8.1f} {rate[kind] / rate[free]:>6.2f}")
            mask = " ".join(f"{us:>{width}.0f}" for us, width in zip(row["mask_us"].get(kind, []), [17, 7, 6]))
            print(f"{row['schema'] + ', ' + title:<50} {' '.join(cells)} {mask:<32}   {ms}".rstrip())
    for row in rows:
        print(f"{row['schema']}: of {row['jump_tokens']:.0f} tokens that the schema forced {row['jump_accepted_tokens']:.0f} "
              "were drawn")
    for row in rows:
        print(f"answers of {row['schema']} that ended, and are JSON objects: pdserve {row['ended']['ours']}, "
              f"{row['ended_valid']['ours']}; llama.cpp {row['ended']['llama']}, {row['ended_valid']['llama']}")


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--agent", required=True)
    args.add_argument("--model", required=True, help="SmolLM2 as a Q4_1 GGUF file")
    args.add_argument("--scratch", required=True, help="for logs")
    args.add_argument("--out", required=True)
    args.add_argument("--threads", type=int, default=2)
    args.add_argument("--rounds", type=int, default=5)
    args = args.parse_args()
    os.makedirs(args.scratch, exist_ok=True)
    load = os.getloadavg()[0]
    llama, ours = Llama(args), Ours("grammars", args, "127.77.5.1")
    walking = Ours("grammars-walking", args, "127.77.5.2", "--disable-jump-forward")
    walking.agent.pause()
    try:
        ids = llama.ids(PROMPT)
        plain, _, _ = ours.answer(ids, 1, None, 1)
        first, _, _ = ours.answer(ids, 1, {"type": "object"}, 1)
        ours.agent.pause()
        rows = [measured(name, schema, ours, walking, llama, ids, args.rounds) for name, schema in SCHEMAS.items()]
    finally:
        ours.agent.close()
        walking.agent.close()
    show(rows)
    first_ms = 1e3 * (first - plain)
    print(f"a process's first grammar takes its request {first_ms:.0f} ms more, for a trie of the vocabulary")
    print(f"load of the machine before {load:.1f}, after {os.getloadavg()[0]:.1f}, on {os.cpu_count()} cores; "
          f"{args.threads} threads each, {args.rounds} rounds, {len(SEEDS)} seeds, {TOKENS - 1} tokens")
    with open(args.out, "w") as out:
        json.dump({"host_cores": os.cpu_count(), "threads": args.threads, "rounds": args.rounds, "tokens": TOKENS - 1,
                   "seeds": SEEDS, "load_before": load, "load_after": os.getloadavg()[0],
                   "first_grammar_ms": first_ms, "rows": rows}, out, indent=1)


if __name__ == "__main__":
    main()

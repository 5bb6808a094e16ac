"""KV transfer beside Mooncake, NIXL and bare C loops: two processes each, all of a group up at once,
asked in turn for one round, so that noise hits all alike; medians. Every byte is compared.
"""

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import secrets
import signal
import statistics
import sys
import tempfile

from engines import POOL, Peer, pdserve, raw

SCATTERED, LARGE = (16384, 64 << 10), (64, 16 << 20)
SMALLEST = (1, 64 << 10)
SESSIONS = 8
WRITES_A_TURN = 50

MOONCAKE_CALLS = {"MOONCAKE_CALL_OPS": "1024"}
MOONCAKE_QUEUE = {"MOONCAKE_CALL_OPS": "16384", "MC_TCP_MAX_QUEUED_TRANSFERS_PER_PEER": "65535"}


def tcp(args, sessions):
    def mooncake(name, env):
        return Peer(name, args.python, "mooncake", sessions, env)
    keyed = ["--peer-key-file", args.keys]
    yield pdserve(args.agent, "tcp", sessions)
    yield pdserve(args.agent, "tcp", sessions, "pdserve tcp, peers by a key",
                  [*keyed, "--disaggregation-tcp-plaintext"])
    yield pdserve(args.agent, "tcp", sessions, "pdserve tcp, encrypted", keyed)
    yield mooncake("mooncake tcp, 1024 ops a call", MOONCAKE_CALLS)
    yield mooncake("mooncake tcp, queue of 65535", MOONCAKE_QUEUE)
    yield Peer("nixl tcp", args.python, "nixl", sessions, {"UCX_TLS": "tcp,self"})
    if sessions == 1:
        yield raw(args.raw, "tcp", "bare writev")


def same_host(args, sessions):
    yield pdserve(args.agent, "shm", sessions)
    yield Peer("nixl cma", args.python, "nixl", sessions, {"UCX_TLS": "sm,tcp,self"})
    if sessions == 1:
        yield raw(args.raw, "memcpy", "bare memcpy, one thread")


class Rounds:
    """What the rounds of one engine and shape took."""

    def __init__(self):
        self.seconds, self.rates, self.cpu = [], [], []

    def add(self, moved, seconds, cpu):
        self.seconds.append(seconds)
        self.rates.append(moved / seconds / 1e9)
        self.cpu.append(cpu / (moved / 1e9))

    def summary(self):
        return {"gb_per_s": statistics.median(self.rates), "min": min(self.rates),
                "max": max(self.rates), "cpu_s_per_gb": statistics.median(self.cpu),
                "rounds": len(self.rates)}

    def latency(self):
        us = sorted(second * 1e6 for second in self.seconds)
        return {"p50_us": us[len(us) // 2], "p99_us": us[len(us) * 99 // 100], "writes": len(us)}


def in_turn(engines, rounds, shape, a_turn=1):
    """Rounds of each engine after one turn to warm up, another engine first each time."""
    found = {engine.name: Rounds() for engine in engines}
    for turn in range(rounds + 1):
        first = turn % len(engines)
        for engine in engines[first:] + engines[:first]:
            for _ in range(a_turn):
                took = engine.round(*shape)
                if turn > 0:
                    found[engine.name].add(*took)
    return found


def measure(group, args):
    with contextlib.ExitStack() as ends:
        engines = [ends.enter_context(contextlib.closing(engine)) for engine in group(args, 1)]
        found = {name: {"scattered": rounds.summary()}
                 for name, rounds in in_turn(engines, args.rounds, SCATTERED).items()}
        for name, rounds in in_turn(engines, args.rounds, LARGE).items():
            found[name]["large"] = rounds.summary()
        for name, rounds in in_turn(engines, args.rounds, SMALLEST, WRITES_A_TURN).items():
            found[name]["latency"] = rounds.latency()
    with contextlib.ExitStack() as ends:
        engines = [ends.enter_context(contextlib.closing(engine)) for engine in group(args, SESSIONS)]
        pieces, piece_bytes = SCATTERED
        shape = pieces // SESSIONS, piece_bytes
        for name, rounds in in_turn(engines, args.rounds, shape).items():
            found[name]["sessions"] = rounds.summary()
    return found


def goals(found):
    """Each goal with its ratio; of Mooncake the better way to call it counts."""
    over, same = found["tcp"], found["same host"]
    for shape in ["scattered", "large"]:
        def rate(group, prefix):
            return max(figures[shape]["gb_per_s"] for name, figures in group.items()
                       if name.startswith(prefix))
        ours = over["pdserve tcp"][shape]["gb_per_s"]
        yield f"tcp, {shape}: over Mooncake", ours / rate(over, "mooncake"), 2.0
        yield f"tcp, {shape}: over bare writev", ours / rate(over, "bare"), 0.8
        ours = rate(same, "pdserve")
        ratios = [(ours / rate(same, "nixl"), 2.0, "NIXL's CMA"),
                  (ours / rate(same, "bare"), 0.8, "one thread's memcpy")]
        # Either is enough: the one that is further above its goal.
        ratio, goal, beside = max(ratios, key=lambda r: r[0] / r[1])
        yield f"same host, {shape}: over {beside}", ratio, goal


def show(result):
    print(f"{result['gib']} GiB, {result['rounds']} interleaved rounds after one to warm up, medians; "
          f"every byte compared; {result['cores']} cores")
    for group, found in result["found"].items():
        print(f"\n{group:<30} {'64 KiB pieces, GB/s':>21} {'16 MiB pieces, GB/s':>21} "
              f"{'8 sessions, GB/s':>21} {'CPU s/GB':>14} {'one 64 KiB write, us':>21}")
        print(f"{'':<30} " + f"{'median   min-max':>21} " * 3 + f"{'scattered large':>14} {'p50     p99':>21}")
        for name, figures in found.items():
            def rate(shape):
                if shape not in figures:
                    return f"{'-':>21}"
                at = figures[shape]
                return f"{at['gb_per_s']:>8.2f}   {at['min']:.2f}-{at['max']:.2f}".rjust(21)
            cpu = [figures[shape]["cpu_s_per_gb"] for shape in ["scattered", "large"]]
            latency = figures["latency"]
            print(f"{name:<30} {rate('scattered')} {rate('large')} {rate('sessions')} "
                  f"{cpu[0]:>8.2f} {cpu[1]:>5.2f} {latency['p50_us']:>13.1f} {latency['p99_us']:>7.1f}")
    print()
    for goal in result["goals"]:
        verdict = "met" if goal["ratio"] >= goal["goal"] else "missed"
        print(f"{goal['what']:<50} {goal['ratio']:>5.2f} x (goal {goal['goal']}) {verdict}")
    print("\nCPU: both processes. Latency: until the writing side knows that the piece has landed; bare memcpy "
          "notifies no peer.\nMooncake rejects calls of more than about 2048 pieces unless its queue is made longer, "
          "and then stalls; both\nways around that are measured. NIXL's requests are prepared before the clock "
          "starts, and polled.")


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--agent", required=True)
    args.add_argument("--raw", required=True)
    args.add_argument("--python", required=True, help="a Python that has the peers")
    args.add_argument("--out", required=True)
    args.add_argument("--rounds", type=int, default=9)
    args = args.parse_args()
    # Peers that are stopped would outlive us.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    keys = tempfile.NamedTemporaryFile("w", suffix=".keys")
    keys.write(secrets.token_hex(32))
    keys.flush()
    args.keys = keys.name
    found = {"tcp": measure(tcp, args), "same host": measure(same_host, args)}
    packages = ["mooncake-transfer-engine-non-cuda", "nixl"]
    result = {
        "machine": platform.processor() or platform.machine(), "cores": os.cpu_count(),
        "kernel": platform.release(), "gib": POOL >> 30, "rounds": args.rounds,
        "versions": {name: importlib.metadata.version(name) for name in packages},
        "found": found,
        "goals": [{"what": what, "ratio": ratio, "goal": goal} for what, ratio, goal in goals(found)],
    }
    with open(args.out, "w") as out:
        json.dump(result, out, indent=1)
    show(result)


if __name__ == "__main__":
    main()

"""One side of a peer engine, driven line by line: `peer.py mooncake|nixl source|target BYTES FD`.

Both sides hold BYTES of memory. A line of JSON on standard input asks for something, a line on FD, because
engines log to standard output, says how it went. Pieces are scattered over both sides, and each round
sends other pieces to a place, so that what stands there from before is not taken for new.
"""

import ctypes
import json
import mmap
import os
import sys
import threading
import time

import numpy as np

HOST = "127.0.0.1"
# Mooncake's queue to one peer rejects larger calls unless it is made longer.
MOONCAKE_CALL_OPS = int(os.environ.get("MOONCAKE_CALL_OPS", "1024"))


class Pool:
    def __init__(self, length, filled):
        self.memory = mmap.mmap(-1, length)
        self.words = np.frombuffer(self.memory, dtype=np.uint64)
        self.words[:] = np.arange(1, len(self.words) + 1, dtype=np.uint64) if filled else 0
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.length = length

    def part(self, sessions, index):
        length = self.length // sessions
        return self.address + index * length, length


def scatter(part_bytes, ask):
    """Places of pieces in a part, at the source and at the target."""
    places = part_bytes // ask["piece_bytes"]
    src, dst = (np.random.default_rng(seed).permutation(places) for seed in (1, 2))
    src = np.roll(src, ask["round"])
    return src[:ask["pieces"]].astype(np.int64), dst[:ask["pieces"]].astype(np.int64)


class Mooncake:
    def new_engine(self):
        from mooncake.engine import TransferEngine
        engine = TransferEngine()
        assert engine.initialize(HOST, "P2PHANDSHAKE", "tcp", "") == 0
        return engine

    def offer(self, address, length):
        engine = self.new_engine()
        assert engine.register_memory(address, length) == 0
        return engine, {"name": f"{HOST}:{engine.get_rpc_port()}", "address": address}

    def join(self, pool, parts):
        self.engine = self.new_engine()
        assert self.engine.register_memory(pool.address, pool.length) == 0

    def mover(self, part, src, dst, length):
        calls = [slice(i, i + MOONCAKE_CALL_OPS) for i in range(0, len(src), MOONCAKE_CALL_OPS)]
        calls = [(src[c].tolist(), dst[c].tolist(), [length] * len(src[c])) for c in calls]

        def move():
            for sources, targets, lengths in calls:
                assert self.engine.batch_transfer_sync_write(
                    part["name"], sources, targets, lengths) == 0
        return move

    def move_all(self, movers):
        if len(movers) == 1:
            return movers[0]()
        # A failure in a thread shows in the comparison.
        threads = [threading.Thread(target=mover) for mover in movers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


class Nixl:
    agents = 0

    def new_agent(self):
        from nixl._api import nixl_agent, nixl_agent_config
        Nixl.agents += 1
        name = f"{os.getpid()}-{Nixl.agents}"
        return name, nixl_agent(name, nixl_agent_config(backends=["UCX"]))

    def offer(self, address, length):
        name, agent = self.new_agent()
        agent.register_memory([(address, length, 0, "")], "DRAM")
        metadata = agent.get_agent_metadata().hex()
        return agent, {"name": name, "address": address, "metadata": metadata}

    def join(self, pool, parts):
        _, self.agent = self.new_agent()
        self.agent.register_memory([(pool.address, pool.length, 0, "")], "DRAM")
        for part in parts:
            self.agent.add_remote_agent(bytes.fromhex(part["metadata"]))

    def mover(self, part, src, dst, length):
        def descriptors(agent, addresses):
            rows = np.zeros((len(addresses), 3), dtype=np.uint64)
            rows[:, 0], rows[:, 1] = addresses, length
            return self.agent.prep_xfer_dlist(agent, rows, "DRAM")
        indices = np.arange(len(src), dtype=np.int32)
        sides = descriptors("NIXL_INIT_AGENT", src), descriptors(part["name"], dst)
        handle = self.agent.make_prepped_xfer("WRITE", sides[0], indices, sides[1], indices)
        return handle, sides

    def move_all(self, movers):
        left = []
        for handle, _ in movers:
            state = self.agent.transfer(handle)
            assert state != "ERR"
            if state == "PROC":
                left.append(handle)
        while left:
            states = [(handle, self.agent.check_xfer_state(handle)) for handle in left]
            assert all(state != "ERR" for _, state in states)
            left = [handle for handle, state in states if state == "PROC"]


def source(engine, pool, ask):
    if ask["do"] == "open":
        engine.parts = ask["parts"]
        engine.join(pool, engine.parts)
        return {}
    movers = []
    for index, part in enumerate(engine.parts):
        address, length = pool.part(len(engine.parts), index)
        src, dst = scatter(length, ask)
        piece = ask["piece_bytes"]
        movers.append(engine.mover(part, address + src * piece, part["address"] + dst * piece, piece))
    started = time.perf_counter()
    engine.move_all(movers)
    return {"seconds": time.perf_counter() - started}


def target(engine, pool, ask):
    if ask["do"] == "open":
        offers = [engine.offer(*pool.part(ask["sessions"], i)) for i in range(ask["sessions"])]
        engine.kept = [kept for kept, _ in offers]
        return {"parts": [offer for _, offer in offers]}
    sessions, words = len(engine.kept), ask["piece_bytes"] // 8
    for session in range(sessions):
        first = session * pool.length // sessions // 8
        for src, dst in zip(*scatter(pool.length // sessions, ask)):
            expected = np.arange(first + src * words + 1, first + (src + 1) * words + 1,
                                 dtype=np.uint64)
            at = first + dst * words
            if not np.array_equal(pool.words[at:at + words], expected):
                return {"wrong": f"session {session}: piece {src} did not arrive as piece {dst}"}
    return {}


def main():
    engine = {"mooncake": Mooncake, "nixl": Nixl}[sys.argv[1]]()
    role, length = sys.argv[2], int(sys.argv[3])
    pool = Pool(length, filled=role == "source")
    answer = {"source": source, "target": target}[role]
    with os.fdopen(int(sys.argv[4]), "w", buffering=1) as answers:
        for line in sys.stdin:
            answers.write(json.dumps(answer(engine, pool, json.loads(line))) + "\n")
    # Engines' threads may outlive the interpreter.
    os._exit(0)


if __name__ == "__main__":
    main()

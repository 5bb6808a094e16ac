"""Engines that move pieces between two processes, each asked for one round at a time."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
POOL = 1 << 30


def cpu_seconds(process):
    """Processor time of a running process, user and system; see clock_getcpuclockid(3)."""
    return time.clock_gettime((~process.pid << 3) | 2)


class Lines:
    """Moves for each line `PIECES PIECE_BYTES`, compares, and answers with JSON."""

    def __init__(self, name, command, server=None):
        self.name, self.server = name, server
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, bufsize=1)

    def round(self, pieces, piece_bytes):
        self.process.stdin.write(f"{pieces} {piece_bytes}\n")
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"{self.name} ended")
        answer = json.loads(answer)
        return answer["bytes"], answer["seconds"], answer["cpu_seconds"]

    def close(self):
        for process in [self.process, self.server]:
            if process:
                process.kill()
                process.wait()


def raw(binary, kind, name):
    return Lines(name, [binary, kind])


def pdserve(agent, backend, sessions, name=None, flags=()):
    port = ["--disaggregation-bootstrap-port", "0"]
    server = subprocess.Popen([agent, "kv-probe", *port, *flags], stdout=subprocess.PIPE, text=True)
    peer = server.stdout.readline().split("--peer ")[1].split()[0]
    command = [agent, "kv-probe", "--peer", peer, "--sessions", str(sessions), *flags,
               "--disaggregation-transfer-backend", backend, "--rounds-from-stdin"]
    return Lines(name or f"pdserve {backend}", command, server)


class Peer:
    """A peer engine: a source and a target process, the latter with a part of memory per session. They are
    stopped while others have their turn: NIXL's threads poll, and took half a core each while idle."""

    def __init__(self, name, python, engine, sessions, env):
        self.name, self.rounds = name, 0
        self.source = PeerSide(python, engine, "source", env)
        self.target = PeerSide(python, engine, "target", env)
        opened = self.target.ask(do="open", sessions=sessions)
        self.source.ask(do="open", parts=opened["parts"])
        self.sessions = sessions
        self.signal(signal.SIGSTOP)

    def signal(self, number):
        for side in [self.source, self.target]:
            side.process.send_signal(number)

    def round(self, pieces, piece_bytes):
        self.rounds += 1
        ask = {"pieces": pieces, "piece_bytes": piece_bytes, "round": self.rounds}
        sides = [self.source.process, self.target.process]
        self.signal(signal.SIGCONT)
        before = sum(map(cpu_seconds, sides))
        seconds = self.source.ask(do="move", **ask)["seconds"]
        cpu = sum(map(cpu_seconds, sides)) - before
        wrong = self.target.ask(do="compare", **ask).get("wrong")
        if wrong:
            sys.exit(f"{self.name}: {wrong}")
        self.signal(signal.SIGSTOP)
        return pieces * piece_bytes * self.sessions, seconds, cpu

    def close(self):
        for side in [self.source, self.target]:
            side.process.kill()
            side.process.wait()


class PeerSide:
    def __init__(self, python, engine, role, env):
        answers, theirs = os.pipe()
        self.name, self.log = f"{engine} {role}", tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [python, HERE / "peer.py", engine, role, str(POOL), str(theirs)],
            stdin=subprocess.PIPE, stdout=self.log, stderr=self.log, text=True, bufsize=1,
            pass_fds=[theirs], env={**os.environ, **env})
        os.close(theirs)
        self.answers = os.fdopen(answers)

    def ask(self, **ask):
        self.process.stdin.write(json.dumps(ask) + "\n")
        answer = self.answers.readline()
        if not answer:
            self.log.seek(0)
            sys.exit(f"{self.name} ended:\n{self.log.read().decode()[-2000:]}")
        return json.loads(answer)

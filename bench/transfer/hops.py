"""Where the time of one 64 KiB write goes: `hops.py --agent PD_AGENT --raw RAW`, as root.

The kernel records each system call, wake and switch of both processes. From the end of a write the path is followed
back: a thread ran since it was switched in, for that another had woken it, and so on to the call. So the hops of a
write add up to the whole of it. Shown is the most frequent path; writes that lost a core on the way are left out.
"""

import argparse
import collections
import contextlib
import pathlib
import re
import statistics

from engines import pdserve, raw

SHAPE = 1, 64 << 10
TRACING = pathlib.Path("/sys/kernel/tracing")
EVENTS = ["raw_syscalls/sys_enter", "raw_syscalls/sys_exit", "sched/sched_switch", "sched/sched_waking"]
CALLS = {0: "read", 1: "write", 3: "close", 19: "readv", 20: "writev", 44: "sendto", 45: "recvfrom", 46: "sendmsg",
         47: "recvmsg", 202: "futex", 228: "clock_gettime", 232: "epoll_wait", 281: "epoll_pwait"}
CLOCK = 228
LINE = re.compile(r"\s*.*-(\d+)\s+\[\d+\]\s+\S+\s+(\d+)\.(\d+): (\w+): (.*)")
SWITCH = re.compile(r"prev_comm=.* prev_pid=(\d+) prev_prio=\d+ prev_state=(\S+) ==> .*next_pid=(\d+)")

Event = collections.namedtuple("Event", "us thread kind what")
Hop = collections.namedtuple("Hop", "who kind us calls")


class Tracer:
    """An instance of the kernel's tracer over the threads of some processes."""

    def __init__(self, processes):
        self.at = TRACING / "instances" / "pdserve-hops"
        self.at.mkdir()
        self.put("trace_clock", "mono")
        self.put("buffer_size_kb", "16384")
        threads = [thread for process in processes for thread in threads_of(process)]
        self.put("set_event_pid", " ".join(map(str, threads)))
        for event in EVENTS:
            self.put(f"events/{event}/enable", "1")

    def put(self, name, text):
        (self.at / name).write_text(text)

    def events(self):
        self.put("tracing_on", "0")
        for line in (self.at / "trace").read_text().splitlines():
            if found := LINE.match(line):
                thread, seconds, us, kind, what = found.groups()
                yield Event(int(seconds) * 1_000_000 + int(us), int(thread), kind, what)

    def close(self):
        self.at.rmdir()


class Switches:
    """When threads ran, were woken and called."""

    def __init__(self, events):
        self.ins, self.outs, self.wakes, self.calls = (collections.defaultdict(list) for _ in range(4))
        for event in events:
            self.add(event)

    def add(self, event):
        if event.kind == "sched_switch":
            before, state, after = SWITCH.match(event.what).groups()
            self.outs[int(before)].append((event.us, state))
            self.ins[int(after)].append(event.us)
        elif event.kind == "sched_waking":
            woken = int(re.search(r"\bpid=(\d+)", event.what).group(1))
            self.wakes[woken].append((event.us, event.thread))
        else:
            number = int(re.match(r"NR (-?\d+)", event.what).group(1))
            self.calls[event.thread].append((event.us, event.kind == "sys_enter", number))

    def path(self, thread, start, end):
        """Hops backwards: (thread, kind, from, to); None where the path leaves these processes or lost a core."""
        hops, first = [], thread
        while True:
            since = max((us for us in self.ins[thread] if us <= end), default=None)
            if since is None or since <= start:
                hops.append((thread, "runs", start, end))
                return hops[::-1] if thread == first else None
            hops.append((thread, "runs", since, end))
            out, state = max(((us, state) for us, state in self.outs[thread] if us <= since), default=(0, "R"))
            woken = [(us, by) for us, by in self.wakes[thread] if out <= us <= since]
            if state.startswith("R") or not woken or woken[0][0] < start:
                return None
            hops.append((thread, "is woken", woken[0][0], since))
            end, thread = woken[0]

    def calls_in(self, thread, since, until):
        """System calls of a thread and their time within a part of it."""
        took, entered = collections.Counter(), None
        for us, enters, number in self.calls[thread]:
            name = CALLS.get(number, f"call {number}")
            if enters:
                entered = us
            elif entered is not None:
                inside = min(us, until) - max(entered, since)
                if inside > 0 or since < us <= until:
                    took[name] += max(inside, 0)
                entered = None
        if entered is not None and entered < until:
            took[name] += until - max(entered, since)
        return took


def threads_of(process):
    return [int(task.name) for task in pathlib.Path(f"/proc/{process}/task").iterdir()]


def names_of(processes):
    """What each thread is: its process and, unless it is the main one, its name."""
    names = {}
    for name, process in processes.items():
        for thread in threads_of(process):
            comm = pathlib.Path(f"/proc/{process}/task/{thread}/comm").read_text().strip()
            names[thread] = f"{name}, caller" if thread == process else f"{name}, {comm}"
    return names


def windows(switches, thread, reads):
    """Starts and ends of writes, which stand between readings of the processor's clock, `reads` on either side."""
    calls = [(us, enters) for us, enters, number in switches.calls[thread] if number == CLOCK]
    starts = [us for us, enters in calls if not enters][reads - 1::2 * reads]
    ends = [us for us, enters in calls if enters][reads::2 * reads]
    return list(zip(starts, ends))


def trace(engine, processes, reads, rounds):
    for _ in range(20):
        engine.round(*SHAPE)
    untraced = statistics.median(engine.round(*SHAPE)[1] for _ in range(rounds)) * 1e6
    names, caller = names_of(processes), next(iter(processes.values()))
    with contextlib.closing(Tracer(processes.values())) as tracer:
        for _ in range(rounds):
            engine.round(*SHAPE)
        switches = Switches(tracer.events())
    paths = collections.defaultdict(list)
    spans = windows(switches, caller, reads)
    for start, end in spans:
        path = switches.path(caller, start, end)
        if path and all(thread in names for thread, *_ in path):
            hops = [Hop(names[thread], kind, until - since, switches.calls_in(thread, since, until))
                    for thread, kind, since, until in path]
            paths[tuple((hop.who, hop.kind) for hop in hops)].append(hops)
    found = sorted(max(paths.values(), key=len, default=[]), key=lambda hops: sum(hop.us for hop in hops))
    return untraced, len(spans), len(found), found[len(found) // 4:-(len(found) // 4) or None]


def show(name, untraced, traced, alike, found):
    print(f"\n{name}: p50 {untraced:.1f} us untraced; of {traced} traced writes {alike} went so, "
          f"means of their middle half in us")
    for hops in zip(*found):
        calls = collections.Counter()
        for hop in hops:
            calls.update(hop.calls)
        inside = ", ".join(f"{call} {us / len(hops):.1f}" for call, us in calls.most_common() if us > 0)
        inside = inside if hops[0].kind == "runs" else ""
        print(f"{statistics.mean(hop.us for hop in hops):>8.1f}  {hops[0].who} {hops[0].kind:<10} {inside}")
    whole = [sum(hop.us for hop in hops) for hops in found]
    print(f"{statistics.mean(whole):>8.1f}  the whole")


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--agent", required=True)
    args.add_argument("--raw", required=True)
    args.add_argument("--rounds", type=int, default=300)
    args = args.parse_args()
    for backend in ["tcp", "shm"]:
        with contextlib.closing(pdserve(args.agent, backend, 1)) as engine:
            processes = {"prefill": engine.server.pid, "decode": engine.process.pid}
            show(engine.name, *trace(engine, processes, 1, args.rounds))
    with contextlib.closing(raw(args.raw, "tcp", "bare writev")) as engine:
        engine.round(*SHAPE)
        child = pathlib.Path(f"/proc/{engine.process.pid}/task/{engine.process.pid}/children").read_text()
        processes = {"writer": engine.process.pid, "reader": int(child)}
        show(engine.name, *trace(engine, processes, 2, args.rounds))


if __name__ == "__main__":
    main()

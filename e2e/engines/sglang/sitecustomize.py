"""What SGLang 0.5.23 asks of CUDA although it computes on a CPU, done without it. Python imports this file from PYTHONPATH in
every process; SGLang's own files stay as they are.

* The sender of KV pins host memory and records events: plain memory, and events that are over at once.
* Groups of several ranks try NCCL: not on a CPU.
"""

import functools
import importlib.abc
import importlib.util
import inspect
import os
import sys

PARALLEL = "sglang.srt.distributed.parallel_state"


class Over:
    """An event that is over."""

    def __init__(self, *_, **__):
        pass

    def record(self, *_):
        pass

    wait = synchronize = record

    def query(self):
        return True


def without_pinning(make):
    @functools.wraps(make)
    def plain(*args, pin_memory=False, **kwargs):
        return make(*args, **kwargs)
    return plain


class WithoutNccl(importlib.abc.Loader):
    def __init__(self, loader):
        self.loader = loader

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.loader.exec_module(module)
        group, init = module.GroupCoordinator, module.GroupCoordinator.__init__
        signature = inspect.signature(init)

        @functools.wraps(init)
        def on_cpu(*args, **kwargs):
            bound = signature.bind(*args, **kwargs)
            bound.arguments["use_pynccl"] = False
            init(*bound.args, **bound.kwargs)
        group.__init__ = on_cpu


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != PARALLEL:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        spec.loader = WithoutNccl(spec.loader)
        return spec


if os.environ.get("SGLANG_USE_CPU_ENGINE") == "1":
    import torch

    torch.empty = without_pinning(torch.empty)
    torch.cuda.Event = Over
    torch.cuda.current_stream = lambda *_: None
    sys.meta_path.insert(0, Finder())

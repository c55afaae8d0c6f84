"""Workers of a loader, which take turns in this process.

Each has random numbers of its own, seeded as PyTorch seeds those of a worker process: torch's, Python's and NumPy's. So
what a dataset draws is what it draws in PyTorch with as many workers, and the program's own streams are left alone.
"""

import copy
import os
import random
import sys
import threading
from typing import Any

import tabtorch as torch
from tabtorch.base import thread_state

#: the worker whose turn it is, in the thread that has `_turn`: the streams that are exchanged are those of the whole program
current = None
_turn = threading.RLock()
_here: list[Any] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_turn._at_fork_reinit)  # type: ignore[attr-defined]


class WorkerInfo:
    """What ``get_worker_info`` gives."""

    def __init__(self, id, num_workers, seed, dataset):
        self.id = id
        self.num_workers = num_workers
        self.seed = seed
        self.dataset = dataset

    def __repr__(self):
        return f"WorkerInfo(id={self.id}, num_workers={self.num_workers}, seed={self.seed}, dataset={self.dataset!r})"


def get_worker_info():
    """Inside a worker: its ``id``, ``num_workers``, ``seed`` and ``dataset``. None outside of one."""
    return current if _turn._is_owned() else None  # type: ignore[attr-defined]


def make(loader, base_seed):
    """The workers of a loader, each initialized by its ``worker_init_fn``."""
    workers = []
    for k in range(loader.num_workers):
        # a process has a copy; here one is made only where workers could see each other's changes
        if loader._dataset_kind:
            dataset = _own(loader.dataset)
        else:
            dataset = loader.dataset if loader.worker_init_fn is None else copy.copy(loader.dataset)
        worker = Worker(WorkerInfo(k, loader.num_workers, base_seed + k, dataset))
        workers.append(worker)
        with worker:
            seed_all(base_seed, k)
            if loader.worker_init_fn is not None:
                loader.worker_init_fn(k)
    return workers


def _own(dataset):
    """A copy of all that a dataset is made of, but for the numbers: tensors and arrays are shared, as they are only read.

    Of a dataset that cannot be copied so, as one that holds a generator or a lock, only its own attributes are.
    """
    numpy = sys.modules.get("numpy")
    shared = (torch.Tensor, torch.nn.Parameter, *([] if numpy is None else [numpy.ndarray]))
    table = copy._deepcopy_dispatch  # type: ignore[attr-defined]
    me = threading.get_ident()
    with _turn:
        before = {t: table[t] for t in shared if t in table}
        # the table is that of all threads
        table.update(dict.fromkeys(shared, lambda x, memo: x if threading.get_ident() == me else x.__deepcopy__(memo)))
        try:
            return copy.deepcopy(dataset)
        except (TypeError, NotImplementedError, AttributeError, RuntimeError):
            return copy.copy(dataset)
        finally:
            for t in shared:
                del table[t]
            table.update(before)


def seed_all(base_seed, k):
    """Seeds the streams as those of worker ``k``."""
    random.seed(base_seed + k)
    torch.manual_seed(base_seed + k)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(_generate_state(base_seed, k))


def _generate_state(base_seed: int, worker_id: int) -> list[int]:
    """Four words that seed NumPy in a worker: those of `numpy.random.SeedSequence` (O'Neill's seed_seq_fe), which other packages
    seed their own streams with, too."""
    word = 0xFFFFFFFF

    def hashed(value: int, multiplier: int, step: int) -> tuple[int, int]:
        value ^= multiplier
        multiplier = multiplier * step & word
        value = value * multiplier & word
        return value ^ value >> 16, multiplier

    pool, a = [], 0x43B0D7E5
    for entropy in (worker_id, base_seed & word, base_seed >> 32, 0):
        value, a = hashed(entropy, a, 0x931E8875)
        pool.append(value)
    for source in range(4):
        for to in range(4):
            if source != to:
                value, a = hashed(pool[source], a, 0x931E8875)
                mixed = (0xCA01F9DD * pool[to] - 0x4973F715 * value) & word
                pool[to] = mixed ^ mixed >> 16
    found, b = [], 0x8B51F9DD
    for value in pool:
        value, b = hashed(value, b, 0x58F38DED)
        found.append(value)
    return found


def _leave(other=None):
    """For while another task runs: its streams are those of the program."""
    if other is not None:
        other.__enter__()
    elif _here:
        _here[-1].__exit__()


thread_state.kind(lambda: _here[-1] if _here else None, _leave)


class Worker:
    """One worker. Within it, as a with block, its streams are those that are drawn from."""

    source = None

    def __init__(self, info):
        self.info = info
        self.states = None

    @property
    def dataset(self):
        """Its copy."""
        return self.info.dataset

    def __enter__(self):
        global current
        _turn.acquire()
        self.before, self.outer = _exchange(self.states), current
        current = self.info
        _here.append(self)
        return self

    def __exit__(self, *exc):
        global current
        self.states = _exchange(self.before)
        current = self.outer
        _here.remove(self)
        _turn.release()


def _exchange(states):
    """Puts the states of the streams in place, where there are some; gives those before."""
    mine = states or [None] * 4
    before = [torch.random.default_generator.exchange(mine[0]), torch.random.device_generator.exchange(mine[1])]
    before.append(random.getstate())
    numpy = sys.modules.get("numpy")
    before.append(None if numpy is None else numpy.random.get_state())
    if mine[2] is not None:
        random.setstate(mine[2])
    if numpy is not None and mine[3] is not None:
        numpy.random.set_state(mine[3])
    return before

"""Loaders with workers, which take turns in one process: their numbers, shards and errors are those of PyTorch's processes."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import tabtorch as tt
from sidebyside import DEVICES

NAMESPACES = {"torch": torch, "tt": tt}


class Noisy:
    """What a dataset draws in a worker: torch's, Python's and NumPy's numbers."""

    def __init__(self, ns: str) -> None:
        self.ns = ns

    def __len__(self) -> int:
        return 11

    def __getitem__(self, i: int) -> Any:
        return i, float(NAMESPACES[self.ns].rand(1)), random.random(), np.random.rand()


def stream(ns: str) -> Any:
    library = NAMESPACES[ns]

    class Stream(library.utils.data.IterableDataset):  # type: ignore[name-defined, misc]
        start = 0

        def __iter__(self) -> Any:
            info = library.utils.data.get_worker_info()
            k, n = (info.id, info.num_workers) if info else (0, 1)
            for i in range(self.start + k, 20, n * (1 + (k == 0))):
                yield float(i), k

    return Stream()


def shard(k: int) -> None:
    random.random()


def move(ns: str) -> Any:
    def init(k: int) -> None:
        NAMESPACES[ns].utils.data.get_worker_info().dataset.start = 10 * k

    return init


def run(name: str) -> list[Any]:
    ns = NAMESPACES[name]
    ns.manual_seed(3)
    random.seed(1)
    np.random.seed(1)
    out: list[Any] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for settings in (
            {"num_workers": 2},
            {"num_workers": 3, "persistent_workers": True},
            {"num_workers": 2, "worker_init_fn": shard, "prefetch_factor": 1},
        ):
            for dataset, more in ((Noisy(name), {"shuffle": True, "batch_size": 2}), (stream(name), {"batch_size": 3})):
                loader = ns.utils.data.DataLoader(dataset, **settings, **more)
                for _ in range(2):
                    out += [[t.tolist() for t in batch] for batch in loader]
        moved = stream(name)
        loader = ns.utils.data.DataLoader(moved, batch_size=None, num_workers=2, worker_init_fn=move(name))
        out += [[float(v) for v in sample] for sample in loader] + [moved.start]
    return [*out, ns.rand(2).tolist(), random.random(), np.random.rand()]


def test_workers() -> None:
    """Batches, what is drawn in them, and the program's own streams afterwards."""
    with tt.device("cpu"):
        ours = run("tt")
    assert ours == run("torch")


@pytest.mark.parametrize("name", DEVICES)
def test_collating_takes_no_dispatch_for_each_sample(name: str) -> None:
    from tabtorch.bridge import get_bridge
    from tabtorch.engine import graph

    with tt.device(name):
        data = tt.arange(600.0).reshape(100, 6)
        views = [(data[i], i) for i in range(64)]
        arrays = [(np.full((3, 4), i, np.float32), np.int64(i)) for i in range(64)]
        labels = [tt.tensor(i) for i in range(64)]
        for samples, most in ((views, 1), (arrays, 0), (labels, 0)):
            graph.flush()
            get_bridge().reset_stats()
            batch = tt.utils.data.default_collate(samples)
            graph.flush()
            assert get_bridge().stats()["dispatches"] <= most
        assert batch.tolist() == list(range(64)) and batch.dtype is tt.int64 and batch.device.type == name
        image, label = tt.utils.data.default_collate(arrays)
        assert image[5].unique().tolist() == [5.0] and label.tolist() == list(range(64))


def test_distributed_sampler() -> None:
    def plain(ns: Any) -> list[Any]:
        out = []
        for n in (10, 11, 3):
            for settings in ({}, {"shuffle": False}, {"drop_last": True, "seed": 4}):
                for rank in range(4):
                    s = ns.utils.data.DistributedSampler(range(n), num_replicas=4, rank=rank, **settings)
                    s.set_epoch(2)
                    out.append((len(s), list(s)))
        return out

    assert plain(tt) == plain(torch)
    for ns in (tt, torch):
        with pytest.raises(ValueError, match=r"Invalid rank 4, rank should be in the interval \[0, 3\]"):
            ns.utils.data.DistributedSampler(range(3), 4, 4)
    with pytest.raises(RuntimeError, match="Requires distributed package"):
        tt.utils.data.DistributedSampler(range(3))


def test_worker_info() -> None:
    seen: list[Any] = []

    class Asks:
        def __len__(self) -> int:
            return 4

        def __getitem__(self, i: int) -> int:
            seen.append(tt.utils.data.get_worker_info())
            return i

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        list(tt.utils.data.DataLoader(Asks(), num_workers=2))
    assert [s.id for s in seen] == [0, 1, 0, 1] and {s.num_workers for s in seen} == {2}
    assert seen[1].seed == seen[0].seed + 1 and isinstance(seen[0].dataset, Asks)
    assert tt.utils.data.get_worker_info() is None

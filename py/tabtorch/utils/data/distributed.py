"""``DistributedSampler``: the part of a dataset for one of several replicas."""

import math

import tabtorch as torch
from tabtorch.utils.data.sampler import Sampler

__all__ = ["DistributedSampler"]


class DistributedSampler(Sampler):
    """Every ``num_replicas``-th index from ``rank`` on, of an order drawn from ``seed`` + epoch.

    The last indices are repeated, or with ``drop_last`` left out, so that all replicas have the same number.
    """

    def __init__(self, dataset, num_replicas=None, rank=None, shuffle=True, seed=0, drop_last=False):
        if num_replicas is None or rank is None:
            raise RuntimeError("Requires distributed package to be available")
        if rank >= num_replicas or rank < 0:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.drop_last = drop_last
        n = len(dataset)
        spare = num_replicas if drop_last and n % num_replicas else 0
        self.num_samples = math.ceil((n - spare) / num_replicas)
        self.total_size = self.num_samples * num_replicas
        self.shuffle = shuffle
        self.seed = seed

    def __iter__(self):
        n = len(self.dataset)
        if self.shuffle:
            g = torch.Generator()
            g.manual_seed(self.seed + self.epoch)
            indices = torch.randperm(n, generator=g, device="cpu").tolist()
        else:
            indices = list(range(n))
        indices = (indices * math.ceil(self.total_size / max(n, 1)))[: self.total_size]
        return iter(indices[self.rank : self.total_size : self.num_replicas])

    def __len__(self):
        return self.num_samples

    def set_epoch(self, epoch):
        """Chooses the order of that epoch."""
        self.epoch = epoch

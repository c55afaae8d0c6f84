"""``DataLoader``: batches of a dataset, in the order of a sampler.

All loading is in this process: a browser tab has no worker processes, so workers take turns in it (``_worker.py``).
Random numbers are drawn exactly when PyTorch draws them, so a seeded run sees the same batches.
"""

import itertools
import math
import warnings
from collections.abc import Callable
from typing import Any

import tabtorch as torch
from tabtorch.utils.data import _utils as _utils
from tabtorch.utils.data import _worker
from tabtorch.utils.data._collate import default_collate, default_convert
from tabtorch.utils.data._worker import get_worker_info as get_worker_info
from tabtorch.utils.data.dataset import Dataset as Dataset
from tabtorch.utils.data.dataset import IterableDataset, Subset, TensorDataset
from tabtorch.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler, _draw_seed
from tabtorch.utils.data.sampler import Sampler as Sampler

_collate_fn_t = Callable[[list[Any]], Any]
_warned_of_workers = False


class _DatasetKind:
    """What a loader's ``_dataset_kind`` says: samples are asked for by index, or come in their own order."""

    Map = 0
    Iterable = 1


class _InfiniteConstantSampler:
    """None, for ever: the sampler of iterable datasets."""

    def __iter__(self):
        return itertools.repeat(None)


class DataLoader:
    """Iterates over batches.

    ``batch_size`` None: single samples. ``shuffle``: a new random order each time, seeded by ``generator`` or the
    default one. ``collate_fn``: samples to batch. ``num_workers``, ``pin_memory`` and their like are accepted.
    """

    __initialized = False

    def __init__(
        self,
        dataset,
        batch_size=1,
        shuffle=None,
        sampler=None,
        batch_sampler=None,
        num_workers=0,
        collate_fn=None,
        pin_memory=False,
        drop_last=False,
        timeout=0,
        worker_init_fn=None,
        multiprocessing_context=None,
        generator=None,
        *,
        prefetch_factor=None,
        persistent_workers=False,
        pin_memory_device="",
        in_order=True,
    ):
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers, multiprocessing_context)
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if num_workers > 0 and prefetch_factor is None else prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.in_order = in_order
        iterable = isinstance(dataset, IterableDataset)
        self._dataset_kind = _DatasetKind.Iterable if iterable else _DatasetKind.Map
        if iterable:
            if shuffle not in (False, None):
                raise ValueError(
                    f"DataLoader with IterableDataset: expected unspecified shuffle option, but got shuffle={shuffle}"
                )
            for name, value in (("sampler", sampler), ("batch_sampler", batch_sampler)):
                if value is not None:
                    raise ValueError(
                        f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={value}"
                    )
        shuffle = bool(shuffle)
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError(
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"
                )
            batch_size = None
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
        if sampler is None:
            if iterable:
                sampler = _InfiniteConstantSampler()
            elif shuffle:
                sampler = RandomSampler(dataset, generator=generator)
            else:
                sampler = SequentialSampler(dataset)
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.generator = generator
        if collate_fn is None:
            collate_fn = default_collate if self._auto_collation else default_convert
        self.collate_fn = collate_fn
        self.persistent_workers = persistent_workers
        self.__initialized = True
        self._IterableDataset_len_called = None
        self._iterator = None

    def __setattr__(self, attr, val):
        if self.__initialized and attr in (
            "batch_size",
            "batch_sampler",
            "sampler",
            "drop_last",
            "dataset",
            "persistent_workers",
        ):
            raise ValueError(f"{attr} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(attr, val)

    @property
    def _auto_collation(self):
        return self.batch_sampler is not None

    @property
    def _index_sampler(self):
        return self.batch_sampler if self._auto_collation else self.sampler

    def __iter__(self):
        if not (self.persistent_workers and self.num_workers > 0):
            return self._get_iterator()
        if self._iterator is None:
            self._iterator = self._get_iterator()
        else:
            self._iterator._reset(self)
        return self._iterator

    def _get_iterator(self):
        """One pass; a subclass may put its own there."""
        return (_MultiProcessingDataLoaderIter if self.num_workers else _SingleProcessDataLoaderIter)(self)

    def __len__(self):
        if self._dataset_kind == _DatasetKind.Map:
            return len(self._index_sampler)
        length = self._IterableDataset_len_called = len(self.dataset)
        if self.batch_size is not None:
            length = length // self.batch_size if self.drop_last else math.ceil(length / self.batch_size)
        return length


def _check_workers(num_workers, timeout, prefetch_factor, persistent_workers, context):
    """PyTorch's rules for the settings of workers; one warning, once, that there are none."""
    global _warned_of_workers
    if num_workers < 0:
        raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError(
            "prefetch_factor option could only be specified in multiprocessing."
            "let num_workers > 0 to enable multiprocessing, otherwise set prefetch_factor to None."
        )
    if prefetch_factor is not None and prefetch_factor < 0:
        raise ValueError("prefetch_factor option should be non-negative")
    if persistent_workers and num_workers == 0:
        raise ValueError("persistent_workers option needs num_workers > 0")
    if context is not None and num_workers == 0:
        raise ValueError(
            "multiprocessing_context can only be used with multi-process loading (num_workers > 0), "
            f"but got num_workers={num_workers}"
        )
    if num_workers > 0 and not _warned_of_workers:
        _warned_of_workers = True
        warnings.warn(
            f"DataLoader: num_workers={num_workers} is accepted, but tabtorch loads all data in the main process.",
            stacklevel=3,
        )


class _BaseDataLoaderIter:
    """One pass over a loader, or over what has the attributes of one that are read here, as fastai's has."""

    def __init__(self, loader):
        self._loader = loader
        self._dataset = loader.dataset
        self._collate_fn = loader.collate_fn
        self._auto_collation = loader._auto_collation
        self._sampler_iter = iter(loader._index_sampler)
        # PyTorch draws a seed for its workers here, even with none: the same number is drawn, to keep the stream.
        self._base_seed = _draw_seed(loader.generator)
        self._workers = _worker.make(loader, self._base_seed)
        self._start()

    def _reset(self, loader, first_iter=False):
        """Another pass, with the same workers."""
        self._sampler_iter = iter(self._loader._index_sampler)
        self._start()

    def _start(self):
        loader = self._loader
        self._num_yielded = 0
        self._length = loader._IterableDataset_len_called
        if self._workers:  # they are given work ahead, which draws from the sampler now
            ahead = list(itertools.islice(self._sampler_iter, loader.prefetch_factor * loader.num_workers))
            self._sampler_iter = itertools.chain(ahead, self._sampler_iter)
            self._turns = list(self._workers)
            for worker in self._workers:
                with worker:
                    worker.source = self._source(worker.dataset)
        else:
            self._fetch = self._source(self._dataset)

    def __iter__(self):
        return self

    def __len__(self):
        return len(self._loader._index_sampler)

    def __next__(self):
        data = self._in_turn() if self._workers else self._fetch(next(self._sampler_iter))
        self._num_yielded += 1
        if (
            self._loader._dataset_kind == _DatasetKind.Iterable
            and self._length is not None
            and self._num_yielded > self._length
        ):
            warnings.warn(
                f"Length of IterableDataset {self._dataset} was reported to be {self._length}"
                f"(when accessing len(dataloader)), but {self._num_yielded} samples have been fetched. ",
                stacklevel=2,
            )
        return data

    def _in_turn(self):
        """The next batch of the worker whose turn it is; one that has come to its end is left out."""
        while self._turns:
            worker = self._turns.pop(0)
            index = next(self._sampler_iter)
            try:
                with worker:
                    data = worker.source(index)
            except StopIteration:
                continue
            self._turns.append(worker)
            return data
        raise StopIteration

    def _source(self, dataset):
        """index -> data, for one pass over a dataset."""
        if self._loader._dataset_kind == _DatasetKind.Map:
            return lambda index: self._by_index(dataset, index)
        samples, ended = iter(dataset), False

        def by_iteration(index):
            nonlocal ended
            if ended:
                raise StopIteration
            if not self._auto_collation:
                return self._collate_fn(next(samples))
            batch = list(itertools.islice(samples, len(index)))
            ended = len(batch) < len(index)
            if not batch or (ended and self._loader.drop_last):
                raise StopIteration
            return self._collate_fn(batch)

        return by_iteration

    def _by_index(self, dataset, index):
        if not self._auto_collation:
            return self._collate_fn(dataset[index])
        if self._collate_fn is default_collate:
            batch = _gathered(dataset, index)
            if batch is not None:
                return batch
        getitems = getattr(dataset, "__getitems__", None)
        return self._collate_fn(getitems(index) if getitems else [dataset[i] for i in index])

    def __getstate__(self):
        raise NotImplementedError("{} cannot be pickled", type(self).__name__)


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """A pass without workers."""


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """A pass with workers, which take turns."""


def _gathered(dataset, indices):
    """A batch of a ``TensorDataset``, or of a subset of one, by one gather a tensor; None where it is neither.

    The same as stacking the samples, without making them.
    """
    while type(dataset) is Subset:
        indices = [dataset.indices[i] for i in indices]
        dataset = dataset.dataset
    if type(dataset) is not TensorDataset:
        return None
    if not indices or any(type(i) is not int for i in indices) or min(indices) < 0 or max(indices) >= len(dataset):
        return None
    where: dict = {}
    batch = []
    for t in dataset.tensors:
        if t.device not in where:
            where[t.device] = torch.tensor(indices, dtype=torch.int64, device=t.device)
        batch.append(t.index_select(0, where[t.device]))
    return batch

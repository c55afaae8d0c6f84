"""``utils.data`` against real PyTorch: the same seed gives the same batches."""

import collections
import importlib
import warnings

import numpy as np
import pytest
import torch

import tabtorch as tt
from nn_oracle import DEVICES, failure


@pytest.fixture(params=DEVICES, autouse=True)
def device(request):
    """Everything is made on this device."""
    with tt.device(request.param):
        yield request.param


def data(ns):
    return ns.utils.data


def plain(value):
    """Tensors as (dtype, values), so that both sides compare."""
    if isinstance(value, (torch.Tensor, tt.Tensor)):
        return str(value.dtype).rpartition(".")[2], value.tolist()
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value).__name__, [plain(v) for v in value]
    return type(value)(plain(v) for v in value) if isinstance(value, (list, tuple)) else value


def same(f):
    a, b = f(tt), f(torch)
    assert plain(a) == plain(b)
    return b


def tensors(ns, n=10):
    d = data(ns)
    return d.TensorDataset(ns.arange(n * 2, dtype=ns.float32).reshape(n, 2), ns.arange(n))


class Squares:
    """A dataset that is no subclass of anything."""

    def __len__(self):
        return 7

    def __getitem__(self, i):
        return i * i, float(i)


LOADERS = [
    {},
    {"batch_size": 3},
    {"batch_size": 3, "shuffle": True},
    {"batch_size": 4, "shuffle": True, "drop_last": True},
    {"batch_size": None},
    {"batch_size": None, "shuffle": True},
]


@pytest.mark.parametrize("arguments", LOADERS)
def test_loader(arguments):
    """Batches over two epochs, and the generator afterwards: the stream is PyTorch's draw for draw."""

    def run(ns):
        ns.manual_seed(4)
        out = []
        for dataset in (tensors(ns), Squares(), data(ns).Subset(tensors(ns), [1, 3, 5, 8, 9])):
            loader = data(ns).DataLoader(dataset, **arguments)
            out += [len(loader), [list(loader) for _ in range(2)], ns.rand(2).tolist()]
        return out

    same(run)


def test_generator():
    def run(ns):
        out = []
        for seed in (1, 2):
            g = ns.Generator()
            g.manual_seed(seed)
            loader = data(ns).DataLoader(tensors(ns), batch_size=4, shuffle=True, generator=g)
            out += [list(loader), list(loader)]
        return out

    same(run)


def test_batches_lie_on_the_device(device):
    """A batch of a TensorDataset is gathered where its tensors are."""
    x, y = next(iter(data(tt).DataLoader(tensors(tt), batch_size=3)))
    assert x.device.type == y.device.type == device
    assert tuple(x.shape) == (3, 2)


@pytest.mark.parametrize("name", ["random", "replacement", "short", "long", "subset", "weighted", "sequential"])
def test_sampler(name):
    def run(ns):
        d, n = data(ns), range(70)
        ns.manual_seed(2)
        sampler = {
            "random": lambda: d.RandomSampler(n),
            "replacement": lambda: d.RandomSampler(n, replacement=True, num_samples=50),
            "short": lambda: d.RandomSampler(n, num_samples=20),
            "long": lambda: d.RandomSampler(n, num_samples=150),
            "subset": lambda: d.SubsetRandomSampler([3, 1, 4, 1, 5]),
            "weighted": lambda: d.WeightedRandomSampler([0.1, 0.5, 0.0, 0.4], 12),
            "sequential": lambda: d.SequentialSampler(n),
        }[name]()
        return [len(sampler), list(sampler), list(sampler), list(d.BatchSampler(sampler, 4, True)), ns.rand(1)]

    same(run)


def test_samplers_given():
    def run(ns):
        d = data(ns)
        loader = d.DataLoader(tensors(ns), sampler=[4, 2, 2], batch_size=2)
        batches = d.DataLoader(tensors(ns), batch_sampler=[[1, 2], [-1], [0, 5, 3]])
        return list(loader), list(batches), len(batches)

    same(run)


def test_random_split():
    def run(ns):
        ns.manual_seed(7)
        out = []
        for lengths in ([6, 4], [0.33, 0.33, 0.34], [0.5, 0.5]):
            out.append([list(s.indices) for s in data(ns).random_split(tensors(ns), lengths)])
        g = ns.Generator()
        g.manual_seed(3)
        return out + [[s[0] for s in data(ns).random_split(tensors(ns), [5, 5], generator=g)]]

    same(run)


def test_datasets():
    def run(ns):
        d = data(ns)
        a, b = tensors(ns), tensors(ns, 3)
        both = a + b
        stacked = d.StackDataset(x=b, y=[1, 2, 3])
        return [
            len(both),
            both[-1],
            both[11],
            both.cumulative_sizes,
            stacked[1],
            stacked.__getitems__([0, 2]),
            d.StackDataset(b, [1, 2, 3])[0],
            d.Subset(a, [4, 5])[1],
            d.Subset(Squares(), [4, 5]).__getitems__([1]),
            list(d.DataLoader(both, batch_size=5)),
            list(d.DataLoader(stacked, batch_size=2)),
        ]

    same(run)


def test_iterable():
    def run(ns):
        d = data(ns)

        class Count(d.IterableDataset):
            def __init__(self, n):
                self.n = n

            def __iter__(self):
                return iter(range(self.n))

            def __len__(self):
                return self.n

        chained = Count(3) + Count(4)
        return [
            list(d.DataLoader(Count(5), batch_size=2)),
            list(d.DataLoader(Count(5), batch_size=2, drop_last=True)),
            list(d.DataLoader(Count(3), batch_size=None)),
            list(d.DataLoader(chained, batch_size=4)),
            len(d.DataLoader(chained, batch_size=4)),
            len(chained),
        ]

    same(run)


Point = collections.namedtuple("Point", "x y")


def test_collate():
    def run(ns):
        d = data(ns)
        batches = [
            [ns.ones(2), ns.zeros(2)],
            [1, 2],
            [1.5, 2.0],
            [True, False],
            ["a", "b"],
            [(1, "a"), (2, "b")],
            [[1, 2.0], [3, 4.0]],
            [{"x": 1, "y": [1, 2]}, {"x": 2, "y": [3, 4]}],
            [Point(1, 2.0), Point(3, 4.0)],
            [np.ones(2, np.float32), np.zeros(2, np.float32)],
            [np.int64(3), np.int64(4)],
        ]
        converted = d.default_convert({"a": np.ones(2), "b": [1, np.float32(2)], "c": (np.int32(1), "x")})
        return [d.default_collate(b) for b in batches] + [converted]

    same(run)


def test_collate_integers_that_the_host_does_not_have():
    """Of drawn integers only the bounds are known; a subclass stays one."""

    def run(ns):
        class Label(ns.Tensor):
            pass

        ns.manual_seed(0)
        drawn = data(ns).default_collate([ns.randint(3, (5,))])
        labels = data(ns).default_collate([ns.tensor(k).as_subclass(Label) for k in range(3)])
        return [drawn, labels, type(labels).__name__]

    same(run)


def test_collate_fn():
    def run(ns):
        loader = data(ns).DataLoader(tensors(ns), batch_size=4, collate_fn=lambda b: [len(b), type(b[0]).__name__])
        return list(loader)

    same(run)


def test_workers():
    """``num_workers`` is accepted with one warning; ``pin_memory`` quietly."""
    tt.utils.data.dataloader._warned_of_workers = False
    with pytest.warns(UserWarning, match="num_workers=2 is accepted"):
        loader = data(tt).DataLoader(tensors(tt), batch_size=5, num_workers=2, persistent_workers=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data(tt).DataLoader(tensors(tt), num_workers=2, prefetch_factor=4, pin_memory=True)
    assert len(list(loader)) == 2
    assert data(tt).get_worker_info() is None


def failed(f, ns):
    return failure(lambda ns: f(ns, data(ns)), ns)


ERRORS = [
    lambda t, d: d.TensorDataset(t.ones(2), t.ones(3)),
    lambda t, d: d.Dataset()[0],
    lambda t, d: d.ConcatDataset([]),
    lambda t, d: d.ConcatDataset([[1]])[-5],
    lambda t, d: d.StackDataset(),
    lambda t, d: d.StackDataset([1], [1, 2]),
    lambda t, d: d.random_split([1, 2], [3]),
    lambda t, d: d.random_split([1, 2], [1.5, -0.5]),
    lambda t, d: d.RandomSampler([]),
    lambda t, d: d.RandomSampler([1], replacement=3),
    lambda t, d: d.WeightedRandomSampler([1.0], 0),
    lambda t, d: d.WeightedRandomSampler([[1.0]], 1),
    lambda t, d: d.BatchSampler([1], 0, False),
    lambda t, d: d.BatchSampler([1], 1, 3),
    lambda t, d: d.DataLoader([1], num_workers=-1),
    lambda t, d: d.DataLoader([1], timeout=-1),
    lambda t, d: d.DataLoader([1], prefetch_factor=2),
    lambda t, d: d.DataLoader([1], persistent_workers=True),
    lambda t, d: d.DataLoader([1], shuffle=True, sampler=[0]),
    lambda t, d: d.DataLoader([1], batch_size=2, batch_sampler=[[0]]),
    lambda t, d: d.DataLoader([1], batch_size=None, drop_last=True),
    lambda t, d: d.DataLoader(d.IterableDataset(), shuffle=True),
    lambda t, d: d.DataLoader(d.IterableDataset(), batch_sampler=[[0]]),
    lambda t, d: setattr(d.DataLoader([1]), "batch_size", 3),
    lambda t, d: d.default_collate([{1}]),
    lambda t, d: d.default_collate([[1], [1, 2]]),
    lambda t, d: d.default_collate([t.ones(2), t.ones(3)]),
    lambda t, d: list(d.DataLoader([None])),
]


@pytest.mark.parametrize("i", range(len(ERRORS)))
def test_error(i):
    expected = failed(ERRORS[i], torch)
    assert expected is not None
    assert failed(ERRORS[i], tt) == expected


def test_collating_functions_by_name() -> None:
    """monai calls them from its own `collate_fn`."""
    ours = importlib.import_module("tabtorch.utils.data._collate")
    theirs = importlib.import_module("torch.utils.data._utils.collate")
    for name, batch in {
        "numpy_array": [np.ones(2), np.zeros(2)],
        "numpy_scalar": [np.float32(1), np.float32(2)],
        "float": [1.0, 2.0],
        "int": [1, 2],
    }.items():
        a, b = (
            getattr(m, f"collate_{name}_fn")(batch, collate_fn_map=m.default_collate_fn_map) for m in (ours, theirs)
        )
        assert str(a.dtype) == str(b.dtype) and a.tolist() == b.tolist()
    assert ours.collate_tensor_fn([tt.ones(2), tt.zeros(2)]).tolist() == [[1, 1], [0, 0]]
    assert ours.collate_str_fn(["a", "b"]) == ["a", "b"]
    with pytest.raises(TypeError, match="default_collate"):
        ours.collate_numpy_array_fn([np.array(["a"])])

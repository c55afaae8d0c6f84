"""What training packages (Lightning, fastai, kornia, captum, optimizers of others) ask of torch, beside PyTorch."""

from __future__ import annotations

import itertools
import sys
import traceback
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import tabtorch
from sidebyside import outcome, same, to_tab


def both(call: Any, device: str, *tensors: torch.Tensor, exact: bool = True) -> None:
    """`call(library, *tensors)` gives the same in both; an error has the same type."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kind, want = outcome(lambda: call(torch, *[t.clone() for t in tensors]))
        got_kind, got = outcome(lambda: call(tabtorch, *[to_tab(t, device) for t in tensors]))
    if kind == "error":
        assert (got_kind, got[0]) == (kind, want[0]), f"{got!r}, not {want!r}"
    else:
        assert got_kind == kind, got
        same(want, got, strides=False, exact=exact)


X, Y = torch.tensor([1.0, -2.0]), torch.tensor([3.0, 0.5])
M, N = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[0.5, -1.0], [2.0, 1.5]])


@pytest.mark.parametrize(
    "call",
    [
        lambda t, x, y: x.add_(2, y),
        lambda t, x, y: x.add(2, y),
        lambda t, x, y: t.add(x, -0.5, y),
        lambda t, x, y: t.sub(x, 2, y),
        lambda t, x, y: x.sub_(2, y),
        lambda t, x, y: x.addcmul_(0.5, y, y),
        lambda t, x, y: t.addcmul(x, 0.5, y, y),
        lambda t, x, y: x.addcdiv_(-0.1, y, y),
        lambda t, x, y: x.addcdiv(0.5, y, x),
        lambda t, x, y: x.add(y, 2),
        lambda t, x, y: x.add(2, y, 3),
        lambda t, x, y: x.mul(2, y),
    ],
)
def test_a_number_before_the_other_tensor(call: Any, device: str) -> None:
    both(call, device, X, Y)


@pytest.mark.parametrize(
    "call",
    [
        lambda t, m, n: t.addmm(2, m, 3, m, n),
        lambda t, m, n: t.addmm(2, m, m, n),
        lambda t, m, n: m.addmm(2, 3, m, n),
        lambda t, m, n: m.addmm_(0.5, n, n),
        lambda t, m, n: t.addmv(2, m[0], 3, m, n[0]),
        lambda t, m, n: m.addr(2, 3, m[0], n[0]),
        lambda t, m, n: t.addbmm(2, m, 3, m[None], n[None]),
        lambda t, m, n: t.baddbmm(2, m[None], 3, m[None], n[None]),
        lambda t, m, n: t.addmm(m, m, n, 2),
    ],
)
def test_beta_and_alpha_before_the_tensors(call: Any, device: str) -> None:
    both(call, device, M, N, exact=False)


@pytest.mark.parametrize(
    "call",
    [
        lambda t, x, y: t._foreach_maximum([x, y], 0.5),
        lambda t, x, y: t._foreach_maximum([x], [y]),
        lambda t, x, y: t._foreach_minimum([x, y], [0.0, 1.0]),
        lambda t, x, y: (t._foreach_maximum_([x], [y]), t._foreach_minimum_([x], 2.0), x)[2],
        lambda t, x, y: t._foreach_pow(2.0, [x, y]),
    ],
)
def test_foreach_bounds_and_powers(call: Any, device: str) -> None:
    both(call, device, X, Y)


def test_groups_of_tensors(device: str) -> None:
    def call(t: Any, x: Any, y: Any) -> Any:
        from torch.utils import _foreach_utils as theirs

        from tabtorch.utils import _foreach_utils as mine

        group = (theirs if t is torch else mine)._group_tensors_by_device_and_dtype
        i = x.to(t.int32)
        groups = group([[x, i, y], [None] * 3, []], True)
        by_type = sorted((str(d), lists, places) for (_, d), (lists, places) in groups.items())
        return [
            (name, lists[0], lists[1] == [None] * len(lists[0]), lists[2], places) for name, lists, places in by_type
        ]

    both(call, device, X, Y)
    both(lambda t, x: t.utils._foreach_utils._group_tensors_by_device_and_dtype([[None, x]]), device, X)


@pytest.mark.parametrize("kind", ["mps", "xpu", "hpu", "xla", "mtia", "ipu", "meta", "vulkan", "cuda", "cpu"])
def test_autocast_of_devices_that_are_not_here(kind: str) -> None:
    for ask in ("is_autocast_enabled", "get_autocast_dtype"):
        kinds = [outcome(lambda t=t, ask=ask: str(getattr(t, ask)(kind))) for t in (torch, tabtorch)]
        assert kinds[0][0] == kinds[1][0] and (kinds[0][0] == "error" or kinds[0] == kinds[1]), kinds


def test_assert_async(device: str) -> None:
    for arguments in ((0,), (0, "say so"), (1,), (True,), ([1, 1],)):
        both(lambda t, of=arguments: t._assert_async(t.tensor(of[0]), *of[1:]), device)
    with pytest.raises(TypeError, match=r"_assert_async\(\): argument 'input' \(position 1\) must be Tensor, not bool"):
        tabtorch._assert_async(False)
    with pytest.raises(RuntimeError, match="^say so$"):
        tabtorch._assert_async(tabtorch.tensor(0.0), "say so")


def test_dlpack(device: str) -> None:
    x = tabtorch.arange(6.0).view(2, 3).t()
    np.testing.assert_array_equal(np.from_dlpack(x), x.numpy())
    from tabtorch.utils.dlpack import from_dlpack, to_dlpack

    back = from_dlpack(to_dlpack(x))
    assert back.device.type == device and back.tolist() == x.tolist()
    assert torch.from_dlpack(x).tolist() == x.tolist()
    assert tabtorch.from_dlpack(torch.tensor([1, 2])).tolist() == [1, 2]
    with pytest.raises(BufferError, match="require gradient"):
        np.from_dlpack(x.requires_grad_())


def test_scatter_and_gather(device: str) -> None:
    from tabtorch.nn.parallel import gather, scatter, scatter_kwargs

    here = tabtorch.device(device)
    x = tabtorch.arange(5)
    a, b = scatter(((x, "name"), [x, {"k": x}]), [here, here])
    assert a[0][0].tolist() == [0, 1, 2] and b[1][1]["k"].tolist() == [3, 4] and a[0][1] == b[0][1] == "name"
    assert scatter_kwargs((x,), {"n": 3, "x": x}, [here])[1][0]["n"] == 3
    left, right = scatter([x, {"k": x}], [here, here])
    joined = gather([left, right], here)
    assert joined[0].tolist() == joined[1]["k"].tolist() == x.tolist()
    assert gather([tabtorch.tensor(1.0), tabtorch.tensor(2.0)], here).tolist() == [1.0, 2.0]
    assert gather([{"a": x}, {"a": x}], here)["a"].shape == (10,)
    with pytest.raises(ValueError, match="same number of keys"):
        gather([{"a": x}, {}], here)


def test_iterators_of_loaders() -> None:
    import torch.utils.data.dataloader as theirs

    import tabtorch.utils.data.dataloader as mine

    for where, t in ((theirs, torch), (mine, tabtorch)):

        class Doubled(t.utils.data.DataLoader):  # type: ignore[name-defined, misc]
            def _get_iterator(self) -> Any:
                return (x * 2 for x in super()._get_iterator())

        loader = t.utils.data.DataLoader(range(3))
        assert type(iter(loader)) is where._SingleProcessDataLoaderIter
        assert issubclass(where._MultiProcessingDataLoaderIter, where._BaseDataLoaderIter)
        assert loader._dataset_kind == where._DatasetKind.Map
        assert [x.item() for x in Doubled(range(3))] == [0, 2, 4]
        assert t.utils.data._utils.collate.default_collate([1, 2]).tolist() == [1, 2]


def test_flat_buffers(device: str) -> None:
    from torch import _utils as theirs

    from tabtorch import _utils as mine

    def call(t: Any, x: Any, m: Any) -> Any:
        where = theirs if t is torch else mine
        flat = where._flatten_dense_tensors([x, m])
        return [flat, *where._unflatten_dense_tensors(flat, [x, m])]

    both(call, device, X, M)


def test_names() -> None:
    assert tabtorch.torch is tabtorch
    assert (
        "USE_MKL=OFF" in tabtorch.__config__.show() and "get_num_threads() : 1" in tabtorch.__config__.parallel_info()
    )
    assert tabtorch.distributed.group.WORLD is None and tabtorch.distributed.ReduceOp.SUM.name == "SUM"
    with pytest.raises(RuntimeError, match="one process"):
        tabtorch.distributed.ProcessGroup()
    from tabtorch._subclasses.fake_tensor import FakeTensor, is_fake

    assert not is_fake(tabtorch.ones(1)) and not is_fake(tabtorch.ones(1, device="meta"))
    with pytest.raises(RuntimeError, match='device="meta"'):
        FakeTensor()


def test_flops(device: str) -> None:
    """The numbers of PyTorch's counter, forward and backward, for each module."""

    def call(t: Any, *tensors: Any) -> Any:
        from torch.utils.flop_counter import FlopCounterMode as theirs

        from tabtorch.utils.flop_counter import FlopCounterMode as mine

        x, image, a = tensors
        nn = t.nn
        model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3, bias=False))
        convs = nn.Sequential(nn.Conv2d(2, 4, 3, stride=2), nn.ConvTranspose2d(4, 3, 2))
        with (theirs if t is torch else mine)(display=False) as counter:
            model(x).sum().backward()
            convs(image).sum().backward()
            (a @ a.mT).sum()
            t.einsum("bij,bkj->bik", a, a)
            t.addmm(a[0, :, :2], a[0], a[1, :2].mT)
        found = counter.get_flop_counts()
        by_op = {str(op).rpartition("aten.")[2].strip("')>"): n for op, n in found["Global"].items()}
        modules = {name: sum(counts.values()) for name, counts in found.items()}
        return [counter.get_total_flops(), sorted(by_op.items()), sorted(modules.items())]

    both(call, device, torch.rand(5, 4), torch.rand(2, 2, 7, 7), torch.rand(3, 4, 5))
    with pytest.raises(RuntimeError, match="custom_mapping"):
        tabtorch.utils.flop_counter.FlopCounterMode(custom_mapping={1: 2})


def test_records_of_an_archive(tmp_path: Any) -> None:
    for t in (torch, tabtorch):
        path = tmp_path / f"{t.__name__}.pt"
        t.save({"x": t.arange(3)}, path)
        reader = tabtorch.PyTorchFileReader(str(path))
        assert {"data.pkl", "data/0", "version"} <= set(reader.get_all_records())
        assert reader.get_record("data/0") == np.arange(3).tobytes()
        assert reader.has_record("data.pkl") and not reader.has_record("none")
        with pytest.raises(RuntimeError, match="failed locating file none"):
            reader.get_record("none")
    (tmp_path / "text").write_text("no archive")
    with pytest.raises(RuntimeError, match="failed finding central directory"):
        tabtorch.PyTorchFileReader(str(tmp_path / "text"))


def test_each_worker_has_all_of_an_iterable_dataset_to_itself() -> None:
    """What a worker_init_fn changes deep inside of its dataset is seen by no other worker, nor by the program."""

    class Part:
        start = 0

    for t in (torch, tabtorch):

        class Numbers(t.utils.data.IterableDataset):  # type: ignore[name-defined, misc]
            def __init__(self, t: Any) -> None:
                self.part, self.x = Part(), t.arange(6)

            def __iter__(self) -> Any:
                yield from self.x[self.part.start :: 2]

        def start(k: int, t: Any = t) -> None:
            t.utils.data.get_worker_info().dataset.part.start = k

        data = Numbers(t)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loader = t.utils.data.DataLoader(data, num_workers=2, worker_init_fn=start, batch_size=3, **_forked(t))
            assert [b.tolist() for b in loader] == [[0, 2, 4], [1, 3, 5]]
        assert data.part.start == 0


def _forked(t: Any) -> dict[str, Any]:
    return {"multiprocessing_context": "fork"} if t is torch else {}


def test_the_parts_of_the_compiled_module_that_packages_name() -> None:
    import tabtorch._C as mine

    device, dtype, non_blocking, _ = mine._nn._parse_to("cpu", tabtorch.float16, non_blocking=True)
    assert (device, dtype, non_blocking) == (tabtorch.device("cpu"), tabtorch.float16, True)
    assert isinstance(tabtorch.Tensor, mine._TensorMeta)
    assert tabtorch.nn.Parameter.__torch_function__ is mine._disabled_torch_function_impl
    assert not mine._are_functorch_transforms_active()
    assert tabtorch.func.vmap(lambda x: x * mine._are_functorch_transforms_active())(tabtorch.ones(2)).tolist() == [
        1,
        1,
    ]


@pytest.mark.parametrize("name", ["_to_copy", "alias", "index"])
def test_names_of_aten_only(name: str, device: str) -> None:
    given = {"_to_copy": ((), {"dtype": "float16"}), "alias": ((), {}), "index": (([None, [1, 0]],), {})}

    def call(t: Any, m: Any) -> Any:
        args, kw = given[name]
        args = tuple([None if a is None else t.tensor(a, device=m.device) for a in arg] for arg in args)
        return getattr(t.ops.aten, name)(m, *args, **{k: getattr(t, v) for k, v in kw.items()})

    both(call, device, M)


def test_a_sampler_that_draws_for_ever() -> None:
    """minGPT and makemore ask for int(1e10) samples: no list of that length is made."""
    for t in (torch, tabtorch):
        t.manual_seed(0)
        sampler = t.utils.data.RandomSampler(range(100), replacement=True, num_samples=int(1e10))
        first = list(itertools.islice(sampler, 70))
        if t is torch:
            want = first
        assert first == want
        sampler = t.utils.data.RandomSampler(range(5), replacement=True, num_samples=35)
        assert len(list(sampler)) == 35


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x * 2,
        lambda x: 2 * x,
        lambda x: x / 2,
        lambda x: x.clone().mul_(2),
        lambda x: x + 1,
        lambda x: x.lerp(x.detach(), 0.5),
        lambda x: x.detach().addcmul(x, x.detach()),
    ],
)
def test_backward_twice_through_a_number(call: Any, device: str) -> None:
    """PyTorch saves the number of a product as a tensor, so that the second backward is refused."""

    def twice(t: Any, x: Any) -> Any:
        y = call(x.requires_grad_()).sum()
        y.backward()
        y.backward()
        return x.grad

    both(twice, device, X)


@pytest.mark.parametrize("name", ["xlogy", "xlog1py"])
def test_gradient_of_x_log_of_a_number(name: str, device: str) -> None:
    def gradient(t: Any, x: Any, y: Any) -> Any:
        f = getattr(t.special, name)
        return t.autograd.grad(f(x.requires_grad_(), y).sum(), x)[0]

    x = torch.tensor([1.0, 0.0, 2.5])
    for y in (2, 0.5, 0, -1, torch.tensor([0.0, 0.0, float("nan")])):
        if isinstance(y, torch.Tensor):
            both(gradient, device, x, y, exact=False)
        else:
            both(lambda t, x, y=y: gradient(t, x, y), device, x, exact=False)


def test_frames_of_generated_code_are_no_ones() -> None:
    from tabtorch.cli.inside import _cut

    class Net(tabtorch.nn.Module):
        def forward(self, x: Any) -> Any:
            return tabtorch.nn.functional.linear(x, tabtorch.ones(9, 4, device=x.device))

    with pytest.raises(RuntimeError) as error, tabtorch.autocast("cpu", tabtorch.bfloat16):
        Net()(tabtorch.ones(2, 8, device="cpu"))
    report = traceback.TracebackException.from_exception(error.value)
    _cut(report)
    assert {frame.filename for frame in report.stack} == {__file__}


def test_compile_of_no_function() -> None:
    with pytest.raises(AssertionError, match="A callable function is expected, but <class 'int'> is provided"):
        tabtorch.compile(3)  # PyTorch's own answer takes it seconds of imports


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 2, 3), (1, 4)])
def test_orthogonal_weights_where_numpy_is_absent(shape: Any, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(3)
    want = torch.nn.init.orthogonal_(torch.empty(shape), 2.0)
    monkeypatch.setitem(sys.modules, "numpy", None)
    tabtorch.manual_seed(3)
    got = tabtorch.nn.init.orthogonal_(tabtorch.empty(shape, device=device), 2.0)
    assert (got.device.type, got.dtype) == (device, tabtorch.float32)
    assert got.flatten().tolist() == pytest.approx(want.flatten().tolist(), abs=1e-5)

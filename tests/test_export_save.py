"""Modules of ours as programs: exported, saved, and loaded by PyTorch and by ourselves, with equal numbers, at other sizes too."""

from __future__ import annotations

import io
import warnings
from typing import Any

import pytest
import torch

import export_models
import export_schemas
import tabtorch
from conformance.compare import same
from conformance.translate import back
from tabtorch import export
from tabtorch.utils import _pytree

CASES = export_models.cases(tabtorch)


def _resized(a: Any, sizes: dict[int, tuple[str, int]]) -> Any:
    for d, (_, n) in sizes.items():
        a = a.index_select(d, tabtorch.arange(n, device=a.device) % a.shape[d])
    return a


def _tensors(x: Any) -> list[Any]:
    return [t.detach() for t in _pytree.tree_leaves(x) if isinstance(t, tabtorch.Tensor)]


def _theirs(x: Any) -> list[torch.Tensor]:
    return [t.detach() for t in torch.utils._pytree.tree_leaves(x) if isinstance(t, torch.Tensor)]


def exported(name: str) -> tuple[Any, export.ExportedProgram, bytes, list[tuple[Any, ...]]]:
    """(module, program, archive, inputs of the export and of other sizes)."""
    with tabtorch.device("cpu"):
        tabtorch.manual_seed(0)
        module, args, sizes = CASES[name]()
        dims: dict[str, Any] = {}
        shapes = tuple(
            {d: dims.setdefault(s, export.Dim(s, min=1, max=64)) for d, (s, _) in sizes.get(i, {}).items()} or None
            for i in range(len(args))
        )
        ep = export.export(module, args, dynamic_shapes=shapes)
        file = io.BytesIO()
        export.save(ep, file)
        others = tuple(_resized(a, sizes.get(i, {})) for i, a in enumerate(args))
    return module, ep, file.getvalue(), [args, others]


@pytest.mark.parametrize("name", CASES)
def test_equal(name: str) -> None:
    """PyTorch's numbers of our archive are our module's, as are those of our own loading, and of the program itself."""
    module, ep, archive, given = exported(name)
    with warnings.catch_warnings():  # PyTorch's, of its own code
        warnings.simplefilter("ignore")
        theirs = torch.export.load(io.BytesIO(archive)).module()
    ours = export.load(archive, map_location="cpu").module()
    for args in given:
        want = _tensors(module(*args))
        got = _theirs(theirs(*[back(a) for a in args]))
        mine = _tensors(ours(*args))
        assert len(want) == len(got) == len(mine) > 0
        for w, g, m in zip(want, got, mine, strict=True):
            same(back(w), g, lambda dtype: (2e-4, 2e-5), where="PyTorch's", values=True)
            tabtorch.testing.assert_close(m, w, rtol=2e-4, atol=2e-5)
    buffers = dict(module.named_buffers())
    for key, value in theirs.named_buffers():
        same(back(buffers[key]), value, lambda dtype: (2e-4, 2e-5), where=key, values=True)
    assert set(ep.state_dict) == set(module.state_dict())


def test_program_of_the_module() -> None:
    """`module()` has the module's own parameters, and exporting changes no buffer."""
    module, ep, _, (args, _) = exported("counting")
    assert module.calls.item() == 0
    ours = ep.module()
    tabtorch.testing.assert_close(ours(*args), args[0] * module.scale + 1)
    assert module.calls.item() == 1
    assert "s0" in ep.range_constraints and "torch.ops.aten.add_." in str(ep)


def _one(forward: Any) -> Any:
    class One(tabtorch.nn.Module):
        def forward(self, a: Any) -> Any:
            return forward(a)

    return One()


def test_what_cannot_be_exported() -> None:
    """Is an error that names the function and the line."""
    x = tabtorch.ones(3, 4, device="cpu")
    with pytest.raises(NotImplementedError, match=r"'item'(.|\n)*test_export_save.py"):
        export.export(_one(lambda a: a * a.sum().item()), (x,))
    with pytest.raises(NotImplementedError, match=r"__bool__(.|\n)*test_export_save.py"):
        export.export(_one(lambda a: a + 1 if a.sum() > 0 else a), (x,))
    with pytest.raises(NotImplementedError, match="mask"):
        export.export(_one(lambda a: a[a > 0]), (x,))
    with pytest.raises(NotImplementedError, match="test_export_save.py"):
        export.export(_one(lambda a: tabtorch.nn.functional.unfold(a[None, None], 3, 1, 1)), (x,))
    with pytest.raises(ValueError, match=r"instance of `torch\.nn\.Module`"):
        export.export(lambda a: a, (x,))


def test_sizes_that_are_constants() -> None:
    """A size that decides the way of the forward is an error, or static where it is AUTO; chance is neither."""
    x = tabtorch.ones(3, 4, device="cpu")
    branch = _one(lambda a: a + 1 if a.shape[0] == 3 else a - 1)
    with pytest.raises(export.UserError, match="Constraints violated"):
        export.export(branch, (x,), dynamic_shapes=({0: export.Dim("batch")},))
    ep = export.export(branch, (x,), dynamic_shapes=({0: export.Dim.AUTO},))
    with pytest.raises(AssertionError, match="Guard failed"):
        ep.module()(tabtorch.ones(5, 4, device="cpu"))
    less = _one(lambda a: a + 1 if a.shape[0] < 10 else a - 1)
    with pytest.raises(export.UserError, match="Constraints violated"):
        export.export(less, (x,), dynamic_shapes=({0: export.Dim("batch")},))
    export.export(less, (x,), dynamic_shapes=({0: export.Dim("batch", max=9)},))
    square = tabtorch.nn.Linear(4, 3, device="cpu")  # 3 is the batch of the example, too
    assert export.export(square, (x,), dynamic_shapes=({0: export.Dim("batch")},)).range_constraints
    with pytest.raises(export.UserError, match="top-level keys"):
        export.export(branch, (x,), dynamic_shapes={"b": None})


def test_derived_sizes() -> None:
    """A size that is twice another's."""

    class Two(tabtorch.nn.Module):
        def forward(self, a: Any, b: Any) -> Any:
            return a + b[::2] * a.shape[0], b.reshape(a.shape[0], 2, -1)

    batch = export.Dim("batch", max=32)
    a, b = tabtorch.ones(3, 4, device="cpu"), tabtorch.arange(24.0, device="cpu").reshape(6, 4)
    ep = export.export(Two(), (a, b), dynamic_shapes={"a": {0: batch}, "b": {0: 2 * batch}})
    file = io.BytesIO()
    export.save(ep, file)
    theirs = torch.export.load(io.BytesIO(file.getvalue())).module()
    for n in (3, 5):
        given = torch.ones(n, 4), torch.arange(8.0 * n).reshape(2 * n, 4)
        want = given[0] + given[1][::2] * n
        torch.testing.assert_close(theirs(*given)[0], want)


def test_schemas_are_pytorch_s() -> None:
    """The table in the package is what PyTorch's own schemas give."""
    assert export_schemas.TARGET.read_text() == export_schemas.text()


def test_sizes_that_may_be_one() -> None:
    """Whether a dimension is there depends on a size, and the program is right for all in the range, or an error."""

    class Squeezed(tabtorch.nn.Module):
        def forward(self, a: Any) -> Any:
            b = a[1:].squeeze(0)
            return b * b.shape[0]

    x = tabtorch.ones(4, 3, device="cpu")
    with pytest.raises(export.UserError, match=r"Constraints violated \(n\)"):
        export.export(Squeezed(), (x,), dynamic_shapes=({0: export.Dim("n", min=2)},))
    module = export.export(Squeezed(), (x,), dynamic_shapes=({0: export.Dim("n", min=3)},)).module()
    for n in (3, 4, 7):
        a = tabtorch.ones(n, 3, device="cpu")
        tabtorch.testing.assert_close(module(a), Squeezed()(a))


def test_indices_are_checked_again() -> None:
    """That indices were in bounds in the example says nothing of other sizes: each call checks them, here and in PyTorch."""

    class Places(tabtorch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.places = tabtorch.nn.Embedding(6, 2)

        def forward(self, a: Any) -> Any:
            where = tabtorch.arange(a.shape[0], device=a.device)
            return self.places(where) + self.places.weight[where] + self.places.weight.index_select(0, where)

    with tabtorch.device("cpu"):
        ep = export.export(Places(), (tabtorch.ones(3, 2),), dynamic_shapes=({0: export.Dim("n")},))
        file = io.BytesIO()
        export.save(ep, file)
        for module in (ep.module(), export.load(file.getvalue()).module()):
            assert module(tabtorch.ones(6, 2)).shape == (6, 2)
            with pytest.raises(IndexError):
                module(tabtorch.ones(7, 2)).sum().item()
    with pytest.raises(IndexError):
        torch.export.load(io.BytesIO(file.getvalue())).module()(torch.ones(7, 2))


def test_the_example_s_error_is_told() -> None:
    """With other sizes, by which chance is told from need, a forward may fail in another way: that is not what the user sees."""

    class Picky(tabtorch.nn.Module):
        def forward(self, a: Any) -> Any:
            if a.shape[0] != 3:
                raise AssertionError("another size")
            return a

    x = tabtorch.ones(3, 4, device="cpu")
    with pytest.raises(export.UserError, match="Constraints violated"):
        export.export(Picky(), (x,), dynamic_shapes=({0: export.Dim("batch")},))
    assert not export.export(Picky(), (x,), dynamic_shapes=({0: export.Dim.AUTO},)).range_constraints


def test_exporting_draws_nothing() -> None:
    """Random numbers after an export are those without it."""
    found = []
    for exporting in (False, True):
        tabtorch.manual_seed(3)
        if exporting:
            export.export(_one(lambda a: tabtorch.nn.functional.dropout(a)), (tabtorch.ones(3, 4, device="cpu"),))
        found.append(tabtorch.rand(3, device="cpu").tolist())
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.clamp_(min=0),
        lambda x: x.clip_(0, 0.5),
        lambda x: tabtorch.add(x, 1, out=x),
        lambda x: tabtorch.sigmoid(x.clone(), out=x),
        lambda x: x.data.mul_(2),
        lambda x: x[:, 1].fill_(3),
        lambda x: x.__iadd__(2),
    ],
)
def test_writes_are_in_the_program(write: Any) -> None:
    """Whatever way a tensor is written to."""

    def forward(a: Any) -> Any:
        b = a * 2
        write(b)
        return b + 1

    module, x = _one(forward), tabtorch.linspace(-1, 1, 12, device="cpu").reshape(3, 4)
    ep, file = export.export(module, (x,)), io.BytesIO()
    export.save(ep, file)
    want = module(x)
    tabtorch.testing.assert_close(ep.module()(x), want)
    theirs = torch.export.load(io.BytesIO(file.getvalue())).module()(back(x))
    torch.testing.assert_close(theirs, back(want))


def test_sizes_that_are_the_same() -> None:
    """Sizes that AUTO left open, and that the forward takes for one, are one symbol; those that are equal by chance are two."""

    class Sum(tabtorch.nn.Module):
        def forward(self, a: Any, b: Any) -> Any:
            return (a + b)[:, [-1, 0]]

    auto, x = export.Dim.AUTO, tabtorch.ones(4, 4, device="cpu")
    ep = export.export(Sum(), (x, x.clone()), dynamic_shapes=({0: auto, 1: auto}, {0: auto, 1: auto}))
    assert len(ep.range_constraints) == 2
    file = io.BytesIO()
    export.save(ep, file)
    for module, lib in ((ep.module(), tabtorch), (torch.export.load(io.BytesIO(file.getvalue())).module(), torch)):
        a = lib.arange(15.0, device="cpu").reshape(3, 5)
        assert module(a, a).tolist() == [[8.0, 0.0], [18.0, 10.0], [28.0, 20.0]]
        with pytest.raises(AssertionError, match="Guard failed"):
            module(a, a[:2])


def test_calls_beneath_a_module_are_whole() -> None:
    """What a layer calls by a public function is one operator, and has its gradient: attention, a loss, the places of a pool."""
    nn = tabtorch.nn

    class All(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention, self.pool = nn.MultiheadAttention(4, 2), nn.MaxPool2d(2, return_indices=True)
            self.loss = nn.NLLLoss(tabtorch.tensor([1.0, 2.0]))

        def forward(self, x: Any, classes: Any) -> Any:
            y, _ = self.attention(x, x, x, need_weights=False)
            return self.loss(self.pool(y)[0].flatten(0, 1), classes)

    with tabtorch.device("cpu"):
        module, given = All(), (tabtorch.randn(6, 2, 4), tabtorch.tensor([0, 1, 1, 0, 1, 0]))
        ep = export.export(module, given)
        assert "detach" not in str(ep)
        for name in ("scaled_dot_product_attention", "max_pool2d_with_indices", "nll_loss_nd"):
            assert f"aten.{name}.default" in str(ep)
        slopes = []
        for m in (module, ep.module()):  # which have the same parameters
            module.zero_grad()
            m(*given).backward()
            slopes.append([p.grad.clone() for p in module.parameters()])
        tabtorch.testing.assert_close(*slopes)

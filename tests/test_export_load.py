"""Programs that PyTorch exported, loaded here: equal numbers, at other sizes too, on both devices; and they train, compile and move."""

from __future__ import annotations

import functools
import io
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import export_models
import tabtorch
from conformance.compare import same
from conformance.translate import Translator, tensors
from fuzz.exported_files import rewritten
from tabtorch import export

CASES = export_models.cases(torch)
DEVICES = ("cpu", "webgpu")


@functools.cache
def exported(name: str, core: bool) -> tuple[bytes, Any, tuple[Any, ...], tuple[Any, ...]]:
    """(archive, PyTorch's module of it, inputs, inputs of other sizes)."""
    torch.manual_seed(0)
    module, args, sizes = CASES[name]()
    dims: dict[str, Any] = {}
    shapes = tuple(
        {d: dims.setdefault(s, torch.export.Dim(s, min=1, max=64)) for d, (s, _) in sizes.get(i, {}).items()} or None
        for i in range(len(args))
    )
    file = io.BytesIO()
    with warnings.catch_warnings():  # PyTorch's, of its own code
        warnings.simplefilter("ignore")
        ep = torch.export.export(module, args, dynamic_shapes=shapes)
        if core:
            ep = ep.run_decompositions()
        torch.export.save(ep, file)
    others = tuple(resized(a, sizes.get(i, {})) for i, a in enumerate(args))
    return file.getvalue(), torch.export.load(io.BytesIO(file.getvalue())).module(), args, others


@functools.cache
def wanted(name: str, core: bool) -> list[Any]:
    """What PyTorch's module gives, once: it may count its calls."""
    _, theirs, args, others = exported(name, core)
    return [theirs(*args), theirs(*others)]


def resized(a: Any, sizes: dict[int, tuple[str, int]]) -> Any:
    for d, (_, n) in sizes.items():
        a = a.index_select(d, torch.arange(n) % a.shape[d])
    return a


def close(want: Any, got: Any) -> None:
    flat = list(
        zip(
            tensors(want),
            [t for t in tabtorch.utils._pytree.tree_leaves(got) if isinstance(t, tabtorch.Tensor)],
            strict=True,
        )
    )
    assert flat or not tensors(want)
    for w, g in flat:
        same(w.detach(), g.detach(), lambda dtype: (2e-4, 2e-5), where="result", values=True)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("core", [False, True], ids=["training", "core"])
@pytest.mark.parametrize("name", CASES)
def test_equal(name: str, core: bool, device: str) -> None:
    """To PyTorch's, with the inputs of the export and with those of other sizes."""
    archive, theirs, args, others = exported(name, core)
    ep = export.load(archive, map_location=device)
    ours = ep.module()
    names = [{n for n, _ in m.named_parameters(remove_duplicate=False)} for m in (ours, theirs)]
    assert names[0] == names[1]
    to = Translator(device)
    for given, want in zip((args, others), wanted(name, core), strict=True):
        close(want, ours(*map(to, given)))


@pytest.mark.parametrize(
    ("name", "core"),  # cnn_training in core ATen: PyTorch itself cannot, as it writes to what its backward needs
    [("mlp", False), ("mlp", True), ("cnn_training", False), ("gpt", False), ("gpt", True)],
)
def test_trains(name: str, core: bool) -> None:
    """Five steps of SGD: PyTorch's losses, parameters, and buffers."""
    archive, _, args, _ = exported(name, core)
    theirs, ours = torch.export.load(io.BytesIO(archive)).module(), export.load(archive, map_location="cpu").module()
    to = Translator("cpu")
    first = torch.optim.SGD(theirs.parameters(), lr=0.1)
    second = tabtorch.optim.SGD(ours.parameters(), lr=0.1)
    for _ in range(5):
        losses = []
        for optimizer, module, given in ((first, theirs, args), (second, ours, tuple(map(to, args)))):
            optimizer.zero_grad()
            loss = module(*given).pow(2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    want, got = theirs.state_dict(), ours.state_dict()
    for key, value in got.items():
        close(want[key], value)


def test_compiles() -> None:
    """One plan serves other sizes of the batch, too, and its numbers are the module's."""
    archive, _, args, others = exported("gpt", False)
    ours = export.load(archive, map_location="cpu").module()
    compiled = tabtorch.compile(ours, fullgraph=True, dynamic=True)
    to = Translator("cpu")
    for given in (args, others, args):
        want, got = ours(*map(to, given)), compiled(*map(to, given))
        tabtorch.testing.assert_close(got, want)


def test_checks_of_inputs() -> None:
    """Sizes, dimensions and nesting are held to what was exported; `train` and `eval` are PyTorch's error."""
    archive, _, _, _ = exported("linear", False)
    ep = export.load(archive, map_location="cpu")
    ours = ep.module()
    with pytest.raises(AssertionError, match=r"Guard failed: input\.size\(\)\[1\] == 4"):
        ours(tabtorch.zeros(3, 5, device="cpu"))
    with pytest.raises(AssertionError, match=r"Guard failed: input\.size\(\)\[0\] <= 64"):
        ours(tabtorch.zeros(65, 4, device="cpu"))
    with pytest.raises(RuntimeError, match="Unexpected number of dimensions"):
        ours(tabtorch.zeros(3, device="cpu"))
    with pytest.raises(RuntimeError, match="to be a tensor"):
        ours(3)
    with pytest.raises(ValueError, match="exported input tree spec"):
        ours(tabtorch.zeros(3, 4, device="cpu"), 1)
    for f in (ours.train, ours.eval):
        with pytest.raises(NotImplementedError, match="is not supported yet"):
            f()
    with pytest.raises(RuntimeError, match="Unable to call ExportedProgram directly"):
        ep(1)


class Starred(torch.nn.Module):
    def forward(self, x: Any, *rest: Any) -> Any:
        return x + rest[1].view(-1, 2).sum()


def test_guards_of_starred_arguments() -> None:
    """PyTorch's guards call them by the name that has the star."""
    auto, file = torch.export.Dim.AUTO, io.BytesIO()
    given = (torch.ones(2), torch.ones(3), torch.ones(6))
    torch.export.save(torch.export.export(Starred(), given, dynamic_shapes=(None, (None, {0: auto}))), file)
    ours = export.load(file.getvalue(), map_location="cpu").module()
    assert ours(*[tabtorch.ones(n, device="cpu") for n in (2, 3, 10)]).tolist() == [11, 11]
    with pytest.raises(AssertionError, match=r"Guard failed: .*'rest'.* % 2"):
        ours(*[tabtorch.ones(n, device="cpu") for n in (2, 3, 7)])


def test_other_files_are_named() -> None:
    saved = io.BytesIO()
    torch.save({"a": torch.ones(2)}, saved)
    with pytest.raises(export.SerializeError, match="written by torch.save"):
        export.load(saved.getvalue())
    archive, _, _, _ = exported("linear", False)
    with pytest.raises(export.SerializeError, match=r"Serialized schema version 9\.20 does not match"):
        export.load(rewritten(archive, lambda d: d.replace(b'"major": 8', b'"major": 9')), map_location="cpu")
    with pytest.raises(NotImplementedError, match=r"no operator torch\.ops\.aten\.lineal\.default"):
        changed = rewritten(archive, lambda d: d.replace(b"aten.linear.default", b"aten.lineal.default"))
        export.load(changed, map_location="cpu").module()


def test_files_of_plans_are_handed_on(tmp_path: Path) -> None:
    """By path, as bytes, and as a file object."""
    model = tabtorch.nn.Linear(4, 3, device="cpu")
    x = tabtorch.ones(2, 4, device="cpu")
    path = tmp_path / "model.safetensors"
    export.save(path, {"predict": (model, (x,))}, model=model)
    with path.open("rb") as file:
        for given in (path, str(path), path.read_bytes(), file):
            assert type(export.load(given, map_location="cpu")).__name__ == "PlanFile"

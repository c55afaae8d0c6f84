"""Programs that PyTorch exported, loaded here: equal numbers, at other sizes too, on both devices; and they train, compile and move."""

from __future__ import annotations

import functools
import io
import warnings
from typing import Any

import pytest
import torch

import export_models
import tabtorch
from conformance.compare import same
from conformance.translate import Translator, tensors
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
    for given in (args, others):
        want = theirs(*given)
        close(want, ours(*map(to, given)))

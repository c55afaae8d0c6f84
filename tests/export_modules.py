"""`python tests/export_modules.py [PATTERN …]`: PyTorch's own table of modules through files of `torch.export`, both ways, with counts.

Of each sample: what we export, PyTorch loads, and what PyTorch exports, in both dialects, we load; the results are compared with the
module's own. Where PyTorch itself cannot export, nothing is asked.
"""

from __future__ import annotations

import copy
import fnmatch
import io
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch

import tabtorch
from conformance import modules, translate
from conformance.compare import same
from conformance.modules import _Pair as Pair
from tabtorch import export

_TOLERANCE = lambda dtype: (1e-3, 1e-4)  # noqa: E731


def _of_theirs(x: Any) -> list[torch.Tensor]:
    return [t.detach() for t in torch.utils._pytree.tree_leaves(x) if isinstance(t, torch.Tensor)]


def _of_ours(x: Any) -> list[Any]:
    return [t.detach() for t in tabtorch.utils._pytree.tree_leaves(x) if isinstance(t, tabtorch.Tensor)]


def _auto(dim: Any, tensor: type, x: Any) -> Any:
    """Every size may vary that can."""
    if isinstance(x, tensor):
        return dict.fromkeys(range(x.dim()), dim)
    if isinstance(x, (list, tuple)):
        return type(x)(_auto(dim, tensor, y) for y in x)
    return None


def _shapes(dim: Any, tensor: type, args: Any, kwargs: Any) -> Any:
    return tuple(_auto(dim, tensor, a) for a in (*args, *kwargs.values()))


def _gradients(lib: Any, module: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """Of the sum of the squares of what is differentiable of a call: the gradients of the first input and of parameters, by name."""
    first, *others = args or (None,)
    if isinstance(first, lib.Tensor) and first.is_floating_point():
        first = first.detach().clone().requires_grad_()
    module.zero_grad()
    found = lib.utils._pytree.tree_leaves(module(*[first, *others][: len(args)], **kwargs))
    sums = [x.square().sum() for x in found if isinstance(x, lib.Tensor) and x.requires_grad]
    if sums:
        sum(sums).backward()
    asked = {"the input": first, **dict(module.named_parameters())}
    return {k: x.grad for k, x in asked.items() if isinstance(x, lib.Tensor) and x.grad is not None}


def pairs(name: str, training: bool, samples: int) -> Iterator[Any]:
    """Each sample's module, in both libraries, with the same parameters."""
    info = modules.infos()[name]
    for s in modules.samples(info, "float32", training=training)[:samples]:
        try:
            p = Pair(info, s, "cpu", training)
            if any(isinstance(x, torch.nn.utils.rnn.PackedSequence) for x in p.args) or p.drawn():
                continue
        except (
            translate.Unsupported,
            RuntimeError,
        ):  # fractional pooling, whose samples are of another type than its input
            continue
        p.same_parameters()
        yield p


def ours_there(p: Any, dynamic: bool) -> None:
    """What we export gives in PyTorch, and in our own loading, what the module gives."""
    with tabtorch.device("cpu"):
        args, kwargs = p.my_args, p.my_kwargs
        shapes = _shapes(export.Dim.AUTO, tabtorch.Tensor, args, kwargs) if dynamic else None
        ep = export.export(p.ours, args, kwargs, dynamic_shapes=shapes)
        file = io.BytesIO()
        export.save(ep, file)
        theirs = torch.export.load(io.BytesIO(file.getvalue())).module()
        mine = export.load(file.getvalue(), map_location="cpu").module()
        want = _of_theirs(copy.deepcopy(p.theirs)(*p.args, **p.kwargs))
        got, own = _of_theirs(theirs(*p.args, **p.kwargs)), _of_ours(mine(*args, **kwargs))
        slopes = _gradients(torch, copy.deepcopy(p.theirs), p.args, p.kwargs)
        there, here = _gradients(torch, theirs, p.args, p.kwargs), _gradients(tabtorch, mine, args, kwargs)
    assert len(want) == len(got) == len(own)
    for w, g, m in zip(want, got, own, strict=True):
        torch.testing.assert_close(g, w, rtol=1e-3, atol=1e-4, equal_nan=True)
        same(w, m, _TOLERANCE, where="loaded here", values=True)
    assert slopes.keys() == there.keys() == here.keys()
    for name, slope in slopes.items():
        torch.testing.assert_close(there[name], slope, rtol=1e-3, atol=1e-4, equal_nan=True)
        same(slope, here[name], _TOLERANCE, where=f"gradient of {name}", values=True)


def theirs_here(p: Any, dynamic: bool, core: bool) -> bool:
    """What PyTorch exports gives here what it gives there. False where PyTorch cannot export it."""
    file = io.BytesIO()
    try:
        shapes = _shapes(torch.export.Dim.AUTO, torch.Tensor, p.args, p.kwargs) if dynamic else None
        ep = torch.export.export(copy.deepcopy(p.theirs), p.args, p.kwargs, dynamic_shapes=shapes)
        torch.export.save(ep.run_decompositions() if core else ep, file)
        want = _of_theirs(torch.export.load(io.BytesIO(file.getvalue())).module()(*p.args, **p.kwargs))
    except Exception:
        return False
    got = _of_ours(export.load(file.getvalue(), map_location="cpu").module()(*p.my_args, **p.my_kwargs))
    for w, g in zip(want, got, strict=True):
        same(w, g, _TOLERANCE, where="result", values=True)
    return True


QUESTIONS = ("ours", "ours-auto", "training", "training-auto", "core", "core-auto")


def answer(name: str, question: str, training: bool = False, samples: int = 2) -> list[str]:
    """ "" for each sample that is right, "-" where PyTorch cannot, else what is wrong."""
    found = []
    kind, _, dynamic = question.partition("-")
    for p in pairs(name, training, samples):
        with warnings.catch_warnings():  # PyTorch's, of its own code
            warnings.simplefilter("ignore")
            try:
                if kind == "ours":
                    ours_there(p, bool(dynamic))
                    found.append("")
                else:
                    found.append("" if theirs_here(p, bool(dynamic), kind == "core") else "-")
            except Exception as e:
                found.append(f"{type(e).__name__}: {e}")
    return found


def main() -> int:
    counts: dict[str, Counter[str]] = {q: Counter() for q in QUESTIONS}
    wanted = [w for w in sys.argv[1:] if w not in QUESTIONS] or ["*"]
    asked = [q for q in QUESTIONS if q in sys.argv[1:]] or QUESTIONS
    for name in modules.infos():
        if not any(fnmatch.fnmatch(name, f"*{w}*") for w in wanted):
            continue
        for training in (False, True):
            for q in asked:
                for i, text in enumerate(answer(name, q, training)):
                    counts[q]["right" if not text else "PyTorch cannot" if text == "-" else "wrong"] += 1
                    if len(text) > 1:
                        print(f"{name} {q} {'train' if training else 'eval'} #{i}: {text[:600]}", flush=True)
    for q, c in counts.items():
        print(q, dict(c))
    return any(c["wrong"] for c in counts.values())


if __name__ == "__main__":
    sys.exit(main())

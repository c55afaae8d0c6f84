"""`grad_fn._saved_self` and its kin: what a recorded operation keeps for backward, under the names that PyTorch gives it.

Of a row the names are those of its arguments, and `result`. For other operations they are in `_NAMES`. A formula of
several operations bears the name of the whole in its last step only: that one keeps what the formula needs, and shows
nothing but its result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.tape import FREED, GradFn, OpFn, Packed, Saved, freed_error
from tabtorch.base.thread_state import STATE
from tabtorch.core.tensor import Tensor

#: what `record` was given to save, in its order; several operations may keep the same
_NAMES = {
    name: saved.split(",")
    for saved, names in (
        ("self,mat2", "Mm Bmm"),
        ("mat1,mat2", "Addmm"),
        ("mat,vec", "Addmv"),
        ("batch1,batch2", "Baddbmm Addbmm"),
        ("vec1,vec2", "Addr"),
        ("self,vec", "Mv"),
        ("self,tensor", "Dot"),
        ("input,weight", "Convolution"),
        ("index", "Gather IndexSelect Scatter ScatterAdd IndexAdd IndexCopy IndexFill Take Put"),
        ("indices", "Max Min Median Mode Kthvalue Sort Topk Cummax Cummin"),
        ("mask", "MaskedFill MaskedScatter"),
        ("self,result", "Cumprod LinalgVectorNorm Logsumexp Logcumsumexp Norm Std Amax Amin LinalgPinv"),
        ("self", "Prod Nansum Var LinalgMatrixExp"),
        ("Q,R", "LinalgQr"),
        ("U,S,Vh", "LinalgSvd"),
        ("eigenvalues,eigenvectors", "LinalgEigh LinalgEig"),
        ("A,result", "LinalgSolveEx"),
        ("L", "LinalgCholeskyEx"),
        ("inverse", "LinalgInvEx"),
        ("result", "Softmax LogSoftmax Cholesky Polar"),
    )
    for name in names.split()
}


def names_of(fn: Any) -> dict[str, int]:
    """Name -> place of what `fn` saves: of a row, its operands, then -1 for its output."""
    own, _, form = type(fn).__name__.partition("Backward")
    row: Any = getattr(fn, "row", None)
    if row is not None:
        name = row.backward_name
        shown = name(()) if callable(name) else name
        needed = [any(column) for column in zip(*_lazy.row_tape.uses_of(type(fn)).needed)]
        found = {"result": -1} if needed[-1] else {}
        if shown.partition("Backward")[0] == own:
            for i, n in enumerate(row.names[: row.operands]):
                if needed[i]:
                    found["self" if n == "input" else n] = i
        return found
    if not isinstance(fn, OpFn):
        return {}
    if form == "1" and own in ("Max", "Min"):  # those of all elements
        return {"self": 0, "result": 1}
    return {n: i for i, n in enumerate(_NAMES.get(own, ())) if fn.saved is FREED or i < len(fn.saved)}


def listed(fn: GradFn) -> Iterator[str]:
    """What `dir` adds for a function."""
    for name in names_of(fn):
        yield "_saved_" + name
        yield "_raw_saved_" + name


def find(fn: GradFn, attribute: str) -> Any:
    """`_saved_NAME`: the value; `_raw_saved_NAME`: a `SavedTensor`. AttributeError for a name that it does not have."""
    raw = attribute.startswith("_raw_saved_")
    place = names_of(fn).get(attribute.removeprefix("_raw").removeprefix("_saved_"))
    if place is None:
        raise AttributeError(f"'{type(fn).__name__}' object has no attribute '{attribute}'")
    saved = SavedTensor(fn, place)
    if raw:
        return saved
    return saved.value()


class SavedTensor:
    """What a function has saved, not unpacked: `grad_fn._raw_saved_self`."""

    def __init__(self, fn: Any, place: int) -> None:
        self.fn = fn
        self.place = place

    def value(self) -> Any:
        """The tensor, unpacked; RuntimeError if it has been freed."""
        fn, i = self.fn, self.place
        if isinstance(fn, OpFn):
            saved = fn.saved
            if saved is FREED:
                raise freed_error()
            s = saved[i]
            return s if s is None else s.unpack(fn)
        out = fn.out  # before what the operands are: `release` frees those first, and another thread may be there
        packed = hasattr(fn, "packed")
        kept = fn.packed if packed else fn.args
        if kept is FREED:
            raise freed_error()
        if packed:
            x = kept[i]
            return x.unpack(fn) if isinstance(x, (Packed, Saved)) else x
        return fn.unpack_out(out) if i < 0 else kept[i]

    def register_hooks(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        """Gives the tensor to `pack_hook` now, and what that returned to `unpack_hook` when backward needs it.

        RuntimeError for one that has hooks, or has been freed.
        """
        fn, i = self.fn, self.place
        if (fn.saved if isinstance(fn, OpFn) else getattr(fn, "packed", fn.args)) is FREED:
            raise RuntimeError(
                "Calling register_hooks on a saved tensor after it has been freed. Saved intermediate values of the graph "
                "are freed when you call .backward() or autograd.grad(). Specify retain_graph=True if you need to backward "
                "through the graph a second time or if you need to access saved variables after calling backward."
            )
        kept: list[Any] = list(fn.saved) if isinstance(fn, OpFn) else _lazy.row_tape.keep_apart(fn)
        if isinstance(kept[i], Packed):
            raise RuntimeError(
                "Calling register_hooks on a saved tensor whose hooks have already been set. Hint: only one pair of hooks "
                "is allowed at a time."
            )
        if kept[i] is None:
            raise RuntimeError("Calling register_hooks on a saved tensor with value None is forbidden")
        if not isinstance(kept[i], Saved):
            raise AttributeError(f"'{type(kept[i]).__name__}' object has no attribute 'register_hooks'")
        value, output, nr = kept[i].unpack(fn), kept[i].is_output, kept[i].nr
        before, STATE.hooks = STATE.hooks, (*STATE.hooks, (pack_hook, unpack_hook))
        try:
            kept[i] = Packed(value, output, nr)
        finally:
            STATE.hooks = before
        if isinstance(fn, OpFn):
            fn.saved = tuple(kept)
        else:
            fn.packed = kept

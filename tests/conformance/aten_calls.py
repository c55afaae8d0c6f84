"""The ATen operators that PyTorch itself calls: recorded below autograd over the samples of `op_db`, forward and backward."""

from __future__ import annotations

import contextlib
import copy
import functools
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._ops import OpOverload
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._python_dispatch import TorchDispatchMode

import tabtorch
from tabtorch.ops import aten

from . import checks, translate
from .compare import Mismatch, same
from .translate import Translator, Unsupported, tensors

#: the dtype of an operator's samples is the first of these that it has
DTYPES = (torch.float32, torch.complex64, torch.int64, torch.bool)
#: arguments that PyTorch has on the CPU whatever the device is
ON_CPU = ("batch_sizes",)
#: operators whose values nobody knows
UNINITIALISED = ("empty", "new_empty", "resize")
#: operator -> how many times PyTorch's tolerance a result may be off, where that is not 10, for sums of other orders
WIDE = {"linalg_matrix_exp": 100, "matrix_exp": 100, "polygamma": 100, "special_polygamma": 100}


def _factors(found: Any) -> Any:
    """Of singular vectors what does not depend on their signs."""
    u, s, vh = found
    n = s.shape[-1]
    return s, (u[..., :n] * s.unsqueeze(-2)) @ vh[..., :n, :] if u.dim() > 1 else s


def _eigen(found: Any) -> Any:
    """Of eigenvectors the sizes of their elements, which no phase changes."""
    return found[0], found[1].abs()


#: operator -> what of its result is compared: eigenvectors are so but for a phase; what only PyTorch's own kernels read is any
SEEN: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("_linalg_svd", "linalg_svd", "svd"), _factors),
    **dict.fromkeys(("_linalg_eigh", "linalg_eigh", "linalg_eig"), _eigen),
    **dict.fromkeys(("_ctc_loss", "_embedding_bag", "_embedding_bag_forward_only", "embedding_bag"), lambda r: r[0]),
}


@dataclass
class Call:
    """One call: the operator, its arguments as they were before it, and after it, and its result."""

    op: OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    after: tuple[tuple[Any, ...], dict[str, Any]]
    result: Any


@dataclass
class Recorder(TorchDispatchMode):
    """Counts each operator called under it, and keeps calls whose arguments are of another kind than those kept.

    each: at most so many are kept of an operator. decompositions: what a call that is kept is also made of, as AOTAutograd
        with core_aten_decompositions has it; those calls are recorded, too.
    """

    each: int = 4
    decompositions: dict[OpOverload, Callable[..., Any]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    calls: dict[str, list[Call]] = field(default_factory=lambda: defaultdict(list))
    _seen: set[Any] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = str(op)
        self.counts[name] += 1
        kind = (name, _kind(args), _kind(kwargs))
        if not name.startswith("aten.") or len(self.calls[name]) >= self.each or kind in self._seen:
            return op(*args, **kwargs)
        if any(t.layout is not torch.strided for t in tensors((args, kwargs))):
            return op(*args, **kwargs)
        self._seen.add(kind)
        before = held((args, kwargs))
        if op in self.decompositions:
            with contextlib.suppress(Exception), self:
                self.decompositions[op](*held(before[0]), **held(before[1]))
        result = op(*args, **kwargs)
        after, kept = held(((args, kwargs), result))
        self.calls[name].append(Call(op, *before, after, kept))
        return result


def _kind(x: Any) -> Any:
    """What of arguments makes a call another one: how many dimensions and which types, every number and word."""
    if isinstance(x, torch.Tensor):
        return x.dtype, x.dim(), x.numel() > 0, x.is_contiguous()
    if isinstance(x, (list, tuple)):
        return tuple(map(_kind, x))
    if isinstance(x, dict):
        return tuple((k, _kind(v)) for k, v in x.items())
    return str(x)


def held(x: Any) -> Any:
    """The same values, which no later write reaches; what shares a storage shares one again."""
    with torch.utils._python_dispatch._disable_current_modes(), torch.no_grad():
        return _copied(x, {})


def _copied(x: Any, wholes: dict[Any, torch.Tensor]) -> Any:
    if isinstance(x, torch.Tensor):
        x = x.detach()
        key = x.untyped_storage()._cdata, x.dtype
        held = x.untyped_storage().nbytes() // x.element_size()
        if x.is_conj() or x.is_neg():
            name = "conj" if x.is_conj() else "_neg_view"
            return getattr(_copied(getattr(x, name)(), wholes), name)()
        if key not in wholes:
            wholes[key] = x.as_strided((held,), (1,), 0).clone()
        return wholes[key].as_strided(x.shape, x.stride(), x.storage_offset())
    if type(x) in (list, tuple):
        return type(x)(_copied(v, wholes) for v in x)
    if isinstance(x, tuple):
        return tuple(_copied(v, wholes) for v in x)
    if isinstance(x, dict):
        return {k: _copied(v, wholes) for k, v in x.items()}
    return x if isinstance(x, torch.Generator) else copy.copy(x)


def record(recorder: Recorder, op: OpInfo, limit: int = 6) -> None:
    """Runs samples of an operator, in the first dtype it has, and their backward passes, under the recorder."""
    kind = next((d for d in DTYPES if d in op.dtypes), torch.float32)
    grad = op.supports_autograd and (kind.is_floating_point or kind.is_complex)
    for sample in checks._samples(op, str(kind).removeprefix("torch."), grad=grad, limit=limit):
        with warnings.catch_warnings(), contextlib.suppress(Exception), recorder:
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            out = checks._call(op.op, sample)
            outs = [t for t in tensors(out) if t.requires_grad]
            if outs:
                leaves = [t for t in tensors((sample.input, sample.args, sample.kwargs)) if t.requires_grad]
                torch.autograd.grad(outs, leaves, [torch.ones_like(t) for t in outs], allow_unused=True)


def record_steps(recorder: Recorder) -> None:
    """What op_db has no sample of: steps of optimizers over lists of tensors and as one kernel, recurrent layers, scalers."""
    kinds: dict[str, dict[str, Any]] = {
        "Adam": {"amsgrad": True, "weight_decay": 0.1},
        "AdamW": {"maximize": True},
        "SGD": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
        "Adagrad": {"lr_decay": 0.1},
        **{name: {} for name in ("Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop")},
    }
    for name, options in kinds.items():
        for given in ({}, options):
            for way in ("foreach", "fused"):
                torch.manual_seed(0)
                params = [torch.randn(3, 2, requires_grad=True), torch.randn(4, requires_grad=True)]
                with contextlib.suppress(RuntimeError, TypeError):
                    optimizer = getattr(torch.optim, name)(params, lr=0.1, **given, **{way: True})
                    for _ in range(2):
                        for p in params:
                            p.grad = torch.randn(p.shape)
                        with recorder:
                            optimizer.step()
    for kind in ("LSTM", "GRU", "RNN"):
        torch.manual_seed(0)
        layer = getattr(torch.nn, kind)(3, 4, 2, bidirectional=True)
        with recorder:
            output, _ = layer(torch.randn(5, 2, 3))
            output.sum().backward()
    for first in (False, True):
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=first).eval()
        for mask in (None, torch.tensor([[False, False, True], [False, False, False]])):
            with recorder, torch.no_grad():
                layer(torch.randn(2, 3, 8), src_key_padding_mask=mask)
    for found in (0.0, 1.0):
        with recorder:
            grads = [torch.randn(3), torch.tensor([1.0, float("inf") if found else 2.0])]
            torch._amp_foreach_non_finite_check_and_unscale_(grads, torch.zeros(()), torch.tensor(0.5))
            for count in (0, 3):
                scale, tracker = torch.tensor(8.0), torch.tensor(count, dtype=torch.int32)
                torch._amp_update_scale_(scale, tracker, torch.tensor(found), 2.0, 0.5, 4)


def replay(call: Call, device: str) -> None:
    """Raises Mismatch, or what our function raises, unless it gives PyTorch's result, and writes what PyTorch writes."""
    f = aten.lookup(call.op._schema.name, call.op._overloadname)
    if f is None:
        raise Mismatch(f"{call.op}: not in the table", "raised")
    if why := checks._without(device, call.args, call.kwargs, call.result):
        raise Unsupported(why)
    to, host = Translator(device), Translator("cpu")
    named = zip(call.op._schema.arguments, call.args, strict=False)
    args = [(host if a.name in ON_CPU else to)(x) for a, x in named]
    kwargs = to(call.kwargs)
    tabtorch.manual_seed(0)
    with warnings.catch_warnings(), tabtorch.no_grad():
        warnings.simplefilter("ignore")
        got = f(*args, **kwargs)
    schema = call.op._schema
    name = schema.name.removeprefix("aten::")
    values = torch.Tag.nondeterministic_seeded not in call.op.tags and not name.startswith(UNINITIALISED)
    tolerance = functools.partial(_tolerance, factor=WIDE.get(name, 10))
    if schema.returns:
        seen = SEEN.get(name, lambda result: result)
        _same(seen(call.result), seen(_back(got)) if name in SEEN else got, values, tolerance)
    written = [i for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write]
    for i in written:
        name = schema.arguments[i].name
        want = call.after[0][i] if i < len(call.args) else call.after[1].get(name)
        have = args[i] if i < len(args) else kwargs.get(name)
        if want is not None:
            _same(want, have, values, tolerance, "what is written")


def _back(x: Any) -> Any:
    return tuple(map(_back, x)) if isinstance(x, (list, tuple)) else translate.back(x) if tensors(x) else x


def _same(want: Any, got: Any, values: bool, tolerance: Any, where: str = "result") -> None:
    """The same, where results that are None are None, and what is uninitialised is any."""
    if isinstance(want, (list, tuple)) and isinstance(got, (list, tuple)):
        if len(want) != len(got):
            raise Mismatch(f"{where}: {len(got)} results, not {len(want)}")
        for i, (w, g) in enumerate(zip(want, got, strict=True)):
            _same(w, g, values, tolerance, f"{where} {i}")
        return
    if (want is None) != (got is None):
        raise Mismatch(f"{where}: {type(got).__name__}, not {type(want).__name__}")
    if want is None:
        return
    same(want, got, tolerance, where=where, values=values)


def _tolerance(dtype: torch.dtype, factor: float) -> tuple[float, float]:
    rtol, atol = torch.testing._comparison.default_tolerances(dtype)
    return factor * rtol, factor * atol


def shown(call: Call) -> str:
    """The arguments of a call, of tensors the type and shape."""

    def text(x: Any) -> str:
        if isinstance(x, torch.Tensor):
            return f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}"
        if isinstance(x, (list, tuple)):
            return "[" + ", ".join(map(text, x)) + "]"
        return repr(x)

    return ", ".join([*map(text, call.args), *(f"{k}={text(v)}" for k, v in call.kwargs.items())])[:200]

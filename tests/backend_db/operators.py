"""PyTorch's table of operators, `op_db`: forward, gradient, in-place, `out=`, inputs laid out otherwise, bad inputs."""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_map

from .comparing import (
    HALVES,
    NAME,
    as_near,
    compare,
    compare_gradients,
    differentiable,
    draws,
    gradients,
    moved,
    outcome,
    said,
    same_error,
    tensors_of,
    wide,
)

Call = tuple[Any, list[Any], dict[str, Any]]


def title(op: Any) -> str:
    """An entry's name, with that of its variant."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def entries(dtype: Any) -> dict[str, Any]:
    """The entries that have a type on the CPU, by name."""
    return {title(op): op for op in op_db if dtype in op.dtypes}


def answer(op: Any, samples: int, dtype: Any, found: dict[str, str]) -> None:
    """Enters check -> "" or why it failed. A check that failed is not asked of the samples that follow."""
    with_gradients = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    for s in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=with_gradients), samples):
        for check, passes in _checks(op, s, with_gradients):
            if found.get(check):
                continue
            try:
                passes()
                found[check] = ""
            except Exception as e:
                found[check] = f"{said(e)}"
        if found.get("forward"):
            break
    if dtype is torch.float32:
        _errors(op, found)


def _checks(op: Any, s: Any, with_gradients: bool) -> Iterator[tuple[str, Callable[[], None]]]:
    """What is to be asked of a sample: nothing if it is not for the CPU, or its result is not of strided tensors."""
    state = torch.get_rng_state()
    try:
        expected = op(s.input, *s.args, **s.kwargs)
    except Exception:
        return
    if any(t.layout is not torch.strided for t in tensors_of(expected)):
        return
    if op.name == "tensor_split":  # where to split is asked of the CPU, on CUDA, too
        s.args = tuple(a.tolist() if isinstance(a, torch.Tensor) else a for a in s.args)
    leaves: list[Any] = []
    result: list[Any] = []
    process = s.output_process_fn_grad if with_gradients else lambda x: x
    unknown = op.name.startswith(("empty", "new_empty"))  # whatever is there

    def forward() -> None:
        call = _there(s, leaves)
        torch.set_rng_state(state)
        before = draws[0]
        found = op(call[0], *call[1], **call[2])
        if draws[0] > before or unknown:  # drawn by the GPU: other numbers
            same = [[(t.shape, t.dtype) for t in tensors_of(x)] for x in (expected, found)]
            assert same[0] == same[1], f"{same[1]}, not {same[0]}"
        else:
            _same(op, s, expected, found)
            result.append(call)
            result.append(found)

    yield "forward", forward
    if not result:
        return
    call, found = result
    outs = differentiable(process(expected)) if with_gradients and leaves else []
    # a draw, from the same state each time, which hides it
    drawn = "wrapper_set_seed" in getattr(getattr(op.op, "__code__", None), "co_names", ())
    if not drawn and torch.equal(state, torch.get_rng_state()):
        yield from _forms(op, s, call, expected)
    if outs:

        def gradient() -> None:
            wanted = gradients(outs, [a for a, _ in leaves])
            got = gradients(differentiable(process(found)), [b for _, b in leaves])
            try:
                compare_gradients(wanted, got)
            except AssertionError:
                if outs[0].dtype not in HALVES:
                    raise
                exact = _exact_gradients(op, s, process, [a for a, _ in leaves])
                pairs = [(x, a, b) for x, a, b in zip(exact, wanted, got, strict=True) if a is not None]
                if not all(as_near(x, a, b) for x, a, b in pairs):
                    raise

        yield "gradient", gradient


def _same(op: Any, s: Any, expected: Any, found: Any) -> None:
    """AssertionError unless results are the same, but for which of equal values was taken, and for rounding in halves."""
    process = s.output_process_fn_grad or (lambda x: x)
    e, f = process(expected), process(found)
    if op.name in _TAKE_EQUALS:
        e, f = _taken(op, s, e), _taken(op, s, f)
    try:
        compare(e, f, op.name == "to")
    except AssertionError:
        if not any(t.dtype in HALVES for t in tensors_of(e)):
            raise
        exact = outcome(lambda: process(op(*tree_map(wide, (s.input, *s.args)), **tree_map(wide, dict(s.kwargs)))))
        if isinstance(exact, Exception) or not as_near(exact, e, f):
            raise


def _exact_gradients(op: Any, s: Any, process: Any, leaves: list[Any]) -> list[Any]:
    """The gradients in single precision of what is computed in halves."""
    kept: dict[int, Any] = {}

    def widened(t: Any) -> Any:
        if isinstance(t, torch.Tensor) and t.requires_grad:
            return kept.setdefault(id(t), t.detach().float().requires_grad_())
        return wide(t)

    x, args, kw = tree_map(widened, (s.input, s.args, dict(s.kwargs)))
    return gradients(differentiable(process(op(x, *args, **kw))), [kept[id(t)] for t in leaves])


#: give places of values, and of equal ones that of any
_TAKE_EQUALS = {"argsort", "sort", "topk", "kthvalue", "nanmedian", "median", "msort"}


def _taken(op: Any, s: Any, result: Any) -> Any:
    """What lies at the places in a result instead of them."""
    if not isinstance(s.input, torch.Tensor) or not s.input.dim():
        return result
    given = s.args[1:] if op.name in ("topk", "kthvalue") else s.args
    dim = s.kwargs.get("dim", next((v for v in given if type(v) is int), -1))
    parts = tensors_of(result)
    if op.name != "argsort" and len(parts) < 2:
        return result
    places = parts[-1].cpu()
    whole = places if places.dim() == s.input.dim() else places.unsqueeze(dim)
    return [*parts[:-1], s.input.detach().gather(dim, whole).to(parts[-1].device)]


def _there(s: Any, leaves: list[Any]) -> Call:
    x, args, kw = moved((s.input, list(s.args), dict(s.kwargs)), leaves)
    device = torch.device(NAME)
    return x, args, {k: device if isinstance(v, torch.device) or k == "device" else v for k, v in kw.items()}


def _forms(op: Any, s: Any, call: Call, expected: Any) -> Iterator[tuple[str, Callable[[], None]]]:
    x, args, kw = call
    if op.inplace_variant is not None and not s.broadcasts_input and isinstance(x, torch.Tensor):
        wanted = outcome(_no_grad(lambda: op.inplace_variant(s.input.detach().clone(), *s.args, **s.kwargs)))

        def in_place() -> None:
            here = x.detach().clone()
            assert op.inplace_variant(here, *args, **kw) is here, "an in-place operation gave another tensor"
            compare(wanted, here)

        if not isinstance(wanted, Exception):  # this form is for the sample
            yield "in-place", _no_grad(in_place)
    if op.supports_out and isinstance(expected, torch.Tensor) and "out" not in s.kwargs:
        for make in (_plain_out, *_OTHER_OUTS):
            if make is _plain_out or op.name not in _WRITE_AMISS:
                check = "out=" if make is _plain_out else "out= otherwise"
                yield check, _no_grad(functools.partial(_with_out, op, s, call, expected, make))
    if any(t.numel() > 1 for t in tensors_of((s.input, s.args, s.kwargs))):
        # rows that are all the same make matrices singular
        for lay in (
            ()
            if op.name in _LAYOUTS_AMISS
            else (_with_gaps, _transposed, *([] if _RANK.search(op.name) else [_expanded]))
        ):
            yield "layouts", _no_grad(functools.partial(_laid_out, op, s, lay))


def _no_grad(f: Callable[[], Any]) -> Callable[[], Any]:
    def call() -> Any:
        with torch.no_grad():
            return f()

    return call


# ---- out=


def _plain_out(like: torch.Tensor, device: str) -> torch.Tensor:
    return torch.empty(like.shape, dtype=like.dtype, device=device)


def _smaller_out(like: torch.Tensor, device: str) -> torch.Tensor:
    return torch.empty(0, dtype=like.dtype, device=device)


def _larger_out(like: torch.Tensor, device: str) -> torch.Tensor:
    return torch.empty((*like.shape, 2), dtype=like.dtype, device=device)


def _apart_out(like: torch.Tensor, device: str) -> torch.Tensor:
    return torch.zeros((*like.shape, 2), dtype=like.dtype, device=device)[..., 1]


def _integer_out(like: torch.Tensor, device: str) -> torch.Tensor:
    return torch.empty(like.shape, dtype=torch.int32 if like.dtype is not torch.int32 else torch.int16, device=device)


def _float_out(like: torch.Tensor, device: str) -> torch.Tensor:
    return torch.empty(
        like.shape, dtype=torch.float32 if like.dtype is not torch.float32 else torch.complex64, device=device
    )


_OTHER_OUTS = (_smaller_out, _larger_out, _apart_out, _integer_out, _float_out)
#: PyTorch's own forms for the CPU leave an `out=` unwritten, or write past it
_WRITE_AMISS = {"fft.ihfftn", "fft.hfft2", "fft.hfftn", "fft.ihfft2"}
#: PyTorch's kernels for the CPU are wrong for what lies otherwise, refuse it, or give what was there by chance
_LAYOUTS_AMISS = {"masked.median", "native_group_norm", "resize_as_"}
_RANK = re.compile(r"linalg|lu|qr|svd|pca|chol|det|inverse|triangular|eig|lobpcg|lstsq|geqrf|solve|norm")


def _resized(seen: Any) -> bool:
    return any("was resized" in str(w.message) for w in seen)


def _with_out(op: Any, s: Any, call: Call, expected: Any, make: Any) -> None:
    """PyTorch's own result, strides, warning or error."""
    x, args, kw = call
    outs = make(expected, "cpu"), make(expected, NAME)
    asks = (lambda: op(s.input, *s.args, **s.kwargs, out=outs[0])), (lambda: op(x, *args, **kw, out=outs[1]))
    warned = []
    results = []
    for ask in asks:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            results.append(outcome(ask))
        warned.append(_resized(seen))
    wanted, found = results
    with _saying(make):
        if isinstance(wanted, Exception) and make in (_integer_out, _float_out) and found is outs[1]:
            compare(
                expected.to(found.dtype), found
            )  # converted, where PyTorch's kernel of the CPU takes its own type only
            return
        if _same_failure(wanted, found):
            return
        assert found is outs[1], "out= gave another tensor"
        # PyTorch's own kernels do not all look at how `out=` lies
        compare(expected if wanted.dtype is expected.dtype else wanted, found)
        if make is _apart_out:
            assert found.stride() == make(expected, "cpu").stride(), f"strides {found.stride()}"
        assert warned[1] or not warned[0], "no warning of a resize"


@contextlib.contextmanager
def _saying(what: Callable[..., Any]) -> Iterator[None]:
    try:
        yield
    except Exception as e:
        raise AssertionError(f"{what.__name__.strip('_')}: {said(e)}") from e


def _same_failure(wanted: Any, found: Any) -> bool:
    """Whether both are errors; an error on one side only, or of another type, is raised."""
    if isinstance(wanted, Exception):
        same_error(wanted, found)
        return True
    if isinstance(found, Exception):
        raise found
    return False


# ---- inputs laid out otherwise


def _with_gaps(t: torch.Tensor) -> torch.Tensor:
    apart = t.new_zeros((*t.shape[:-1], 2 * t.shape[-1] + 1))[..., 1::2]
    return apart.copy_(t)


def _transposed(t: torch.Tensor) -> torch.Tensor:
    return t.transpose(0, -1).contiguous().transpose(0, -1)


def _expanded(t: torch.Tensor) -> torch.Tensor:
    return t[:1].expand(t.shape)


def _laid_out(op: Any, s: Any, lay: Callable[[torch.Tensor], torch.Tensor]) -> None:
    def change(t: Any) -> Any:
        plain = isinstance(t, torch.Tensor) and t.dim() and t.numel() > 1 and t.layout is torch.strided
        return lay(t.detach()) if plain and not t.is_conj() and not t.is_neg() else t

    changed = copy.copy(s)
    changed.input, changed.args, changed.kwargs = tree_map(change, (s.input, tuple(s.args), dict(s.kwargs)))
    x, args, kw = _there(changed, [])
    state = torch.get_rng_state()
    wanted = outcome(lambda: op(changed.input, *changed.args, **changed.kwargs))
    if not torch.equal(state, torch.get_rng_state()):
        return
    found = outcome(lambda: op(x, *args, **kw))
    with _saying(lay):
        if not _same_failure(wanted, found) and not op.name.startswith(("empty", "new_empty")):
            _same(op, changed, wanted, found)


# ---- bad inputs


def _errors(op: Any, found: dict[str, str]) -> None:
    """Each of PyTorch's bad inputs: the same type of exception, and its words where PyTorch's table has them."""
    if op.error_inputs_func is None:
        return
    for e in op.error_inputs("cpu"):
        s = e.sample_input
        wanted = outcome(lambda s=s: op(s.input, *s.args, **s.kwargs))
        if not isinstance(wanted, Exception) or any(
            t.device.type != "cpu" for t in tensors_of((s.input, s.args, s.kwargs))
        ):
            continue
        try:
            x, args, kw = _there(s, [])
            got = outcome(lambda x=x, args=args, kw=kw: op(x, *args, **kw))
            same_error(wanted, got)
            if re.search(e.error_regex, str(wanted)) and not re.search(e.error_regex, str(got)):
                found.setdefault("messages", f"{said(got)[:250]}, not {said(wanted)[:250]}")
            found.setdefault("messages", "")
            found.setdefault("errors", "")
        except Exception as error:
            found["errors"] = said(error)

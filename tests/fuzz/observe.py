"""What a program can see of its world: every tensor reachable from its names, with its value, and which of them are the same
object or share memory. Plain Python over any `torch`."""

from __future__ import annotations

import math
import types
from collections.abc import Iterator
from typing import Any

_SKIPPED = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.ModuleType,
    type,
    types.GeneratorType,
)
_PLAIN = (int, float, complex, str, bytes, bool, type(None))


class World:
    """Names a program's objects in the order in which they are met, so that two runs of it can be laid side by side."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.objects: dict[int, int] = {}
        self.memories: dict[int, int] = {}
        self.alive: list[Any] = []

    def look(self, names: dict[str, Any]) -> dict[str, Any]:
        """path -> what is there."""
        self.objects.clear()
        self.memories.clear()
        self.alive.clear()
        found = dict(self._walk("", {k: v for k, v in names.items() if not k.startswith("_")}))
        self.alive.clear()
        return found

    def _first(self, x: Any) -> tuple[int, bool]:
        """The number of an object, and whether it is met for the first time."""
        known = self.objects.get(id(x))
        if known is not None:
            return known, False
        self.alive.append(x)
        self.objects[id(x)] = n = len(self.objects)
        return n, True

    def _walk(self, path: str, x: Any) -> Iterator[tuple[str, Any]]:
        torch = self.torch
        if isinstance(x, _PLAIN):
            yield path, x
        elif isinstance(x, torch.Tensor):
            n, first = self._first(x)
            yield path + " object", n
            if first:
                yield from self._tensor(path, x)
        elif isinstance(x, _SKIPPED) or type(x).__name__ in (
            *("dtype", "device", "Size", "Generator", "RemovableHandle"),
        ):
            return
        elif isinstance(x, torch.optim.Optimizer):
            n, first = self._first(x)
            yield path + " object", n
            if first:
                for i, group in enumerate(x.param_groups):
                    yield from self._walk(
                        f"{path}.param_groups[{i}]", {k: v for k, v in group.items() if k != "params"}
                    )
                for i, p in enumerate(p for group in x.param_groups for p in group["params"]):
                    if p in x.state:
                        yield from self._walk(f"{path}.state[{i}]", dict(x.state[p].items()))
        elif isinstance(x, torch.nn.Module):
            n, first = self._first(x)
            yield path + " object", n
            if first:
                own = vars(getattr(x, "_orig_mod", x))
                for part in ("_parameters", "_buffers", "_modules"):
                    for k in list(own[part]):
                        yield from self._walk(f"{path}.{k}", own[part][k])
                for k in [k for k in own if not k.startswith("_")]:
                    yield from self._walk(f"{path}.{k}", own[k])
        elif isinstance(x, dict):
            for i, (k, v) in enumerate(list(x.items())):
                if isinstance(k, str):
                    k = k.replace("_orig_mod.", "")  # as the keys of a compiled module's state begin
                yield from self._walk(f"{path}[{k!r}]" if isinstance(k, _PLAIN) else f"{path}[key {i}]", v)
        elif isinstance(x, (list, tuple)):
            yield path + " length", len(x)
            for i, v in enumerate(x):
                yield from self._walk(f"{path}[{i}]", v)
        elif hasattr(x, "__dict__"):
            n, first = self._first(x)
            yield path + " object", n
            if first:
                for k in [k for k in vars(x) if not k.startswith("_")]:
                    yield from self._walk(f"{path}.{k}", vars(x)[k])

    def _tensor(self, path: str, t: Any) -> Iterator[tuple[str, Any]]:
        yield path + " kind", (str(t.dtype), tuple(t.shape), t.requires_grad, t.is_leaf, t.is_conj(), t.is_neg())
        if t.layout is not self.torch.strided:
            yield path, t.to_dense().tolist()
            return
        yield path + " strides", (t.stride(), t.storage_offset())
        if not t.is_inference():
            yield path + " version", t._version
        pointer = t.untyped_storage().data_ptr()
        if pointer and t.numel():
            yield path + " memory", self.memories.setdefault(pointer, len(self.memories))
        if t.is_leaf and t.grad is not None:
            yield from self._walk(path + ".grad", t.grad)
        yield path, t.detach().tolist()


def _flat(x: Any) -> Iterator[Any]:
    if isinstance(x, list):
        for v in x:
            yield from _flat(v)
    else:
        yield x


def _close(a: Any, b: Any, rtol: float, atol: float) -> bool:
    if isinstance(a, (float, complex)) or isinstance(b, (float, complex)):
        if isinstance(a, complex) or isinstance(b, complex):
            return abs(a - b) <= atol + rtol * abs(b) or a == b
        if not isinstance(a, (int, float)) or not isinstance(b, (int, float)):
            return bool(a == b)
        if math.isnan(a) or math.isnan(b):
            return math.isnan(a) and math.isnan(b)
        return a == b or abs(a - b) <= atol + rtol * abs(b)
    return bool(a == b)


def differences(want: dict[str, Any], got: dict[str, Any], rtol: float = 2e-3, atol: float = 2e-5) -> list[str]:
    """What differs between two looks, `path: wanted, got`; numbers within the tolerance are equal."""
    out = []
    for path in [*want, *[p for p in got if p not in want]]:
        if path not in want or path not in got:
            out.append(
                f"{path}: only {'wanted' if path in want else 'got'}: {(want if path in want else got)[path]!r}"[:300]
            )
            continue
        a, b = want[path], got[path]
        if isinstance(a, list):
            x, y = list(_flat(a)), list(_flat(b))
            scale = max([abs(v) for v in x if isinstance(v, float) and math.isfinite(v)], default=0.0)
            alike = len(x) == len(y) and all(_close(v, u, rtol, atol + rtol * scale * 0.1) for v, u in zip(y, x))
        else:
            alike = a == b if type(a) is not float else _close(b, a, rtol, atol)
        if not alike:
            out.append(f"{path}: wanted {a!r}, got {b!r}"[:400])
    return out

"""Writing methods to a file: see docs/plan-files.md for what is in it."""

from __future__ import annotations

import json
import os
import random as chance
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any
from weakref import ref

import tabtorch as torch
from tabtorch import safetensors
from tabtorch.base import dtypes
from tabtorch.compiled.guards import Guards
from tabtorch.core.tensor import Tensor
from tabtorch.engine import graph
from tabtorch.ops.machinery import asserts
from tabtorch.ops.machinery.asserts import every_log
from tabtorch.plan_files.document import DeviceDocument, Shared, nbytes_of
from tabtorch.plan_files.methods import ExportError, Method, record, warm_up
from tabtorch.plan_files.naming import Names, begun, models_of, optimizers_of, outermost
from tabtorch.plan_files.paper import LIMITS, on_paper
from tabtorch.plan_files.trees import names as names_of
from tabtorch.plan_files.world import DEVICES, World, unwritten
from tabtorch.random import PhiloxGenerator
from tabtorch.version import __version__

VERSION = 1
KEY = "tabtorch.plan"
#: sizes with which a method is recorded first: no other sizes of a model are likely to be these
_FIRST = (61, 67, 71, 73, 79, 83, 89, 97)
#: sizes up to which a dim with no bound is asked for; larger ones are served where a plan for these serves them
UNBOUNDED = 2048
#: recordings of one method for one device, at most
MOST_VARIANTS = 48


class Dim:
    """A size that varies, with its bounds; both are part of it."""

    def __init__(self, name: str, low: int, high: int | None) -> None:
        self.name = name
        self.low = low
        self.high = high

    def json(self) -> dict[str, Any]:
        return {"min": self.low, "max": self.high}

    def candidates(self) -> list[int]:
        """Sizes to be served: the small ones, those about powers of two, some others, and the bounds."""
        high = self.high or UNBOUNDED
        found = {self.low, high, *range(self.low, min(high, 260) + 1)}
        for k in range(4, 17):
            found |= {2**k - 1, 2**k, 2**k + 1}
        seeded = chance.Random(self.name)
        found |= {seeded.randint(self.low, high) for _ in range(40)}
        return sorted(n for n in found if self.low <= n <= high)

    def first(self, k: int) -> int:
        n = _FIRST[k % len(_FIRST)]
        return min(max(n, self.low), self.high or n)


class Dims:
    """The dims of a file, and which sizes of which inputs they are."""

    def __init__(self, dynamic: Mapping[str, Any] | None, methods: Sequence[Method]) -> None:
        self.all: list[Dim] = []
        self.of: dict[tuple[str, int], int] = {}
        known = {name for m in methods for name in names_of(m.tree, "input").values()}
        for name, which in (dynamic or {}).items():
            if name not in known:
                raise ValueError(f"dynamic: no method has an input {name!r}; there are {', '.join(sorted(known))}")
            pairs = which.items() if isinstance(which, Mapping) else enumerate(which)
            for d, dim in pairs:
                if dim is not None:
                    self.of[name, d] = self._add(dim)
        for m in methods:
            for k, name in names_of(m.tree, "input").items():
                for d in [d for n, d in self.of if n == name]:
                    if not 0 <= d < m.tensors[k].dim():
                        raise ValueError(f"dynamic: {name!r} of {m.name} has no dimension {d}")

    def _add(self, dim: Any) -> int:
        name = dim if isinstance(dim, str) else getattr(dim, "__name__", None)
        if not isinstance(name, str):
            raise TypeError(f"dynamic: a dim is a name or a torch.export.Dim, not {dim!r}")
        low = getattr(dim, "min", None)
        high = getattr(dim, "max", None)
        new = Dim(name, low if isinstance(low, int) else 1, high if isinstance(high, int) and high < 2**31 else None)
        for k, own in enumerate(self.all):
            if own.name == name:
                if not isinstance(dim, str):
                    self.all[k] = new
                return k
        self.all.append(new)
        return len(self.all) - 1

    def sizes_of(self, m: Method) -> dict[tuple[int, int], int]:
        """(input, dimension) -> dim, of a method."""
        names = names_of(m.tree, "input")
        return {(k, d): self.of[n, d] for k, n in names.items() for d in range(m.tensors[k].dim()) if (n, d) in self.of}


class Exporter:
    """One file."""

    def __init__(self, methods: Sequence[Method], model: Any, optimizer: Any, dynamic: Any) -> None:
        self.methods = methods
        self.dims = Dims(dynamic, methods)
        self.model, self.optimizer = model, optimizer

    def documents(self, devices: Sequence[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """The plan, as JSON, and the tensors of the file."""
        graph.flush()
        added: list[tuple[Any, Any]] = []
        try:
            scopes = [m.guards() for m in self.methods]
            found = [o for s in scopes for o in s.optimizers]
            optimizers = optimizers_of(self.optimizer, {id(o): o for o in found}.values())
            for each in begun(optimizers.values()):
                added.append(each)
            scopes = [m.guards() for m in self.methods]
            return self._written(scopes, optimizers, devices)
        finally:
            for d, key in reversed(added):
                dict.pop(d, key, None)

    def _written(self, scopes: list[Guards], optimizers: Any, devices: Sequence[str]) -> tuple[Any, dict[str, Tensor]]:
        models = models_of(self.model)
        if not models:
            modules = outermost(x for s in scopes for x in s._seen.values())
            every = list({id(m): m for m in modules}.values())
            models = {"": every[0]} if len(every) == 1 else {f"model{k}.": m for k, m in enumerate(every)}
        names = Names(models, optimizers)
        logs = {id(t) for t in every_log()}
        for s in scopes:
            for t in s.tensors:
                if id(t) not in logs:
                    names.other(t)
        for s in scopes:
            for d, key in s.numbers:
                if (id(d), key) not in names.numbers:
                    names.number(d, key, f"number.{len(names.numbers)}", dict.get(d, key))
        shared = Shared({}, names.numbers)
        tensors = dict(names.tensors)
        whole: dict[str, Any] = {
            "version": VERSION,
            "made_by": f"tabtorch {__version__}",
            "dims": {d.name: d.json() for d in self.dims.all},
            "numbers": {name: names.values[name] for name in shared.number_names},
            "aliases": names.aliases,
            "requires": {},
            "kernels": {},
            "templates": {},
            "state": {},
            "methods": {m.name: self._method(m) for m in self.methods},
        }
        shared.first_constant = names._others
        for name in devices:
            self.names = names
            raw = self._on(name, scopes, names, shared, whole)
            tensors |= raw
        whole["generators"] = [_generator(g, k, tensors) for k, g in enumerate(shared.generators)]
        whole["asserts"] = {str(n): _told(site) for site, n in asserts._sites.items()}
        for (dtype, data), name in shared.constants.items():
            tensors[name] = _of_bytes(data, getattr(dtypes, dtype if dtype != "bool" else "bool_"))
        return whole, {k: _plain(t) for k, t in tensors.items()}

    def _method(self, m: Method) -> dict[str, Any]:
        names = names_of(m.tree, "input")
        dims = self.dims.sizes_of(m)
        inputs = []
        for k, t in enumerate(m.tensors):
            shape = [self.dims.all[dims[k, d]].name if (k, d) in dims else int(n) for d, n in enumerate(t.shape)]
            inputs.append({"name": names[k], "dtype": t.dtype.name, "shape": shape})
        return {"inputs": inputs, "tree": m.tree, "variants": {}}

    def _on(self, name: str, scopes: list[Guards], names: Names, shared: Shared, whole: dict) -> dict[str, Tensor]:
        """Records all methods for a device. Returns tensors that the file needs besides."""
        device = DEVICES[name]
        everyone = [*names.tensors.values(), *[t for s in scopes for t in s.tensors]]
        for t in [*everyone, *[t for m in self.methods for t in m.tensors]]:
            if device.lacks(t.dtype):
                raise ExportError(
                    f"a tensor of type {t.dtype.name} cannot be on {name}: export for devices=('cpu',) alone"
                )
        with on_paper() as (paper, keeper), World(scopes, everyone) as world, device:
            world.move(device)
            doc = DeviceDocument(name, device.number, paper, shared)
            leaves = [t for t in world.tensors if t._tab_grad_fn is None and t._tab_requires_grad]
            read: set[int] = set()
            for m in self.methods:
                read |= warm_up(m, world, keeper, leaves)
                world.rewind()
            grads = {}
            for p in leaves:
                if id(p) in read:
                    g = torch.zeros_like(p, requires_grad=False)
                    g._tab_storage.node = unwritten(g._tab_storage.node.inst.out)
                    grads[id(p)] = (p, g)
            for q in graph.all_queues():
                q.nodes.take()
            for m in self.methods:
                variants = self._variants(m, world, keeper, doc, grads, leaves)
                whole["methods"][m.name]["variants"][name] = variants
            logs = {id(t._tab_storage.root): t for t in every_log()}
            state, raw = _state(doc, names, grads, logs)
        whole["kernels"][name] = doc.kernels
        whole["templates"][name] = doc.templates
        whole["state"][name] = state
        if name == "webgpu":
            whole["requires"][name] = _required(doc, state)
        return raw

    def _variants(self, m: Method, world: World, keeper: Any, doc: Any, grads: Any, leaves: Any) -> list[Any]:
        """Recordings that serve all sizes within the bounds that are asked for."""
        dim_of = self.dims.sizes_of(m)
        mine = sorted(set(dim_of.values()))
        count = len(self.dims.all)
        variants: list[Any] = []
        failed: Exception | None = None
        names = doc.shared.number_names
        now = [self.names.values[n] for n in names]
        waiting: deque[tuple[dict[int, int], list[Any]]] = deque()
        wanted = self._wanted(mine)
        while True:
            if waiting:
                chosen, v = waiting.popleft()
            elif (following := next(wanted, None)) is not None:
                chosen, v = following, now
            else:
                break
            s = [chosen.get(k, 2) for k in range(count)]
            if any(doc.serves(x, s, v) for x in variants):
                continue
            if len(variants) >= MOST_VARIANTS and any(self.dims.all[k].high is None for k in mine):
                break  # the reader says which sizes it does not have
            if len(variants) >= MOST_VARIANTS:
                raise ExportError(f"{m.name} needs a plan of its own for too many sizes: bound its dims")
            shapes = [
                [chosen[dim_of[k, d]] if (k, d) in dim_of else n for d, n in enumerate(t.shape)]
                for k, t in enumerate(m.tensors)
            ]
            which = [w for w, k in dim_of.items() if chosen[k] > 1]
            fixed = {k: chosen[k] for k in mine if chosen[k] < 2}
            world.later = [
                (d, key, x)
                for name, x, own in zip(names, v, now, strict=True)
                if x is not own
                for d, key in self.names.where[name]
            ]
            world.rewind()
            try:
                got = record(m, world, keeper, shapes, which, grads, leaves)
            except ExportError:
                raise
            except Exception as e:  # sizes that the function does not take: it says so itself
                if not variants:
                    raise
                failed = e
                continue
            finally:
                world.later = []
                world.rewind()
            pinned = got.sizes.pinned() if got.sizes is not None else set()
            if pinned and not variants:
                self._constant(m, got, pinned, dim_of)
            new = doc.variant(m, got, dim_of, fixed)
            del got
            variants.append(new)
            if not doc.serves(new, s, v):
                raise ExportError(f"{m.name}: the plan for {self._said(chosen)} does not serve these sizes")
            if v is now:
                waiting += [(chosen, x) for x in _later(doc, new, s, v)]
        del failed
        for x in variants:
            del x["serves"], x["live"]
        return variants

    def _said(self, chosen: Mapping[int, int]) -> str:
        return ", ".join(f"{self.dims.all[k].name} = {n}" for k, n in chosen.items()) or "its sizes"

    def _constant(self, m: Method, got: Any, pinned: set[tuple[int, int]], dim_of: Mapping[Any, int]) -> None:
        names = names_of(m.tree, "input")
        told = ", ".join(f"{names[a]}.shape[{d}] ({self.dims.all[dim_of[a, d]].name})" for a, d in sorted(pinned))
        raise ExportError(f"{m.name} cannot be exported with these dims: its Python makes a constant of {told}")

    def _wanted(self, mine: Sequence[int]) -> Iterator[dict[int, int]]:
        dims = [self.dims.all[k] for k in mine]
        yield {k: d.first(i) for i, (k, d) in enumerate(zip(mine, dims, strict=True))}
        each = [d.candidates() for d in dims]
        if len(mine) == 1:
            for n in each[0]:
                yield {mine[0]: n}
            return
        few = [[n for n in c if n < 5 or n in (8, 17, 64, 100, 257, 1024)] for c in each]
        for ns in product(*few) if mine else ():
            yield dict(zip(mine, ns, strict=True))
        seeded = chance.Random(0)
        for _ in range(200 if mine else 0):
            yield {k: seeded.choice(c) for k, c in zip(mine, each, strict=True)}


def _later(doc: DeviceDocument, variant: dict[str, Any], s: list[int], now: list[Any]) -> Iterator[list[Any]]:
    """Numbers of later calls: of the next ones, and, where they count calls, of some far away."""
    v = now
    for _ in range(24):
        new = doc.after(variant, s, v)
        if new == v:
            return
        v = new
        yield v
    first = doc.after(variant, s, now)
    for calls in (100, 10_000, 2_000_000):
        yield [a + calls if b == a + 1 else b for a, b in zip(now, first, strict=True)]


def _required(doc: DeviceDocument, state: list[dict[str, Any]]) -> dict[str, int]:
    """The limits of an adapter on which the kernels run. The size of buffers is told for the recorded sizes."""
    most = max([e["nbytes"] for e in state], default=0)
    for t in doc.templates:
        most = max([most, *t["plan"]["outputs"].values(), *t["plan"]["temps"]])
    kept = {k: v for k, v in LIMITS.items() if k not in ("maxStorageBufferBindingSize", "maxBufferSize")}
    return kept | {"maxStorageBufferBindingSize": most, "maxBufferSize": most}


def _state(
    doc: DeviceDocument, names: Names, grads: Mapping[int, Any], logs: Mapping[int, Any]
) -> tuple[list[Any], Any]:
    """The places of a device, and tensors that have no name of PyTorch's."""
    by_root: dict[int, list[tuple[str, Tensor]]] = {}
    for name, t in names.tensors.items():
        by_root.setdefault(id(t._tab_storage.root), []).append((name, t))
    gradient = {id(g._tab_storage.root): p for p, g in grads.values()}
    found: list[Any] = []
    raw: dict[str, Tensor] = {}
    at = 0
    while at < len(doc.state):  # windows add their buffers
        x = doc.state[at]
        at += 1
        if isinstance(x, ref):
            b = x()
            if b is None:
                raise ExportError("memory of parameters was laid anew while methods were recorded")
            found.append({"nbytes": b.nbytes, "parts": []})
            continue
        entry: dict[str, Any] = {"nbytes": nbytes_of(x.node), "parts": []}
        b = x.node.buf
        if b.base is not None:
            entry["window"] = [doc.memory(b.base), b.offset]
        if id(x) in logs:
            entry["log"] = True
        elif id(x) in gradient:
            p = gradient[id(x)]
            entry["gradient"] = names.of[id(p)]
        for name, t in by_root.get(id(x), ()):
            m = t._tab_meta
            if not m.contiguous or m.mark:
                raise ExportError(f"{name} is not contiguous, and shares its memory")
            entry["parts"].append([name, m.offset * m.dtype.itemsize])
        found.append(entry)
    return found, raw


def _told(site: Any) -> list[str]:
    c = site.complaint
    return [c.text, c.below, f"{site.operation} at {os.path.basename(site.file)}:{site.line}"]


def _generator(g: Any, k: int, tensors: dict[str, Tensor]) -> dict[str, Any]:
    if isinstance(g, PhiloxGenerator):
        return {"philox": {"seed": str(g._seed), "offset": str(g._offset)}}
    data = graph.read(g._state(), 0, nbytes_of(g._state()))
    tensors[f"generator.{k}"] = _of_bytes(data, dtypes.int32)
    return {"mt19937": f"generator.{k}"}


def _of_bytes(data: bytes, dtype: Any) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)


def _plain(t: Tensor) -> Tensor:
    t = t.detach()
    return (
        t.clone(memory_format=torch.contiguous_format)
        if t._tab_storage.node.inst.out.numel != t.numel() or not t.is_contiguous()
        else t
    )


def save(
    path: Any,
    methods: Mapping[str, tuple[Callable[..., Any], Sequence[Any]]],
    *,
    model: Any = None,
    optimizer: Any = None,
    dynamic: Mapping[str, Any] | None = None,
    devices: Sequence[str] = ("webgpu", "cpu"),
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes methods to a safetensors file that runs without Python: {name: (function, example arguments)}.

    path: where to, or a binary file. model, optimizer: whose names the tensors have; by default those that the functions see, and where
    there are several, {name: model}. dynamic: sizes that may vary, {input: {dimension: name or torch.export.Dim}}.
    devices: for which of "webgpu" and "cpu". metadata: text that is kept along.

    Nothing is run. ExportError: what cannot be written, and the line of it.
    """
    if unknown := [d for d in devices if d not in DEVICES] or not devices:
        raise ValueError(f"devices are some of {', '.join(DEVICES)}, not {unknown if unknown is not True else devices}")
    if not methods:
        raise ValueError("there are no methods to save")
    every = [Method(name, *pair) for name, pair in methods.items()]
    whole, tensors = Exporter(every, model, optimizer, dynamic).documents(devices)
    texts = {**(metadata or {}), "format": "pt", KEY: json.dumps(whole, separators=(",", ":"), allow_nan=False)}
    if hasattr(path, "write"):
        path.write(safetensors.save(tensors, texts))
    else:
        safetensors.save_file(tensors, os.fspath(path), texts)

"""Running a file of plans on a device, from Python: what js/src/model does in a page.

A plan for the cpu is JavaScript, which the runtime runs: it is taken only where `device="cpu"` says so. One for a GPU is WGSL.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from tabtorch import safetensors
from tabtorch.base import dtypes
from tabtorch.base.device import default_device
from tabtorch.core.tensor import Tensor
from tabtorch.core.to_host import to_bytes
from tabtorch.engine import graph
from tabtorch.engine.graph import Buffer, blank, bridge
from tabtorch.engine.memory import largest
from tabtorch.engine.recipes import Check, Recipe, Step
from tabtorch.engine.temporaries import lay_out
from tabtorch.engine.view import contiguous_meta
from tabtorch.plan_files.checked import Checked, PlanFileError
from tabtorch.plan_files.save import KEY, VERSION
from tabtorch.plan_files.trees import built, flatten
from tabtorch.plan_files.world import DEVICES, on

_MASK = 2**32 - 1


def _recipe(spec: Mapping[str, Any], *given: str) -> Recipe:
    """What `json_of` wrote. Its numbers may be text: those that are not finite."""
    steps = []
    for op, a, *b in spec["steps"]:
        steps.append(Step(op, float(a) if isinstance(a, str) else a, *b))
    return Recipe(given, tuple(steps), tuple([Check(*t) for t in spec["tests"]]), tuple(spec["results"]))


class _Template:
    """A plan for any sizes, on this runtime."""

    def __init__(self, spec: Mapping[str, Any], kernels: Sequence[int]) -> None:
        steps = [s | {"kernel": kernels[s["kernel"]]} if "kernel" in s else s for s in spec["plan"]["steps"]]
        self.spec = spec["plan"] | {"steps": steps}
        self.device = self.spec["device"]
        self.slots = [int(k) for k in self.spec["outputs"]]
        self.lives, self.apart = spec["lives"], spec["apart"]
        self.recipe = _recipe(spec["recipe"], "s")
        self.id = 0
        self.bound: dict[tuple[int, ...], tuple[Any, list[int]]] = {}

    def at(self, values: tuple[int, ...]) -> tuple[Any, list[int]]:
        """What runs it for these sizes, and the bytes of its outputs."""
        found = self.bound.get(values)
        if found is None:
            numbers = self.recipe.values(values)
            first_temp = len(numbers) - len(self.lives)
            sizes = numbers[first_temp:]
            pieces, places = lay_out(self.lives, sizes, self.apart, largest(self.device))
            if not self.id:
                self.id = bridge().define_plan(self.spec)
            flat = [x for (piece, begin), n in zip(places, sizes, strict=True) for x in (piece, begin, n)]
            ident = bridge().bind_plan(self.id, [*numbers[:first_temp], *flat, *pieces], self.spec["work"])
            pack = bridge().run_packer(ident, self.spec["slots"], self.spec["scalars"])
            found = self.bound[values] = pack, numbers[first_temp - len(self.slots) : first_temp]
        return found

    def run(self, values: tuple[int, ...], inputs: Sequence[int], scalars: Sequence[Any]) -> dict[int, Buffer]:
        """Its outputs, by slot."""
        pack, sizes = self.at(values)
        ids = [*inputs, *[0] * (self.spec["slots"] - len(inputs))]
        made = {}
        for slot, nbytes in zip(self.slots, sizes, strict=True):
            b = made[slot] = Buffer(bridge().new_buffer(), nbytes, self.device)
            ids[slot] = b.id
        pack(*ids, *scalars)
        return made


class _Variant:
    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.spec = spec
        self.sizes = _recipe(spec["sizes"], "s")
        self.live = _recipe(spec["numbers"], "s", "v", "r")


class PlanMethod:
    """A method of a file: called with tensors, in the order or by the names of its inputs, it gives what the function gave."""

    def __init__(self, of: PlanFile, name: str, spec: Mapping[str, Any]) -> None:
        self._of = of
        self.name = name
        self.inputs = spec["inputs"]
        self._tree = spec["tree"]
        self._variants = [_Variant(v) for v in spec["variants"][of.device]]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        names = [k for k, t in self._tree["dict"].items() if "value" not in t]
        if len(args) > len(names) or set(kwargs) - set(names):
            raise TypeError(f"{self.name}() takes {', '.join(names)}")
        given = dict(zip(names, args)) | kwargs
        tensors: list[Tensor] = []
        for k in names:
            if k not in given:
                raise TypeError(f"{self.name}() lacks {k!r}")
            flatten(given[k], tensors)
        with graph.LOCK:
            return self._of._run(self, tensors)

    def sizes(self, tensors: Sequence[Tensor]) -> list[int]:
        """The dims of the file for these inputs; of those that they do not have, 2. ValueError for inputs of other types or shapes."""
        if len(tensors) != len(self.inputs):
            raise ValueError(f"{self.name} takes {len(self.inputs)} tensors, not {len(tensors)}")
        names = list(self._of.dims)
        found: dict[str, int] = {}
        for t, spec in zip(tensors, self.inputs, strict=True):
            if t.dtype.name != spec["dtype"] or t.dim() != len(spec["shape"]):
                raise ValueError(
                    f"{spec['name']} is {spec['dtype']} of shape {spec['shape']}, not {t.dtype.name} {list(t.shape)}"
                )
            for n, wanted in zip(t.shape, spec["shape"], strict=True):
                if isinstance(wanted, str):
                    wanted = found.setdefault(wanted, n)
                if n != wanted:
                    raise ValueError(f"{spec['name']} is of shape {spec['shape']}, not {list(t.shape)} (dims: {found})")
        return [found.get(name, 2) for name in names]


class PlanFile:
    """Methods of a file, as attributes, over its tensors. numbers: those that a page may set, such as `lr`. See `load`."""

    def __init__(self, whole: Mapping[str, Any], tensors: Mapping[str, Tensor], device: str) -> None:
        self.device = device
        self.dims: dict[str, Any] = whole["dims"]
        self.numbers: dict[str, Any] = dict(whole["numbers"])
        on_device = DEVICES[device]
        self._device = on_device
        kernels = [bridge().define_kernel(dict(k)) for k in whole["kernels"][device]]
        self._templates = [_Template(t, kernels) for t in whole["templates"][device]]
        self._tensors = tensors
        self._asserts = whole["asserts"]
        self._places = whole["state"][device]
        self._state = self._memory(self._places, on_device.number)
        self._constants: dict[tuple[str, int], Buffer] = {}
        self._generators: list[Any] = []
        for g in whole["generators"]:
            if "philox" in g:
                self._generators.append([int(g["philox"]["seed"]), int(g["philox"]["offset"])])
            else:
                self._generators.append(Buffer(bridge().upload(1, to_bytes(tensors[g["mt19937"]])), 0, 1))
        self.methods = {name: PlanMethod(self, name, m) for name, m in whole["methods"].items()}

    def __getattr__(self, name: str) -> PlanMethod:
        try:
            return self.__dict__["methods"][name]
        except KeyError:
            raise AttributeError(f"the file has no method {name!r}") from None

    def _memory(self, places: Sequence[Mapping[str, Any]], number: int) -> list[Buffer]:
        found: dict[int, Buffer] = {}
        for whole in (True, False):
            for k, p in enumerate(places):
                if ("window" not in p) is not whole:
                    continue
                if whole:
                    found[k] = Buffer(bridge().alloc(number, p["nbytes"]), p["nbytes"], number)
                else:
                    base, offset = p["window"]
                    ident = bridge().alias(found[base].id, offset, p["nbytes"])
                    found[k] = Buffer(ident, 0, number, found[base], offset)
                for name, offset in p["parts"]:
                    if data := to_bytes(self._tensors[name]):
                        bridge().write(found[k].id, offset, data)
        return [found[k] for k in range(len(places))]

    def state_dict(self) -> dict[str, Tensor]:
        """The tensors of the file as they are now, by name."""
        found = {}
        for p, b in zip(self._places, self._state, strict=True):
            for name, offset in p["parts"]:
                t = self._tensors[name]
                data = bridge().read(b.id, b.device, offset, t.nbytes)
                m = contiguous_meta(tuple(t.shape), t.dtype, self._device)
                found[name] = Tensor._wrap(graph.from_host(bytes(data), m), m)
        return found

    # ---- a call

    def _run(self, method: PlanMethod, given: Sequence[Tensor]) -> Any:
        s = method.sizes(given)
        v = list(self.numbers.values())
        variant, found, values = self._chosen(method, s, v)
        spec = variant.spec
        tensors = []
        for k, t in enumerate(given):
            t = t.detach().to(self._device)
            whole = t._tab_meta.whole and t._tab_storage.node.inst.out.numel == t._tab_meta.numel
            tensors.append(t.clone() if k in spec["written"] or not whole else t)
        inputs = [graph.buffer_of(t._tab_storage.node) for t in tensors]
        r = [self._next(k) for k in spec["words"]]
        numbers = variant.live.values(s, v, r)
        made: list[Buffer] = []
        new: list[dict[int, Buffer]] = []

        def buffer(source: Sequence[Any], device: int) -> Buffer:
            kind, k = source[0], source[1]
            if kind == "new":
                return new[k][source[2]]
            if kind == "constant":
                return self._constant(k, device)
            table: Any = {"state": self._state, "input": inputs, "ahead": made, "generator": self._generators}[kind]
            b: Buffer = table[k]
            return b

        def run(plan: Mapping[str, Any]) -> dict[int, Buffer]:
            t = self._templates[plan["template"]]
            first, count = plan["scalars"]
            ids = [buffer(x, t.device).id for x in plan["inputs"]]
            return t.run(tuple([found[k] for k in plan["values"]]), ids, numbers[first : first + count])

        for a in spec["ahead"]:
            if "draw" in a:
                (out,) = run(a["draw"]).values()
                made.append(out)
            else:
                nbytes = found[a["nbytes"]]
                made.append(Buffer(bridge().copy(a["device"], buffer(a["copy"], 0).id, nbytes), nbytes, a["device"]))
        for p in spec["plans"]:
            new.append(run(p))
        for (kind, k), a in spec["rebinds"]:
            if kind == "state":
                self._state[k] = made[a]
            else:
                inputs[k] = made[a]
        names = list(self.numbers)
        last = len(numbers) - len(spec["after"])
        for k, x in zip(spec["after"], numbers[last:], strict=True):
            self.numbers[names[k]] = x
        for k in spec["written"]:
            given[k].detach().copy_(tensors[k])
        self._look(spec)
        results = []
        for o in spec["outputs"]:
            shape = tuple([found[n] for n in o["shape"]])
            b = buffer(o["source"], self._device.number)
            m = on(self._device, contiguous_meta(shape, getattr(dtypes, _attribute(o["dtype"])), self._device))
            if b.device != m.device.number:
                m = contiguous_meta(shape, m.dtype, DEVICES["cpu" if b.device else "webgpu"])
            n = blank(m)
            n.buf = b
            results.append(Tensor._wrap(n, m))
        bridge().flush()
        return built(spec["tree"], results, [found[k] for k in spec["tree_sizes"]])

    def _chosen(self, method: PlanMethod, s: list[int], v: list[Any]) -> tuple[_Variant, list[int], Any]:
        """The first variant for these sizes and numbers."""
        said = ""
        for variant in method._variants:
            if not variant.sizes.holds(s):
                continue
            found = variant.sizes.values(s)
            plans = [*variant.spec["plans"], *[a["draw"] for a in variant.spec["ahead"] if "draw" in a]]
            each = [tuple([found[k] for k in p["values"]]) for p in plans]
            if not all(self._templates[p["template"]].recipe.holds(x) for p, x in zip(plans, each, strict=True)):
                continue
            if variant.live.holds(s, v, []):
                return variant, found, each
            said = f" with these numbers: {self.numbers}"
        sizes = ", ".join(
            f"{name} = {n} (from {d['min']} to {d['max'] or 'any'})" for (name, d), n in zip(self.dims.items(), s)
        )
        raise ValueError(f"{method.name} has no plan for {sizes or 'its inputs'}{said}")

    def _next(self, k: int) -> tuple[int, int, int, int]:
        """The words of a Philox generator, which moves on."""
        seed, at = self._generators[k]
        self._generators[k][1] = (at + 4) & (2**64 - 1)
        return seed & _MASK, seed >> 32, at & _MASK, at >> 32

    def _constant(self, name: str, device: int) -> Buffer:
        b = self._constants.get((name, device))
        if b is None:
            data = to_bytes(self._tensors[name])
            b = self._constants[name, device] = Buffer(bridge().upload(device, data), len(data), device)
        return b

    def _look(self, spec: Mapping[str, Any]) -> None:
        """Raises what an assert of the plans says: an index out of range."""
        for p in spec["plans"]:
            for kind, k, *_ in p["inputs"]:
                if kind != "state" or not self._places[k].get("log"):
                    continue
                b = self._state[k]
                number, value, most, place = struct.unpack("<4q", bridge().read(b.id, b.device, 0, 32))
                if number:
                    bridge().write(b.id, 0, bytes(32))
                    text, below, where = self._asserts[str(number)]
                    text = below if below and value < 0 else text
                    raise IndexError(f"{text.format(i=value, n=most + 1, k=place)} ({where})")


def _attribute(name: str) -> str:
    return "bool_" if name == "bool" else name


def load(path: Any, device: str | None = None) -> PlanFile:
    """The methods of a file that `save` wrote: path, URL, bytes, or a binary file. device: "webgpu" or "cpu"; by default webgpu, which
    has to be there. A plan for "cpu" is JavaScript that is run: ask for it only with files that you trust.

    PlanFileError: it is no such file, is damaged, or of a later version.
    """
    if hasattr(path, "read"):
        path = path.read()
    if isinstance(path, (bytes, bytearray, memoryview)):
        path = bytes(path)
        tensors = safetensors.load(path, "cpu")
        texts = json.loads(path[8 : 8 + int.from_bytes(path[:8], "little")]).get("__metadata__") or {}
    else:
        with safetensors.safe_open(path, "pt") as f:
            texts = f.metadata() or {}
        tensors = safetensors.load_file(path, "cpu")
    if KEY not in texts:
        raise PlanFileError(
            "this safetensors file has no plan: it was not written by tabtorch.export.save or tabtorch export"
        )
    try:
        whole = json.loads(texts[KEY])
    except (ValueError, RecursionError) as e:
        raise PlanFileError(f"the plan is damaged: {e}") from None
    if not isinstance(whole, dict) or type(whole.get("version")) is not int:
        raise PlanFileError("the plan is damaged: it has no version")
    if whole["version"] > VERSION:
        raise PlanFileError(
            f"the file is of version {whole['version']}, and this tabtorch reads up to {VERSION}: update tabtorch"
        )
    if device is None:
        device = default_device().type
        if device == "cpu":
            raise RuntimeError("there is no GPU: say device='cpu' to run the JavaScript of this file, if you trust it")
    if device not in DEVICES:
        raise ValueError(f"device is 'webgpu' or 'cpu', not {device!r}")
    Checked(whole, {name: t.nbytes for name, t in tensors.items()}, device).all()
    with graph.LOCK:
        return PlanFile(whole, tensors, device)

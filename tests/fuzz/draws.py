"""Draws random programs of views, writes and gradients, and runs them with real PyTorch as it goes.

Each step is drawn for the tensors that there are: mostly it means something, now and then it is wrong on purpose.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from math import prod
from typing import Any

import torch

from .steps import Program, Step, run_step

#: the dtype that most tensors of a program have
MAIN = ["float32"] * 12 + ["float64", "int64", "int32", "uint8", "bool", "complex64", "complex64", "float16"]
SHAPES: list[tuple[int, ...]] = [
    (), (1,), (2,), (4,), (6,), (0,), (3, 1), (1, 4), (2, 3), (3, 4), (4, 4), (2, 1, 3), (2, 3, 2), (1, 1), (2, 2, 2), (0, 3),
    (2, 0), (1, 3, 1, 2), (8,), (12,), (2, 6), (6, 2),
]  # fmt: skip
MOST = 14  # tensors of a program
LARGEST = 64  # elements of one


class Draw:
    """A program that is being drawn."""

    def __init__(self, seed: int, wide: bool = True) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.p = Program(torch, "cpu")
        self.wide = wide  # whether the device has float64
        self.steps: list[Step] = []
        self.results: list[Any] = []
        self.notes: list[dict[str, Any]] = []
        self.sizes: dict[int, int] = {}  # of storages when they were first seen, in bytes
        self.first: dict[int, bool] = {}  # whether a storage held floats when it was first seen
        self.tainted: set[int] = set()  # storages whose values PyTorch does not define
        self.grads_tainted = False
        self.leaves_tainted = False
        self.split_unsafely: set[int] = set()  # storages whose parts count versions of their own
        self.gradients: set[int] = (
            set()
        )  # storages that backward made, or that tensors were moved between: whose versions are not compared
        self.main = self.pick(MAIN)
        if not wide and self.main == "float64":
            self.main = "float32"

    # ---- chance

    def pick(self, options: Any) -> Any:
        return options[self.rng.randrange(len(options))]

    def chance(self, percent: float) -> bool:
        return self.rng.random() * 100 < percent

    def up_to(self, n: int) -> int:
        return self.rng.randint(0, n)

    # ---- tensors

    @property
    def tensors(self) -> list[Any]:
        return self.p.tensors

    def any(self) -> int:
        n = len(self.tensors)
        return n - 1 - self.up_to(min(n, 4) - 1) if self.chance(50) else self.rng.randrange(n)

    def of(self, fits: Callable[[Any], bool]) -> int | None:
        found = [i for i, t in enumerate(self.tensors) if fits(t)]
        return self.pick(found) if found else None

    # ---- arguments

    def dim(self, t: Any, more: int = 0) -> int:
        n = max(t.dim() + more, 1)
        if self.chance(2):
            return self.pick([-n - 1, n, n + 1])
        return self.rng.randrange(-n, n)

    def dims(self, t: Any) -> list[int]:
        order = list(range(t.dim()))
        self.rng.shuffle(order)
        if self.chance(3):
            order = order[:-1] or [0, 0]
        return [d - t.dim() if self.chance(20) else d for d in order]

    def some_dims(self, t: Any) -> list[int]:
        return self.rng.sample(range(t.dim()), self.up_to(t.dim())) if t.dim() else []

    def factors(self, n: int) -> list[int]:
        """A shape of n elements."""
        if n == 0:
            return self.pick([[0], [0, 2], [3, 0], [1, 0]])
        shape = []
        while n > 1 and len(shape) < 4:
            f = self.pick([k for k in range(1, n + 1) if n % k == 0])
            shape.append(f)
            n //= f
        shape += [n] if n > 1 else []
        if self.chance(25):
            shape.insert(self.up_to(len(shape)), 1)
        return shape

    def shape_for(self, t: Any) -> list[int]:
        shape = self.factors(t.numel())
        if self.chance(25) and shape:
            shape[self.rng.randrange(len(shape))] = -1
        if self.chance(4):
            shape.append(2)
        return shape

    def ints(self, shape: Any) -> list[Any]:
        """A tuple or list of them, or each an argument."""
        how = self.up_to(2)
        if how == 0 and shape:
            return list(shape)
        return [["tuple" if how == 1 else "list", *shape]]

    def number(self, t: Any) -> Any:
        if t.dtype is torch.bool:
            return self.pick([True, False, 0, 1])
        if t.is_complex() and self.chance(50):
            return ["complex", self.pick([0.5, 1.0, -1.0]), self.pick([0.0, 0.5, -2.0])]
        if not t.is_floating_point() and not t.is_complex():
            return self.pick([0, 1, 2, 3, 5 if t.dtype is torch.uint8 else -1]) if self.chance(90) else 0.5
        return self.pick([0, 1, 2, -1, 0.5, -0.25, 1.5])

    def new(self, shape: Any, dtype: str | None = None, requires_grad: bool = False, values: Any = None) -> int:
        """The number of a new tensor; the step that makes it comes before the one that is being drawn."""
        dtype = dtype or self.main
        n = prod(shape)
        if values is None:
            if dtype == "bool":
                values = [self.chance(50) for _ in range(n)]
            elif dtype.startswith("complex"):
                values = [[self.rng.randint(-8, 8) / 4, self.rng.randint(-8, 8) / 4] for _ in range(n)]
            elif dtype.startswith("float"):
                values = [self.rng.randint(-12, 12) / 4 for _ in range(n)]
            elif dtype == "uint8":
                values = [self.rng.randint(0, 9) for _ in range(n)]
            else:
                values = [self.rng.randint(-9, 9) for _ in range(n)]
        kw: dict[str, Any] = {}
        if requires_grad and not torch.is_inference_mode_enabled():
            kw["requires_grad"] = True
        if len(shape) > 1 and self.chance(20):
            kw["order"] = ["data", self.rng.sample(range(len(shape)), len(shape))]
        self.do(["new", "", [["data", values], ["data", list(shape)], ["dtype", dtype]], kw])
        return len(self.tensors) - 1

    def index_values(self, shape: Any, size: int, low: bool = True, unique: bool = False) -> int:
        """The number of a new tensor of indices into a dimension of `size`."""
        n = prod(shape)
        if unique and n <= size:
            values = self.rng.sample(range(size), n)
        else:
            values = [self.rng.randrange(size) if size else 0 for _ in range(n)]
        if low and not unique and size:
            values = [v - size if self.chance(15) else v for v in values]
        return self.new(shape, "int64", values=values)

    def operand(self, t: Any, numbers: bool = True) -> Any:
        """What can stand beside `t`: a number, or a tensor that broadcasts to it."""
        if numbers and self.chance(40):
            return self.number(t)
        if self.chance(8):
            return ["T", self.any()]
        want = tuple(t.shape)
        if self.chance(60):
            i = self.of(lambda u: broadcasts(tuple(u.shape), want) and (u.dtype is t.dtype or self.chance(10)))
            if i is not None:
                return ["T", i]
        shape = [1 if self.chance(15) else n for n in want]
        shape = shape[self.up_to(len(shape)) :] if self.chance(20) else shape
        dtype = str(t.dtype)[6:] if self.chance(92) else self.pick(["float32", "int64", "bool"])
        return ["T", self.new(shape, dtype, requires_grad=self.chance(8) and dtype in GRADS)]

    def like(self, t: Any, shape: Any = None) -> Any:
        """A tensor of exactly that shape and the dtype of `t`."""
        want = tuple(t.shape if shape is None else shape)
        if self.chance(50):
            i = self.of(lambda u: tuple(u.shape) == want and u.dtype is t.dtype)
            if i is not None:
                return ["T", i]
        return ["T", self.new(want, str(t.dtype)[6:])]

    def mask(self, t: Any, shape: Any = None) -> Any:
        shape = list(t.shape if shape is None else shape)
        i = self.of(lambda u: u.dtype is torch.bool and list(u.shape) == shape) if self.chance(30) else None
        return ["T", self.new(shape, "bool") if i is None else i]

    def part(self, n: int) -> Any:
        """A part of a basic index into a dimension of n."""
        c = self.up_to(9)
        if c < 3:
            if self.chance(3):
                return n
            return self.rng.randrange(-n, n) if n else 0
        if c < 8:
            a = self.pick([None, 0, 1, -1, -2, n // 2])
            b = self.pick([None, None, n, -1, n // 2 + 1])
            step = self.pick([None, None, 1, 2, 3])
            return ["slice", a, b, step]
        return ["slice", None, None, None]

    def index(self, t: Any) -> Any:
        """A basic index."""
        parts: list[Any] = [self.part(n) for n in t.shape[: self.up_to(t.dim())]]
        if self.chance(12):
            parts.insert(self.up_to(len(parts)), None)
        if self.chance(15):
            at = self.up_to(len(parts))
            rest = (
                [self.part(t.shape[-1])]
                if t.dim() > len([q for q in parts if q is not None]) and self.chance(60)
                else []
            )
            parts = [*parts[:at], ["..."], *parts[at:], *rest]
        if self.chance(1):
            parts += [0] * 3
        if len(parts) == 1 and self.chance(70):
            return parts[0]
        return ["tuple", *parts] if parts else self.pick([["..."], ["slice", None, None, None], None, ["tuple"]])

    def fancy(self, t: Any) -> Any:
        """An index with tensors, lists or masks."""
        c = self.up_to(5)
        if c == 0 and not self.is_tainted(t):
            return self.mask(t)
        if c == 1 and t.dim():
            return self.mask(t, t.shape[:1])
        if not t.dim():
            return self.pick([["..."], ["tuple"], None, True, False])
        n = t.shape[0]
        if c == 2:
            return ["list", *[self.rng.randrange(n) if n else 0 for _ in range(self.rng.randint(1, 3))]]
        first = ["T", self.index_values(self.pick([(2,), (3,), (2, 2), ()]), n)]
        if c == 3 or t.dim() == 1:
            return first
        parts: list[Any] = [first, self.part(t.shape[1])]
        if self.chance(40):
            parts[1] = ["T", self.index_values((2,), t.shape[1])]
        if self.chance(30):
            parts = [self.part(t.shape[0]), ["T", self.index_values((2,), t.shape[1])]]
        if self.chance(15):
            parts.insert(self.up_to(2), None)
        return ["tuple", *parts]

    # ---- what PyTorch does not define

    def storage(self, t: Any) -> int:
        return int(t.untyped_storage()._cdata)

    def is_tainted(self, t: Any) -> bool:
        return self.storage(t) in self.tainted

    def places(self, t: Any) -> set[int]:
        """The bytes, in units of elements, that a tensor shows."""
        found = {t.storage_offset()}
        if not t.numel():
            return set()
        for n, s in zip(t.shape, t.stride()):
            found = {a + k * s for a in found for k in range(n)}
        size = t.element_size()
        return {a * size + b for a in found for b in range(size)} if size > 1 else found

    def overlaps_itself(self, t: Any) -> bool:
        return len(self.places(t)) < t.numel() * t.element_size()

    def apart(self, t: Any) -> bool:
        """Whether no other tensor shows its memory, nor itself twice: so that it may be made larger."""
        alone = all(u is t or self.storage(u) != self.storage(t) for u in self.tensors)
        return alone and not self.overlaps_itself(t)

    def meet(self, t: Any, u: Any, pointwise: bool) -> bool:
        """Whether writing to `t` while `u` is read depends on the order in which elements are taken."""
        if u is t or self.storage(t) != self.storage(u):
            return u is t and not pointwise
        if pointwise and all(f(t) == f(u) for f in (_shape, _strides, _offset, _type)):
            return False
        return bool(self.places(t) & self.places(u))

    # ---- steps

    def do(self, step: Step, **note: Any) -> Any:
        """Runs a step. note:

        writes: the tensor that it writes to; pointwise: each element depends only on those at its own place; fills: all
        elements get one value; rereads: the tensor is read elsewhere than it is written; heals: nothing undefined is left.
        """
        used = [self.tensors[i] for i in tensors_in(step)]
        taint = any(self.is_tainted(t) for t in used)
        if step[0] == "backward" and taint:  # what it adds to the leaves comes through those
            self.leaves_tainted = True
            self.tainted.update(self.gradients)
        taint = taint or (self.leaves_tainted and step[:2] == ["get", "grad"])
        target = None
        if "writes" in note:
            target = self.tensors[note["writes"]]
            outside = target.is_inference() and not torch.is_inference_mode_enabled()
            if outside and (step[1] != "zero_" or target.requires_grad):  # which of two errors comes first is not said
                return ["left out"]
            if self.storage(target) in self.gradients and target._is_view():  # which it may be or not
                return ["left out"]
            # such a write is hidden from the mask's versions: a gradient that saved the mask looks for its places again,
            # in PyTorch, and finds others
            if target.dtype == torch.bool and self.storage(target) in self.split_unsafely:
                raise Spoiled
            taint = taint or (not note.get("fills") and self.overlaps_itself(target))
            pointwise = note.get("pointwise", True)
            others = [t for t in used if t is not target]
            taint = taint or any(self.meet(target, t, pointwise) for t in others)
            if not pointwise and (note.get("rereads") or len(used) - len(others) > 1):
                taint = True
        grows = step[1] in ("resize_", "set_")
        if grows:
            target = used[0]
        before = len(self.tensors)
        shapes = [t.shape for t in used] if step[0] == "method" else []
        result = run_step(self.p, step)
        reshaped = any(t.shape != s for t, s in zip(used, shapes))
        if reshaped and (result[0] == "error" or step[1] not in GEOMETRY):
            raise Spoiled
        if result[0] == "error" and "INTERNAL ASSERT" in result[2]:
            raise Spoiled
        if result[0] == "error" and any(word in result[2] for word in LATER) and step[0] in ("backward", "grad"):
            raise Spoiled
        if result[0] == "error" and any(word in result[2] for word in UNSUPPORTED):
            if "out" in step[3]:  # it may have been made larger before
                raise Spoiled
            return result
        if result[0] == "error" and "of its base has been modified" in result[2] and self.fails_anyhow(step):
            return result
        self.steps.append(step)
        self.results.append(result)
        self.notes.append(note)
        if result[0] != "ok":
            if step[0] in ("backward", "grad"):  # how far it came is not said
                self.tainted.update(self.gradients)
                self.grads_tainted = True
            if (
                result[0] == "error" and "Inplace update to inference tensor" in result[2]
            ):  # PyTorch says so when it has written
                self.tainted.add(self.storage(used[0] if target is None else target))
            return result
        if grows and target is not None:
            taint = taint or self.grown(target)
        elif "out" in step[3] and target is not None:  # what shared its memory may have been read as it was written
            taint = taint or (self.grown(target) and not self.apart(target))
        if taint:
            for t in [*self.tensors[before:], *([] if target is None else [target])]:
                self.tainted.add(self.storage(t))
            self.grads_tainted = True
        if note.get("heals") and target is not None:
            self.tainted.discard(self.storage(target))
        if step[1].startswith("unsafe_"):
            self.split_unsafely.update(map(self.storage, used))
        if step[0] == "grad" or step[1] == "grad":
            self.gradients.update(self.storage(t) for t in self.tensors[before:])
        if step[1] in ("data", "set_"):
            self.gradients.update(self.storage(t) for t in used)
        inexact = any(self.bits(t) for t in used)
        for t in self.tensors:
            self.first.setdefault(self.storage(t), inexact or t.is_floating_point() or t.is_complex())
            self.sizes.setdefault(self.storage(t), t.untyped_storage().nbytes())
        return result

    def fails_anyhow(self, step: Step) -> bool:
        """Whether a step that fails for the history of a tensor fails without it, too: which error comes first is not said."""
        apart = Program(torch, "cpu")
        apart.tensors = [t.detach().clone() for t in self.tensors]
        with torch.no_grad():
            return bool(run_step(apart, step)[0] == "error")

    def bits(self, t: Any) -> bool:
        """Whether it shows floats, which are near enough and not the same, as integers."""
        return self.first.get(self.storage(t), False) and not (t.is_floating_point() or t.is_complex())

    def loose(self, t: Any) -> bool:
        """Whether it shows parts, or bits, of complex numbers that are not finite: in which part is not said."""
        mine = [u.detach() for u in self.tensors if self.storage(u) == self.storage(t)]
        return any(u.is_complex() for u in mine) and not t.is_complex() and not all(map(finite, mine))

    def grown(self, t: Any) -> bool:
        """Whether the storage is longer than it was: what is new is not defined."""
        key, n = self.storage(t), t.untyped_storage().nbytes()
        return self.sizes.get(key, n) < n


def finite(t: Any) -> bool:
    return not (t.is_floating_point() or t.is_complex()) or bool(torch.isfinite(t).all())


def _shape(t: Any) -> Any:
    return t.shape


def _strides(t: Any) -> Any:
    return t.stride()


def _offset(t: Any) -> Any:
    return t.storage_offset()


def _type(t: Any) -> Any:
    return t.dtype


class Spoiled(Exception):
    """A step that is left out has changed something all the same."""


#: methods that change the shape of what they are called on
GEOMETRY = (
    "resize_", "set_", "t_", "transpose_", "swapdims_", "swapaxes_", "squeeze_", "unsqueeze_", "as_strided_",
)  # fmt: skip

#: which kernels have which dtypes is asked of every operator elsewhere: such a step is left out
UNSUPPORTED = (
    "not implemented for", "not supported for", "could not infer output dtype", "not implemented on", "inputs not supported",
    "for outputs with complex dtype", "unexpected error", "Could this error message be improved", "not implemented on",
    "floor_divide", "set_ is not implemented", "self indexing axis dim should be positive", "ZeroTensors are immutable",
)  # fmt: skip

#: of an index that has been written to since, which a device finds when it is read; of a gradient that PyTorch loses
LATER = (
    "out of bounds for", "tensors used as indices must be", "broadcast to indexing result", "invalid storage offset",
)  # fmt: skip

GRADS = ("float32", "float64", "float16", "complex64")


def tensors_in(step: Any) -> list[int]:
    if type(step) is list and len(step) == 2 and step[0] == "T":
        return [step[1]]
    if type(step) is list:
        return [i for s in step for i in tensors_in(s)]
    if type(step) is dict:
        return [i for s in step.values() for i in tensors_in(s)]
    return []


def broadcasts(shape: tuple[int, ...], want: tuple[int, ...]) -> bool:
    return len(shape) <= len(want) and all(a in (1, b) for a, b in zip(reversed(shape), reversed(want)))


def draw(seed: int, wide: bool = True) -> Draw:
    """The program of a seed, run with PyTorch. wide: with float64."""
    g = Draw(seed, wide)
    try:
        _draw(g)
    except Spoiled:
        g.p.close()
        g = replay(seed, [*g.steps, ["probe", "", [], {}]], [*g.notes, {}])
    return g


def _draw(g: Draw) -> None:
    from .moves import MOVES

    threads = g.rng.randint(1, 3)
    for _ in range(threads):
        shape = g.pick(SHAPES)
        dtype = g.main if g.chance(90) else g.pick(["float32", "int64", "bool", "uint8"])
        wants = dtype in GRADS and g.chance(55)
        i = g.new(shape, dtype, requires_grad=wants)
        if wants and g.chance(75):  # most writes are not to leaves
            g.do(["method", "mul", [["T", i], 1], {}])
    kinds, weights = zip(*MOVES)
    for _ in range(g.rng.randint(3, 16)):
        if len(g.tensors) >= MOST:
            break
        move = g.rng.choices(kinds, weights)[0]
        i = g.any()
        t = g.tensors[i]
        if t.numel() <= LARGEST and t.dim() < 6:
            move(g, i, t)
    while g.p.modes:
        g.do(["leave", "", [], {}])
    if g.chance(75):
        ends(g)
    g.do(["probe", "", [], {}])
    g.p.close()


def ends(g: Draw) -> None:
    """A loss of all that has a gradient, and what comes of it."""
    live = [i for i, t in enumerate(g.tensors) if wants_grad(t)]
    if g.chance(30):
        live = [i for i in live if g.chance(70)]
    leaves = [i for i in live if g.tensors[i].requires_grad and leaf(g.tensors[i])]
    if not live:
        return
    if leaves and g.chance(30):
        out = ["list", *([["T", i] for i in live if i not in leaves] or [["T", live[0]]])]
        ins = ["list", *[["T", i] for i in leaves]]
        kw: dict[str, Any] = {"allow_unused": True}
        if g.chance(30):
            kw["create_graph"] = True
        n = len(g.tensors)
        g.do(["grad", "", [out, ins], kw])
        again = [i for i in range(n, len(g.tensors)) if wants_grad(g.tensors[i])]
        if "create_graph" in kw and again and g.chance(70):
            g.do(["grad", "", [["list", *[["T", i] for i in again]], ins], {"allow_unused": True}])
    else:
        kw = {"retain_graph": True} if g.chance(10) else {}
        if g.do(["backward", "", [["list", *[["T", i] for i in live]]], kw])[0] == "error":
            return  # how far it came is not said
        for i in leaves:
            g.do(["get", "grad", [["T", i]], {}])
        if g.chance(10):
            g.do(["backward", "", [["list", *[["T", i] for i in live]]], {}])
    if g.chance(20):  # writes after backward
        i = g.any()
        g.do(["method", "zero_", [["T", i]], {}], writes=i, fills=True)


def wants_grad(t: Any) -> bool:
    return bool(t.requires_grad)


def leaf(t: Any) -> bool:
    try:
        return bool(t.is_leaf)
    except RuntimeError:
        return False


def replay(seed: int, steps: list[Step], notes: list[dict[str, Any]]) -> Draw:
    """Other steps, run with PyTorch."""
    g = Draw(seed)
    for step, note in zip(steps, notes, strict=True):
        g.do(step, **note)
    g.p.close()
    return g


def without(g: Draw, k: int) -> tuple[list[Step], list[dict[str, Any]]]:
    """The steps but for number k and those that use what it made; tensors are numbered anew."""
    gone: set[int] = set()
    number: dict[int, int] = {}
    steps, notes = [], []
    made = 0
    for j, (step, note, result) in enumerate(zip(g.steps, g.notes, g.results, strict=True)):
        products = new_in(result)
        if j == k or any(i in gone for i in tensors_in(step)):
            gone.update(products)
            continue
        for i in products:
            number[i] = made
            made += 1
        steps.append(renumbered(step, number))
        notes.append({**note, "writes": number[note["writes"]]} if "writes" in note else note)
    return steps, notes


def new_in(result: Any) -> list[int]:
    if type(result) is not list or not result:
        return []
    if result[0] == "new":
        return [result[1]]
    return [i for r in result[1:] for i in new_in(r)] if result[0] in ("ok", "several") else []


def renumbered(step: Any, number: dict[int, int]) -> Any:
    if type(step) is list and len(step) == 2 and step[0] == "T":
        return ["T", number[step[1]]]
    if type(step) is list:
        return [renumbered(s, number) for s in step]
    if type(step) is dict:
        return {k: renumbered(s, number) for k, s in step.items()}
    return step

"""A kernel while it is written: parameters, bindings, loads and stores, statements.

No size stands in the text. A kernel asks for each size, stride, offset or scalar by the role it plays (`Kernel.dim`,
`Kernel.scalar`) and gets a parameter word; what the word holds belongs to the launch. So two launches that differ only in
sizes share one pipeline.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .expr import Complex, Expr, const, fit, variable
from .render import renderer_of
from .steps import Access, Binding, BufferKey, Patch, ScalarKey
from .target import target
from .view import CONJ, NEG

if TYPE_CHECKING:
    from .repeats import Moved

U0 = const(0, "u32")


class Ref:
    """A buffer that a launch binds, seen as elements of a dtype, and with the mark of a view."""

    __slots__ = ("dtype", "key", "mark")

    def __init__(self, key: BufferKey, dtype: Any, mark: int = 0) -> None:
        self.key = key
        self.dtype = dtype
        self.mark = mark


def shown(v: Any, dtype: Any, mark: int) -> Any:
    """What a view with that mark shows of an element."""
    if mark & CONJ:
        v = Complex(v.re, -v.im)
    return fit(-v, dtype.name) if mark & NEG else v


class Kernel:
    """One kernel being written for the device with that number, with the launch data of this use of it."""

    def __init__(self, device: int, name: str) -> None:
        self.device = device
        self.name = name
        self.r: Any = renderer_of(device)()
        t = target(device)
        if t.exact or t.fused:
            self.r.prelude = self.r.exact_prelude if t.exact else self.r.fused_prelude
        self.words: list[int] = []
        self.patches: list[Patch] = []
        self.roles: dict[Any, int] = {}
        self.bindings: list[Binding] = []
        self.names: dict[tuple[BufferKey, str], str] = {}
        self.atomics: set[str] = set()
        self.globals: list[str] = []
        self.arrays: list[tuple[str, str]] = []  # (name, type) of those that a workgroup shares
        self.taken = 0  # so many of them by the part that is being written
        self.workgroup = (64, 1, 1)
        self.constants: dict[str, float] = {}
        #: while it is watched: of each buffer that is read the dtype as which, or None if not at element `i` alone, see map_kernel
        self.watched: dict[BufferKey, Any] | None = None
        #: buffers of which four neighbours are read at once; the variable that is one of them, the first, and which it is
        self.vectors: set[BufferKey] = set()
        self.lane = "", U0, 0
        #: whether it asks for its thread's place in its subgroup (`sgi`) and the size of that (`sgs`)
        self.subgroups = False
        #: directives that its text begins with
        self.directives: list[str] = []
        #: another text that does the same, bit for bit, and compiles sooner: it runs until the first one is compiled
        self.baseline: str | None = None
        #: in a part that was written for a group which another one is like: whose buffers and scalars it is for, see repeats.py
        self.moved: Moved | None = None

    def part(self) -> None:
        """Begins a part that has nothing to do with what was written so far, see share.py."""
        self.roles = {}
        self.taken = 0

    def shared_array(self, type: str) -> str:
        """The name of an array with an element for each thread of a workgroup. Parts of a kernel use the same ones."""
        for j in range(self.taken, len(self.arrays)):
            if self.arrays[j][1] == type:
                self.arrays[self.taken], self.arrays[j] = self.arrays[j], self.arrays[self.taken]
                break
        else:
            name = f"sh{len(self.arrays)}"
            self.globals.append(f"var<workgroup> {name}: array<{type}, {self.workgroup[0]}>;")
            self.arrays.insert(self.taken, (name, type))
        self.taken += 1
        return self.arrays[self.taken - 1][0]

    # ---- parameters

    def dim(self, value: int, role: Any = None) -> Expr:
        """A size, stride or offset as a u32 parameter. Equal roles share a word."""
        if role is not None and role in self.roles:
            return Expr("param", "u32", (), self.roles[role])
        w = len(self.words)
        self.words.append(value & 0xFFFFFFFF)
        if role is not None:
            self.roles[role] = w
        return Expr("param", "u32", (), w)

    def scalar(self, key: tuple[int, int], type: str) -> Any:
        """The scalar `key` = (position of the node, which); a complex one takes two."""
        if type in ("c64", "c128"):
            t = "f32" if type == "c64" else "f64"
            return Complex(self._scalar(ScalarKey(*key, "re"), t), self._scalar(ScalarKey(*key, "im"), t))
        return self._scalar(ScalarKey(*key), type)

    def _scalar(self, key: ScalarKey, type: str) -> Expr:
        if self.moved is not None:
            key = self.moved.scalar(key)
        role = ("scalar", key)
        if role not in self.roles:
            wide = type in ("i64", "f64")
            if wide and len(self.words) % 2:
                self.words.append(0)
            w = len(self.words)
            self.words.extend([0, 0] if wide else [0])
            self.roles[role] = w
            self.patches.append(Patch(w, key, type))
        return Expr("param", type, (), self.roles[role])

    def offset(self, key: tuple[int, int]) -> Expr:
        """Where view `key` = (position of the node, which of its views) begins: a scalar of the node."""
        role = ("begin", key)
        if role not in self.roles:
            self.roles[role] = len(self.words)
            begin = ScalarKey(*key, "begin")
            self.patches.append(
                Patch(len(self.words), begin if self.moved is None else self.moved.scalar(begin), "u32")
            )
            self.words.append(0)
        return Expr("param", "u32", (), self.roles[role])

    # ---- buffers

    def bind(self, ref: Ref, access: Access = "r") -> str:
        """The name of a buffer in the text."""
        el = self.r.element_type(ref.dtype)
        key = ref.key if self.moved is None else self.moved.buffers[ref.key]
        n = self.names.get((key, el))
        if n is None:
            for j, b in enumerate(self.bindings):
                if b.key == key and (access != "r" or b.access != "r"):
                    raise AssertionError(f"{self.name}: {key} is bound {j} as another type and written")
            n = self.names[key, el] = f"b{len(self.bindings)}"
            self.bindings.append(Binding(key, el, access))
        elif access == "rw":
            j = int(n[1:])
            self.bindings[j] = Binding(key, el, "rw")
        return n

    def bind_vector(self, ref: Ref, access: Access = "r") -> str:
        """The name of a buffer of 32-bit elements seen in vectors of four (webgpu), which begin at multiples of four."""
        el = f"vec4<{self.r.element_type(ref.dtype)}>"
        key = ref.key if self.moved is None else self.moved.buffers[ref.key]
        k = (key, el)
        if k not in self.names:
            self.names[k] = f"b{len(self.bindings)}"
            self.bindings.append(Binding(key, el, access))
        elif access == "rw":
            self.bindings[int(self.names[k][1:])] = Binding(key, el, "rw")
        return self.names[k]

    def load(self, ref: Ref, i: Expr) -> Any:
        """Element `i` (u32) of a buffer, in the dtype's compute type."""
        d = ref.dtype
        if self.watched is not None:
            along = i.op == "var" and i.value == "i" and self.watched.get(ref.key, d) is d
            self.watched[ref.key] = d if along else None
        if ref.key in self.vectors and i.op == "var" and i.value == self.lane[0]:
            return self.load_lane(ref, *self.lane[1:])
        n = self.bind(ref)
        if d.is_complex:
            t = "f32" if d.name == "complex64" else "f64"
            v: Any = Complex(
                Expr("load", t, (i,), (n, d.name, 0)),
                Expr("load", t, (i,), (n, d.name, 1)),
            )
        else:
            v = Expr("load", d.compute, (i,), (n, d.name, 0))
        return shown(v, d, ref.mark)

    def store(self, ref: Ref, i: Expr, v: Any) -> None:
        """Writes element `i`. A packed dtype may only be stored where one thread owns the word (see `map_kernel`)."""
        n = self.bind(ref, "rw")
        r = self.r
        if isinstance(v, Complex):
            at = r.text(i)
            r.store_complex(n, at, r.text(v.re), r.text(v.im))
        else:
            at = r.text(i)
            r.store(n, ref.dtype.name, at, r.text(v))

    def load_lane(self, ref: Ref, i: Expr, lane: int) -> Any:
        """Element `i + lane` of a buffer on webgpu, `i` a multiple of 4: one load is for all four."""
        d = ref.dtype
        packed = self.r.packs(d.name)
        if packed == 1:
            four = Expr("load", "u32", (i,), (self.bind_vector(ref), "vector", 0))
        else:  # `lane` is in one of their words
            word = (i >> (2 if packed == 4 else 1)) + lane // packed
            four = Expr("load", "u32", (word,), (self.bind(ref), "word", 0))
        return shown(Expr("lane", d.compute, (four,), (d.name, lane)), d, ref.mark)

    def store_lanes(self, ref: Ref, i: Expr, lanes: list[Any]) -> None:
        """Writes elements `i` to `i + 3` on webgpu, `i` a multiple of 4."""
        r, d = self.r, ref.dtype.name
        if ref.dtype.is_complex or ref.dtype.compute == "i64":
            for j, v in enumerate(lanes):
                self.store(ref, r.let(i + j, "i"), v)
            return
        at, texts = r.text(i), [r.text(v) for v in lanes]
        if r.packs(d) == 1:
            r.store_vector(self.bind_vector(ref, "rw"), self.r.element_type(ref.dtype), at, texts)
        else:
            r.store_words(self.bind(ref, "rw"), d, at, texts)

    def store_bits(self, ref: Ref, i: Expr, v: Expr) -> None:
        """Writes element `i` of any real dtype from any thread; packed ones with compare-and-exchange on their word."""
        r = self.r
        d = ref.dtype.name
        if r.packs(d) == 1:
            self.store(ref, i, v)
            return
        n = self.bind(ref, "rw")
        self.atomics.add(n)
        at = r.text(r.let(i))
        r.exchange(n, d, at, r.text(r.let(v)))

    def atomic_add(self, ref: Ref, i: Expr, v: Any) -> None:
        """Adds to element `i`, whichever threads do so at once. Types: float32, int32, int64, complex64 (on cpu all)."""
        r = self.r
        n = self.bind(ref, "rw")
        self.atomics.add(n)
        at = r.text(r.let(i))
        if isinstance(v, Complex):
            for part, x in ((0, v.re), (1, v.im)):
                r.add(n, "float32", f"{at} * {r.uint(2)} + {r.uint(part)}", r.text(x))
        else:
            r.add(n, ref.dtype.name, at, r.text(r.let(v)))

    def write_once(self, ref: Ref, words: list[Expr]) -> None:
        """Writes int64 words to the beginning of a buffer, if the first word there is 0; one thread does."""
        n = self.bind(ref, "rw")
        self.atomics.add(n)
        self.r.write_once(n, [self.r.text(self.r.let(w)) for w in words])

    # ---- statements for custom kernels

    def let(self, e: Any, hint: str = "v") -> Any:
        if isinstance(e, Complex):
            return Complex(self.r.let(e.re, hint), self.r.let(e.im, hint))
        return self.r.let(e, hint)

    def let_copy(self, e: Expr, hint: str = "v") -> Expr:
        """Reads a variable or array element once, into a name."""
        n = self.r.name(hint)
        self.r.declare(n, e.type, str(e.value))
        return variable(n, e.type)

    def var(self, e: Expr, hint: str = "acc") -> Expr:
        return self.r.var(e, hint)

    def assign(self, v: Expr, e: Expr) -> None:
        self.r.assign(v, e)

    def loop(self, end: Expr, start: Expr = U0, hint: str = "k", step: Expr | None = None) -> Block:
        """`with k.loop(n) as i:`"""
        i = self.r.name(hint)
        s, e = self.r.text(start), self.r.text(end)
        st = self.r.uint(1) if step is None else self.r.text(step)
        return Block(self, lambda: self.r.loop(i, s, e, st), variable(i, "u32"))

    def when(self, cond: Expr) -> Block:
        """`with k.when(condition):`"""
        c = self.r.text(cond)
        return Block(self, lambda: self.r.push(f"if ({c})"), None)

    # ---- the finished thing

    def source(self, body_head: list[str]) -> str:
        """The whole text: declarations, the functions that it uses, and the body behind `body_head`."""
        return str(self.r.source(self, body_head))


class Block:
    """A `with` block that opens and closes a scope of the text."""

    def __init__(self, k: Kernel, opened: Callable[[], None], value: Any) -> None:
        self.k = k
        self.opened = opened
        self.value = value

    def __enter__(self) -> Any:
        self.opened()
        return self.value

    def __exit__(self, *exc: Any) -> None:
        self.k.r.pop()

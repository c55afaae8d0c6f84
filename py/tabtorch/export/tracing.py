"""A module's calls as a graph of ATen's operators: what `torch.export.export` stands on.

Every public function that is called is met (`TorchFunctionMode`). One whose namesake in ATen takes these arguments becomes a node;
of any other, what it calls is met instead. A tensor that came about otherwise has no name in the graph, and is an error where it
is used, unless it was there before.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import tabtorch
from tabtorch.autograd import grad_mode
from tabtorch.core.tensor import Tensor
from tabtorch.engine.symbols import Real, Symbol, concrete
from tabtorch.engine.trace import Trace
from tabtorch.export import lowering
from tabtorch.export.expressions import Expression
from tabtorch.export.graphs import DEVICE, DTYPES, STRIDED, Graph, Node, Ref, TensorMeta
from tabtorch.export.schemas import REQUIRED, Schema, bind
from tabtorch.interception.code_swapping import LOCK, Layer
from tabtorch.interception.torch_function import STATE, _call
from tabtorch.nn import functional
from tabtorch.ops import aten
from tabtorch.ops.functional.activation import softmax
from tabtorch.ops.functional.dropout import dropout
from tabtorch.ops.functional.linear import linear
from tabtorch.ops.neural.recurrent import scan
from tabtorch.overrides import TorchFunctionMode
from tabtorch.utils._pytree import tree_leaves

_NUMBERS = {d: n for n, d in DTYPES.items()}
_HERE = os.path.dirname(tabtorch.__file__)

#: operators that look up what is known of the values of their indices, or, for attention, which kernel is for these sizes
_INDEXED = ("embedding", "gather", "index", "index_select", "one_hot", "scaled_dot_product_attention")

#: operators that write to buffers without a name that says so
_WRITERS = ("batch_norm", "instance_norm")

#: functions that layers of ours call beneath the public ones; they are met while a tracer is entered
_BENEATH = (linear, softmax, dropout, scan)


class _Beneath(Layer):
    def __init__(self) -> None:
        super().__init__(-1, lambda name: None)
        self.count = 0
        for f in _BENEATH:
            self.meet(f, partial(_call, f))

    def count_by(self, n: int) -> None:
        with LOCK:
            self.count += n
            self.switch(self.count > 0)


_beneath: list[_Beneath] = []


def _srepr(x: Any, names: Sequence[str]) -> str:
    """A number as sympy writes it. names: of the first atoms, the symbols."""
    if type(x) is not Symbol:
        return f"Integer({x})"
    parts = []
    for mono, factor in x.terms.items():
        inner = [_atom(x.trace.atoms[a], a, names) for a in mono]
        if factor != 1 or not inner:
            inner.insert(0, f"Integer({factor})")
        parts.append(inner[0] if len(inner) == 1 else f"Mul({', '.join(inner)})")
    return parts[0] if len(parts) == 1 else f"Add({', '.join(parts)})"


def _atom(what: Any, index: int, names: Sequence[str]) -> str:
    if isinstance(what, int):
        return f"Symbol('{names[index]}', positive=True, integer=True)"
    op, a, b = what
    x, y = _srepr(a, names), _srepr(b, names)
    if op == "ceil":
        return f"Mul(Integer(-1), FloorDiv(Mul(Integer(-1), {x}), {y}))"
    return f"FloorDiv({x}, {y})" if op == "//" else f"PythonMod({x}, {y})"


class Tracer(TorchFunctionMode):
    """Writes `graph` while it is entered."""

    def __init__(self, trace: Trace, symbols: Sequence[str], sources: dict[int, tuple[str, int, int, int]]) -> None:
        """symbols: names of the trace's symbols. sources: of each, an input, a dimension, and the factor and offset of that size."""
        super().__init__()
        self.graph = Graph()
        self.trace = trace
        self.symbols = symbols
        self.sources = sources
        self.constants: dict[str, Tensor] = {}
        self.grad = grad_mode.is_grad_enabled()
        self._outside: bool | None = None  # the same where the function was called that is looked into
        self._names: dict[int, str] = {}
        self._kept: list[Any] = []  # what is named by id lives on
        self._free: set[int] = set()  # tensors made of nothing that the graph knows
        self._taken: set[str] = set()
        self._numbers: dict[int, Ref] = {}
        self._written: dict[int, int] = {}  # storages by id, and how often nodes have written to them

    def __enter__(self) -> Any:
        if not _beneath:
            _beneath.append(_Beneath())
        _beneath[0].count_by(1)
        return super().__enter__()

    def __exit__(self, *exc: Any) -> None:
        super().__exit__(*exc)
        _beneath[0].count_by(-1)

    # ---- names

    def fresh(self, name: str) -> str:
        """A name that nothing has yet."""
        found, i = name, 0
        while found in self._taken:
            i += 1
            found = f"{name}_{i}"
        self._taken.add(found)
        return found

    def name(self, t: Tensor, name: str) -> None:
        """From now on `t` is called so in the graph."""
        self._names[id(t)] = name
        self._kept.append(t)
        self.graph.metas[name] = TensorMeta(self.meta(t))

    def knows(self, t: Any) -> bool:
        return id(t) in self._names

    def meta(self, t: Tensor) -> dict[str, Any]:
        if t.dtype not in _NUMBERS:
            self.refuse(f"tensors of {t.dtype}")
        m = t._tab_meta
        return {
            "dtype": _NUMBERS[m.dtype],
            "requires_grad": bool(t._tab_requires_grad and t._tab_grad_fn is None),
            "device": {"type": "cpu", "index": None},
            "sizes": [self._size(n) for n in m.shape], "strides": [self._size(n) for n in m.strides],
            "storage_offset": {"as_int": 0}, "layout": STRIDED,
        }  # fmt: skip

    def _size(self, n: Any) -> dict[str, Any]:
        if type(n) is not Symbol:
            return {"as_int": int(n)}
        return {"as_expr": {"expr_str": _srepr(n, self.symbols), "hint": {"as_int": n.value}}}

    def ref(self, t: Tensor) -> Ref:
        """The name of a tensor; of one that was there before it is a constant of the program."""
        name = self._names.get(id(t))
        if name is None:
            if id(t) not in self._free and t._tab_storage.node.buf is None:
                self.refuse("a tensor that was computed by no public function")
            target = f"lifted_tensor_{len(self.constants)}"
            name = self.fresh("c_" + target)
            self.name(t, name)
            self.constants[target] = t.detach().clone()
        return Ref(name)

    def constant(self, numbers: list[int], device: Any) -> Tensor:
        """A tensor of these numbers, which becomes a constant of the program."""
        made = tabtorch.tensor(numbers, device=device)
        self._free.add(id(made))
        self._kept.append(made)
        return made

    # ---- nodes

    def refuse(self, what: str) -> NoReturn:
        raise NotImplementedError(
            f"torch.export.export cannot export {what}; called at\n{self.where() or '  (no line)'}"
        )

    def where(self) -> str:
        """The line of the script that is running."""
        f: Any = sys._getframe(1)
        while f is not None:
            file = f.f_code.co_filename
            if not file.startswith((_HERE, "<")):
                return f'  File "{file}", line {f.f_lineno}, in {f.f_code.co_name}'
            f = f.f_back
        return ""

    def add(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any, name: str) -> None:
        self.graph.calls.append(Node("call_function", name, target, args, kwargs, outputs, self.where().strip()))

    def operand(self, x: Any) -> Any:
        if isinstance(x, Tensor):
            return self.ref(x)
        if type(x) in (Symbol, Real):
            return self.number(x)
        if isinstance(x, (list, tuple)):
            return [self.operand(y) for y in x]
        return x

    def number(self, x: Any) -> Any:
        """A number as nodes compute it of the inputs' sizes."""
        if type(x) is Symbol:
            held = self._numbers.get(id(x))
            if held is None:
                held = self._numbers[id(x)] = self._sum(x)
                self._kept.append(x)
            return held
        if type(x) is Real:
            op, a, b = x.parts
            names = {"+": "add", "-": "sub", "*": "mul", "/": "truediv", "**": "pow"}
            return self._python(names[op], self.number(a), self.number(b), x)
        return x

    def _python(self, name: str, a: Any, b: Any, value: Any) -> Any:
        if not isinstance(a, Ref) and not isinstance(b, Ref):
            return {"add": lambda: a + b, "mul": lambda: a * b}[name]()
        made = self.fresh(name)
        self.graph.metas[made] = (
            Expression(_srepr(value, self.symbols)) if type(value) is Symbol else Expression("Symbol('zf0')")
        )
        self.graph.sorts[made] = ("float" if type(value) is Real else "int", self._hinted(value))
        self.add("_operator." + name, (a, b), {}, made, made)
        return Ref(made)

    def _hinted(self, value: Any) -> Any:
        return _srepr(value, self.symbols) if type(value) is Symbol else "", concrete(value)

    def _sum(self, x: Symbol) -> Any:
        total: Any = None
        so_far: Any = 0
        for mono, factor in x.terms.items():
            part: Any = factor
            value: Any = factor
            for a in mono:
                atom = x.trace._known[(a,), 1]
                found = self._atom(a, atom)
                product = value * atom
                part = found if type(part) is int and part == 1 else self._python("mul", found, part, product)
                value = product
            if total is None:
                total, so_far = part, value
            else:
                so_far = so_far + value
                total = self._python("add", total, part, so_far)
        return total

    def _atom(self, index: int, atom: Symbol) -> Any:
        held = self._numbers.get(id(atom))
        if held is not None:
            return held
        what = self.trace.atoms[index]
        if isinstance(what, int):
            name, d, factor, offset = self.sources[index]
            made = self.fresh("sym_size_int")
            size = factor * atom + offset
            self.graph.metas[made] = Expression(_srepr(size, self.symbols))
            self.graph.sorts[made] = ("int", self._hinted(size))
            self.add("torch.ops.aten.sym_size.int", (Ref(name), d), {}, made, made)
            found: Any = Ref(made)
            if offset:
                found = self._python("add", found, -offset, size - offset)
            if factor != 1:
                found = self._python("floordiv", found, factor, atom)
        else:
            op, a, b = what
            x, y = self.number(a), self.number(b)
            if op == "ceil":
                down = self._python("floordiv", self._python("mul", x, -1, -a), y, -atom)
                found = self._python("mul", down, -1, atom)
            else:
                found = self._python("floordiv" if op == "//" else "mod", x, y, atom)
        self._numbers[id(atom)] = found
        return found

    # ---- calls

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in ("__get__", "__set__") and hasattr(func, "__self__"):
            name = f"{name[2:5]} {func.__self__.fget.__name__}"
        known = any(self.knows(t) for t in _tensors((args, kwargs)))
        if known and name in lowering.REFUSED:
            self.refuse(f"{name!r}, whose result depends on the values of a tensor")
        rule = lowering.RULES.get(name)
        if rule is not None:
            found = rule(self, *args, **kwargs)
            if found is not lowering.OTHERWISE:
                return found
        elif name and " " not in name and (name in lowering.SAME or not _functional(name, func)):
            made = bind(name, args, kwargs)
            if made is not None:
                return self.record(*made, lambda: func(*args, **kwargs))
        out = kwargs.get("out")
        if known and out is not None:
            return self._put(out, func, args, {k: v for k, v in kwargs.items() if k != "out"})
        before = self._unaccounted(_tensors((args, kwargs))) if known else []
        outside = self._outside
        if outside is None:
            self._outside = grad_mode.is_grad_enabled()
        STATE.modes.append(self)
        STATE.skip = True
        try:
            result = func(*args, **kwargs)
        finally:
            STATE.modes.pop()
            STATE.skip = False
            self._outside = outside
        if known and self._unaccounted(_tensors((args, kwargs))) != before:
            self.refuse(f"{name!r}, which writes to a tensor")
        for t in _tensors(result):
            if not self.knows(t) and id(t) not in self._free:
                if known:
                    self.refuse(f"{name!r}")
                self._free.add(id(t))
                self._kept.append(t)
        return result

    def _put(self, out: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """A call with `out=`: one without, whose result is copied there."""
        if not isinstance(out, Tensor):
            self.refuse(f"{getattr(func, '__name__', '')!r} with several tensors as `out`")
        made = self.__torch_function__(func, (), args, kwargs)
        if tuple(made.shape) != tuple(out.shape):
            self.refuse("an `out` of another shape than the result")
        return self.call("copy_", out, made)

    def _unaccounted(self, tensors: Sequence[Tensor]) -> list[int]:
        """Of each tensor how often it was written to by no node."""
        return [t._tab_storage.version - self._written.get(id(t._tab_storage), 0) for t in tensors]

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """A call of ATen's operator of that name."""
        found = bind(name, args, kwargs)
        if found is None:
            self.refuse(f"{name!r} with these arguments")
        schema, bound = found
        f = aten.lookup("aten::" + name, schema.overload)
        if f is None:
            self.refuse(f"{name!r}")
        return self.record(schema._replace(name=name), bound, lambda: f(*args, **kwargs))

    def record(self, schema: Schema, bound: dict[str, Any], run: Callable[[], Any], name: str = "") -> Any:
        """A node for a call that `run` makes; its result."""
        writes = schema.name.endswith("_")
        first = next(iter(bound.values()), None)
        if writes and isinstance(first, Tensor) and not self.knows(first):
            self.refuse(f"{schema.name!r}, which writes to a constant")
        for t in _tensors(list(bound.values())):
            if not self.knows(t) and id(t) not in self._free and t._tab_storage.node.buf is None:
                self.refuse(f"{schema.name!r} of a tensor that was computed by no public function")
        operands = {k: self.operand(v) for k, v in bound.items()}
        before = dict(self.trace.guards)
        given = _tensors(list(bound.values()))
        versions = self._unaccounted(given)
        # The program has the operator itself, which compares again with the sizes that it gets. What is asked here only tells the
        # shape of the result, and there sizes that are unequal are an error, or a 1 that has to be looked at: squeeze's
        self.trace.lenient = not schema.name.startswith("squeeze")
        try:
            result = run()
        finally:
            self.trace.lenient = False
        if (
            schema.name in _INDEXED
        ):  # whether indices are in bounds is no way that the program takes: the operator looks again
            for key in self.trace.guards.keys() - before.keys():
                if self.trace.guards[key][0] != "==":
                    self.trace.drop(key)
        if not writes and schema.name not in _WRITERS and self._unaccounted(given) != versions:
            self.refuse(f"{schema.name!r}, which writes to a tensor")
        for t, old in {id(t._tab_storage): (t, v) for t, v in zip(given, versions)}.values():
            (now,) = self._unaccounted([t])
            self._written[id(t._tab_storage)] = self._written.get(id(t._tab_storage), 0) + now - old
        if not writes and isinstance(result, Tensor) and any(result is t for t in given):
            return result
        names = {p.name for p in schema.parameters}
        if "device" in names and not given:
            operands["device"] = DEVICE
            if "dtype" in names and isinstance(result, Tensor):
                operands["dtype"] = result.dtype
        results = [result] if isinstance(result, Tensor) else list(result)
        if schema.results not in (0, len(results)) or not all(isinstance(t, Tensor) for t in results):
            self.refuse(f"{schema.name!r}, whose results are not ATen's")
        node = self.fresh(schema.name)
        single = schema.results == 1
        made = [node] if single else [self.fresh("getitem") for _ in results]
        args, kwargs = _placed(schema, operands)
        self.add(schema.target, args, kwargs, made[0] if single else made, node)
        # What a script computes without gradients has none in the program. Functions of ours that switch them off have a gradient in
        # closed form, which the program does not: there the formula itself is differentiated.
        cuts = self.grad and not (grad_mode.is_grad_enabled() if self._outside is None else self._outside)
        for t, n in zip(results, made):
            self.name(t, n)
            if cuts and t.dtype.is_floating_point and not writes:
                cut = self.fresh("detach")
                self.add("torch.ops.aten.detach.default", (Ref(n),), {}, cut, cut)
                self.name(t, cut)
        return result


def _functional(name: str, func: Any) -> bool:
    """Whether it is a function of torch.nn.functional only, whose arguments need not be those of ATen's namesake."""
    module = getattr(func, "__module__", None) or ""
    public = vars(functional).get(name) is func and getattr(tabtorch, name, None) is not func
    return public or module.startswith("tabtorch.nn.functional")


def _placed(schema: Schema, operands: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional arguments up to the last that is given, then those by name."""
    positional = [p for p in schema.parameters if not p.keyword]
    last = max([i for i, p in enumerate(positional) if p.name in operands], default=-1)
    args = []
    for p in positional[: last + 1]:
        x = operands.get(p.name, p.default)
        if p.many and p.length and type(x) is int:
            x = [x] * p.length
        assert x is not REQUIRED
        args.append(x)
    return tuple(args), {p.name: operands[p.name] for p in schema.parameters if p.keyword and p.name in operands}


def _tensors(x: Any) -> list[Tensor]:
    return [t for t in tree_leaves(x) if isinstance(t, Tensor)]

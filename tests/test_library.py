"""`torch.library` beside PyTorch's: what is inferred, shown, run and refused is the same, on the device "cpu"."""

from __future__ import annotations

import typing
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch

import tabtorch as tt

BOTH = (torch, tt)
#: of types that a type checker does not know
Optional: Any = typing.Optional
many: Any = list
several: Any = tuple
row: Any = Sequence


def said(call: Callable[[], Any]) -> Any:
    """What a call gives: numbers, text; or its error, up to where PyTorch tells of its own files and C++."""
    try:
        value = call()
    except Exception as e:
        text = (
            str(e)
            .split("\nCast error details")[0]
            .split(" (with implementation")[0]
            .split(" Duplicate registration")[0]
        )
        return type(e).__name__, text.split(". This could be because")[0].split("The valid types are")[0]
    if isinstance(value, tuple | list):
        return type(value)(said(partial(lambda v: v, v)) for v in value)
    return value.tolist() if isinstance(value, torch.Tensor | tt.Tensor) else value


def same(ask: Callable[[Any], Sequence[Any]]) -> None:
    theirs, ours = (list(ask(ns)) for ns in BOTH)
    for i, (a, b) in enumerate(zip(theirs, ours, strict=True)):
        assert a == b, f"{i}: {b!r}, not {a!r}"


def annotated(
    ns: Any, kinds: dict[str, Any], returns: Any, defaults: dict[str, Any] | None = None, keyword: str = ""
) -> Any:
    """A function with these annotations."""
    texts = [
        ("*, " if n == keyword else "") + n + (f"=defaults[{n!r}]" if n in (defaults or {}) else "") for n in kinds
    ]
    space: dict[str, Any] = {"defaults": defaults, "Tensor": ns.Tensor}
    exec(f"def f({', '.join(texts)}): pass", space)
    space["f"].__annotations__ = {**kinds, "return": returns}
    return space["f"]


SCHEMAS: list[Callable[[Any], Any]] = [
    lambda t: annotated(t, {"x": t.Tensor}, t.Tensor),
    lambda t: annotated(t, {"x": "Tensor", "y": "Tensor"}, "Tensor"),
    lambda t: annotated(
        t, {"x": t.Tensor, "a": float, "b": int, "c": bool, "d": str}, None, {"a": 2, "b": 3, "c": True, "d": "hi"}
    ),
    lambda t: annotated(t, {"x": Optional[t.Tensor], "n": int | None}, t.Tensor, {"n": None}),
    lambda t: annotated(t, {"x": many[t.Tensor], "n": Sequence[int]}, many[t.Tensor]),
    lambda t: annotated(t, {"x": row[t.Tensor | None], "n": list[float] | None}, several[t.Tensor, t.Tensor]),
    lambda t: annotated(
        t, {"x": t.Tensor, "d": t.dtype, "e": t.device}, t.Tensor, {"d": t.float32, "e": t.device("cpu")}
    ),
    lambda t: annotated(t, {"x": t.Tensor, "d": t.types.Number}, several[t.Tensor], {"d": 1.5}),
    lambda t: annotated(t, {"x": t.Tensor, "n": int}, tuple[int, float, bool], keyword="n"),
    lambda t: annotated(t, {"x": "Nothing"}, t.Tensor),
    lambda t: annotated(t, {"x": tuple[int, int]}, t.Tensor),
    lambda t: annotated(t, {"x": dict}, t.Tensor),
    lambda t: annotated(t, {"x": int}, t.Tensor, {"x": object}),
    lambda t: annotated(t, {"x": int}, str),
    lambda t: lambda x: x,
    lambda t: lambda *x: x,
]


@pytest.mark.parametrize("mutates", [(), ("x",), ("z",), "unknown"])
def test_schemas_are_inferred(mutates: Any) -> None:
    def infer(ns: Any, make: Any, **more: Any) -> Any:
        got = said(lambda: ns.library.infer_schema(make(ns), mutates_args=mutates, **more))
        # the signature in messages has the name of the package, and an object's address
        return (
            got
            if isinstance(got, str)
            else (got[0], got[1].replace("tabtorch.core.tensor.", "torch.").split(" Got func")[0])
        )

    same(lambda ns: [infer(ns, make) for make in SCHEMAS])
    same(lambda ns: [infer(ns, make, op_name="name") for make in SCHEMAS])


def everything(ns: Any) -> Any:
    t = ns.Tensor
    kinds = {"x": t, "y": t, "a": float, "b": int, "c": str, "d": Optional[t], "l": list[int] | None, "n": bool}
    f = annotated(ns, kinds, several[t, int], {"a": 2, "b": 3, "c": "hi", "d": None, "l": None, "n": True}, keyword="n")

    def kernel(x: Any, y: Any, *rest: Any, **named: Any) -> Any:
        seen.append((rest, named))
        return x + 1, 1

    seen: list[Any] = []
    kernel.__signature__ = __import__("inspect").signature(f)  # type: ignore[attr-defined]
    return ns.library.custom_op("shown::f", kernel, mutates_args={"y"}), seen


def test_operators_and_their_arguments() -> None:
    def ask(ns: Any) -> list[Any]:
        f, seen = everything(ns)
        packet, op = ns.ops.shown.f, ns.ops.shown.f.default
        s = op._schema
        out = [
            f._schema,
            str(s),
            s.name,
            s.overload_name,
            s.is_mutable,
            repr(f),
            repr(packet),
            repr(op),
            str(packet),
            str(op),
        ]
        out += [[a.name, str(a.type), a.default_value, a.has_default_value(), a.kwarg_only] for a in s.arguments]
        out += [
            [a.alias_info is not None and a.alias_info.is_write for a in s.arguments],
            [str(r.type) for r in s.returns],
        ]
        out += [op.name(), op.namespace, op.__name__, op.__module__, op._opname, op._overloadname, packet.overloads()]
        out += [packet.__name__, packet.__module__, packet._qualified_op_name, op.overloadpacket is packet]
        kinds = (ns._ops.OpOverload, ns._ops.OpOverloadPacket)
        for thing in (op, packet, ns.ops.aten.add.Tensor, ns.ops.aten.add):
            out.append([isinstance(thing, k) for k in kinds])
        x = ns.ones(2, device="cpu")
        calls: list[Any] = [
            ((x,), {}), ((x, x, 2.0, "a"), {}), ((x, x), {"bad": 1}), ((1, x), {}), ((x, x), {"x": 3}), ((x, x), {"b": 2.5}),
            ((x, x), {"l": 1}), ((x, x), {"a": ns.tensor(3.0)}), ((x, x), {"l": (1, 2), "n": False}), ((x, x, 2.0, 3), {}),
            ((x, x, 1, True), {"d": None}), ((x, x), {"c": 1}),
        ]  # fmt: skip
        out += [said(partial(lambda a, k: (op(*a, **k), seen[-1]), a, k)) for a, k in calls]
        return out + [said(lambda: packet.bad), said(lambda: op.bad), said(lambda: ns.ops.shown.nothere)]

    def position(values: list[Any]) -> list[Any]:
        return [v[:1] if isinstance(v, tuple) and "Optional[List" in str(v) else v for v in values]

    same(lambda ns: position(ask(ns)))


def test_custom_operators_are_held_to_their_schema() -> None:
    def ask(ns: Any) -> list[Any]:
        t, out = ns.Tensor, []
        x = ns.ones(2, device="cpu")

        def made(name: str, kernel: Any, returns: Any = t, mutates: Any = (), **more: Any) -> Any:
            def f(x):  # type: ignore[no-untyped-def]
                return kernel(x)

            f.__annotations__ = {"x": t, "return": returns}
            return ns.library.custom_op(f"held::{name}", f, mutates_args=mutates, **more)

        for name, kernel, returns in (
            ("same", lambda x: x, t),
            ("view", lambda x: x.view(-1), t),
            ("twice", lambda x: (x.clone(),) * 2, several[t, t]),
            ("good", lambda x: x.clone(), t),
        ):
            op = made(name, kernel, returns)
            out += [said(partial(op, x)), said(partial(op, ns.ones(2, device="meta")))]
        writes = made("writes", lambda x: x.add_(1) and None, None, {"x"})
        y = ns.zeros(1, device="cpu")
        out += [said(lambda: writes(y)), y.tolist(), said(lambda: writes(ns.ones(2, device="meta")))]
        out += [said(lambda: writes.register_autograd(lambda c, g: g)), said(lambda: made("none", None, t, ["y"]))]
        out += [said(lambda: made("two", None, t, ["x"], schema="(Tensor x) -> Tensor"))]
        out += [said(lambda: ns.library.custom_op("held::k", annotated(ns, {"x": t}, t, keyword="x"), mutates_args=()))]
        plain: Any = {"mutates_args": (), "device_types": "cpu"}
        out += [said(lambda: ns.library.custom_op("held::n", lambda: x, schema="() -> Tensor", **plain))]
        ones = ns.library.custom_op(
            "held::o", lambda device: ns.ones(1, device=device), schema="(Device device) -> Tensor", **plain
        )
        out += [said(lambda: ones(ns.device("cpu")))]
        good = made("kernels", lambda x: x * 2)
        good.register_kernel("cpu")(lambda x: x * 3)
        out.append(said(lambda: good(x)))
        with good.set_kernel_enabled("cpu", False):
            out.append(said(lambda: good(x)))
            with good.set_kernel_enabled("cpu"):
                out.append(said(lambda: good(x)))
        good.register_autocast("cpu", ns.bfloat16)
        with ns.autocast("cpu", dtype=ns.bfloat16):
            out.append(str(good(x).dtype))
        good.register_vmap(lambda info, dims, x: (x * 5, dims[0]))
        out += [said(lambda: ns.vmap(good)(x)), said(lambda: good.register_autocast("meta", ns.bfloat16))]
        good.register_autograd(
            lambda ctx, g: g * ctx.n, setup_context=lambda ctx, inputs, output: setattr(ctx, "n", len(inputs))
        )
        z = ns.ones(2, device="cpu", requires_grad=True)
        good(z).sum().backward()
        return [*out, z.grad.tolist()]

    same(ask)


def test_libraries() -> None:
    def ask(ns: Any) -> list[Any]:
        x, out = ns.ones(2, device="cpu"), []
        with ns.library._scoped_library("scoped", "DEF") as lib:
            lib.impl("early", lambda x: x * 7, "CPU")
            for text in (
                "k(Tensor x, int n=2) -> Tensor",
                "k.two(Tensor x, Tensor y) -> Tensor",
                "early(Tensor x) -> Tensor",
            ):
                out.append(lib.define(text))
            out.append(said(lambda: ns.ops.scoped.k.default(x))[0])
            lib.impl("k", lambda x, n=2: x * n, "CPU")
            lib.impl("k.two", lambda x, y: x - y, "CPU")
            k = ns.ops.scoped.k
            out += [
                said(lambda: k(x)),
                said(lambda: k(x, n=3)),
                said(lambda: k(x, x)),
                k.overloads(),
                str(k.two._schema),
            ]
            out += [said(lambda: ns.ops.scoped.early(x)), repr(lib), repr(k.two), said(lambda: k.two.default)]
            out += [said(lambda: lib.impl("k", 3, "CPU")), said(lambda: lib.define("k(Tensor x) -> Tensor"))]
            out += [said(lambda: lib.define("k()", "FOO")), said(lambda: ns.library.impl(lib, "k", "Meta")(len) is len)]
            seen: list[Any] = []
            lib.define("keys(Tensor x) -> Tensor")
            lib.impl("keys", lambda keys, x: seen.extend([type(keys).__name__]) or x + 1, "CPU", with_keyset=True)  # type: ignore[func-returns-value]
            out += [said(lambda: ns.ops.scoped.keys(x)), seen]
            ns.library.define("scoped::late", "(Tensor x) -> Tensor", lib=lib)
            ns.library.impl("scoped::late", "cpu", lambda x: x + 5, lib=lib)
            out.append(said(lambda: ns.ops.scoped.late(x)))
            decorated = ns.library.define(lib, "decorated(Tensor x) -> Tensor")(lambda x: x + 6)
            out += [callable(decorated), said(lambda: ns.ops.scoped.decorated(x))]
        out += [said(lambda: ns.ops.scoped.k), said(lambda: lib.define("k(Tensor x) -> Tensor"))]
        out += [said(lambda: ns.library.Library("prim", "DEF")), said(lambda: ns.library.Library("a", "B"))]
        out += [said(lambda: ns.library.define("nn", "(Tensor x) -> Tensor"))]
        out += [said(lambda: ns.library.define("pr::nn", "foo(Tensor x) -> Tensor"))]
        out += [said(lambda: ns.library.fallthrough_kernel()), said(lambda: ns.library.get_kernel("a::b", "Foo"))]
        out += [said(lambda: ns.library.get_kernel("a::b", "CPU"))[0], said(lambda: ns.library.get_kernel(3, "CPU"))]
        return out

    same(ask)


def test_modes_see_operators() -> None:
    def ask(ns: Any) -> list[Any]:
        dispatch = __import__(f"{ns.__name__}.utils._python_dispatch", fromlist=["x"])
        seen: list[Any] = []

        class Mode(dispatch.TorchDispatchMode):  # type: ignore[name-defined]
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                seen.append(str(func))
                return func(*args, **(kwargs or {}))

        class Other(Mode):
            pass

        op = ns.library.custom_op("moded::f", lambda x: ns.sin(x), mutates_args=(), schema="(Tensor x) -> Tensor")
        ns.library.register_torch_dispatch("moded::f", Other, lambda mode, func, types, args, kwargs: args[0] * 100)
        x = ns.zeros(1, device="cpu")
        with Mode():
            seen.append(op(x).tolist())
        with Other():
            seen.append(op(x + 1).tolist())
        return seen

    same(ask)


def test_opcheck() -> None:
    def ask(ns: Any) -> list[Any]:
        out: list[Any] = []
        x = ns.ones(2, device="cpu", requires_grad=True)

        def f(x: Any) -> Any:
            return ns.sin(x)

        text = "(Tensor x) -> Tensor"
        good = ns.library.custom_op("checked::good", f, mutates_args=(), schema=text)
        out.append(said(lambda: ns.library.opcheck(good, (x,)))[0])
        good.register_fake(lambda x: ns.empty(3, device="meta"))
        out.append(said(lambda: ns.library.opcheck(good, (x,)))[0])
        good.register_fake(ns.empty_like)
        out.append(said(lambda: ns.library.opcheck(good, (x.detach(),))))
        good.register_autograd(
            lambda ctx, g: g * ctx.saved_tensors[0].cos(),
            setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
        )
        out.append(said(lambda: ns.library.opcheck(good, (x,))))
        out += [
            said(lambda: ns.library.opcheck(good, (x,), test_utils="test_nothing")),
            said(lambda: ns.library.opcheck(good, (x,), atol=1)),
        ]
        with ns.library._scoped_library("checks", "DEF") as lib:
            lib.define(f"writes{text}")
            lib.impl("writes", lambda x: x.add_(1).clone(), "CPU")
            lib.define(f"same{text}")
            lib.impl("same", lambda x: x, "CPU")
            lib.define(f"records{text}")

            class Own(ns.autograd.Function):
                forward = staticmethod(lambda ctx, x: x.clone())
                backward = staticmethod(lambda ctx, g: g)

            lib.impl("records", Own.apply, "CPU")
            schema = {"test_utils": "test_schema"}
            space = ns.ops.checks
            out += [said(lambda: ns.library.opcheck(space.writes, (x.detach(),), **schema))[0]]
            out += [said(lambda: ns.library.opcheck(space.same.default, (x.detach(),), **schema))]
            out += [said(lambda: ns.library.opcheck(space.records, (x,), test_utils="test_autograd_registration"))]
        return out

    same(ask)


def test_operators_of_functions() -> None:
    def ask(ns: Any) -> list[Any]:
        keys, x = ns._C.DispatchKey, ns.ones(1, device="cpu")
        base = ns._ops.HigherOrderOperator

        class Mine(base):  # type: ignore[valid-type, misc]
            def __init__(self) -> None:
                super().__init__("mine")

            def __call__(self, f: Any, x: Any) -> Any:
                return super().__call__(f, x)

        out = [said(lambda: base("x")), said(lambda: type("Y", (base,), {})("y"))]
        mine = Mine()
        out += [
            str(mine),
            mine.name(),
            mine.namespace,
            mine.__name__,
            mine.__module__,
            ns.ops.higher_order.mine is mine,
        ]
        out.append(said(lambda: mine(ns.sin, x)))
        mine.py_impl(keys.CompositeExplicitAutograd)(lambda f, x: f(x) + 1)
        out.append(said(lambda: mine(ns.neg, x)))
        out.append(said(lambda: mine(ns.neg, 3))[0])
        mine.py_autograd_impl(lambda f, x: f(x) * 10)
        y = ns.ones(1, device="cpu", requires_grad=True)
        return [*out, said(lambda: mine(ns.neg, x)), said(lambda: mine(ns.neg, y))]

    same(ask)


def test_triton_is_refused_when_it_is_used() -> None:
    op = tt.library.triton_op("tritons::f", lambda x: x, mutates_args=(), schema="(Tensor x) -> Tensor")
    for call in (lambda: op(tt.ones(1)), lambda: tt.library.wrap_triton(len)):
        with pytest.raises(RuntimeError, match="Triton compiles for CUDA and does not run here"):
            call()
    op.register_kernel("cpu")(lambda x: x + 1)
    assert op(tt.ones(1, device="cpu")).tolist() == [2]
    with pytest.raises(RuntimeError, match="hangs on the values"):
        tt.library.get_ctx()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        tt.library.impl_abstract("tritons::f", lambda x: tt.empty_like(x))
    assert "was renamed to torch.library.register_fake" in str(seen[0].message)
    assert op(tt.ones(3, device="meta")).shape == (3,)
    kernel = tt.library.get_kernel(op._opoverload, "CPU")
    assert kernel.call_boxed(None, tt.ones(1)).tolist() == [2]
    assert tt.library.get_kernel("aten::neg", "CPU").call_boxed(None, tt.ones(1)).tolist() == [-1]
    with pytest.raises(RuntimeError, match="cannot be given kernels"):
        tt.library.Library("aten", "IMPL").impl("sin", len, "CPU")


def test_operators_in_graphs() -> None:
    def ask(ns: Any) -> list[Any]:
        op = ns.library.custom_op(
            "graphs::f", lambda x, n=2: x * n, mutates_args=(), schema="(Tensor x, int n=2) -> Tensor"
        )
        fx = __import__(f"{ns.__name__}.fx", fromlist=["x"])
        space = ns.ops.graphs.f
        graph = fx.symbolic_trace(lambda x: space(x, 3) + space.default(x) + op(x, n=4))
        targets = [isinstance(n.target, ns._ops.OpOverload) for n in graph.graph.nodes]
        return [graph.code, targets, graph(ns.ones(1, device="cpu")).tolist()]

    same(ask)

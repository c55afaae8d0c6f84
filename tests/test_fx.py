"""torch.fx beside PyTorch's: the same programs give the same code, graphs and results."""

from __future__ import annotations

import copy
import gc
import io
import operator
import sys
import warnings
from typing import Any

import pytest
import torch
import torch.fx  # PyTorch's

import fx_zoo
import tabtorch
import tabtorch.fx
from sidebyside import outcome, same
from tabtorch.interception import torch_function
from tabtorch.interception.torch_function import STATE

ZOO = {lib: fx_zoo.make(lib) for lib in (torch, tabtorch)}
LIBS = (torch, tabtorch)


@pytest.fixture(autouse=True)
def on_the_cpu() -> Any:
    """Graphs are the same on all devices."""
    with tabtorch.device("cpu"):
        yield


def plain(text: str) -> str:
    """What both say, where tabtorch's own names stand for torch's."""
    return str(text).replace("tabtorch", "torch")


def both(f: Any) -> None:
    """`f(library)` gives, prints or raises the same for both."""
    want, got = [outcome(lambda lib=lib: f(lib)) for lib in LIBS]
    assert want[0] == got[0], (want, got)
    if want[0] == "value" and not isinstance(want[1], str):
        same(want[1], got[1], exact=False)
    else:
        assert plain(str(want[1])) == plain(str(got[1]))


def traced(lib: Any, name: str) -> Any:
    return lib.fx.symbolic_trace(fx_zoo.build(lib, ZOO[lib], name))


def described(gm: Any) -> list[str]:
    """Code, graph and what every node is."""
    nodes = [
        f"{n.op} {n.name} {n._pretty_print_target(n.target)} {n.args} {n.kwargs} {list(n.users)} {n.all_input_nodes} "
        f"{list(n.meta.get('nn_module_stack', {}))} {n.type if n.type is None or isinstance(n.type, str) else ''}"
        for n in gm.graph.nodes
    ]
    return [plain(x) for x in (gm.code, str(gm.graph), "\n".join(nodes), gm.print_readable(print_output=False))]


# ---- tracing


@pytest.mark.parametrize("name", fx_zoo.INPUTS)
def test_graphs_and_code_are_pytorchs(name: str) -> None:
    want, got = [traced(lib, name) for lib in LIBS]
    for a, b in zip(described(want), described(got), strict=True):
        assert a == b
    inputs = fx_zoo.INPUTS[name]
    if inputs is not None:
        results = [gm(*inputs(lib)) for gm, lib in ((want, torch), (got, tabtorch))]
        leaves = [lib.utils._pytree.tree_leaves(r) for r, lib in zip(results, LIBS, strict=True)]
        same(*[[x for x in r if hasattr(x, "shape")] for r in leaves], exact=False, strides=False)
        direct = fx_zoo.build(tabtorch, ZOO[tabtorch], name)(*inputs(tabtorch))
        for x, y in zip(*[tabtorch.utils._pytree.tree_leaves(r) for r in (direct, results[1])], strict=True):
            assert tabtorch.allclose(x, y, atol=1e-6) if isinstance(x, tabtorch.Tensor) else x == y or x is y
        again = tabtorch.fx.Interpreter(got).run(*inputs(tabtorch)) if name != "KeyStr" else results[1]
        assert str(again) == str(results[1])
    got.graph.lint()


@pytest.mark.parametrize(
    "name", [n for n in fx_zoo.INPUTS if n not in ("Formatted", "dtypes", "many_outputs", "Annotated", "Setting")]
)
def test_copies_and_pickles_have_the_same_code(name: str) -> None:
    def copies(lib: Any) -> list[str]:
        gm = traced(lib, name)
        deep = copy.deepcopy(gm)
        file = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            lib.save(gm, file)
        file.seek(0)
        # a file says `import torch`, which is PyTorch's here: tabtorch reads its own all the same
        again = lib.load(file, weights_only=False)
        made = lib.fx.Transformer(gm).transform()
        graph = copy.deepcopy(gm.graph)
        return [
            plain(x)
            for x in (deep.code, again.code, str(again.graph), made.code, str(graph), sorted(deep.state_dict()))
        ]

    want, got = [copies(lib) for lib in LIBS]
    assert want == got


def test_nothing_is_intercepted_when_no_trace_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()  # errors of other tests hold frames, and those Proxies
    monkeypatch.setattr(type(STATE), "classes", False)  # another test may have made one that overrides
    torch_function.switch()
    before = tabtorch.relu.__code__
    gm = traced(tabtorch, "MLP")
    assert not STATE.entered and tabtorch.relu.__code__ is before
    gm(tabtorch.ones(2, 4))
    proxy = tabtorch.fx.Proxy(gm.graph.output_node().prev)
    assert tabtorch.relu(proxy).node.target is tabtorch.relu
    del proxy
    assert not STATE.entered and tabtorch.relu.__code__ is before and not STATE.classes


def test_a_trace_that_fails_leaves_everything_as_it_was() -> None:
    def f(x: Any) -> Any:
        return x if x.sum() > 0 else -x

    call = tabtorch.nn.Module.__call__
    with pytest.raises(tabtorch.fx.proxy.TraceError) as e:
        tabtorch.fx.symbolic_trace(f)
    del e
    sys.exc_info()
    assert tabtorch.nn.Module.__call__ is call and not tabtorch.fx._symbolic_trace._is_fx_tracing_flag
    assert tabtorch.relu(tabtorch.ones(2)).tolist() == [1.0, 1.0]


def _branch(x: Any) -> Any:
    return x + 1 if x.sum() > 0 else x


def _loop(x: Any) -> Any:
    return list(y for y in x)  # noqa: C400


def _star(x: Any) -> Any:
    return max(*x)


def _length(x: Any) -> Any:
    return len(x)


def _key(x: Any) -> Any:
    return x, {x: 1}


def _strange(x: Any) -> Any:
    return x + object()


def _integer(x: Any) -> Any:
    return int(x)


def _item(x: Any) -> Any:
    x[0] = 1
    return x


def _while(x: Any) -> Any:
    while x:
        x = x - 1
    return x


def _contains(x: Any) -> Any:
    return 1 in x


def _and(x: Any) -> Any:
    return x.a and x.b


@pytest.mark.parametrize(
    "f", [_branch, _loop, _star, _length, _key, _strange, _integer, _item, _while, _contains, _and]
)
def test_what_cannot_be_traced_is_pytorchs_error(f: Any) -> None:
    both(lambda lib: lib.fx.symbolic_trace(f).code)


def test_errors_of_functions_and_graphs() -> None:
    def wrong_type(lib: Any) -> Any:
        return lib.fx.wrap(3)

    def inside(lib: Any) -> Any:
        return lib.fx.wrap("len")

    def no_module(lib: Any) -> Any:
        tracer = lib.fx.Tracer()
        tracer.trace(lib.nn.Sequential(lib.nn.ReLU()))
        return tracer.path_of_module(lib.nn.ReLU())

    def foreign(lib: Any) -> Any:
        class M(lib.nn.Module):  # type: ignore[name-defined, misc]
            def __init__(self) -> None:
                super().__init__()
                self.hidden = [lib.nn.Linear(2, 2)]

            def forward(self, x: Any) -> Any:
                return self.hidden[0](x)

        return lib.fx.symbolic_trace(M())

    def erase(lib: Any) -> Any:
        g = lib.fx.symbolic_trace(lambda x: lib.relu(x) + 1).graph
        g.erase_node(next(iter(g.nodes)))

    def erase_other(lib: Any) -> Any:
        a, b = [lib.fx.symbolic_trace(lambda x: lib.relu(x) + 1).graph for _ in range(2)]
        a.erase_node(b.output_node())

    def order(lib: Any) -> Any:
        g = lib.fx.Graph()
        x = g.placeholder("x")
        a = g.call_function(lib.relu, (x,))
        b = g.call_function(lib.neg, (x,))
        a.args = (b,)
        g.output(a)
        g.lint()

    def mixed(lib: Any) -> Any:
        g, h = lib.fx.Graph(), lib.fx.Graph()
        g.output(h.placeholder("x"))
        g.lint()

    def missing(lib: Any) -> Any:
        g = lib.fx.Graph()
        g.output(g.call_module("sub", (g.placeholder("x"),)))
        return lib.fx.GraphModule({}, g)

    def strange_root(lib: Any) -> Any:
        return lib.fx.GraphModule(3, lib.fx.Graph())

    def target(lib: Any) -> Any:
        return lib.fx.Graph().create_node("call_function", "relu", (), {})

    def mutate(lib: Any) -> Any:
        g = lib.fx.Graph()
        g.call_function(lib.cat, ([g.placeholder("x")],)).args[0].append(1)

    def interpreted(lib: Any) -> Any:
        gm = lib.fx.symbolic_trace(lambda x, y: x @ y)
        return lib.fx.Interpreter(gm).run(lib.ones(2))

    def boxed(lib: Any) -> Any:
        return lib.fx.Interpreter(lib.fx.symbolic_trace(lambda x: x + 1)).boxed_run([])

    def tracers(lib: Any) -> Any:
        a, b = lib.fx.Graph(), lib.fx.Graph()
        x, y = lib.fx.Proxy(a.placeholder("x")), lib.fx.Proxy(b.placeholder("y"))
        try:
            lib.add(x, y)
        except RuntimeError as e:
            raise RuntimeError(str(e)[:32]) from None

    def concrete(lib: Any) -> Any:
        return lib.fx.symbolic_trace(lambda x, y: x, concrete_args=(1, 2, 3))

    for f in (
        wrong_type, inside, no_module, foreign, erase, erase_other, order, mixed, missing, strange_root, target, mutate, interpreted,
        boxed, tracers, concrete,
    ):  # fmt: skip
        want, got = [outcome(lambda f=f, lib=lib: f(lib)) for lib in LIBS]
        assert want[0] == "error", (f, want)
        assert [plain(x) for x in want[1]] == [plain(x) for x in got[1]], f


# ---- concrete arguments


def _flags(x: Any, flag: bool = True, n: int = 2, text: Any = "a") -> Any:
    return x * n if flag else x + n


def _trees(x: Any, d: Any, pair: Any = None) -> Any:
    return {"r": x + d["a"] * d["b"][0], "s": [d["b"][1]]}


def test_concrete_args() -> None:
    def values(lib: Any) -> str:
        ph = lib.fx.PH
        made = [
            lib.fx.symbolic_trace(_flags, concrete_args={"flag": False}),
            lib.fx.symbolic_trace(_flags, concrete_args={"flag": True, "n": 5, "text": None}),
            lib.fx.symbolic_trace(_trees, concrete_args={"d": {"a": ph, "b": [ph, ph]}}),
            lib.fx.symbolic_trace(_trees, concrete_args={"d": {"a": ph, "b": (ph, 3)}, "pair": None}),
        ]
        x = lib.ones(2)
        run = made[2](x, {"a": x, "b": [x, 2 * x]})
        return "".join(m.code + str(m.graph) for m in made) + str(run) + str(made[0](x, False))

    both(values)
    both(lambda lib: lib.fx.symbolic_trace(_flags, concrete_args={"flag": False})(lib.ones(1), True))


# ---- tracers


def test_tracer_subclasses() -> None:
    def values(lib: Any) -> str:
        class Leaves(lib.fx.Tracer):  # type: ignore[name-defined, misc]
            def __init__(self, **kw: Any) -> None:
                super().__init__(**kw)
                self.seen: list[str] = []

            def is_leaf_module(self, m: Any, path: str) -> bool:
                return type(m).__name__ == "Basic" or super().is_leaf_module(m, path)

            def call_module(self, m: Any, forward: Any, args: Any, kwargs: Any) -> Any:
                self.seen.append(f"{self.path_of_module(m)}:{type(m).__name__}")
                return super().call_module(m, forward, args, kwargs)

            def create_node(
                self, kind: str, target: Any, args: Any, kwargs: Any, name: Any = None, type_expr: Any = None
            ) -> Any:
                n = super().create_node(kind, target, args, kwargs, name)
                n.tag = len(self.seen)
                return n

        t = Leaves()
        graph = t.trace(fx_zoo.build(lib, ZOO[lib], "ResNet"))
        said = [str(graph), str(t.seen), str([n.tag for n in graph.nodes]), str(sorted(t.node_name_to_scope))]

        class Sized(lib.fx.Tracer):  # type: ignore[name-defined, misc]
            def to_bool(self, obj: Any) -> bool:
                return True

            def iter(self, obj: Any) -> Any:
                return iter([obj[i] for i in range(3)])

            def keys(self, obj: Any) -> Any:
                return ["a", "b"]

        def f(x: Any, d: Any) -> Any:
            total = 0
            for y in x:
                if y > 0:
                    total = total + y
            return total, dict(**d), lib.relu(x)

        said.append(str(Sized().trace(f)))
        module = fx_zoo.build(lib, ZOO[lib], "Buffers")

        class Proxied(lib.fx.Tracer):  # type: ignore[name-defined, misc]
            proxy_buffer_attributes = True
            record_stack_traces = True

        graph = Proxied().trace(module)
        said.append(str(graph))
        said.append(str(["return self.bn(x)" in (n.stack_trace or "") for n in graph.nodes if n.op == "call_function"]))

        class Shapes(lib.nn.Module):  # type: ignore[name-defined, misc]
            def __init__(self) -> None:
                super().__init__()
                self.w = lib.nn.Parameter(lib.ones(2, 3))

            def forward(self, x: Any) -> Any:
                return x * 2 if self.w.shape[0] == 2 and self.w.dim() == 2 and self.w.ndim + self.w.numel() == 8 else x

        said.append(str(lib.fx.Tracer(param_shapes_constant=True).trace(Shapes())))
        return "\n".join(said)

    both(values)


def _helper(x: Any) -> Any:
    return x * 2 if x is None else x + 2


def test_autowrapping() -> None:
    def values(lib: Any) -> str:
        def f(x: Any) -> Any:
            return _helper(x), operator.add(x, 1)

        return str(lib.fx.Tracer(autowrap_functions=(_helper,)).trace(f))

    both(values)


def test_asserts_are_nodes_where_they_are_traced() -> None:
    def values(lib: Any) -> str:
        class T(lib.fx.Tracer):  # type: ignore[name-defined, misc]
            trace_asserts = True

        def f(x: Any, y: Any) -> Any:
            assert x == y
            assert x.shape[0] == 3, "three"
            return x + y

        graph = T().trace(f)
        return str(graph)

    both(values)


class _Point(metaclass=torch.fx.ProxyableClassMeta):
    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = x, y


class _TabPoint(metaclass=tabtorch.fx.ProxyableClassMeta):
    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = x, y


def test_classes_that_a_trace_makes() -> None:
    def values(lib: Any) -> str:
        cls = _Point if lib is torch else _TabPoint
        cls.__name__ = cls.__qualname__ = "Point"
        graph = lib.fx.symbolic_trace(lambda a: cls(a, 2).x + cls(1, 2).y).graph
        return str(graph).replace("test_fx.Point", "Point")

    both(values)

"""What is done with graphs of torch.fx, beside PyTorch's: changes, patterns, interpreters, passes, features of models by path."""

from __future__ import annotations

import contextlib
import copy
import importlib
import io
import operator
import re
import subprocess
import sys
from collections import OrderedDict
from typing import Any

import pytest
import torch
import torch.fx

import fx_zoo
import tabtorch
import tabtorch.fx
from sidebyside import outcome
from test_fx import LIBS, ZOO, both, described, plain, traced


@pytest.fixture(autouse=True)
def on_the_cpu() -> Any:
    with tabtorch.device("cpu"):
        yield


def module(lib: Any, name: str) -> Any:
    return importlib.import_module(f"{lib.__name__}.{name}")


def chain(lib: Any) -> Any:
    return lib.fx.symbolic_trace(lambda x, w: lib.relu(lib.add(x, w)) + lib.relu(lib.add(x, x)))


# ---- graphs


def test_graphs_made_by_hand() -> None:
    def made(lib: Any) -> str:
        g = lib.fx.Graph()
        x = g.placeholder("x", lib.Tensor, default_value=3)
        w = g.get_attr("w")
        y = g.call_function(lib.add, (x, w), {"alpha": 2})
        z = g.call_method("view", (y, (2, -1)), type_expr=lib.Tensor)
        m = g.call_module("sub.lin", (z,))
        k = g.create_node("call_function", operator.getitem, (m, slice(x, None, 2)), name="first")
        d = g.call_function(dict, (), {"a": [k, (z, 1)], "b": {"c": k}})
        g.output((d, k), type_expr=tuple)
        g.lint()
        lin = lib.nn.Linear(2, 2)
        gm = lib.fx.GraphModule({"w": lib.ones(2), "sub.lin": lin}, g, "Hand")
        said = [*described(gm), str([n.users for n in g.nodes]), str(g.find_nodes(op="call_function", target=lib.add))]
        said += [
            str(g.find_nodes(op="placeholder")),
            str(g.output_node().args),
            str(len(g.nodes)),
            str(list(reversed(g.nodes))),
        ]
        said += [
            str(type(gm).__name__),
            str(sorted(gm.state_dict())),
            str(k.format_node()),
            str(x.next),
            str(x.prev.op),
        ]
        said.append(str([a < b for a, b in zip(g.nodes, list(g.nodes)[1:], strict=False)]))
        return "\n".join(said)

    both(made)


def test_graphs_are_changed() -> None:
    def changed(lib: Any) -> str:
        gm = chain(lib)
        g = gm.graph
        said = []
        relu, other = g.find_nodes(op="call_function", target=lib.relu)
        with g.inserting_after(relu):
            neg = g.call_function(lib.neg, (relu,))
        relu.replace_all_uses_with(neg, delete_user_cb=lambda user: user is not neg)
        with g.inserting_before(other):
            g.call_function(lib.abs, (other.args[0],))
        with g.inserting_before():
            first = g.placeholder("first")
        with g.inserting_after(first):
            g.placeholder("second")
        said.append(str(g))
        said.append(str([n.name for n in sorted(reversed(list(g.nodes)))]))  # noqa: C414
        said.append(str(g.eliminate_dead_code()))
        other.append(neg)
        said.append(str([other < neg, neg > other, neg <= neg]))
        relu.append(neg)
        other.replace_input_with(other.args[0], neg)
        other.args = (*other.args,)
        other.kwargs = {"out": neg}
        other.update_kwarg("out", first)
        other.update_arg(0, first)
        other.insert_arg(0, relu)
        said += [str(other.args), str(other.kwargs), str(other.all_input_nodes), str(first.users), str(relu.users)]
        other.target = lib.sigmoid
        said.append(str(g.find_nodes(op="call_function", target=lib.sigmoid)))
        gm.recompile()
        said.append(gm.code)
        other._rename("renamed")
        said += [str(g), str(lib.fx.map_arg([relu, (neg, 1)], lambda n: n.name))]
        h = lib.fx.Graph()
        env: dict[Any, Any] = {}
        said.append(str(h.graph_copy(g, env)))
        h.output(None)
        said += [str(h), str(copy.deepcopy(g)), str(chain(lib).graph.eliminate_dead_code())]
        node = first.users
        said.append(str(len(node)))
        before, after = neg.prev, neg.next
        for user in list(neg.users):
            user.replace_input_with(neg, relu)
        g.erase_node(neg)
        said += [str(before.next is after and after.prev is before), str(len(g.nodes)), str(neg._erased)]
        return "\n".join(said)

    both(changed)


def test_dead_code_that_does_something_stays() -> None:
    def left(lib: Any) -> str:
        def f(x: Any, y: Any) -> Any:
            lib._assert(x.shape[0] == 2, "two")
            x + y
            lib.rand(2)
            lib.relu(x)
            lib.rand_like(x)
            x.add_(1)
            return y

        gm = lib.fx.symbolic_trace(f)
        gm.graph.eliminate_dead_code()
        gm.recompile()
        return gm.code + str([n.is_impure() for n in gm.graph.nodes])

    both(left)


def test_code_is_changed_while_it_is_generated() -> None:
    def code(lib: Any) -> str:
        gm = chain(lib)

        def insert(current: Any) -> Any:
            def transform(body: list[str]) -> list[str]:
                return ["print('here')\n", *(current(body) if current else body)]

            return transform

        with gm.graph.on_generate_code(insert):
            gm.recompile()
            said = gm.code
        gm.recompile()

        class Lists(lib.fx.CodeGen):  # type: ignore[name-defined, misc]
            def gen_fn_def(self, free_vars: Any, returns: str) -> str:
                return f"def forward(self, args_list){returns}:\n    {', '.join(free_vars)} = args_list"

            def additional_globals(self) -> Any:
                return [("List", list)]

            def process_inputs(self, *inputs: Any) -> Any:
                (given,) = inputs
                return given

        gm.graph.set_codegen(Lists())
        gm.recompile()
        x = lib.ones(2)
        said += gm.code + str(gm([x, x])) + str(lib.fx.Interpreter(gm).run([x, x]))
        return said + str(gm.graph.python_code("root").globals.keys())

    both(code)


def test_tables() -> None:
    for lib in LIBS:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            try:
                chain(lib).graph.print_tabular()
            except ImportError:
                assert "`print_tabular` relies on the library `tabulate`" in out.getvalue()
                continue
        assert "opcode" in out.getvalue()


# ---- GraphModules


def test_submodules_and_hooks() -> None:
    def values(lib: Any) -> str:
        gm = traced(lib, "ResNet")
        said = [str([gm.add_submodule("layer1.extra.deep", lib.nn.ReLU()), gm.add_submodule("new", lib.nn.ReLU())])]
        said += [
            str(
                [
                    gm.delete_submodule("layer1.extra.deep"),
                    gm.delete_submodule("nothing.there"),
                    gm.delete_submodule("layer1.0.x"),
                ]
            )
        ]
        gm.delete_all_unused_submodules()
        said.append(str([n for n, _ in gm.named_modules()]))
        seen: list[str] = []
        gm._register_create_node_hook(lambda n: seen.append("made " + n.name))
        gm._register_erase_node_hook(lambda n: seen.append("gone " + n.name))
        fc = gm.graph.find_nodes(op="call_module", target="fc")[0]
        with (
            gm._set_replace_hook(lambda old, new, user: seen.append(f"{old} {new} {user}")),
            gm.graph.inserting_after(fc),
        ):
            new = gm.graph.call_module("avgpool", fc.args)
            fc.replace_all_uses_with(new)
            gm.graph.erase_node(fc)
        said += seen
        gm.recompile()
        said.append(gm.code)
        gm.meta["_user_preserved_attributes"] = {"kept": 3}
        deep = copy.deepcopy(gm)
        said += [
            str(deep.kept),
            str(deep.meta),
            str(type(deep).__name__),
            str(copy.copy(gm).code == gm.code),
            str(deep.training),
        ]
        names = module(lib, "fx.graph_module")
        to = lib.nn.Module()
        names._copy_attr(gm, to, "layer1.0.bn1.running_mean")
        names._copy_attr(gm, to, "conv1.weight")
        names._assign_attr(lib.ones(1), to, "a.b")
        said += [str(sorted(to.state_dict())), str(names._get_attr(to, "a.b")), names._USER_PRESERVED_ATTRIBUTES_KEY]
        names._del_attr(to, "a.b")
        said.append(str([names._has_attr(to, "conv1"), names._has_attr(to, "a.b")]))
        return "\n".join(said)

    both(values)


def test_an_error_shows_the_generated_code(capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for lib in LIBS:
        gm = lib.fx.symbolic_trace(lambda x: x.relu() + x.nothing())
        with pytest.raises(AttributeError):
            gm(lib.ones(2))
        err = capsys.readouterr().err
        said.append(err[err.index("Call using an FX-traced Module") :])
    assert said[0] == said[1]


def test_folders(tmp_path: Any) -> None:
    texts = []
    for lib in LIBS:
        folder = tmp_path / lib.__name__
        with pytest.warns(UserWarning, match="as reprs"):
            traced(lib, "ResNet").to_folder(folder, "Net")
        texts.append((folder / "module.py").read_text().replace(str(folder), "FOLDER"))
    assert texts[0] == plain(texts[1])


def test_a_graph_of_a_graph_module_and_one_inside() -> None:
    def values(lib: Any) -> str:
        gm = traced(lib, "Shared")
        again = lib.fx.symbolic_trace(gm)

        class Outer(lib.nn.Module):  # type: ignore[name-defined, misc]
            def __init__(self) -> None:
                super().__init__()
                self.inner = gm

            def forward(self, x: Any) -> Any:
                return self.inner(x) * 2

        outer = lib.fx.symbolic_trace(Outer())
        leaf = lib.fx.GraphModule({"inner": gm}, _calls(lib))
        return again.code + outer.code + leaf.print_readable(False) + str(leaf)

    both(values)


def _calls(lib: Any) -> Any:
    g = lib.fx.Graph()
    g.output(g.call_module("inner", (g.placeholder("x"),)))
    return g


# ---- interpreters


def test_interpreters_and_transformers() -> None:
    def values(lib: Any) -> str:
        def f(x: Any) -> Any:
            return lib.sigmoid(x).neg() + lib.sigmoid(x)

        gm = lib.fx.symbolic_trace(f)

        class NegSigmSwap(lib.fx.Interpreter):  # type: ignore[name-defined, misc]
            def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
                return (
                    lib.neg(*args, **kwargs) if target == lib.sigmoid else super().call_function(target, args, kwargs)
                )

            def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
                if target == "neg":
                    call_self, *rest = args
                    return call_self.sigmoid(*rest, **kwargs)
                return super().call_method(target, args, kwargs)

        class Swapped(lib.fx.Transformer):  # type: ignore[name-defined, misc]
            def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
                return (
                    lib.neg(*args, **kwargs) if target == lib.sigmoid else super().call_function(target, args, kwargs)
                )

            def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
                return args[0].sigmoid() if target == "neg" else super().call_method(target, args, kwargs)

        x = lib.arange(3.0)
        made = Swapped(gm).transform()
        run = NegSigmSwap(gm)
        said = [str(run.run(x)), made.code, str(made(x)), str(len(run.env)), str(made.graph)]
        keep = lib.fx.Interpreter(gm, garbage_collect_values=False)
        keep.run(x)
        said += [str(sorted(n.name for n in keep.env)), str(keep.boxed_run([x]))]
        said.append(str(keep.run(initial_env={next(iter(gm.graph.nodes)): x + 1})))
        for n in gm.graph.nodes:
            n.meta["custom"] = {"tag": n.name}
        said.append(str([n.meta.get("custom") for n in lib.fx.Transformer(gm).transform().graph.nodes]))
        return "\n".join(said)

    both(values)


def test_proxies_write_into_graphs() -> None:
    """As in PyTorch's documentation: decompositions, and a graph that is changed by Proxies."""

    def values(lib: Any) -> str:
        F = lib.nn.functional

        def relu_decomposed(x: Any, inplace: bool = False) -> Any:
            return (x > 0) * x

        rules = {F.relu: relu_decomposed}
        gm = lib.fx.symbolic_trace(lambda x: F.relu(x) + F.relu(x, inplace=False).sum())
        g = lib.fx.Graph()
        env: dict[str, Any] = {}
        tracer = lib.fx.proxy.GraphAppendingTracer(g)
        for node in gm.graph.nodes:
            if node.op == "call_function" and node.target in rules:
                args = [lib.fx.Proxy(env[x.name], tracer) if isinstance(x, lib.fx.Node) else x for x in node.args]
                env[node.name] = rules[node.target](*args).node
            else:
                env[node.name] = g.node_copy(node, lambda x: env[x.name])
        said = [str(g), lib.fx.GraphModule(lib.nn.Module(), g).code]
        last = g.output_node()
        with g.inserting_before(last):
            p = lib.fx.Proxy(last.args[0])
            q = lib.cat([p, lib.relu(p) ** 2], dim=0)[0]
            q = q.shape[0] + 2 * q.abs()
            q = F.layer_norm(q, (3,)) if q is not None else q
        last.args = (q.node,)
        said += [str(g), repr(p), repr(p.shape), repr(copy.copy(p).node)]
        annotate = module(lib, "fx.annotate").annotate
        said.append(str(annotate(p, int).node.type))
        return "\n".join(said)

    both(values)
    both(lambda lib: module(lib, "fx.annotate").annotate(3, int))


# ---- patterns


def test_patterns_are_replaced() -> None:
    def values(lib: Any) -> str:
        said = []
        F = lib.nn.functional

        class M(lib.nn.Module):  # type: ignore[name-defined, misc]
            def __init__(self) -> None:
                super().__init__()
                self.lin = lib.nn.Linear(2, 2)

            def forward(self, x: Any, w1: Any, w2: Any) -> Any:
                m1 = lib.cat([w1, w2]).sum()
                m2 = lib.cat([w1, w2]).sum()
                return self.lin(x) + lib.max(m1) + lib.max(m2)

        def rewrite(f: Any, pattern: Any, replacement: Any, **kw: Any) -> None:
            gm = lib.fx.symbolic_trace(f)
            rewriter = module(lib, "fx.subgraph_rewriter")
            if kw:
                found = rewriter.replace_pattern_with_filters(gm, pattern, replacement, **kw)
                said.append(str([r.replacements for r in found]))
            else:
                found = lib.fx.replace_pattern(gm, pattern, replacement)
            said.append(gm.code)
            said.append(str(gm.graph))
            said.append(str([(m.anchor, sorted((str(a), str(b)) for a, b in m.nodes_map.items())) for m in found]))
            gm.graph.lint()

        rewrite(M(), lambda w1, w2: lib.cat([w1, w2]).sum(), lambda w1, w2: lib.stack([w1, w2]))
        rewrite(lambda x: lib.neg(x) + lib.relu(lib.neg(x)), lambda x: lib.neg(x), lambda x: lib.abs(x) * 2)
        rewrite(lambda x: lib.relu(lib.relu(lib.relu(x))), lambda x: lib.relu(x), lambda x: lib.sigmoid(x))
        rewrite(lambda x, y: lib.sigmoid(x.neg() @ y), lambda a, b: a.neg() @ b, lambda a, b: (lib.neg(a), a @ b)[1])
        rewrite(lambda x: (lib.relu(x), lib.relu(x) + 1), lambda x: lib.relu(x) + 1, lambda x: x - 1)
        rewrite(lambda x: x + 1 + 2, lambda x: x + 2, lambda x: x * 2)
        rewrite(lambda x, y: lib.add(x, y) * lib.add(x, x), lambda x: lib.add(x, x), lambda x: x * 2)
        rewrite(lambda x: lib.add(x, 3) * 2, lambda x, n: lib.add(x, n), lambda x, n: lib.sub(x, n))
        rewrite(lambda x: (x + 1) * 2, lambda x: x + 5, lambda x: x - 5, ignore_literals=True)
        rewrite(lambda x: x.split(2)[0] + x.split(2)[1], lambda x: x.split(2), lambda x: lib.chunk(x, 2))

        def two(x: Any) -> Any:
            return lib.relu(x), lib.neg(x)

        rewrite(lambda x: lib.relu(x) + lib.neg(x), two, lambda x: (lib.abs(x), x))
        rewrite(
            lambda x: lib.relu(x) + lib.relu(x + 1), lambda x: lib.relu(x), lambda x: F.gelu(x),
            match_filters=[lambda match, graph, pattern: match.placeholder_nodes[0].op != "placeholder"],
        )  # fmt: skip
        rewrite(
            lambda x: lib.relu(x) + 1, lambda x: lib.relu(x), None,
            replacement_callback=lambda match, graph, pattern: lib.fx.symbolic_trace(lambda x: lib.tanh(x)).graph,
        )  # fmt: skip

        class Module(lib.nn.Module):  # type: ignore[name-defined, misc]
            def __init__(self) -> None:
                super().__init__()
                self.other = lib.nn.Sigmoid()

            def forward(self, x: Any) -> Any:
                return self.other(x)

        gm = lib.fx.symbolic_trace(lambda x: lib.relu(x) + 1)
        lib.fx.replace_pattern(gm, lambda x: lib.relu(x), lib.fx.symbolic_trace(Module()))
        said += [gm.code, str([n for n, _ in gm.named_modules()])]
        matcher = module(lib, "fx.passes.utils.matcher_utils").SubgraphMatcher
        graph = lib.fx.symbolic_trace(lambda x, y: lib.relu(x) @ lib.relu(y)).graph
        found = matcher(lib.fx.symbolic_trace(lambda x: lib.relu(x)).graph).match(graph)
        said.append(str([(m.anchors, m.returning_nodes, m.placeholder_nodes) for m in found]))
        return "\n".join(said)

    both(values)
    both(lambda lib: module(lib, "fx.passes.utils.matcher_utils").SubgraphMatcher(lib.fx.Graph()))


# ---- passes


def test_shapes_are_noted() -> None:
    def values(lib: Any) -> str:
        gm = traced(lib, "ResNet")
        prop = module(lib, "fx.passes.shape_prop")
        prop.ShapeProp(gm).propagate(lib.ones(1, 3, 8, 8))
        said = [
            f"{n.name} {n.meta['tensor_meta'].shape} {n.meta['tensor_meta']}"
            for n in gm.graph.nodes
            if "tensor_meta" in n.meta
        ]
        said += [gm.print_readable(False), str([plain(n.meta["type"]) for n in gm.graph.nodes])]
        sizes = module(lib, "fx.passes.graph_manipulation")
        sizes.get_size_of_all_nodes(gm)
        said.append(str([getattr(n, "size_bytes", None) for n in gm.graph.nodes]))
        sizes.replace_target_nodes_with(gm, "call_function", lib.flatten, "call_function", lib.squeeze)
        return "\n".join([*said, gm.code])

    both(values)


def test_modules_are_split() -> None:
    def values(lib: Any) -> str:
        said = []
        split = module(lib, "fx.passes.split_module").split_module
        for name, inputs in (("Transformer", (1, 5, 8)), ("ResNet", (1, 3, 16, 16)), ("MLP", (2, 4))):
            for options in ({}, {"keep_original_order": True}, {"tuple_return": True, "partition_affix": "p"}):
                gm = traced(lib, name)
                calls = [n for n in gm.graph.nodes if n.op not in ("placeholder", "output", "get_attr")]
                of = {n: 3 * i // len(calls) for i, n in enumerate(calls)}
                paths: dict[str, str] = {}
                made = split(gm, None, lambda n, of=of: of[n], paths, **options)
                said += [made.print_readable(False), str(paths), str(sorted(made.meta["partition_names"]))]
                x = fx_zoo._ramp(lib, *inputs)
                a, b = gm(x), made(x)
                a, b = (a[0], b[0]) if isinstance(a, tuple) else (a, b)
                said.append(str(lib.allclose(a, b, atol=1e-6)))
        return "\n".join(said)

    both(values)

    def by_tags(lib: Any) -> str:
        gm = traced(lib, "MLP")
        for i, n in enumerate(gm.graph.nodes):
            n.tag = "a" if i < 8 else "b"
        made, where = module(lib, "fx.passes.split_utils").split_by_tags(gm, ["a", "b"], return_fqn_mapping=True)
        return made.print_readable(False) + str(where)

    both(by_tags)


def test_constants_are_folded_and_norms_fused() -> None:
    def values(lib: Any) -> str:
        fold = module(lib, "fx.experimental.const_fold")

        class M(lib.nn.Module):  # type: ignore[name-defined, misc]
            def __init__(self) -> None:
                super().__init__()
                self.a = lib.nn.Parameter(lib.ones(2))
                self.lin = lib.nn.Linear(2, 2)
                self.register_buffer("b", lib.full((2,), 2.0))

            def forward(self, x: Any) -> Any:
                w = self.a * self.b + 1
                return x @ lib.stack([w, w]) + self.a.sum() + x

        made = fold.split_const_subgraphs(M())
        x = lib.ones(1, 2)
        said = [made.code, made.const_subgraph_module.code, str(made(x)), str(made(x))]
        said.append(fold.split_const_subgraphs(lib.nn.ReLU()).code)
        said.append(fold.get_unique_attr_name_in_module(made, "lin.a"))
        opt = module(lib, "fx.experimental.optimization")
        net = fx_zoo.build(lib, ZOO[lib], "ResNet")
        fused = opt.fuse(net)
        said += [fused.code, str(lib.allclose(fused(lib.ones(1, 3, 8, 8)), net(lib.ones(1, 3, 8, 8)), atol=1e-5))]
        said.append(opt.remove_dropout(lib.nn.Sequential(lib.nn.Linear(2, 2), lib.nn.Dropout(), lib.nn.ReLU())).code)
        return "\n".join(said)

    both(values)


def test_parts_are_fused_for_a_backend() -> None:
    def values(lib: Any) -> str:
        part = module(lib, "fx.passes.infra.partitioner")
        support = module(lib, "fx.passes.operator_support")

        def f(a: Any, b: Any) -> Any:
            c = lib.relu(a + b)
            d = lib.neg(c) * 2
            e = lib.sigmoid(d)
            return lib.relu(e) + c, d

        def takes(mods: Any, n: Any) -> bool:
            return n.op == "call_function" and n.target not in (lib.neg, lib.sigmoid)

        said = []
        for alone in (False, True):
            gm = lib.fx.symbolic_trace(f)
            p = part.CapabilityBasedPartitioner(
                gm, support.create_op_support(takes), allows_single_node_partition=alone
            )
            found = p.propose_partitions()
            said.append(str(sorted(sorted(n.name for n in x.nodes) for x in found)))
            fused = p.fuse_partitions(found)
            x = lib.arange(2.0)
            said.append(str(lib.allclose(fused(x, x)[0], f(x, x)[0])))
        tools = module(lib, "fx.passes.tools_common")
        gm = chain(lib)
        modules = dict(traced(lib, "ResNet").named_modules())
        said += [
            str(
                [
                    tools.get_node_target(modules, n)
                    for n in traced(lib, "ResNet").graph.nodes
                    if n.op.startswith("call")
                ]
            )
        ]
        said += [tools.legalize_graph(gm).code, tools.stable_topological_sort(gm).code]
        fuser = module(lib, "fx.passes.utils.fuser_utils")
        nodes = [n for n in gm.graph.nodes if n.target in (lib.relu, lib.add)]
        said.append(
            str([fuser.validate_partition(nodes), fuser.validate_partition(nodes[:1] + [gm.graph.output_node().prev])])
        )
        same = module(lib, "fx.passes.utils.common").compare_graphs
        said.append(str([same(chain(lib).graph, gm.graph), same(gm.graph, traced(lib, "MLP").graph)]))
        return "\n".join(said)

    both(values)


def test_pass_managers() -> None:
    def values(lib: Any) -> str:
        infra = module(lib, "fx.passes.infra.pass_manager")
        base = module(lib, "fx.passes.infra.pass_base")
        seen: list[str] = []

        def one(gm: Any) -> Any:
            seen.append("one")

        def two(gm: Any) -> Any:
            seen.append("two")
            return base.PassResult(gm, False)

        class Three(base.PassBase):  # type: ignore[name-defined, misc]
            def call(self, gm: Any) -> Any:
                seen.append("three")
                return base.PassResult(gm, False)

        passes = [infra.pass_result_wrapper(one), two, Three()]
        rule = infra.this_before_that_pass_constraint(two, passes[0])
        pm = infra.PassManager(passes=passes, constraints=[rule], steps=2)
        pm.add_checks(lambda gm: seen.append("check"))
        result = pm(chain(lib))
        seen.append(str(result.modified))
        with pytest.raises(RuntimeError, match="Circular"):
            infra.PassManager([one, two], [lambda a, b: False]).solve_constraints()
        with pytest.raises(Exception, match="An error occurred when running the 'bad' pass"):
            infra.PassManager([_bad()])(chain(lib))
        return str(seen)

    both(values)


def _bad() -> Any:
    def bad(gm: Any) -> Any:
        return gm

    return bad


def test_pictures_ask_for_pydot() -> None:
    both(lambda lib: module(lib, "fx.passes.graph_drawer").FxGraphDrawer(chain(lib), "g"))


# ---- schemas


def test_arguments_are_normalized() -> None:
    def values(lib: Any) -> str:
        o = module(lib, "fx.operator_schemas")
        F = lib.nn.functional
        said = [
            o.normalize_function(F.relu, (1,)),
            o.normalize_function(F.max_pool2d, (1, 2), {"stride": 2}, normalize_to_only_use_kwargs=True),
            o.normalize_function(lib.relu, (1,), {}, normalize_to_only_use_kwargs=True),
            o.normalize_function(lib.softmax, (1, 2), {}, (lib.Tensor, int), {}, True),
            o.normalize_function(operator.add, (1, 2)) if False else None,
            o.normalize_module(traced(lib, "ResNet"), "conv1", (1,), {}, True),
            o.normalize_module(traced(lib, "ResNet"), "relu" if False else "fc", (), {"input": 3}),
            [
                o.type_matches(a, b)
                for a, b in (
                    (int, int),
                    (list[int], int),
                    (int, float),
                    (lib.Tensor, lib.Tensor),
                    (list[int], tuple[int, int]),
                )
            ],
            o.create_type_hint([int, int]),
            o.create_type_hint((int, str)),
        ]
        gm = lib.fx.symbolic_trace(lambda x: F.dropout(lib.flatten(x, 1), 0.3))
        said.append([n.normalized_arguments(gm, normalize_to_only_use_kwargs=True) for n in gm.graph.nodes])
        return re.sub(r"<object[^>]*>", "", str(said))

    both(values)
    both(lambda lib: module(lib, "fx.operator_schemas").normalize_module(lib.nn.ReLU(), "x", ()))
    with pytest.raises(RuntimeError, match="ambiguous"):
        tabtorch.fx.operator_schemas.normalize_function(tabtorch.mean, (1,), {"dtype": None}) and None
        tabtorch.fx.operator_schemas.normalize_function(tabtorch.add, (1, 2))
    assert outcome(lambda: torch.fx.operator_schemas.normalize_function(torch.add, (1, 2)))[1][0] == "RuntimeError"


# ---- metadata


def test_nodes_inherit() -> None:
    def values(lib: Any) -> str:
        tb = module(lib, "fx.traceback")
        said = []
        gm = chain(lib)
        for n in gm.graph.nodes:
            n.meta["stack_trace"] = f"line of {n.name}"
        with tb.preserve_node_meta(), tb.annotate({"part": 1}):
            said.append(str(tb.has_preserved_node_meta()))
            traced_again = lib.fx.symbolic_trace(lambda x: lib.relu(x))
            said.append(str([n.meta.get("custom") for n in traced_again.graph.nodes]))
        made = lib.fx.Transformer(gm).transform()
        said.append(str([n.stack_trace for n in made.graph.nodes]))
        said.append(str([[s.name for s in n.meta.get("from_node", [])] for n in made.graph.nodes]))
        said.append(str([tb.get_current_meta(), tb.has_preserved_node_meta()]))

        @tb.annotate_fn({"f": 2})
        def inner(x: Any) -> Any:
            return lib.neg(x) + tb.get_current_meta()["custom"]["f"]

        with tb.preserve_node_meta():
            gm = lib.fx.symbolic_trace(lambda x: lib.relu(inner(x)))
        said += [str([n.meta.get("custom") for n in gm.graph.nodes]), gm.print_readable(False)]
        source = tb.NodeSource(next(iter(gm.graph.nodes)), "p", tb.NodeSourceAction.CREATE)
        said.append(re.sub(r"\d{6,}", "N", str(source)))
        return "\n".join(said)

    both(values)


# ---- features by path, as torchvision and timm take them


def features(lib: Any, model: Any, wanted: dict[str, str], leaves: tuple[Any, ...] = ()) -> Any:
    """As torchvision.models.feature_extraction: nodes are named by the modules that they are made in."""
    fx = lib.fx

    class NodePathTracer(fx.Tracer):
        def __init__(self) -> None:
            super().__init__()
            self.current = ""
            self.names: OrderedDict[Any, str] = OrderedDict()

        def is_leaf_module(self, m: Any, path: str) -> bool:
            return isinstance(m, leaves) or super().is_leaf_module(m, path)

        def call_module(self, m: Any, forward: Any, args: Any, kwargs: Any) -> Any:
            before = self.current
            try:
                self.current = path = self.path_of_module(m)
                if not self.is_leaf_module(m, path):
                    return forward(*args, **kwargs)
                return self.create_proxy("call_module", path, args, kwargs)
            finally:
                self.current = before

        def create_proxy(
            self, kind: str, target: Any, args: Any, kwargs: Any, name: Any = None, type_expr: Any = None, *_: Any
        ) -> Any:
            proxy = super().create_proxy(kind, target, args, kwargs, name, type_expr)
            self.names[proxy.node] = self.name_of(self.current, proxy.node)
            return proxy

        def name_of(self, path: str, node: Any) -> str:
            if node.op == "call_module":
                found = node.target
            else:
                found = f"{path}.{node.name}" if path else node.name
            if re.match(r".+_[0-9]+$", found) is not None:
                found = found.rsplit("_", 1)[0]
            same = [n for n in self.names.values() if re.sub(r"_\d+$", "", n) == found]
            return f"{found}_{len(same)}" if same else found

    class Dual(fx.GraphModule):
        def __init__(self, root: Any, train: Any, evaluated: Any) -> None:
            super(fx.GraphModule, self).__init__()
            self.__class__.__name__ = "Dual"
            self.training = root.training
            for node in [*train.nodes, *evaluated.nodes]:
                if node.op in ("get_attr", "call_module"):
                    module(lib, "fx.graph_module")._copy_attr(root, self, node.target)
            self.train()
            self.graph = train
            self.train_graph, self.eval_graph = train, evaluated
            if self.graph._tracer_cls and "<locals>" not in self.graph._tracer_cls.__qualname__:
                self._tracer_cls = self.graph._tracer_cls

        def train(self, mode: bool = True) -> Any:
            if mode and not self.training:
                self.graph = self.train_graph
            elif not mode and self.training:
                self.graph = self.eval_graph
            return super().train(mode=mode)

    graphs, listed = [], []
    for training in (True, False):
        model.train(training)
        tracer = NodePathTracer()
        graph = tracer.trace(model)
        graph.eliminate_dead_code() if False else None
        listed.append(list(tracer.names.values()))
        gm = fx.GraphModule(tracer.root, graph, "M")
        output = gm.graph.output_node()
        nodes = {new: next(n for n, path in tracer.names.items() if path == name) for name, new in wanted.items()}
        gm.graph.erase_node(output)
        with gm.graph.inserting_after(list(gm.graph.nodes)[-1]):
            gm.graph.output(nodes)
        gm.graph.eliminate_dead_code()
        gm.recompile()
        graphs.append(gm)
    dual = Dual(graphs[0], graphs[0].graph, graphs[1].graph)
    return dual.eval(), listed


def test_features_by_path() -> None:
    def values(lib: Any) -> str:
        wanted = {"layer1.0.relu": "low", "layer1.1.add": "mid", "flatten": "flat", "fc": "out"}
        dual, listed = features(lib, fx_zoo.build(lib, ZOO[lib], "ResNet"), wanted)
        said = [str(listed), dual.code, str([n for n, _ in dual.named_modules()])]
        got = dual(lib.ones(1, 3, 16, 16))
        said += [str({k: tuple(v.shape) for k, v in got.items()})]
        said += [dual.train().code, copy.deepcopy(dual).code if lib is None else ""]
        dual, listed = features(lib, fx_zoo.build(lib, ZOO[lib], "Transformer"), {"attn.softmax": "a", "mlp.1": "b"})
        said += [str(listed), dual.code]
        dual, listed = features(lib, fx_zoo.build(lib, ZOO[lib], "ResNet"), {"layer2.0": "a"}, (ZOO[lib]["Basic"],))
        return "\n".join([*said, str(listed), dual.code])

    both(values)


# ---- names that libraries import


@pytest.mark.parametrize(
    "name",
    "graph_module:_CodeOnlyModule graph_module:_copy_attr graph_module:_USER_PRESERVED_ATTRIBUTES_KEY node:Node node:Target "
    "passes.shape_prop:ShapeProp experimental.proxy_tensor:make_fx _symbolic_trace:Tracer _symbolic_trace:is_fx_tracing "
    "_compatibility:compatibility proxy:Proxy proxy:Attribute immutable_collections:immutable_list "
    "immutable_collections:immutable_dict experimental.symbolic_shapes:guard_size_oblivious "
    "experimental.symbolic_shapes:statically_known_true experimental.symbolic_shapes:is_symbolic passes.split_module:split_module "
    "passes.infra.pass_base:PassResult passes.operator_support:OperatorSupport interpreter:Interpreter graph:_PyTreeCodeGen "
    "graph:magic_methods proxy:TraceError proxy:ParameterProxy proxy:Scope node:map_aggregate node:base_types "
    "experimental.proxy_tensor:get_proxy_mode experimental.proxy_tensor:disable_proxy_modes_tracing "
    "experimental.proxy_tensor:ProxyTorchDispatchMode".split(),
)
def test_names_that_libraries_import(name: str) -> None:
    where, _, what = name.partition(":")
    assert hasattr(importlib.import_module("torch.fx." + where), what)
    assert hasattr(importlib.import_module("tabtorch.fx." + where), what)


def test_loading_torch_does_not_load_fx() -> None:
    code = (
        "import sys, tabtorch; tabtorch.ones(1).relu(); print([m for m in sys.modules if m.startswith('tabtorch.fx')])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"

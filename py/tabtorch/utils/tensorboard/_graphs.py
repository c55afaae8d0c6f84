"""A module's graph, by `torch.fx`."""

from __future__ import annotations

from typing import Any

from tabtorch import _lazy
from tabtorch.utils.tensorboard._wire import Message


def graph(model: Any, args: Any = None, verbose: bool = False) -> tuple[Message, Message]:
    """The GraphDef of what `model` calls, in the boxes of its modules, and the statistics that TensorBoard wants beside it.

    args: inputs, one or a tuple: with them, the shapes stand at the edges. RuntimeError where torch.fx cannot trace the model.
    """
    torch = _lazy.torch
    training = model.training
    model.train(False)
    try:
        try:
            traced = torch.fx.symbolic_trace(model)
        except Exception as error:
            raise RuntimeError(
                f"add_graph shows what torch.fx can trace, and it cannot trace {type(model).__name__}: {error}. No graph saved"
            ) from error
        shapes = {} if args is None else _shapes(traced, args)
    finally:
        model.train(training)
    if verbose:
        print(traced.graph)
    modules = dict(model.named_modules())
    root = type(model).__name__
    names: dict[Any, str] = {}
    nodes = []
    for node in traced.graph.nodes:
        where, op = root, _op(node)
        if node.op == "call_module":
            parts = node.target.split(".")
            paths = [".".join(parts[: at + 1]) for at in range(len(parts))]
            where = "/".join([root, *(f"{type(modules[path]).__name__}[{path.rpartition('.')[2]}]" for path in paths)])
        elif node.op in ("placeholder", "output"):
            where = node.op.replace("placeholder", "input")
        names[node] = f"{where}/{node.name}"
        attr = [Message("AttrEntry", key="attr", value=Message("AttrValue", s=str(node.target).encode()))]
        if node in shapes:
            shape = Message("TensorShape", dim=[Message("Dim", size=each) for each in shapes[node]])
            sizes = Message("AttrValue", list=Message("AttrList", shape=[shape]))
            attr.insert(0, Message("AttrEntry", key="_output_shapes", value=sizes))
        inputs = [names[each] for each in node.all_input_nodes]
        nodes.append(Message("Node", name=names[node], op=op, input=inputs, attr=attr))
    device = Message("DeviceStepStats", device="/device:CPU:0")
    stats = Message("RunMetadata", step_stats=Message("StepStats", dev_stats=[device]))
    return Message("GraphDef", node=nodes, versions=Message("Versions", producer=22)), stats


def _op(node: Any) -> str:
    """What the box of an operation is called."""
    if node.op == "call_function":
        return f"aten::{getattr(node.target, '__name__', node.target)}"
    if node.op == "call_method":
        return f"aten::{node.target}"
    return {"placeholder": "IO Node", "output": "IO Node", "get_attr": "prim::GetAttr"}.get(node.op, "prim::CallModule")


def _shapes(traced: Any, args: Any) -> dict[Any, list[int]]:
    """Node -> the shape of its tensor, by running what was traced."""
    torch = _lazy.torch
    found: dict[Any, list[int]] = {}

    class Shapes(torch.fx.Interpreter):
        def run_node(self, n: Any) -> Any:
            value = super().run_node(n)
            if isinstance(value, torch.Tensor):
                found[n] = list(value.shape)
            return value

    with torch.no_grad():
        Shapes(traced).run(*(args if isinstance(args, (tuple, list)) else (args,)))
    return found

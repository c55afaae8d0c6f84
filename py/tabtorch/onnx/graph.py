"""A graph of an ONNX model made ready: its nodes as steps, each with its function, what it reads, and what nobody reads after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tabtorch.core.tensor import Tensor
from tabtorch.onnx import registry
from tabtorch.onnx.proto import Message
from tabtorch.onnx.shapes import FOLDS, foldable
from tabtorch.onnx.tensors import sparse, tensor_of
from tabtorch.onnx.values import Unsupported

#: the latest version of each domain's operators that is known here
LATEST = {"": 28, "ai.onnx.ml": 6}
#: nodes of a model with its functions put in where they are called, and how deep calls may lie in each other
MOST_NODES, DEPTH = 1_000_000, 64
#: these need no value of their input to be folded, only its shape
_SHAPE_ONLY = ("Shape", "Size")


def domain_of(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


class Run:
    """One call of a model: where its tensors are made."""

    __slots__ = ("device",)

    def __init__(self, device: Any) -> None:
        self.device = device


class Closure:
    """A graph that is an attribute, and what it reads of the graph around it: called with its inputs, gives its outputs."""

    __slots__ = ("_body", "_outer", "_run")

    def __init__(self, body: Body, outer: dict[str, Any], run: Run) -> None:
        self._body = body
        self._outer = outer
        self._run = run

    def __call__(self, *inputs: Any) -> list[Any]:
        return self._body.call(dict(self._outer), inputs, self._run)

    @property
    def output_count(self) -> int:
        return len(self._body.outputs)


class Step:
    """A node: its operator, its attributes, and the names of what it reads, writes, and is the last to read."""

    __slots__ = ("attributes", "bodies", "captured", "drop", "fold", "inputs", "kinds", "label", "operator", "outputs")

    def __init__(self, label: str, inputs: list[str], outputs: list[str]) -> None:
        self.label = label
        self.inputs = inputs
        self.outputs = outputs
        self.attributes: dict[str, Any] = {}
        self.bodies: dict[str, Body] = {}
        self.captured: list[str] = []
        self.drop: list[str] = []
        self.fold: Callable[..., Any] | None = None
        self.operator: registry.Operator | None = None  # None: a function of the model, the only one of `bodies`
        self.kinds: list[str] = []

    def __call__(self, env: dict[str, Any], run: Run) -> Any:
        values = [env[name] if name else None for name in self.inputs]
        if self.operator is None:
            (body,) = self.bodies.values()
            return tuple(body.call({}, values, run))
        if self.fold is not None and self._known(values):
            found = self._folded(values)
            if found is not NotImplemented:
                return found
        given = [registry.converted(kind, v, run.device) for kind, v in zip(self.kinds, values)]
        attributes = self.attributes
        if self.bodies:
            outer = {name: env[name] for name in self.captured}
            attributes = {**attributes, **{name: Closure(body, outer, run) for name, body in self.bodies.items()}}
        if "run" in self.operator.given:
            attributes = {**attributes, "run": run}
        return self.operator.function(*given, **attributes)

    def _known(self, values: list[Any]) -> bool:
        if self.fold in (FOLDS["Shape"], FOLDS["Size"]):
            return not isinstance(values[0], list)
        return all(v is None or foldable(v) for v in values)

    def _folded(self, values: list[Any]) -> Any:
        assert self.fold is not None and self.operator is not None
        while values and values[-1] is None:
            values.pop()
        attributes = {k: v for k, v in self.attributes.items() if k not in ("run", "opset")}
        if "outputs" in attributes and self.fold is not FOLDS["Split"]:
            attributes.pop("outputs")
        value = attributes.get("value")
        if isinstance(value, Tensor):
            return NotImplemented
        try:
            return self.fold(*values, **attributes)
        except TypeError:  # attributes of older versions (`broadcast`): the operator knows them
            return NotImplemented


class Body:
    """The steps of a graph or a function. `inputs`, `outputs`: their names; `reads`: names of the graph around it."""

    __slots__ = ("constants", "inputs", "outputs", "reads", "steps")

    def __init__(self, inputs: list[str], outputs: list[str]) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.steps: list[Step] = []
        self.constants: dict[str, Any] = {}
        self.reads: list[str] = []

    def call(self, env: dict[str, Any], inputs: Iterable[Any], run: Run) -> list[Any]:
        """The outputs. `env`: what is read of the graph around."""
        env.update(self.constants)
        given = list(inputs)
        if len(given) > len(self.inputs):
            raise TypeError(f"a graph of {len(self.inputs)} inputs is called with {len(given)}")
        env.update(zip(self.inputs, given))
        env.update(dict.fromkeys(self.inputs[len(given) :]))
        del given
        return self.compute(env, run)

    def compute(self, env: dict[str, Any], run: Run) -> list[Any]:
        """The outputs, when all that is read is in `env`, which is changed."""
        for step in self.steps:
            try:
                found = step(env, run)
            except Exception as e:
                if not getattr(e, "_onnx_node", False):
                    e.add_note(f"in {step.label}")
                    try:
                        e._onnx_node = True  # type: ignore[attr-defined]
                    except AttributeError:
                        pass
                raise
            if not isinstance(found, tuple):
                found = (found,)
            for name, value in zip(step.outputs, found):
                if name:
                    env[name] = value
            if len(found) < len(step.outputs) and any(step.outputs[len(found) :]):
                raise Unsupported(f"output {step.outputs[len(found)]!r} is not computed, in {step.label}")
            del found
            for name in step.drop:
                env.pop(name, None)
        return [env[name] for name in self.outputs]


class Maker:
    """Makes Bodies of the graphs of one model; `problems` is what is not supported, each once, in order."""

    def __init__(self, model: Message) -> None:
        self.model = model
        self.opsets = {domain_of(o.domain): o.version for o in model.opset_import}
        self.functions = {(domain_of(f.domain), f.name, f.overload): f for f in model.functions}
        self.problems: dict[str, None] = {}
        self.nodes = 0

    def graph(self, graph: Message, constants: Callable[[Message], Any], outer: set[str] | None = None) -> Body:
        """The Body of a graph; `constants` gives the value of an initializer."""
        held = {}
        for t in graph.initializer:
            held[t.name] = constants(t)
        for s in graph.sparse_initializer:
            if s.values is not None:
                held[s.values.name] = sparse(s)
        body = Body([v.name for v in graph.input], [v.name for v in graph.output])
        if outer is None:  # older models have their initializers among the inputs
            body.inputs = [name for name in body.inputs if name not in held]
        body.constants = held
        self._steps(body, graph.node, self.opsets, {}, 0, set(held) | set(body.inputs), outer)
        return body

    def _steps(
        self,
        body: Body,
        nodes: list[Message],
        opsets: dict[str, int],
        references: dict[str, Message],
        depth: int,
        names: set[str],
        outer: set[str] | None,
    ) -> None:
        around = outer or set()
        reads: dict[str, None] = {}
        self.nodes += len(nodes)
        if self.nodes > MOST_NODES or depth > DEPTH:
            raise Unsupported("functions of the model call each other too often or too deep")
        for node in nodes:
            step = self._step(node, opsets, references, depth, names | around)
            for name in (*step.inputs, *step.captured):
                if name and name not in names:
                    if name not in around:
                        raise ValueError(f"{name!r} is read by {step.label}, but nothing gives it")
                    reads[name] = None
            names.update(name for name in step.outputs if name)
            body.steps.append(step)
        for name in body.outputs:
            if name not in names:
                if name not in around:
                    raise ValueError(f"{name!r} is an output, but nothing gives it")
                reads[name] = None
        body.reads = list(reads)
        last: dict[str, Step] = {}
        for step in body.steps:
            for name in (*step.outputs, *step.inputs, *step.captured):
                last[name] = step
        for name, step in last.items():
            if name and name not in body.outputs:
                step.drop.append(name)

    def _step(
        self, node: Message, opsets: dict[str, int], references: dict[str, Message], depth: int, names: set[str]
    ) -> Step:
        domain = domain_of(node.domain)
        version = opsets.get(domain, 1 if domain else self.opsets.get("", 1))
        shown = f"{domain}::{node.op_type}" if domain else node.op_type
        label = f"node {node.name or '/'.join(n for n in node.output if n)!r} ({shown}, opset {version})"
        step = Step(label, list(node.input), list(node.output))
        given = []
        for a in node.attribute:
            if a.ref_attr_name:
                if a.ref_attr_name not in references:
                    continue  # the operator's default
                of = references[a.ref_attr_name]
                a = of.but(name=a.name, ref_attr_name="")
            given.append(a)
        function = self.functions.get((domain, node.op_type, node.overload))
        if function is not None:
            step.bodies["function"] = self._function(function, given, depth)
            return step
        found = registry.find(domain, node.op_type, version)
        if found is None:
            self.problems[f"{shown} (opset {version})"] = None
            return step
        step.operator = found
        rest = [found.rest] * (len(step.inputs) - len(found.inputs)) if found.rest else []
        if len(step.inputs) > len(found.inputs) + len(rest):
            while step.inputs and not step.inputs[-1]:
                step.inputs.pop()
            if len(step.inputs) > len(found.inputs):
                raise ValueError(f"{label} has {len(step.inputs)} inputs, of at most {len(found.inputs)}")
        step.kinds = [kind for kind, _ in found.inputs[: len(step.inputs)]] + [r for r in rest if r]
        needed = [i for i, (_, optional) in enumerate(found.inputs) if not optional]
        if any(i >= len(step.inputs) or not step.inputs[i] for i in needed):
            raise ValueError(
                f"{label} has no input {next(i for i in needed if i >= len(step.inputs) or not step.inputs[i])}"
            )
        for a in given:
            if a.name not in found.attributes and not found.open:
                self.problems[f"{shown} (opset {version}) with the attribute {a.name}"] = None
            elif a.g is not None and a.type in (0, 5):
                body = self.graph(a.g, tensor_of, names)
                step.bodies[a.name] = body
                step.captured += [n for n in body.reads if n not in step.captured]
            else:
                step.attributes[a.name] = attribute(a, label)
        missing = [
            k for k, must in found.attributes.items() if must and k not in step.attributes and k not in step.bodies
        ]
        if missing and not any(p.startswith(f"{shown} (opset {version})") for p in self.problems):
            raise ValueError(f"{label} has no attribute {missing[0]}")
        if "outputs" in found.given:
            step.attributes["outputs"] = len(node.output)
        if "opset" in found.given:
            step.attributes["opset"] = version
        if not domain and not step.bodies:
            step.fold = FOLDS.get(node.op_type)
        return step

    def _function(self, function: Message, given: list[Message], depth: int) -> Body:
        references = {a.name: a for a in function.attribute_proto}
        references.update((a.name, a) for a in given)
        body = Body(list(function.input), list(function.output))
        opsets = {domain_of(o.domain): o.version for o in function.opset_import}
        self._steps(body, function.node, {**self.opsets, **opsets}, references, depth + 1, set(body.inputs), None)
        return body


def attribute(a: Message, label: str) -> Any:
    """The value of an attribute: a number, a text, a list of them, a tensor as it is known. Unsupported for other types."""
    of = a.type or next(
        (n for n, v in ((1, a.f), (2, a.i), (3, a.s), (4, a.t), (6, a.floats), (7, a.ints), (8, a.strings)) if v), 0
    )
    if of == 1:
        return a.f
    if of == 2:
        return a.i
    if of == 3:
        return _text(a.s)
    if of == 4 and a.t is not None:
        return tensor_of(a.t)
    if of == 6:
        return a.floats
    if of == 7:
        return a.ints
    if of == 8:
        return [_text(s) for s in a.strings]
    if of == 9:
        return [tensor_of(t) for t in a.tensors]
    if of == 11 and a.sparse_tensor is not None:
        return sparse(a.sparse_tensor)
    if of == 13:
        return a.tp
    raise Unsupported(f"attribute {a.name} of {label} has a type that is not supported: {of}")


def _text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")

"""`torch.export.export`: a module's forward, run once over tensors whose sizes are symbols, as a program."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

from tabtorch.core.tensor import Tensor
from tabtorch.engine.graph import flush
from tabtorch.engine.symbols import Symbol, given
from tabtorch.engine.trace import Trace
from tabtorch.engine.view import concrete_meta, contiguous_strides, symbolic_meta
from tabtorch.export.dims import Axis, UserError, axes, leaf_specs
from tabtorch.export.exported_program import ExportedProgram
from tabtorch.export.graphs import Ref
from tabtorch.export.input_checks import ValueRanges
from tabtorch.export.signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    ModuleCallEntry,
    ModuleCallSignature,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from tabtorch.export.tracing import Tracer
from tabtorch.func.modules import functional_call
from tabtorch.nn.modules.module import Module
from tabtorch.random import fork_rng
from tabtorch.utils._pytree import tree_flatten, tree_flatten_with_path

_TRIES = 40
#: sizes that constants of models seldom have
_UNLIKELY = (37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 13, 17, 19, 11, 7, 5)


class _Again(Exception):
    """Of sizes that AUTO left open, these are constants, or these are the same."""

    def __init__(
        self, places: set[tuple[int, int]], same: dict[tuple[int, int], tuple[int, int]] | None = None
    ) -> None:
        self.places = places
        self.same = same or {}


def export(
    mod: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
    preserve_module_call_signature: tuple[str, ...] = (),
) -> ExportedProgram:
    """The program of a module's forward. args, kwargs: example inputs. dynamic_shapes: which of their sizes may vary, by the name or
    position of the argument: {dimension: Dim}. strict: has no effect: the forward is run, as with PyTorch's strict=False.

    NotImplementedError, with the function and the line, for what cannot be exported; UserError for sizes that the forward makes
    constants; ValueError and TypeError as in PyTorch. The module is not changed, buffers neither.
    """
    if not isinstance(mod, Module):
        raise ValueError(f"Expected `mod` to be an instance of `torch.nn.Module`, got {type(mod)}.")
    if not isinstance(args, tuple):
        raise UserError(f"Expecting `args` to be a tuple of example positional inputs, got {type(args)}")
    if preserve_module_call_signature:
        raise NotImplementedError("torch.export.export: preserve_module_call_signature")
    kwargs = kwargs or {}
    names = _argument_names(mod, args, kwargs)
    leaves, in_spec = tree_flatten((args, kwargs))
    specs = _specs(args, kwargs, names, dynamic_shapes)
    if len(specs) != len(leaves):
        raise UserError("dynamic_shapes for inputs in containers that are neither tuples, lists, nor dicts")
    static: set[tuple[int, int]] = set()
    same: dict[tuple[int, int], tuple[int, int]] = {}
    for _ in range(_TRIES):
        found = axes(leaves, specs, static, same)
        try:
            with fork_rng():  # the forward is looked at, not run: who draws after it draws what they would have drawn
                return _settled(mod, args, kwargs, names, leaves, in_spec, found)
        except _Again as e:
            static |= e.places
            same |= e.same
    raise UserError("torch.export.export: sizes that are AUTO were not settled")


def _settled(
    mod: Module, args: Any, kwargs: Any, names: list[str], leaves: list[Any], in_spec: Any, found: list[Axis]
) -> ExportedProgram:
    """The program; where a size of the example is that of a constant, which may be chance, by an example of others. The error is that
    of the example which was given: with others a forward may fail that would not for the user."""
    try:
        return _exported(mod, args, kwargs, names, leaves, in_spec, found)
    except (UserError, _Again):
        others = _others(found, leaves)
        if others is None:
            raise
        try:
            return _exported(mod, args, kwargs, names, others, in_spec, found)
        except _Again:
            raise
        except Exception:
            pass
        raise


def _others(found: Sequence[Axis], leaves: Sequence[Any]) -> list[Any] | None:
    """Inputs of other sizes in the ranges, whose values nobody looks at; None where there are none."""
    taken = {int(n) for x in leaves if isinstance(x, Tensor) for n in x.shape}
    sizes: dict[int, dict[int, int]] = {}
    for axis in found:
        value = next((n for n in _UNLIKELY if axis.low <= n <= axis.high and n not in taken), None)
        if value is None:
            return None
        taken.add(value)
        axis.value = value
        for i, d, factor, offset in axis.places:
            sizes.setdefault(i, {})[d] = value * factor + offset
    made = list(leaves)
    for i, by_dim in sizes.items():
        x = leaves[i]
        shape = tuple([by_dim.get(d, int(n)) for d, n in enumerate(x.shape)])
        made[i] = x.new_zeros(shape).requires_grad_(x.requires_grad)
    return made


def _argument_names(mod: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    parameters = list(inspect.signature(mod.forward).parameters.values())
    found: list[str] = []
    for i in range(len(args)):
        p = parameters[min(i, len(parameters) - 1)] if parameters else None
        if p is None:
            raise TypeError(f"forward() takes no arguments, but {len(args)} were given")
        found.append(f"{p.name}_{len(found) - parameters.index(p)}" if p.kind is p.VAR_POSITIONAL else p.name)
    return found + list(kwargs)


def _specs(args: tuple[Any, ...], kwargs: dict[str, Any], names: Sequence[str], shapes: Any) -> list[Any]:
    """Of each leaf its part of dynamic_shapes."""
    if shapes is None:
        shapes = {}
    if isinstance(shapes, (list, tuple)):
        if len(shapes) != len(names):
            raise UserError(
                f"When `dynamic_shapes` is a sequence, it has one entry for each of the {len(names)} inputs"
            )
        shapes = dict(zip(names, shapes))
    if not isinstance(shapes, Mapping):
        raise UserError(f"dynamic_shapes is a dict or a sequence, not {type(shapes)}")
    unknown = set(shapes) - set(names)
    if unknown:
        raise UserError(
            f"When `dynamic_shapes` is specified as a dict, its top-level keys must be the arg names {list(names)} of `inputs`, but "
            f"here they are {list(shapes)}."
        )
    found: list[Any] = []
    for name, x in zip(names, (*args, *[kwargs[k] for k in names[len(args) :]])):
        found += leaf_specs(x, shapes.get(name))
    return found


class _Sized:
    """Inputs whose sizes are Symbols, while it is entered."""

    def __init__(self, leaves: Sequence[Any], found: Sequence[Axis]) -> None:
        self.trace = Trace([a.value for a in found], captures=True)
        self.leaves = leaves
        self.shapes: dict[int, dict[int, Any]] = {}
        for axis, symbol in zip(found, self.trace.symbols, strict=True):
            for i, d, factor, offset in axis.places:
                self.shapes.setdefault(i, {})[d] = symbol * factor + offset
        self.before: list[Any] = []

    def __enter__(self) -> _Sized:
        if self.shapes:
            given[0] = True
        for i, by_dim in self.shapes.items():
            t = self.leaves[i]
            m, node = t._tab_meta, t._tab_storage.node
            shape = tuple([by_dim.get(d, n) for d, n in enumerate(m.shape)])
            shown = symbolic_meta(shape, contiguous_strides(shape), 0, m.dtype, m.device, m.mark)
            self.before.append((t, m, shown, node, node.inst))
            twin = copy(node.inst)
            twin.out, twin.concrete, twin.structure = shown, node.inst, None
            node.inst = twin
            t._tab_meta = shown
        return self

    def __exit__(self, *exc: Any) -> None:
        for t, m, shown, node, own in reversed(self.before):  # equal inputs can be one node
            t._tab_meta = m if t._tab_meta is shown else concrete_meta(t._tab_meta)
            node.inst = own


def _copied(t: Tensor) -> Tensor:
    """A tensor of the same values that may be written to, in a memory of its own."""
    made = t.detach().contiguous().clone()
    made._tab_storage.node  # noqa: B018
    return made.requires_grad_() if t.requires_grad else made


def _exported(
    mod: Module, args: Any, kwargs: Any, names: list[str], leaves: list[Any], in_spec: Any, found: list[Axis]
) -> ExportedProgram:
    inputs = [_copied(x) if isinstance(x, Tensor) else x for x in leaves]
    sized = _Sized(inputs, found)
    signature = ExportGraphSignature()
    symbols = [f"s{i}" for i in range(len(found))]
    tracer = Tracer(sized.trace, symbols, {})
    graph = tracer.graph
    held: list[tuple[Tensor, str]] = []

    # its tensors
    state: dict[str, Tensor] = dict(mod.state_dict(keep_vars=True))
    constants: dict[str, Tensor] = {}
    values: dict[str, Tensor] = {}
    made: dict[int, Tensor] = {}
    parameters = [(n, p, InputKind.PARAMETER) for n, p in mod.named_parameters(remove_duplicate=False)]
    buffers = [(n, b, InputKind.BUFFER) for n, b in mod.named_buffers(remove_duplicate=False)]
    for target, t, kind in (*parameters, *buffers):
        if target not in state:
            constants[target] = t
        short = tracer.fresh(("p_" if kind is InputKind.PARAMETER else "b_") + _identifier(target))
        if id(t) not in made:
            made[id(t)] = _copied(t)
            held.append((made[id(t)], short))
        else:
            held.append((t, short))
        values[target] = made[id(t)]
        persistent = None if kind is InputKind.PARAMETER else target in state
        signature.input_specs.append(InputSpec(kind, TensorArgument(short), target, persistent))
    # the user's
    shorts = _leaf_names(args, kwargs, names)
    for i, (x, short) in enumerate(zip(inputs, shorts, strict=True)):
        short = tracer.fresh(short)
        if isinstance(x, Tensor):
            held.append((x, short))
            signature.input_specs.append(InputSpec(InputKind.USER_INPUT, TensorArgument(short), None))
        elif x is None or type(x) in (int, float, bool, str):
            signature.input_specs.append(InputSpec(InputKind.USER_INPUT, ConstantArgument(short, x), None))
        else:
            raise UserError(
                f"Unsupported input type {type(x)}. Export only supports pytree containers of Tensor, int, float, bool, str"
            )
        shorts[i] = short
    for k, axis in enumerate(found):
        i, d, factor, offset = min(axis.places, key=lambda p: (p[2], abs(p[3])))
        tracer.sources[k] = (shorts[i], d, factor, offset)

    flush()  # what the inputs wait for has sizes that are numbers
    with sized:
        for t, short in held:
            tracer.name(t, short)
        swapped_args, swapped_kwargs = in_spec.unflatten(inputs)
        with tracer:
            results = functional_call(mod, values, swapped_args, swapped_kwargs, tie_weights=False)
        flat, out_spec = tree_flatten(results)
        for r in flat:
            graph_value, spec = _result(tracer, r)
            graph.outputs.append(graph_value)
            signature.output_specs.append(OutputSpec(OutputKind.USER_OUTPUT, spec, None))
    _check(sized.trace, found)
    lifted = []
    for target, t in tracer.constants.items():
        constants[target] = t
        lifted.append(InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument("c_" + target), target))
    at = len(parameters) + len(buffers)
    signature.input_specs[at:at] = lifted
    graph.inputs = [
        s.arg.value if isinstance(s.arg, ConstantArgument) else Ref(s.arg.name) for s in signature.input_specs
    ]
    call = ModuleCallSignature([], [], in_spec, out_spec, names)
    ranges = {s: ValueRanges(a.low, a.high) for s, a in zip(symbols, found, strict=True)}
    return ExportedProgram(
        graph, signature, state, constants, ranges, [ModuleCallEntry("", call)], example_inputs=(args, kwargs)
    )


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _leaf_names(args: Any, kwargs: Any, names: list[str]) -> list[str]:
    found = []
    for path, _ in tree_flatten_with_path((args, kwargs))[0]:
        part, first, *rest = path
        head = names[first.idx] if part.idx == 0 else str(first.key)
        found.append(
            _identifier(
                "_".join([head, *[str(getattr(k, "idx", getattr(k, "key", getattr(k, "name", k)))) for k in rest]])
            )
        )
    return found


def _result(tracer: Tracer, r: Any) -> tuple[Any, Any]:
    """A result as a value of the graph, and what the signature says of it."""
    if isinstance(r, Tensor):
        ref = tracer.ref(r)
        return ref, TensorArgument(ref.name)
    if type(r) is Symbol:
        ref = tracer.number(r)
        return ref, SymIntArgument(ref.name)
    if r is None or type(r) in (int, float, bool, str):
        return r, ConstantArgument("", r)
    raise UserError(f"It looks like one of the outputs with type `{type(r)}` is not supported")


# ---- what the forward asked of sizes


def _check(trace: Trace, found: list[Axis]) -> None:
    """UserError where sizes in their ranges would have led elsewhere; `_Again` where AUTO left that open."""
    same: dict[tuple[int, int], tuple[int, int]] = {}
    for op, a, b, answer in trace.guards.values():
        if op == "==" and answer:
            first, second = (_axis(trace, x, found) for x in (a, b))
            if first is not None and second is not None and first is not second:
                (i, d, _, _), (j, e, _, _) = first.places[0], second.places[0]
                same[max((i, d), (j, e))] = min((i, d), (j, e))
    if same:
        raise _Again(set(), same)
    for op, a, b, answer in trace.guards.values():
        difference = trace._sum(a, b, -1)
        low, high = _bounds(trace, difference, found)
        if op == "==":
            always = low == high == 0 if answer else low > 0 or high < 0
        elif op == "<":
            always = high < 0 if answer else low >= 0
        else:
            always = high <= 0 if answer else low > 0
        if always:
            continue
        used = _used(trace, difference)
        auto = {(i, d) for k in used if found[k].auto for i, d, _, _ in found[k].places}
        if auto:
            raise _Again(auto)
        who = ", ".join(found[k].name for k in used)
        shown = f"{_shown(trace, a, found)} {op} {_shown(trace, b, found)}"
        raise UserError(
            f"Constraints violated ({who})! The forward goes one way where {shown} is {answer}, which not all sizes in the ranges "
            f"agree with: {', '.join(f'{found[k].name} = {found[k].value}' for k in used)} in the example. Give a narrower range, or "
            "Dim.AUTO, or Dim.STATIC."
        )


def _axis(trace: Trace, x: Any, found: list[Axis]) -> Axis | None:
    """The axis that a number is, if it is one, and AUTO."""
    if type(x) is not Symbol or len(x.terms) != 1:
        return None
    ((mono, factor),) = x.terms.items()
    what = trace.atoms[mono[0]] if len(mono) == 1 and factor == 1 else None
    return found[what] if isinstance(what, int) and found[what].auto else None


def _used(trace: Trace, x: Any) -> list[int]:
    if type(x) is not Symbol:
        return []
    out: list[int] = []
    for mono in x.terms:
        for a in mono:
            what = trace.atoms[a]
            out += [what] if isinstance(what, int) else [*_used(trace, what[1]), *_used(trace, what[2])]
    return sorted(set(out))


def _bounds(trace: Trace, x: Any, found: list[Axis]) -> tuple[float, float]:
    """The least and the greatest that a number can be, or wider."""
    if type(x) is not Symbol:
        return x, x
    low: float = 0
    high: float = 0
    for mono, factor in x.terms.items():
        least: float = factor
        most: float = factor
        for a in mono:
            p, q = _atom_bounds(trace, a, found)
            products = [_times(u, v) for u in (least, most) for v in (p, q)]
            least, most = min(products), max(products)
        low, high = low + least, high + most
    if math.isnan(low) or math.isnan(high):
        return -math.inf, math.inf
    return low, high


def _times(a: float, b: float) -> float:
    return 0 if not a or not b else a * b


def _atom_bounds(trace: Trace, index: int, found: list[Axis]) -> tuple[float, float]:
    what = trace.atoms[index]
    if isinstance(what, int):
        return max(2, found[what].low), found[what].high
    op, a, b = what
    low, high = _bounds(trace, a, found)
    if type(b) is not int or b <= 0:
        return -math.inf, math.inf
    if op == "%":
        return 0, b - 1
    around = [(n if math.isinf(n) else n // b if op == "//" else -(-n // b)) for n in (low, high)]
    return around[0], around[1]


def _shown(trace: Trace, x: Any, found: list[Axis]) -> str:
    if type(x) is not Symbol:
        return str(x)
    parts = []
    for mono, factor in x.terms.items():
        inner = []
        for a in mono:
            what = trace.atoms[a]
            if isinstance(what, int):
                inner.append(found[what].name)
            else:
                inner.append(f"({_shown(trace, what[1], found)} {what[0]} {_shown(trace, what[2], found)})")
        parts.append("*".join([str(factor)] * (factor != 1 or not inner) + inner))
    return " + ".join(parts)

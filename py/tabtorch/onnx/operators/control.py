"""Control flow, sequences and optionals."""

from __future__ import annotations

from typing import Any

import tabtorch as torch
from tabtorch.onnx.registry import Bool, Host, Int, Tensor, operator
from tabtorch.onnx.values import BOOL, INT64, Known, Unsupported, to_known

#: of a Loop that is told no count, and whose condition stays true
MOST_TURNS = 1 << 31


@operator("If")
def if_(cond: Bool, *, then_branch: Any, else_branch: Any) -> Any:
    return tuple((then_branch if cond else else_branch)())


@operator("Loop")
def loop(trips: Int | None, cond: Bool | None, *carried: Any, body: Any, run: Any) -> Any:
    state = list(carried)
    scanned: Any = None
    turn, going = 0, cond is not False
    while going and turn < (MOST_TURNS if trips is None else trips):
        going_on, *found = body(Known([turn], (), INT64), Known([True], (), BOOL), *state)
        state = found[: len(carried)]
        rows = found[len(carried) :]
        scanned = scanned or [[] for _ in rows]
        for column, row in zip(scanned, rows):
            column.append(_tensor(row, run))
        turn += 1
        going = bool(to_known(going_on).values[0])
    if scanned is None:
        scanned = [[] for _ in range(body.output_count - 1 - len(carried))]
    stacked = [torch.stack(c) if c else torch.zeros(0, device=run.device) for c in scanned]
    return (*state, *stacked)


def _tensor(x: Any, run: Any) -> Any:
    return x.tensor(run.device) if isinstance(x, Known) else x


def _scan(
    inputs: list[Any],
    body: Any,
    count: int,
    run: Any,
    in_axes: list[int] | None,
    in_directions: list[int] | None,
    out_axes: list[int] | None,
    out_directions: list[int] | None,
) -> tuple[Any, ...]:
    state, streams = inputs[: len(inputs) - count], inputs[len(inputs) - count :]
    axes, directions = in_axes or [0] * count, in_directions or [0] * count
    rows = [s.flip(a).unbind(a) if d else s.unbind(a) for s, a, d in zip(streams, axes, directions)]
    columns: list[list[Any]] = []
    for row in zip(*rows, strict=True):
        found = body(*state, *row)
        state = found[: len(state)]
        rest = found[len(state) :]
        columns = columns or [[] for _ in rest]
        for column, value in zip(columns, rest):
            column.append(_tensor(value, run))
    n = len(columns)
    placed, turned = out_axes or [0] * n, out_directions or [0] * n
    stacked = [torch.stack(c[::-1] if d else c, a) for c, a, d in zip(columns, placed, turned)]
    return (*state, *stacked)


@operator("Scan", since=9)
def scan(
    *inputs: Tensor,
    body: Any,
    num_scan_inputs: int,
    scan_input_axes: list[int] | None = None,
    scan_input_directions: list[int] | None = None,
    scan_output_axes: list[int] | None = None,
    scan_output_directions: list[int] | None = None,
    run: Any,
) -> Any:
    directions = scan_input_directions, scan_output_axes, scan_output_directions
    return _scan(list(inputs), body, num_scan_inputs, run, scan_input_axes, *directions)


@operator("Scan")
def scan_of_batch(
    sequence_lens: Tensor | None, *inputs: Tensor, body: Any, num_scan_inputs: int, directions: Any = None, run: Any
) -> Any:
    if sequence_lens is not None:
        raise Unsupported("Scan of opset 8 with sequence_lens is not supported")
    found = [
        _scan([x[b] for x in inputs], body, num_scan_inputs, run, None, directions, None, None)
        for b in range(inputs[0].shape[0])
    ]
    return tuple(torch.stack(list(column)) for column in zip(*found))


# ---- sequences


@operator("SequenceConstruct")
def sequence_construct(*inputs: Tensor) -> list[Any]:
    return list(inputs)


@operator("SequenceEmpty")
def sequence_empty(*, dtype: int = 1) -> list[Any]:
    return []


def _position(i: int, n: int) -> int:
    if not -n <= i < n:
        raise IndexError(f"position {i} is out of range for a sequence of {n}")
    return i % n


@operator("SequenceAt")
def sequence_at(sequence: Any, position: Int) -> Any:
    return sequence[_position(position, len(sequence))]


@operator("SequenceInsert")
def sequence_insert(sequence: Any, tensor: Tensor, position: Int | None = None) -> list[Any]:
    n = len(sequence)
    at = n if position is None or position == n else _position(position, n)
    return [*sequence[:at], tensor, *sequence[at:]]


@operator("SequenceErase")
def sequence_erase(sequence: Any, position: Int | None = None) -> list[Any]:
    at = _position(-1 if position is None else position, len(sequence))
    return [*sequence[:at], *sequence[at + 1 :]]


@operator("SequenceLength")
def sequence_length(sequence: Any) -> Known:
    return Known([len(sequence)], (), INT64)


@operator("ConcatFromSequence")
def concat_from_sequence(sequence: Any, *, axis: int, new_axis: int = 0, run: Any) -> Tensor:
    parts = [_tensor(x, run) for x in sequence]
    return torch.stack(parts, axis) if new_axis else torch.cat(parts, axis)


@operator("SplitToSequence")
def split_to_sequence(x: Tensor, split: Host | None = None, *, axis: int = 0, keepdims: int = 1) -> list[Any]:
    if split is None:
        return [p if keepdims else p.squeeze(axis) for p in torch.split(x, 1, axis)]
    return list(torch.split(x, split.values if split.shape else split.values[0], axis))


@operator("SequenceMap")
def sequence_map(sequence: Any, *others: Any, body: Any) -> Any:
    rows = [body(one, *[o[i] if isinstance(o, list) else o for o in others]) for i, one in enumerate(sequence)]
    return tuple(list(column) for column in zip(*rows))


# ---- optionals


@operator("Optional")
def optional(x: Any = None, *, type: Any = None) -> Any:
    return x


@operator("OptionalHasElement")
def optional_has_element(x: Any = None) -> Known:
    return Known([x is not None], (), BOOL)


@operator("OptionalGetElement")
def optional_get_element(x: Any) -> Any:
    if x is None:
        raise ValueError("the optional has no element")
    return x

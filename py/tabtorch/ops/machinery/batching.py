"""What `vmap` asks of an operation with a kernel of its own (`engine.graph.Custom`): the one call for all examples.

Such an operation brings its rule along, `Custom(name, lower, batched=rule)`, in the file that has its kernel. It is given an
`Examples`, and answers with a `Call`, or with None where the kernel cannot do it; then, and where an operation has no rule, the
examples are computed one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from tabtorch.engine.graph import Node
from tabtorch.engine.view import Meta

#: how many batched values there are, see func/batch.py. What reads values or writes asks for it
batches = [0]


@dataclass(slots=True)
class Examples:
    """A call for one example, and the operands of all of them.

    `node`: the call; its instruction has the views and the static arguments of one example. `size`: how many examples there
    are. `own`: of each operand, whether examples have one each, or share it. `ins`: the views of the operands of all examples,
    with these as their first dimension (of stride 0 where one is shared). `srcs`: the nodes with the values that they view.
    `unreadable`: the error of an operation whose result has another shape for each example.
    """

    node: Node
    size: int
    own: list[bool]
    ins: list[Meta]
    srcs: list[Node]
    unreadable: Callable[[], Exception]

    @property
    def static(self) -> Any:
        return self.node.inst.static


class Call(NamedTuple):
    """The call for all examples: static arguments, views of the operands, and their nodes (None: those that were given)."""

    static: Any
    ins: list[Meta]
    srcs: list[Node] | None = None


def as_for_one(e: Examples) -> Call:
    """The rule of kernels that take any number of leading dimensions."""
    return Call(e.static, e.ins)


def dynamic(e: Examples) -> Call:
    """The rule of what gives as many elements as the values say: PyTorch's error."""
    raise e.unreadable()

"""`torch._dynamo.explain`: what a function comes to as a plan, and why it is not one, if it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tabtorch.compiled.capture import Capture
from tabtorch.compiled.guards import Guards
from tabtorch.compiled.record import CallRecorder
from tabtorch.compiled.tree import flatten
from tabtorch.core.tensor import Tensor
from tabtorch.engine import graph


class ExplainOutput(NamedTuple):
    """graph_count: windows that were sent; op_count: operations in them; break_reasons: of each graph break, and why the
    function runs eagerly on every call, if it does."""

    graph_count: int
    graph_break_count: int
    op_count: int
    break_reasons: list[str]

    def __str__(self) -> str:
        lines = [
            f"Graph Count: {self.graph_count}",
            f"Graph Break Count: {self.graph_break_count}",
            f"Op Count: {self.op_count}",
        ]
        lines.append("Break Reasons:")
        lines += [f"  Break Reason {i + 1}:\n    Reason: {r}" for i, r in enumerate(self.break_reasons)]
        return "\n".join(lines)


class _Counting(Capture):
    def __init__(self, function: Any) -> None:
        super().__init__(getattr(function, "__qualname__", type(function).__name__), set(), False)
        self.graphs = self.ops = 0
        self.reasons: list[str] = []

    def __exit__(self, *exc: Any) -> None:
        for q in graph.all_queues():
            if q.nodes:
                self.graphs += 1
                self.ops += len(q.nodes)
        super().__exit__(*exc)

    def cut(self, q: Any) -> None:
        super().cut(q)
        if q in graph.all_queues():
            self.graphs += 1
            self.ops += len(q.nodes)

    def breaks(self, what: str) -> None:
        file, line, text = self.place()
        self.reasons.append(f"it {what} at {file}:{line}" + (f" (`{text}`)" if text else ""))
        self.reason = what


def explain(function: Callable[..., Any], args: Any, kwargs: Any) -> ExplainOutput:
    """Runs `function` once, as `torch.compile` does to record it."""
    hold = _Counting(function)
    own = getattr(function, "_torchdynamo_orig_callable", function)
    tensors: list[Tensor] = []
    objects: list[Any] = []
    boxes: list[Any] = []
    flatten((args, kwargs), tensors, objects, boxes)
    scope = Guards([own, *objects])
    reasons = hold.reasons
    if scope.opaque:
        with hold:
            own(*args, **kwargs)
        graph.flush()
        reasons = reasons or [scope.opaque]
    else:
        plans: dict[Any, Any] = {}
        recorder = CallRecorder(scope, tensors, boxes, True, plans)
        recorder.run(hold, lambda: own(*args, **kwargs))
        for plan in plans.values():
            plan.forget()
        reasons = reasons or ([recorder.why] if recorder.why else [])
    return ExplainOutput(hold.graphs, max(0, hold.graphs - 1), hold.ops, list(dict.fromkeys(reasons)))

"""`torch.fx.passes.infra.pass_manager`: passes, one after another."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable
from functools import wraps
from typing import Any

from tabtorch.fx.graph_module import GraphModule
from tabtorch.fx.passes.infra.pass_base import PassResult
from tabtorch.nn.modules.module import Module

__all__ = ["PassManager", "pass_result_wrapper", "this_before_that_pass_constraint"]


def pass_result_wrapper(fn: Any) -> Any:
    """A function that changes a module, or gives another, as a pass."""
    if fn is None:
        return None

    @wraps(fn)
    def wrapped(gm: Module) -> PassResult | None:
        found = fn(gm)
        if isinstance(found, PassResult):
            return found
        return PassResult(gm if found is None else found, True)

    if not inspect.isfunction(fn):
        wrapped.__name__ = type(fn).__name__
    return wrapped


def _validate_pass_schedule_constraint(constraint: Any, passes: list[Any]) -> None:
    for i, a in enumerate(passes):
        for j, b in enumerate(passes[i + 1 :]):
            if not constraint(a, b):
                raise RuntimeError(
                    f"pass schedule constraint violated. Expected {a} before {b} but found {a} at index {i} and {b} at index {j} "
                    "in pass list."
                )


def _topological_sort_passes(passes: list[Any], constraints: list[Any]) -> list[Any]:
    """The passes in an order that all constraints allow. RuntimeError if there is none."""
    if not constraints:
        return passes
    # whoever may not come before another waits for it
    waits = {a: [b for b in passes if a != b for c in constraints if not c(a, b)] for a in passes}
    left = {a: len(w) for a, w in waits.items()}
    ready = deque(a for a in passes if not left[a])
    done: list[Any] = []
    while ready:
        p = ready.popleft()
        done.append(p)
        for a in passes:
            n = waits[a].count(p)
            if n and left[a]:
                left[a] -= n
                if not left[a]:
                    ready.append(a)
    circle = [a for a in passes if left[a]]
    if circle:
        raise RuntimeError(f"Circular dependency detected within the following passes: {circle}")
    return done


def this_before_that_pass_constraint(this: Any, that: Any) -> Callable[[Any, Any], bool]:
    """The constraint that one comes before the other."""
    return lambda a, b: a != that or b != this


class PassManager:
    """Runs passes, `steps` times or until none changes anything. The order is one that the constraints allow."""

    _validated = False
    steps = 1

    def __init__(
        self,
        passes: list[Any] | None = None,
        constraints: list[Any] | None = None,
        steps: int | None = None,
        run_checks_after_each_pass: bool = False,
        suppress_check_failures: bool = False,
    ) -> None:
        self.passes = passes or []
        self.constraints = constraints or []
        if steps:
            self.steps = steps
        self.run_checks_after_each_pass = run_checks_after_each_pass
        self.suppress_check_failures = suppress_check_failures

    def add_pass(self, _pass: Any) -> None:
        """One more."""
        self.passes.append(_pass)
        self._validated = False

    def add_constraint(self, constraint: Any) -> None:
        """One more."""
        self.constraints.append(constraint)
        self._validated = False

    def validate_constraints(self) -> None:
        """RuntimeError if the order is not allowed."""
        if not self._validated:
            for constraint in self.constraints:
                _validate_pass_schedule_constraint(constraint, self.passes)
            self._validated = True

    def solve_constraints(self) -> None:
        """Puts the passes in order."""
        self.passes = _topological_sort_passes(self.passes, self.constraints)
        self._validated = True

    def add_checks(self, check: Callable[[Module], None]) -> None:
        """A function that looks at the module before, and after each pass if that was asked for."""
        if len(inspect.signature(check).parameters) != 1:
            raise TypeError("PassManager check function should only take in one variable, a module")
        self.__dict__["check"] = check

    def check(self, module: Module) -> None:
        """Looks at the module."""

    def __call__(self, module: Module) -> PassResult:
        if not self._validated:
            self.solve_constraints()
        self.check(module)
        changed = False
        for _ in range(self.steps):
            now = False
            for i, fn in enumerate(self.passes):
                name = _name(fn)
                try:
                    found = fn(module)
                    if not hasattr(found, "graph_module"):
                        raise TypeError(
                            f"The result of the pass {name} should be type PassResult.Please wrap it with pass_result_wrapper()"
                        )
                    module = found.graph_module
                    now = now or found.modified
                    if isinstance(module, GraphModule):
                        module.recompile()
                    if self.run_checks_after_each_pass:
                        self.check(module)
                except Exception as e:
                    before = [_name(p) for p in self.passes[:i]]
                    raise Exception(
                        f"An error occurred when running the '{name}' pass after the following passes: {before}"
                    ) from e
            changed = changed or now
            if not now:
                break
        return PassResult(module, changed)


def _name(fn: Any) -> str:
    return str(fn.__name__ if inspect.isfunction(fn) else type(fn).__name__)

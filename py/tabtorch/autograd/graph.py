"""``torch.autograd.graph``: the tape from outside. Hooks on what is saved and on gradients, nodes and edges by name."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from tabtorch.autograd import engine
from tabtorch.autograd.tape import AccumulateGrad, GradFn, Port, accumulator
from tabtorch.base.thread_state import STATE
from tabtorch.core.tensor import Tensor
from tabtorch.utils.hooks import RemovableHandle


class Node(abc.ABC):
    """What `isinstance(t.grad_fn, Node)` asks: a recorded operation, or the place where a leaf's gradient is summed."""

    @abc.abstractmethod
    def name(self) -> str:
        """The operation, as `MulBackward0`."""

    @property
    @abc.abstractmethod
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """(node, number of its output) for each input."""

    @abc.abstractmethod
    def metadata(self) -> dict[Any, Any]:
        """A dict of the user's own."""

    @abc.abstractmethod
    def register_hook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Calls `fn(grad_inputs, grad_outputs)` after the node has run."""

    @abc.abstractmethod
    def register_prehook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Calls `fn(grad_outputs)` before the node runs."""

    @classmethod
    def __subclasshook__(cls, subclass: type) -> bool:
        return cls is Node and issubclass(subclass, (GradFn, AccumulateGrad))


class GradientEdge(NamedTuple):
    """Output `output_nr` of `node`: where a tensor's gradient arrives. May stand for the tensor in `autograd.grad`."""

    node: Any
    output_nr: int
    ownership_token: Any = None


def _node(t: Any) -> Any:
    if isinstance(t, GradientEdge):
        return t.node
    fn = t.grad_fn
    return accumulator(t) if fn is None else fn


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The edge at which the gradient of `tensor` arrives. RuntimeError for one that requires none."""
    if not tensor.requires_grad:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    return GradientEdge(_node(tensor), tensor.output_nr)


def tensor_at(edge: GradientEdge) -> Tensor:
    """What stands for an edge where a tensor is wanted: a place on the tape with no values."""
    fn = edge.node
    if isinstance(fn, AccumulateGrad):
        return fn.variable
    t: Any = object.__new__(Tensor)
    several = isinstance(fn.outs, tuple)
    t._tab_storage = None
    t._tab_meta = fn.outs[edge.output_nr] if several else fn.outs
    t._tab_requires_grad = True
    t._tab_grad_fn = Port(fn, edge.output_nr) if several else fn
    return t


def increment_version(tensor: Any) -> None:
    """Tells autograd that a tensor, or each of several, was written to behind its back."""
    for t in (tensor,) if isinstance(tensor, Tensor) else tensor:
        if not isinstance(t, Tensor):
            raise RuntimeError("increment_version expects each element of the iterable to be a tensor")
        if not t._tab_inference:
            t._tab_storage.written()


# ---- what is saved


class saved_tensors_hooks:
    """Inside, what an operation saves for backward is given to `pack_hook(tensor)`, and what that returns is kept instead.

    Backward asks `unpack_hook(kept)` for the tensor. The innermost pair counts. Custom Functions' tensors are among them.
    """

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    def __enter__(self) -> None:
        if STATE.hooks_disabled is not None:
            raise RuntimeError(STATE.hooks_disabled)
        STATE.hooks = (*STATE.hooks, (self.pack_hook, self.unpack_hook))

    def __exit__(self, *args: object) -> None:
        STATE.hooks = STATE.hooks[:-1]


class save_on_cpu(saved_tensors_hooks):
    """Inside, what is saved for backward is kept on the cpu, and brought back when it is needed.

    Copying to the cpu waits for the device at every operation. pin_memory, device_type: accepted; there is no pinned memory.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        super().__init__(lambda t: (t.device, t.cpu()), lambda packed: packed[1].to(packed[0]))


class _AllowMutation(saved_tensors_hooks):
    def __init__(self) -> None:
        super().__init__(self._pack, self._unpack)
        self.entered = False

    def _pack(self, t: Tensor) -> tuple[Tensor]:
        # a write gives a storage another value and leaves the old one as it was: to keep that is to keep the tensor
        return (Tensor._wrap(t._tab_storage.node, t._tab_meta),)

    def _unpack(self, kept: tuple[Tensor]) -> Tensor:
        if not self.entered:
            raise AssertionError(
                "Trying to backward outside of the 'allow_mutation_on_saved_tensors' contextin which the graph was "
                "originally recorded."
            )
        return kept[0]

    def clear(self) -> None:
        """What PyTorch keeps until the context ends goes with the graph here."""


@contextlib.contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[_AllowMutation]:
    """Inside, what was saved for backward may be written to: backward has the values as they were. Backward runs inside too."""
    if any(isinstance(getattr(pack, "__self__", None), _AllowMutation) for pack, _ in STATE.hooks):
        raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
    context = _AllowMutation()
    with context:
        context.entered = True
        try:
            yield context
        finally:
            context.entered = False


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Inside, to use `saved_tensors_hooks` is a RuntimeError with this message."""
    if STATE.hooks:
        raise RuntimeError(error_message)
    before, STATE.hooks_disabled = STATE.hooks_disabled, error_message
    try:
        yield
    finally:
        STATE.hooks_disabled = before


# ---- gradients of several tensors


class _MultiHandle(RemovableHandle):
    def __init__(self, handles: Sequence[Any]) -> None:
        self.handles = tuple(handles)

    def remove(self) -> None:
        for h in self.handles:
            h.remove()

    def __getstate__(self) -> Any:
        return self.handles

    def __setstate__(self, state: Any) -> None:
        self.handles = state


def _will_run(node: Any, found: Any, leaves: Any, targets: Any) -> bool:
    if isinstance(node, AccumulateGrad):
        if targets is not None and not targets.accumulate:
            raise RuntimeError(
                "A leaf node was passed to _will_engine_execute_node but we are currently running autograd.grad(). This is "
                "currently not supported."
            )
        return node.variable in leaves and (targets is None or node.variable in targets.leaves)
    return node in found and (targets is None or node in targets.leading or node in targets.captures)


def register_multi_grad_hook(tensors: Iterable[Any], fn: Callable[..., Any], *, mode: str = "all") -> RemovableHandle:
    """Calls `fn` once in each backward pass.

    mode "all": when the gradients of all tensors that get one are there, with a list of them (None for the others);
    "any": with the first gradient.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    tensors = tuple(tensors)
    #: of the pass that is running: it, the gradients so far, how many are still to come
    state: list[Any] = [None, [], 0]

    def hook_of(k: int) -> Callable[[Tensor], None]:
        def hook(grad: Tensor) -> None:
            task = STATE.task
            first = state[0] is not task
            if first:
                state[:] = [task, [None] * len(tensors), 0]
                if mode == "all":
                    _, roots, targets = task
                    found, leaves = engine._collect(roots)
                    state[2] = sum([_will_run(n, found, leaves, targets) for n in nodes])
            if mode == "any":
                if first:
                    fn(grad)
                return
            state[1][k] = grad
            state[2] -= 1
            if not state[2]:
                grads = state[1]
                state[1] = []
                fn(grads)

        return hook

    if mode == "any":
        return _MultiHandle([t.register_hook(hook_of(i)) for i, t in enumerate(tensors) if t.requires_grad])
    nodes = [_node(t) for t in tensors]
    return _MultiHandle([t.register_hook(hook_of(i)) for i, t in enumerate(tensors)])


__all__ = [
    "GradientEdge",
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]

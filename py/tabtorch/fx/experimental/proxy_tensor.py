"""`torch.fx.experimental.proxy_tensor`: what a function does with tensors, as a graph of ATen's operators.

The function runs, and a TorchDispatchMode writes down what it sees; see tabtorch.dispatching for what that is.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from tabtorch.core.tensor import Tensor
from tabtorch.fx._lazy_graph_module import _make_graph_module
from tabtorch.fx._symbolic_trace import PH, Tracer
from tabtorch.fx.graph_module import GraphModule
from tabtorch.fx.node import Node
from tabtorch.fx.passes.shape_prop import _extract_tensor_metadata
from tabtorch.fx.proxy import Proxy
from tabtorch.interception.operator_modes import STACK
from tabtorch.nn.modules.module import Module
from tabtorch.nn.parameter import Parameter
from tabtorch.ops import aten
from tabtorch.utils import _pytree as pytree
from tabtorch.utils._python_dispatch import TorchDispatchMode

__all__ = [
    "ProxyTorchDispatchMode",
    "PythonKeyTracer",
    "disable_autocast_cache",
    "disable_proxy_modes_tracing",
    "dispatch_trace",
    "get_proxy_mode",
    "handle_sym_dispatch",
    "is_sym_node",
    "make_fx",
    "maybe_handle_decomp",
    "py_sym_types",
]

#: types of numbers that are symbols: there are none
py_sym_types: tuple[type, ...] = ()


class PythonKeyTracer(Tracer):
    """Enters every module, and keeps tensors that were there before as attributes."""

    def __init__(self) -> None:
        super().__init__(autowrap_modules=())

    def call_module(self, m: Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        return forward(*args, **kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: Any) -> Any:
        return attr_val

    def create_arg(self, a: Any) -> Any:
        if isinstance(a, Parameter):
            for name, p in self.root.named_parameters():
                if a is p:
                    return self.create_node("get_attr", name, (), {})
            return self.create_node("get_attr", self._keep("_param_constant", a), (), {})
        return super().create_arg(a)


class ProxyTorchDispatchMode(TorchDispatchMode):
    """Writes a node for each operator, and knows which node every tensor is of."""

    def __init__(self, tracer: PythonKeyTracer, decompositions: dict[Any, Callable[..., Any]] | None = None) -> None:
        super().__init__()
        self.tracer = tracer
        self.decompositions = decompositions or {}
        self.enable_tracing = True
        self._proxies: dict[int, Any] = {}
        self._constants: set[int] = set()  # tensors whose value is part of the program
        self._kept: list[Any] = []  # what is known by id lives on

    @classmethod
    def is_infra_mode(cls) -> bool:
        return True

    def track(self, value: Any, proxy: Any) -> None:
        """From now on a tensor, or the tensors of a list, are what a Proxy stands for."""
        if isinstance(value, Tensor):
            self._proxies[id(value)] = proxy
            self._kept.append(value)
            proxy.node.meta["tensor_meta"] = _extract_tensor_metadata(value)
        elif isinstance(value, (list, tuple)):
            for i, x in enumerate(value):
                if isinstance(x, Tensor):
                    self.track(x, proxy[i])

    def proxy_of(self, x: Any) -> Any:
        """What stands for a tensor; one that nobody knows, itself."""
        return self._proxies.get(id(x), x) if isinstance(x, Tensor) else x

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        found = maybe_handle_decomp(self, func, args, kwargs)
        if found is not NotImplemented or not self.enable_tracing:
            return func(*args, **kwargs) if found is NotImplemented else found
        if func is aten.lift_fresh.default:  # each run of the graph is to have one of its own
            func = aten.lift_fresh_copy.default
        given = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        known = all(id(x) in self._constants for x in given) and bool(given)
        if func._name == "_local_scalar_dense" and known:
            return func(*args, **kwargs)
        if func._name == "_local_scalar_dense" and id(args[0]) in self._proxies:
            raise RuntimeError(
                f"It appears that you're trying to get value out of a tracing tensor with {func} - erroring out! It's likely that this "
                "is caused by data-dependent control flow or similar.  It may be possible to trace this with dynamic shapes; try "
                "setting tracing_mode='symbolic' in your make_fx call."
            )
        proxies, named = pytree.tree_map(self.proxy_of, (args, kwargs))
        result = func(*args, **kwargs)
        tracer = self.tracer
        proxy = tracer.create_proxy(
            "call_function", func, proxies, named, name=tracer.graph._target_to_str(func.overloadpacket.__name__)
        )
        self.track(result, proxy)
        made = [x for x in pytree.tree_leaves(result) if isinstance(x, Tensor)]
        if func is aten.lift_fresh_copy.default or (known and all(x.numel() <= 1 for x in made)):
            self._constants |= {id(x) for x in made}
        elif func._name.endswith("_"):
            self._constants -= {id(x) for x in made}
        return result


def maybe_handle_decomp(mode: ProxyTorchDispatchMode, func: Any, args: Any, kwargs: Any) -> Any:
    """What the user's decomposition of an operator gives, whose operators are met; NotImplemented if there is none."""
    table = mode.decompositions
    rule = table.get(func) or table.get(func.overloadpacket)
    if rule is None:
        return NotImplemented
    with mode:
        return rule(*args, **kwargs)


def dispatch_trace(
    root: Callable[..., Any], tracer: Tracer, concrete_args: tuple[Any, ...] | None = None
) -> GraphModule:
    """`root`, traced by a tracer, as a module."""
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return _make_graph_module(tracer.root, graph, name)


def _with_names(f: Callable[..., Any], n: int) -> Callable[..., Any]:
    """`f` as a function of parameters arg0, arg1, …"""
    names = ", ".join(f"arg{i}" for i in range(n))
    made: Callable[..., Any] = eval(f"lambda {names}: fn({names})", {"fn": f})
    return made


def make_fx(
    f: Callable[..., Any],
    decomposition_table: dict[Any, Callable[..., Any]] | None = None,
    tracing_mode: str = "real",
    _allow_non_fake_inputs: bool = False,
    *,
    pre_dispatch: bool = False,
    record_module_stack: bool = False,
    _allow_fake_constant: bool = False,
    _error_on_data_dependent_ops: bool = True,
    record_stack_traces: bool = False,
) -> Callable[..., GraphModule]:
    """`make_fx(f)(*args)` is what `f` does with these arguments, as a module of ATen's operators.

    decomposition_table: operator -> a function of its arguments that is called in its place. tracing_mode: "real", or "fake", which
    is the same here: values are not computed before they are asked for. "symbolic", and pre_dispatch, are NotImplementedErrors.
    """
    if tracing_mode not in ("real", "fake", "symbolic"):
        raise AssertionError(f'tracing_mode must be one of "real", "fake", "symbolic". Got {tracing_mode}')
    if tracing_mode == "symbolic" or pre_dispatch:
        raise NotImplementedError("make_fx: tabtorch traces with the sizes that it gets, below composite operators")

    @functools.wraps(f)
    def wrapped(*args: Any) -> GraphModule:
        flat, _ = pytree.tree_flatten(args)
        holders = pytree.tree_map(lambda _: PH, args)
        code = getattr(inspect.unwrap(f), "__code__", None)
        func = f
        if code is None or inspect.ismethod(f) or code.co_flags & inspect.CO_VARARGS or code.co_argcount != len(args):
            func = _with_names(f, len(args))
        tracer = PythonKeyTracer()
        tracer.record_stack_traces = record_stack_traces
        mode = ProxyTorchDispatchMode(tracer, decomposition_table)

        @functools.wraps(func)
        def traced(*proxies: Any) -> Any:
            given, _ = pytree.tree_flatten(proxies)
            for x, p in zip(flat, given, strict=True):
                if isinstance(x, Tensor) and isinstance(p, Proxy):
                    mode.track(x, p)
            with mode:
                out = func(*args)
            return pytree.tree_map(mode.proxy_of, out)

        return dispatch_trace(traced, tracer, tuple(holders))

    return wrapped


def get_proxy_mode() -> ProxyTorchDispatchMode | None:
    """The mode of the trace that is being made, or None."""
    return next((m for m in reversed(STACK.modes) if isinstance(m, ProxyTorchDispatchMode)), None)


@contextlib.contextmanager
def disable_proxy_modes_tracing() -> Iterator[Any]:
    """Within it, nothing is written down."""
    mode = get_proxy_mode()
    if mode is not None:
        mode.enable_tracing = False
    try:
        yield mode
    finally:
        if mode is not None:
            mode.enable_tracing = True


@contextlib.contextmanager
def disable_autocast_cache() -> Iterator[None]:
    """There is no such cache here."""
    yield


def is_sym_node(node: Node) -> bool:
    """False: the value of no node is a symbol."""
    return False


def handle_sym_dispatch(func: Any, args: Any, kwargs: Any) -> Any:
    """A call of a function of numbers."""
    return func(*args, **kwargs)

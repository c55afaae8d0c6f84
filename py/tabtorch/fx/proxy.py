"""`torch.fx.proxy`: what stands for values while a function is traced, and writes down what is done with it."""

from __future__ import annotations

import copy
import dis
import enum
import importlib
import logging
import operator
import sys
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, NoReturn
from weakref import ref

from tabtorch.core.tensor import Tensor
from tabtorch.fx import _names
from tabtorch.fx import traceback as fx_traceback
from tabtorch.fx._compatibility import compatibility
from tabtorch.fx.graph import Graph, magic_methods, reflectable_magic_methods
from tabtorch.fx.node import Argument, Node, base_types, map_aggregate, map_arg
from tabtorch.interception import torch_function
from tabtorch.interception.torch_function import STATE
from tabtorch.ops.aten import Packet

__all__ = [
    "Attribute",
    "GraphAppendingTracer",
    "MetaProxy",
    "ParameterProxy",
    "Proxy",
    "Scope",
    "ScopeContextManager",
    "TraceError",
    "TracerBase",
]

log = logging.getLogger(__name__)


class _Watch:
    """While there is one, calls of our functions look whether an argument overrides them, as Proxies do."""

    def __init__(self) -> None:
        self._mark = object()
        STATE.entered.append(self._mark)
        torch_function.switch()

    def __del__(self) -> None:
        if not sys.is_finalizing():
            STATE.entered.remove(self._mark)
            torch_function.switch()

    def __deepcopy__(self, memo: Any) -> _Watch:
        return self

    def __reduce__(self) -> Any:
        return _Watch, ()


_last: list[ref[_Watch]] = []


def watching() -> _Watch:
    """The one `_Watch` there is; who keeps it keeps overrides on."""
    found = _last[0]() if _last else None
    if found is None:
        found = _Watch()
        _last[:] = [ref(found)]
    return found


class Scope:
    """The module that is being traced: its path and its class."""

    def __init__(self, module_path: str, module_type: Any) -> None:
        self.module_path = module_path
        self.module_type = module_type


class ScopeContextManager:
    """`with ScopeContextManager(scope, inner):` `scope` is as `inner` meanwhile."""

    def __init__(self, scope: Scope, current_scope: Scope) -> None:
        self._prev_scope = copy.copy(scope)
        scope.module_path, scope.module_type = current_scope.module_path, current_scope.module_type
        self._scope = scope

    def __enter__(self) -> Scope:
        return self._scope

    def __exit__(self, *args: Any) -> None:
        self._scope.module_path, self._scope.module_type = self._prev_scope.module_path, self._prev_scope.module_type


_COPY_META_FIELDS = [
    "nn_module_stack",
    "torch_fn",
    "source_fn_stack",
    "original_aten",
    "recompute",
    "ac_graph_id",
    "has_backward_hook",
    "from_node",
    "quantization_tag",
    "_numeric_debug_handle",
    "custom",
    "partitioner_tag",
]


class TraceError(ValueError):
    """What Python wants of a value that is not known while it is traced."""


@compatibility(is_backward_compatible=True)
class TracerBase:
    """What makes nodes of calls."""

    graph: Graph
    record_stack_traces: bool = False
    _record_forward_stack_traces_only: bool = False
    check_mutable_operations: bool = False
    trace_asserts: bool = False
    proxy_buffer_attributes: bool = False
    traced_func_name: str = "forward"
    scope: Scope
    module_stack: OrderedDict[str, tuple[str, Any]]
    node_name_to_scope: dict[str, tuple[str, Any]]

    def create_node(
        self,
        kind: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """A node, of arguments that are ready. Subclasses override it to look on, or to make others."""
        if kind == "call_function" and self.check_mutable_operations:
            importlib.import_module("tabtorch.fx.operator_schemas").check_for_mutable_operation(target, args, kwargs)
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        self.node_name_to_scope[node.name] = (self.scope.module_path, self.scope.module_type)
        if fx_traceback.has_preserved_node_meta():
            fx_traceback.annotate_node(node, _COPY_META_FIELDS)
        elif self.module_stack:
            node.meta["nn_module_stack"] = copy.copy(self.module_stack)
        if self.record_stack_traces and not node.stack_trace:
            frames = self._filter_traceback_frames(traceback.extract_stack())
            if frames:
                node.stack_trace = "".join(frames.format()).strip()
        return node

    def _filter_traceback_frames(self, user_stack_summary: Any) -> Any:
        """The calls from the first `forward` on, without our own."""
        own = __file__[: -len("proxy.py")]
        frames = list(user_stack_summary)
        if self._record_forward_stack_traces_only:
            frames = [f for f in frames if f.name == "forward"]
        else:
            first = next((i for i, f in enumerate(frames) if f.name == "forward"), len(frames))
            frames = frames[first:]
        package = own[: own.rindex("fx")]
        return traceback.StackSummary.from_list(
            [f for f in frames if not f.filename.startswith((package, "<exchanged"))]
        )

    def proxy(self, node: Node) -> Proxy:
        """What stands for a node."""
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:
        """A node of arguments as a program has them, and what stands for it."""
        args_, kwargs_ = self.create_arg(args), self.create_arg(kwargs)
        assert isinstance(args_, tuple) and isinstance(kwargs_, dict)
        node = self.create_node(kind, target, args_, kwargs_, name, type_expr)
        return proxy_factory_fn(node) if proxy_factory_fn else self.proxy(node)

    def create_arg(self, a: Any) -> Argument:
        """An argument as nodes have it: Proxies are Nodes. NotImplementedError for what no graph can hold."""
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, (tuple, list)):
            made = [self.create_arg(x) for x in a]
            if isinstance(a, list):
                return made
            if type(a).__module__ == "torch.return_types":
                return tuple(made)
            return type(a)(*made) if hasattr(a, "_fields") else type(a)(made)
        if isinstance(a, dict):
            return self._create_dict(a)
        if isinstance(a, (slice, range)):
            return type(a)(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        if is_dataclass(a) and not isinstance(a, type):
            kwargs = {f.name: self.create_arg(getattr(a, f.name)) for f in fields(a)}
            return self.create_node("call_function", type(a), (), kwargs)
        if isinstance(a, (*base_types, enum.Enum)) or a is None or a is ...:
            return a
        raise NotImplementedError(f"argument of type: {type(a)}")

    def _create_dict(self, a: dict[Any, Any]) -> dict[Any, Any]:
        def refuse(n: Node) -> NoReturn:
            raise RuntimeError(f"Keys for dictionaries used as an argument cannot contain a Node. Got key: {n}")

        made = {}
        for k, v in a.items():
            if not isinstance(k, str):
                k = self.create_arg(k)
                map_arg(k, refuse)
            made[k] = self.create_arg(v)
        return made

    def to_bool(self, obj: Proxy) -> bool:
        """`if x:`. TraceError, unless a subclass knows."""
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """`for y in x:`. TraceError, unless a subclass knows."""
        raise TraceError(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or as a *args or **kwargs "
            "function argument. See the torch.fx docs on pytorch.org for a more detailed explanation of what types of control "
            "flow can be traced, and check out the Proxy docstring for help troubleshooting Proxy iteration errors"
        )

    def keys(self, obj: Proxy) -> Any:
        """`x.keys()`, which `f(**x)` calls."""
        return Attribute(obj, "keys")()


@compatibility(is_backward_compatible=True)
class GraphAppendingTracer(TracerBase):
    """Appends to a graph that is there."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.scope = Scope("", None)
        self.module_stack = OrderedDict()
        self.node_name_to_scope = {}


def assert_fn(x: Any) -> None:
    """An `assert` of a traced program."""
    if not x:
        raise AssertionError("Assertion failed")


def _instruction(frame: Any) -> tuple[list[Any], int]:
    """The instructions of a frame's code, and which of them runs."""
    found = list(dis.get_instructions(frame.f_code))
    return found, next(i for i, x in enumerate(found) if x.offset >= frame.f_lasti)


@compatibility(is_backward_compatible=True)
class Proxy:
    """Stands for the value of a node. What is done with it becomes nodes of the tracer's graph, whose Proxies are the results."""

    tracer: Any
    node: Node

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.node = node
        self._tab_watch = watching()

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Attribute:
        # a tensor's private parts are nobody's to ask a Proxy for, and what copies or pickles one asks for methods of that
        if k.startswith("_tab_"):
            raise AttributeError(k)
        return Attribute(self, k)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, d: dict[str, Any]) -> None:
        self.__dict__ = d

    def __deepcopy__(self, memo: Any) -> Proxy:
        made = {}
        for k, v in self.__dict__.items():
            try:
                made[k] = copy.deepcopy(v, memo)
            except Exception:
                log.warning(
                    "Shallow copy %s of Proxy because it cannot be deepcopied. Proxy is created for node %s",
                    k,
                    self.node.name,
                )
                made[k] = copy.copy(v)
        proxy = Proxy(made["node"], made["tracer"])
        proxy.__dict__.update(made)
        return proxy

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        instructions, at = _instruction(sys._getframe(1))
        if instructions[at].opname == "UNPACK_SEQUENCE":
            return (self[i] for i in range(instructions[at].argval))
        found: Iterator[Any] = self.tracer.iter(self)
        return found

    def __abs__(self) -> Any:
        return self.tracer.create_proxy("call_function", operator.abs, (self,), {})

    def __bool__(self) -> bool:
        if self.tracer.trace_asserts and _is_assert(*_instruction(sys._getframe(1))):
            self.tracer.create_proxy("call_function", assert_fn, (self,), {})
            return True
        return bool(self.tracer.to_bool(self))

    def keys(self) -> Any:
        return self.tracer.keys(self)

    def __len__(self) -> int:
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be recorded, please call "
            "torch.fx.wrap('len') at module scope"
        )

    def __getitem__(self, i: Any) -> Any:  # as all operators, it is put in below
        raise NotImplementedError

    @classmethod
    def __torch_function__(cls, orig_method: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = args or (), kwargs or {}
        tracers: dict[Any, None] = {}

        def find(a: Any) -> None:
            if isinstance(a, cls):
                tracers[a.tracer] = None

        map_aggregate((args, kwargs), find)
        if len(tracers) > 1:
            raise RuntimeError(
                f"Found multiple different tracers {list(tracers)} while trying to trace operations {orig_method}"
            )
        (tracer,) = tracers
        name = None if isinstance(orig_method, Packet) else _names.public(orig_method)
        if name is None or orig_method.__name__ == "__get__":
            name = getattr(orig_method, "__name__", "")
            if name in ("__get__", "__set__", "__delete__"):
                return tracer.create_proxy("call_method", name, args, kwargs)
            return tracer.create_proxy(
                "call_function", orig_method, args, kwargs, name=tracer.graph._target_to_str(orig_method.__name__)
            )
        space, _, short = name.rpartition(".")
        if space == "torch.Tensor" or name in ("torch.nn.functional.tanh", "torch.nn.functional.sigmoid"):
            return tracer.create_proxy("call_method", short, args, kwargs)
        args, kwargs = _names.handed(orig_method, name, args, kwargs)
        return tracer.create_proxy("call_function", orig_method, args, kwargs, name=tracer.graph._target_to_str(short))


def _is_assert(instructions: list[Any], at: int) -> bool:
    """Whether the value decides about an `assert` statement."""
    jump = instructions[at]
    if "JUMP" not in jump.opname or "TRUE" not in jump.opname:
        return False
    first = instructions[at + 1]
    starts = first.opname == "LOAD_ASSERTION_ERROR" or (first.opname, first.argval) == ("LOAD_GLOBAL", "AssertionError")
    last = next((x for i, x in enumerate(instructions) if i and x.offset >= jump.argval), None)
    before = instructions[instructions.index(last) - 1] if last is not None else instructions[-1]
    return starts and before.opname == "RAISE_VARARGS"


class MetaProxy(Proxy):
    """A Proxy whose node has the value that fake tensors give. It needs a `fake_mode`, which tabtorch has none of."""

    def __init__(self, node: Node, tracer: TracerBase | None = None, fake_mode: Any = None) -> None:
        super().__init__(node, tracer)
        self.fake_mode = fake_mode

    def __repr__(self) -> str:
        return f"MetaProxy({self.node.name})"


@compatibility(is_backward_compatible=True)
class Attribute(Proxy):
    """`x.name`: a node only if it is used as a value; a call of it is a method call."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root = root
        self.attr = attr
        self.tracer = root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        if self._node is None:
            made: Node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
            self._node = made
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """Stands for a parameter whose sizes are known."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Any) -> None:
        super().__init__(node, tracer)
        assert isinstance(param, Tensor)
        self.param = param
        self.name = name

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> Any:
        return self.param.shape

    def size(self) -> Any:
        return self.param.size()

    def dim(self) -> int:
        return self.param.dim()

    @property
    def ndim(self) -> int:
        return self.param.ndim

    def numel(self) -> int:
        return self.param.numel()

    def nelement(self) -> int:
        return self.param.nelement()


def _operator(name: str, reflected: bool) -> Any:
    def impl(*args: Any, **kwargs: Any) -> Any:
        target = getattr(operator, name)
        if reflected:
            me, other = args
            return me.tracer.create_proxy("call_function", target, (other, me), {})
        return args[0].tracer.create_proxy("call_function", target, args, kwargs)

    impl.__name__ = impl.__qualname__ = f"__r{name.strip('_')}__" if reflected else name
    return impl


for _name in magic_methods:
    setattr(Proxy, f"__{_name.strip('_')}__", _operator(_name, False))
for _name in reflectable_magic_methods:
    setattr(Proxy, f"__r{_name.strip('_')}__", _operator(_name, True))

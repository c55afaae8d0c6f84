"""`torch.fx.node`: one value of a graph, and the operation that it is the result of."""

from __future__ import annotations

import builtins
import importlib
import inspect
import logging
import operator
import types
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import tabtorch
from tabtorch.base.device import device
from tabtorch.base.dtypes import dtype
from tabtorch.core.layout import layout, memory_format
from tabtorch.core.tensor import Tensor
from tabtorch.fx import _names
from tabtorch.fx._compatibility import compatibility
from tabtorch.fx.immutable_collections import immutable_dict, immutable_list
from tabtorch.ops.aten import Packet

if TYPE_CHECKING:
    from tabtorch.fx.graph import Graph

__all__ = ["Node", "has_side_effect", "map_aggregate", "map_arg"]

log = logging.getLogger(__name__)

#: what can be in a node's arguments as it is, beside Nodes and containers
base_types = (str, int, float, bool, complex, dtype, Tensor, device, memory_format, layout, Packet)
BaseArgumentTypes = Any
Target = Callable[..., Any] | str
Argument = Any

_legal_ops = dict.fromkeys(("placeholder", "call_method", "call_module", "call_function", "get_attr", "output", "root"))
_side_effectful_functions: set[Any] = {operator.setitem}
#: of our functions, those that stay though nothing uses what they give
_EFFECTS = {
    "torch." + n
    for n in (
        "_assert _assert_async _C._set_grad_enabled rand rand_like randn randn_like randint randint_like randperm bernoulli multinomial "
        "normal poisson"
    ).split()
}
#: operators that draw numbers
_RANDOM = set(
    "bernoulli multinomial normal poisson rand rand_like randint randint_like randn randn_like randperm dropout native_dropout uniform "
    "exponential geometric cauchy log_normal random rrelu_with_noise".split()
)


def has_side_effect(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Calls of `fn` stay in a graph though nothing uses their results."""
    _side_effectful_functions.add(fn)
    return fn


def _type_repr(obj: Any) -> str:
    kind: Any = type(obj)  # an alias says that it is a type, too
    if isinstance(obj, type) and kind is not types.GenericAlias:
        return obj.__qualname__ if obj.__module__ == "builtins" else (_names.public(obj) or _plain(obj))
    if obj is ...:
        return "..."
    if isinstance(obj, types.FunctionType):
        return obj.__name__
    return repr(obj)


def _plain(obj: Any) -> str:
    return f"{obj.__module__}.{obj.__qualname__}"


def _get_qualified_name(func: Any) -> str:
    """The name that code calls a function by, which a module has to import for it."""
    plain: str = func.__name__
    if getattr(builtins, plain, None) is func:
        return plain
    if isinstance(func, Packet):
        return f"torch.ops.{func}"
    ours = _names.public(func)
    if ours is not None:
        return ours
    name = plain
    if name == "<lambda>":
        try:
            name = inspect.getsource(func).split("=")[0].strip()
        except Exception as e:
            raise RuntimeError("Unable to represent lambda") from e
    module = getattr(func, "__module__", None)
    if module is None:
        raise RuntimeError(f"cannot find module for {func}")
    return f"{module.replace('torch._ops', 'torch.ops')}.{name}"


def _format_arg(arg: Any, max_list_len: float = float("inf")) -> str:
    if hasattr(arg, "_custom_fx_repr_fn"):
        return str(arg._custom_fx_repr_fn())
    if isinstance(arg, (list, tuple)):
        items = ", ".join(_format_arg(a) for i, a in enumerate(arg) if i < max_list_len)
        more = "" if len(arg) < max_list_len + 1 else f", ...[total_len={len(arg)}]"
        if isinstance(arg, list):
            return f"[{items}{more}]"
        return f"({items}{',' if len(arg) == 1 else ''}{more})"
    if isinstance(arg, dict):
        return "{" + ", ".join(f"{k}: {_format_arg(v)}" for k, v in arg.items()) + "}"
    return "%" + str(arg) if isinstance(arg, Node) else str(arg)


def map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """`a` with `fn` of each thing in it, through tuples, lists, dicts and slices. Lists and dicts of the result are immutable."""
    if isinstance(a, tuple):
        made = [map_aggregate(x, fn) for x in a]
        return type(a)(*made) if hasattr(a, "_fields") else tuple(made)
    if isinstance(a, list):
        return immutable_list([map_aggregate(x, fn) for x in a])
    if isinstance(a, dict):
        return immutable_dict({k: map_aggregate(v, fn) for k, v in a.items()})
    if isinstance(a, slice):
        return slice(*[map_aggregate(x, fn) for x in (a.start, a.stop, a.step)])
    return fn(a)


@compatibility(is_backward_compatible=True)
def map_arg(a: Any, fn: Callable[[Node], Any]) -> Any:
    """`a` with `fn` of each Node in it, through containers as `map_aggregate`."""
    assert callable(fn), "torch.fx.map_arg(a, fn): fn must be a callable"
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)


@compatibility(is_backward_compatible=True)
class Node:
    """One operation of a graph.

    op: "placeholder" (an input, whose name `target` is), "get_attr" (an attribute of the module, a path), "call_function" (of the
    function `target`), "call_module" (of the submodule at that path), "call_method" (of `args[0]`, by name) or "output" (args[0]).
    """

    _custom_fx_repr_fn: Any

    def __init__(
        self,
        graph: Graph,
        name: str,
        op: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        return_type: Any = None,
    ) -> None:
        kind = None
        if op == "call_function":
            kind = None if callable(target) else "Callable"
        else:
            assert op in _legal_ops, f"op '{op}' is not in _legal_ops"
            kind = None if isinstance(target, str) else "str"
        if kind:
            raise ValueError(
                f"Node [graph = {graph}, name = '{name}'] target {target} has type {tabtorch.typename(target)} but a {kind} is expected"
            )
        put = self.__dict__
        put["graph"], put["name"], put["op"], put["target"], put["type"] = graph, name, op, target, return_type
        put["_input_nodes"], put["users"], put["meta"] = {}, {}, {}
        put["_erased"], put["_repr_fn"], put["_order"] = False, None, 0
        put["_prev"] = put["_next"] = self
        self._update_args_kwargs(args, kwargs)

    if TYPE_CHECKING:
        graph: Graph
        name: str
        op: str
        target: Any
        type: Any
        users: dict[Node, None]
        meta: dict[str, Any]
        _input_nodes: dict[Node, None]
        _args: tuple[Any, ...]
        _kwargs: dict[str, Any]
        _prev: Node
        _next: Node
        _erased: bool
        _repr_fn: Any
        _order: int

    # ---- place

    @property
    def next(self) -> Node:
        """The node after this one; the graph's root after the last."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before this one."""
        return self._prev

    def _remove_from_list(self) -> None:
        self._prev.__dict__["_next"], self._next.__dict__["_prev"] = self._next, self._prev

    def prepend(self, x: Node) -> None:
        """Puts `x`, a node of the same graph, before this one."""
        assert self.graph == x.graph, "Attempting to move a Node into a different Graph"
        if self is x:
            log.debug("Trying to prepend a node to itself. This behavior has no effect on the graph.")
            return
        x._remove_from_list()
        before = self._prev
        before.__dict__["_next"], x.__dict__["_prev"] = x, before
        x.__dict__["_next"], self.__dict__["_prev"] = self, x
        if self.op == "root" and not self.graph._unordered:
            x.__dict__["_order"] = before._order + 1
        else:
            self.graph._unordered = True

    _prepend = prepend

    def append(self, x: Node) -> None:
        """Puts `x`, a node of the same graph, after this one."""
        self._next.prepend(x)

    @property
    def _sort_key(self) -> tuple[int, ...]:
        if self.graph._unordered:
            self.graph._number()
        return (self._order,)

    def __lt__(self, other: Node) -> bool:
        return self._sort_key < other._sort_key

    def __gt__(self, other: Node) -> bool:
        return self._sort_key > other._sort_key

    def __le__(self, other: Node) -> bool:
        return self is other or self._sort_key < other._sort_key

    def __ge__(self, other: Node) -> bool:
        return self is other or self._sort_key > other._sort_key

    # ---- arguments

    @property
    def args(self) -> tuple[Any, ...]:
        """The arguments: those that are values of the graph are Nodes. Assigning keeps `users` right."""
        return self._args

    @args.setter
    def args(self, a: tuple[Any, ...]) -> None:
        self._update_args_kwargs(a, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Any]:
        """The arguments by name."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, k: dict[str, Any]) -> None:
        self._update_args_kwargs(self._args, k)

    def _update_args_kwargs(self, args: Any, kwargs: Any) -> None:
        for old in self._input_nodes:
            old.users.pop(self, None)
        used: dict[Node, None] = {}

        def use(n: Node) -> Node:
            if n not in used:
                used[n] = None
                n.users.setdefault(self)
            return n

        put = self.__dict__
        put["_args"], put["_kwargs"], put["_input_nodes"] = map_arg(tuple(args), use), map_arg(dict(kwargs), use), used

    @property
    def all_input_nodes(self) -> list[Node]:
        """Each Node among the arguments, once."""
        return list(self._input_nodes)

    def update_arg(self, idx: int, arg: Any) -> None:
        """Replaces one of `args`."""
        args = list(self.args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Any) -> None:
        """Puts `arg` before `args[idx]`."""
        assert 0 <= idx <= len(self.args), f"insert_args index must be between 0 and len(self.args), got {idx}"
        self.__dict__["_args"] = (*self.args[:idx], arg, *self.args[idx:])

        def use(n: Node) -> Node:
            self._input_nodes.setdefault(n)
            n.users.setdefault(self)
            return n

        map_arg(arg, use)

    def update_kwarg(self, key: str, arg: Any) -> None:
        """Replaces one of `kwargs`."""
        self.kwargs = {**self.kwargs, key: arg}

    def _hooks(self) -> Iterable[Any]:
        return getattr(self.graph.owning_module, "_replace_hooks", None) or ()

    def _replace_input_with(self, old: Node, new: Node) -> None:
        def swap(n: Node) -> Node:
            return new if n is old else n

        self._update_args_kwargs(map_arg(self._args, swap), map_arg(self._kwargs, swap))

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Replaces `old_input` wherever it is among the arguments."""
        for hook in self._hooks():
            hook(old=old_input, new=new_input.name, user=self)
        self._replace_input_with(old_input, new_input)

    def replace_all_uses_with(
        self,
        replace_with: Node,
        delete_user_cb: Callable[[Node], bool] | None = None,
        *,
        propagate_meta: bool = False,
    ) -> list[Node]:
        """Has every user of this node (for which `delete_user_cb` is true) use another one; which those were."""
        if propagate_meta:
            assert not replace_with.meta, (
                "Called node.replace_all_uses_with(replace_with, propagate_meta=True), but replace_with already has .meta keys"
            )
            replace_with.meta.update(self.meta)
        changed = [user for user in [*self.users] if delete_user_cb is None or delete_user_cb(user)]
        for user in changed:
            for hook in self._hooks():
                hook(old=self, new=replace_with.name, user=user)
            user._replace_input_with(self, replace_with)
        return changed

    # ---- what is known of it

    @property
    def stack_trace(self) -> str | None:
        """The calls of Python that made this node, if the tracer recorded them."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether it has to stay though nothing uses it."""
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_module":
            owner = self.graph.owning_module
            assert owner is not None, "self.graph.owning_module not set for purity check"
            return bool(getattr(owner.get_submodule(self.target), "_is_impure", False))
        if self.op == "call_function":
            return _impure(self.target, impure_random)
        return False

    def normalized_arguments(
        self,
        root: Any,
        arg_types: tuple[Any, ...] | None = None,
        kwarg_types: dict[str, Any] | None = None,
        normalize_to_only_use_kwargs: bool = False,
    ) -> Any:
        """The arguments as the signature of what is called has them; None where it is not known."""
        # it loads the schemas of all operators
        schemas: Any = importlib.import_module("tabtorch.fx.operator_schemas")
        only = normalize_to_only_use_kwargs
        if self.op == "call_function":
            return schemas.normalize_function(
                self.target, self.args, self.kwargs, arg_types, kwarg_types, normalize_to_only_use_kwargs=only
            )
        if self.op == "call_module":
            return schemas.normalize_module(
                root, self.target, self.args, self.kwargs, normalize_to_only_use_kwargs=only
            )
        return None

    # ---- text

    def __repr__(self) -> str:
        return str(self._repr_fn(self)) if self._repr_fn else self.name

    @staticmethod
    def _pretty_print_target(target: Any) -> str:
        if isinstance(target, str):
            return target
        name = getattr(target, "__name__", "")
        if name and target.__module__ in ("builtins", "_operator"):
            return f"{target.__module__.lstrip('_')}.{name}"
        return _get_qualified_name(target)

    def format_node(
        self,
        placeholder_names: list[str] | None = None,
        maybe_return_typename: list[str] | None = None,
        *,
        include_tensor_metadata: bool = False,
    ) -> str | None:
        """A line that describes it, as in the text of a graph."""
        typed = f"{_type_repr(self.type)} " if self.type is not None else ""
        head = f"%{self.name} : {typed}[num_users={len(self.users)}] = {self.op}"
        if self.op == "placeholder":
            text = self.target + (f"{self.target}: {_type_repr(self.type)}" if self.type else "")
            if placeholder_names:
                placeholder_names.append(text)
                return None
            default = f"(default={self.args[0]})" if self.args else ""
            return f"{head}[target={self.target}]{default}"
        if self.op == "get_attr":
            return f"{head}[target={self._pretty_print_target(self.target)}]"
        if self.op == "output":
            if self.type and maybe_return_typename:
                maybe_return_typename[0] = f" -> {_type_repr(self.type)}"
            return f"return {self.args[0]}"
        value = self.meta.get("val", self.meta.get("tensor_meta", self.meta.get("example_value")))
        if include_tensor_metadata and isinstance(value, Tensor):
            shape, strides = [", ".join(map(str, x)) for x in (value.shape, value.stride())]
            about = f'Tensor "{_names.abbreviation(value.dtype)}[{shape}][{strides}]{value.device}"'
            head = f"%{self.name} : {about}[num_users={len(self.users)}] = {self.op}"
        target = self._pretty_print_target(self.target)
        return f"{head}[target={target}](args = {_format_arg(self.args)}, kwargs = {_format_arg(self.kwargs)})"

    # ---- being changed

    def _rename(self, candidate: str) -> None:
        if candidate != self.name:
            names = self.graph._graph_namespace
            self.name = names.create_name(candidate, None)
            names._rename_object(self, self.name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "name":
            for user in self.users:
                for hook in self._hooks():
                    hook(old=self, new=value, user=user)
        table = self.graph._find_nodes_lookup_table if name in ("op", "target") else None
        listed = table is not None and self in table
        if listed and table is not None:
            table.remove(self)
        object.__setattr__(self, name, value)
        if listed and table is not None:
            table.insert(self)


def _impure(target: Any, impure_random: bool) -> bool:
    if target in _side_effectful_functions:
        return True
    if isinstance(target, Packet):
        name = target._name
        return name.endswith("_") and not name.endswith("__") or (impure_random and _draws(name))
    ours = _names.public(target)
    if ours is None:
        return bool(getattr(target, "_mutates_args", False))
    return ours in _EFFECTS


def _draws(name: str) -> bool:
    return name in _RANDOM

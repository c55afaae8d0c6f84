"""`torch.fx._symbolic_trace`: a module or function, called with Proxies, as a graph."""

from __future__ import annotations

import collections
import copy
import functools
import inspect
import math
import warnings
from collections.abc import Callable, Iterable
from itertools import chain
from types import FunctionType, ModuleType
from typing import Any

import tabtorch
from tabtorch.core.tensor import Tensor
from tabtorch.fx._compatibility import compatibility
from tabtorch.fx._layer_types import layer_types
from tabtorch.fx._lazy_graph_module import _make_graph_module
from tabtorch.fx._patching import (
    _autowrap_check,
    _create_wrapped_func,
    _create_wrapped_method,
    _find_proxy,
    _new_patcher,
    _patch_wrapped_functions,
    _Patcher,
    _wrapped_fns_to_patch,
    _wrapped_methods_to_patch,
    wrap,
)
from tabtorch.fx.graph import Graph, _PyTreeCodeGen, _PyTreeInfo
from tabtorch.fx.graph_module import GraphModule
from tabtorch.fx.node import Argument, Node, base_types
from tabtorch.fx.proxy import ParameterProxy, Proxy, Scope, ScopeContextManager, TracerBase, watching
from tabtorch.nn.modules.module import Module
from tabtorch.nn.parameter import Parameter
from tabtorch.utils import _pytree as pytree

__all__ = [
    "PH",
    "PHBase",
    "PHWithMeta",
    "ProxyableClassMeta",
    "Tracer",
    "_Patcher",
    "_create_wrapped_func",
    "_create_wrapped_method",
    "_wrapped_fns_to_patch",
    "_wrapped_methods_to_patch",
    "is_fx_symbolic_tracing",
    "is_fx_tracing",
    "symbolic_trace",
    "wrap",
]

HAS_VARSTUFF = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS

_orig_module_call: Callable[..., Any] = Module.__call__
_orig_module_getattr: Callable[..., Any] = Module.__getattr__

_proxyable_classes: dict[type, None] = {}
_is_fx_tracing_flag = False
_constant_attribute_types = (Tensor, pytree.TreeSpec)


def is_fx_tracing() -> bool:
    """Whether a trace is being made."""
    return _is_fx_tracing_flag


def is_fx_symbolic_tracing() -> bool:
    """Whether `symbolic_trace` makes one."""
    return _is_fx_tracing_flag and not tabtorch.compiler.is_compiling()


class ProxyableClassMeta(type):
    """The metaclass of classes of which a trace can make objects, as calls of the class in the graph."""

    def __init__(cls, name: str, bases: Any, attrs: Any) -> None:
        _proxyable_classes.setdefault(cls)
        super().__init__(name, bases, attrs)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        proxy = _find_proxy(args, kwargs) if is_fx_tracing() else None
        if proxy is not None:
            return proxy.tracer.create_proxy("call_function", cls, args, kwargs)
        instance = cls.__new__(cls)  # type: ignore[call-overload]
        cls.__init__(instance, *args, **kwargs)  # type: ignore[misc]
        return instance


def _patch_function(fn: Any, nargs: int) -> FunctionType:
    """`fn` with `*args` and `**kwargs` as plain parameters: `nargs` of them in all."""
    co = fn.__code__
    code = co.replace(
        co_argcount=nargs, co_posonlyargcount=0, co_kwonlyargcount=0, co_flags=co.co_flags & ~HAS_VARSTUFF
    )
    return FunctionType(code, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)


class PHBase:
    """In `concrete_args`, what stays an input."""

    def __repr__(self) -> str:
        return "PH"


PH = PHBase()


class PHWithMeta(PHBase):
    """One whose attributes its node gets."""

    def __init__(self, ph_key: str | None = None) -> None:
        self.ph_key = ph_key


def _transfer_attrs(fr: Any, to: Any) -> None:
    for name in dir(fr):
        value = getattr(fr, name)
        if not callable(value) and not name.startswith("__") and not hasattr(to, name):
            setattr(to, name, value)


@compatibility(is_backward_compatible=True)
class Tracer(TracerBase):
    """Makes graphs of modules and functions. Subclasses decide what stays one call, and what comes into the graph."""

    _qualname_counter: dict[str, int] = collections.defaultdict(int)

    def __init__(
        self,
        autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        """autowrap_modules, autowrap_functions: functions that become calls. param_shapes_constant: sizes of parameters are ints."""
        super().__init__()
        self._autowrap_function_ids = {
            id(value)
            for name, value in chain.from_iterable([vars(m).items() for m in autowrap_modules])
            if not name.startswith("_") and callable(value)
        } | {id(f) for f in autowrap_functions}
        self._autowrap_search = list(autowrap_modules)
        self.param_shapes_constant = param_shapes_constant
        self.submodule_paths: dict[Any, str] | None = None
        self.root_module_name = ""
        self.scope = Scope("", None)
        self.module_stack = collections.OrderedDict()
        self.num_calls: dict[str, int] = {}
        self.node_name_to_scope = {}
        self.root: Any = None
        self.tensor_attrs: dict[Any, str] = {}

    def get_fresh_qualname(self, prefix: str) -> str:
        """An attribute that the root does not have: `prefix` and a number."""
        if not hasattr(self.root, prefix + "0"):
            self._qualname_counter[prefix] = 0
            return prefix + "0"
        i = self._qualname_counter[prefix]
        while hasattr(self.root, f"{prefix}{i}"):
            i += 1
        self._qualname_counter[prefix] = i + 1
        return f"{prefix}{i}"

    def create_arg(self, a: Any) -> Argument:
        """An argument as nodes have it: tensors and modules are attributes of the root, constants become some."""
        if isinstance(a, (Parameter, Tensor, Module)):
            known = (
                self.root.named_parameters()
                if isinstance(a, Parameter)
                else self.root.named_buffers()
                if isinstance(a, Tensor)
                else self.root.named_modules()
            )
            for name, x in known:
                if a is x:
                    return self.create_node("get_attr", name, (), {})
            if isinstance(a, Parameter):
                raise NameError("parameter is not a member of this module")
        if isinstance(a, tuple) and hasattr(a, "_fields") and type(a).__module__ != "torch.return_types":
            args = tuple([self.create_arg(x) for x in a])
            return self.create_node("call_function", type(a), args, {})
        if isinstance(a, _constant_attribute_types):
            found = self.tensor_attrs.get(a)
            if not found:
                found = self._keep("_tensor_constant" if isinstance(a, Tensor) else "_tree_spec_constant", a)
                self.tensor_attrs[a] = found
            return self.create_node("get_attr", found, (), {})
        if type(a) in _proxyable_classes:
            return self.create_node("get_attr", self._keep(f"_{type(a).__name__}_constant_", a), (), {})
        return super().create_arg(a)

    def _keep(self, prefix: str, a: Any) -> str:
        name = self.get_fresh_qualname(prefix)
        setattr(self.root, name, a)
        return name

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether a call of a module stays one: those of torch.nn do, but Sequential."""
        of_ours = type(m).__module__.startswith(("torch.nn", "torch.ao.nn", "tabtorch.nn", "tabtorch.ao.nn"))
        return of_ours and not isinstance(m, tabtorch.nn.Sequential)

    def path_of_module(self, mod: Module) -> str:
        """Where the root has a module. NameError if it has not."""
        if self.submodule_paths:
            path = self.submodule_paths.get(mod)
        else:
            path = next((n for n, p in self.root.named_modules() if mod is p), None)
        if path is None:
            raise NameError("module is not installed as a submodule")
        return path

    def call_module(self, m: Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a module: one node, or what its `forward` does."""
        path = self.path_of_module(m)
        with ScopeContextManager(self.scope, Scope(path, type(m))) as scope:
            calls = self.num_calls.get(path, 0)
            key = f"{scope.module_path}@{calls}" if calls else scope.module_path
            self.module_stack[key] = (path, scope.module_type)
            self.num_calls[path] = calls + 1
            if self.is_leaf_module(m, path):
                result = self.create_proxy("call_module", path, args, kwargs)
            else:
                result = forward(*args, **kwargs)
            self.module_stack.popitem(last=True)
        return result

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Proxy]) -> Any:
        """What a module's attribute is in a trace: of a parameter (and buffer, with `proxy_buffer_attributes`) a Proxy."""

        def known(members: Iterable[tuple[str, Any]]) -> Proxy | None:
            for name, p in members:
                if attr_val is p:
                    if name not in parameter_proxy_cache:
                        more: dict[str, Any] = {}
                        if "proxy_factory_fn" in inspect.signature(self.create_proxy).parameters:
                            more["proxy_factory_fn"] = self._parameter_proxy(name, p)
                        parameter_proxy_cache[name] = self.create_proxy("get_attr", name, (), {}, **more)
                    return parameter_proxy_cache[name]
            return None

        found = None
        if isinstance(attr_val, Parameter):
            found = known(self.root.named_parameters())
        if found is None and self.proxy_buffer_attributes and isinstance(attr_val, Tensor):
            found = known(self.root.named_buffers())
        return attr_val if found is None else found

    def _parameter_proxy(self, name: str, param: Any) -> Callable[[Node], Proxy] | None:
        if not self.param_shapes_constant:
            return None
        return lambda node: ParameterProxy(self, node, name, param)

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None
    ) -> tuple[Any, list[Any]]:
        """The placeholders of a function's parameters, and the function to call with them."""
        analyzed: Any = inspect.unwrap(root_fn)
        co = analyzed.__code__
        total = co.co_argcount + co.co_kwonlyargcount
        names = iter(co.co_varnames)
        args: list[Any] = []
        if is_module:
            if not total:
                raise RuntimeError("``self`` argument cannot be part of *args expansion!")
            next(names)
            args.append(self.root)
        sig = inspect.signature(analyzed)
        if isinstance(concrete_args, tuple) and concrete_args and co.co_flags & HAS_VARSTUFF and total == 1:
            for i, concrete in enumerate(concrete_args):
                out = self.create_proxy("placeholder", f"input_{i}", (), {})
                if isinstance(concrete, PHBase) and concrete != PH:
                    _transfer_attrs(fr=concrete, to=out.node)
                args.append(out)
            return root_fn, args
        arg_names = [next(names) for _ in range(len(args), total)]
        if isinstance(concrete_args, tuple):
            if len(arg_names) != len(concrete_args):
                raise RuntimeError(
                    f"Tracing expected {len(arg_names)} arguments but got {len(concrete_args)} concrete arguments"
                )
            concrete_args = dict(zip(arg_names, concrete_args))

        def placeholder(name: str) -> Any:
            return self._proxy_placeholder(name, concrete_args, sig, analyzed)

        args += [placeholder(name) for name in arg_names]
        if co.co_kwonlyargcount > 0 or co.co_flags & HAS_VARSTUFF:
            if co.co_flags & inspect.CO_VARARGS:
                args.append(placeholder("*" + next(names)))
            if co.co_flags & inspect.CO_VARKEYWORDS:
                args.append(placeholder("**" + next(names)))
            root_fn = _patch_function(root_fn, len(args))
        flat, in_spec = pytree.tree_flatten(tuple(args))
        if all(child.is_leaf() for child in in_spec.children()):
            return root_fn, args
        codegen = self.graph._codegen = _PyTreeCodeGen(_PyTreeInfo(list(co.co_varnames)[:total], in_spec, None))

        def flatten_fn(*args: Any) -> Any:
            out, out_spec = pytree.tree_flatten(root_fn(*pytree.tree_unflatten(list(args), in_spec)))
            codegen.pytree_info = codegen.pytree_info._replace(out_spec=out_spec)
            return out

        flatten_fn.__annotations__ = {}  # what the root says that it gives is not what this does
        return flatten_fn, flat

    def trace(self, root: Any, concrete_args: Any = None) -> Graph:
        """The graph of a module's `forward`, or of a function. concrete_args: values that parameters have in it."""
        global _is_fx_tracing_flag
        before, _is_fx_tracing_flag = _is_fx_tracing_flag, True
        watch = watching()
        try:
            return self._trace(root, concrete_args)
        finally:
            _is_fx_tracing_flag = before
            del watch

    def _trace(self, root: Any, concrete_args: Any) -> Graph:
        fn: Any
        if isinstance(root, Module):
            self.root = root
            name = self.traced_func_name
            assert hasattr(type(root), name), f"traced_func_name={name} doesn't exist in {type(root).__name__}"
            fn = getattr(type(root), name)
            self.root_module_name = root._get_name()
            self.submodule_paths = {mod: path for path, mod in root.named_modules()}
        else:
            self.root = Module()
            fn = root
        self.graph = Graph(tracer_cls=getattr(self, "__class__", None))
        code = getattr(fn, "__code__", None)
        if code is not None:
            fields = ("co_name", "co_filename", "co_firstlineno")
            self.graph._co_fields = {k: getattr(code, k) for k in fields}
        self.tensor_attrs = {}

        def collect(m: Module, prefix: str) -> None:
            for k, v in vars(m).items():
                if isinstance(v, _constant_attribute_types):
                    self.tensor_attrs[v] = prefix + k
            for k, child in m.named_children():
                collect(child, f"{prefix}{k}.")

        collect(self.root, "")
        assert isinstance(fn, FunctionType), f"Expected FunctionType, got {type(fn)}"
        fn_globals = fn.__globals__
        fn, args = self.create_args_for_root(fn, isinstance(root, Module), concrete_args)
        cache: dict[str, Proxy] = {}

        @functools.wraps(_orig_module_getattr)
        def module_getattr(mod: Module, attr: str) -> Any:
            return self.getattr(attr, _orig_module_getattr(mod, attr), cache)

        @functools.wraps(_orig_module_call)
        def module_call(mod: Module, *args: Any, **kwargs: Any) -> Any:
            def forward(*args: Any, **kwargs: Any) -> Any:
                return _orig_module_call(mod, *args, **kwargs)

            space = getattr(getattr(mod, "forward", mod), "__globals__", {})
            _autowrap_check(patcher, space, self._autowrap_function_ids)
            return self.call_module(mod, forward, args, kwargs)

        with _new_patcher() as patcher:
            patcher.patch_method(Module, "__getattr__", module_getattr, deduplicate=False)
            patcher.patch_method(Module, "__call__", module_call, deduplicate=False)
            _patch_wrapped_functions(patcher)
            _autowrap_check(patcher, fn_globals, self._autowrap_function_ids)
            for module in self._autowrap_search:
                _autowrap_check(patcher, vars(module), self._autowrap_function_ids)
            returns = layer_types(inspect.unwrap(fn)).get("return")
            self.create_node("output", "output", (self.create_arg(fn(*args)),), {}, type_expr=returns)
        self.submodule_paths = None
        return self.graph

    def __deepcopy__(self, memo: Any) -> Tracer:
        made = Tracer.__new__(Tracer)
        for k, v in self.__dict__.items():
            made.__dict__[k] = copy.copy(v) if k == "_autowrap_search" else copy.deepcopy(v, memo)
        return made

    def _proxy_placeholder(
        self, name: str, concrete_args: dict[str, Any] | None, sig: inspect.Signature, fn_for_analysis: Any
    ) -> Any:
        default: tuple[Any, ...] = ()
        if name[0] != "*" and sig.parameters[name].default is not inspect.Parameter.empty:
            default = (sig.parameters[name].default,)
        if concrete_args is None or name not in concrete_args:
            annotation = None if name[0] == "*" else layer_types(fn_for_analysis).get(name)
            return self.create_proxy("placeholder", name, default, {}, type_expr=annotation)
        count = 0

        def replace(x: Any) -> Any:
            nonlocal count
            count += 1
            out: Any = self.create_proxy("placeholder", f"{name}_{count}", default, {})
            if isinstance(x, PHBase):
                if x != PH:
                    _transfer_attrs(fr=x, to=out.node)
                return out
            if type(x) in (*base_types, bool) and type(x) is not Tensor:
                tabtorch._assert(out == x, f"{name} has been specialized to have value {x} but got another value")
            elif x is None:
                message = f"{name} has been specialized to have value None but got another value"
                self.create_proxy("call_function", _assert_is_none, (out, message), {})
            else:
                warnings.warn(
                    f"Was not able to add assertion to guarantee correct input {name} to specialized function. It is up to the "
                    "user to make sure that your inputs match the inputs you specialized the function with.",
                    stacklevel=2,
                )
            return x

        return pytree.tree_map(replace, concrete_args[name])


@compatibility(is_backward_compatible=True)
def symbolic_trace(root: Any, concrete_args: Any = None) -> GraphModule:
    """`root`, a module or function, as a GraphModule: what its code does with its inputs, whatever they are.

    concrete_args: values of parameters that are to be constants; `PH` in them stands for an input.
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return _make_graph_module(tracer.root, graph, name)


@wrap
def _assert_is_none(value: Any, msg: str) -> None:
    assert value is None, msg

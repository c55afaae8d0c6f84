"""`torch.library`: operators written in Python, reached as `torch.ops.NAMESPACE.NAME`.

An operator has a kernel for each kind of device (or one for all), a fake for the meta device, and a formula for autograd.
Names of dispatch keys are PyTorch's: "CPU", "CUDA" (webgpu), "Meta", "Autograd", "CompositeExplicitAutograd",
"CompositeImplicitAutograd". Schemas are kept as text: arguments are bound as the kernel's own signature says.
"""

from __future__ import annotations

import importlib
import inspect
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.function import Function
from tabtorch.autograd.grad_mode import STATE, no_grad
from tabtorch.core.tensor import Tensor
from tabtorch.utils._pytree import tree_leaves

__all__ = [
    "CustomOpDef",
    "Library",
    "custom_op",
    "define",
    "impl",
    "register_autograd",
    "register_fake",
    "register_kernel",
    "register_vmap",
]

Fn = Callable[..., Any]

#: "namespace::name" -> the operator
_ops: dict[str, Operator] = {}
_loaded: set[str] = set()


class _Excluded(threading.local):
    names: frozenset[str] = frozenset()  # of the dispatch keys that are passed over


EXCLUDED = _Excluded()
#: the key of an operator's kernel for autocast, and the device type that is asked
_AUTOCAST = {"cpu": ("AutocastCPU", "cpu"), "webgpu": ("AutocastCUDA", "cuda"), "cuda": ("AutocastCUDA", "cuda")}

#: namespaces of compiled operators that are here: the module with them, see vision
_KNOWN = {"torchvision": "tabtorch.vision"}

_TYPES = {"cpu": "CPU", "cuda": "CUDA", "webgpu": "CUDA", "meta": "Meta"}


class Operator:
    """One operator. Calling it, or its overload `default`, runs the kernel for the device of its tensors."""

    def __init__(self, qualname: str, schema: str | None = None) -> None:
        self._qualified_op_name = qualname
        self.namespace, _, self.__name__ = qualname.partition("::")
        self._schema = None if schema is None else f"{qualname}{schema[schema.index('(') :]}"
        self._kernels: dict[str, Fn] = {}
        self._formula: tuple[Fn, Fn | None] | None = None
        self._batched: Fn | None = None

    @property
    def default(self) -> Operator:
        return self

    def name(self) -> str:
        """ "namespace::name"."""
        return self._qualified_op_name

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self._qualified_op_name.replace('::', '.')}', overload='default')>"

    def _kernel(self, tensors: list[Any]) -> Fn:
        """What computes it. NotImplementedError where nothing does for that device."""
        kernels = self._kernels
        own = _TYPES[tensors[0].device.type] if tensors else "CPU"
        for key in (own, "CompositeExplicitAutograd", "CompositeImplicitAutograd"):
            if key in kernels and not (own == "Meta" and key == "CompositeExplicitAutograd"):
                return kernels[key]
        if own == "Meta":
            raise NotImplementedError(
                f"{self.name()}: attempted to run this operator with Meta tensors, but there was no fake impl or Meta kernel "
                f"registered for this operator. Please use torch.library.register_fake to add one."
            )
        raise NotImplementedError(
            f"Could not run '{self.name()}' with arguments from the '{own}' backend: no kernel was registered for it."
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._batched is not None and STATE.nesting:
            rule = partial(self._batched, **kwargs)
            result = _lazy.functions.apply(
                SimpleNamespace(setup_context=rule, generate_vmap_rule=False, vmap=rule), args
            )
            if result is not NotImplemented:
                return result
        leaves = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        if leaves and any(key.startswith("Autocast") for key in self._kernels):
            key, device = _AUTOCAST.get(leaves[0].device.type, ("", ""))
            on: Any = _lazy.amp.is_autocast_enabled
            if key in self._kernels and key not in EXCLUDED.names and on(device):
                return self._kernels[key](*args, **kwargs)
        follows = STATE.grad and any(t._tab_requires_grad for t in leaves)
        if follows and "Autograd" in self._kernels:
            return self._kernels["Autograd"](*args, **kwargs)
        kernel = self._kernel(leaves)
        if not follows or (self._formula is None and kernel is self._kernels.get("CompositeImplicitAutograd")):
            return kernel(*args, **kwargs)
        bound = inspect.signature(kernel).bind(*args, **kwargs)
        bound.apply_defaults()
        return _Recorded.apply(self, kernel, bound.kwargs, *bound.args)


class _Recorded(Function):
    """An operator on the tape: what its kernel does is not recorded, its formula gives the gradient."""

    @staticmethod
    def forward(ctx: Any, op: Operator, kernel: Fn, keywords: dict[str, Any], *args: Any) -> Any:
        ctx.op = op
        with no_grad():
            output = kernel(*args, **keywords)
        setup = op._formula[1] if op._formula is not None else None
        if setup is not None:
            if keywords:
                setup(ctx=ctx, inputs=args, keyword_only_inputs=keywords, output=output)
            else:
                setup(ctx=ctx, inputs=args, output=output)
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        formula = ctx.op._formula
        if formula is None:
            raise RuntimeError(
                f"Trying to backward through {ctx.op.name().replace('::', '.')}.default but no autograd formula was registered. Please use "
                "register_autograd to add one."
            )
        given = formula[0](ctx, *grads)
        return (None, None, None, *(given if isinstance(given, tuple) else (given,)))


def load_namespace(name: str) -> bool:
    """Defines the operators of a library that PyTorch has in compiled form. Whether they are here."""
    where = _KNOWN.get(name)
    if where is None:
        return False
    if f"{name}::" not in _loaded:
        _loaded.add(f"{name}::")
        for schema, (kernel, formula) in importlib.import_module(where).OPERATORS.items():
            op = _defined(f"{name}::{schema.partition('(')[0]}", schema)
            op._kernels["CompositeExplicitAutograd"] = kernel
            if formula is not None:
                op._formula = formula[1], formula[0]
    return True


class Namespace:
    """`torch.ops.NAME`: its operators. AttributeError for one that nobody has defined."""

    def __init__(self, name: str) -> None:
        self._name = name
        load_namespace(name)

    def __getattr__(self, name: str) -> Operator:
        op = _ops.get(f"{self._name}::{name}")
        if op is None:
            raise AttributeError(f"'_OpNamespace' '{self._name}' object has no attribute '{name}'")
        return op

    def __dir__(self) -> list[str]:
        return sorted(q.partition("::")[2] for q in _ops if q.startswith(self._name + "::"))


def _check_name(qualname: str) -> None:
    if "::" not in qualname:
        raise ValueError(
            f"Expected qualname to be of the form 'namespace::name', but got {qualname}. The qualname passed to the "
            "torch.library APIs must consist of a namespace and a name, e.g. aten::sin"
        )


def _found(op: Any, asker: str) -> Operator:
    if isinstance(op, CustomOpDef):
        return op._opoverload
    if isinstance(op, Operator):
        return op
    if not isinstance(op, str):
        raise ValueError(f"{asker}({op}): got unexpected type for op: {type(op)}")
    _check_name(op)
    base = op.removesuffix(".default")
    if base not in _ops:
        load_namespace(base.partition("::")[0])
    if base not in _ops:
        raise RuntimeError(f"operator {op} does not exist")
    return _ops[base]


def _defined(qualname: str, schema: str | None) -> Operator:
    _check_name(qualname)
    if qualname in _ops:
        raise RuntimeError(
            f"Tried to register an operator ({_ops[qualname]._schema or qualname}) with the same name and overload name "
            "multiple times. Each overload's schema should only be registered with a single call to def()."
        )
    op = _ops[qualname] = Operator(qualname, schema)
    return op


def _keys(types: Any) -> list[str]:
    """The dispatch keys of names of devices, or of keys; one, several, or None for every device."""
    if types is None or types == "default":
        return ["CompositeExplicitAutograd"]
    names = [types] if isinstance(types, str) else list(types)
    return [_TYPES.get(n, n) for n in names]


def _kept(op: Operator, types: Any, fn: Fn | None) -> Any:
    def keep(fn: Fn) -> Fn:
        for key in _keys(types):
            op._kernels[key] = fn
        return fn

    return keep if fn is None else keep(fn)


# ---- what programs call


def define(qualname: str, schema: str, *, lib: Any = None, tags: Any = ()) -> Any:
    """Defines the operator "namespace::name" with a schema such as "(Tensor x, float y) -> Tensor"."""
    _defined(qualname, schema)


def impl(qualname: Any, types: Any, func: Any = None, *, lib: Any = None) -> Any:
    """Gives an operator a kernel for these kinds of devices ("cpu", "cuda", "default"). Without `func`: a decorator.

    The older form `impl(library, name, dispatch_key)` is a decorator too.
    """
    if isinstance(qualname, Library):

        def keep(f: Fn) -> Fn:
            qualname.impl(types, f, func or "")
            return f

        return keep
    return _kept(_found(qualname, "impl"), types, func)


def register_kernel(op: Any, device_types: Any, func: Fn | None = None, /, *, lib: Any = None) -> Any:
    """Gives an operator a kernel for these kinds of devices (None: for all). Without `func`: a decorator."""
    return _kept(_found(op, "register_kernel"), device_types, func)


def register_fake(op: Any, func: Fn | None = None, /, *, lib: Any = None, _stacklevel: int = 1) -> Any:
    """Gives an operator what runs for tensors on the meta device, which have shapes only. Without `func`: a decorator."""
    return _kept(_found(op, "register_fake"), "Meta", func)


def register_autograd(op: Any, backward: Fn, /, *, setup_context: Fn | None = None, lib: Any = None) -> None:
    """Gives an operator its gradient: `setup_context(ctx, inputs, output)`, then `backward(ctx, *grads)`."""
    _found(op, "register_autograd")._formula = (backward, setup_context)


def register_vmap(op: Any, func: Fn | None = None, /, *, lib: Any = None) -> Any:
    """Gives an operator its rule for `vmap`: `func(info, in_dims, *args)` to (output, out_dims). Without `func`: a decorator.

    It needs none where its kernel computes with tensors alone.
    """
    if func is None:
        return partial(register_vmap, op)
    _found(op, "register_vmap")._batched = func


class CustomOpDef:
    """What `custom_op` makes of a function: the operator, and the ways to say more about it."""

    def __init__(self, namespace: str, name: str, schema: str | None, fn: Fn, device_types: Any) -> None:
        self._namespace, self._name, self._schema = namespace, name, schema
        self._init_fn = fn
        self._qualname = f"{namespace}::{name}"
        _ops.pop(self._qualname, None)  # defining one again replaces it, as in a notebook
        self._opoverload = _defined(self._qualname, schema)
        _kept(self._opoverload, device_types, fn)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._opoverload(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def register_kernel(self, device_types: Any, fn: Fn | None = None, /) -> Any:
        """See `torch.library.register_kernel`."""
        return _kept(self._opoverload, device_types, fn)

    def register_fake(self, fn: Fn, /) -> Fn:
        """See `torch.library.register_fake`."""
        return _kept(self._opoverload, "Meta", fn)

    def register_autograd(self, backward: Fn, /, *, setup_context: Fn | None = None) -> None:
        """See `torch.library.register_autograd`."""
        self._opoverload._formula = (backward, setup_context)

    def register_vmap(self, func: Fn | None = None) -> Any:
        """See `torch.library.register_vmap`."""
        return register_vmap(self._opoverload, func)


def custom_op(
    name: str,
    fn: Fn | None = None,
    /,
    *,
    mutates_args: str | Iterable[str],
    device_types: str | Sequence[str] | None = None,
    schema: str | None = None,
    tags: Any = None,
) -> Any:
    """Makes of a function the operator "namespace::name", also there as `torch.ops.namespace.name`. Without `fn`: a decorator.

    mutates_args: the arguments that it writes to; writes are seen by autograd as everybody's are.
    """
    _check_name(name)
    namespace, _, short = name.partition("::")

    def inner(fn: Fn) -> CustomOpDef:
        return CustomOpDef(namespace, short, schema, fn, device_types)

    return inner if fn is None else inner(fn)


class Library:
    """A namespace's operators by the older interface: `define(schema)`, then `impl(name, fn, dispatch_key)`.

    kind: "DEF" where it defines operators, "IMPL" or "FRAGMENT" where it adds to them.
    """

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind}")
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Defines an operator, "name(Tensor x) -> Tensor". Returns its name."""
        name = schema.partition("(")[0].strip()
        _defined(f"{self.ns}::{name}", schema)
        return name

    def impl(self, op_name: Any, fn: Fn, dispatch_key: str = "", *, with_keyset: bool = False, **options: Any) -> None:
        """Gives an operator a kernel for a dispatch key (default: the library's, else for every device, recorded as it runs)."""
        if not callable(fn):
            raise TypeError(f"Input function is required to be a callable but found type {type(fn)}")
        name = op_name.name() if isinstance(op_name, Operator) else str(op_name)
        qualname = name if "::" in name else f"{self.ns}::{name}"
        key = dispatch_key or self.dispatch_key or "CompositeImplicitAutograd"
        _found(qualname, "impl")._kernels[key] = fn

"""`torch.library`: operators written in Python, reached as `torch.ops.NAMESPACE.NAME`.

An operator has a kernel for each kind of device (or one for all), a fake for the meta device, and a formula for autograd.
Names of dispatch keys are PyTorch's: "CPU", "CUDA" (webgpu), "Meta", "Autograd", "CompositeExplicitAutograd",
"CompositeImplicitAutograd". Arguments are bound, and converted, as the schema says.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import logging
import re
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, NoReturn

from tabtorch import _C, _custom_ops, _lazy
from tabtorch._library.inference import infer_schema
from tabtorch._library.schemas import FunctionSchema, tensors
from tabtorch.autograd.function import Function
from tabtorch.autograd.grad_mode import STATE as GRAD
from tabtorch.autograd.grad_mode import no_grad
from tabtorch.base.device import device
from tabtorch.base.dtypes import dtype
from tabtorch.core.tensor import Tensor
from tabtorch.interception.operator_modes import STACK
from tabtorch.interception.torch_function import STATE, overloaded
from tabtorch.ops.aten import DISPATCH, Operation, Overload, lookup
from tabtorch.overrides import handle_torch_function
from tabtorch.utils._pytree import tree_leaves, tree_map

__all__ = [
    "CustomOpDef",
    "Library",
    "custom_op",
    "define",
    "fallthrough_kernel",
    "get_ctx",
    "get_kernel",
    "impl",
    "impl_abstract",
    "infer_schema",
    "opcheck",
    "register_autocast",
    "register_autograd",
    "register_fake",
    "register_kernel",
    "register_torch_dispatch",
    "register_vmap",
    "triton_op",
    "wrap_triton",
]

log = logging.getLogger(__name__)

Fn = Callable[..., Any]

#: "namespace::name", or "namespace::name.overload" -> the operator
_ops: dict[str, Operator] = {}
#: "namespace::name" -> its overloads
_packets: dict[str, OperatorPacket] = {}
#: kernels of operators that are not defined yet
_pending: dict[str, dict[str, Fn]] = {}
#: name -> a `torch._ops.HigherOrderOperator`
HIGHER_ORDER: dict[str, Any] = {}
_loaded: set[str] = set()


class _Excluded(threading.local):
    names: frozenset[str] = frozenset()  # of the dispatch keys that are passed over


EXCLUDED = _Excluded()
#: the key of an operator's kernel for autocast, and the device type that is asked
_AUTOCAST = {"cpu": ("AutocastCPU", "cpu"), "webgpu": ("AutocastCUDA", "cuda"), "cuda": ("AutocastCUDA", "cuda")}

#: namespaces of compiled operators that are here: the module with them, and their table in it
_KNOWN = {
    "torchvision": ("tabtorch.vision", "OPERATORS"),
    "torchaudio": ("tabtorch.audio", "OPERATORS"),
    "_torchaudio": ("tabtorch.audio", "ABOUT"),
}

_NAMELESS = re.compile(r"\(.*\) -> .*")
_TYPES = {"cpu": "CPU", "cuda": "CUDA", "webgpu": "CUDA", "meta": "Meta"}


def _called(schema: FunctionSchema, kernel: Fn, args: Any, keywords: dict[str, Any]) -> Any:
    """Runs a kernel: as in PyTorch, it does not get what only repeats the schema's defaults."""
    given, named = schema.without_defaults(list(args), keywords)
    return kernel(*given, **named)


class Operator(Overload):
    """One overload of an operator. Calling it runs the kernel for the device of its tensors."""

    def __init__(self, packet: OperatorPacket, overload: str, schema: FunctionSchema, tags: Any = ()) -> None:
        super().__init__(packet, overload, self._ran)
        self.namespace = self._namespace = packet.namespace
        self.__module__ = packet.__module__
        self._opname = packet._name
        self._qualified_op_name = packet._qualified_op_name
        self._schema = schema
        self.tags = list(tags) if isinstance(tags, tuple | list) else [tags]
        self._kernels: dict[str, Fn] = {}
        self._formula: tuple[Fn, Fn | None] | None = None
        self._batched: Fn | None = None
        self._dispatched: dict[type, Fn] = {}
        self._definition: CustomOpDef | None = None

    def _own(self, args: Any, keywords: dict[str, Any], leaves: list[Any]) -> str:
        """The dispatch key of the device: of the tensors, or else of the argument that is one."""
        if leaves:
            return _TYPES[leaves[0].device.type]
        for a, value in zip([*self._schema.positional, *self._schema.keywords], [*args, *keywords.values()]):
            if a.plain.startswith("Device") and value is not None:
                return _TYPES[device(value).type]
        return "CPU"

    def _kernel(self, own: str) -> Fn:
        """What computes it. NotImplementedError where nothing does for that device."""
        kernels = self._kernels
        for key in (own, "CompositeExplicitAutograd", "CompositeImplicitAutograd"):
            if key in kernels and not (own == "Meta" and key == "CompositeExplicitAutograd"):
                return kernels[key]
        if self._definition is not None:
            return self._definition._without(own)
        if own == "Meta":
            raise NotImplementedError(
                f"{self.name()}: attempted to run this operator with Meta tensors, but there was no fake impl or Meta kernel "
                f"registered for this operator. Please use torch.library.register_fake to add one."
            )
        raise NotImplementedError(
            f"Could not run '{self.name()}' with arguments from the '{own}' backend: no kernel was registered for it."
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        found = [] if STATE.off else overloaded(tree_leaves((args, kwargs)))
        if found:
            return handle_torch_function(self, found, *args, **kwargs)
        return self._ran(*args, **kwargs)

    def _ran(self, *args: Any, **kwargs: Any) -> Any:
        given, keywords = self._schema.bind(args, kwargs)
        if self._batched is not None and GRAD.nesting:
            rule = partial(self._batched, **keywords)
            result = _lazy.functions.apply(
                SimpleNamespace(setup_context=rule, generate_vmap_rule=False, vmap=rule), tuple(given)
            )
            if result is not NotImplemented:
                return result
        leaves = tensors((given, keywords))
        own = self._own(given, keywords, leaves)
        kernels, excluded = self._kernels, EXCLUDED.names
        if leaves and any(key.startswith("Autocast") for key in kernels):
            key, kind = _AUTOCAST.get(leaves[0].device.type, ("", ""))
            on: Any = _lazy.amp.is_autocast_enabled
            if key in kernels and key not in excluded and on(kind):
                return _called(self._schema, kernels[key], given, keywords)
        for key in (f"Autograd{own}", "Autograd"):
            if leaves and key in kernels and key not in excluded and f"Autograd{own}" not in excluded:
                return _called(self._schema, kernels[key], given, keywords)
        kernel = self._kernel(own)
        follows = GRAD.grad and any(t._tab_requires_grad for t in leaves)
        if not follows or (self._formula is None and kernel is kernels.get("CompositeImplicitAutograd")):
            return self._below(kernel, given, keywords)
        return _Recorded.apply(self, kernel, keywords, *given)

    def _below(self, kernel: Fn, args: Any, keywords: dict[str, Any]) -> Any:
        """What comes after autograd: modes and subclasses that see operators, then the kernel."""
        if self._dispatched or DISPATCH:
            given, named = self._schema.without_defaults(list(args), keywords)
            leaves = tensors((args, keywords))
            modes = STACK.modes if DISPATCH and kernel is not self._kernels.get("CompositeImplicitAutograd") else []
            if modes:
                mode = modes[-1]
                rule = self._dispatched.get(type(mode))
                types = tuple({type(t): None for t in leaves if type(t) is not Tensor})
                popped = _lazy.dispatching.pop()
                try:
                    if rule is not None:
                        return rule(mode, self, types, tuple(given), named)
                    return mode.__torch_dispatch__(self, types, tuple(given), named)
                finally:
                    _lazy.dispatching.push(popped)
            for t in leaves:
                if type(t) in self._dispatched:
                    return self._dispatched[type(t)](type(t), self, (type(t),), tuple(given), named)
        result = _called(self._schema, kernel, args, keywords)
        if self._definition is not None and not GRAD.nesting:
            self._definition._check_aliases((args, keywords), result)
        return result

    def redispatch(self, keys: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Runs the kernel that is below autograd, whichever keys are given."""
        given, keywords = self._schema.bind(args, kwargs)
        kernel = self._kernel(self._own(given, keywords, tensors((given, keywords))))
        return self._below(kernel, given, keywords)

    def has_kernel_for_dispatch_key(self, key: Any) -> bool:
        """Whether somebody registered a kernel for the key."""
        return getattr(key, "name", key) in self._kernels


class OperatorPacket(Operation):
    """`torch.ops.NAMESPACE.NAME`: the overloads of an operator. Calling it calls the first one that takes the arguments."""

    def __init__(self, qualname: str) -> None:
        self.namespace, _, name = qualname.partition("::")
        super().__init__(name, self.__call__)
        self.__module__ = f"torch._ops.{self.namespace}"
        self._qualified_op_name = qualname
        self._overloads: dict[str, Operator] = {}

    def __getattr__(self, overload: str) -> Any:
        made = self.__dict__.get("_overloads", {}).get(overload)
        if made is None:
            raise AttributeError(f"The underlying op of '{self}' has no overload name '{overload}'")
        return made

    def overloads(self) -> list[str]:
        """Their names."""
        return list(self._overloads)

    @property
    def _schemas(self) -> dict[str, FunctionSchema]:
        return {"" if k == "default" else k: op._schema for k, op in self._overloads.items()}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        found = [] if STATE.off else overloaded(tree_leaves((args, kwargs)))
        if found:
            return handle_torch_function(self, found, *args, **kwargs)
        ops = list(self._overloads.values())
        for op in ops[:-1]:
            try:
                op._schema.bind(args, kwargs)
            except RuntimeError:
                continue
            return op(*args, **kwargs)
        return ops[-1](*args, **kwargs)


class _Recorded(Function):
    """An operator on the tape: what its kernel does is not recorded, its formula gives the gradient."""

    @staticmethod
    def forward(ctx: Any, op: Operator, kernel: Fn, keywords: dict[str, Any], *args: Any) -> Any:
        ctx.op = op
        with no_grad():
            output = op._below(kernel, list(args), keywords)
        setup = op._formula[1] if op._formula is not None else None
        if setup is not None:
            if op._schema.keywords:
                setup(ctx=ctx, inputs=args, keyword_only_inputs=keywords, output=output)
            else:
                setup(ctx=ctx, inputs=args, output=output)
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        formula = ctx.op._formula
        if formula is None:
            raise RuntimeError(
                f"Trying to backward through {ctx.op} but no autograd formula was registered. Please use "
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
        module, table = where
        for schema, (kernel, formula) in getattr(importlib.import_module(module), table).items():
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

    def __getattr__(self, name: str) -> Any:
        op = HIGHER_ORDER.get(name) if self._name == "higher_order" else _packets.get(f"{self._name}::{name}")
        if op is None:
            raise AttributeError(f"'_OpNamespace' '{self._name}' object has no attribute '{name}'")
        return op

    def __dir__(self) -> list[str]:
        return sorted(q.partition("::")[2] for q in _packets if q.startswith(self._name + "::"))


def _check_name(qualname: str) -> None:
    if "::" not in qualname:
        raise ValueError(
            f'Expected `qualname` to be of the form "namespace::name", but got {qualname}. The qualname passed to the '
            "torch.library APIs must consist of a namespace and a name, e.g. aten::sin"
        )


def _found(op: Any, asker: str) -> Operator:
    if isinstance(op, CustomOpDef):
        return op._opoverload
    if isinstance(op, OperatorPacket) and len(op._overloads) == 1:
        return next(iter(op._overloads.values()))
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


def _defined(qualname: str, schema: str, tags: Any = ()) -> Operator:
    """qualname: with ".overload", unless it is the default one; schema: from "(" on."""
    _check_name(qualname)
    read = FunctionSchema(f"{qualname}{schema[schema.index('(') :]}")
    if qualname in _ops:
        raise RuntimeError(
            f"Tried to register an operator ({read}) with the same name and overload name multiple times. Each overload's "
            "schema should only be registered with a single call to def()."
        )
    base, _, overload = qualname.partition(".")
    packet = _packets.setdefault(base, OperatorPacket(base))
    op = _ops[qualname] = packet._overloads[overload or "default"] = Operator(packet, overload or "default", read, tags)
    op._kernels.update(_pending.pop(qualname, {}))
    return op


def _kernels_of(qualname: str) -> dict[str, Fn]:
    """The kernels of an operator, which may be defined later."""
    base = qualname.removesuffix(".default")
    return _ops[base]._kernels if base in _ops else _pending.setdefault(base, {})


def _removed(qualname: str) -> None:
    """Forgets an operator, if there is one."""
    if _ops.pop(qualname, None) is not None:
        base, _, overload = qualname.partition(".")
        del _packets[base]._overloads[overload or "default"]
        if not _packets[base]._overloads:
            del _packets[base]


def _keys(types: Any) -> list[str]:
    """The dispatch keys of names of devices, or of keys; one, several, or None for every device."""
    if types is None or types == "default":
        return ["CompositeExplicitAutograd"]
    names = [types] if isinstance(types, str) else list(types)
    return [_TYPES.get(n, n) for n in names]


def _kept(op: Operator, types: Any, fn: Fn | None) -> Any:
    if op._definition is not None and types != "Meta":
        return op._definition.register_kernel(types, fn)

    def keep(fn: Fn) -> Fn:
        for key in _keys(types):
            op._kernels[key] = fn
        return fn

    return keep if fn is None else keep(fn)


# ---- what programs call


def define(qualname: Any, schema: Any, alias_analysis: str = "", *, lib: Any = None, tags: Any = ()) -> Any:
    """Defines the operator "namespace::name" with a schema such as "(Tensor x, float y) -> Tensor".

    The older form `define(library, schema)` is a decorator of the operator's function.
    """
    if isinstance(qualname, Library):
        library = qualname

        def keep(f: Fn) -> Fn:
            library.impl(library.define(schema, alias_analysis), f)
            return f

        return keep
    if not isinstance(qualname, str):
        raise ValueError(f"define(qualname, schema): expected qualname to be instance of str, got {type(qualname)}")
    _check_name(qualname)
    if not _NAMELESS.fullmatch(schema):
        raise ValueError(
            f'define(qualname, schema, ...): expected schema to look like e.g. "(Tensor x) -> Tensor" but got "{schema}"'
        )
    _defined(qualname, schema, tags)
    if lib is not None:
        lib._defined.append(qualname)


def impl(qualname: Any, types: Any, func: Any = None, *, lib: Any = None) -> Any:
    """Gives an operator a kernel for these kinds of devices ("cpu", "cuda", "default"). Without `func`: a decorator.

    The older form `impl(library, name, dispatch_key)` is a decorator too.
    """
    if isinstance(qualname, Library):

        def keep(f: Fn) -> Fn:
            qualname.impl(types, f, func or "")
            return f

        return keep
    if isinstance(qualname, str) and "::" in qualname:
        load_namespace(qualname.partition("::")[0])
        if qualname.removesuffix(".default") not in _ops and not qualname.startswith("aten::"):

            def wait(f: Fn) -> Fn:
                _kernels_of(qualname).update(dict.fromkeys(_keys(types), f))
                return f

            return wait if func is None else wait(func)
    return _kept(_found(qualname, "impl"), types, func)


def register_kernel(op: Any, device_types: Any, func: Fn | None = None, /, *, lib: Any = None) -> Any:
    """Gives an operator a kernel for these kinds of devices (None: for all). Without `func`: a decorator."""
    return _kept(_found(op, "register_kernel"), device_types, func)


def register_fake(op: Any, func: Fn | None = None, /, *, lib: Any = None, _stacklevel: int = 1) -> Any:
    """Gives an operator what runs for tensors on the meta device, which have shapes only. Without `func`: a decorator."""
    return _kept(_found(op, "register_fake"), "Meta", func)


def register_autograd(op: Any, backward: Fn, /, *, setup_context: Fn | None = None, lib: Any = None) -> None:
    """Gives an operator its gradient: `setup_context(ctx, inputs, output)`, then `backward(ctx, *grads)`."""
    found = _found(op, "register_autograd")
    schema = found._schema
    if found._definition is not None:
        found._definition.register_autograd(backward, setup_context=setup_context)
        return
    if schema.is_mutable:
        raise RuntimeError(
            f"Cannot register autograd formula for non-functional operator {found} with schema {schema}. Please create a "
            f"functional operator and register an autograd formula for that."
        )
    if any(a.plain.startswith("Tensor") for a in schema.keywords):
        raise NotImplementedError(
            f"register_autograd with kwarg-only Tensor args. In the original definition of the op, please make your tensors not "
            f"kwarg-only. Got: {schema}"
        )
    found._formula = (backward, setup_context)


def register_vmap(op: Any, func: Fn | None = None, /, *, lib: Any = None) -> Any:
    """Gives an operator its rule for `vmap`: `func(info, in_dims, *args)` to (output, out_dims). Without `func`: a decorator.

    It needs none where its kernel computes with tensors alone.
    """
    if func is None:
        return partial(register_vmap, op)
    _found(op, "register_vmap")._batched = func


def register_autocast(op: Any, device_type: str, cast_inputs: dtype, /, *, lib: Any = None) -> Any:
    """Has an operator's floating-point tensors converted to a dtype where autocast is on, and autocast off inside of it."""
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if device_type not in _AUTOCAST:
        raise ValueError(f"Device type '{device_type}' does not support autocast.")
    found = _found(op, "register_autocast")
    key = _AUTOCAST[device_type][0]

    def cast(x: Any) -> Any:
        eligible = isinstance(x, Tensor) and x.is_floating_point() and str(x.dtype) != "torch.float64"
        return x.to(cast_inputs) if eligible else x

    def kernel(*args: Any, **kwargs: Any) -> Any:
        before = EXCLUDED.names
        EXCLUDED.names = before | {key}
        try:
            return found(*tree_map(cast, args), **kwargs)
        finally:
            EXCLUDED.names = before

    found._kernels[key] = kernel
    return kernel


def register_torch_dispatch(op: Any, torch_dispatch_class: Any, func: Fn | None = None, /, *, lib: Any = None) -> Any:
    """Gives an operator what runs in place of `__torch_dispatch__` of a mode's class, or for tensors of a subclass.

    func(mode or class, op, types, args, kwargs). Without `func`: a decorator.
    """
    found = _found(op, "register_torch_dispatch")

    def keep(fn: Fn) -> Fn:
        found._dispatched[torch_dispatch_class] = fn
        return fn

    return keep if func is None else keep(func)


def impl_abstract(qualname: Any, func: Fn | None = None, *, lib: Any = None, _stacklevel: int = 1) -> Any:
    """`register_fake`, by the name that it had before PyTorch 2.4."""
    warnings.warn(
        "torch.library.impl_abstract was renamed to torch.library.register_fake. Please use that instead; "
        "we will remove torch.library.impl_abstract in a future version of PyTorch.",
        FutureWarning,
        stacklevel=2,
    )
    return register_fake(qualname, func, lib=lib)


def fallthrough_kernel() -> NoReturn:
    """What `Library.impl` takes for "nothing is done at this key"."""
    raise NotImplementedError("fallthrough_kernel() should never be called.")


def get_ctx() -> Any:
    """RuntimeError: a fake that gives a size which hangs on data cannot run here, as no size is unknown."""

    return _custom_ops.get_ctx()


class _Kernel:
    """A kernel that `get_kernel` found."""

    def __init__(self, call: Fn) -> None:
        self._call = call

    def call_boxed(self, keys: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Runs it; the keys say nothing here."""
        return self._call(*args, **kwargs)


def get_kernel(op: Any, dispatch_key: Any) -> Any:
    """The kernel that an operator has for a dispatch key: `call_boxed(keys, *args)` of it runs it.

    An operator of ATen has one, whichever key is asked for.
    """

    if not isinstance(op, str | Overload):
        raise ValueError(f"get_kernel({op}): got unexpected type for op: {type(op)}")
    if isinstance(dispatch_key, str) and dispatch_key not in _C.DispatchKey.__members__:
        raise ValueError(f"Invalid dispatch key: {dispatch_key}") from None
    name = op.name() if isinstance(op, Overload) else op
    if name.startswith("aten::"):
        call = lookup(*name.removeprefix("aten::").split("."))
        if call is None:
            raise RuntimeError(f"operator {op} does not exist")
        return _Kernel(call)
    found = _found(name, "get_kernel")
    key = getattr(dispatch_key, "name", dispatch_key)
    call = found._kernels.get(key) or found._kernel(key)
    return _Kernel(call)


def opcheck(
    op: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    test_utils: Any = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"),
    raise_exception: bool = True,
    atol: float | None = None,
    rtol: float | None = None,
) -> dict[str, Any]:
    """Tests with these arguments whether an operator is registered as it behaves: its schema, autograd, fake, `torch.compile`."""
    return _lazy.checking.opcheck(op, args, kwargs, test_utils, raise_exception, rtol, atol)


_TRITON = "{}: Triton compiles for CUDA and does not run here; write the kernel with PyTorch's operations, or in WGSL"


def triton_op(name: str, fn: Fn | None = None, /, *, mutates_args: Any, schema: str | None = None) -> Any:
    """RuntimeError when the operator is called, as `wrap_triton`. It can be defined, and given kernels for devices."""

    def refused(*args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(_TRITON.format(f"triton_op({name})"))

    def inner(fn: Fn) -> CustomOpDef:
        text = schema if schema is not None else infer_schema(fn, mutates_args=mutates_args)
        made: CustomOpDef = custom_op(name, refused, mutates_args=mutates_args, schema=text)
        made._init_fn = fn
        return made

    return inner if fn is None else inner(fn)


def wrap_triton(triton_kernel: Any, /) -> NoReturn:
    """RuntimeError: Triton compiles for CUDA."""
    raise RuntimeError(_TRITON.format("wrap_triton"))


class CustomOpDef:
    """What `custom_op` makes of a function: the operator, and the ways to say more about it."""

    def __init__(self, namespace: str, name: str, schema: str, fn: Fn, tags: Any = None) -> None:
        self._namespace, self._name, self._schema = namespace, name, schema
        self._init_fn = fn
        self._qualname = f"{namespace}::{name}"
        self._disabled_kernel: set[str | None] = set()
        self._backend_fns: dict[str | None, Fn] = {}
        read = FunctionSchema(f"{name}{schema}")
        if any(a.plain.startswith("Tensor") for a in read.keywords):
            raise NotImplementedError(
                f"custom_op with kwarg-only Tensor args. Please make your tensors not kwarg-only. Got: {name}{schema}"
            )
        _removed(self._qualname)  # defining one again replaces it, as in a notebook
        self._opoverload = _defined(self._qualname, schema, tags or ())
        self._opoverload._definition = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._opoverload(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def _without(self, own: str) -> Fn:
        """What runs where no kernel is registered for a device."""
        schema = self._opoverload._schema
        if own == "Meta" and schema.is_mutable and not schema.returns:
            return lambda *args, **kwargs: None
        if own == "Meta":
            raise RuntimeError(
                f"There was no fake impl registered for {self}. This is necessary for torch.compile/export/fx tracing to work. "
                f"Please use `{self._init_fn.__name__}.register_fake` to add an fake impl."
            )
        if not any(a.plain.startswith("Tensor") for a in schema.arguments):
            raise RuntimeError(
                f"{self._name} does not have a kernel registered for {own.lower()}. Please use register_kernel to do so."
            )
        raise NotImplementedError(
            f"Could not run '{self._qualname}' with arguments from the '{own}' backend: no kernel was registered for it."
        )

    def _check_aliases(self, given: Any, result: Any) -> None:
        """RuntimeError where a result shares memory with an argument, or with another result, and the schema does not say so."""
        if any(a.alias_info is not None for a in self._opoverload._schema.returns):
            return
        taken = {memory(t) for t in tensors(given)}  # then of the results before too
        for t in tensors(result):
            if memory(t) in taken:
                raise RuntimeError(
                    f"{self._name} (with implementation in {inspect.getmodule(self._init_fn)}): The output of this custom operator "
                    "(1) must not also be an input to this custom operator and (2) may not alias any inputs to this custom "
                    "operator or other returns. The most common way to trigger this error is if we have y = custom_op(x) and y "
                    "and x are the same Tensor. Please instead return a clone of the offending output tensor(s) (e.g. return "
                    "x.clone()) or refactor the custom operator to not return y."
                )
            taken.add(memory(t))

    @contextlib.contextmanager
    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> Iterator[None]:
        """A context in which the function itself runs for a type of devices, or again the kernel that was registered for it."""
        off = device_type in self._disabled_kernel
        action = "enable" if enabled else "disable"
        if device_type not in self._backend_fns:
            log.warning(
                "Attempted to %s kernel for %s but no kernel was registered for this device type.", action, device_type
            )
        if off == (not enabled):
            log.warning("Attempted to %s kernel for %s but it was already %sd.", action, device_type, action)
        (self._disabled_kernel.discard if enabled else self._disabled_kernel.add)(device_type)
        try:
            yield
        finally:
            (self._disabled_kernel.add if off else self._disabled_kernel.discard)(device_type)

    def register_kernel(self, device_types: Any, fn: Fn | None = None, /) -> Any:
        """See `torch.library.register_kernel`."""
        schema = self._opoverload._schema
        if device_types is not None and not any(a.plain.startswith("Tensor") for a in schema.arguments):
            if not any(a.plain == "Device" and a.name == "device" for a in schema.arguments):
                raise ValueError(
                    "Functions without tensor inputs are required to have a `device: torch.device` argument"
                )

        def keep(fn: Fn) -> Fn:
            kinds = [device_types] if device_types is None or isinstance(device_types, str) else list(device_types)
            for kind in kinds:

                def kernel(*args: Any, kind: str | None = kind, **kwargs: Any) -> Any:
                    return (self._init_fn if kind in self._disabled_kernel else fn)(*args, **kwargs)

                self._backend_fns[kind] = kernel
                self._opoverload._kernels[_keys(kind)[0]] = kernel
            return fn

        return keep if fn is None else keep(fn)

    def register_fake(self, fn: Fn, /) -> Fn:
        """See `torch.library.register_fake`."""
        self._opoverload._kernels["Meta"] = fn
        return fn

    def register_autograd(self, backward: Fn, /, *, setup_context: Fn | None = None) -> None:
        """See `torch.library.register_autograd`."""
        schema = self._opoverload._schema
        if schema.is_mutable:
            raise RuntimeError(
                f"Cannot register autograd formula for non-functional operator {self} with schema {schema}. Please create "
                f"a functional operator and register an autograd formula for that."
            )
        self._opoverload._formula = (backward, setup_context)

    def register_vmap(self, func: Fn | None = None) -> Any:
        """See `torch.library.register_vmap`."""
        return register_vmap(self._opoverload, func)

    def register_autocast(self, device_type: str, cast_inputs: dtype) -> Any:
        """See `torch.library.register_autocast`."""
        return register_autocast(self._opoverload, device_type, cast_inputs)

    def register_torch_dispatch(self, torch_dispatch_class: Any, fn: Fn | None = None, /) -> Any:
        """See `torch.library.register_torch_dispatch`."""
        return register_torch_dispatch(self._opoverload, torch_dispatch_class, fn)


def memory(t: Tensor) -> int:
    """A number that tensors over the same memory have alike."""
    found: int = t._tab_storage.address
    return found


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

    mutates_args: the arguments that it writes to; writes are seen by autograd as everybody's are. schema: in place of what the
    function's annotations say.
    """

    def inner(fn: Fn) -> CustomOpDef:
        text = schema if schema is not None else infer_schema(fn, mutates_args=mutates_args, tags=tags)
        namespace, short = name.split("::")
        written = {a.name for a in FunctionSchema(f"{short}{text}").arguments if a.is_write}
        if schema is not None and written != set(mutates_args):
            raise ValueError(
                f"Attempted to create a custom op with `mutates_args={mutates_args}` and `schema={schema}. The schema suggests that "
                f"the op mutates {written}which is different from what was provided to us in `mutates_args`. Please make these "
                f"consistent."
            )
        made = CustomOpDef(namespace, short, text, fn, tags)
        made.register_kernel(device_types)(fn)
        return made

    return inner if fn is None else inner(fn)


class Library:
    """A namespace's operators by the older interface: `define(schema)`, then `impl(name, fn, dispatch_key)`.

    kind: "DEF" where it defines operators, "IMPL" or "FRAGMENT" where it adds to them.
    """

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind}")
        if ns == "prim" and kind != "IMPL":
            raise ValueError(f"{ns} is a reserved namespace. Please try creating a library with another name.")
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        self._alive = True
        self._defined: list[str] = []
        self._kept: list[tuple[dict[str, Fn], str, Fn]] = []

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Defines an operator, "name(Tensor x) -> Tensor". Returns its name."""
        if alias_analysis not in ("", "FROM_SCHEMA", "CONSERVATIVE"):
            raise RuntimeError(f"Invalid alias_analysis type {alias_analysis}")
        if not self._alive:
            raise AssertionError("Library object has been destroyed")
        name = schema.partition("(")[0].strip().removeprefix(f"{self.ns}::")
        if "(" not in schema:
            raise RuntimeError(f"expected a schema like 'name(Tensor x) -> Tensor', but found:\n{schema}")
        _defined(f"{self.ns}::{name}", schema, tags)
        self._defined.append(f"{self.ns}::{name}")
        return name.partition(".")[0]

    def impl(
        self, op_name: Any, fn: Fn, dispatch_key: Any = "", *, with_keyset: bool = False, allow_override: bool = False
    ) -> None:
        """Gives an operator a kernel for a dispatch key (default: the library's, else for every device, recorded as it runs)."""
        if not callable(fn):
            raise TypeError(f"Input function is required to be a callable but found type {type(fn)}")
        if not self._alive:
            raise AssertionError("Library object has been destroyed")
        name = op_name.name() if isinstance(op_name, Overload) else str(op_name)
        qualname = name if "::" in name else f"{self.ns}::{name}"
        key = dispatch_key or self.dispatch_key or "CompositeImplicitAutograd"
        key = getattr(key, "name", key)
        if qualname.startswith("aten::"):
            raise RuntimeError(
                f"{qualname}: ATen's operators cannot be given kernels in tabtorch; a TorchFunctionMode sees calls"
            )
        load_namespace(self.ns)
        kernels = _kernels_of(qualname)
        if fn is fallthrough_kernel:  # as where there is no kernel
            kernels.pop(key, None)
            return
        if with_keyset:
            fn = partial(fn, _C.DispatchKeySet(frozenset()))
        kernels[key] = fn
        self._kept.append((kernels, key, fn))

    def _register_fake(self, op_name: str, fn: Fn, _stacklevel: int = 1, *, allow_override: bool = True) -> None:
        self.impl(op_name, fn, "Meta")

    def _register_torch_dispatch_rule(self, op_name: str, torch_dispatch_class: Any, fn: Fn) -> None:
        register_torch_dispatch(f"{self.ns}::{op_name}", torch_dispatch_class, fn)

    def _destroy(self) -> None:
        """Takes back what was defined and registered with it."""
        self._alive = False
        for kernels, key, fn in self._kept:
            if kernels.get(key) is fn:
                del kernels[key]
        for qualname in self._defined:
            _removed(qualname)
        self._kept, self._defined = [], []


@contextlib.contextmanager
def _scoped_library(*args: Any, **kwargs: Any) -> Iterator[Library]:
    """A context with a library, which is destroyed after it."""
    lib = Library(*args, **kwargs)
    try:
        yield lib
    finally:
        lib._destroy()

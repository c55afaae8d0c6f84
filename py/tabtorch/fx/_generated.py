"""Code of graphs as functions, and attributes by their paths: what a GraphModule is made with."""

from __future__ import annotations

import linecache
import os
import re
import sys
import traceback
from collections.abc import Callable
from typing import Any

import tabtorch
from tabtorch.core.tensor import Tensor
from tabtorch.fx.graph import _custom_builtins, _is_from_torch
from tabtorch.nn.modules.module import Module
from tabtorch.nn.parameter import Parameter

_HERE = os.path.dirname(tabtorch.__file__) + os.sep
_LAYERS = os.path.join(_HERE, "nn", "")


class _EvalCacheLoader:
    """Keeps the texts of generated code, for tracebacks."""

    def __init__(self) -> None:
        self.eval_cache: dict[str, str] = {}
        self.next_id = 0

    def cache(self, src: str, globals: dict[str, Any], co_fields: dict[str, Any] | None = None) -> str:
        """The file name that stands for a text."""
        key = f"<eval_with_key>.{self.next_id}"
        self.next_id += 1
        if co_fields and "co_filename" in co_fields:
            if "co_firstlineno" in co_fields and "co_name" in co_fields:
                key += f" from {co_fields['co_filename']}:{co_fields['co_firstlineno']} in {co_fields['co_name']}"
            else:
                key = co_fields["co_filename"]
        self.eval_cache[key] = src
        linecache.lazycache(key, {**globals, "__file__": key, "__name__": key, "__loader__": self})
        return key

    def get_source(self, module_name: str) -> str | None:
        """The text of a file name."""
        return self.eval_cache.get(module_name)


_loader = _EvalCacheLoader()


def _exec_with_source(src: str, globals: dict[str, Any], co_fields: dict[str, Any] | None = None) -> None:
    key = _loader.cache(src, globals, co_fields)
    exec(compile(src, key, "exec", dont_inherit=True), globals)


def _method_from_src(
    method_name: str, src: str, globals: dict[str, Any], co_fields: dict[str, Any] | None = None
) -> Callable[..., Any]:
    space = globals.copy()
    _exec_with_source(src, space, co_fields)
    found: Callable[..., Any] = space.pop(method_name)
    return found


def _forward_from_src(src: str, globals: dict[str, Any], co_fields: dict[str, Any] | None = None) -> Callable[..., Any]:
    return _method_from_src("forward", src, globals, co_fields)


def _format_import_statement(name: str, obj: Any) -> str:
    if name in _custom_builtins:
        return _custom_builtins[name].import_str
    if _is_from_torch(obj):
        return "import torch"
    where, attr = obj.__module__, getattr(obj, "__qualname__", obj.__name__)
    return f"from {where} import {attr} as {name}"


def _format_import_block(globals: dict[str, Any]) -> str:
    return "\n".join(sorted({_format_import_statement(name, obj) for name, obj in globals.items()}))


def _ours(src: str) -> str:
    """Import statements, as written in files: torch in them is this package, installed as torch or not."""
    src = re.sub(r"^import torch$", "import tabtorch as torch", src, flags=re.M)
    return re.sub(r"^(from|import) torch\b", r"\1 tabtorch", src, flags=re.M)


def _put(module: Module, field: str, value: Any) -> None:
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        module.register_buffer(field, value)
    else:
        setattr(module, field, value)


def _copy_attr(from_module: Any, to_module: Any, target: str) -> None:
    """Gives one module the attribute at a path of another. Modules on the way are made."""
    *prefix, field = target.split(".")
    for item in prefix:
        f, t = getattr(from_module, item), getattr(to_module, item, None)
        if f is t:
            return
        if t is None:
            t = Module()
            setattr(to_module, item, t)
        from_module, to_module = f, t
    _put(to_module, field, getattr(from_module, field))


def _assign_attr(from_obj: Any, to_module: Any, target: str) -> None:
    """The same of an object."""
    *prefix, field = target.split(".")
    for item in prefix:
        t = getattr(to_module, item, None)
        if t is None:
            t = Module()
            setattr(to_module, item, t)
        to_module = t
    _put(to_module, field, from_obj)


def _get_attr(model: Any, attr_name: str) -> Any:
    """The attribute at a path."""
    return _get_attr_via_attr_list(model, attr_name.split("."))


def _get_attr_via_attr_list(model: Any, attr_list: list[str]) -> Any:
    for item in attr_list[:-1]:
        model = getattr(model, item, None)
        assert model is not None, f"Attribute '{item}' not found in model"
    return getattr(model, attr_list[-1]) if attr_list else model


def _del_attr(model: Any, attr_name: str) -> None:
    *prefix, field = attr_name.split(".")
    delattr(_get_attr_via_attr_list(model, prefix), field)


def _has_attr(model: Any, attr_name: str) -> bool:
    for item in attr_name.split("."):
        if not hasattr(model, item):
            return False
        model = getattr(model, item)
    return True


class _WrappedCall:
    """Calls a GraphModule; an error in its code is shown with the lines of it."""

    def __init__(self, cls: type, cls_call: Callable[..., Any] | None) -> None:
        self.cls = cls
        self.cls_call = cls_call

    @staticmethod
    def _generate_error_message(frame: traceback.FrameSummary) -> str:
        number, line = frame.lineno or 0, frame.line or ""
        lines = linecache.getlines(frame.filename)
        said = f"Call using an FX-traced Module, line {number} of the traced Module's generated forward function:"
        before, after = "".join(lines[max(number - 2, 0) : number]), "\n".join(lines[number : number + 2])
        return "\n".join([traceback.format_exc(), said, before, "~" * len(line) + "~~~ <--- HERE", after])

    def __call__(self, obj: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            if self.cls_call is not None:
                return self.cls_call(obj, *args, **kwargs)
            above: Any = super(self.cls, obj)
            return above.__call__(*args, **kwargs)
        except Exception as e:
            frames = traceback.StackSummary.extract(traceback.walk_tb(e.__traceback__))
            # what PyTorch has compiled is no frame there: the last one is the code that called it
            shown = [f for f in frames if not f.filename.startswith(_HERE) or f.filename.startswith(_LAYERS)]
            last = (shown or frames)[-1]
            if "eval_with_key" in last.filename:
                print(_WrappedCall._generate_error_message(last), file=sys.stderr)
                raise e.with_traceback(None)  # noqa: B904
            raise

"""The Python code of a graph: `torch.fx.graph.CodeGen` and what it gives, `PythonCode`."""

from __future__ import annotations

import enum
import importlib
import inspect
import re
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tabtorch.base.device import device
from tabtorch.core.tensor import Tensor
from tabtorch.fx import _names
from tabtorch.fx.node import Node, _get_qualified_name, _type_repr
from tabtorch.ops.aten import Packet
from tabtorch.utils import _pytree as pytree

TransformCodeFunc = Callable[[list[str]], list[str]]

#: operators that have a form with the operands exchanged
reflectable_magic_methods = {
    **{n: f"{{}} {s} {{}}" for n, s in zip(
        "add sub mul floordiv truediv div mod pow lshift rshift and_ or_ xor".split(), "+ - * // / / % ** << >> & | ^".split()
    )},
    "getitem": "{}[{}]",
    "matmul": "{} @ {}",
}  # fmt: skip
#: function of `operator` -> how it is written
magic_methods = {
    **{n: f"{{}} {s} {{}}" for n, s in zip("eq ne lt gt le ge".split(), "== != < > <= >=".split())},
    **{n: s + "{}" for n, s in zip("pos neg invert".split(), "+-~")},
    **reflectable_magic_methods,
}
inplace_methods = {
    **{"i" + n.strip("_"): f"{{}} {s}= {{}}" for n, s in zip(
        "add and_ floordiv lshift mod mul matmul or_ pow rshift sub truediv xor".split(),
        "+ & // << % * @ | ** >> - / ^".split(),
    )},
    "setitem": "{}[{}] = {}",
}  # fmt: skip

_origin_type_map = {
    list: typing.List, dict: typing.Dict, set: typing.Set, frozenset: typing.FrozenSet, tuple: typing.Tuple  # noqa: UP006
}  # fmt: skip

_CODES = {
    "yellow": "33", "cyan": "36", "green": "32", "blue": "34", "red": "31", "dim": "2", "dim_blue": "2;34", "dim_green": "2;32"
}  # fmt: skip


def _paint(color: str, text: str) -> str:
    """`text` as a terminal shows it in a color."""
    return "".join(f"\033[{c}m" for c in _CODES[color].split(";")) + text + "\033[0m"


class _CustomBuiltin(NamedTuple):
    import_str: str
    obj: Any


@dataclass
class PythonCode:
    """The code of a graph, and the globals that it needs."""

    src: str
    globals: dict[str, Any]
    _lineno_map: dict[int, int | None] | None
    _prologue_start: int = 0


class _PyTreeInfo(NamedTuple):
    orig_args: list[str]
    in_spec: Any
    out_spec: Any


def _format_target(base: str, target: str) -> str:
    for name in target.split("."):
        base = f"{base}.{name}" if name.isidentifier() else f'getattr({base}, "{name}")'
    return base


@dataclass(frozen=True)
class _ParsedStackTrace:
    file: str
    lineno: str
    name: str
    code: str

    def get_summary_str(self) -> str:
        return f"File: {self.file}:{self.lineno} in {self.name}, code: {self.code}"


def _parse_stack_trace(stack_trace: str | None, filter_fn: Any = None) -> _ParsedStackTrace | None:
    """The innermost call of a trace."""
    lines = (stack_trace or "").strip().split("\n")
    for i in range(len(lines) - 2, -1, -1):
        found = re.match(r'^File "(.+)", line (\d+), in (.+)$', lines[i].strip())
        if found:
            code = lines[i + 1].strip()
            if filter_fn is None or filter_fn(found[1], found[3], code):
                return _ParsedStackTrace(found[1], found[2], found[3], code)
    return None


class _Writer:
    """Writes the code of some nodes, for a CodeGen."""

    def __init__(self, root_module: str, namespace: Any, builtins: dict[str, Any], options: dict[str, Any]) -> None:
        self.root = root_module
        self.namespace = namespace
        self.options = options
        self.free_vars: list[str] = []
        self.body: list[str] = []
        self.globals: dict[str, Any] = {}
        self.wrapped: dict[str, None] = {}
        self.returns = ""
        self.summary = ""
        for name, found in builtins.items():
            self.add_global(name, found.obj)

    def paint(self, color: str, text: str) -> str:
        return _paint(color, text) if self.options["colored"] else text

    def add_global(self, hint: str, obj: Any) -> str:
        """What the code calls an object; one that is not of torch is a global of it."""
        if _names.is_ours(obj) and obj is not device and not isinstance(obj, types.ModuleType):
            return _get_qualified_name(obj)
        if isinstance(obj, Packet):
            return _get_qualified_name(obj)
        name: str = self.namespace.create_name(hint, obj)
        if name in self.globals:
            assert self.globals[name] == obj, f"Global name {name} already assigned to different object"
        self.globals[name] = obj
        return name

    def type_repr(self, o: Any) -> str:
        if o == ():
            return "()"
        text = _type_repr(o)
        if isinstance(o, types.UnionType) and "|" in text:
            return "|".join([self.type_repr(a) for a in typing.get_args(o)])
        origin = getattr(o, "__origin__", None)
        if origin:
            if isinstance(o, typing._GenericAlias):  # type: ignore[attr-defined]
                origin = _origin_type_map.get(origin, origin)
            name = self.add_global(_type_repr(origin), origin)
            args = getattr(o, "dims", None) or typing.get_args(o)
            return f"{name}[{','.join(self.type_repr(a) for a in args)}]" if args else name
        return self.add_global(text, o)

    def repr(self, arg: Any) -> str:
        if isinstance(arg, Node):
            return repr(arg)
        if isinstance(arg, tuple) and hasattr(arg, "_fields"):
            return f"{self.add_global(_get_qualified_name(type(arg)), type(arg))}{tuple(arg)!r}"
        if isinstance(arg, Packet):
            return self.add_global(_get_qualified_name(arg), arg)
        if isinstance(arg, enum.Enum):
            return f"{self.add_global(type(arg).__name__, type(arg))}.{arg.name}"
        if isinstance(arg, Tensor):
            return f"torch.Tensor(size={list(arg.size())}, dtype={str(arg.dtype).split('.')[-1]})"
        if isinstance(arg, (tuple, list)):
            inner = ", ".join([self.repr(a) for a in arg])
            if isinstance(arg, list):
                return f"[{inner}]"
            return f"({inner},)" if len(arg) == 1 else f"({inner})"
        if isinstance(arg, slice):
            return f"slice({self.repr(arg.start)}, {self.repr(arg.stop)}, {self.repr(arg.step)})"
        return self.paint("blue", repr(arg))

    def arguments(self, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        return ", ".join([*map(self.repr, args), *(f"{k} = {self.repr(v)}" for k, v in kwargs.items())])

    def emit(self, node: Node, gen: CodeGen) -> None:
        """The line of a node."""
        if node.op == "output":
            if node.type is not None:
                self.returns = f" -> {self.type_repr(node.type)}"
            descs = node.meta.get("desc") if self.options["expanded_def"] else None
            self.body.append(gen._checked(gen.generate_output, node.args[0], descs=descs, repr_fn=self.repr))
            return
        typed = "" if node.type is None else f" : {self.type_repr(node.type)}"
        if self.options["verbose"]:
            typed = self.annotation(node) or typed
        if node.op == "placeholder":
            default = f" = {self.repr(node.args[0])}" if node.args else ""
            desc = node.meta.get("desc") if self.options["expanded_def"] else None
            self.free_vars.append(f"{node.target}{typed}{default}" + (f"  # {desc}" if desc is not None else ""))
            raw = node.target.replace("*", "")
            if raw != repr(node):
                self.body.append(f"{node!r} = {raw}\n")
            return
        head = f"{node!r}{typed} = "
        if node.op == "call_method":
            what = (
                f"{_format_target(self.repr(node.args[0]), node.target)}({self.arguments(node.args[1:], node.kwargs)})"
            )
        elif node.op == "call_module":
            what = f"{_format_target(self.root, node.target)}({self.arguments(node.args, node.kwargs)})"
        elif node.op == "get_attr":
            what = _format_target(self.root, node.target)
        elif node.op == "call_function":
            name = node.target.__name__ if getattr(node.target, "__module__", "") == "_operator" else ""
            if name in inplace_methods:
                line = inplace_methods[name].format(*map(self.repr, node.args))
                self.body.append(f"{line};  {head}{self.repr(node.args[0])}")
                return
            what = magic_methods[name].format(*map(self.repr, node.args)) if name in magic_methods else self.call(node)
        else:
            raise NotImplementedError(f"node: {node.op} {node.target}")
        self.body.append(head + what)

    def call(self, node: Node) -> str:
        name = self.add_global(_get_qualified_name(node.target), node.target)
        args = node.args
        if name == "getattr" and len(args) == 2 and isinstance(args[1], str) and args[1].isidentifier():
            return _format_target(self.repr(args[0]), args[1])
        if node.meta.get("is_wrapped", False):
            self.wrapped.setdefault(name)
        return f"{name}({self.arguments(args, node.kwargs)})"

    def annotation(self, node: Node) -> str:
        """What is known of a tensor's type and sizes, where the code is for reading."""
        value = node.meta.get("val", node.meta.get("tensor_meta", node.meta.get("example_value")))
        o = self.options
        if isinstance(value, Tensor):
            stride = str(list(value.stride())) if o["include_stride"] else ""
            where = str(value.device) if o["include_device"] else ""
            core = self.paint("red", _names.abbreviation(value.dtype)) + self.paint("blue", str(list(value.shape)))
            core += (self.paint("dim_blue", stride) if stride else "") + (
                self.paint("dim_green", where) if where else ""
            )
            return f': "{core}"' if type(value) is Tensor else f': "{type(value).__name__}({core})"'
        if isinstance(value, tuple) and type(value).__name__ == "TensorMetadata":
            meta: Any = value
            return f': "{_names.abbreviation(meta.dtype)}{list(meta.shape)}"'
        if type(value) in (int, float, bool) and "val" in node.meta:
            return ""
        return ""

    def summarize(self, node: Node) -> None:
        """A comment: the line of the program that a node came of."""
        if node.op in ("placeholder", "output"):
            return
        said = [f"{key}: {node.meta[key]}" for key in self.options["additional_meta"] or () if key in node.meta]
        notes = {k: v if len(str(v)) <= 40 else str(v)[:40] + "..." for k, v in (node.meta.get("custom") or {}).items()}
        parsed = _parse_stack_trace(node.stack_trace)
        where = parsed.get_summary_str() if parsed else "No stacktrace found for following nodes"
        text = (
            (f"# {', '.join(said)} " if said else "") + "#" + (f" Annotation: {notes}" if notes else "") + " " + where
        )
        summary = f"\n{self.paint('dim', text)}\n"
        if summary != self.summary:
            self.summary = summary
            self.body.append(summary)


class CodeGen:
    """How the code of a graph is written. Subclasses change the signature, and what is returned."""

    _sym_repr: Any = repr

    def __init__(self) -> None:
        self._body_transformer: TransformCodeFunc | None = None
        self._func_name = "forward"

    def _checked(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A call of a method that may be a subclass's, with fewer arguments."""
        known = inspect.signature(method).parameters
        return method(*args, **{k: v for k, v in kwargs.items() if k in known})

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, *, expanded_def: bool = False) -> str:
        """The line that defines the function."""
        if not free_vars or free_vars[0] != "self":
            free_vars.insert(0, "self")
        if not expanded_def:
            return f"def {self._func_name}({', '.join(free_vars)}){maybe_return_annotation}:"
        lines = []
        for arg in free_vars:
            text, mark, comment = arg.partition("#")
            lines.append(f"    {text.rstrip()},  # {comment.lstrip()}\n" if mark else f"    {arg},\n")
        return f"def {self._func_name}(\n{''.join(lines)}){maybe_return_annotation}:"

    def generate_output(self, output_args: Any, *, descs: Any = None, repr_fn: Callable[[Any], str] = repr) -> str:
        """The line that returns."""
        return "return " + self._listed(output_args, descs, repr_fn)

    def _listed(self, output_args: Any, descs: Any, repr_fn: Callable[[Any], str]) -> str:
        if descs is None or not isinstance(output_args, (list, tuple)):
            return repr_fn(output_args)
        left, right = "()" if isinstance(output_args, tuple) else "[]"
        return f"{left}\n" + "".join(f"    {repr_fn(x)},  # {d}\n" for x, d in zip(output_args, descs)) + right

    def process_inputs(self, *args: Any) -> Any:
        """The values of the placeholders, of the arguments of a call."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """What a call gives, of the value of the output node."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        """Names that the code of a subclass uses."""
        return []

    def _gen_python_code(
        self,
        nodes: Any,
        root_module: str,
        namespace: Any,
        *,
        builtins: dict[str, Any],
        **options: Any,
    ) -> PythonCode:
        w = _Writer(root_module, namespace, builtins, options)
        last_user: dict[Node, Node] = {}
        ends: dict[Node, list[Node]] = {}
        for node in reversed(nodes):
            for used in node._input_nodes:
                if used not in last_user:
                    last_user[used] = node
                    ends.setdefault(node, []).append(used)
        for i, node in enumerate(nodes):
            if options["verbose"]:
                w.summarize(node)
            w.body.append(f"# COUNTER: {i}\n")
            w.emit(node, self)
            if node.op == "placeholder":
                continue
            gone = [] if node.op == "output" else ends.get(node, []) + ([] if node.users else [node])
            w.body.append(f";  {w.paint('dim', ' = '.join([*map(repr, gone), 'None']))}\n" if gone else "\n")
        body = w.body or ["pass\n"]
        wraps = ""
        if w.wrapped:
            name = w.add_global("wrap", importlib.import_module("tabtorch.fx._symbolic_trace").wrap)
            wraps = "\n".join([f'{name}("{n}")' for n in w.wrapped])
        if self._body_transformer:
            body = self._body_transformer(body)
        for name, value in self.additional_globals():
            w.add_global(name, value)
        prologue = self._checked(self.gen_fn_def, w.free_vars, w.returns, expanded_def=options["expanded_def"])
        lines: list[str] = []
        numbers: dict[int, int | None] = {}
        current = None
        for line in "".join(body).split("\n"):
            counter = re.search(r"# COUNTER: (\d+)", line)
            if counter:
                current = int(counter[1])
            else:
                numbers[len(lines) + prologue.count("\n") + 1] = current
                lines.append(line)
        code = "\n".join(["    " + line for line in "\n".join(lines).lstrip("\n").split("\n")])
        return PythonCode(f"\n{wraps}\n\n{prologue}\n{code}", w.globals, numbers, wraps.count("\n") + 4)


class _BoxedCodeGen(CodeGen):
    """The function takes a list of its arguments, which it empties."""

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, *, expanded_def: bool = False) -> str:
        lines = [f"def {self._func_name}(self, args_list){maybe_return_annotation}:"]
        names = [v.split(":")[0].split("=")[0].strip() for v in free_vars if v != "self"]
        if names:
            lines += ["args_iter = iter(args_list)", *(f"{n} = next(args_iter)" for n in names), "args_list.clear()"]
        return "\n    ".join(lines)


class _PyTreeCodeGen(CodeGen):
    """Arguments and results are trees, of whose leaves the nodes are."""

    def __init__(self, pytree_info: _PyTreeInfo) -> None:
        super().__init__()
        self.pytree_info: Any = pytree_info

    def process_inputs(self, *inputs: Any) -> Any:
        return pytree.arg_tree_leaves(*inputs)

    def process_outputs(self, outputs: Any) -> Any:
        if self.pytree_info is None or self.pytree_info.out_spec is None:
            return outputs
        if not isinstance(outputs, (list, tuple)):
            outputs = [outputs]
        return pytree.tree_unflatten(outputs, self.pytree_info.out_spec)

    def gen_var_bindings(self, fn_args: list[str], free_vars: list[str], expanded_def: bool) -> str:
        """The lines that take the arguments apart."""
        spec = self.pytree_info.in_spec
        call = f"[{', '.join(fn_args)}], self._in_spec"
        pair = spec.type is tuple and [c.type for c in spec.children()] == [tuple, dict]
        if pair:
            n = spec.child(0).num_children
            args, rest = self.pytree_info.orig_args[:n], self.pytree_info.orig_args[n:]
            named = "{" + ", ".join(f"'{k}':{v}" for k, v in zip(spec.child(1).context, rest)) + "}"
            call = f"([{', '.join(args)}], {named}), self._in_spec"
        annotated = [x for x in free_vars if ":" in x]
        text = ""
        if annotated:
            text = "\n    " + (
                "\n    ".join(annotated) if expanded_def else "".join(x + "; " for x in annotated) + "\n"
            )
        names = ", ".join([x.split(":")[0].split("#")[0] for x in free_vars])
        return f"{text}\n    {names}, = fx_pytree.tree_flatten_spec({call})"

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, *, expanded_def: bool = False) -> str:
        if self.pytree_info is None:
            return super().gen_fn_def(free_vars, maybe_return_annotation, expanded_def=expanded_def)
        fn_args = self.pytree_info.orig_args
        if fn_args and fn_args[0] == "self":
            free_vars.insert(0, "self")
        text = super().gen_fn_def(fn_args[:], maybe_return_annotation, expanded_def=expanded_def)
        return text + (self.gen_var_bindings(fn_args, free_vars, expanded_def) if free_vars else "")

    def generate_output(self, output_args: Any, *, descs: Any = None, repr_fn: Callable[[Any], str] = repr) -> str:
        if self.pytree_info and self.pytree_info.out_spec:
            return f"return pytree.tree_unflatten({self._listed(output_args, descs, repr_fn)}, self._out_spec)"
        return super().generate_output(output_args, descs=descs, repr_fn=repr_fn)

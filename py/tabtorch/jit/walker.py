"""The code of a TorchScript archive: parsed by Python's `ast`, checked, and made into functions of functions. None is executed as Python.

What is not among the few kinds of statements and expressions that TorchScript writes is refused when the archive is loaded.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import Any

from tabtorch.base.device import device as Device
from tabtorch.jit import numbers, operators, texts
from tabtorch.jit.values import (
    EnumMember,
    LoadedModule,
    ScriptObject,
    ScriptType,
    attribute,
    is_a,
    named_tuple,
    set_attribute,
)

Frame = dict[str, Any]
Value = Callable[[Frame], Any]

#: nesting of expressions and blocks
_DEEPEST = 60
_CONSTANTS = {"inf": math.inf, "nan": math.nan, "infj": complex(0, math.inf)}


def refuse(what: str, node: Any = None) -> RuntimeError:
    where = f" (line {node.lineno})" if hasattr(node, "lineno") else ""
    return RuntimeError(f"the TorchScript archive's code is not read: {what}{where}")


def path(node: ast.AST) -> str | None:
    """`a.b.c` of an expression that is one."""
    names: list[str] = []
    while isinstance(node, ast.Attribute) and len(names) < _DEEPEST:
        names.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(names)]) if isinstance(node, ast.Name) else None


class Program:
    """All code of an archive. `device`: where what the code creates on "cpu" or "cuda" goes; None for the default. `version`: the
    archive's, which says what its operators mean."""

    def __init__(self, device: Any, version: int) -> None:
        self.version = version
        self.classes: dict[str, ScriptType] = {}
        self.functions: dict[str, Callable[..., Any]] = {}
        self.bodies: list[tuple[ast.FunctionDef, str, ScriptType | None, str]] = []
        self.tensors: Any = ()
        self.device = device

    def add(self, module: str, source: str, file: str) -> None:
        """Reads one file of code. RuntimeError for what is no TorchScript."""
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise refuse(f"{file}: {type(error).__name__}") from None
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                self._class(module, node, source, file)
            elif isinstance(node, ast.FunctionDef):
                self.bodies.append((node, f"{module}.{node.name}", None, file))
            elif not (isinstance(node, ast.Assign) and path(node.targets[0]) == "op_version_set"):
                raise refuse(f"{type(node).__name__} in {file}", node)

    def _class(self, module: str, node: ast.ClassDef, source: str, file: str) -> None:
        base = path(node.bases[0]) if node.bases else ""
        kind = {"ModuleInterface": "Interface"}.get(base or "", base or "")
        if kind not in ("", "Module", "NamedTuple", "Enum", "Interface") or len(node.bases) > 1 or node.decorator_list:
            raise refuse(f"class {node.name} of {base}", node)
        script = self.classes[f"{module}.{node.name}"] = ScriptType(f"{module}.{node.name}", kind)
        for s in node.body:
            target = s.targets[0] if isinstance(s, ast.Assign) else getattr(s, "target", None)
            if isinstance(s, ast.FunctionDef):
                if kind != "Interface":
                    self.bodies.append((s, s.name, script, file))
                    script.source[s.name] = ast.get_source_segment(source, s) or "" if s.name == "forward" else ""
            elif isinstance(s, ast.AnnAssign) and isinstance(target, ast.Name):
                script.fields[target.id] = s.annotation
                if s.value is not None:
                    script.constants[target.id] = self._literal(s.value, script.name)
            elif isinstance(s, ast.Assign) and isinstance(target, ast.Subscript):
                if path(target.value) != "__annotations__" or not isinstance(target.slice, ast.Constant):
                    raise refuse("a class's annotation", s)
                script.fields[str(target.slice.value)] = s.value
            elif isinstance(s, ast.Assign) and isinstance(target, ast.Name):
                if target.id in ("__parameters__", "__buffers__"):
                    names = {str(v) for v in self._literal(s.value, script.name)}
                    setattr(script, target.id.strip("_"), names)
                elif kind == "Enum":
                    value = self._literal(s.value, script.name)
                    script.members[target.id] = EnumMember(script, target.id, value)
                elif not target.id.startswith("__"):
                    raise refuse(f"{target.id} in class {node.name}", s)
            elif not isinstance(s, ast.Pass):
                raise refuse(f"{type(s).__name__} in class {node.name}", s)

    def _literal(self, node: ast.expr, name: str) -> Any:
        return Scope(self, name, "").value(node)({})

    def compile(self) -> None:
        """Makes functions of what has been read, all of it."""
        todo, self.bodies = self.bodies, []
        known = [(n, name, script, file, Body()) for n, name, script, file in todo]
        for _, name, script, _, body in known:
            (self.functions if script is None else script.methods)[name] = body.call
        for node, name, script, file, body in known:
            body.fill(self, node, f"{script.name}.{name}" if script else name, file)

    def constant(self, index: int) -> Any:
        if index >= len(self.tensors):
            raise RuntimeError(f"the TorchScript archive has no constant {index}")
        return self.tensors[index]

    def place(self, *args: Any) -> Any:
        """`torch.device(…)` in the code: the devices of the machine it was written on are where the weights went."""
        return Device(*args) if args and str(args[0]).startswith("meta") else self.device


class Body:
    """One function."""

    def fill(self, program: Program, node: ast.FunctionDef, name: str, file: str) -> None:
        a = node.args
        if a.vararg or a.kwarg or a.posonlyargs or node.decorator_list:
            raise refuse(f"the arguments of {name}", node)
        scope = Scope(program, name, file)
        self.name = name.rpartition(".")[2]
        self.names = [x.arg for x in (*a.args, *a.kwonlyargs)]
        self.positional = len(a.args)
        self.kinds = [x.annotation for x in (*a.args, *a.kwonlyargs)]
        values = [None] * (len(a.args) - len(a.defaults)) + list(a.defaults) + list(a.kw_defaults)
        self.defaults = {n: scope.value(v)({}) for n, v in zip(self.names, values, strict=True) if v is not None}
        scope.names.update(self.names)
        self.program = program
        self.block = scope.block(node.body)

    def call(self, *args: Any, **kw: Any) -> Any:
        """RuntimeError for too few or too many arguments."""
        names = self.names
        if len(args) > self.positional:
            raise RuntimeError(
                f"{self.name}() expected at most {self.positional} argument(s) but received {len(args)} argument(s)."
            )
        frame = dict(zip(names, args, strict=False))
        for k, v in kw.items():
            if k not in names or k in frame:
                raise RuntimeError(f"Unknown keyword argument '{k}' for operator '{self.name}'.")
            frame[k] = v
        if len(frame) < len(names):
            for n in names:
                if n not in frame:
                    if n not in self.defaults:
                        raise RuntimeError(f"{self.name}() is missing value for argument '{n}'.")
                    v = self.defaults[n]
                    frame[n] = v.copy() if isinstance(v, (list, dict)) else v
        result = self.block(frame)
        return result[0] if result is not None else None


class Scope:
    """What is compiled together: the names that are known so far."""

    def __init__(self, program: Program, name: str, file: str) -> None:
        self.program = program
        self.name = name
        self.file = file
        self.names: set[str] = set()
        self.depth = 0

    # -- statements

    def block(self, body: list[ast.stmt]) -> Callable[[Frame], tuple[Any] | None]:
        """Runs statements; `(value,)` where one returns."""
        self.depth += 1
        if self.depth > _DEEPEST:
            raise refuse("blocks are nested too deeply", body[0])
        steps = [self.statement(s) for s in body if not isinstance(s, ast.Pass)]
        lines = [s.lineno for s in body if not isinstance(s, ast.Pass)]
        self.depth -= 1
        where = f"in TorchScript: {self.file}, {self.name}, line "

        def run(frame: Frame) -> tuple[Any] | None:
            i = 0
            try:
                for i, step in enumerate(steps):  # noqa: B007 (which one it was, is asked above)
                    done = step(frame)
                    if done is not None:
                        return done
            except Exception as error:
                if getattr(error, "_frame", None) != id(frame):
                    error._frame = id(frame)  # type: ignore[attr-defined]
                    error.add_note(where + str(lines[i]))
                raise
            return None

        return run

    def statement(self, s: ast.stmt) -> Callable[[Frame], tuple[Any] | None]:
        if isinstance(s, ast.Assign) and len(s.targets) == 1:
            value, put = self.value(s.value), self.target(s.targets[0])
            return lambda f: put(f, value(f))
        if isinstance(s, ast.AnnAssign) and s.value is not None:
            value, put = self.value(s.value), self.target(s.target)
            return lambda f: put(f, value(f))
        if isinstance(s, ast.Expr):
            value = self.value(s.value)

            def run(f: Frame) -> None:
                value(f)

            return run
        if isinstance(s, ast.Return):
            given = self.value(s.value) if s.value is not None else None
            return lambda f: (given(f) if given else None,)
        if isinstance(s, ast.If):
            test, yes, no = self.value(s.test), self.block(s.body), self.block(s.orelse)
            return lambda f: yes(f) if test(f) else no(f)
        if isinstance(s, ast.While) and not s.orelse:
            test, body = self.value(s.test), self.block(s.body)
            return lambda f: _while(f, test, body)
        if isinstance(s, ast.For) and not s.orelse:
            items, put = self.value(s.iter), self.target(s.target)
            body = self.block(s.body)
            return lambda f: _for(f, items, put, body)
        if isinstance(s, ast.With) and len(s.items) == 1:
            manager = self.value(s.items[0].context_expr)
            bound = s.items[0].optional_vars
            put = self.target(bound) if bound is not None else lambda f, v: None
            body = self.block(s.body)
            return lambda f: _with(f, manager, put, body)
        if isinstance(s, ast.FunctionDef):  # what is forked: of the names around it
            if s.args.args or s.args.vararg or s.args.kwarg or s.args.kwonlyargs or s.decorator_list:
                raise refuse("a function inside of another that takes arguments", s)
            body, name = self.block(s.body), s.name
            self.names.add(name)

            def define(f: Frame) -> None:
                def call() -> Any:
                    done = body(dict(f))
                    return done[0] if done is not None else None

                f[name] = call

            return define
        raise refuse(type(s).__name__, s)

    def target(self, t: ast.expr) -> Callable[[Frame, Any], None]:
        if isinstance(t, ast.Name):
            name = t.id
            self.names.add(name)

            def put(f: Frame, v: Any) -> None:
                f[name] = v

            return put
        if isinstance(t, ast.Tuple):
            parts = [self.target(e) for e in t.elts]

            def spread(f: Frame, v: Any) -> None:
                if not isinstance(v, (tuple, list)) or len(v) != len(parts):
                    raise RuntimeError(f"cannot unpack a TorchScript value into {len(parts)}")
                for part, each in zip(parts, v, strict=True):
                    part(f, each)

            return spread
        if isinstance(t, ast.Attribute):
            owner, attr = self.value(t.value), t.attr
            return lambda f, v: set_attribute(owner(f), attr, v)
        raise refuse(f"assignment to {type(t).__name__}", t)

    # -- expressions

    def value(self, n: ast.expr) -> Value:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise refuse("expressions are nested too deeply", n)
        made = self._value(n)
        self.depth -= 1
        return made

    def _value(self, n: ast.expr) -> Value:
        if isinstance(n, ast.Constant):
            constant = n.value
            if type(constant) not in (int, float, complex, str, bool, type(None)):
                raise refuse(f"a constant of type {type(constant).__name__}", n)
            return lambda f: constant
        if isinstance(n, ast.Name):
            return self._name(n)
        if isinstance(n, ast.Attribute):
            return self._attribute(n)
        if isinstance(n, (ast.List, ast.Tuple)):
            parts = [self.value(e) for e in n.elts]
            if isinstance(n, ast.List):
                return lambda f: [p(f) for p in parts]
            return lambda f: tuple([p(f) for p in parts])
        if isinstance(n, ast.Dict):
            pairs = [(self.value(k), self.value(v)) for k, v in zip(n.keys, n.values, strict=True) if k is not None]
            return lambda f: {k(f): v(f) for k, v in pairs}
        if (
            isinstance(n, ast.UnaryOp)
            and isinstance(n.op, ast.USub)
            and isinstance(n.operand, (ast.Constant, ast.Name))
        ):
            of = self.value(n.operand)
            return lambda f: -of(f)
        if isinstance(n, ast.BinOp) and isinstance(n.right, ast.Constant) and isinstance(n.right.value, complex):
            left, imaginary = self.value(n.left), n.right.value  # 1.+2.j
            if isinstance(n.op, (ast.Add, ast.Sub)):
                sign = 1 if isinstance(n.op, ast.Add) else -1
                return lambda f: complex(left(f), sign * imaginary.imag)
        if isinstance(n, ast.Subscript):
            return self._subscript(n)
        if isinstance(n, ast.Call):
            return self._call(n)
        raise refuse(type(n).__name__, n)

    def _name(self, n: ast.Name) -> Value:
        name = n.id
        if name in self.names:
            return lambda f: f[name]
        if name in _CONSTANTS:
            return lambda f: _CONSTANTS[name]
        raise refuse(f"the name {name!r}", n)

    def _attribute(self, n: ast.Attribute) -> Value:
        found = path(n)
        if found and found.startswith("CONSTANTS.c") and found[11:].isdigit() and len(found) < 20:
            index, program = int(found[11:]), self.program
            return lambda f: program.constant(index)
        if found and found.startswith("__torch__."):
            program = self.program
            owner, _, member = found.rpartition(".")
            if found in program.functions:
                return lambda f: program.functions[found]
            if owner in program.classes and member in program.classes[owner].members:
                return lambda f: program.classes[owner].members[member]
            raise refuse(f"the name {found}, which the archive has not", n)
        of, attr = self.value(n.value), n.attr
        return lambda f: attribute(of(f), attr)

    def _subscript(self, n: ast.Subscript) -> Value:
        of = self.value(n.value)
        if isinstance(n.slice, ast.Slice):
            ends = [self.value(e) if e is not None else (lambda f: None) for e in (n.slice.lower, n.slice.upper)]
            return lambda f: _contents(of(f))[ends[0](f) : ends[1](f)]
        at = self.value(n.slice)
        return lambda f: _item(of(f), at(f))

    def _call(self, n: ast.Call) -> Value:
        found = path(n.func)
        head = found.partition(".")[0] if found else ""
        if isinstance(n.func, ast.Name) and head not in self.names:
            return self._builtin(n, head)
        if head in self.names or not found or head not in ("torch", "ops", "__torch__"):
            if isinstance(n.func, ast.Attribute):
                return self._method(n, n.func)
            return self._apply(n, None, self.value(n.func))
        space, _, name = found.rpartition(".")
        if space == "torch" and name == "device":
            return self._apply(n, self.program.place)
        if space in ("torch", "ops.aten"):
            return self._apply(n, operators.find(name, self.program.version))
        if space == "ops.prim" and name in operators.PRIM:
            return self._apply(n, operators.PRIM[name])
        if space.startswith("ops.profiler"):
            return self._apply(n, lambda *args: args[1] if name.endswith("_fut") else 0)  # nothing is recorded
        if head != "__torch__":
            raise refuse(f"{found} is none of the operators that tabtorch has", n)
        script = self.program.classes.get(space if name == "__new__" else found)
        if script is not None and name == "__new__" and script.kind == "":
            return lambda f: ScriptObject(script)
        if script is not None and script.kind == "NamedTuple":
            return self._apply(n, lambda *args: named_tuple(script, args))
        function = self.program.functions.get(found)
        if function is None:
            raise refuse(f"{found}, which the archive has not", n)
        return self._apply(n, function)

    def _apply(self, n: ast.Call, function: Any, made: Value | None = None) -> Value:
        """A call of `function`, or of what `made` gives."""
        args = [self.value(a) for a in n.args]
        kw = [(k.arg, self.value(k.value)) for k in n.keywords]
        if any(k is None for k, _ in kw):
            raise refuse("**", n)
        if made is not None:
            return lambda f: _function(made(f))(*[a(f) for a in args], **{str(k): v(f) for k, v in kw})
        if kw:
            return lambda f: function(*[a(f) for a in args], **{str(k): v(f) for k, v in kw})
        if len(args) == 1:
            (one,) = args
            return lambda f: function(one(f))
        return lambda f: function(*[a(f) for a in args])

    def _method(self, n: ast.Call, func: ast.Attribute) -> Value:
        owner, name = self.value(func.value), func.attr
        args = [self.value(a) for a in n.args]
        kw = [(k.arg, self.value(k.value)) for k in n.keywords]
        if name == "tolist" and not args:
            return lambda f: _tolist(owner(f))

        def call(f: Frame) -> Any:
            x = owner(f)
            script = getattr(x, "_script", None)
            method = script.methods.get(name) if isinstance(script, ScriptType) else None
            if method is None:
                raise RuntimeError(f"a TorchScript value of type {type(x).__name__} has no method {name!r}")
            return method(x, *[a(f) for a in args], **{str(k): v(f) for k, v in kw})

        return call

    def _builtin(self, n: ast.Call, name: str) -> Value:
        find = self.program.classes.get
        if name in ("annotate", "unchecked_cast") and len(n.args) == 2:
            of, kind = self.value(n.args[1]), path(n.args[0])
            if kind in ("int", "float", "bool"):
                to: Callable[[Any], Any] = {"int": numbers.whole, "float": float, "bool": bool}[kind]  # type: ignore[assignment]
                return lambda f: v if isinstance(v := of(f), (int, float, str, type(None))) else to(v)
            script = find(kind or "")
            if script is not None and script.kind == "NamedTuple":
                return lambda f: named_tuple(script, of(f))
            return of
        if name == "uninitialized" and len(n.args) == 1:
            return lambda f: None
        if name == "isinstance" and len(n.args) == 2:
            of, types = self.value(n.args[0]), n.args[1]
            return lambda f: is_a(of(f), types, find)
        if name in ("getattr", "hasattr") and len(n.args) == 2 and isinstance(n.args[1], ast.Constant):
            of, attr = self.value(n.args[0]), str(n.args[1].value)
            return lambda f: attribute(of(f), attr)
        if name == "fork" and len(n.args) == 1:
            of = self.value(n.args[0])
            return lambda f: _function(of(f))()
        simple = {
            "int": numbers.whole,
            "float": numbers.floating,
            "bool": bool,
            "str": texts.text,
            "range": range,
            "complex": complex,
            "sorted": sorted,
        }
        if name in simple:
            return self._apply(n, simple[name])
        if name == "print":
            return self._apply(n, lambda *a: print(*[texts.text(x) for x in a]))
        raise refuse(f"the function {name!r}", n)


def _while(f: Frame, test: Value, body: Any) -> Any:
    while test(f):
        done = body(f)
        if done is not None:
            return done
    return None


def _for(f: Frame, items: Value, put: Any, body: Any) -> Any:
    for item in items(f):
        put(f, item)
        done = body(f)
        if done is not None:
            return done
    return None


def _with(f: Frame, manager: Value, put: Any, body: Any) -> Any:
    x = manager(f)
    if not isinstance(x, ScriptObject) or not {"__enter__", "__exit__"} <= x._script.methods.keys():
        raise RuntimeError("a TorchScript value that is no context was given to `with`")
    put(f, x._script.methods["__enter__"](x))
    try:
        return body(f)
    finally:
        x._script.methods["__exit__"](x, None, None, None)


def _contents(x: Any) -> Any:
    if not isinstance(x, (list, tuple, dict, str)):
        raise RuntimeError(f"a TorchScript value of type {type(x).__name__} has no elements")
    return x


def _item(x: Any, at: Any) -> Any:
    if isinstance(x, LoadedModule):  # a ModuleList or ModuleDict
        return x._modules[at] if isinstance(at, str) else list(x._modules.values())[at]
    return _contents(x)[at]


def _tolist(x: Any) -> Any:
    if not hasattr(x, "dim"):
        raise RuntimeError(f"tolist() of {type(x).__name__}")
    return x.tolist()


def _function(x: Any) -> Any:
    if not callable(x) or isinstance(x, type) or hasattr(x, "_script"):
        raise RuntimeError(f"a TorchScript value of type {type(x).__name__} is no function")
    return x

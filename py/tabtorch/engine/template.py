"""Kernels from the files of `wgsl/`: a file is the algorithm, and the engine writes the functions that it calls and does not have.

A file is valid WGSL but for those functions. Its numbers are `override` constants, where a pipeline may choose them, and
`const` ones, where the text depends on them (sizes of arrays in registers, loops to be written out): `Template.text` puts in
the values that it is given. Marked lines are written in another way:

- `for (var r = 0u; r < N; r++) {  // unroll`, N a constant, is written out: then an array that it indexes stays in registers, on
  every compiler. `// unroll unless C or D`: only where these constants are 0.
- `var a: array<T, N>;  // registers` becomes N variables; all its places are constants then.
- `if (A == 1u) {  // chosen`: what is inside, or nothing.

A file that has the constant BASELINE has a second form, which compiles sooner and does the same: see `Kernel.baseline`.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from tabtorch.base.package_files import kernel

from .expr import Expr, cast, const, variable
from .lower import U0, Factor, Kernel, Ref, index_of
from .target import target
from .view import Meta, meta

#: what WGSL itself has, of what is called in `wgsl/`
_BUILTIN = frozenset(
    "abs array atomicAdd atomicLoad atomicMax atomicMin atomicStore bitcast bool clamp countOneBits "
    "countTrailingZeros exp f32 fma i32 log max min override pow select sqrt storageBarrier u32 vec2 vec3 vec4 "
    "workgroupBarrier workgroupUniformLoad workgroup_size builtin binding group if for while switch loop return fn "
    "dot subgroupAdd subgroupExclusiveAdd subgroupInclusiveAdd subgroupMax subgroupShuffle f16 pack2x16float "
    "subgroupMatrixMultiplyAccumulate unpack2x16float".split()
)
_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
}
_CONST = re.compile(r"^const (\w+)(?:: \w+)? = (.+?);", re.M)
_REGISTERS = re.compile(r"^( *)var (\w+): array<(.+), ([^,<>]+)>; +// registers$", re.M)
_LOOP = re.compile(
    r"^( *)for \(var (\w+) = (.+?); \2 < (.+?); \2\+\+\) \{ +// unroll(?: unless (\w+(?: or \w+)*))?$", re.M
)
_CHOSEN = re.compile(r"^( *)if \((\w+) == (\w+)\) \{ +// chosen\n", re.M)


def _number(text: str, known: Mapping[str, int]) -> int:
    """The value of a constant expression of unsigned integers, or of `true` and `false`."""

    if text.rstrip("u").isdigit():
        return int(text.rstrip("u"))

    def value(e: Any) -> int:
        if isinstance(e, ast.Constant) and isinstance(e.value, int):
            return e.value
        if isinstance(e, ast.Name):
            return known[e.id]
        if isinstance(e, ast.BinOp):
            return _OPERATORS[type(e.op)](value(e.left), value(e.right))
        raise ValueError(f"not a constant: {text}")

    text = re.sub(r"\b(\d+)u\b", r"\1", text).replace("true", "1").replace("false", "0")
    return value(ast.parse(text, mode="eval").body)


class Template:
    """One file of `wgsl/`. wants: the names of the functions that the engine has to write; overrides, constants: of the file."""

    def __init__(self, stem: str) -> None:
        self.stem = stem
        self.body = re.sub(r"^\s*//.*\n", "", kernel(stem + ".wgsl"), flags=re.M).rstrip()
        code = re.sub(r"//.*", "", self.body)
        own = set(re.findall(r"\bfn (\w+)", code))
        called = set(re.findall(r"\b([A-Za-z_]\w*)\(", code))
        self.wants = frozenset(
            x for x in called - own - _BUILTIN if not x.startswith("tt_")
        )  # those are the renderer's
        self.overrides = tuple(re.findall(r"^override (\w+)", code, flags=re.M))
        self.constants = dict(_CONST.findall(code))
        self._texts: dict[tuple[tuple[str, int], ...], str] = {}

    def text(self, constants: Mapping[str, int] = {}) -> str:  # never written
        """The algorithm with these values in its `const` lines, and its loops written out. Without its last brace."""
        key = tuple(sorted(constants.items()))
        found = self._texts.get(key)
        if found is None:
            found = self._texts[key] = self._written(constants)
        return found

    def _written(self, constants: Mapping[str, int]) -> str:
        unknown = constants.keys() - self.constants.keys()
        if unknown:
            raise AssertionError(f"{self.stem}.wgsl has no constant {', '.join(unknown)}")
        known: dict[str, int] = {}

        def put(found: re.Match[str]) -> str:
            name, default = found.groups()
            if name not in constants:
                known[name] = _number(default, known)
                return found.group()
            known[name] = constants[name]
            flag = default in ("true", "false")
            value = ("true" if constants[name] else "false") if flag else f"{constants[name]}u"
            return f"const {name} = {value};"

        body = _chosen(_CONST.sub(put, self.body), known)
        return _separate(_unrolled(body, known), known).removesuffix("}")


def _chosen(text: str, known: Mapping[str, int]) -> str:
    """Of the marked conditions, what is inside of those that hold: text that never runs costs registers all the same."""
    while found := _CHOSEN.search(text):
        indent, name, wanted = found.groups()
        close = text.index(f"\n{indent}}}", found.end() - 1)
        inside = text[found.end() : close] if known[name] == _number(wanted, known) else ""
        text = text[: found.start()] + inside + text[close + len(indent) + 2 :]
    return text


def _unrolled(text: str, known: Mapping[str, int]) -> str:
    """The marked loops written out, inner ones too."""
    while found := _LOOP.search(text):
        indent, name, start, end, unless = found.groups()
        if unless and any(known[x] for x in unless.split(" or ")):
            text = text[: found.end()].rpartition("//")[0] + text[found.end() :]
            continue
        close = text.index(f"\n{indent}}}", found.end())
        body = text[found.end() : close]
        copies = [
            f"{indent}{{" + re.sub(rf"\b{name}\b", f"{i}u", body) + f"\n{indent}}}"
            for i in range(_number(start, known), _number(end, known))
        ]
        text = text[: found.start()] + "\n".join(copies) + text[close + len(indent) + 2 :]
    return text


def _separate(text: str, known: Mapping[str, int]) -> str:
    """The arrays marked `// registers` as variables of their own: compilers do not always see that they could be (a matrix product
    on an H100 took a tenth longer)."""
    while found := _REGISTERS.search(text):
        indent, name, type, size = found.groups()
        n = _number(size, known)

        def one(place: re.Match[str], name: str = name, n: int = n) -> str:
            i = _number(place[1], known)
            assert i < n, place[0]
            return f"{name}_{i}"

        rest = re.sub(rf"\b{name}\[([^\[\]]+)\]", one, text[found.end() :])
        text = (
            text[: found.start()] + "".join(f"{indent}var {name}_{i} = {type}();\n" for i in range(n)).rstrip() + rest
        )
    return text


@cache
def template(stem: str) -> Template:
    """The template `wgsl/STEM.wgsl`."""
    return Template(stem)


class Filled:
    """A kernel made from a template: functions are written one by one, in its device's language, then `source` gives the text."""

    def __init__(self, k: Kernel) -> None:
        self.k = k
        self.names: set[str] = set()

    def function(self, name: str, args: str, result: str | None, body: Callable[[], Any]) -> None:
        """A function of the kernel's language whose body is rendered like a kernel's. `body` returns its value (an Expr, or
        text), or None."""
        k = self.k
        main = k.r
        k.r = type(main)()
        k.r.functions = main.functions
        k.r.count = main.count
        try:
            value = body()
            if value is not None:
                k.r.line(f"return {value if isinstance(value, str) else k.r.text(value)};")
            k.globals.append(k.r.template_function(name, args, result, k.r.lines))
            main.count = k.r.count
        finally:
            k.r = main
        self.names.add(name)

    def number(self, name: str, value: Expr) -> None:
        """A function without arguments that gives a u32."""
        self.function(name, "", "u32", lambda: value)

    def source(self, stem: str, constants: Mapping[str, int] = {}) -> str:  # never written
        """The kernel's text. AssertionError where the functions are not those that the file wants."""
        t = template(stem)
        if t.wants != self.names:
            raise AssertionError(
                f"{stem}.wgsl: {sorted(t.wants ^ self.names)} are wanted and not written, or the other way"
            )
        text = t.text(constants)
        source = self.k.source([text])
        if "BASELINE" in t.constants and target(self.k.device).baselines:
            self.k.baseline = source.replace(text, t.text({**constants, "BASELINE": 1}))
        return source


class Rows:
    """How a template reads a view of (batch…, rows, columns): `begin_X(b)` is a place, `load4_X(begin, row, column)` four
    neighbours in a row as f32, zeros where a row has ended.

    A vector load serves where float32 rows are dense and begin at multiples of four.
    """

    def __init__(self, filled: Filled, name: str, ref: Ref, m: Meta, batch: tuple[Expr, int, Any], role: Any) -> None:
        """`batch`: what number of the leading dimensions the argument `b` stands for, their size and role."""
        self.k = k = filled.k
        rows, columns = m.shape[-2:]
        step, along = m.strides[-2], m.strides[-1]
        lead = m.view(m.shape[:-2], m.strides[:-2], m.offset)
        filled.function(f"begin_{name}", "b: u32", "u32", lambda: index_of(k, lead, [batch], (role, "begin")))
        vector = (
            m.dtype.name == "float32"
            and not m.mark
            and columns % 4 == 0
            and (along == 1 or columns == 1)
            and all(s % 4 == 0 for s, n in zip(m.strides[:-1], m.shape[:-1]) if n > 1)
            and m.offset % 4 == 0
        )
        begin, row, column = (variable(x, "u32") for x in ("begin", "row", "column"))

        def load() -> str:
            r = k.r
            r.inside = "load"
            width = k.dim(columns, (role, "columns"))
            at = r.let(begin + row * k.dim(step, (role, "step")), "at")
            if vector:
                n = k.bind_vector(ref)
                r.line(f"if (column >= {r.text(width)}) {{ return vec4<f32>(); }}")
                return f"{n}[{r.text((at + column) >> 2)}]"
            r.line("var four = vec4<f32>();")
            for i in range(4):
                r.push(f"if (column + {i}u < {r.text(width)})")
                c = column + i
                place = at + (c if along == 1 else c * k.dim(along, (role, "along")))
                r.line(f"four[{i}] = {r.text(cast(k.load(ref, place), 'f32'))};")
                r.pop()
            return "four"

        filled.function(f"load4_{name}", "begin: u32, row: u32, column: u32", "vec4<f32>", load)


def flat(m: Meta) -> Meta:
    """The view from the beginning of its storage."""
    return meta(m.shape, m.strides, 0, m.dtype, m.device, m.mark)


__all__ = ["U0", "Factor", "Filled", "Rows", "Template", "const", "flat", "template"]

"""Expressions and kernels as JavaScript over typed arrays: the cpu device.

f32 values are doubles inside one operation and rounded where it ends (`fit`); int64 is BigInt.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .expr import Expr
from .render import Renderer

_INFIX = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "===", "ne": "!=="}
_BITS = {"and": "&", "or": "|", "xor": "^"}

_PRELUDE = {
    "tt_buf": "const tt_buf = new ArrayBuffer(8), tt_f = new Float32Array(tt_buf), tt_u = new Uint32Array(tt_buf), tt_i = new Int32Array(tt_buf);",
    "tt_f": "", "tt_u": "", "tt_i": "",
    "tt_round": "const tt_round = (x) => { const r = Math.round(x); return Object.is(r, 0) && x < 0 ? -0 : Math.abs(x % 1) === 0.5 && r % 2 !== 0 ? r - 1 : r; };",
    "tt_f2l": "const tt_f2l = (x) => x >= -9223372036854775808 && x < 9223372036854775808 ? BigInt(Math.trunc(x)) : -9223372036854775808n;",
    "tt_f2i": "const tt_f2i = (x) => { const t = Math.trunc(x); return t >= -2147483648 && t <= 2147483647 ? t | 0 : -2147483648; };",
    "tt_l_div": "const tt_l_div = (a, b) => b === 0n ? 0n : BigInt.asIntN(64, a / b);",
    "tt_l_mod": "const tt_l_mod = (a, b) => b === 0n ? 0n : a % b;",
    "tt_l_shl": "const tt_l_shl = (a, n) => n > 63n || n < 0n ? 0n : BigInt.asIntN(64, a << n);",
    "tt_l_shr": "const tt_l_shr = (a, n) => a >> (n > 63n || n < 0n ? 63n : n);",
    "tt_shl": "const tt_shl = (a, n) => (n >>> 0) > 31 ? 0 : a << n;",
    "tt_shr": "const tt_shr = (a, n) => a >> ((n >>> 0) > 31 ? 31 : n);",
    "tt_shru": "const tt_shru = (a, n) => (n >>> 0) > 31 ? 0 : a >>> n;",
    # C's pow: 1 to any power, and -1 to an infinite one, is 1
    "tt_pow": "const tt_pow = (a, b) => a === 1 || (a === -1 && Math.abs(b) === Infinity) ? 1 : a ** b;",
    "tt_fmod": "const tt_fmod = (a, b) => a % b;",
    "tt_ipow": """const tt_ipow = (x, y) => {
  if (y < 0) return x === 1 || (x === -1 && !(y & 1)) ? 1 : x === -1 ? -1 : 0;
  let r = 1;
  for (; y > 0; y >>= 1, x = Math.imul(x, x)) if (y & 1) r = Math.imul(r, x);
  return r;
};""",
    "tt_l_pow": """const tt_l_pow = (x, y) => {
  if (y < 0n) return x === 1n || (x === -1n && !(y & 1n)) ? 1n : x === -1n ? -1n : 0n;
  let r = 1n;
  for (; y > 0n; y >>= 1n, x = BigInt.asIntN(64, x * x)) if (y & 1n) r = BigInt.asIntN(64, r * x);
  return r;
};""",
    "tt_gcd": "const tt_gcd = (a, b) => { a = Math.abs(a) | 0; b = Math.abs(b) | 0; while (a) [a, b] = [(b % a) | 0, a]; return b; };",
    "tt_l_gcd": "const tt_l_gcd = (a, b) => { [a, b] = [a, b].map((x) => BigInt.asIntN(64, x < 0n ? -x : x)); while (a) [a, b] = [b % a, a]; return b; };",
    "tt_bf16": "const tt_bf16 = (x) => { tt_buf; tt_f[0] = x; const b = tt_u[0]; return x !== x ? 0x7fc0 : ((b + 0x7fff + ((b >>> 16) & 1)) >>> 16) & 0xffff; };",
    "tt_b2f": "const tt_b2f = (h) => { tt_buf; tt_u[0] = h << 16; return tt_f[0]; };",
    "tt_f16": """const tt_f16 = (x) => {
  tt_buf; tt_f[0] = x; const b = tt_u[0], s = (b >>> 16) & 0x8000, a = b & 0x7fffffff;
  if (a > 0x7f800000) return s | 0x7e00;
  if (a >= 0x477ff000) return s | 0x7c00;
  if (a < 0x38800000) {
    if (a < 0x33000000) return s;
    const sh = 126 - (a >>> 23), m = (a & 0x7fffff) | 0x800000, h = m >>> sh, rest = m & ((1 << sh) - 1), half = 1 << (sh - 1);
    return s | (h + (rest > half || (rest === half && (h & 1)) ? 1 : 0));
  }
  return s | ((a + 0xfff + ((a >>> 13) & 1) - 0x38000000) >>> 13);
};""",
    "tt_h2f": """const tt_h2f = (h) => {
  const s = h & 0x8000 ? -1 : 1, e = (h >>> 10) & 31, m = h & 0x3ff;
  return e === 31 ? (m ? NaN : s * Infinity) : e === 0 ? s * m * 2 ** -24 : s * (1 + m / 1024) * 2 ** (e - 15);
};""",
}  # fmt: skip

_MATH = {"rsqrt": "1 / Math.sqrt", "round": "tt_round", "exp2": "2 ** "}
#: (function, type) -> its helper
_HELPERS = {
    ("pow", "f32"): "tt_pow", ("pow", "f64"): "tt_pow", ("fmod", "f32"): "tt_fmod", ("fmod", "f64"): "tt_fmod",
    ("pow", "i32"): "tt_ipow", ("pow", "i64"): "tt_l_pow", ("gcd", "i32"): "tt_gcd", ("gcd", "i64"): "tt_l_gcd",
}  # fmt: skip
_NATIVE = (
    "abs floor ceil trunc round sqrt rsqrt exp exp2 log log2 log10 log1p expm1 sin cos tan asin acos atan "
    "sinh cosh tanh asinh acosh atanh atan2 sign cbrt hypot"
).split()


class JavaScript(Renderer):
    """Renders for the cpu device. Parameters are words of `P` (also seen as I, F, D, Q)."""

    language = "js"
    serial = doubles = True
    prelude = _PRELUDE

    def constant(self, v: Any, type: str) -> str:
        if type in ("f32", "f64"):
            if v != v:
                return "NaN"
            if math.isinf(v):
                return "Infinity" if v > 0 else "(-Infinity)"
            return f"{v!r}" if v > 0 or (v == 0 and math.copysign(1, v) > 0) else f"({v!r})"
        if type == "bool":
            return "true" if v else "false"
        if type == "u32":
            return str(v & 0xFFFFFFFF)
        if type == "i32":
            v = (v + 2**31) % 2**32 - 2**31
            return str(v) if v >= 0 else f"({v})"
        v = (v + 2**63) % 2**64 - 2**63
        return f"{v}n" if v >= 0 else f"({v}n)"

    def param(self, word: int, type: str) -> str:
        if type == "f32":
            return f"F[{word}]"  # a number meets float32 tensors as a float32, so that `tensor(0.1) == 0.1`
        if type == "f64":
            return f"D[{word // 2}]"
        if type == "i64":
            return f"Q[{word // 2}]"
        if type == "bool":
            return f"(P[{word}] !== 0)"
        return f"I[{word}]" if type == "i32" else f"P[{word}]"

    def declare(self, name: str, type: str, text: str) -> None:
        self.line(f"const {name} = {text};")

    def declare_var(self, name: str, type: str, text: str) -> None:
        self.line(f"let {name} = {text};")

    def loop(self, i: str, start: str, end: str, step: str = "1") -> None:
        self.push(f"for (let {i} = {start}; {i} < {end}; {i} += {step})")

    def function(
        self, name: str, args: list[str], types: tuple[str, ...], type: str, lines: list[str], result: str
    ) -> str:
        return "\n".join([f"const {name} = ({', '.join(args)}) => {{", *lines, f"  return {result};", "};"])

    def spell(self, e: Expr, a: list[str]) -> str:
        """One operation in JavaScript, its arguments spelled already."""
        op, t = e.op, e.type
        if op == "load":
            return self.load(e.value, a[0])
        if op == "select":
            return f"({a[0]} ? {a[1]} : {a[2]})"
        at = e.args[0].type
        if op == "call":
            return self.native(e, a)
        if op == "cast":
            return self.cast(at, t, a[0])
        if op == "bitcast":
            arrays = {"f32": "tt_f", "i32": "tt_i", "u32": "tt_u"}
            return f"(tt_buf, {arrays[at]}[0] = {a[0]}, {arrays[t]}[0])"
        if op == "fit":
            return self.fit(e.value, a[0])
        if op == "isnan":
            return f"({a[0]} !== {a[0]})"
        if op == "isinf":
            return f"(Math.abs({a[0]}) === Infinity)"
        if op == "signbit":
            return f"({a[0]} < 0 || Object.is({a[0]}, -0))"
        if op in _INFIX:
            return f"({a[0]} {_INFIX[op]} {a[1]})"
        if op in _BITS:
            if t == "bool":
                return f"({a[0]} !== {a[1]})" if op == "xor" else f"({a[0]} {_BITS[op] * 2} {a[1]})"
            r = f"({a[0]} {_BITS[op]} {a[1]})"
            return f"({r} >>> 0)" if t == "u32" else r
        if op == "not":
            return f"(!{a[0]})" if t == "bool" else (f"(~{a[0]} >>> 0)" if t == "u32" else f"(~{a[0]})")
        if t in ("f32", "f64"):
            if op == "neg":
                return f"(-{a[0]})"
            if op in ("min", "max"):
                return f"Math.{op}({a[0]}, {a[1]})"
            return f"({a[0]} { {'add': '+', 'sub': '-', 'mul': '*', 'div': '/'}[op] } {a[1]})"
        if t == "i64":
            return self.long(op, a, e)
        wrap = ">>> 0" if t == "u32" else "| 0"
        if op == "neg":
            return f"((-{a[0]}) {wrap})"
        if op == "mul":
            return f"(Math.imul({a[0]}, {a[1]}) {wrap})" if t == "u32" else f"Math.imul({a[0]}, {a[1]})"
        if op in ("min", "max"):
            return f"Math.{op}({a[0]}, {a[1]})"
        if op in ("idiv", "imod"):
            return f"(({a[0]} {'/' if op == 'idiv' else '%'} {a[1]}) {wrap})"
        if op in ("shl", "shr") and e.args[1].op == "const" and 0 <= e.args[1].value < 32:
            r = f"({a[0]} {'<<' if op == 'shl' else '>>' if t == 'i32' else '>>>'} {e.args[1].value})"
            return f"({r} >>> 0)" if t == "u32" and op == "shl" else r
        if op == "shl":
            return f"(tt_shl({a[0]}, {a[1]}) {wrap})"
        if op == "shr":
            return f"tt_shr{'u' if t == 'u32' else ''}({a[0]}, {a[1]})"
        return f"(({a[0]} { {'add': '+', 'sub': '-'}[op] } {a[1]}) {wrap})"

    def long(self, op: str, a: list[str], e: Expr) -> str:
        if op == "neg":
            return f"BigInt.asIntN(64, -{a[0]})"
        if op in ("add", "sub", "mul"):
            return f"BigInt.asIntN(64, {a[0]} { {'add': '+', 'sub': '-', 'mul': '*'}[op] } {a[1]})"
        if op == "min":
            return f"({a[0]} < {a[1]} ? {a[0]} : {a[1]})"
        if op == "max":
            return f"({a[0]} > {a[1]} ? {a[0]} : {a[1]})"
        if op in ("shl", "shr"):
            n = a[1] if e.args[1].type == "i64" else f"BigInt({a[1]})"
            return f"tt_l_{op}({a[0]}, {n})"
        return f"tt_l_{ {'idiv': 'div', 'imod': 'mod'}[op] }({a[0]}, {a[1]})"

    def native(self, e: Expr, a: list[str]) -> str:
        name, t = e.value, e.type
        if t == "i64" and name == "abs":
            return f"BigInt.asIntN(64, {a[0]} < 0n ? -{a[0]} : {a[0]})"
        if name in _NATIVE and t in ("f32", "f64"):
            return f"({_MATH.get(name, 'Math.' + name)}({', '.join(a)}))"
        if (name, t) in _HELPERS:
            return f"{_HELPERS[name, t]}({', '.join(a)})"
        if name in ("abs", "sign") and t == "i32":
            return f"(Math.{name}({a[0]}) | 0)"
        # f32 values are doubles here, so they are given the bodies for doubles
        wide = ["f64" if x == "f32" else x for x in (t, *(x.type for x in e.args))]
        return f"{self.call_defined(name, wide[0], tuple(wide[1:]))}({', '.join(a)})"

    def cast(self, f: str, t: str, a: str) -> str:
        if t == "i64":
            if f in ("f32", "f64"):
                return f"tt_f2l({a})"
            return f"BigInt({a})" if f != "bool" else f"({a} ? 1n : 0n)"
        if t == "f32" and f in ("f64", "i32", "i64"):  # integers of more than 24 bits are rounded, as C does
            return f"Math.fround({f'Number({a})' if f == 'i64' else a})"
        if f == "i64":
            if t == "f64":
                return f"Number({a})"
            return f"Number(BigInt.as{'Uint' if t == 'u32' else 'Int'}N(32, {a}))"
        if f == "bool":
            return f"({a} ? 1 : 0)"
        if t in ("i32", "u32"):
            if f in ("f32", "f64"):
                return f"tt_f2i({a})" if t == "i32" else f"({a} >>> 0)"
            return f"({a} {'| 0' if t == 'i32' else '>>> 0'})"
        return a

    def fit(self, name: str, a: str) -> str:
        return {
            "float32": "Math.fround({})",
            "float16": "tt_h2f(tt_f16({}))",
            "bfloat16": "tt_b2f(tt_bf16({}))",
            "uint8": "({} & 255)",
            "int8": "({} << 24 >> 24)",
            "int16": "({} << 16 >> 16)",
        }[name].format(a)

    def load(self, value: Any, i: str) -> str:
        """Element `i` of a bound buffer. `value` = (name in the text, dtype name, part): part 0/1 is re/im of a complex one."""
        buf, dt, part = value
        if dt in ("complex64", "complex128"):
            return f"{buf}[{i} * 2 + {part}]"
        if dt == "bool":
            return f"({buf}[{i}] !== 0)"
        if dt == "float16":
            return f"tt_h2f({buf}[{i}])"
        if dt == "bfloat16":
            return f"tt_b2f({buf}[{i}])"
        return f"{buf}[{i}]"

    @staticmethod
    def stored(dt: str, v: str) -> str:
        """A value as it goes into the typed array of its dtype."""
        if dt == "float16":
            return f"tt_f16({v})"
        if dt == "bfloat16":
            return f"tt_bf16({v})"
        return f"({v} ? 1 : 0)" if dt == "bool" else v

    @classmethod
    def element_type(cls, dtype: Any) -> str:
        return str(dtype.store)

    def store(self, buffer: str, dtype: str, at: str, value: str) -> None:
        self.line(f"{buffer}[{at}] = {self.stored(dtype, value)};")

    def store_complex(self, buffer: str, at: str, re: str, im: str) -> None:
        self.line(f"{buffer}[{at} * 2] = {re}; {buffer}[{at} * 2 + 1] = {im};")

    def add(self, buffer: str, dtype: str, at: str, value: str) -> None:
        if dtype in ("float16", "bfloat16"):
            there = self.load((buffer, dtype, 0), at)
            self.line(f"{buffer}[{at}] = {self.stored(dtype, f'{there} + {value}')};")
        elif dtype == "bool":
            self.line(f"if ({value}) {buffer}[{at}] = 1;")
        else:
            self.line(f"{buffer}[{at}] += {value};")

    def write_once(self, buffer: str, words: list[str]) -> None:
        self.line(
            f"if ({buffer}[0] === 0n) {{ " + " ".join(f"{buffer}[{w}] = {t};" for w, t in enumerate(words)) + " }"
        )

    def template_function(self, name: str, args: str, result: str | None, lines: list[str]) -> str:
        names = ", ".join(a.split(":")[0] for a in args.split(", "))
        return "\n".join([f"const {name} = ({names}) => {{", *lines, "};"])

    def source(self, k: Any, head: Sequence[str]) -> str:
        body, defs, glob = "\n".join(self.lines), "\n".join(t for _, t in self.functions.values()), "\n".join(k.globals)
        parts = ("'use strict';", self.helpers(defs + body + glob), defs, glob, *head, body)
        return "\n".join(x for x in parts if x)

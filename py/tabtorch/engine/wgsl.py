"""Expressions and kernels as WGSL."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

from .expr import NATIVE, Expr
from .render import Renderer
from .wgsl_math import EXACT, FUSED, HELPERS
from .wgsl_math import PRELUDE as _MATH

TYPES = {"f32": "f32", "i32": "i32", "u32": "u32", "i64": "vec2<u32>", "bool": "bool"}

#: dtypes several of which share a 32-bit word -> how many
PACKED = {"bool": 4, "uint8": 4, "int8": 4, "int16": 2, "float16": 2, "bfloat16": 2}

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
    "and": "&", "or": "|", "xor": "^",
}  # fmt: skip

#: infinities and NaN may not be constants in WGSL, compilers may assume that they do not occur, and they take -0.0 for 0.0:
#: the bits come from a variable
_PRELUDE = {
    "tt_bits": "var<private> tt_bits: vec3<u32> = vec3<u32>(0x7f800000u, 0x7fc00000u, 0x80000000u);",
    "tt_inf": "fn tt_inf() -> f32 { return bitcast<f32>(tt_bits.x); }",
    "tt_neg0": "fn tt_neg0() -> f32 { return bitcast<f32>(tt_bits.z); }",
    "tt_nan": "fn tt_nan() -> f32 { return bitcast<f32>(tt_bits.y); }",
    "tt_isnan": "fn tt_isnan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }",
    "tt_isinf": "fn tt_isinf(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u; }",
    # compilers make a maximum or minimum of such a select, and those of GPUs give the other value beside NaN
    "tt_pick": """fn tt_pick(b: f32, a: f32, first: bool) -> f32 {
  if (tt_isnan(b)) { return b; }
  return select(b, a, first);
}""",
    "tt_bf16": """fn tt_bf16(x: f32) -> u32 {
  let b = bitcast<u32>(x);
  if ((b & 0x7fffffffu) > 0x7f800000u) { return 0x7fc0u; }
  return (b + 0x7fffu + ((b >> 16u) & 1u)) >> 16u;
}""",
    # pack2x16float leaves overflow undefined and may flush subnormals, so rounding to half is written out
    "tt_f16": """fn tt_f16(x: f32) -> u32 {
  let b = bitcast<u32>(x);
  let s = (b >> 16u) & 0x8000u;
  let a = b & 0x7fffffffu;
  if (a > 0x7f800000u) { return s | 0x7e00u; }
  if (a >= 0x477ff000u) { return s | 0x7c00u; }
  if (a < 0x38800000u) {
    if (a < 0x33000000u) { return s; }
    let e = a >> 23u;
    let m = (a & 0x7fffffu) | 0x800000u;
    let sh = 126u - e;
    let h = m >> sh;
    let rest = m & ((1u << sh) - 1u);
    let half = 1u << (sh - 1u);
    return s | (h + select(0u, 1u, rest > half || (rest == half && (h & 1u) == 1u)));
  }
  return s | ((a + 0xfffu + ((a >> 13u) & 1u) - 0x38000000u) >> 13u);
}""",
    "tt_h2f": """fn tt_h2f(h: u32) -> f32 {
  let s = (h & 0x8000u) << 16u;
  let e = (h >> 10u) & 31u;
  let m = h & 0x3ffu;
  if (e == 31u) { return bitcast<f32>(s | 0x7f800000u | (m << 13u)); }
  if (e == 0u) { return bitcast<f32>(s | bitcast<u32>(f32(m) * 5.9604644775390625e-8f)); }
  return bitcast<f32>(s | ((e + 112u) << 23u) | (m << 13u));
}""",
    "tt_l_add": """fn tt_l_add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let lo = a.x + b.x;
  return vec2<u32>(lo, a.y + b.y + select(0u, 1u, lo < a.x));
}""",
    "tt_l_neg": "fn tt_l_neg(a: vec2<u32>) -> vec2<u32> { return tt_l_add(~a, vec2<u32>(1u, 0u)); }",
    "tt_l_sub": "fn tt_l_sub(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return vec2<u32>(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x)); }",
    "tt_u_mul": """fn tt_u_mul(a: u32, b: u32) -> vec2<u32> {
  let al = a & 0xffffu; let ah = a >> 16u; let bl = b & 0xffffu; let bh = b >> 16u;
  let ll = al * bl; let m = ah * bl + (ll >> 16u); let n = al * bh + (m & 0xffffu);
  return vec2<u32>((n << 16u) | (ll & 0xffffu), ah * bh + (m >> 16u) + (n >> 16u));
}""",
    "tt_l_mul": """fn tt_l_mul(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let p = tt_u_mul(a.x, b.x);
  return vec2<u32>(p.x, p.y + a.x * b.y + a.y * b.x);
}""",
    "tt_l_ltu": "fn tt_l_ltu(a: vec2<u32>, b: vec2<u32>) -> bool { return a.y < b.y || (a.y == b.y && a.x < b.x); }",
    "tt_l_lt": "fn tt_l_lt(a: vec2<u32>, b: vec2<u32>) -> bool { return bitcast<i32>(a.y) < bitcast<i32>(b.y) || (a.y == b.y && a.x < b.x); }",
    "tt_l_divu": """fn tt_l_divu(a: vec2<u32>, b: vec2<u32>) -> vec4<u32> {
  if (a.y == 0u && b.y == 0u) { if (b.x == 0u) { return vec4<u32>(0u); } return vec4<u32>(a.x / b.x, 0u, a.x % b.x, 0u); }
  var q = vec2<u32>(0u); var r = vec2<u32>(0u);
  if (b.x == 0u && b.y == 0u) { return vec4<u32>(0u); }
  for (var k = 63; k >= 0; k--) {
    let bit = select((a.x >> u32(k)) & 1u, (a.y >> (u32(k) & 31u)) & 1u, k >= 32);
    let top = r.y >> 31u;
    r = vec2<u32>((r.x << 1u) | bit, (r.y << 1u) | (r.x >> 31u));
    if (top == 1u || !tt_l_ltu(r, b)) {
      r = tt_l_sub(r, b);
      if (k >= 32) { q.y |= 1u << (u32(k) & 31u); } else { q.x |= 1u << u32(k); }
    }
  }
  return vec4<u32>(q, r);
}""",
    "tt_l_abs": "fn tt_l_abs(a: vec2<u32>) -> vec2<u32> { if ((a.y >> 31u) == 1u) { return tt_l_neg(a); } return a; }",
    "tt_l_div": """fn tt_l_div(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let q = tt_l_divu(tt_l_abs(a), tt_l_abs(b)).xy;
  if (((a.y ^ b.y) >> 31u) == 1u) { return tt_l_neg(q); }
  return q;
}""",
    "tt_l_mod": """fn tt_l_mod(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let r = tt_l_divu(tt_l_abs(a), tt_l_abs(b)).zw;
  if ((a.y >> 31u) == 1u) { return tt_l_neg(r); }
  return r;
}""",
    "tt_l_shl": """fn tt_l_shl(a: vec2<u32>, n: u32) -> vec2<u32> {
  if (n >= 64u) { return vec2<u32>(0u); }
  if (n >= 32u) { return vec2<u32>(0u, a.x << (n - 32u)); }
  if (n == 0u) { return a; }
  return vec2<u32>(a.x << n, (a.y << n) | (a.x >> (32u - n)));
}""",
    "tt_l_shr": """fn tt_l_shr(a: vec2<u32>, n0: u32) -> vec2<u32> {
  let n = min(n0, 63u); let h = bitcast<i32>(a.y);
  if (n >= 32u) { return vec2<u32>(bitcast<u32>(h >> (n - 32u)), bitcast<u32>(h >> 31u)); }
  if (n == 0u) { return a; }
  return vec2<u32>((a.x >> n) | (a.y << (32u - n)), bitcast<u32>(h >> n));
}""",
    "tt_i2l": "fn tt_i2l(x: i32) -> vec2<u32> { return vec2<u32>(bitcast<u32>(x), bitcast<u32>(x >> 31u)); }",
    "tt_f2l": """fn tt_f2l(x: f32) -> vec2<u32> {
  let a = abs(x);
  if (!(a < 9.223372036854775808e18f)) { return vec2<u32>(0u, 0x80000000u); }
  let b = bitcast<u32>(a); let e = i32(b >> 23u) - 150; let m = vec2<u32>((b & 0x7fffffu) | 0x800000u, 0u);
  var r = vec2<u32>(0u);
  if (e >= 0) { r = tt_l_shl(m, u32(e)); } else if (e > -24) { r = vec2<u32>(m.x >> u32(-e), 0u); }
  if (x < 0.0f) { return tt_l_neg(r); }
  return r;
}""",
    # as x86 has it: the least integer stands for all that do not fit, and for NaN
    "tt_f2i": """fn tt_f2i(x: f32) -> i32 {
  return select(i32(x), i32(0x80000000u), (bitcast<u32>(x) & 0x7fffffffu) >= 0x4f000000u);
}""",
    "tt_l2f": """fn tt_l2f(x: vec2<u32>) -> f32 {
  let a = tt_l_abs(x);
  var r = 0.0f;
  if (a.y == 0u) { r = f32(a.x); }
  else {
    let z = countLeadingZeros(a.y);
    let s = tt_l_shl(a, z);
    r = ldexp(f32(s.y | select(0u, 1u, s.x != 0u)), i32(32u - z));
  }
  return select(r, -r, (x.y >> 31u) == 1u);
}""",
}


def _single(v: float) -> float:
    """The nearest f32."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", v))[0])
    except OverflowError:
        return math.copysign(math.inf, v)


def _bits(v: float) -> str:
    """The bits of a f32, as a constant."""
    return f"0x{struct.unpack('<I', struct.pack('<f', math.nan if v != v else _single(v)))[0]:08x}u"


def _f32(v: float) -> str:
    if v != v:
        return "tt_nan()"
    v = _single(v)
    if math.isinf(v):
        return "tt_inf()" if v > 0 else "(-tt_inf())"
    if v == 0:
        return "0.0f" if math.copysign(1, v) > 0 else "tt_neg0()"
    return f"{v!r}f" if v > 0 else f"({v!r}f)"


class Wgsl(Renderer):
    """Renders for WebGPU. Parameters are words of the uniform block `P`."""

    language = "wgsl"
    prelude = _PRELUDE | _MATH
    exact_prelude = prelude | EXACT
    fused_prelude = prelude | FUSED

    def constant(self, v: Any, type: str) -> str:
        if type == "f32":
            return _f32(v)
        if type == "bool":
            return "true" if v else "false"
        if type == "u32":
            return f"{v & 0xFFFFFFFF}u"
        if type == "i32":
            v = (v + 2**31) % 2**32 - 2**31
            return f"{v}i" if v >= 0 else ("(-2147483647i - 1i)" if v == -(2**31) else f"({v}i)")
        if type == "i64":
            return f"vec2<u32>({v & 0xFFFFFFFF}u, {(v >> 32) & 0xFFFFFFFF}u)"
        raise TypeError(f"{type} does not exist on webgpu")

    def word(self, w: int) -> str:
        return f"P[{w // 4}].{'xyzw'[w % 4]}"

    def param(self, word: int, type: str) -> str:
        if type == "u32":
            return self.word(word)
        if type == "i64":
            return f"vec2<u32>({self.word(word)}, {self.word(word + 1)})"
        if type == "bool":
            return f"({self.word(word)} != 0u)"
        return f"bitcast<{type}>({self.word(word)})"

    def declare(self, name: str, type: str, text: str) -> None:
        self.line(f"let {name} = {text};")

    def declare_var(self, name: str, type: str, text: str) -> None:
        self.line(f"var {name}: {TYPES[type]} = {text};")

    def loop(self, i: str, start: str, end: str, step: str = "1u") -> None:
        self.push(f"for (var {i} = {start}; {i} < {end}; {i} += {step})")

    def function(
        self, name: str, args: list[str], types: tuple[str, ...], type: str, lines: list[str], result: str
    ) -> str:
        head = ", ".join(f"{n}: {TYPES[t]}" for n, t in zip(args, types, strict=True))
        return "\n".join([f"fn {name}({head}) -> {TYPES[type]} {{", *lines, f"  return {result};", "}"])

    def spell(self, e: Expr, a: list[str]) -> str:
        """One operation in WGSL, its arguments spelled already."""
        op, t = e.op, e.type
        if op == "load":
            return self.load(e.value, a[0])
        if op == "lane":
            return self.lane(e.value, a[0])
        if op == "select":
            return self.choice(e, a)
        at = e.args[0].type
        if op == "call":
            return self.native(e, a)
        if op == "cast":
            return self.cast(at, t, a[0])
        if op == "bitcast":
            return f"bitcast<{t}>({a[0]})"
        if op == "fit":
            return self.fit(e.value, a[0])
        if op == "isnan":
            return f"tt_isnan({a[0]})"
        if op == "isinf":
            return f"tt_isinf({a[0]})"
        if op == "signbit":
            return f"((bitcast<u32>({a[0]}) >> 31u) == 1u)"
        if at == "i64":
            return self.long(op, a, e)
        if op in ("min", "max"):
            return f"{op}({a[0]}, {a[1]})"
        if op == "neg":
            return f"(-{a[0]})"
        if op == "not":
            return f"(!{a[0]})" if t == "bool" else f"(~{a[0]})"
        if op == "div":
            return self.quotient(e, a)
        if op in ("add", "sub", "mul") and t == "f32":
            return self.ordered(e, a)
        if op == "idiv":
            return f"({a[0]} / {a[1]})"
        if op == "imod":
            return f"({a[0]} % {a[1]})"
        if op in ("shl", "shr"):
            by = e.args[1]
            if by.op == "const" and 0 <= by.value < 32:
                return f"({a[0]} {'<<' if op == 'shl' else '>>'} {by.value}u)"
            n = a[1] if by.type == "u32" else f"u32({a[1]})"
            if op == "shl":
                return f"select({a[0]} << ({n} & 31u), {self.constant(0, t)}, {n} > 31u)"
            return f"({a[0]} >> min({n}, 31u))" if t == "i32" else f"select({a[0]} >> ({n} & 31u), 0u, {n} > 31u)"
        if op == "ne" and at == "f32":  # as != is compiled, it may be false beside NaN
            return f"!({a[0]} == {a[1]})"
        if op == "xor" and t == "bool":
            return f"({a[0]} != {a[1]})"
        return f"({a[0]} {_INFIX[op]} {a[1]})"

    def ordered(self, e: Expr, a: list[str]) -> str:
        """A sum or a product of reals. Compilers must not reorder one of three: in a * b * a the part a * a may overflow, and
        (a + b) - a is what a rounding leaves."""
        same = ("mul",) if e.op == "mul" else ("add", "sub")
        first, last = (f"tt_kept({t})" if self.made_by(x) in same else t for x, t in zip(e.args, a, strict=True))
        return f"({first} {_INFIX[e.op]} {last})"

    def quotient(self, e: Expr, a: list[str]) -> str:
        """Of reals, correctly rounded; in a function of `define`, which allows for a few ulp, not, but right in its whole range.

        A division by a power of two is a product, which WGSL rounds correctly.
        """
        by = e.args[1]
        if by.op == "const" and math.frexp(by.value)[0] in (0.5, -0.5) and 2.0**-126 <= abs(by.value) <= 2.0**126:
            return f"({a[0]} * {self.constant(1 / by.value, e.type)})"
        return f"{'tt_ratio' if self.inside else 'tt_quotient'}({', '.join(a)})"

    def choice(self, e: Expr, a: list[str]) -> str:
        """A select. That of reals with a constant is one of bits: compilers take 0.0 and -0.0 for the same number."""
        if e.type == "f32" and self.chooses(e):
            return f"tt_pick({a[2]}, {a[1]}, {a[0]})"
        if e.type == "f32" and any(x.op == "const" for x in e.args[1:]):
            first, last = (
                _bits(x.value) if x.op == "const" else f"bitcast<u32>({t})"
                for x, t in zip(e.args[1:], a[1:], strict=True)
            )
            return f"bitcast<f32>(select({last}, {first}, {a[0]}))"
        return f"select({a[2]}, {a[1]}, {a[0]})"

    def chooses(self, e: Expr) -> bool:
        """Whether a select gives one of the two values compared, the last of which may be NaN."""
        cond, last = e.args[0], e.args[2]
        if cond.op not in ("lt", "le", "gt", "ge") or last.op == "const":
            return False
        return set(map(self._key, cond.args)) == set(map(self._key, e.args[1:]))

    def long(self, op: str, a: list[str], e: Expr) -> str:
        if op in ("add", "sub", "mul", "neg"):
            return f"tt_l_{op}({', '.join(a)})"
        if op == "idiv":
            return f"tt_l_div({a[0]}, {a[1]})"
        if op == "imod":
            return f"tt_l_mod({a[0]}, {a[1]})"
        if op in ("and", "or", "xor"):
            return f"({a[0]} {_INFIX[op]} {a[1]})"
        if op == "not":
            return f"(~{a[0]})"
        if op in ("shl", "shr"):
            n = a[1] if e.args[1].type == "u32" else (f"({a[1]}).x" if e.args[1].type == "i64" else f"u32({a[1]})")
            return f"tt_l_{op}({a[0]}, {n})"
        if op in ("eq", "ne"):
            return f"{'all' if op == 'eq' else 'any'}({a[0]} {_INFIX[op]} {a[1]})"
        if op == "lt":
            return f"tt_l_lt({a[0]}, {a[1]})"
        if op == "gt":
            return f"tt_l_lt({a[1]}, {a[0]})"
        if op == "le":
            return f"!tt_l_lt({a[1]}, {a[0]})"
        if op == "ge":
            return f"!tt_l_lt({a[0]}, {a[1]})"
        if op == "min":
            return f"select({a[1]}, {a[0]}, tt_l_lt({a[0]}, {a[1]}))"
        if op == "max":
            return f"select({a[0]}, {a[1]}, tt_l_lt({a[0]}, {a[1]}))"
        raise KeyError(op)

    def native(self, e: Expr, a: list[str]) -> str:
        name, t = e.value, e.type
        if name in NATIVE and t in ("f32", "i32") and (self.inside or (name, t) not in HELPERS):
            return f"{ {'rsqrt': 'inverseSqrt'}.get(name, name) }({a[0]})"
        if (name, t) in HELPERS:
            return f"{HELPERS[name, t]}({', '.join(a)})"
        return f"{self.call_defined(name, t, tuple(x.type for x in e.args))}({', '.join(a)})"

    def cast(self, f: str, t: str, a: str) -> str:
        if t == "i64":
            if f == "f32":
                return f"tt_f2l({a})"
            if f == "i32":
                return f"tt_i2l({a})"
            return f"vec2<u32>({a}, 0u)" if f == "u32" else f"vec2<u32>(select(0u, 1u, {a}), 0u)"
        if f == "i64":
            if t == "f32":
                return f"tt_l2f({a})"
            return f"({a}).x" if t == "u32" else f"bitcast<i32>(({a}).x)"
        return f"tt_f2i({a})" if f == "f32" and t == "i32" else f"{TYPES[t]}({a})"

    def fit(self, name: str, a: str) -> str:
        return {
            "float32": "{}",
            "float16": "tt_h2f(tt_f16({}))",
            "bfloat16": "bitcast<f32>(tt_bf16({}) << 16u)",
            "uint8": "({} & 255i)",
            "int8": "(({} << 24u) >> 24u)",
            "int16": "(({} << 16u) >> 16u)",
        }[name].format(a)

    # ---- storage: small types are packed into u32 words

    def load(self, value: Any, i: str) -> str:
        """Element `i` of a bound buffer. `value` = (name in the text, dtype name, part): part 0/1 is re/im of a complex one."""
        buf, dt, part = value
        if dt == "vector":
            return f"{buf}[{i} >> 2u]"
        if dt in ("float32", "int32", "int64", "word"):
            return f"{buf}[{i}]"
        if dt == "complex64":
            return f"{buf}[{i}].{'xy'[part]}"
        if PACKED[dt] == 2:
            return self.unpacked(dt, f"(({buf}[{i} >> 1u] >> (({i} & 1u) << 4u)) & 0xffffu)")
        return self.unpacked(dt, f"(({buf}[{i} >> 2u] >> (({i} & 3u) << 3u)) & 0xffu)")

    def lane(self, value: Any, four: str) -> str:
        """One of four neighbours. `value` = (dtype name, which): `four` is a vector of them, or the word that this one is in."""
        dt, j = value
        packed = PACKED.get(dt, 1)
        if packed == 1:
            return f"{four}.{'xyzw'[j]}"
        shift, mask = j % packed * (32 // packed), "0xffffu" if packed == 2 else "0xffu"
        return self.unpacked(dt, f"(({four} >> {shift}u) & {mask})")

    @staticmethod
    def unpacked(dt: str, w: str) -> str:
        """A value of a packed dtype from its bits, the low ones of a u32."""
        return {
            "float16": "tt_h2f({})",
            "bfloat16": "bitcast<f32>({} << 16u)",
            "int16": "(bitcast<i32>({} << 16u) >> 16u)",
            "bool": "({} != 0u)",
            "uint8": "i32({})",
            "int8": "(bitcast<i32>({} << 24u) >> 24u)",
        }[dt].format(w)

    @staticmethod
    def element(dt: str) -> str:
        """Element type of the buffer that holds a dtype."""
        return {"float32": "f32", "int32": "i32", "int64": "vec2<u32>", "complex64": "vec2<f32>"}.get(dt, "u32")

    @staticmethod
    def bits(dt: str, v: str) -> str:
        """A value of a packed dtype as the low bits of a u32."""
        return {
            "float16": "tt_f16({})",
            "bfloat16": "tt_bf16({})",
            "int16": "(bitcast<u32>({}) & 0xffffu)",
            "int8": "(bitcast<u32>({}) & 0xffu)",
            "uint8": "(bitcast<u32>({}) & 0xffu)",
            "bool": "select(0u, 1u, {})",
        }[dt].format(v)

    @classmethod
    def element_type(cls, dtype: Any) -> str:
        return cls.element(dtype.name)

    @classmethod
    def packs(cls, dtype: str) -> int:
        return PACKED.get(dtype, 1)

    def store(self, buffer: str, dtype: str, at: str, value: str) -> None:
        if dtype in PACKED:
            raise AssertionError(f"store to packed {dtype}")
        self.line(f"{buffer}[{at}] = {value};")

    def store_vector(self, buffer: str, type: str, at: str, values: list[str]) -> None:
        """Writes four neighbours of a 32-bit type; `at` is a multiple of 4."""
        self.line(f"{buffer}[{at} >> 2u] = vec4<{type}>({', '.join(values)});")

    def store_words(self, buffer: str, dtype: str, at: str, values: list[str]) -> None:
        """The same of a packed dtype: whole words."""
        p = PACKED[dtype]
        for w in range(4 // p):
            bits = [f"({self.bits(dtype, v)} << {j * (32 // p)}u)" for j, v in enumerate(values[w * p : w * p + p])]
            self.line(f"{buffer}[({at} >> {p // 2}u) + {w}u] = {' | '.join(bits)};")

    def store_complex(self, buffer: str, at: str, re: str, im: str) -> None:
        self.line(f"{buffer}[{at}] = vec2<f32>({re}, {im});")

    def exchange(self, buffer: str, dtype: str, at: str, value: str) -> None:
        p = PACKED[dtype]
        bits = 32 // p
        sh, word, old = self.name("s"), self.name("w"), self.name("o")
        self.line(f"let {sh} = ({at} & {p - 1}u) * {bits}u;")
        self.line(f"let {word} = {self.bits(dtype, value)} << {sh};")
        self.line(f"var {old} = atomicLoad(&{buffer}[{at} / {p}u]);")
        self.line(
            f"loop {{ let x = atomicCompareExchangeWeak(&{buffer}[{at} / {p}u], {old}, "
            f"({old} & ~({(1 << bits) - 1}u << {sh})) | {word}); if (x.exchanged) {{ break; }} {old} = x.old_value; }}"
        )

    def add(self, buffer: str, dtype: str, at: str, value: str) -> None:
        if dtype == "float32":
            old = self.name("o")
            self.line(f"var {old} = atomicLoad(&{buffer}[{at}]);")
            self.line(
                f"loop {{ let x = atomicCompareExchangeWeak(&{buffer}[{at}], {old}, "
                f"bitcast<u32>(bitcast<f32>({old}) + {value})); if (x.exchanged) {{ break; }} {old} = x.old_value; }}"
            )
        elif dtype == "int32":
            self.line(f"atomicAdd(&{buffer}[{at}], bitcast<u32>({value}));")
        elif dtype == "int64":  # low word first; its carry goes to the high word
            o = self.name("o")
            self.line(f"let {o} = atomicAdd(&{buffer}[{at} * 2u], {value}.x);")
            self.line(f"atomicAdd(&{buffer}[{at} * 2u + 1u], {value}.y + select(0u, 1u, {o} + {value}.x < {o}));")
        else:
            raise AssertionError(f"atomic add to {dtype}")

    def write_once(self, buffer: str, words: list[str]) -> None:
        stores = [
            f"atomicStore(&{buffer}[{2 * w + h}u], {t}.{'xy'[h]});"
            for w, t in enumerate(words)
            for h in (0, 1)
            if (w, h) != (0, 0)
        ]
        self.line(
            f"loop {{ let x = atomicCompareExchangeWeak(&{buffer}[0], 0u, {words[0]}.x); "
            f"if (x.exchanged) {{ {' '.join(stores)} break; }} if (x.old_value != 0u) {{ break; }} }}"
        )

    def template_function(self, name: str, args: str, result: str | None, lines: list[str]) -> str:
        return "\n".join([f"fn {name}({args})" + (f" -> {result}" if result else "") + " {", *lines, "}"])

    def source(self, k: Any, head: Sequence[str]) -> str:
        body, defs, glob = "\n".join(self.lines), "\n".join(t for _, t in self.functions.values()), "\n".join(k.globals)
        decls = [f"@group(0) @binding(0) var<uniform> P: array<vec4<u32>, {max(1, (len(k.words) + 3) // 4)}>;"]
        for j, (_, el, access) in enumerate(k.bindings):
            n = f"b{j}"
            if n in k.atomics:
                el = "atomic<u32>"
            mode = "read_write" if access == "rw" else "read"
            decls.append(f"@group(0) @binding({j + 1}) var<storage, {mode}> {n}: array<{el}>;")
        if k.subgroups:
            decls.insert(0, "enable subgroups;")
            more = "lid: u32, @builtin(subgroup_size) sgs: u32, @builtin(subgroup_invocation_id) sgi: u32)"
            head = [line.replace("lid: u32)", more) for line in head]
        decls[:0] = k.directives
        used = self.helpers("\n".join([defs, body, glob, *head]))
        return "\n".join([*decls, used, defs, glob, *head, body, "}"])

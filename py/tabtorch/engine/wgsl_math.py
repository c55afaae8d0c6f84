"""WGSL helpers that need a loop or a branch, so that they cannot be expressions: taken in where their names occur.

sin, cos and tan: WGSL promises an absolute error of 2^-11 on [-pi, pi] and nothing beyond. Here the argument is reduced
in three parts of pi/2 up to 1024, and by a product with 2/pi in integers (Payne and Hanek) above, so every f32 is right.

Quotients and square roots: WGSL's may be 2.5 and 5 ulp off, and a quotient by more than 2^126 may be 0 or NaN. Here a native
one of the significands, whose range is safe, is a first guess; what it leaves is exact in integers modulo 2^32, and says what
the correctly rounded result is. Compilers may contract or reorder what is around, and flush subnormal numbers: the bits stay.
Software adapters divide by the processor's instructions; where the runtime has tried that (`exact` in its `info`), native ones
serve, and subnormal numbers, which such an adapter flushes, are scaled. Where it has tried that `fma` rounds once (`fused`), as on
every GPU so far, two of these correct what is native, and integers serve beyond the usual sizes only.
"""

from __future__ import annotations

#: 2/pi in words of 32 bits, the first with a word of zeros before it
_TWO_OVER_PI = (0x00000000, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB)

PRELUDE = {
    "tt_two_over_pi": "const tt_two_over_pi = array<u32, 8>(" + ", ".join(f"{w:#010x}u" for w in _TWO_OVER_PI) + ");",
    # (remainder in [-pi/4, pi/4], quarter turns modulo 4)
    "tt_quarter": """fn tt_quarter(x: f32) -> vec2<f32> {
  let b = bitcast<u32>(x) & 0x7fffffffu;
  if (b <= 0x3f490fdau) { return vec2<f32>(x, 0.0f); }
  if (b >= 0x7f800000u) { return vec2<f32>(tt_nan(), 0.0f); }
  if (b < 0x44800000u) {
    let n = round(x * 0.63661975f);
    return vec2<f32>(((x - n * 1.5703125f) - n * 4.837512969970703e-4f) - n * 7.549789954891882e-8f, n - 4.0f * floor(n * 0.25f));
  }
  var words = tt_two_over_pi;
  let e = (b >> 23u) - 128u;
  let k = e >> 5u; let s = e & 31u;
  var w = vec3<u32>(words[k], words[k + 1u], words[k + 2u]);
  if (s != 0u) { w = vec3<u32>((w.x << s) | (w.y >> (32u - s)), (w.y << s) | (w.z >> (32u - s)), (w.z << s) | (words[k + 3u] >> (32u - s))); }
  let m = ((b & 0x7fffffu) | 0x800000u) << 8u;
  let p0 = tt_u_mul(m, w.z); let p1 = tt_u_mul(m, w.y);
  let lo = p1.x + p0.y;
  let hi = m * w.x + p1.y + select(0u, 1u, lo < p1.x);
  let q = (hi + 0x20000000u) >> 30u;
  var f = vec2<u32>(lo, hi - (q << 30u));
  let neg = (f.y >> 31u) == 1u;
  if (neg) { f = tt_l_neg(f); }
  let r = (f32(f.y) + f32(f.x) * 2.3283064e-10f) * 1.4629180792671596e-9f;
  if ((bitcast<u32>(x) >> 31u) == 1u) { return vec2<f32>(select(-r, r, neg), f32((4u - q) & 3u)); }
  return vec2<f32>(select(r, -r, neg), f32(q & 3u));
}""",
    "tt_sin_near": """fn tt_sin_near(r: f32) -> f32 {
  let z = r * r;
  return r + r * z * ((-0.0001958787058f * z + 0.008332748177f) * z - 0.1666666466f);
}""",
    "tt_cos_near": """fn tt_cos_near(r: f32) -> f32 {
  let z = r * r;
  return (1.0f - 0.5f * z) + z * z * ((2.454792175e-5f * z - 0.001388830294f) * z + 0.04166666466f);
}""",
    "tt_sin": """fn tt_sin(x: f32) -> f32 {
  if (abs(x) < 1e-4f) { return x; }
  let p = tt_quarter(x); let q = u32(p.y);
  let v = select(tt_sin_near(p.x), tt_cos_near(p.x), (q & 1u) == 1u);
  return select(v, -v, (q & 2u) == 2u);
}""",
    "tt_cos": """fn tt_cos(x: f32) -> f32 {
  let p = tt_quarter(x); let q = u32(p.y);
  let v = select(tt_cos_near(p.x), tt_sin_near(p.x), (q & 1u) == 1u);
  return select(v, -v, ((q + 1u) & 2u) == 2u);
}""",
    "tt_tan": """fn tt_tan(x: f32) -> f32 {
  if (abs(x) < 1e-4f) { return x; }
  let p = tt_quarter(x);
  let z = p.x * p.x;
  let t = p.x + p.x * z * (((((0.00825531371f * z + 0.005091077212f) * z + 0.02316525871f) * z + 0.05377375066f) * z + 0.1333438061f) * z + 0.3333332433f);
  return select(t, tt_ratio(-1.0f, t), (u32(p.y) & 1u) == 1u);
}""",
    # x, as it was rounded, for compilers that would reorder or contract what it is part of: they cannot tell that nothing changes
    "tt_kept": "fn tt_kept(x: f32) -> f32 { return bitcast<f32>(min(bitcast<u32>(x), 0xffffff00u)); }",
    # x * y - z with what rounding takes from the product and from the difference, as Dekker and Knuth find it
    "tt_fused": """fn tt_fused(x: f32, y: f32, z: f32) -> f32 {
  let p = tt_kept(x * y);
  let a = bitcast<f32>(bitcast<u32>(x) & 0xfffff000u); let b = tt_kept(x - a);
  let c = bitcast<f32>(bitcast<u32>(y) & 0xfffff000u); let d = tt_kept(y - c);
  let e = tt_kept(tt_kept(tt_kept(tt_kept(a * c) - p) + tt_kept(a * d)) + tt_kept(b * c)) + b * d;
  let s = tt_kept(p - z); let t = tt_kept(s - p);
  let f = tt_kept(p - tt_kept(s - t)) - tt_kept(z + t);
  let r = select(0.0f, tt_kept(e) + f, max(max(abs(p), abs(z)), max(abs(x), abs(y))) < 1e30f);
  return bitcast<f32>(select(bitcast<u32>(s + r), bitcast<u32>(s), r == 0.0f));
}""",
    # the bits of q * 2^(e - 150), infinite or subnormal, where 2^23 <= q < 2^24 is rounded and `rest` has the sign of what it lacks;
    # if 0, an infinity or NaN is divided, or divides (a, b: bits without sign), what that gives. None of these functions returns
    # early: compilers that inline them make a loop of such a return.
    "tt_beyond": """fn tt_beyond(a: u32, b: u32, e: i32, q: u32, rest: i32) -> u32 {
  let by = u32(clamp(1 - e, 1, 25)); let half = 1u << (by - 1u);
  let cut = q & ((1u << by) - 1u); let kept = q >> by;
  let up = cut > half || (cut == half && (rest > 0 || (rest == 0 && (kept & 1u) == 1u)));
  let finite = select(kept + select(0u, 1u, up), 0x7f800000u, e > 254);
  let special = select(select(0u, 0x7f800000u, a > b), 0x7fc00000u, max(a, b) > 0x7f800000u || a == b);
  return select(finite, special, max(a, b) >= 0x7f800000u || min(a, b) == 0u);
}""",
    # (significand with its leading bit, exponent) of the bits of a finite number that is not 0
    "tt_significand": """fn tt_significand(b: u32) -> vec2<i32> {
  let z = max(countLeadingZeros(b), 8u) - 8u;
  return vec2<i32>(i32(((b << z) & 0x7fffffu) | 0x800000u), max(i32(b >> 23u), 1) - i32(z));
}""",
    "tt_quotient": """fn tt_quotient(x: f32, y: f32) -> f32 {
  let sign = (bitcast<u32>(x) ^ bitcast<u32>(y)) & 0x80000000u;
  let a = bitcast<u32>(x) & 0x7fffffffu; let b = bitcast<u32>(y) & 0x7fffffffu;
  var m = vec2<i32>(i32((a & 0x7fffffu) | 0x800000u), i32(a >> 23u));
  var n = vec2<i32>(i32((b & 0x7fffffu) | 0x800000u), i32(b >> 23u));
  if (min(a, b) < 0x800000u) { m = tt_significand(a); n = tt_significand(b); }
  let less = m.x < n.x;
  let inverse = 1.0f / bitcast<f32>(n.x + 0x3f000000);
  let q = i32(bitcast<f32>(m.x + 0x3f000000) * inverse * select(8388608.0f, 16777216.0f, less));
  var rest = (m.x << select(23u, 24u, less)) - q * n.x;
  let more = i32(round(f32(rest) * inverse * 1.1920928955078125e-7f));
  rest -= more * n.x;
  let last = select(0, 1, 2 * rest > n.x) - select(0, 1, 2 * rest < -n.x);
  let nearest = u32(q + more + last);
  let e = m.y - n.y + select(126, 125, less);
  var bits = (u32(e) << 23u) + nearest;
  if (u32(e) >= 254u || max(a, b) >= 0x7f800000u || min(a, b) == 0u) {
    bits = tt_beyond(a, b, e + 1, nearest, rest - last * n.x);
  }
  return bitcast<f32>(sign | bits);
}""",
    # as near as WGSL's /, where its divisor is scaled to the range of which that says anything
    "tt_ratio": """fn tt_ratio(x: f32, y: f32) -> f32 {
  let a = abs(y);
  let s = select(select(1.0f, 16777216.0f, a < 1.17549435e-38f), 0.25f, a > 4.25352959e37f);
  return (x * s) / tt_kept(y * s);
}""",
    "tt_root": """fn tt_root(x: f32) -> f32 {
  let b = bitcast<u32>(x);
  let m = tt_significand(b);
  let odd = u32(m.y + 1) & 1u;
  let s = i32(sqrt(bitcast<f32>(u32(m.x) + 0x3f000000u + (odd << 23u))) * 8388608.0f);
  let first = (m.x << (23u + odd)) - s * s;
  let more = i32(round(f32(first) / f32(2 * s)));
  let rest = first - more * (2 * s + more);
  let root = s + more + select(0, 1, rest > s + more) - select(0, 1, rest <= -(s + more));
  let bits = (u32((m.y + 127 - i32(odd)) >> 1u) << 23u) + u32(root) - 0x800000u;
  let itself = (b & 0x7fffffffu) == 0u || b == 0x7f800000u;
  return bitcast<f32>(select(select(bits, 0x7fc00000u, b > 0x7f800000u), b, itself));
}""",
    "tt_inverse_root": "fn tt_inverse_root(x: f32) -> f32 { return tt_quotient(1.0f, tt_root(x)); }",
    # long division of the mantissas, eight bits a turn: exact, as C's
    "tt_fmod": """fn tt_fmod(x: f32, y: f32) -> f32 {
  let s = bitcast<u32>(x) & 0x80000000u;
  let a = bitcast<u32>(x) & 0x7fffffffu; let b = bitcast<u32>(y) & 0x7fffffffu;
  if (b == 0u || a >= 0x7f800000u || b > 0x7f800000u) { return tt_nan(); }
  if (a < b) { return x; }
  var ea = i32(a >> 23u); var ma = a & 0x7fffffu;
  var eb = i32(b >> 23u); var mb = b & 0x7fffffu;
  if (ea == 0) { ea = 1; } else { ma |= 0x800000u; }
  if (eb == 0) { eb = 1; } else { mb |= 0x800000u; }
  ma = ma % mb;
  for (var n = ea - eb; n > 0 && ma != 0u; n -= 8) { ma = (ma << u32(min(n, 8))) % mb; }
  if (ma == 0u) { return bitcast<f32>(s); }
  let z = i32(countLeadingZeros(ma)) - 8;
  let e = eb - z;
  if (e > 0) { return bitcast<f32>(s | (((ma << u32(z)) & 0x7fffffu) | (u32(e) << 23u))); }
  return bitcast<f32>(s | (ma << u32(eb - 1)));
}""",
    "tt_ipow": """fn tt_ipow(x: i32, y: i32) -> i32 {
  if (y < 0) { if (x == 1) { return 1; } if (x == -1) { return select(1, -1, (y & 1) == 1); } return 0; }
  var r = 1; var b = x; var n = y;
  while (n > 0) { if ((n & 1) == 1) { r = r * b; } b = b * b; n = n >> 1u; }
  return r;
}""",
    "tt_l_pow": """fn tt_l_pow(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {
  let one = vec2<u32>(1u, 0u);
  if ((y.y >> 31u) == 1u) {
    if (all(x == one)) { return one; }
    if (all(x == vec2<u32>(0xffffffffu))) { return select(one, x, (y.x & 1u) == 1u); }
    return vec2<u32>(0u);
  }
  var r = one; var b = x; var n = y;
  while ((n.x | n.y) != 0u) { if ((n.x & 1u) == 1u) { r = tt_l_mul(r, b); } b = tt_l_mul(b, b); n = tt_l_shr(n, 1u); }
  return r;
}""",
    "tt_gcd": """fn tt_gcd(x: i32, y: i32) -> i32 {
  var a = abs(x); var b = abs(y);
  while (a != 0) { let t = b % a; b = a; a = t; }
  return b;
}""",
    "tt_l_gcd": """fn tt_l_gcd(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {
  var a = tt_l_abs(x); var b = tt_l_abs(y);
  while ((a.x | a.y) != 0u) { let t = tt_l_mod(b, a); b = a; a = t; }
  return b;
}""",
}

#: helpers in the place of those above where native quotients and roots are exact, for numbers that are not subnormal: those are
#: scaled. Without a branch: software adapters go both ways of one.
EXACT = {
    # Significands between 1 and 2 are divided; of a result that is subnormal (`small`) the last places are rounded away once, so
    # that it matters what is left over of the first rounding (`rest`). `none` is 0, but SPIR-V's optimizer does not see that: it
    # would make a product of a division by a constant.
    "tt_quotient": """fn tt_quotient(x: f32, y: f32) -> f32 {
  let a = bitcast<i32>(x) & 0x7fffffff; let b = bitcast<i32>(y) & 0x7fffffff;
  let c = select(a, bitcast<i32>(f32(a)) - 0x4a800000, a < 0x800000);
  let d = select(b, bitcast<i32>(f32(b)) - 0x4a800000, b < 0x800000);
  let m = (c & 0x7fffff) | 0x3f800000; let n = (d & 0x7fffff) | 0x3f800000;
  let none = min(bitcast<u32>(x), 0u);
  let t = bitcast<i32>(bitcast<f32>(m) / bitcast<f32>(bitcast<u32>(n) ^ none));
  let by = (c >> 23u) - (d >> 23u); let e = (t >> 23u) + by;
  let q = (t & 0x7fffff) | 0x800000;
  let rest = select(m << 23u, m << 24u, m < n) - q * (n & 0xffffff);
  let places = f32(q) * bitcast<f32>((127 - clamp(1 - e, 1, 25)) << 23u);
  let whole = floor(places); let kept = i32(whole);
  let above = (rest > 0) | ((rest == 0) & ((kept & 1) == 1));
  let small = kept + select(0, 1, places - whole > select(0.5f, 0.49999997f, above));
  let finite = select(select(small, t + (by << 23u), e > 0), 0x7f800000, e > 254);
  let special = select(select(0, 0x7f800000, a > b), 0x7fc00000, (max(a, b) > 0x7f800000) | (a == b));
  let bits = select(finite, special, (max(a, b) >= 0x7f800000) | (min(a, b) == 0));
  return bitcast<f32>(((bitcast<u32>(x) ^ bitcast<u32>(y)) & 0x80000000u) | bitcast<u32>(bits));
}""",
    "tt_root": """fn tt_root(x: f32) -> f32 {
  let b = bitcast<u32>(x); let a = b & 0x7fffffffu;
  let small = a - 1u < 0x7fffffu;
  let n = select(b, bitcast<u32>(2.0f * f32(i32(a))) | (b & 0x80000000u), small);
  return sqrt(bitcast<f32>(n)) * select(1.0f, 2.6469779601696886e-23f, small);
}""",
}

#: helpers in the place of the first where `fma` rounds once.
#: Quotients (Markstein, 1990): with the correctly rounded inverse of the divisor one correction of a product by it is right. Newton's
#: step gives that inverse but for some of the largest significands, which go the other way. Tried for all quotients that lie as near
#: to the middle of two floats as eight units in the last place of (middle x divisor), 418 million with inverses that are up to 4 units
#: off (WGSL's are 2.5 at most): right below a significand of 0xfffff7. The bounds keep the products and what they leave normal numbers.
#: Roots (Goldschmidt's step, then a correction): right for all significands, even and odd exponents, of inverse roots 4 units off.
FUSED = {
    "tt_wide_quotient": PRELUDE["tt_quotient"].replace("tt_quotient", "tt_wide_quotient"),
    "tt_quotient": """fn tt_quotient(x: f32, y: f32) -> f32 {
  let i = tt_kept(1.0f / y); let inverse = fma(fma(-y, i, 1.0f), i, i);
  let q = tt_kept(x * inverse);
  let a = bitcast<u32>(x) & 0x7fffffffu; let b = bitcast<u32>(y) & 0x7fffffffu;
  var found = select(fma(fma(-q, y, x), inverse, q), q, a == 0u);
  let usual = ((a - 0x19000000u < 0x4e800000u) || (a == 0u)) && (b - 0x2b800000u < 0x28000000u) && ((b & 0x7fffffu) < 0x7ffff0u);
  if (!usual) { found = tt_wide_quotient(x, y); }
  return found;
}""",
    "tt_wide_root": PRELUDE["tt_root"].replace("tt_root", "tt_wide_root"),
    "tt_root": """fn tt_root(x: f32) -> f32 {
  let i = tt_kept(inverseSqrt(x)); let first = tt_kept(x * i); let half = 0.5f * i;
  let off = fma(-first, half, 0.5f);
  let root = tt_kept(fma(first, off, first));
  var found = fma(fma(-root, root, x), fma(half, off, half), root);
  let usual = bitcast<u32>(x) - 0x19000000u < 0x65800000u;
  if (!usual) { found = tt_wide_root(x); }
  return found;
}""",
}

#: (function, type) -> its helper
HELPERS = {
    ("kept", "f32"): "tt_kept",
    ("fused", "f32"): "tt_fused",
    ("quotient", "f32"): "tt_quotient",
    ("ratio", "f32"): "tt_ratio",
    ("sqrt", "f32"): "tt_root",
    ("rsqrt", "f32"): "tt_inverse_root",
    ("sin", "f32"): "tt_sin",
    ("cos", "f32"): "tt_cos",
    ("tan", "f32"): "tt_tan",
    ("fmod", "f32"): "tt_fmod",
    ("pow", "i32"): "tt_ipow",
    ("pow", "i64"): "tt_l_pow",
    ("gcd", "i32"): "tt_gcd",
    ("gcd", "i64"): "tt_l_gcd",
    ("abs", "i64"): "tt_l_abs",
}

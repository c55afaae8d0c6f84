// PyTorch's CPU random numbers, for the cpu device: MT19937 and the streams derived from it.
//
// A kernel is this text, that of mt19937_draws.js and one call (see random_streams.py), compiled as the body of a function
// (P, I, F, D, Q, b0, b1, ..., G). Everything below follows ATen/native/cpu/DistributionTemplates.h and
// ATen/core/DistributionsHelper.h of PyTorch 2.13: how many 32-bit words a value takes, and in what order, is what
// keeps two programs' streams together, so nothing here may draw more or less than PyTorch does.
//
// State, 634 words: 0..623 the twister, 624 words left until the next twist (plus one), 625 next index,
// 626/627 seed (low, high), 628/629 the cached second normal (float64), 630 whether it is there,
// 631 the cached float normal (float32 bits), 632 whether it is there, 633 unused.

const LEFT = 624;
const NEXT = 625;
const SEED = 626;
const NORMAL = 628;
const NORMAL_VALID = 630;

const EPS24 = 2 ** -24;
const EPS53 = 2 ** -53;

const scratchF32 = new Float32Array(1);
const scratchU32 = new Uint32Array(scratchF32.buffer);
const scratchF64 = new Float64Array(1);
const scratchF64Words = new Uint32Array(scratchF64.buffer);
let high = 0; // of the last draw64
let low = 0;

// ---- the engine

function seedState(s, seedLow, seedHigh) {
  s.fill(0, 0, 634);
  s[0] = seedLow;
  for (let j = 1; j < 624; j++) {
    const before = s[j - 1] ^ (s[j - 1] >>> 30);
    s[j] = Math.imul(1812433253, before) + j;
  }
  s[LEFT] = 1;
  s[SEED] = seedLow;
  s[SEED + 1] = seedHigh;
}

/** The next word of the twister from two neighbours. */
function mix(a, b) {
  return (((a & 0x80000000) | (b & 0x7fffffff)) >>> 1) ^ (-(b & 1) & 0x9908b0df);
}

function twist(s) {
  for (let j = 0; j < 227; j++) s[j] = s[j + 397] ^ mix(s[j], s[j + 1]);
  for (let j = 227; j < 623; j++) s[j] = s[j - 227] ^ mix(s[j], s[j + 1]);
  s[623] = s[396] ^ mix(s[623], s[0]);
  s[LEFT] = 624;
  s[NEXT] = 0;
}

function draw(s) {
  if (--s[LEFT] === 0) twist(s);
  let y = s[s[NEXT]++];
  y ^= y >>> 11;
  y ^= (y << 7) & 0x9d2c5680;
  y ^= (y << 15) & 0xefc60000;
  return (y ^ (y >>> 18)) >>> 0;
}

/** pool[0 .. n-1] = n draws: several times faster than one by one. */
function drawMany(s, pool, n) {
  let done = 0;
  while (done < n) {
    if (s[LEFT] === 1) {
      twist(s);
      s[LEFT] = 625;
    }
    const at = s[NEXT];
    const count = Math.min(n - done, s[LEFT] - 1);
    for (let k = 0; k < count; k++) {
      let y = s[at + k];
      y ^= y >>> 11;
      y ^= (y << 7) & 0x9d2c5680;
      y ^= (y << 15) & 0xefc60000;
      pool[done + k] = y ^ (y >>> 18);
    }
    s[NEXT] += count;
    s[LEFT] -= count;
    done += count;
  }
}

/** u[0 .. n-1] = uniforms: float32 ones from a word each, float64 ones from two. `pool` has room for the words. */
function uniformMany(s, u, n, pool, isDouble) {
  if (isDouble) {
    drawMany(s, pool, 2 * n);
    for (let k = 0; k < n; k++) {
      u[k] = ((pool[2 * k] & 0x1fffff) * 4294967296 + pool[2 * k + 1]) * EPS53;
    }
    return;
  }
  drawMany(s, pool, n);
  for (let k = 0; k < n; k++) u[k] = (pool[k] & 0xffffff) * EPS24;
}

function draw64(s) {
  high = draw(s);
  low = draw(s);
}

function uniform24(s) {
  return (draw(s) & 0xffffff) * EPS24;
}

function uniform53(s) {
  draw64(s);
  return ((high & 0x1fffff) * 4294967296 + low) * EPS53;
}

/** high:low modulo m, for an m below 2**37. */
function modulo64(m) {
  let r = high % m;
  r = (r * 65536 + (low >>> 16)) % m;
  return (r * 65536 + (low & 0xffff)) % m;
}

function big64() {
  return (BigInt(high) << 32n) | BigInt(low);
}

// ---- arithmetic of narrower types

/** a * b + c of float32 values with one rounding, as the compiled PyTorch has it. */
function fma32(a, b, c) {
  const product = a * b; // 48 bits: exact
  const sum = product + c;
  scratchF64[0] = sum;
  if ((scratchF64Words[0] & 0x1fffffff) === 0x10000000) {
    // in the middle between two float32 values: what the first rounding dropped decides
    const t = sum - product;
    const dropped = product - (sum - t) + (c - t);
    if (dropped !== 0) scratchF64Words[0] += dropped > 0 === sum > 0 ? 1 : -1;
    return Math.fround(scratchF64[0]);
  }
  return Math.fround(sum);
}

/** a * b + c of float64 values with one rounding (twice once in some 2**50 times), for numbers of moderate size. */
function fma64(a, b, c) {
  const product = a * b;
  const ta = 134217729 * a;
  const tb = 134217729 * b;
  const ah = ta - (ta - a);
  const bh = tb - (tb - b);
  const al = a - ah;
  const bl = b - bh;
  const error = al * bl - (product - ah * bh - al * bh - ah * bl);
  const sum = product + c;
  const t = sum - product;
  return sum + (product - (sum - t) + (c - t) + error);
}

function halfBits(value) {
  scratchF32[0] = value;
  const x = scratchU32[0];
  const sign = (x >>> 16) & 0x8000;
  const a = x & 0x7fffffff;
  if (a >= 0x7f800000) return sign | (a > 0x7f800000 ? 0x7e00 : 0x7c00);
  if (a >= 0x477ff000) return sign | 0x7c00;
  if (a >= 0x38800000) {
    return sign | ((a - 0x38000000 + 0xfff + ((a >>> 13) & 1)) >>> 13);
  }
  scratchF32[0] = Math.abs(value) + 0.5; // subnormal: this addition rounds at 2**-24
  return sign | (scratchU32[0] - 0x3f000000);
}

function halfValue(bits) {
  const exponent = (bits >>> 10) & 31;
  if (exponent === 0) return (bits & 0x8000 ? -1 : 1) * (bits & 1023) * EPS24;
  scratchU32[0] = ((bits & 0x8000) << 16) | ((exponent === 31 ? 255 : exponent + 112) << 23) | ((bits & 1023) << 13);
  return scratchF32[0];
}

function bfloatBits(value) {
  scratchF32[0] = value;
  const x = scratchU32[0];
  if ((x & 0x7fffffff) > 0x7f800000) return 0x7fc0;
  return (x + 0x7fff + ((x >>> 16) & 1)) >>> 16;
}

function bfloatValue(bits) {
  scratchU32[0] = bits << 16;
  return scratchF32[0];
}

/** A 64-bit integer -> the nearest float32 (through a double it would be rounded twice). */
function bigToFloat32(v) {
  if (v >= -9007199254740992n && v <= 9007199254740992n) return Math.fround(Number(v));
  return Math.fround(Number((v >> 11n) | (v & 2047n ? 1n : 0n)) * 2048);
}

// For each dtype: `put` a number at index i (an int64 is two words), `big` a BigInt, `get`, and `round` to the dtype.
const putPlain = (out, i, v) => {
  out[i] = v;
};
const putBigInteger = (out, i, v) => {
  out[i] = Number(BigInt.asIntN(32, v));
};
const getPlain = (b, i) => b[i];
const INTEGER = { put: putPlain, big: putBigInteger, get: getPlain, round: Math.trunc };
const DTYPE = {
  float32: {
    put: putPlain,
    big: (out, i, v) => {
      out[i] = bigToFloat32(v);
    },
    get: getPlain,
    round: Math.fround,
  },
  float64: {
    put: putPlain,
    big: (out, i, v) => {
      out[i] = Number(v);
    },
    get: getPlain,
    round: (v) => v,
  },
  float16: {
    put: (out, i, v) => {
      out[i] = halfBits(v);
    },
    big: (out, i, v) => {
      out[i] = halfBits(bigToFloat32(v));
    },
    get: (b, i) => halfValue(b[i]),
    round: (v) => halfValue(halfBits(v)),
  },
  bfloat16: {
    put: (out, i, v) => {
      out[i] = bfloatBits(v);
    },
    big: (out, i, v) => {
      out[i] = bfloatBits(bigToFloat32(v));
    },
    get: (b, i) => bfloatValue(b[i]),
    round: (v) => bfloatValue(bfloatBits(v)),
  },
  int64: {
    put: (out, i, v) => {
      out[2 * i] = v;
      out[2 * i + 1] = Math.floor(v / 4294967296);
    },
    big: (out, i, v) => {
      out[2 * i] = Number(BigInt.asIntN(32, v));
      out[2 * i + 1] = Number(BigInt.asIntN(32, v >> 32n));
    },
    get: (b, i) => (b[2 * i] >>> 0) + b[2 * i + 1] * 4294967296,
    round: Math.trunc,
  },
  int32: INTEGER,
  int16: INTEGER,
  int8: INTEGER,
  uint8: INTEGER,
  bool: {
    put: (out, i, v) => {
      out[i] = v ? 1 : 0;
    },
    big: (out, i, v) => {
      out[i] = v ? 1 : 0;
    },
    get: getPlain,
    round: (v) => (v ? 1 : 0),
  },
};

// ---- float32 log, sin and cos as PyTorch's vector code has them (Cephes' polynomials, in fused multiply-adds), so
// that randn is PyTorch's to the bit. A fused step here rounds twice once in some 2**29 times.

const f = Math.fround;
const LOG_P = [
  7.0376836292e-2, -1.151461031e-1, 1.167699874e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
  2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
].map(f);
const [LOG_0, LOG_1, LOG_2, LOG_3, LOG_4, LOG_5, LOG_6, LOG_7, LOG_8] = LOG_P;
const LOG_LOW = f(-2.1219444e-4);
const LOG_HIGH = f(0.693359375);
const ROOT_HALF = f(Math.SQRT1_2);

/** log(x) for a normal float32 x > 0. */
function log32(x) {
  scratchF32[0] = x;
  let e = (scratchU32[0] >>> 23) - 126;
  scratchU32[0] = (scratchU32[0] & 0x807fffff) | 0x3f000000;
  let m = scratchF32[0];
  if (m < ROOT_HALF) {
    e -= 1;
    m = f(f(m - 1) + m);
  } else {
    m = f(m - 1);
  }
  const z = f(m * m);
  let y = f(LOG_0 * m + LOG_1);
  y = f(y * m + LOG_2);
  y = f(y * m + LOG_3);
  y = f(y * m + LOG_4);
  y = f(y * m + LOG_5);
  y = f(y * m + LOG_6);
  y = f(y * m + LOG_7);
  y = f(y * m + LOG_8);
  y = f(f(y * m) * z + f(e * LOG_LOW));
  y = f(y - z * 0.5);
  return f(e * LOG_HIGH + f(m + y));
}

const FOUR_OVER_PI = f(4 / Math.PI);
const PI_A = f(-0.78515625);
const PI_B = f(-2.4187564849853516e-4);
const PI_C = f(-3.774894977445941e-8);
const SIN_0 = f(-1.9515295891e-4);
const SIN_1 = f(8.3321608736e-3);
const SIN_2 = f(-1.6666654611e-1);
const COS_0 = f(2.443315711809948e-5);
const COS_1 = f(-1.388731625493765e-3);
const COS_2 = f(4.166664568298827e-2);
let cosine = 0; // of the last sin32

/** sin(x), and cos(x) into `cosine`, for a float32 x >= 0 of moderate size. */
function sin32(x) {
  const j = (Math.trunc(f(x * FOUR_OVER_PI)) + 1) & ~1;
  let r = f(j * PI_A + x);
  r = f(j * PI_B + r);
  r = f(j * PI_C + r);
  const z = f(r * r);
  let c = f(COS_0 * z + COS_1);
  c = f(c * z + COS_2);
  c = f(f(f(c * z) * z - z * 0.5) + 1);
  let s = f(SIN_0 * z + SIN_1);
  s = f(s * z + SIN_2);
  s = f(f(s * z) * r + r);
  const swapped = (j & 2) !== 0;
  const sine = swapped ? c : s;
  cosine = swapped ? s : c;
  if (((j - 2) & 4) === 0) cosine = -cosine;
  return j & 4 ? -sine : sine;
}

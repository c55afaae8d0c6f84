// The draws: each function is a kernel of random_streams.py, and follows the text of mt19937.js.
// Arguments: P parameter words, D the same as float64, Q as int64, the state, inputs, the output, their types.

function seed(P, state) {
  seedState(state, P[0], P[1]);
}

const CHUNK = 1024;

/** Uniform in [from, to): D[1] from, D[2] to. */
function uniform(P, D, state, out, type, isDouble) {
  const n = P[0];
  const from = isDouble ? D[1] : f(D[1]);
  const to = isDouble ? D[2] : f(D[2]);
  const last = type.round(to);
  const first = type.round(from);
  const span = isDouble ? to - from : f(to - from);
  const plain = from === 0 && span === 1;
  const u = isDouble ? new Float64Array(CHUNK) : new Float32Array(CHUNK);
  const pool = new Uint32Array(2 * CHUNK);
  for (let at = 0; at < n; at += CHUNK) {
    const count = Math.min(CHUNK, n - at);
    uniformMany(state, u, count, pool, isDouble);
    for (let k = 0; k < count; k++) {
      let v = u[k];
      if (!plain) v = isDouble ? fma64(v, span, from) : fma32(v, span, from);
      v = type.round(v);
      type.put(out, at + k, v === last ? first : v); // rounding may have reached the end that is left out
    }
  }
}

/** A normal in float64, one at a time; the second of each pair is kept in the state for the next draw. */
function normal64(state, cache, mean, std) {
  if (state[NORMAL_VALID]) {
    state[NORMAL_VALID] = 0;
    return fma64(cache[0], std, mean);
  }
  const u1 = uniform53(state);
  const u2 = uniform53(state);
  const r = Math.sqrt(-2 * Math.log1p(-u2));
  const theta = 2 * Math.PI * u1;
  cache[0] = r * Math.sin(theta);
  state[NORMAL_VALID] = 1;
  return fma64(r * Math.cos(theta), std, mean);
}

function normalCache(state) {
  return new Float64Array(state.buffer, state.byteOffset + 4 * NORMAL, 1);
}

/** Normals as PyTorch draws fewer than 16 of them, or any number into a tensor that is not contiguous. */
function normalSerial(P, D, state, out, type) {
  const cache = normalCache(state);
  for (let i = 0; i < P[0]; i++) type.put(out, i, normal64(state, cache, D[1], D[2]));
}

/** 16 uniforms of `u` from `at` on -> 16 normals, in place: Box and Muller, pairs eight apart. */
function normal16(u, at, mean, std, isDouble) {
  if (isDouble) {
    for (let j = at; j < at + 8; j++) {
      const radius = Math.sqrt(-2 * Math.log(1 - u[j]));
      const theta = 2 * Math.PI * u[j + 8];
      u[j] = fma64(radius * Math.cos(theta), std, mean);
      u[j + 8] = fma64(radius * Math.sin(theta), std, mean);
    }
    return;
  }
  const plain = mean === 0 && std === 1;
  const turn = f(2 * Math.PI);
  for (let j = at; j < at + 8; j++) {
    const radius = f(Math.sqrt(-2 * log32(1 - u[j])));
    const sine = sin32(f(turn * u[j + 8]));
    const a = f(radius * cosine);
    const b = f(radius * sine);
    u[j] = plain ? a + 0 : fma32(a, std, mean);
    u[j + 8] = plain ? b + 0 : fma32(b, std, mean);
  }
}

/** At least 16 normals into a contiguous tensor: groups of 16, and the last 16 drawn anew where n % 16 is not 0. */
function normalFill(P, D, state, out, type, isDouble, direct) {
  const n = P[0];
  const mean = isDouble ? D[1] : f(D[1]);
  const std = isDouble ? D[2] : f(D[2]);
  const u = isDouble ? new Float64Array(CHUNK) : new Float32Array(CHUNK);
  const pool = new Uint32Array(2 * CHUNK);
  const group = (at, count) => {
    uniformMany(state, u, count, pool, isDouble);
    for (let j = 0; j < count; j += 16) normal16(u, j, mean, std, isDouble);
    for (let j = 0; j < count; j++) type.put(out, at + j, u[j]);
  };
  const rest = n % 16;
  for (let i = 0; i < n - rest; i += CHUNK) group(i, Math.min(CHUNK, n - rest - i));
  if (rest === 0) return;
  // PyTorch fills a float32 or float64 tensor with uniforms to its end before it looks at the tail
  if (direct) drawMany(state, pool, isDouble ? 2 * rest : rest);
  group(n - 16, 16);
}

/** Integers base + [0, range): P[0] n, Q[1] range as an unsigned 64-bit number, Q[2] base. */
function randomRange(P, Q, state, out, type) {
  const n = P[0];
  const range = BigInt.asUintN(64, Q[1]);
  const base = Q[2];
  const m = Number(range);
  const b = Number(base);
  if (range < 137438953472n && base > -4503599627370496n && base < 4503599627370496n) {
    const short = m < 268435456;
    for (let i = 0; i < n; i++) {
      let v = 0;
      if (short) v = draw(state) % m;
      else {
        draw64(state);
        v = modulo64(m);
      }
      type.put(out, i, v + b);
    }
    return;
  }
  for (let i = 0; i < n; i++) {
    let v = 0n;
    if (m < 268435456) v = BigInt(draw(state));
    else {
      draw64(state);
      v = big64();
    }
    type.big(out, i, BigInt.asIntN(64, (v % range) + base));
  }
}

/** All 64 bits, as signed integers. */
function random64(P, state, out, type) {
  for (let i = 0; i < P[0]; i++) {
    draw64(state);
    type.big(out, i, BigInt.asIntN(64, big64()));
  }
}

/** random_() with no bounds: draw % limit, D[1] limit (2**63 for int64, 2**53 + 1 for float64: from 64-bit draws). */
function randomFull(P, D, state, out, type, wide) {
  const n = P[0];
  if (!wide) {
    for (let i = 0; i < n; i++) type.put(out, i, draw(state) % D[1]);
    return;
  }
  const limit = wide === 63 ? 1n << 63n : (1n << 53n) + 1n;
  for (let i = 0; i < n; i++) {
    draw64(state);
    type.big(out, i, big64() % limit);
  }
}

/** 1 with probability D[1]. */
function bernoulli(P, D, state, out, type) {
  for (let i = 0; i < P[0]; i++) type.put(out, i, uniform53(state) < D[1] ? 1 : 0);
}

/** 1 with probability p[i]; a float64 p takes 53-bit uniforms. */
function bernoulliTensor(P, state, p, out, pType, type, isDouble) {
  for (let i = 0; i < P[0]; i++) {
    const chance = pType.get(p, i);
    if (!(chance >= 0 && chance <= 1)) throw new Error("Expected p_in >= 0 && p_in <= 1 to be true, but got false.");
    const u = isDouble ? uniform53(state) : uniform24(state);
    type.put(out, i, u < chance ? 1 : 0);
  }
}

/** A permutation of 0 .. n-1. */
function randperm(P, state, out, type) {
  const n = P[0];
  const order = new Uint32Array(n);
  if (n < 214748364) {
    for (let i = 0; i < n; i++) order[i] = i;
    for (let i = 0; i < n - 1; i++) {
      const z = i + (draw(state) % (n - i));
      const kept = order[i];
      order[i] = order[z];
      order[z] = kept;
    }
  } else {
    for (let i = 0; i < n; i++) {
      draw64(state);
      const z = modulo64(i + 1);
      order[i] = i;
      order[i] = order[z];
      order[z] = i;
    }
  }
  for (let i = 0; i < n; i++) type.put(out, i, order[i]);
}

/** D[1] rate. */
function exponential(P, D, state, out, type) {
  for (let i = 0; i < P[0]; i++) type.put(out, i, (-1 / D[1]) * Math.log1p(-uniform53(state)));
}

/** The number of trials to the first success, D[1] its probability. */
function geometric(P, D, state, out, type) {
  const bottom = Math.log1p(-D[1]);
  for (let i = 0; i < P[0]; i++) type.put(out, i, Math.ceil(Math.log(uniform53(state)) / bottom));
}

/** D[1] median, D[2] sigma. */
function cauchy(P, D, state, out, type) {
  for (let i = 0; i < P[0]; i++) {
    type.put(out, i, fma64(D[2], Math.tan(Math.PI * (uniform53(state) - 0.5)), D[1]));
  }
}

/** exp of a normal: D[1] mean, D[2] standard deviation of its logarithm. */
function logNormal(P, D, state, out, type) {
  const cache = normalCache(state);
  for (let i = 0; i < P[0]; i++) type.put(out, i, Math.exp(normal64(state, cache, D[1], D[2])));
}

/** log of the gamma function for x >= 1: Stirling's series, from 10 up. */
function logGamma(x) {
  let below = 1;
  while (x < 10) {
    below *= x;
    x += 1;
  }
  const z = 1 / (x * x);
  const tail = (1 / 12 - z * (1 / 360 - z * (1 / 1260 - z * (1 / 1680 - z * (1 / 1188 - (z * 691) / 360360))))) / x;
  return (x - 0.5) * Math.log(x) - x + 0.9189385332046728 + tail - Math.log(below);
}

/** One Poisson count: products of uniforms below a rate of 10, Hoermann's transformed rejection (1993) above. */
function poissonOne(state, rate) {
  if (rate === 0) return 0;
  if (rate < 10) {
    const end = Math.exp(-rate);
    let product = uniform53(state);
    let k = 0;
    while (product > end) {
      k += 1;
      product *= uniform53(state);
    }
    return k;
  }
  const root = Math.sqrt(rate);
  const b = 0.931 + 2.53 * root;
  const a = -0.059 + 0.02483 * b;
  const alpha = 1.1239 + 1.1328 / (b - 3.4);
  const inside = 0.9277 - 3.6224 / (b - 2);
  for (;;) {
    const u = uniform53(state) - 0.5;
    const v = uniform53(state);
    const us = 0.5 - Math.abs(u);
    const k = Math.floor(((2 * a) / us + b) * u + rate + 0.43);
    if (us >= 0.07 && v <= inside) return k;
    if (k < 0 || (us < 0.013 && v > us)) continue;
    const left = Math.log(v) + Math.log(alpha) - Math.log(a / (us * us) + b);
    if (left <= -rate + k * Math.log(rate) - logGamma(k + 1)) return k;
  }
}

/** Poisson counts of the rates in the input. */
function poisson(P, state, rates, out, rateType, type) {
  for (let i = 0; i < P[0]; i++) {
    const rate = rateType.get(rates, i);
    if (!(rate >= 0)) throw new Error("invalid Poisson rate, expected rate to be non-negative");
    type.put(out, i, poissonOne(state, rate));
  }
}

/** Row by row of p (rows P[0], columns P[1]): P[2] column numbers drawn with replacement, by cumulated sums. */
function multinomialReplace(P, state, p, out, pType, isDouble) {
  const [rows, columns, samples] = P;
  const sums = isDouble ? new Float64Array(columns) : new Float32Array(columns);
  for (let row = 0; row < rows; row++) {
    let sum = 0;
    for (let j = 0; j < columns; j++) {
      const v = pType.get(p, row * columns + j);
      if (!(v >= 0)) throw new Error("invalid multinomial distribution (encountering probability entry < 0)");
      if (v === Number.POSITIVE_INFINITY) {
        throw new Error("invalid multinomial distribution (encountering probability entry = infinity or NaN)");
      }
      sum = isDouble ? sum + v : f(sum + v);
      sums[j] = sum;
    }
    if (!(sum > 0)) throw new Error("invalid multinomial distribution (sum of probabilities <= 0)");
    for (let j = 0; j < columns; j++) sums[j] /= sum;
    sums[columns - 1] = 1;
    for (let k = 0; k < samples; k++) {
      const u = uniform53(state);
      let left = 0;
      let right = columns;
      while (left < right) {
        const middle = left + ((right - left) >> 1);
        if (sums[middle] < u) left = middle + 1;
        else right = middle;
      }
      DTYPE.int64.put(out, row * samples + k, left);
    }
  }
}

/** The same without replacement, or one sample: the P[2] largest of p / q, where q is exponential. */
function multinomialRace(P, state, p, out, pType) {
  const [rows, columns, samples] = P;
  const score = new Float64Array(rows * columns);
  for (let i = 0; i < score.length; i++) {
    const q = pType.round(-Math.log1p(-uniform53(state)));
    score[i] = pType.round(pType.get(p, i) / q);
  }
  for (let row = 0; row < rows; row++) {
    const at = row * columns;
    if (samples === 1) {
      let best = 0;
      for (let j = 1; j < columns; j++) if (score[at + j] > score[at + best]) best = j;
      DTYPE.int64.put(out, row, best);
      continue;
    }
    const order = Array.from({ length: columns }, (_, j) => j);
    order.sort((a, b) => score[at + b] - score[at + a] || a - b);
    for (let k = 0; k < samples; k++) DTYPE.int64.put(out, row * samples + k, order[k]);
  }
}

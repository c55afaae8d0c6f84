// Draws by rejection, of gamma, Dirichlet and binomial numbers: they follow ATen/native/Distributions.h of PyTorch 2.13,
// and the text of mt19937.js and mt19937_draws.js. `round` is that of the type in which PyTorch computes a step.

/** One standard gamma number: Marsaglia and Tsang (2000), raised by one for an alpha below 1. */
function gammaOne(state, cache, alpha, round) {
  let scale = 1;
  if (alpha < 1) {
    if (alpha === 0) return 0;
    scale = (1 - uniform53(state)) ** round(1 / alpha);
    alpha = round(alpha + 1);
  }
  const d = round(alpha - f(1 / 3));
  const c = 1 / Math.sqrt(9 * d);
  for (;;) {
    let x = 0;
    let y = 0;
    do {
      x = normal64(state, cache, 0, 1);
      y = 1 + c * x;
    } while (y <= 0);
    if (Number.isNaN(y)) return y; // of an alpha that is none
    const v = y * y * y;
    const u = 1 - uniform53(state);
    const xx = x * x;
    if (u < 1 - f(0.0331) * xx * xx) return scale * d * v;
    if (Math.log(u) < 0.5 * xx + d * (1 - v + Math.log(v))) return scale * d * v;
  }
}

/** Standard gamma numbers, of the concentrations in the input. */
function standardGamma(P, state, alphas, out, type, tiny) {
  const cache = normalCache(state);
  for (let i = 0; i < P[0]; i++) {
    const v = type.round(gammaOne(state, cache, type.get(alphas, i), type.round));
    type.put(out, i, tiny < v ? v : tiny);
  }
}

/** Rows of P[1] numbers that sum to 1: gamma numbers in float64 over their sum, kept off 0 and 1. */
function dirichlet(P, state, alphas, out, type, tiny, below) {
  const cache = normalCache(state);
  const [n, columns] = P;
  const row = new Float64Array(columns);
  for (let at = 0; at < n; at += columns) {
    let sum = 0;
    for (let j = 0; j < columns; j++) {
      row[j] = Math.max(2.2250738585072014e-308, gammaOne(state, cache, type.get(alphas, at + j), (v) => v));
      sum += row[j];
    }
    for (let j = 0; j < columns; j++) type.put(out, at + j, Math.min(below, Math.max(tiny, type.round(row[j] / sum))));
  }
}

const TAILS = [
  0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509, 0.0166446911898211,
  0.0138761288230707, 0.0118967099458917, 0.010411265261972, 0.00925546218271273, 0.00833056343336287,
];

/** log k! less Stirling's formula. */
function stirlingTail(k) {
  if (k < 10) return TAILS[Math.trunc(k)];
  const z = (k + 1) * (k + 1);
  return (1 / 12 - (1 / 360 - 1 / 1260 / z) / z) / (k + 1);
}

/** Successes by the waiting times between them, for few of them. */
function binomialInversion(state, count, p, round) {
  const bottom = round(Math.log1p(-p));
  let sum = 0;
  for (let k = 0; ; k++) {
    sum += Math.ceil(Math.log(uniform53(state)) / bottom);
    if (!(sum <= count)) return k;
  }
}

/** Successes by transformed rejection: Hoermann (1993), algorithm BTRS. */
function binomialRejection(state, count, p, round) {
  const mean = round(count * p);
  const deviation = round(Math.sqrt(round(mean * round(1 - p))));
  const b = 1.15 + 2.53 * deviation;
  const a = -0.0873 + 0.0248 * b + 0.01 * p;
  const c = mean + 0.5;
  const inside = 0.92 - 4.2 / b;
  const r = round(p / round(1 - p));
  const alpha = (2.83 + 5.1 / b) * deviation;
  const m = Math.floor(round(round(count + 1) * p));
  for (;;) {
    const u = uniform53(state) - 0.5;
    const v = uniform53(state);
    const us = 0.5 - Math.abs(u);
    const k = round(Math.floor(((2 * a) / us + b) * u + c));
    if (k < 0 || k > count) continue;
    if (us >= 0.07 && v <= inside) return k;
    const left = round(round(count - k) + 1);
    const bound =
      (m + 0.5) * Math.log((m + 1) / (r * (count - m + 1))) +
      round(count + 1) * Math.log((count - m + 1) / left) +
      (k + 0.5) * Math.log((r * left) / round(k + 1)) +
      stirlingTail(m) +
      stirlingTail(count - m) -
      stirlingTail(k) -
      stirlingTail(count - k);
    if (Math.log((v * alpha) / (a / (us * us) + b)) <= bound) return k;
  }
}

/** Binomial numbers of the counts and probabilities in the inputs. */
function binomial(P, state, counts, chances, out, type) {
  const round = type.round;
  for (let i = 0; i < P[0]; i++) {
    const count = type.get(counts, i);
    const p = type.get(chances, i);
    let k = 0;
    if (p >= 1 && count > 0) k = count;
    else if (count > 0 && p > 0) {
      const less = p <= 0.5 ? p : round(1 - p);
      k = (round(count * less) >= 10 ? binomialRejection : binomialInversion)(state, count, less, round);
      if (p > 0.5) k = count - k;
    } else if (Number.isNaN(p) && !(count <= 0)) k = Number.NaN;
    type.put(out, i, k);
  }
}

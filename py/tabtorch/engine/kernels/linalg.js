// What the factorisations share. All is in double precision. A matrix is {m, n, x}: its elements column by column in a
// Float64Array, each of which is W numbers (2: real and imaginary part). A vector is an array and where it begins in it.
// P: W, dimensions of the batch, numbers of flags, flags, the batch's shape, then of each input: offset, rows, columns, the
// strides of both, those of the batch. A result is what `f` gives for each matrix of the batch, all of it in elements.

const W = P[0];
const EPS = 2 ** -52;
const TINY = 2 ** -1022;
/** The imaginary part of the number whose real part a function has just given. */
let IM = 0;
/** The factor of the last `reflector`. */
let TAU = 0;
let TAU_IM = 0;

const sign = (a, b) => (b < 0 || Object.is(b, -0) ? -Math.abs(a) : Math.abs(a));
const matrix = (m, n) => ({ m, n, x: new Float64Array(m * n * W) });

/** Real numbers as elements. */
function wide(numbers) {
  const x = new Float64Array(numbers.length * W);
  for (let i = 0; i < numbers.length; i++) x[i * W] = numbers[i];
  return x;
}

function run(inputs, out, f) {
  let at = 3;
  const take = (n) => P.slice(at, (at += n));
  const dims = P[1];
  const flags = take(P[2]);
  const shape = take(dims);
  const places = inputs.map(() => take(5 + dims));
  const count = shape.reduce((a, b) => a * b, 1);
  let to = 0;
  for (let b = 0; b < count; b++) {
    const matrices = inputs.map((from, which) => {
      const [offset, m, n, down, right, ...steps] = places[which];
      let start = offset;
      for (let d = dims - 1, rest = b; d >= 0; rest = Math.floor(rest / shape[d]), d--)
        start += (rest % shape[d]) * steps[d];
      const a = matrix(m, n);
      for (let j = 0, k = 0; j < n; j++)
        for (let i = 0, p = (start + j * right) * W; i < m; i++, p += down * W)
          for (let w = 0; w < W; w++) a.x[k++] = from[p + w];
      return a;
    });
    for (const part of f(...matrices, ...flags)) {
      out.set(part, to);
      to += part.length;
    }
  }
}

// ---- vectors of n elements

/** y += (re + i im) x */
function axpy(n, re, im, x, xo, y, yo) {
  if (W === 1 || im === 0) {
    for (let end = xo + n * W; xo < end; xo++, yo++) y[yo] += re * x[xo];
    return;
  }
  for (let end = xo + 2 * n; xo < end; xo += 2, yo += 2) {
    const a = x[xo];
    const b = x[xo + 1];
    y[yo] += re * a - im * b;
    y[yo + 1] += re * b + im * a;
  }
}

/** x^H y */
function dot(n, x, xo, y, yo) {
  let re = 0;
  let im = 0;
  if (W === 1) for (let end = xo + n; xo < end; xo++, yo++) re += x[xo] * y[yo];
  else
    for (let end = xo + 2 * n; xo < end; xo += 2, yo += 2) {
      re += x[xo] * y[yo] + x[xo + 1] * y[yo + 1];
      im += x[xo] * y[yo + 1] - x[xo + 1] * y[yo];
    }
  IM = im;
  return re;
}

/** Of n numbers: x = c x + s y, y = c y - s x. */
function rotate(n, c, s, x, xo, y, yo) {
  for (let end = xo + n; xo < end; xo++, yo++) {
    const a = x[xo];
    x[xo] = c * a + s * y[yo];
    y[yo] = c * y[yo] - s * a;
  }
}

function scale(n, re, im, x, xo) {
  for (let end = xo + n * W; xo < end; xo += W) {
    const a = x[xo];
    x[xo] = re * a;
    if (W === 1) continue;
    const b = x[xo + 1];
    x[xo] -= im * b;
    x[xo + 1] = re * b + im * a;
  }
}

function swap(n, x, xo, y, yo) {
  for (let end = xo + n; xo < end; xo++, yo++) [x[xo], y[yo]] = [y[yo], x[xo]];
}

/** (a + i b) / (re + i im), without overflow on the way (Smith). */
function ratio(a, b, re, im) {
  if (Math.abs(re) >= Math.abs(im)) {
    const r = im === 0 ? 0 : im / re;
    const d = re + im * r;
    IM = (b - a * r) / d;
    return (a + b * r) / d;
  }
  const r = re / im;
  const d = re * r + im;
  IM = (b * r - a) / d;
  return (a * r + b) / d;
}

/** The same of elements: where they are real, b and im are whatever comes next. */
function divide(a, b, re, im) {
  if (W === 2) return ratio(a, b, re, im);
  IM = 0;
  return a / re;
}

/** What LAPACK compares in place of the absolute value. */
const size = (x, at) => (W === 1 ? Math.abs(x[at]) : Math.abs(x[at]) + Math.abs(x[at + 1]));

/** The plane rotation with c f + s g = r, -s f + c g = 0 (dlartg): [c, s, r]. */
function givens(f, g) {
  if (g === 0) return [1, 0, f];
  if (f === 0) return [0, sign(1, g), Math.abs(g)];
  const r = sign(Math.sqrt(f * f + g * g), f);
  return [f / r, g / r, r];
}

// ---- reflections

/** H = I - tau v v^H with H^H x = beta e, v0 = 1 (zlarfg): v takes the place of x. Gives beta, and tau in TAU. */
function reflector(n, x, at) {
  const re = x[at];
  const im = W === 2 ? x[at + 1] : 0;
  const rest = dot(n - 1, x, at + W, x, at + W);
  let beta = re;
  TAU = TAU_IM = 0;
  if (rest !== 0 || im !== 0) {
    beta = -sign(Math.sqrt(re * re + im * im + rest), re);
    TAU = (beta - re) / beta;
    TAU_IM = -im / beta;
    const r = divide(1, 0, re - beta, im);
    scale(n - 1, r, IM, x, at + W);
  }
  x[at] = 1;
  if (W === 2) x[at + 1] = 0;
  return beta;
}

/** y -= tau v (v^H y) */
function reflect(n, re, im, v, vo, y, yo) {
  if (re === 0 && im === 0) return;
  const d = dot(n, v, vo, y, yo);
  axpy(n, im * IM - re * d, -re * IM - im * d, v, vo, y, yo);
}

/** Q C in the place of C, Q = H0 H1 ..., their vectors below the diagonal `low` of A. Columns from `first(i)` on have a part in Hi. */
function apply(A, taus, low, C, first = () => 0) {
  for (let i = taus.length / W - 1; i >= 0; i--) {
    const n = A.m - i - low;
    const v = (i * A.m + i + low) * W;
    const kept = A.x.slice(v, v + W);
    A.x.fill(0, v, v + W)[v] = 1;
    for (let j = first(i); j < C.n; j++)
      reflect(n, taus[i * W], W === 2 ? taus[i * W + 1] : 0, A.x, v, C.x, (j * C.m + i + low) * W);
    A.x.set(kept, v);
  }
}

// ---- sizes

const finite = (x) => x.every(Number.isFinite);

/** Numbers whose squares would be out of range are brought into it, by a power of two that is given back. */
function intoRange(x) {
  let most = 0;
  for (let i = 0; i < x.length; i++) most = Math.max(most, Math.abs(x[i]));
  if (!(most > 0 && most < Infinity) || (most > 1e-120 && most < 1e120)) return 1;
  const by = 2 ** Math.round(Math.log2(most));
  for (let i = 0; i < x.length; i++) x[i] /= by;
  return by;
}

/** Conjugate transpose. */
function adjoint(A) {
  const B = matrix(A.n, A.m);
  for (let j = 0; j < A.n; j++)
    for (let i = 0; i < A.m; i++) {
      const to = (i * A.n + j) * W;
      const from = (j * A.m + i) * W;
      B.x[to] = A.x[from];
      if (W === 2) B.x[to + 1] = -A.x[from + 1];
    }
  return B;
}

function eye(m, n) {
  const A = matrix(m, n);
  for (let i = 0; i < Math.min(m, n); i++) A.x[(i * m + i) * W] = 1;
  return A;
}

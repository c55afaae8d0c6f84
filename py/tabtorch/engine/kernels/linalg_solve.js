// Triangular factorisations and equations: LAPACK's getrf, potrf, trtrs, getrs (Golub and Van Loan, chapters 3 and 4).

/** L and U in the place of A, with partial pivoting where `pivot`. Gives the pivots from 1, and info. */
function factor({ m, n, x }, pivot) {
  const pivots = new Float64Array(Math.min(m, n));
  let info = 0;
  for (let k = 0; k < pivots.length; k++) {
    const at = (k * m + k) * W;
    let p = k;
    if (pivot)
      for (let i = k + 1, most = size(x, at); i < m; i++) {
        const s = size(x, (k * m + i) * W);
        if (s > most) [p, most] = [i, s];
      }
    pivots[k] = p + 1;
    if (p !== k) for (let j = 0; j < n; j++) swap(W, x, (j * m + k) * W, x, (j * m + p) * W);
    if (size(x, at) === 0) {
      info ||= k + 1;
      continue;
    }
    if (W === 1) for (let i = at + 1; i < (k + 1) * m; i++) x[i] /= x[at];
    else {
      const r = divide(1, 0, x[at], x[at + 1]);
      scale(m - k - 1, r, IM, x, at + 2);
    }
    for (let j = k + 1; j < n; j++) {
      const u = (j * m + k) * W;
      axpy(m - k - 1, -x[u], W === 2 ? -x[u + 1] : 0, x, at + W, x, u + W);
    }
  }
  return { pivots, info };
}

/** x with T x = b (T^H x = b where `turned`) in the place of the vector b. One triangle of T is looked at. */
function substitute({ m, x }, upper, unit, turned, b, at) {
  for (let k = 0; k < m; k++) {
    const j = !upper === !turned ? k : m - 1 - k;
    const d = at + j * W;
    const t = (j * m + j) * W;
    const from = upper ? 0 : j + 1;
    const count = upper ? j : m - 1 - j;
    if (turned) {
      b[d] -= dot(count, x, (j * m + from) * W, b, at + from * W);
      if (W === 2) b[d + 1] -= IM;
    }
    if (!unit) {
      b[d] = divide(b[d], b[d + 1], x[t], turned ? -x[t + 1] : x[t + 1]);
      if (W === 2) b[d + 1] = IM;
    }
    if (!turned) axpy(count, -b[d], W === 2 ? -b[d + 1] : 0, x, (j * m + from) * W, b, at + from * W);
  }
}

/** The swaps of rows that `pivots` (from 1) say, or their inverse. */
function permute(pivots, b, at, back) {
  for (let k = 0; k < pivots.length; k++) {
    const i = back ? pivots.length - 1 - k : k;
    swap(W, b, at + i * W, b, at + (pivots[i] - 1) * W);
  }
}

/** Solves A X = B (A^H X = B where `turned`) in the place of B, A as `factor` leaves it. */
function solved(A, pivots, B, turned) {
  for (let at = 0; at < B.x.length; at += B.m * W) {
    if (!turned) permute(pivots, B.x, at, false);
    substitute(A, turned, !turned, turned, B.x, at);
    substitute(A, !turned, turned, turned, B.x, at);
    if (turned) permute(pivots, B.x, at, true);
  }
  return B.x;
}

const real = ({ x }) => x.filter((_, i) => i % W === 0);

// ---- kernels

function lu(A, pivot) {
  const { pivots, info } = factor(A, pivot);
  return [A.x, wide(pivots), wide([info])];
}

/** Row i of L U is row permutation[i] of A, of `m` rows. */
function permutation(pivots, m) {
  const rows = wide(Array.from({ length: m }, (_, i) => i));
  permute(real(pivots), rows, 0, false);
  return [rows];
}

const luSolve = (A, pivots, B, turned) => [solved(A, real(pivots), B, turned === 1)];

function solve(A, B) {
  const { pivots, info } = factor(A, true);
  return [solved(A, pivots, B, false), wide([info])];
}

function triangular(T, B, upper, unit, turned) {
  for (let at = 0; at < B.x.length; at += B.m * W) substitute(T, upper, unit, turned, B.x, at);
  return [B.x];
}

/** L with L L^H = A, of the lower triangle, column by column; info: the first minor that is not positive. */
function cholesky({ m, x }) {
  let info = 0;
  for (let j = 0; j < m; j++) {
    const at = (j * m + j) * W;
    x.fill(0, j * m * W, at);
    if (info) continue;
    for (let k = 0; k < j; k++) {
      const l = (k * m + j) * W;
      axpy(m - j, -x[l], W === 2 ? x[l + 1] : 0, x, l, x, at);
    }
    if (W === 2) x[at + 1] = 0;
    if (!(x[at] > 0)) {
      info = j + 1;
      continue;
    }
    const d = Math.sqrt(x[at]);
    x[at] = d;
    for (let i = at + W; i < (j + 1) * m * W; i++) x[i] /= d;
  }
  return [x, wide([info])];
}

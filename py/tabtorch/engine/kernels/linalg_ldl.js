// L D L^T and L D L^H, by Bunch and Kaufman (1977): LAPACK's sytf2, hetf2 and their solvers, of the lower triangle. Always complex (W is 2):
// what is rare may be slower. A pivot p > 0 at k: rows k and p were swapped; p < 0 at k and k + 1: a block of two, rows k + 1 and -p were.

function ldl({ m, x }, hermitian) {
  const conj = hermitian ? -1 : 1;
  const alpha = (1 + Math.sqrt(17)) / 8;
  const pivots = Array(m).fill(0);
  let info = 0;
  const at = (i, j) => 2 * (j * m + i);
  // the whole matrix, of its lower triangle
  for (let j = 0; j < m; j++)
    for (let i = j + 1; i < m; i++) {
      x[at(j, i)] = x[at(i, j)];
      x[at(j, i) + 1] = conj * x[at(i, j) + 1];
    }
  /** column j, from row `from` on, less a number times the vector w */
  const less = (from, re, im, w, j) => axpy(m - from, -re, -im, w, 2 * from, x, at(from, j));
  for (let k = 0; k < m; ) {
    if (hermitian) for (let j = k; j < m; j++) x[at(j, j) + 1] = 0;
    const here = size(x, at(k, k));
    let far = k;
    let most = 0;
    for (let i = k + 1; i < m; i++)
      if (size(x, at(i, k)) > most) {
        far = i;
        most = size(x, at(i, k));
      }
    let p = k;
    let two = false;
    const lost = !(Math.max(here, most) > 0) || here !== here;
    if (lost) info ||= k + 1;
    else if (here < alpha * most) {
      let across = 0;
      for (let j = k; j < m; j++) if (j !== far) across = Math.max(across, size(x, at(j, far)));
      if (here * across < alpha * most * most) {
        p = far;
        two = size(x, at(far, far)) < alpha * across;
      }
    }
    const q = two ? k + 1 : k;
    if (p !== q) {
      for (let j = k; j < m; j++) swap(2, x, at(q, j), x, at(p, j));
      swap(2 * (m - k), x, at(k, q), x, at(k, p));
    }
    pivots[k] = two ? -p - 1 : p + 1;
    if (!two) {
      if (!lost) {
        const v = x.slice(at(0, k), at(0, k + 1));
        const re = divide(1, 0, x[at(k, k)], x[at(k, k) + 1]);
        scale(m - k - 1, re, IM, x, at(k + 1, k));
        const w = x.slice(at(0, k), at(0, k + 1));
        for (let j = k + 1; j < m; j++) less(k + 1, v[2 * j], conj * v[2 * j + 1], w, j);
      }
      k++;
      continue;
    }
    pivots[k + 1] = pivots[k];
    const v = [0, 1].map((c) => x.slice(at(0, k + c), at(0, k + c + 1)));
    for (let i = k + 2; i < m; i++) block(x, at, k, conj, x, at(i, k), at(i, k + 1));
    const w = [0, 1].map((c) => x.slice(at(0, k + c), at(0, k + c + 1)));
    for (let j = k + 2; j < m; j++)
      for (const c of [0, 1]) less(k + 2, v[c][2 * j], conj * v[c][2 * j + 1], w[c], j);
    k += 2;
  }
  for (let j = 0; j < m; j++) x.fill(0, at(0, j), at(j, j));
  return [x, wide(pivots), wide([info])];
}

/** (r0, r1) times the inverse of the block D of two at k, on its right side, or (`left`) on its left, in the places a and b of r. */
function block(x, at, k, conj, r, a, b, left = false) {
  const [dr, di] = x.subarray(at(k + 1, k));
  // D = [[d0, c], [d, d1]], c the conjugate of d or d itself; the other way round on the left
  const [br, bi] = left ? [dr, conj * di] : [dr, di];
  const [cr, ci] = [br, conj * bi];
  const by = (re, im, s, t) => [divide(re, im, s, t), IM];
  const mul = ([p, q], [s, t]) => [p * s - q * t, p * t + q * s];
  const d0 = by(x[at(k, k)], x[at(k, k) + 1], cr, ci);
  const d1 = by(x[at(k + 1, k + 1)], x[at(k + 1, k + 1) + 1], br, bi);
  const [tr, ti] = mul(d0, d1);
  const t = [tr - 1, ti];
  const r0 = [r[a], r[a + 1]];
  const r1 = [r[b], r[b + 1]];
  const one = mul(d1, r0);
  const other = mul(d0, r1);
  [r[a], r[a + 1]] = by(one[0] - r1[0], one[1] - r1[1], ...mul([cr, ci], t));
  [r[b], r[b + 1]] = by(other[0] - r0[0], other[1] - r0[1], ...mul([br, bi], t));
}

function ldlSolve({ m, x }, pivots, B, hermitian) {
  const conj = hermitian ? -1 : 1;
  const at = (i, j) => 2 * (j * m + i);
  const b = B.x;
  for (let o = 0; o < b.length; o += 2 * m) {
    const exchange = (i, p) => swap(2, b, o + 2 * i, b, o + 2 * (Math.abs(p) - 1));
    const below = (k, from) => axpy(m - from, -b[o + 2 * k], -b[o + 2 * k + 1], x, at(from, k), b, o + 2 * from);
    for (let k = 0; k < m; k++) {
      const p = pivots.x[2 * k];
      const a = o + 2 * k;
      if (p > 0) {
        exchange(k, p);
        below(k, k + 1);
        b[a] = divide(b[a], b[a + 1], x[at(k, k)], x[at(k, k) + 1]);
        b[a + 1] = IM;
      } else {
        exchange(k + 1, p);
        below(k, k + 2);
        below(k + 1, k + 2);
        block(x, at, k, conj, b, a, a + 2, true);
        k++;
      }
    }
    for (let k = m - 1; k >= 0; k--) {
      const two = pivots.x[2 * k] < 0;
      for (let j = k; j >= k - (two ? 1 : 0); j--)
        for (let i = k + 1; i < m; i++) {
          const [re, im] = [x[at(i, j)], conj * x[at(i, j) + 1]];
          const [s, t] = [b[o + 2 * i], b[o + 2 * i + 1]];
          b[o + 2 * j] -= re * s - im * t;
          b[o + 2 * j + 1] -= re * t + im * s;
        }
      exchange(k, pivots.x[2 * k]);
      if (two) k--;
    }
  }
  return [b];
}

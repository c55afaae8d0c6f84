// Hermitian matrices: reduced to tridiagonal ones (LAPACK's hetd2), whose eigenvalues are found by implicit QL or QR (steqr;
// Golub and Van Loan, 8.3). The lower triangle is looked at.

/** A = Q T Q^H: T's diagonals d and e, which are real, and tau; Q's vectors are left below the diagonal. */
function tridiagonal({ m, x }) {
  const d = new Float64Array(m);
  const e = new Float64Array(m);
  const taus = new Float64Array(Math.max(m - 1, 0) * W);
  const w = new Float64Array(m * W);
  for (let k = 0; k < m - 1; k++) {
    d[k] = x[(k * m + k) * W];
    const n = m - k - 1;
    const v = (k * m + k + 1) * W;
    e[k] = reflector(n, x, v);
    const re = TAU;
    const im = TAU_IM;
    taus[k * W] = re;
    if (W === 2) taus[k * W + 1] = im;
    if (re === 0 && im === 0) continue;
    // w = A v, of the lower triangle of what is left
    w.fill(0);
    for (let j = 0; j < n; j++) {
      const c = ((k + 1 + j) * m + k + 1 + j) * W;
      const a = v + j * W;
      if (W === 2) x[c + 1] = 0;
      axpy(n - j, x[a], W === 2 ? x[a + 1] : 0, x, c, w, j * W);
      w[j * W] += dot(n - j - 1, x, c + W, x, a + W);
      if (W === 2) w[j * W + 1] += IM;
    }
    scale(n, re, im, w, 0);
    const r = dot(n, w, 0, x, v);
    axpy(n, -0.5 * (re * r - im * IM), -0.5 * (re * IM + im * r), x, v, w, 0);
    for (let j = 0; j < n; j++) {
      const c = ((k + 1 + j) * m + k + 1 + j) * W;
      const a = v + j * W;
      const b = j * W;
      axpy(n - j, -w[b], W === 2 ? w[b + 1] : 0, x, a, x, c);
      axpy(n - j, -x[a], W === 2 ? x[a + 1] : 0, w, b, x, c);
    }
  }
  if (m) d[m - 1] = x[(m * m - 1) * W];
  return [d, e, taus];
}

/** Eigenvalues of [[a, b], [b, c]], the larger in size first, and the rotation to the first vector (dlaev2). */
function symmetric2(a, b, c) {
  const sum = a + c;
  const apart = a - c;
  const root = Math.hypot(apart, 2 * b);
  const [most, least] = Math.abs(a) > Math.abs(c) ? [a, c] : [c, a];
  const first = sum < 0 ? (sum - root) / 2 : sum > 0 ? (sum + root) / 2 : root / 2;
  const second = sum === 0 ? -root / 2 : (most / first) * least - (b / first) * b;
  const cs = apart >= 0 ? apart + root : apart - root;
  let u = 1;
  let v = 0;
  if (Math.abs(cs) > Math.abs(2 * b)) {
    const t = (-2 * b) / cs;
    v = 1 / Math.sqrt(1 + t * t);
    u = t * v;
  } else if (b !== 0) {
    const t = -cs / (2 * b);
    u = 1 / Math.sqrt(1 + t * t);
    v = t * u;
  }
  return sum < 0 === apart < 0 ? [first, second, -v, u] : [first, second, u, v];
}

/** The eigenvalues of a tridiagonal matrix in the place of d; the rotations go to the columns of Z (n numbers each). Gives info. */
function implicitQl(d, e, Z, n) {
  const N = d.length;
  let left = 30 * N;
  for (let begin = 0; begin < N; ) {
    // a block that nothing links to the rest
    let end = begin;
    for (; end < N - 1; end++) {
      const t = Math.abs(e[end]);
      if (t <= Math.sqrt(Math.abs(d[end])) * Math.sqrt(Math.abs(d[end + 1])) * (EPS / 2)) {
        e[end] = 0;
        break;
      }
    }
    let l = begin;
    let last = end;
    begin = end + 1;
    if (Math.abs(d[last]) < Math.abs(d[l])) [l, last] = [last, l];
    const s = last >= l ? 1 : -1; // QL from l on, or QR
    const link = s === 1 ? 0 : -1; // e[i + link] is between i and i + s
    while ((last - l) * s >= 0) {
      let m = l;
      for (; m !== last; m += s) {
        const t = e[m + link];
        if (t * t <= (EPS / 2) ** 2 * Math.abs(d[m]) * Math.abs(d[m + s]) + TINY) {
          e[m + link] = 0;
          break;
        }
      }
      if (m === l) {
        l += s;
        continue;
      }
      if (m === l + s) {
        const i = Math.min(l, m);
        const [first, second, c, t] = symmetric2(d[i], e[i], d[i + 1]);
        if (Z) rotate(n, c, t, Z, i * n, Z, (i + 1) * n);
        d[i] = first;
        d[i + 1] = second;
        e[i] = 0;
        l += 2 * s;
        continue;
      }
      if (left-- === 0) return e.filter((t) => t !== 0).length;
      let g = (d[l + s] - d[l]) / (2 * e[l + link]);
      g = d[m] - d[l] + e[l + link] / (g + sign(Math.hypot(g, 1), g));
      let c = 1;
      let t = 1;
      let p = 0;
      for (let i = m - s; i !== l - s; i -= s) {
        const f = t * e[i + link];
        const b = c * e[i + link];
        let r = 0;
        [c, t, r] = givens(g, f);
        if (i !== m - s) e[i + s + link] = r;
        g = d[i + s] - p;
        r = (d[i] - g) * t + 2 * c * b;
        p = t * r;
        d[i + s] = g + p;
        g = c * r - b;
        if (Z) rotate(n, c, t, Z, (i + s) * n, Z, i * n);
      }
      d[l] -= p;
      e[l + link] = g;
    }
  }
  return 0;
}

/** The eigenvalues, increasing, the vectors, and info. */
function eigh(A, vectors) {
  const n = A.m;
  if (!finite(A.x)) return [wide(Array(n).fill(NaN)), ...(vectors ? [A.x.fill(NaN)] : []), wide([Math.max(n - 1, 0)])];
  const by = intoRange(A.x);
  const [d, e, taus] = tridiagonal(A);
  const Z = vectors && new Float64Array(n * n);
  for (let i = 0; i < n && Z; i++) Z[i * n + i] = 1;
  const info = implicitQl(d, e, Z, n);
  const order = Array.from(d.keys()).sort((i, j) => d[i] - d[j]);
  const values = wide(order.map((i) => d[i] * by));
  if (!Z) return [values, wide([info])];
  const V = matrix(n, n);
  order.forEach((from, j) => {
    for (let i = 0; i < n; i++) V.x[(j * n + i) * W] = Z[from * n + i];
  });
  apply(A, taus, 1, V);
  return [values, V.x, wide([info])];
}

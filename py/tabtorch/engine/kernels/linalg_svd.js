// Singular values: reduced to a bidiagonal matrix, which is real (LAPACK's gebd2; Golub and Van Loan, 5.4.8), whose values implicit QR
// finds, without a shift where that would cost relative accuracy (bdsqr; Demmel and Kahan, 1990).

/** A = Q B P^H of m >= n: B's diagonals d and e, tau of Q and of P, and P's vectors as a matrix (below its subdiagonal). */
function bidiagonal({ m, n, x }) {
  const d = new Float64Array(n);
  const e = new Float64Array(n);
  const left = new Float64Array(n * W);
  const right = new Float64Array(Math.max(n - 1, 0) * W);
  const P = matrix(n, n);
  const w = new Float64Array(m * W);
  for (let i = 0; i < n; i++) {
    const v = (i * m + i) * W;
    d[i] = reflector(m - i, x, v);
    left[i * W] = TAU;
    if (W === 2) left[i * W + 1] = TAU_IM;
    const im = -TAU_IM;
    for (let j = i + 1; j < n; j++) reflect(m - i, TAU, im, x, v, x, (j * m + i) * W);
    if (i === n - 1) break;
    const r = (i * n + i + 1) * W;
    for (let j = i + 1; j < n; j++) {
      const from = (j * m + i) * W;
      P.x[(i * n + j) * W] = x[from];
      if (W === 2) P.x[(i * n + j) * W + 1] = -x[from + 1];
    }
    e[i] = reflector(n - i - 1, P.x, r);
    right[i * W] = TAU;
    if (W === 2) right[i * W + 1] = TAU_IM;
    const rows = m - i - 1;
    w.fill(0);
    for (let j = i + 1; j < n; j++) {
      const a = (i * n + j) * W;
      axpy(rows, P.x[a], W === 2 ? P.x[a + 1] : 0, x, (j * m + i + 1) * W, w, 0);
    }
    scale(rows, TAU, TAU_IM, w, 0);
    for (let j = i + 1; j < n; j++) {
      const a = (i * n + j) * W;
      axpy(rows, -P.x[a], W === 2 ? P.x[a + 1] : 0, w, 0, x, (j * m + i + 1) * W);
    }
  }
  return { d, e, left, right, P };
}

/** The smaller singular value of [[f, g], [0, h]] (dlas2). */
function leastOfTwo(f, g, h) {
  const [a, b] = [Math.min(Math.abs(f), Math.abs(h)), Math.max(Math.abs(f), Math.abs(h))];
  if (a === 0) return 0;
  const s = 1 + a / b;
  const t = (b - a) / b;
  const c = Math.abs(g);
  if (c < b) return (2 * a) / (Math.sqrt(s * s + (c / b) ** 2) + Math.sqrt(t * t + (c / b) ** 2));
  const u = b / c;
  return u === 0 ? (a * b) / c : (2 * a * u) / (Math.sqrt(1 + (s * u) ** 2) + Math.sqrt(1 + (t * u) ** 2));
}

/** Of [[f, g], [0, h]]: [smaller, larger singular value, sine and cosine on the right, sine and cosine on the left] (dlasv2). */
function two(f, g, h) {
  const turned = Math.abs(h) > Math.abs(f);
  const [F, H] = turned ? [h, f] : [f, h];
  const [a, b, c] = [Math.abs(F), Math.abs(g), Math.abs(H)];
  let [least, most, cl, sl, cr, sr] = [c, a, 1, 0, 1, 0];
  let wide = false;
  if (b !== 0) {
    wide = b > a;
    if (wide && a / b < EPS / 2) {
      most = b;
      least = c > 1 ? a / (b / c) : (a / b) * c;
      [sl, sr, cr] = [H / g, 1, F / g];
    } else {
      const d = a - c;
      const l = d === a ? 1 : d / a;
      const m = g / F;
      const t = 2 - l;
      const s = Math.sqrt(t * t + m * m);
      const r = l === 0 ? Math.abs(m) : Math.sqrt(l * l + m * m);
      const half = (s + r) / 2;
      least = c / half;
      most = a * half;
      let u = (m / (s + t) + m / (r + l)) * (1 + half);
      if (m * m === 0) u = l === 0 ? sign(2, F) * sign(1, g) : g / sign(d, F) + m / t;
      const v = Math.sqrt(u * u + 4);
      cr = 2 / v;
      sr = u / v;
      cl = (cr + sr * m) / half;
      sl = ((H / F) * sr) / half;
    }
  }
  if (turned) [cl, sl, cr, sr] = [sr, cr, sl, cl];
  const s = wide ? sign(1, sr) * sign(1, cl) * sign(1, g) : turned ? sign(1, sr) * sign(1, sl) * sign(1, h) : sign(1, cr) * sign(1, cl) * sign(1, f);
  return [sign(least, s * sign(1, f) * sign(1, h)), sign(most, s), sr, cr, sl, cl];
}

/** The singular values of a bidiagonal matrix in the place of d, in no order; rotations go to the columns of U and V. Gives info. */
function implicitQr(d, e, U, V) {
  const n = d.length;
  const tol = EPS * 0.5 * Math.max(10, Math.min(100, (EPS / 2) ** -0.125));
  let least = Math.abs(d[0]);
  for (let i = 1, mu = least; i < n && least > 0; i++) {
    mu = Math.abs(d[i]) * (mu / (mu + Math.abs(e[i - 1])));
    least = Math.min(least, mu);
  }
  const threshold = Math.max((tol * least) / Math.sqrt(n), 6 * n * n * TINY);
  const turn = (X, c, s, i, j) => X && rotate(n, c, s, X, i * n, X, j * n);
  let steps = 6 * n * n;
  let [oldFrom, oldTo, down] = [-1, -1, true];
  for (let to = n - 1; to > 0; ) {
    if (steps < 0) return e.filter((t) => t !== 0).length;
    // the block from..to that nothing links to the rest
    let most = Math.abs(d[to]);
    let from = to;
    for (; from > 0; from--) {
      const link = Math.abs(e[from - 1]);
      if (link <= threshold) {
        e[from - 1] = 0;
        break;
      }
      most = Math.max(most, Math.abs(d[from - 1]), link);
    }
    if (from === to) {
      to--;
      continue;
    }
    if (from === to - 1) {
      const [low, high, sr, cr, sl, cl] = two(d[from], e[from], d[to]);
      [d[from], e[from], d[to]] = [high, 0, low];
      turn(V, cr, sr, from, to);
      turn(U, cl, sl, from, to);
      to -= 2;
      continue;
    }
    // downwards or upwards, from the larger end on
    if (from > oldTo || to < oldFrom) down = Math.abs(d[from]) >= Math.abs(d[to]);
    const s = down ? 1 : -1;
    const link = down ? 0 : -1; // e[i + link] is between i and i + s
    const [first, last] = down ? [from, to] : [to, from];
    const end = last - s + link;
    if (Math.abs(e[end]) <= tol * Math.abs(d[last])) {
      e[end] = 0;
      continue;
    }
    let mu = Math.abs(d[first]);
    let small = mu;
    let split = false;
    for (let i = first; i !== last && !split; i += s) {
      split = Math.abs(e[i + link]) <= tol * mu;
      if (split) e[i + link] = 0;
      mu = Math.abs(d[i + s]) * (mu / (mu + Math.abs(e[i + link])));
      small = Math.min(small, mu);
    }
    if (split) continue;
    [oldFrom, oldTo] = [from, to];
    let shift = 0;
    if (n * tol * (small / most) > Math.max(EPS / 2, 0.01 * tol)) {
      shift = leastOfTwo(d[last - s], e[end], d[last]);
      if ((shift / Math.abs(d[first])) ** 2 < EPS / 2) shift = 0;
    }
    steps -= to - from;
    const [A, B] = down ? [V, U] : [U, V];
    let c = 1;
    let t = 0;
    let C = 1;
    let T = 0;
    let r = 0;
    if (shift === 0) {
      for (let i = first; i !== last; i += s) {
        [c, t, r] = givens(d[i] * c, e[i + link]);
        if (i !== first) e[i - s + link] = T * r;
        [C, T, d[i]] = givens(C * r, d[i + s] * t);
        turn(A, c, t, i, i + s);
        turn(B, C, T, i, i + s);
      }
      const h = d[last] * c;
      d[last] = h * C;
      e[end] = h * T;
    } else {
      let f = (Math.abs(d[first]) - shift) * (sign(1, d[first]) + shift / d[first]);
      let g = e[first + link];
      for (let i = first; i !== last; i += s) {
        [c, t, r] = givens(f, g);
        if (i !== first) e[i - s + link] = r;
        f = c * d[i] + t * e[i + link];
        e[i + link] = c * e[i + link] - t * d[i];
        g = t * d[i + s];
        d[i + s] *= c;
        [C, T, d[i]] = givens(f, g);
        f = C * e[i + link] + T * d[i + s];
        d[i + s] = C * d[i + s] - T * e[i + link];
        if (i + s !== last) {
          g = T * e[i + s + link];
          e[i + s + link] *= C;
        }
        turn(A, c, t, i, i + s);
        turn(B, C, T, i, i + s);
      }
      e[end] = f;
    }
    if (Math.abs(e[end]) <= threshold) e[end] = 0;
  }
  return 0;
}

/** U, the values, decreasing, V^H and info; with `full`, U and V are square. Without `vectors`, the values and info. */
function svd(A, full, vectors) {
  const k = Math.min(A.m, A.n);
  const turned = A.m < A.n;
  const X = turned ? adjoint(A) : A;
  const { m, n } = X;
  const bad = !finite(X.x);
  const by = intoRange(X.x);
  const { d, e, left, right, P } = bidiagonal(bad ? matrix(m, n) : X);
  const [Ub, Vb] = [0, 1].map(() => {
    const Z = vectors && new Float64Array(n * n);
    for (let i = 0; i < n && Z; i++) Z[i * n + i] = 1;
    return Z;
  });
  const info = wide([bad ? -1 : implicitQr(d, e, Ub, Vb)]);
  const order = Array.from(d.keys()).sort((i, j) => Math.abs(d[j]) - Math.abs(d[i]));
  const values = wide(order.map((i) => Math.abs(d[i]) * by));
  if (!vectors) return [values, info];
  const U = eye(m, full ? m : k);
  const V = matrix(n, n);
  order.forEach((from, j) => {
    for (let i = 0; i < n; i++) {
      U.x[(j * m + i) * W] = Ub[from * n + i];
      V.x[(j * n + i) * W] = Vb[from * n + i] * sign(1, d[from]);
    }
  });
  apply(X, left, 0, U);
  apply(P, right, 1, V);
  // V^H row by row is the conjugate of V column by column
  return turned ? [V.x, values, adjoint(U).x, info] : [U.x, values, adjoint(V).x, info];
}

// Eigenvalues of any matrix, as LAPACK's geev: balanced (gebal), reduced to Hessenberg form (gehd2), then shifted QR down to Schur form
// (real: lahqr with double shifts; complex: Golub and Van Loan, 7.3 to 7.5), whose vectors are found from the last row up (trevc).

/** Rows and columns that have an eigenvalue of their own are moved out of `from`..`to`; the rest is scaled by powers of two. */
function balance({ m, x }) {
  const scales = new Float64Array(m).fill(1);
  const at = (i, j) => (j * m + i) * W;
  let from = 0;
  let to = m - 1;
  const exchange = (i, j) => {
    if (i === j) return;
    swap(m * W, x, at(0, i), x, at(0, j));
    for (let c = 0; c < m; c++) swap(W, x, at(i, c), x, at(j, c));
  };
  const alone = (i, turned) => {
    for (let j = from; j <= to; j++) if (j !== i && size(x, turned ? at(j, i) : at(i, j)) !== 0) return false;
    return true;
  };
  for (let again = true; again && to > 0; ) {
    again = false;
    for (let i = to; i >= 0 && to > 0; i--)
      if (alone(i, false)) {
        scales[to] = i;
        exchange(i, to--);
        again = true;
      }
  }
  for (let again = to > 0; again; ) {
    again = false;
    for (let j = from; j <= to && from < to; j++)
      if (alone(j, true)) {
        scales[from] = j;
        exchange(j, from++);
        again = true;
      }
  }
  for (let again = true; again; ) {
    again = false;
    for (let i = from; i <= to; i++) {
      let c = Math.sqrt(dot(to - from + 1, x, at(from, i), x, at(from, i)));
      let r = 0;
      for (let j = from; j <= to; j++) r += size(x, at(i, j)) ** 2;
      r = Math.sqrt(r);
      if (c === 0 || r === 0) continue;
      let f = 1;
      const sum = c + r;
      for (; c < r / 2 && f < 1e120; c *= 2, r /= 2) f *= 2;
      for (; c / 2 >= r && f > 1e-120; c /= 2, r *= 2) f /= 2;
      if (c + r >= 0.95 * sum) continue;
      scales[i] *= f;
      again = true;
      for (let j = 0; j < m; j++) scale(1, 1 / f, 0, x, at(i, j));
      scale(m, f, 0, x, at(0, i));
    }
  }
  return { from, to, scales };
}

/** Q^H A Q in the place of A, zero below the subdiagonal between `from` and `to`. Gives Q, if it is wanted. */
function hessenberg(A, from, to, wanted) {
  const { m, x } = A;
  const taus = new Float64Array(Math.max(m - 1, 0) * W);
  const betas = [];
  const w = new Float64Array(m * W);
  for (let k = from; k < to - 1; k++) {
    const n = to - k;
    const v = (k * m + k + 1) * W;
    betas[k] = reflector(n, x, v);
    const [re, im] = [TAU, TAU_IM];
    taus[k * W] = re;
    if (W === 2) taus[k * W + 1] = im;
    w.fill(0);
    for (let j = 0; j < n; j++)
      axpy(to + 1, x[v + j * W], W === 2 ? x[v + j * W + 1] : 0, x, (k + 1 + j) * m * W, w, 0);
    scale(to + 1, re, im, w, 0);
    for (let j = 0; j < n; j++)
      axpy(to + 1, -x[v + j * W], W === 2 ? x[v + j * W + 1] : 0, w, 0, x, (k + 1 + j) * m * W);
    for (let j = k + 1; j < m; j++) reflect(n, re, -im, x, v, x, (j * m + k + 1) * W);
  }
  const Q = wanted && eye(m, m);
  if (Q) apply(A, taus, 1, Q, (i) => i + 1);
  for (let k = from; k < to - 1; k++) {
    const v = (k * m + k + 1) * W;
    x.fill(0, v, (k + 1) * m * W);
    x[v] = betas[k];
  }
  return Q;
}

/** The first row of the block that ends with row `i`: what links it to the rows above counts as zero (Ahues and Tisseur). */
function blockOf({ m, x }, i, from, to) {
  const tiny = TINY * ((to - from + 1) / EPS);
  const at = (r, c) => (c * m + r) * W;
  let k = i;
  for (; k > from; k--) {
    const low = size(x, at(k, k - 1));
    if (low <= tiny) break;
    const d = size(x, at(k, k));
    let near = size(x, at(k - 1, k - 1)) + d;
    if (near === 0) {
      if (k - 2 >= from) near += size(x, at(k - 1, k - 2));
      if (k + 1 <= to) near += size(x, at(k + 1, k));
    }
    if (low > EPS * near) continue;
    const high = size(x, at(k - 1, k));
    let apart = Math.abs(x[at(k - 1, k - 1)] - x[at(k, k)]);
    if (W === 2) apart += Math.abs(x[at(k - 1, k - 1) + 1] - x[at(k, k) + 1]);
    const [ab, ba] = [Math.max(low, high), Math.min(low, high)];
    const [aa, bb] = [Math.max(d, apart), Math.min(d, apart)];
    if (ba * (ab / (aa + ab)) <= Math.max(tiny, EPS * (bb * (aa / (aa + ab))))) break;
  }
  if (k > from) x.fill(0, at(k, k - 1), at(k, k - 1) + W);
  return k;
}

/** The real Schur form of [[a, b], [c, d]] (dlanv2): its elements, and the rotation. */
function standard(a, b, c, d) {
  if (c === 0) return [a, b, c, d, 1, 0];
  if (b === 0) return [d, -c, 0, a, 0, 1];
  if (a === d && b < 0 !== c < 0) return [a, b, c, d, 1, 0];
  let p = (a - d) / 2;
  const most = Math.max(Math.abs(b), Math.abs(c));
  const least = Math.min(Math.abs(b), Math.abs(c)) * sign(1, b) * sign(1, c);
  const s = Math.max(Math.abs(p), most);
  let z = (p / s) * p + (most / s) * least;
  if (z >= 2 * EPS) {
    z = p + sign(Math.sqrt(s) * Math.sqrt(z), p);
    const t = Math.hypot(c, z);
    return [d + z, b - c, 0, d - (most / z) * least, z / t, c / t];
  }
  const sum = b + c;
  let t = Math.hypot(sum, a - d);
  let cs = Math.sqrt((1 + Math.abs(sum) / t) / 2);
  let sn = -(p / (t * cs)) * sign(1, sum);
  const [aa, bb, cc, dd] = [a * cs + b * sn, b * cs - a * sn, c * cs + d * sn, d * cs - c * sn];
  [a, b, c, d] = [aa * cs + cc * sn, bb * cs + dd * sn, cc * cs - aa * sn, dd * cs - bb * sn];
  const half = (a + d) / 2;
  a = d = half;
  if (c === 0) return [a, b, c, d, cs, sn];
  if (b === 0) return [a, -c, 0, d, -sn, cs];
  if (b < 0 !== c < 0) return [a, b, c, d, cs, sn];
  // two real ones
  const [rb, rc] = [Math.sqrt(Math.abs(b)), Math.sqrt(Math.abs(c))];
  p = sign(rb * rc, c);
  t = 1 / Math.sqrt(Math.abs(b + c));
  const [c1, s1] = [rb * t, rc * t];
  [cs, sn] = [cs * c1 - sn * s1, cs * s1 + sn * c1];
  return [half + p, b - c, 0, half - p, cs, sn];
}

/** The real Schur form of a Hessenberg matrix in its place, blocks of two standardised; Q goes along. Without Q the blocks alone are right. */
function realSchur(H, Q, from, to) {
  const { m, x } = H;
  const at = (i, j) => j * m + i;
  const h = (i, j) => x[j * m + i];
  for (let i = to, stuck = 0; i >= from; ) {
    const l = blockOf(H, i, from, to);
    const [first, last] = Q ? [0, m - 1] : [l, i];
    if (l >= i - 1) {
      if (l === i - 1) {
        const [a, b, c, d, cs, sn] = standard(h(l, l), h(l, i), h(i, l), h(i, i));
        [x[at(l, l)], x[at(l, i)], x[at(i, l)], x[at(i, i)]] = [a, b, c, d];
        if (Q) {
          for (let j = i + 1; j < m; j++) rotate(1, cs, sn, x, at(l, j), x, at(i, j));
          rotate(l, cs, sn, x, at(0, l), x, at(0, i));
          rotate(m, cs, sn, Q.x, at(0, l), Q.x, at(0, i));
        }
      }
      i = l - 1;
      stuck = 0;
      continue;
    }
    if (stuck++ > 30 * Math.max(10, m)) return i + 1;
    let [a, b, c, d] = [h(i - 1, i - 1), h(i - 1, i), h(i, i - 1), h(i, i)];
    if (stuck % 10 === 0) {
      const s = stuck % 20 === 0 ? Math.abs(h(i, i - 1)) + Math.abs(h(i - 1, i - 2)) : Math.abs(h(l + 1, l)) + Math.abs(h(l + 2, l + 1));
      a = d = 0.75 * s + (stuck % 20 === 0 ? h(i, i) : h(l, l));
      b = -0.4375 * s;
      c = s;
    }
    // the two shifts
    const s = Math.abs(a) + Math.abs(b) + Math.abs(c) + Math.abs(d);
    let [r1, i1, r2, i2] = [0, 0, 0, 0];
    if (s !== 0) {
      const half = (a / s + d / s) / 2;
      const det = (a / s - half) * (d / s - half) - (b / s) * (c / s);
      const root = Math.sqrt(Math.abs(det));
      if (det >= 0) {
        r1 = r2 = half * s;
        i1 = root * s;
        i2 = -i1;
      } else {
        const [p, q] = [half + root, half - root];
        r1 = r2 = (Math.abs(p - d / s) <= Math.abs(q - d / s) ? p : q) * s;
      }
    }
    let v = new Float64Array(3);
    let k = i - 2;
    for (; ; k--) {
      const e = Math.abs(h(k + 1, k));
      const t = Math.abs(h(k, k) - r2) + Math.abs(i2) + e;
      const f = h(k + 1, k) / t;
      v.set([
        f * h(k, k + 1) + (h(k, k) - r1) * ((h(k, k) - r2) / t) - i1 * (i2 / t),
        f * (h(k, k) + h(k + 1, k + 1) - r1 - r2),
        f * h(k + 2, k + 1),
      ]);
      const sum = Math.abs(v[0]) + Math.abs(v[1]) + Math.abs(v[2]);
      v = v.map((y) => y / sum);
      if (k === l) break;
      const near = Math.abs(h(k - 1, k - 1)) + Math.abs(h(k, k)) + Math.abs(h(k + 1, k + 1));
      if (Math.abs(h(k, k - 1)) * (Math.abs(v[1]) + Math.abs(v[2])) <= EPS * Math.abs(v[0]) * near) break;
    }
    for (const start = k; k < i; k++) {
      const n = Math.min(3, i - k + 1);
      if (k > start) v = x.slice(at(k, k - 1), at(k, k - 1) + n);
      const beta = reflector(n, v, 0);
      const t1 = TAU;
      if (k > start) {
        x.fill(0, at(k, k - 1), at(k, k - 1) + n);
        x[at(k, k - 1)] = beta;
      } else if (k > l) x[at(k, k - 1)] *= 1 - t1;
      const v2 = v[1];
      const v3 = n === 3 ? v[2] : 0;
      const step = n === 3 ? m : 0; // of two rows, the third is one that v3 = 0 leaves alone
      const more = n === 3 ? 1 : 0;
      for (let p = at(k, k), end = at(k, last); p <= end; p += m) {
        const sum = t1 * (x[p] + v2 * x[p + 1] + v3 * x[p + 1 + more]);
        x[p] -= sum;
        x[p + 1] -= sum * v2;
        x[p + 1 + more] -= sum * v3;
      }
      const columns = (y, p, end) => {
        for (; p <= end; p++) {
          const sum = t1 * (y[p] + v2 * y[p + m] + v3 * y[p + m + step]);
          y[p] -= sum;
          y[p + m] -= sum * v2;
          y[p + m + step] -= sum * v3;
        }
      };
      columns(x, at(first, k), at(Math.min(k + 3, i), k));
      if (Q) columns(Q.x, at(0, k), at(m - 1, k));
    }
  }
  return 0;
}

/** (x, y) = (c x + s y, c* y - s* x) of n elements; with `rows` the elements are a column's length apart. */
function unitary(n, [cr, ci, sr, si], x, p, q, step) {
  for (let end = p + n * step; p < end; p += step, q += step) {
    const [a, b, c, d] = [x[p], x[p + 1], x[q], x[q + 1]];
    x[p] = cr * a - ci * b + sr * c - si * d;
    x[p + 1] = cr * b + ci * a + sr * d + si * c;
    x[q] = cr * c + ci * d - sr * a - si * b;
    x[q + 1] = cr * d - ci * c - sr * b + si * a;
  }
}

/** The square root: gives the real part. */
function root(re, im) {
  const r = Math.sqrt((Math.hypot(re, im) + Math.abs(re)) / 2);
  if (r === 0) {
    IM = 0;
    return 0;
  }
  IM = re >= 0 ? im / (2 * r) : sign(r, im);
  return re >= 0 ? r : Math.abs(im) / (2 * r);
}

/** The same of complex matrices: single shifts (Wilkinson's), by plane rotations. */
function complexSchur(H, Q, from, to) {
  const { m, x } = H;
  const at = (i, j) => 2 * (j * m + i);
  for (let i = to, stuck = 0; i >= from; ) {
    const l = blockOf(H, i, from, to);
    if (l === i) {
      i--;
      stuck = 0;
      continue;
    }
    if (stuck++ > 30 * Math.max(10, m)) return i + 1;
    const e = at(i, i);
    let [re, im] = [x[e], x[e + 1]];
    if (stuck % 10 === 0) re += 0.75 * (stuck % 20 === 0 ? size(x, at(i, i - 1)) : size(x, at(l + 1, l)));
    else {
      // the eigenvalue of the last block of two that is nearer to its last element
      const [br, bi, cr, ci] = [...x.subarray(at(i - 1, i), at(i - 1, i) + 2), ...x.subarray(at(i, i - 1), at(i, i - 1) + 2)];
      const [ur, ui] = [br * cr - bi * ci, br * ci + bi * cr];
      const [pr, pi] = [(x[at(i - 1, i - 1)] - re) / 2, (x[at(i - 1, i - 1) + 1] - im) / 2];
      let yr = root(pr * pr - pi * pi + ur, 2 * pr * pi + ui);
      let yi = IM;
      if (pr * yr + pi * yi < 0) [yr, yi] = [-yr, -yi];
      if (ur !== 0 || ui !== 0) {
        re -= ratio(ur, ui, pr + yr, pi + yi);
        im -= IM;
      }
    }
    const shift = (by) => {
      for (let j = l; j <= i; j++) {
        x[at(j, j)] += by * re;
        x[at(j, j) + 1] += by * im;
      }
    };
    const [first, last] = Q ? [0, m - 1] : [l, i];
    shift(-1);
    const turns = [];
    for (let k = l; k < i; k++) {
      const [ar, ai, br, bi] = x.subarray(at(k, k), at(k, k) + 4);
      const r = Math.sqrt(ar * ar + ai * ai + br * br + bi * bi);
      const turn = r === 0 ? [1, 0, 0, 0] : [ar / r, ai / r, br / r, bi / r];
      turns.push(turn);
      const [cr, ci, sr, si] = turn;
      unitary(last - k + 1, [cr, -ci, sr, -si], x, at(k, k), at(k + 1, k), 2 * m);
      x.fill(0, at(k + 1, k), at(k + 1, k) + 2);
    }
    turns.forEach((turn, j) => {
      const k = l + j;
      unitary(k + 2 - first, turn, x, at(first, k), at(first, k + 1), 2);
      if (Q) unitary(m, turn, Q.x, at(0, k), at(0, k + 1), 2);
    });
    shift(1);
  }
  return 0;
}

/** Solves (T - w) v = 0 for v, complex, where w is the eigenvalue at k: v is 1 there and 0 below. T may have blocks of two. */
function schurVector({ m, x }, k, wr, wi) {
  const t = (i, j) => x[(j * m + i) * W];
  const ti = (i, j) => (W === 2 ? x[(j * m + i) * W + 1] : 0);
  const v = new Float64Array(2 * m);
  const least = Math.max(EPS * (Math.abs(wr) + Math.abs(wi)), TINY * (m / EPS));
  const spread = (j, top) => {
    const [re, im] = [v[2 * j], v[2 * j + 1]];
    for (let i = 0, p = j * m * W; i < top; i++, p += W) {
      const b = W === 2 ? x[p + 1] : 0;
      v[2 * i] -= x[p] * re - b * im;
      v[2 * i + 1] -= x[p] * im + b * re;
    }
  };
  v[2 * k] = 1;
  if (W === 1 && wi !== 0) {
    if (Math.abs(t(k, k + 1)) >= Math.abs(t(k + 1, k))) v[2 * k + 3] = wi / t(k, k + 1);
    else {
      v[2 * k] = -wi / t(k + 1, k);
      v[2 * k + 3] = 1;
    }
    spread(k + 1, k);
  }
  spread(k, k);
  for (let j = k - 1; j >= 0; j--) {
    const a = 2 * j;
    let [dr, di] = [t(j, j) - wr, ti(j, j) - wi];
    if (W === 1 && j > 0 && t(j, j - 1) !== 0) {
      // [[e, b], [c, d]] (p, q) = (r, s), e = d but for rounding
      const [b, c, er] = [t(j - 1, j), t(j, j - 1), t(j - 1, j - 1) - wr];
      const [rr, ri, sr, si] = v.subarray(a - 2, a + 2);
      let [gr, gi] = [er * dr - wi * wi - b * c, -wi * (er + dr)];
      if (Math.abs(gr) + Math.abs(gi) < least * least) [gr, gi] = [least * least, 0];
      v[a - 2] = ratio(dr * rr + wi * ri - b * sr, dr * ri - wi * rr - b * si, gr, gi);
      v[a - 1] = IM;
      v[a] = ratio(er * sr + wi * si - c * rr, er * si - wi * sr - c * ri, gr, gi);
      v[a + 1] = IM;
      spread(j, j - 1);
      j--;
      spread(j, j);
    } else {
      if (Math.abs(dr) + Math.abs(di) < least) [dr, di] = [least, 0];
      v[a] = ratio(v[a], v[a + 1], dr, di);
      v[a + 1] = IM;
      spread(j, j);
    }
    const most = Math.abs(v[2 * j]) + Math.abs(v[2 * j + 1]);
    if (most > 1e100) for (let i = 0; i < 2 * m; i++) v[i] /= most;
  }
  return v;
}

/** Eigenvalues and vectors of length 1, both complex: two numbers each; and info. */
function eig(A, vectors) {
  const { m } = A;
  const fine = finite(A.x);
  if (!fine) A.x.fill(0);
  const by = intoRange(A.x);
  const { from, to, scales } = balance(A);
  const Q = hessenberg(A, from, to, vectors);
  const info = (W === 1 ? realSchur : complexSchur)(A, Q, from, to);
  const at = (i, j) => (j * m + i) * W;
  const values = new Float64Array(2 * m);
  const V = new Float64Array(2 * m * m);
  for (let j = 0; j < m; j++) {
    const pair = W === 1 && j < m - 1 && A.x[at(j + 1, j)] !== 0;
    values[2 * j] = A.x[at(j, j)];
    values[2 * j + 1] = W === 2 ? A.x[at(j, j) + 1] : pair ? Math.sqrt(Math.abs(A.x[at(j, j + 1)])) * Math.sqrt(Math.abs(A.x[at(j + 1, j)])) : 0;
    if (vectors && fine) {
      const v = V.subarray(2 * m * j, 2 * m * (j + 1));
      v.set(unbalanced(Q, schurVector(A, j, values[2 * j], values[2 * j + 1]), from, to, scales));
      normalise(v, W === 2 || pair);
      if (pair) for (let i = 0; i < 2 * m; i++) V[2 * m * (j + 1) + i] = i % 2 ? -v[i] : v[i];
    }
    if (!pair) continue;
    values[2 * j + 2] = values[2 * j];
    values[2 * j + 3] = -values[2 * j + 1];
    j++;
  }
  for (let i = 0; i < 2 * m; i++) values[i] = fine ? values[i] * by : NaN;
  return [values, ...(vectors ? [V] : []), wide([fine ? info : -1])];
}

/** Q v, scaled and permuted back. */
function unbalanced(Q, v, from, to, scales) {
  const m = Q.m;
  const y = new Float64Array(2 * m);
  for (let j = 0; j < m; j++) {
    const [re, im] = [v[2 * j], v[2 * j + 1]];
    if (re === 0 && im === 0) continue;
    for (let i = 0, p = j * m * W; i < m; i++, p += W) {
      const b = W === 2 ? Q.x[p + 1] : 0;
      y[2 * i] += Q.x[p] * re - b * im;
      y[2 * i + 1] += Q.x[p] * im + b * re;
    }
  }
  for (let i = from; i <= to; i++) for (const w of [0, 1]) y[2 * i + w] *= scales[i];
  for (let i = from - 1; i >= 0; i--) swap(2, y, 2 * i, y, 2 * scales[i]);
  for (let i = to + 1; i < m; i++) swap(2, y, 2 * i, y, 2 * scales[i]);
  return y;
}

/** To length 1; the largest element of a complex vector becomes real. */
function normalise(v, isComplex) {
  let [length, most, k] = [0, -1, 0];
  const top = v.reduce((a, b) => Math.max(a, Math.abs(b)), 0) || 1;
  for (let i = 0; i < v.length; i += 2) {
    const s = (v[i] / top) ** 2 + (v[i + 1] / top) ** 2;
    length += s;
    if (s > most) [most, k] = [s, i];
  }
  length = top * Math.sqrt(length);
  let [c, s] = [1, 0];
  if (isComplex) {
    const r = Math.hypot(v[k], v[k + 1]);
    [c, s] = W === 2 ? [v[k] / r, v[k + 1] / r] : givens(v[k], v[k + 1]);
  }
  for (let i = 0; i < v.length; i += 2) {
    const [a, b] = [v[i] / length, v[i + 1] / length];
    v[i] = c * a + s * b;
    v[i + 1] = c * b - s * a;
  }
  if (isComplex) v[k + 1] = 0;
}

// out[b, m, n] = sum over k of a[b, m, k] * c[b, k, n] on the cpu device: wgsl/matmul_registers.wgsl in JavaScript.
// Two rows and four columns at once, so that a value that was read serves several products. What k contributes to an
// address is worked out once for all rows and columns. Sums are doubles.
const M = size_M(), N = size_N(), K = size_K(), batches = size_B();
const sa = new Uint32Array(K), sb = new Uint32Array(K), columns = new Uint32Array(N + 3);
for (let k = 0; k < K; k++) {
  sa[k] = step_a(k);
  sb[k] = step_b(k);
}
for (let b = 0; b < batches; b++) {
  for (let n = 0; n < N + 3; n++) columns[n] = row_b(b, n < N ? n : N - 1);
  for (let m = 0; m < M; m += 2) {
    const two = m + 1 < M;
    const r0 = row_a(b, m), r1 = row_a(b, two ? m + 1 : m);
    for (let n = 0; n < N; n += 4) {
      const c0 = columns[n], c1 = columns[n + 1], c2 = columns[n + 2], c3 = columns[n + 3];
      let x0 = 0, x1 = 0, x2 = 0, x3 = 0, y0 = 0, y1 = 0, y2 = 0, y3 = 0;
      for (let k = 0; k < K; k++) {
        const s = sa[k], t = sb[k];
        const p = load_a((r0 + s) >>> 0), q = load_a((r1 + s) >>> 0);
        const v0 = load_b((c0 + t) >>> 0), v1 = load_b((c1 + t) >>> 0), v2 = load_b((c2 + t) >>> 0), v3 = load_b((c3 + t) >>> 0);
        x0 += p * v0;
        x1 += p * v1;
        x2 += p * v2;
        x3 += p * v3;
        y0 += q * v0;
        y1 += q * v1;
        y2 += q * v2;
        y3 += q * v3;
      }
      store_out(b, m, n, x0);
      if (n + 1 < N) store_out(b, m, n + 1, x1);
      if (n + 2 < N) store_out(b, m, n + 2, x2);
      if (n + 3 < N) store_out(b, m, n + 3, x3);
      if (two) {
        store_out(b, m + 1, n, y0);
        if (n + 1 < N) store_out(b, m + 1, n + 1, y1);
        if (n + 2 < N) store_out(b, m + 1, n + 2, y2);
        if (n + 3 < N) store_out(b, m + 1, n + 3, y3);
      }
    }
  }
}

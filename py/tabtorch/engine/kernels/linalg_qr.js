// Householder's QR (LAPACK's geqr2 and org2r; Golub and Van Loan, 5.2). `mode`: 0 R and the vectors, and tau; 1 reduced; 2 complete.

function qr(A, mode) {
  const { m, n, x } = A;
  const k = Math.min(m, n);
  const by = intoRange(x);
  const tau = wide(Array(k).fill(0));
  const R = matrix(mode === 2 ? m : k, n);
  for (let i = 0; i < k; i++) {
    const at = (i * m + i) * W;
    const beta = reflector(m - i, x, at);
    tau[i * W] = TAU;
    if (W === 2) tau[i * W + 1] = TAU_IM;
    const im = TAU_IM;
    for (let j = i + 1; j < n; j++) reflect(m - i, TAU, -im, x, at, x, (j * m + i) * W);
    x[at] = beta;
  }
  if (by !== 1)
    for (let j = 0; j < n; j++) for (let i = j * m * W; i < (j * m + Math.min(j + 1, m)) * W; i++) x[i] *= by;
  if (mode === 0) return [x, tau];
  for (let j = 0; j < n; j++)
    R.x.set(x.subarray(j * m * W, (j * m + Math.min(j + 1, k)) * W), j * R.m * W);
  const Q = eye(m, R.m);
  apply(A, tau, 0, Q, (i) => i);
  return [Q.x, R.x];
}

// out[b, m, n] = sum over k of a[b, m, k] * c[b, k, n], with no workgroup memory: for adapters on which a barrier is dear.
//
// A thread makes 8 x 4 results in registers, so that a value of a serves four of them and one of c eight: on such adapters
// loads are what costs. The parts of an address that belong to the row, the column and k are kept apart, so that none is
// computed again inside the loop. Rows and columns past the end read the last one again and are not stored. Sums go in
// blocks of 256, so that rounding errors grow with the number of blocks.
//
// The engine writes: size_M/N/K(); row_a(b, m) + step_a(k), the place of a[b, m, k]; row_b(b, n) + step_b(k);
// load_a(place), load_b(place); store_out(b, m, n, value).

override WG_X: u32 = 8;
override WG_Y: u32 = 4;

@compute @workgroup_size(WG_X, WG_Y, 1)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
  let M = size_M();
  let N = size_N();
  let K = size_K();
  let batch = gid.z;
  let m0 = gid.y * 8u;
  let n0 = gid.x * 4u;
  if (m0 >= M || n0 >= N) { return; }
  let r0 = row_a(batch, m0);
  let r1 = row_a(batch, min(m0 + 1u, M - 1u));
  let r2 = row_a(batch, min(m0 + 2u, M - 1u));
  let r3 = row_a(batch, min(m0 + 3u, M - 1u));
  let r4 = row_a(batch, min(m0 + 4u, M - 1u));
  let r5 = row_a(batch, min(m0 + 5u, M - 1u));
  let r6 = row_a(batch, min(m0 + 6u, M - 1u));
  let r7 = row_a(batch, min(m0 + 7u, M - 1u));
  let c0 = row_b(batch, n0);
  let c1 = row_b(batch, min(n0 + 1u, N - 1u));
  let c2 = row_b(batch, min(n0 + 2u, N - 1u));
  let c3 = row_b(batch, min(n0 + 3u, N - 1u));
  var sum: array<vec4<f32>, 8>;
  for (var k0 = 0u; k0 < K; k0 += 256u) {
    let end = min(k0 + 256u, K);
    var acc0 = vec4<f32>();
    var acc1 = vec4<f32>();
    var acc2 = vec4<f32>();
    var acc3 = vec4<f32>();
    var acc4 = vec4<f32>();
    var acc5 = vec4<f32>();
    var acc6 = vec4<f32>();
    var acc7 = vec4<f32>();
    for (var k = k0; k < end; k++) {
      let s = step_b(k);
      let b = vec4(load_b(c0 + s), load_b(c1 + s), load_b(c2 + s), load_b(c3 + s));
      let t = step_a(k);
      acc0 += load_a(r0 + t) * b;
      acc1 += load_a(r1 + t) * b;
      acc2 += load_a(r2 + t) * b;
      acc3 += load_a(r3 + t) * b;
      acc4 += load_a(r4 + t) * b;
      acc5 += load_a(r5 + t) * b;
      acc6 += load_a(r6 + t) * b;
      acc7 += load_a(r7 + t) * b;
    }
    sum[0] += acc0;
    sum[1] += acc1;
    sum[2] += acc2;
    sum[3] += acc3;
    sum[4] += acc4;
    sum[5] += acc5;
    sum[6] += acc6;
    sum[7] += acc7;
  }
  for (var r = 0u; r < 8u; r++) {
    if (m0 + r >= M) { break; }
    for (var c = 0u; c < 4u; c++) {
      if (n0 + c < N) { store_out(batch, m0 + r, n0 + c, sum[r][c]); }
    }
  }
}

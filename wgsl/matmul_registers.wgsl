// out[b, m, n] = sum over k of a[b, m, k] * c[b, k, n], with no workgroup memory: for adapters on which a barrier is dear.
//
// A thread makes 4 x 4 results in registers, so that each value it reads serves four of them. Rows and columns past the end
// read the last one again and are not stored. Sums go in blocks of 256, so that rounding errors grow with the number of blocks.
//
// The engine writes: size_M/N/K(), load_a(b, m, k), load_b(b, k, n), store_out(b, m, n, value).

override WG_X: u32 = 8;
override WG_Y: u32 = 4;

@compute @workgroup_size(WG_X, WG_Y, 1)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
  let M = size_M();
  let N = size_N();
  let K = size_K();
  let batch = gid.z;
  let m0 = gid.y * 4u;
  let n0 = gid.x * 4u;
  if (m0 >= M || n0 >= N) { return; }
  let m1 = min(m0 + 1u, M - 1u);
  let m2 = min(m0 + 2u, M - 1u);
  let m3 = min(m0 + 3u, M - 1u);
  let n1 = min(n0 + 1u, N - 1u);
  let n2 = min(n0 + 2u, N - 1u);
  let n3 = min(n0 + 3u, N - 1u);
  var sum0 = vec4<f32>();
  var sum1 = vec4<f32>();
  var sum2 = vec4<f32>();
  var sum3 = vec4<f32>();
  for (var k0 = 0u; k0 < K; k0 += 256u) {
    let end = min(k0 + 256u, K);
    var acc0 = vec4<f32>();
    var acc1 = vec4<f32>();
    var acc2 = vec4<f32>();
    var acc3 = vec4<f32>();
    for (var k = k0; k < end; k++) {
      let b = vec4(load_b(batch, k, n0), load_b(batch, k, n1), load_b(batch, k, n2), load_b(batch, k, n3));
      acc0 += load_a(batch, m0, k) * b;
      acc1 += load_a(batch, m1, k) * b;
      acc2 += load_a(batch, m2, k) * b;
      acc3 += load_a(batch, m3, k) * b;
    }
    sum0 += acc0;
    sum1 += acc1;
    sum2 += acc2;
    sum3 += acc3;
  }
  for (var c = 0u; c < 4u; c++) {
    if (n0 + c >= N) { break; }
    store_out(batch, m0, n0 + c, sum0[c]);
    if (m0 + 1u < M) { store_out(batch, m0 + 1u, n0 + c, sum1[c]); }
    if (m0 + 2u < M) { store_out(batch, m0 + 2u, n0 + c, sum2[c]); }
    if (m0 + 3u < M) { store_out(batch, m0 + 3u, n0 + c, sum3[c]); }
  }
}

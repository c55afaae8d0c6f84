// out[b, m, n] = sum over k of a[b, m, k] * c[b, k, n], with no workgroup memory: for adapters on which a barrier is dear.
//
// A thread makes 8 x 8 results in registers, so that each value it loads serves eight of them: on such adapters loads are
// what costs. The parts of an address that belong to the row, the column and k are kept apart, so that none is worked out
// again inside the loop. Rows and columns past the end read the last one again and are not stored. Sums go in blocks of
// 256, so that rounding errors grow with the number of blocks. Nothing is an array: one that is indexed by a variable
// would lie in memory. What is done with a result stands there once, in a loop: such adapters write every call out in place,
// and what they take to compile a kernel grows with its length, faster than in proportion.
//
// The engine writes: size_M/N/K(); row_a(b, m) + step_a(k), the place of a[b, m, k]; row_b(b, n) + step_b(k);
// load_a(place), load_b(place); store_out(b, m, n, value).

override WG_X: u32 = 4;
override WG_Y: u32 = 4;

@compute @workgroup_size(WG_X, WG_Y, 1)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
  let M = size_M();
  let N = size_N();
  let K = size_K();
  let batch = gid.z;
  let m0 = gid.y * 8u;
  let n0 = gid.x * 8u;
  if (m0 >= M || n0 >= N) { return; }
  let r0 = row_a(batch, min(m0 + 0u, M - 1u));
  let r1 = row_a(batch, min(m0 + 1u, M - 1u));
  let r2 = row_a(batch, min(m0 + 2u, M - 1u));
  let r3 = row_a(batch, min(m0 + 3u, M - 1u));
  let r4 = row_a(batch, min(m0 + 4u, M - 1u));
  let r5 = row_a(batch, min(m0 + 5u, M - 1u));
  let r6 = row_a(batch, min(m0 + 6u, M - 1u));
  let r7 = row_a(batch, min(m0 + 7u, M - 1u));
  let c0 = row_b(batch, min(n0 + 0u, N - 1u));
  let c1 = row_b(batch, min(n0 + 1u, N - 1u));
  let c2 = row_b(batch, min(n0 + 2u, N - 1u));
  let c3 = row_b(batch, min(n0 + 3u, N - 1u));
  let c4 = row_b(batch, min(n0 + 4u, N - 1u));
  let c5 = row_b(batch, min(n0 + 5u, N - 1u));
  let c6 = row_b(batch, min(n0 + 6u, N - 1u));
  let c7 = row_b(batch, min(n0 + 7u, N - 1u));
  var lo0 = vec4<f32>();
  var hi0 = vec4<f32>();
  var lo1 = vec4<f32>();
  var hi1 = vec4<f32>();
  var lo2 = vec4<f32>();
  var hi2 = vec4<f32>();
  var lo3 = vec4<f32>();
  var hi3 = vec4<f32>();
  var lo4 = vec4<f32>();
  var hi4 = vec4<f32>();
  var lo5 = vec4<f32>();
  var hi5 = vec4<f32>();
  var lo6 = vec4<f32>();
  var hi6 = vec4<f32>();
  var lo7 = vec4<f32>();
  var hi7 = vec4<f32>();
  for (var k0 = 0u; k0 < K; k0 += 256u) {
    let end = min(k0 + 256u, K);
    var x0 = vec4<f32>();
    var y0 = vec4<f32>();
    var x1 = vec4<f32>();
    var y1 = vec4<f32>();
    var x2 = vec4<f32>();
    var y2 = vec4<f32>();
    var x3 = vec4<f32>();
    var y3 = vec4<f32>();
    var x4 = vec4<f32>();
    var y4 = vec4<f32>();
    var x5 = vec4<f32>();
    var y5 = vec4<f32>();
    var x6 = vec4<f32>();
    var y6 = vec4<f32>();
    var x7 = vec4<f32>();
    var y7 = vec4<f32>();
    for (var k = k0; k < end; k++) {
      let s = step_b(k);
      let t = step_a(k);
      let p = vec4(load_b(c0 + s), load_b(c1 + s), load_b(c2 + s), load_b(c3 + s));
      let q = vec4(load_b(c4 + s), load_b(c5 + s), load_b(c6 + s), load_b(c7 + s));
      let a0 = load_a(r0 + t);
      x0 += a0 * p;
      y0 += a0 * q;
      let a1 = load_a(r1 + t);
      x1 += a1 * p;
      y1 += a1 * q;
      let a2 = load_a(r2 + t);
      x2 += a2 * p;
      y2 += a2 * q;
      let a3 = load_a(r3 + t);
      x3 += a3 * p;
      y3 += a3 * q;
      let a4 = load_a(r4 + t);
      x4 += a4 * p;
      y4 += a4 * q;
      let a5 = load_a(r5 + t);
      x5 += a5 * p;
      y5 += a5 * q;
      let a6 = load_a(r6 + t);
      x6 += a6 * p;
      y6 += a6 * q;
      let a7 = load_a(r7 + t);
      x7 += a7 * p;
      y7 += a7 * q;
    }
    lo0 += x0;
    hi0 += y0;
    lo1 += x1;
    hi1 += y1;
    lo2 += x2;
    hi2 += y2;
    lo3 += x3;
    hi3 += y3;
    lo4 += x4;
    hi4 += y4;
    lo5 += x5;
    hi5 += y5;
    lo6 += x6;
    hi6 += y6;
    lo7 += x7;
    hi7 += y7;
  }
  for (var r = 0u; r < min(8u, M - m0); r++) {
    var x = lo0;
    var y = hi0;
    switch (r) {
      case 1u: { x = lo1; y = hi1; }
      case 2u: { x = lo2; y = hi2; }
      case 3u: { x = lo3; y = hi3; }
      case 4u: { x = lo4; y = hi4; }
      case 5u: { x = lo5; y = hi5; }
      case 6u: { x = lo6; y = hi6; }
      case 7u: { x = lo7; y = hi7; }
      default: {}
    }
    for (var c = 0u; c < min(8u, N - n0); c++) {
      store_out(batch, m0 + r, n0 + c, select(x, y, c > 3u)[c % 4u]);
    }
  }
}

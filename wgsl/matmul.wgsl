// out[b, m, n] = sum over k of a[b, m, k] * c[b, k, n], by tiles in workgroup memory.
//
// A workgroup of WG_X * WG_Y threads makes a tile of (8 WG_Y) x (8 WG_X) results; a thread makes 8 x 8 of them in registers.
// Each step brings TILE_K columns of a and rows of c into workgroup memory, so a value is read from global memory once per
// tile rather than once per result. Rows of a thread are 8 neighbours; its columns are two runs of 4 that lie half a tile apart,
// which keeps the threads of a subgroup on different banks.
//
// The engine writes: size_M/N/K(); row_a(b, m) + step_a(k), the place of a[b, m, k]; row_b(b, n) + step_b(k);
// load_a(place), load_b(place); store_out(b, m, n, value).

override WG_X: u32 = 16;
override WG_Y: u32 = 16;
override TILE_K: u32 = 16;

// a is kept transposed (k major), so that a thread reads its 8 rows as two vectors; a vector of padding a row keeps the
// threads that write a column apart
var<workgroup> tile_a: array<vec4<f32>, (WG_Y * 2u + 1u) * TILE_K>;
var<workgroup> tile_b: array<vec4<f32>, WG_X * 2u * TILE_K>;

@compute @workgroup_size(WG_X, WG_Y, 1)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(local_invocation_id) local: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
) {
  let M = size_M();
  let N = size_N();
  let K = size_K();
  let batch = group.z;
  let m0 = group.y * WG_Y * 8u;
  let n0 = group.x * WG_X * 8u;
  let threads = WG_X * WG_Y;
  var lo: array<vec4<f32>, 8>;
  var hi: array<vec4<f32>, 8>;

  for (var k0 = 0u; k0 < K; k0 += TILE_K) {
    // one vector of 4 rows (of a) or 4 columns (of b) a turn
    for (var t = thread; t < WG_Y * 2u * TILE_K; t += threads) {
      let k = k0 + t % TILE_K;
      let s = step_a(k);
      let m = m0 + t / TILE_K * 4u;
      var v = vec4<f32>();
      if (k < K) {
        if (m < M) { v.x = load_a(row_a(batch, m) + s); }
        if (m + 1u < M) { v.y = load_a(row_a(batch, m + 1u) + s); }
        if (m + 2u < M) { v.z = load_a(row_a(batch, m + 2u) + s); }
        if (m + 3u < M) { v.w = load_a(row_a(batch, m + 3u) + s); }
      }
      tile_a[(t % TILE_K) * (WG_Y * 2u + 1u) + t / TILE_K] = v;
    }
    for (var t = thread; t < WG_X * 2u * TILE_K; t += threads) {
      let k = k0 + t / (WG_X * 2u);
      let s = step_b(k);
      let n = n0 + t % (WG_X * 2u) * 4u;
      var v = vec4<f32>();
      if (k < K) {
        if (n < N) { v.x = load_b(row_b(batch, n) + s); }
        if (n + 1u < N) { v.y = load_b(row_b(batch, n + 1u) + s); }
        if (n + 2u < N) { v.z = load_b(row_b(batch, n + 2u) + s); }
        if (n + 3u < N) { v.w = load_b(row_b(batch, n + 3u) + s); }
      }
      tile_b[t] = v;
    }
    workgroupBarrier();
    for (var k = 0u; k < TILE_K; k++) {
      let a0 = tile_a[k * (WG_Y * 2u + 1u) + local.y * 2u];
      let a1 = tile_a[k * (WG_Y * 2u + 1u) + local.y * 2u + 1u];
      let b0 = tile_b[k * WG_X * 2u + local.x];
      let b1 = tile_b[k * WG_X * 2u + WG_X + local.x];
      lo[0] = fma(vec4(a0.x), b0, lo[0]);
      lo[1] = fma(vec4(a0.y), b0, lo[1]);
      lo[2] = fma(vec4(a0.z), b0, lo[2]);
      lo[3] = fma(vec4(a0.w), b0, lo[3]);
      lo[4] = fma(vec4(a1.x), b0, lo[4]);
      lo[5] = fma(vec4(a1.y), b0, lo[5]);
      lo[6] = fma(vec4(a1.z), b0, lo[6]);
      lo[7] = fma(vec4(a1.w), b0, lo[7]);
      hi[0] = fma(vec4(a0.x), b1, hi[0]);
      hi[1] = fma(vec4(a0.y), b1, hi[1]);
      hi[2] = fma(vec4(a0.z), b1, hi[2]);
      hi[3] = fma(vec4(a0.w), b1, hi[3]);
      hi[4] = fma(vec4(a1.x), b1, hi[4]);
      hi[5] = fma(vec4(a1.y), b1, hi[5]);
      hi[6] = fma(vec4(a1.z), b1, hi[6]);
      hi[7] = fma(vec4(a1.w), b1, hi[7]);
    }
    workgroupBarrier();
  }

  let n = n0 + local.x * 4u;
  let far = n + WG_X * 4u;
  for (var r = 0u; r < 8u; r++) {
    let m = m0 + local.y * 8u + r;
    if (m >= M) { break; }
    for (var c = 0u; c < 4u; c++) {
      if (n + c < N) { store_out(batch, m, n + c, lo[r][c]); }
      if (far + c < N) { store_out(batch, m, far + c, hi[r][c]); }
    }
  }
}

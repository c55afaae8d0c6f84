// out[b, m, n] = sum over k of a[b, m, k] * c[b, k, n], by tiles in workgroup memory.
//
// A workgroup of WG_X * WG_Y threads (8 or 16 each) makes a tile of (8 WG_Y) x (8 WG_X) results; a thread makes 8 x 8 of them
// in registers. Each step brings 8 columns of a and 8 rows of c into workgroup memory, so a value is read from global memory
// once per tile rather than once per result. The next step's values are fetched before this one's are multiplied, so that
// their way here is hidden. Rows of a thread are 8 neighbours; its columns are two runs of 4 that lie half a tile apart, which
// keeps the threads of a subgroup on different banks.
//
// Where a row begins is worked out once, and kept in workgroup memory beside the tiles: for a convolution that is a division
// or two. Threads that fetch together walk along k, or, with A_ROWS (B_ROWS), along the rows of a (columns of c): along
// whatever lies together in memory.
//
// DIRECT: each thread stores its results from where they are, which pays where k is long and nothing follows.
// A_FOUR (B_FOUR): four neighbours along what lies together are loaded at once. Where that is k, a thread has four places of
// one row, and writes them apart.
// RAGGED: k is no multiple of STEP, so each fetch has to ask whether it lies past the end (which costs a tenth of the whole).
//
// The engine writes: size_M/N(); batch_of(z), first_k(z), last_k(z), what a workgroup's z stands for: where results are few
// and k is long, it is cut and the parts are added by a second kernel; row_a(b, m) + step_a(k), the place of a[b, m, k];
// row_b(b, n) + step_b(k); load_a(place), load_b(place); load4_a(place), load4_b(place), of a multiple of four; store_out(z, m, n, value).

override WG_X: u32 = 16;
override WG_Y: u32 = 16;
override A_ROWS: bool = false;
override B_ROWS: bool = false;
override A_FOUR: bool = false;
override B_FOUR: bool = false;
override DIRECT: bool = false;
override RAGGED: bool = true;

const STEP = 8u; // of k

// Both k major, in vectors of 4 rows (columns); a vector of padding a row keeps the threads that write a column apart. Arrays of
// arrays, of which the outer place is a constant wherever much is read: the inner one is then checked once, not at each read.
var<workgroup> tile_a: array<array<vec4<f32>, 33>, STEP>;
var<workgroup> tile_b: array<array<vec4<f32>, 33>, STEP>;
var<workgroup> place_a: array<vec4<u32>, WG_Y * 2u>;
var<workgroup> place_b: array<vec4<u32>, WG_X * 2u>;

// a[4 rows g, k], where k lies in this workgroup's part; with A_FOUR and not A_ROWS it is a[row g, k to k + 3]
fn fetch_a(g: u32, k: u32, end: u32) -> vec4<f32> {
  if (RAGGED && k >= end) { return vec4<f32>(); }
  if (A_FOUR && A_ROWS) { return load4_a(place_a[g].x + step_a(k)); }
  if (A_FOUR) { return load4_a(place_a[g / 4u][g % 4u] + step_a(k)); }
  let p = place_a[g] + step_a(k);
  return vec4(load_a(p.x), load_a(p.y), load_a(p.z), load_a(p.w));
}

fn fetch_b(g: u32, k: u32, end: u32) -> vec4<f32> {
  if (RAGGED && k >= end) { return vec4<f32>(); }
  if (B_FOUR && B_ROWS) { return load4_b(place_b[g].x + step_b(k)); }
  if (B_FOUR) { return load4_b(place_b[g / 4u][g % 4u] + step_b(k)); }
  let p = place_b[g] + step_b(k);
  return vec4(load_b(p.x), load_b(p.y), load_b(p.z), load_b(p.w));
}

@compute @workgroup_size(WG_X, WG_Y, 1)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(local_invocation_id) local: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
) {
  let M = size_M();
  let N = size_N();
  let batch = batch_of(group.z);
  let end = last_k(group.z);
  let m0 = group.y * WG_Y * 8u;
  let n0 = group.x * WG_X * 8u;
  let threads = WG_X * WG_Y;

  // rows and columns past the last read the last again, and are not stored
  for (var t = thread; t < WG_Y * 2u; t += threads) {
    let m = min(vec4(m0 + t * 4u) + vec4(0u, 1u, 2u, 3u), vec4(M - 1u));
    place_a[t] = vec4(row_a(batch, m.x), row_a(batch, m.y), row_a(batch, m.z), row_a(batch, m.w));
  }
  for (var t = thread; t < WG_X * 2u; t += threads) {
    let n = min(vec4(n0 + t * 4u) + vec4(0u, 1u, 2u, 3u), vec4(N - 1u));
    place_b[t] = vec4(row_b(batch, n.x), row_b(batch, n.y), row_b(batch, n.z), row_b(batch, n.w));
  }
  workgroupBarrier();

  // what this thread brings each step: one vector of a, two where WG_X is 8; one of c, two where WG_Y is 8
  let other = thread + threads;
  let a_along = A_FOUR && !A_ROWS;
  let b_along = B_FOUR && !B_ROWS;
  let ga = select(select(thread / STEP, thread % (WG_Y * 2u), A_ROWS), thread / 2u, a_along);
  let ka = select(select(thread % STEP, thread / (WG_Y * 2u), A_ROWS), thread % 2u * 4u, a_along);
  let ha = select(select(other / STEP, other % (WG_Y * 2u), A_ROWS), other / 2u, a_along);
  let la = select(select(other % STEP, other / (WG_Y * 2u), A_ROWS), other % 2u * 4u, a_along);
  let gb = select(select(thread / STEP, thread % (WG_X * 2u), B_ROWS), thread / 2u, b_along);
  let kb = select(select(thread % STEP, thread / (WG_X * 2u), B_ROWS), thread % 2u * 4u, b_along);
  let hb = select(select(other / STEP, other % (WG_X * 2u), B_ROWS), other / 2u, b_along);
  let lb = select(select(other % STEP, other / (WG_X * 2u), B_ROWS), other % 2u * 4u, b_along);
  var k0 = first_k(group.z);
  var a = fetch_a(ga, k0 + ka, end);
  var b = fetch_b(gb, k0 + kb, end);
  var c = vec4<f32>();
  var d = vec4<f32>();
  if (WG_X == 8u) { c = fetch_a(ha, k0 + la, end); }
  if (WG_Y == 8u) { d = fetch_b(hb, k0 + lb, end); }

  var lo: array<vec4<f32>, 8>;
  var hi: array<vec4<f32>, 8>;
  for (; k0 < end; k0 += STEP) {
    if (a_along) {
      for (var j = 0u; j < 4u; j++) {  // unroll
        tile_a[ka + j][ga / 4u][ga % 4u] = a[j];
        if (WG_X == 8u) { tile_a[la + j][ha / 4u][ha % 4u] = c[j]; }
      }
    } else {
      tile_a[ka][ga] = a;
      if (WG_X == 8u) { tile_a[la][ha] = c; }
    }
    if (b_along) {
      for (var j = 0u; j < 4u; j++) {  // unroll
        tile_b[kb + j][gb / 4u][gb % 4u] = b[j];
        if (WG_Y == 8u) { tile_b[lb + j][hb / 4u][hb % 4u] = d[j]; }
      }
    } else {
      tile_b[kb][gb] = b;
      if (WG_Y == 8u) { tile_b[lb][hb] = d; }
    }
    workgroupBarrier();
    let next = k0 + STEP;
    if (next < end) {
      a = fetch_a(ga, next + ka, end);
      b = fetch_b(gb, next + kb, end);
      if (WG_X == 8u) { c = fetch_a(ha, next + la, end); }
      if (WG_Y == 8u) { d = fetch_b(hb, next + lb, end); }
    }
    for (var k = 0u; k < STEP; k++) {  // unroll
      let a0 = tile_a[k][local.y * 2u];
      let a1 = tile_a[k][local.y * 2u + 1u];
      let b0 = tile_b[k][local.x];
      let b1 = tile_b[k][WG_X + local.x];
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

  if (DIRECT) {
    let n = n0 + local.x * 4u;
    let far = n + WG_X * 4u;
    for (var r = 0u; r < 8u; r++) {  // unroll
      let m = m0 + local.y * 8u + r;
      if (m < M) {
        for (var c = 0u; c < 4u; c++) {  // unroll
          if (n + c < N) { store_out(group.z, m, n + c, lo[r][c]); }
          if (far + c < N) { store_out(group.z, m, far + c, hi[r][c]); }
        }
      }
    }
    return;
  }
  // results go out by way of workgroup memory, so that threads side by side store what lies side by side. The arrays
  // are indexed by constants only, else they lie in memory from the start; and what is done with a value stands here twice
  // alone, for it may be long: so the loop is not written out as the one above.
  for (var r = 0u; r < 8u; r++) {
    var x = lo[0];
    var y = hi[0];
    switch (r) {
      case 1u: { x = lo[1]; y = hi[1]; }
      case 2u: { x = lo[2]; y = hi[2]; }
      case 3u: { x = lo[3]; y = hi[3]; }
      case 4u: { x = lo[4]; y = hi[4]; }
      case 5u: { x = lo[5]; y = hi[5]; }
      case 6u: { x = lo[6]; y = hi[6]; }
      case 7u: { x = lo[7]; y = hi[7]; }
      default: {}
    }
    tile_a[thread / 32u][thread % 32u] = x;
    tile_b[thread / 32u][thread % 32u] = y;
    workgroupBarrier();
    for (var t = thread; t < threads * 4u; t += threads) {
      let m = m0 + t / (WG_X * 4u) * 8u + r;
      let n = n0 + t % (WG_X * 4u);
      if (m < M) {
        if (n < N) { store_out(group.z, m, n, tile_a[t / 128u][t / 4u % 32u][t % 4u]); }
        if (n + WG_X * 4u < N) { store_out(group.z, m, n + WG_X * 4u, tile_b[t / 128u][t / 4u % 32u][t % 4u]); }
      }
    }
    workgroupBarrier();
  }
}

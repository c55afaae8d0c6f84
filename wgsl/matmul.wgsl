// out[b, m, n] = sum over k of a[b, m, k] * c[b, k, n], by tiles in workgroup memory.
//
// A workgroup of WG_X * WG_Y threads (8 or 16 each) makes a tile of (8 WG_Y) x (8 WG_X) results; a thread makes 8 x 8 of them
// in registers. Each step brings STEP columns of a and as many rows of c into workgroup memory, so a value is read from global
// memory once per tile rather than once per result. The next step's values are fetched before this one's are multiplied, so
// that their way here is hidden. Rows of a thread are 8 neighbours; its columns are two runs of 4 that lie half a tile apart,
// which keeps the threads of a subgroup on different banks. Each 32 threads are 8 along x by 4 along y, neighbours with one y
// and every other with one x: so what both operands are read for is shared by pairs (1 to 3 % faster on an H200).
//
// Where a row begins is worked out once, and handed round in workgroup memory: for a convolution that is a division or two.
// Threads that fetch together walk along k, or, with A_ROWS (B_ROWS), along the rows of a (columns of c): along whatever lies
// together in memory.
//
// STORES, how results leave their registers: 0, where nothing is done with them, it stands here sixteen times; 1, in a loop that
// takes them two by two; 2, in a loop that takes them one by one, by way of memory: that needs fewer registers, which pays where
// another matrix is read for each and nothing else (4 to 17 % on an H200). With a bias it costs 5 %, with both 70 %.
// BASELINE: 1 for the text that compiles soonest, in two fifths of the time on an H200: a product of a step's columns is a loop, and
// what is done with a result stands here once. Same operations in the same order, so the same bits.
// A_FOUR (B_FOUR): four neighbours along what lies together are loaded at once. Where that is k, a thread has four places of
// one row, and writes them apart.
// A_TABLE (B_TABLE): step_a is long, a division or two, so that STEP threads work out those of the next step for all.
// RAGGED: k is no multiple of STEP, so each fetch has to ask whether it lies past the end (which costs a tenth of the whole).
//
// The engine writes: size_M/N(); batch_of(z), first_k(z), last_k(z), what a workgroup's z stands for: where results are few
// and k is long, it is cut and the parts are added by a second kernel; row_a(b, m) + step_a(k), the place of a[b, m, k];
// row_b(b, n) + step_b(k); load_a(place), load_b(place); load4_a(place), load4_b(place), of a multiple of four;
// store4_out(z, m, n, value), of columns n to n + 3, those of them that there are.

override A_ROWS: bool = false;
override B_ROWS: bool = false;
override A_FOUR: bool = false;
override B_FOUR: bool = false;
override A_TABLE: bool = false;
override B_TABLE: bool = false;
override RAGGED: bool = true;

const WG_X = 16u;
const WG_Y = 16u;
const STEP = 16u; // of k
const STORES = 1u;
const BASELINE = 0u;
const WAY = STORES * (1u - BASELINE) + 2u * BASELINE;
const THREADS = WG_X * WG_Y;
const LOADS_A = 2u * STEP / WG_X; // vectors that a thread brings each step
const LOADS_B = 2u * STEP / WG_Y;

// Both k major, in vectors of 4 rows (columns); a vector of padding a row keeps the threads that write a column apart. Arrays of
// arrays, of which the outer place is a constant wherever much is read: the inner one is then checked once, not at each read.
var<workgroup> tile_a: array<array<vec4<f32>, WG_Y * 2u + 1u>, STEP>;
var<workgroup> tile_b: array<array<vec4<f32>, WG_X * 2u + 1u>, STEP>;
var<workgroup> place_a: array<vec4<u32>, WG_Y * 2u>;
var<workgroup> place_b: array<vec4<u32>, WG_X * 2u>;
var<workgroup> steps_a: array<u32, STEP>;
var<workgroup> steps_b: array<u32, STEP>;

// Vector t of those of a step: which four rows (with FOUR along k: which row) it is of, and which k.
fn part_a(t: u32) -> vec2<u32> {
  if (A_ROWS) { return vec2(t % (WG_Y * 2u), t / (WG_Y * 2u)); }
  if (A_FOUR) { return vec2(t / (STEP / 4u), t % (STEP / 4u) * 4u); }
  return vec2(t / STEP, t % STEP);
}

fn part_b(t: u32) -> vec2<u32> {
  if (B_ROWS) { return vec2(t % (WG_X * 2u), t / (WG_X * 2u)); }
  if (B_FOUR) { return vec2(t / (STEP / 4u), t % (STEP / 4u) * 4u); }
  return vec2(t / STEP, t % STEP);
}

fn places_a(g: u32) -> vec4<u32> {
  if (A_FOUR && !A_ROWS) { return vec4(place_a[g / 4u][g % 4u]); }
  return place_a[g];
}

fn places_b(g: u32) -> vec4<u32> {
  if (B_FOUR && !B_ROWS) { return vec4(place_b[g / 4u][g % 4u]); }
  return place_b[g];
}

// a[4 rows, k], where k lies in this workgroup's part; with A_FOUR and not A_ROWS it is a[row, k to k + 3]. `step` is step_a(k)
fn fetch_a(places: vec4<u32>, k: u32, step: u32, end: u32) -> vec4<f32> {
  if (RAGGED && k >= end) { return vec4<f32>(); }
  let p = places + step;
  if (A_FOUR) { return load4_a(p.x); }
  return vec4(load_a(p.x), load_a(p.y), load_a(p.z), load_a(p.w));
}

fn fetch_b(places: vec4<u32>, k: u32, step: u32, end: u32) -> vec4<f32> {
  if (RAGGED && k >= end) { return vec4<f32>(); }
  let p = places + step;
  if (B_FOUR) { return load4_b(p.x); }
  return vec4(load_b(p.x), load_b(p.y), load_b(p.z), load_b(p.w));
}

@compute @workgroup_size(WG_X, WG_Y, 1)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
) {
  let M = size_M();
  let N = size_N();
  let batch = batch_of(group.z);
  let end = last_k(group.z);
  let m0 = group.y * WG_Y * 8u;
  let n0 = group.x * WG_X * 8u;
  let lane = thread % 32u;
  let warp = thread / 32u;
  let x = warp % (WG_X / 8u) * 8u + lane / 2u % 8u;
  let y = warp / (WG_X / 8u) * 4u + lane / 16u * 2u + lane % 2u;

  // rows and columns past the last read the last again, and are not stored
  for (var t = thread; t < WG_Y * 2u; t += THREADS) {
    let m = min(vec4(m0 + t * 4u) + vec4(0u, 1u, 2u, 3u), vec4(M - 1u));
    place_a[t] = vec4(row_a(batch, m.x), row_a(batch, m.y), row_a(batch, m.z), row_a(batch, m.w));
  }
  for (var t = thread; t < WG_X * 2u; t += THREADS) {
    let n = min(vec4(n0 + t * 4u) + vec4(0u, 1u, 2u, 3u), vec4(N - 1u));
    place_b[t] = vec4(row_b(batch, n.x), row_b(batch, n.y), row_b(batch, n.z), row_b(batch, n.w));
  }
  workgroupBarrier();

  // what this thread brings each step
  var k0 = first_k(group.z);
  var part_of_a: array<vec2<u32>, LOADS_A>;  // registers
  var part_of_b: array<vec2<u32>, LOADS_B>;  // registers
  var from_a: array<vec4<u32>, LOADS_A>;  // registers
  var from_b: array<vec4<u32>, LOADS_B>;  // registers
  var a: array<vec4<f32>, LOADS_A>;  // registers
  var b: array<vec4<f32>, LOADS_B>;  // registers
  for (var i = 0u; i < LOADS_A; i++) {  // unroll
    part_of_a[i] = part_a(thread + i * THREADS);
    from_a[i] = places_a(part_of_a[i].x);
    let k = k0 + part_of_a[i].y;
    a[i] = fetch_a(from_a[i], k, step_a(k), end);
  }
  for (var i = 0u; i < LOADS_B; i++) {  // unroll
    part_of_b[i] = part_b(thread + i * THREADS);
    from_b[i] = places_b(part_of_b[i].x);
    let k = k0 + part_of_b[i].y;
    b[i] = fetch_b(from_b[i], k, step_b(k), end);
  }

  var lo: array<vec4<f32>, 8>;  // registers
  var hi: array<vec4<f32>, 8>;  // registers
  for (; k0 < end; k0 += STEP) {
    for (var i = 0u; i < LOADS_A; i++) {  // unroll
      let to = part_of_a[i];
      if (A_FOUR && !A_ROWS) {
        for (var j = 0u; j < 4u; j++) {  // unroll
          tile_a[to.y + j][to.x / 4u][to.x % 4u] = a[i][j];
        }
      } else {
        tile_a[to.y][to.x] = a[i];
      }
    }
    for (var i = 0u; i < LOADS_B; i++) {  // unroll
      let to = part_of_b[i];
      if (B_FOUR && !B_ROWS) {
        for (var j = 0u; j < 4u; j++) {  // unroll
          tile_b[to.y + j][to.x / 4u][to.x % 4u] = b[i][j];
        }
      } else {
        tile_b[to.y][to.x] = b[i];
      }
    }
    let next = k0 + STEP;
    if (A_TABLE && thread < STEP) { steps_a[thread] = step_a(next + thread); }
    if (B_TABLE && thread < STEP) { steps_b[thread] = step_b(next + thread); }
    workgroupBarrier();
    if (next < end) {
      for (var i = 0u; i < LOADS_A; i++) {  // unroll
        let k = next + part_of_a[i].y;
        if (A_TABLE) {
          a[i] = fetch_a(from_a[i], k, steps_a[part_of_a[i].y], end);
        } else {
          a[i] = fetch_a(from_a[i], k, step_a(k), end);
        }
      }
      for (var i = 0u; i < LOADS_B; i++) {  // unroll
        let k = next + part_of_b[i].y;
        if (B_TABLE) {
          b[i] = fetch_b(from_b[i], k, steps_b[part_of_b[i].y], end);
        } else {
          b[i] = fetch_b(from_b[i], k, step_b(k), end);
        }
      }
    }
    for (var k = 0u; k < STEP; k++) {  // unroll unless BASELINE
      let a0 = tile_a[k][y * 2u];
      let a1 = tile_a[k][y * 2u + 1u];
      let b0 = tile_b[k][x];
      let b1 = tile_b[k][WG_X + x];
      for (var r = 0u; r < 4u; r++) {  // unroll
        lo[r] = fma(vec4(a0[r]), b0, lo[r]);
        hi[r] = fma(vec4(a0[r]), b1, hi[r]);
        lo[r + 4u] = fma(vec4(a1[r]), b0, lo[r + 4u]);
        hi[r + 4u] = fma(vec4(a1[r]), b1, hi[r + 4u]);
      }
    }
    workgroupBarrier();
  }

  let m = m0 + y * 8u;
  let n = n0 + x * 4u;
  let far = n + WG_X * 4u;
  if (WAY == 0u) {  // chosen
    for (var r = 0u; r < 8u; r++) {  // unroll
      if (m + r < M) {
        if (n < N) { store4_out(group.z, m + r, n, lo[r]); }
        if (far < N) { store4_out(group.z, m + r, far, hi[r]); }
      }
    }
  }
  if (WAY == 1u) {  // chosen
    for (var r = 0u; r < min(8u, M - min(m, M)); r++) {
      var near = lo[0];
      var apart = hi[0];
      switch (r) {
        case 1u: { near = lo[1]; apart = hi[1]; }
        case 2u: { near = lo[2]; apart = hi[2]; }
        case 3u: { near = lo[3]; apart = hi[3]; }
        case 4u: { near = lo[4]; apart = hi[4]; }
        case 5u: { near = lo[5]; apart = hi[5]; }
        case 6u: { near = lo[6]; apart = hi[6]; }
        case 7u: { near = lo[7]; apart = hi[7]; }
        default: {}
      }
      if (n < N) { store4_out(group.z, m + r, n, near); }
      if (far < N) { store4_out(group.z, m + r, far, apart); }
    }
  }
  if (WAY == 2u) {  // chosen
    var all = array<vec4<f32>, 16>(
      lo[0], hi[0], lo[1], hi[1], lo[2], hi[2], lo[3], hi[3], lo[4], hi[4], lo[5], hi[5], lo[6], hi[6], lo[7], hi[7],
    );
    for (var i = 0u; i < 2u * min(8u, M - min(m, M)); i++) {
      let column = n + i % 2u * WG_X * 4u;
      if (column < N) { store4_out(group.z, m + i / 2u, column, all[i]); }
    }
  }
}

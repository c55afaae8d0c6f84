// matmul.wgsl where the adapter multiplies small matrices, of a subgroup's registers, at once (experimental in Chromium), and where
// float32 products may be less than exact: `torch.set_float32_matmul_precision`.
//
// What comes from memory is split in two halves of 16 bits, x = high + low / 2048: 22 of its 24 bits, where it is between 2^-13 and
// 65504; smaller numbers are 2^-36 off at most, larger ones become infinite. Three products of these, added in float32, make one;
// that of the two lower halves would not be seen.
//
// A workgroup of 256 threads makes 128 x 128 results, a subgroup of 32 threads 32 x 64 of them: 2 x 4 matrices of SIDE x SIDE. How
// operands come is as in matmul.wgsl, and so are the functions that the engine writes.

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
const SIDE = 16u;
const DOWN = 32u / SIDE; // matrices of a subgroup
const ALONG = 64u / SIDE;
const THREADS = WG_X * WG_Y;
const LOADS_A = 2u * STEP / WG_X; // vectors that a thread brings each step
const LOADS_B = 2u * STEP / WG_Y;
const WIDE = 136u; // places of a row of a tile: 128, and some that keep rows on different banks

// k major: high halves, then low ones
var<workgroup> tile_a: array<f16, 2u * STEP * WIDE>;
var<workgroup> tile_b: array<f16, 2u * STEP * WIDE>;
var<workgroup> found: array<f32, 8u * 2u * SIDE * SIDE>;
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

// The high halves of these, as f32. By way of integers: compilers take f32(f16(x)) for x.
fn high_of(x: vec4<f32>) -> vec4<f32> {
  let pairs = min(vec2(pack2x16float(x.xy), pack2x16float(x.zw)), vec2(0xffffff00u));
  return vec4(unpack2x16float(pairs.x), unpack2x16float(pairs.y));
}

@compute @workgroup_size(THREADS, 1, 1)
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
  let down = warp / 2u * 32u;
  let along = warp % 2u * 64u;

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

  var all: array<subgroup_matrix_result<f32, SIDE, SIDE>, DOWN * ALONG>;  // registers
  var rest: array<subgroup_matrix_result<f32, SIDE, SIDE>, DOWN * ALONG>;  // registers
  var above: array<subgroup_matrix_left<f16, SIDE, SIDE>, DOWN>;  // registers
  var below: array<subgroup_matrix_left<f16, SIDE, SIDE>, DOWN>;  // registers
  for (; k0 < end; k0 += STEP) {
    for (var i = 0u; i < LOADS_A; i++) {  // unroll
      let high = high_of(a[i]);
      let low = (a[i] - high) * 2048.0;
      let along_k = A_FOUR && !A_ROWS;
      let at = part_of_a[i].y * WIDE + part_of_a[i].x * select(4u, 1u, along_k);
      for (var j = 0u; j < 4u; j++) {  // unroll
        let to = at + j * select(1u, WIDE, along_k);
        tile_a[to] = f16(high[j]);
        tile_a[STEP * WIDE + to] = f16(low[j]);
      }
    }
    for (var i = 0u; i < LOADS_B; i++) {  // unroll
      let high = high_of(b[i]);
      let low = (b[i] - high) * 2048.0;
      let along_k = B_FOUR && !B_ROWS;
      let at = part_of_b[i].y * WIDE + part_of_b[i].x * select(4u, 1u, along_k);
      for (var j = 0u; j < 4u; j++) {  // unroll
        let to = at + j * select(1u, WIDE, along_k);
        tile_b[to] = f16(high[j]);
        tile_b[STEP * WIDE + to] = f16(low[j]);
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
    for (var k = 0u; k < STEP / SIDE; k++) {  // unroll
      let row = k * SIDE * WIDE;
      for (var i = 0u; i < DOWN; i++) {  // unroll
        let at = row + down + i * SIDE;
        above[i] = subgroupMatrixLoad<subgroup_matrix_left<f16, SIDE, SIDE>, col_major>(&tile_a, at, WIDE);
        below[i] = subgroupMatrixLoad<subgroup_matrix_left<f16, SIDE, SIDE>, col_major>(&tile_a, STEP * WIDE + at, WIDE);
      }
      for (var j = 0u; j < ALONG; j++) {  // unroll
        let at = row + along + j * SIDE;
        let high = subgroupMatrixLoad<subgroup_matrix_right<f16, SIDE, SIDE>, row_major>(&tile_b, at, WIDE);
        let low = subgroupMatrixLoad<subgroup_matrix_right<f16, SIDE, SIDE>, row_major>(&tile_b, STEP * WIDE + at, WIDE);
        for (var i = 0u; i < DOWN; i++) {  // unroll
          all[i * ALONG + j] = subgroupMatrixMultiplyAccumulate(above[i], high, all[i * ALONG + j]);
          rest[i * ALONG + j] = subgroupMatrixMultiplyAccumulate(above[i], low, rest[i * ALONG + j]);
          rest[i * ALONG + j] = subgroupMatrixMultiplyAccumulate(below[i], high, rest[i * ALONG + j]);
        }
      }
    }
    workgroupBarrier();
  }

  // matrix by matrix, by way of workgroup memory
  let own = warp * 2u * SIDE * SIDE;
  for (var t = 0u; t < DOWN * ALONG; t++) {
    switch (t) {
      case 0u: { subgroupMatrixStore<row_major>(&found, own, all[0], SIDE); subgroupMatrixStore<row_major>(&found, own + SIDE * SIDE, rest[0], SIDE); }
      case 1u: { subgroupMatrixStore<row_major>(&found, own, all[1], SIDE); subgroupMatrixStore<row_major>(&found, own + SIDE * SIDE, rest[1], SIDE); }
      case 2u: { subgroupMatrixStore<row_major>(&found, own, all[2], SIDE); subgroupMatrixStore<row_major>(&found, own + SIDE * SIDE, rest[2], SIDE); }
      case 3u: { subgroupMatrixStore<row_major>(&found, own, all[3], SIDE); subgroupMatrixStore<row_major>(&found, own + SIDE * SIDE, rest[3], SIDE); }
      case 4u: { subgroupMatrixStore<row_major>(&found, own, all[4], SIDE); subgroupMatrixStore<row_major>(&found, own + SIDE * SIDE, rest[4], SIDE); }
      case 5u: { subgroupMatrixStore<row_major>(&found, own, all[5], SIDE); subgroupMatrixStore<row_major>(&found, own + SIDE * SIDE, rest[5], SIDE); }
      case 6u: { subgroupMatrixStore<row_major>(&found, own, all[6], SIDE); subgroupMatrixStore<row_major>(&found, own + SIDE * SIDE, rest[6], SIDE); }
      case 7u: { subgroupMatrixStore<row_major>(&found, own, all[7], SIDE); subgroupMatrixStore<row_major>(&found, own + SIDE * SIDE, rest[7], SIDE); }
      default: {}
    }
    workgroupBarrier();
    for (var q = lane; q < SIDE * SIDE / 4u; q += 32u) {
      let m = m0 + down + t / ALONG * SIDE + q * 4u / SIDE;
      let n = n0 + along + t % ALONG * SIDE + q * 4u % SIDE;
      let at = own + q * 4u;
      let high = vec4(found[at], found[at + 1u], found[at + 2u], found[at + 3u]);
      let part = at + SIDE * SIDE;
      let low = vec4(found[part], found[part + 1u], found[part + 2u], found[part + 3u]);
      if (m < M && n < N) { store4_out(group.z, m, n, fma(low, vec4(0.00048828125), high)); }
    }
    workgroupBarrier();
  }
}

// The gradient of the queries of attention.wgsl: dq[b, m, :] = sum over n of ds[m, n] k[b, n, :], where ds = p (dp - delta) through the
// gradient of the score, dp[m, n] = kept(b, m, n) g[b, m] . v[b, n], and p is made again from the logarithm of the row's total.
//
// A thread makes the scores of 4 rows, Y apart, with 4 keys, X apart, and of the same rows RUNS vectors of 4 columns of the result.
// Each 32 threads are 8 along x by 4 along y, as in matmul.wgsl. Tiles are arrays of arrays: [row / Y][row % Y][quad of columns],
// [key / X][key % X][quad], where the outer place is a constant or the thread's own: what is left to find and to check is one
// number for all that a thread reads at a time. Quads change places by the row (the exclusive or), against conflicts of banks.
// (On an H200 a sixth faster than flat tiles; attention.wgsl, whose rows are neighbours in flat ones, was slower so.)
//
// q and g take turns in one tile; with KEPT each has its own, for all of the kernel. ds lies where v was, 4 rows a vector.
//
// The engine writes what it does there, and load_lse(b, m); load_delta(b, m): the sum of g * out; unscored(b, m, n, value, d):
// what a gradient `d` of the score is for `value`; store4_q(b, m, column, value).

const Y: u32 = 16u;
const WIDTH: u32 = 64u;
const VALUES: u32 = 64u;
const KEPT: u32 = 0u;  // 1 only where WIDTH and VALUES are DEPTH
const ROLLED: u32 = 0u;  // 1 where scores are long to write
const BASELINE: u32 = 0u;  // 1 for the text that compiles soonest
const X = 8u;
const KEYS = 32u;
const ROWS = 4u * Y;
const DEPTH = ROWS;
const QUADS = DEPTH / 4u;
const RUNS = WIDTH / 32u;
const RUNS_AT_ONCE = DEPTH / 32u;
const AT_ONCE = 4u;  // quads of a loop's turn, written out

var<workgroup> tile_r: array<array<array<array<vec4<f32>, QUADS>, Y>, 4>, 1u + KEPT>;
var<workgroup> tile_k: array<array<array<vec4<f32>, QUADS>, X>, 4>;
var<workgroup> tile_v: array<array<array<vec4<f32>, QUADS>, X>, 4>;

@compute @workgroup_size(8u, Y, 1)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let M = size_M();
  let N = size_N();
  let batch = group.y;
  let keys = keys_of(batch);
  let m0 = first_row(group.x);
  let end = last_key(m0 + ROWS - 1u);
  let from_q = begin_q(batch);
  let from_g = begin_g(batch);
  let from_k = begin_k(keys);
  let from_v = begin_v(keys);
  let x = thread / 2u % X;
  let y = thread / 32u * 4u + thread / 16u % 2u * 2u + thread % 2u;
  let turn = y % 4u;  // what quads of the rows change places by

  var lse: vec4<f32>;
  var delta: vec4<f32>;
  for (var r = 0u; r < 4u; r++) {  // unroll
    let m = min(m0 + y + Y * r, M - 1u);
    lse[r] = load_lse(batch, m);
    delta[r] = load_delta(batch, m);
  }
  if (KEPT == 1u) {
    for (var i = 0u; i < Y / 2u; i++) {  // unroll
      let row = (thread + i * X * Y) / QUADS;
      let quad = thread % QUADS;
      tile_r[0][row / Y][row % Y][quad ^ (row % 4u)] = load4_q(from_q, min(m0 + row, M - 1u), quad * 4u);
    }
    for (var i = 0u; i < Y / 2u; i++) {  // unroll
      let row = (thread + i * X * Y) / QUADS;
      let quad = thread % QUADS;
      tile_r[KEPT][row / Y][row % Y][quad ^ (row % 4u)] = load4_g(from_g, min(m0 + row, M - 1u), quad * 4u);
    }
  }
  var o: array<vec4<f32>, RUNS * 4u>;  // registers
  for (var n0 = 0u; n0 < end; n0 += KEYS) {
    if (skipped(batch, m0, n0)) { continue; }
    var s: array<vec4<f32>, 4u>;  // registers
    for (var d0 = 0u; d0 < WIDTH; d0 += DEPTH) {
      workgroupBarrier();
      if (KEPT == 0u) {
        for (var i = 0u; i < Y / 2u; i++) {  // unroll
          let row = (thread + i * X * Y) / QUADS;
          let quad = thread % QUADS;
          tile_r[0][row / Y][row % Y][quad ^ (row % 4u)] = load4_q(from_q, min(m0 + row, M - 1u), d0 + quad * 4u);
        }
      }
      for (var i = 0u; i < 4u; i++) {  // unroll
        let row = thread / QUADS;
        let quad = thread % QUADS;
        tile_k[i][row][quad ^ row] = load4_k(from_k, min(n0 + i * X + row, N - 1u), d0 + quad * 4u);
      }
      workgroupBarrier();
      for (var d1 = 0u; d1 < QUADS; d1 += AT_ONCE) {
        for (var d2 = 0u; d2 < AT_ONCE; d2++) {  // unroll unless BASELINE
          let d = d1 + d2;
          let a0 = tile_r[0][0][y][d ^ turn];
          let a1 = tile_r[0][1u][y][d ^ turn];
          let a2 = tile_r[0][2u][y][d ^ turn];
          let a3 = tile_r[0][3u][y][d ^ turn];
          for (var c = 0u; c < 4u; c++) {  // unroll
            let b = tile_k[c][x][d ^ x];
            s[c] = fma(vec4(a0.x, a1.x, a2.x, a3.x), vec4(b.x), s[c]);
            s[c] = fma(vec4(a0.y, a1.y, a2.y, a3.y), vec4(b.y), s[c]);
            s[c] = fma(vec4(a0.z, a1.z, a2.z, a3.z), vec4(b.z), s[c]);
            s[c] = fma(vec4(a0.w, a1.w, a2.w, a3.w), vec4(b.w), s[c]);
          }
        }
      }
    }
    var u: array<vec4<f32>, 4u>;  // registers
    for (var d0 = 0u; d0 < VALUES; d0 += DEPTH) {
      workgroupBarrier();
      if (KEPT == 0u) {
        for (var i = 0u; i < Y / 2u; i++) {  // unroll
          let row = (thread + i * X * Y) / QUADS;
          let quad = thread % QUADS;
          tile_r[0][row / Y][row % Y][quad ^ (row % 4u)] = load4_g(from_g, min(m0 + row, M - 1u), d0 + quad * 4u);
        }
      }
      for (var i = 0u; i < 4u; i++) {  // unroll
        let row = thread / QUADS;
        let quad = thread % QUADS;
        tile_v[i][row][quad ^ row] = load4_v(from_v, min(n0 + i * X + row, N - 1u), d0 + quad * 4u);
      }
      workgroupBarrier();
      for (var d1 = 0u; d1 < QUADS; d1 += AT_ONCE) {
        for (var d2 = 0u; d2 < AT_ONCE; d2++) {  // unroll unless BASELINE
          let d = d1 + d2;
          let a0 = tile_r[KEPT][0][y][d ^ turn];
          let a1 = tile_r[KEPT][1u][y][d ^ turn];
          let a2 = tile_r[KEPT][2u][y][d ^ turn];
          let a3 = tile_r[KEPT][3u][y][d ^ turn];
          for (var c = 0u; c < 4u; c++) {  // unroll
            let b = tile_v[c][x][d ^ x];
            u[c] = fma(vec4(a0.x, a1.x, a2.x, a3.x), vec4(b.x), u[c]);
            u[c] = fma(vec4(a0.y, a1.y, a2.y, a3.y), vec4(b.y), u[c]);
            u[c] = fma(vec4(a0.z, a1.z, a2.z, a3.z), vec4(b.z), u[c]);
            u[c] = fma(vec4(a0.w, a1.w, a2.w, a3.w), vec4(b.w), u[c]);
          }
        }
      }
    }
    for (var c = 0u; c < 4u; c++) {  // unroll
      let n = n0 + x + X * c;
      for (var r = 0u; r < 4u; r++) {  // unroll unless ROLLED or BASELINE
        let m = min(m0 + y + Y * r, M - 1u);
        let seen = min(n, N - 1u);
        let p = exp(score(batch, m, seen, s[c][r]) - lse[r]);
        let d = p * (u[c][r] * kept(batch, m, seen) - delta[r]);
        u[c][r] = select(0.0, unscored(batch, m, seen, s[c][r], d), n < N);
      }
    }
    workgroupBarrier();
    for (var c = 0u; c < 4u; c++) {  // unroll
      tile_v[c][x][y ^ x] = u[c];
    }
    for (var part = 0u; part < WIDTH / DEPTH; part++) {  // unroll
      if (WIDTH > DEPTH) {
        workgroupBarrier();
        for (var i = 0u; i < 4u; i++) {  // unroll
          let row = thread / QUADS;
          let quad = thread % QUADS;
          tile_k[i][row][quad ^ row] = load4_k(from_k, min(n0 + i * X + row, N - 1u), part * DEPTH + quad * 4u);
        }
      }
      workgroupBarrier();
      for (var c = 0u; c < 4u; c++) {
        for (var j = 0u; j < X; j++) {  // unroll unless BASELINE
          let p = tile_v[c][j][y ^ j];
          for (var i = 0u; i < RUNS_AT_ONCE; i++) {  // unroll
            let b = tile_k[c][j][(x ^ j) + X * i];
            o[(part * RUNS_AT_ONCE + i) * 4u] = fma(vec4(p.x), b, o[(part * RUNS_AT_ONCE + i) * 4u]);
            o[(part * RUNS_AT_ONCE + i) * 4u + 1u] = fma(vec4(p.y), b, o[(part * RUNS_AT_ONCE + i) * 4u + 1u]);
            o[(part * RUNS_AT_ONCE + i) * 4u + 2u] = fma(vec4(p.z), b, o[(part * RUNS_AT_ONCE + i) * 4u + 2u]);
            o[(part * RUNS_AT_ONCE + i) * 4u + 3u] = fma(vec4(p.w), b, o[(part * RUNS_AT_ONCE + i) * 4u + 3u]);
          }
        }
      }
    }
  }
  for (var r = 0u; r < 4u; r++) {  // unroll
    let m = m0 + y + Y * r;
    if (m < M) {
      for (var i = 0u; i < RUNS; i++) {  // unroll
        store4_q(batch, m, (x + X * i) * 4u, o[i * 4u + r]);
      }
    }
  }
}

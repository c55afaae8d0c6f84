// The gradients of the keys and values of attention.wgsl: dv[n] = sum over m of kept p[m, n] g[m], dk[n] = sum over m of ds[m, n] q[m], with
// p and ds as in attention_query.wgsl. What is called a row there is a key here: a workgroup makes those of ROWS keys, and
// takes KEYS queries a step, of each batch that these keys serve.
//
// Threads and tiles are those of attention_query.wgsl. k and v take turns in one tile (with KEPT, k has its own), where p and ds lie
// afterwards: [query / X][query % X] and [query / X][X + query % X], which is why it has 2 X rows in each of its four parts.
//
// The engine writes what it does there, and size_G(), how many batches of queries the keys of one serve; queries_of(b, i), the
// i-th; first_query(key), from which on queries see that key; store4_k, store4_v(b, n, column, value).

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
const RUNS_OF_V = VALUES / 32u;
const RUNS_AT_ONCE = DEPTH / 32u;
const AT_ONCE = 4u;  // quads of a loop's turn, written out

var<workgroup> tile_r: array<array<array<array<vec4<f32>, QUADS>, 2u * X>, 4>, 1u + KEPT>;
var<workgroup> tile_q: array<array<array<vec4<f32>, QUADS>, X>, 4>;
var<workgroup> tile_g: array<array<array<vec4<f32>, QUADS>, X>, 4>;

@compute @workgroup_size(8u, Y, 1)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let M = size_M();
  let N = size_N();
  let n0 = group.x * ROWS;
  let from_k = begin_k(group.y);
  let from_v = begin_v(group.y);
  let x = thread / 2u % X;
  let y = thread / 32u * 4u + thread / 16u % 2u * 2u + thread % 2u;
  let twist = y % 4u;  // what quads of the rows change places by

  if (KEPT == 1u) {
    for (var i = 0u; i < Y / 2u; i++) {  // unroll
      let row = (thread + i * X * Y) / QUADS;
      let quad = thread % QUADS;
      tile_r[0][row / Y][row % Y][quad ^ (row % 4u)] = load4_k(from_k, min(n0 + row, N - 1u), quad * 4u);
    }
  }
  var o: array<vec4<f32>, RUNS * 4u>;  // registers
  var w: array<vec4<f32>, RUNS_OF_V * 4u>;  // registers
  for (var turn = 0u; turn < size_G(); turn++) {
    let batch = queries_of(group.y, turn);
    let from_q = begin_q(batch);
    let from_g = begin_g(batch);
    for (var m0 = first_query(n0); m0 < M; m0 += KEYS) {
      if (skipped(batch, m0, n0)) { continue; }
      var s: array<vec4<f32>, 4u>;  // registers
      for (var d0 = 0u; d0 < WIDTH; d0 += DEPTH) {
        workgroupBarrier();
        if (KEPT == 0u) {
          for (var i = 0u; i < Y / 2u; i++) {  // unroll
            let row = (thread + i * X * Y) / QUADS;
            let quad = thread % QUADS;
            tile_r[0][row / Y][row % Y][quad ^ (row % 4u)] = load4_k(from_k, min(n0 + row, N - 1u), d0 + quad * 4u);
          }
        }
        for (var i = 0u; i < 4u; i++) {  // unroll
          let row = thread / QUADS;
          let quad = thread % QUADS;
          tile_q[i][row][quad ^ row] = load4_q(from_q, min(m0 + i * X + row, M - 1u), d0 + quad * 4u);
        }
        workgroupBarrier();
        for (var d1 = 0u; d1 < QUADS; d1 += AT_ONCE) {
          for (var d2 = 0u; d2 < AT_ONCE; d2++) {  // unroll unless BASELINE
            let d = d1 + d2;
            let a0 = tile_r[0][0][y][d ^ twist];
            let a1 = tile_r[0][1u][y][d ^ twist];
            let a2 = tile_r[0][2u][y][d ^ twist];
            let a3 = tile_r[0][3u][y][d ^ twist];
            for (var c = 0u; c < 4u; c++) {  // unroll
              let b = tile_q[c][x][d ^ x];
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
        for (var i = 0u; i < Y / 2u; i++) {  // unroll
          let row = (thread + i * X * Y) / QUADS;
          let quad = thread % QUADS;
          tile_r[KEPT][row / Y][row % Y][quad ^ (row % 4u)] = load4_v(from_v, min(n0 + row, N - 1u), d0 + quad * 4u);
        }
        for (var i = 0u; i < 4u; i++) {  // unroll
          let row = thread / QUADS;
          let quad = thread % QUADS;
          tile_g[i][row][quad ^ row] = load4_g(from_g, min(m0 + i * X + row, M - 1u), d0 + quad * 4u);
        }
        workgroupBarrier();
        for (var d1 = 0u; d1 < QUADS; d1 += AT_ONCE) {
          for (var d2 = 0u; d2 < AT_ONCE; d2++) {  // unroll unless BASELINE
            let d = d1 + d2;
            let a0 = tile_r[KEPT][0][y][d ^ twist];
            let a1 = tile_r[KEPT][1u][y][d ^ twist];
            let a2 = tile_r[KEPT][2u][y][d ^ twist];
            let a3 = tile_r[KEPT][3u][y][d ^ twist];
            for (var c = 0u; c < 4u; c++) {  // unroll
              let b = tile_g[c][x][d ^ x];
              u[c] = fma(vec4(a0.x, a1.x, a2.x, a3.x), vec4(b.x), u[c]);
              u[c] = fma(vec4(a0.y, a1.y, a2.y, a3.y), vec4(b.y), u[c]);
              u[c] = fma(vec4(a0.z, a1.z, a2.z, a3.z), vec4(b.z), u[c]);
              u[c] = fma(vec4(a0.w, a1.w, a2.w, a3.w), vec4(b.w), u[c]);
            }
          }
        }
      }
      for (var c = 0u; c < 4u; c++) {  // unroll
        let m = m0 + x + X * c;
        let row = min(m, M - 1u);
        let lse = load_lse(batch, row);
        let delta = load_delta(batch, row);
        for (var r = 0u; r < 4u; r++) {  // unroll unless ROLLED or BASELINE
          let n = min(n0 + y + Y * r, N - 1u);
          let value = s[c][r];
          let p = select(0.0, exp(score(batch, row, n, value) - lse), m < M);
          let share = kept(batch, row, n);
          s[c][r] = p * share;
          u[c][r] = select(0.0, unscored(batch, row, n, value, p * (u[c][r] * share - delta)), m < M);
        }
      }
      workgroupBarrier();
      for (var c = 0u; c < 4u; c++) {  // unroll
        tile_r[KEPT][c][x][y ^ x] = s[c];
        tile_r[KEPT][c][X + x][y ^ x] = u[c];
      }
      for (var part = 0u; part < VALUES / DEPTH; part++) {  // unroll
        if (VALUES > DEPTH) {
          workgroupBarrier();
          for (var i = 0u; i < 4u; i++) {  // unroll
            let row = thread / QUADS;
            let quad = thread % QUADS;
            tile_g[i][row][quad ^ row] = load4_g(from_g, min(m0 + i * X + row, M - 1u), part * DEPTH + quad * 4u);
          }
        }
        workgroupBarrier();
        for (var c = 0u; c < 4u; c++) {
          for (var j = 0u; j < X; j++) {  // unroll unless BASELINE
            let p = tile_r[KEPT][c][j][y ^ j];
            for (var i = 0u; i < RUNS_AT_ONCE; i++) {  // unroll
              let b = tile_g[c][j][(x ^ j) + X * i];
              w[(part * RUNS_AT_ONCE + i) * 4u] = fma(vec4(p.x), b, w[(part * RUNS_AT_ONCE + i) * 4u]);
              w[(part * RUNS_AT_ONCE + i) * 4u + 1u] = fma(vec4(p.y), b, w[(part * RUNS_AT_ONCE + i) * 4u + 1u]);
              w[(part * RUNS_AT_ONCE + i) * 4u + 2u] = fma(vec4(p.z), b, w[(part * RUNS_AT_ONCE + i) * 4u + 2u]);
              w[(part * RUNS_AT_ONCE + i) * 4u + 3u] = fma(vec4(p.w), b, w[(part * RUNS_AT_ONCE + i) * 4u + 3u]);
            }
          }
        }
      }
      for (var part = 0u; part < WIDTH / DEPTH; part++) {  // unroll
        if (WIDTH > DEPTH) {
          workgroupBarrier();
          for (var i = 0u; i < 4u; i++) {  // unroll
            let row = thread / QUADS;
            let quad = thread % QUADS;
            tile_q[i][row][quad ^ row] = load4_q(from_q, min(m0 + i * X + row, M - 1u), part * DEPTH + quad * 4u);
          }
          workgroupBarrier();
        }
        for (var c = 0u; c < 4u; c++) {
          for (var j = 0u; j < X; j++) {  // unroll unless BASELINE
            let p = tile_r[KEPT][c][X + j][y ^ j];
            for (var i = 0u; i < RUNS_AT_ONCE; i++) {  // unroll
              let b = tile_q[c][j][(x ^ j) + X * i];
              o[(part * RUNS_AT_ONCE + i) * 4u] = fma(vec4(p.x), b, o[(part * RUNS_AT_ONCE + i) * 4u]);
              o[(part * RUNS_AT_ONCE + i) * 4u + 1u] = fma(vec4(p.y), b, o[(part * RUNS_AT_ONCE + i) * 4u + 1u]);
              o[(part * RUNS_AT_ONCE + i) * 4u + 2u] = fma(vec4(p.z), b, o[(part * RUNS_AT_ONCE + i) * 4u + 2u]);
              o[(part * RUNS_AT_ONCE + i) * 4u + 3u] = fma(vec4(p.w), b, o[(part * RUNS_AT_ONCE + i) * 4u + 3u]);
            }
          }
        }
      }
    }
  }
  for (var r = 0u; r < 4u; r++) {  // unroll
    let n = n0 + y + Y * r;
    if (n < N) {
      for (var i = 0u; i < RUNS; i++) {  // unroll
        store4_k(group.y, n, (x + X * i) * 4u, o[i * 4u + r]);
      }
      for (var i = 0u; i < RUNS_OF_V; i++) {  // unroll
        store4_v(group.y, n, (x + X * i) * 4u, w[i * 4u + r]);
      }
    }
  }
}

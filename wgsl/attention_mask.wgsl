// The gradient of what is added to the scores of attention.wgsl: ds of attention_query.wgsl, before the score's own gradient, summed
// over those that share an element of it. Products of matrices, tiles and places are those of that file.
//
// A workgroup makes ROWS * KEYS elements. It goes over the size_T() batches that share them. Where all rows share them, there is
// one workgroup for all rows, which leaves the sums of every ROWS-th; likewise for keys.
//
// The engine writes what it does there, and batch_of(b, i), the i-th of those batches; rows() and columns(), how many elements
// there are; store_mask(b, m, n, value).

const Y: u32 = 8u;
const WIDTH: u32 = 64u;
const VALUES: u32 = 64u;
const ROLLED: u32 = 0u;  // 1 where scores are long to write
const X = 8u;
const KEYS = 32u;
const ROWS = 4u * Y;
const DEPTH = ROWS;
const QUADS = DEPTH / 4u;

var<workgroup> tile_r: array<vec4<f32>, ROWS * QUADS>;
var<workgroup> tile_k: array<vec4<f32>, KEYS * QUADS>;

@compute @workgroup_size(8u, Y, 1)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_id) local: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
) {
  let M = size_M();
  let N = size_N();
  let x = local.x;
  let y = local.y;

  var o = array<vec4<f32>, 4>();
  for (var turn = 0u; turn < size_T(); turn++) {
    let batch = batch_of(group.z, turn);
    let keys = keys_of(batch);
    let from_q = begin_q(batch);
    let from_g = begin_g(batch);
    let from_k = begin_k(keys);
    let from_v = begin_v(keys);
    for (var m0 = group.y * ROWS; m0 < M; m0 += groups.y * ROWS) {
      for (var n0 = group.x * KEYS; n0 < N; n0 += groups.x * KEYS) {
        if (skipped(batch, m0, n0)) { continue; }
        var s = array<vec4<f32>, 4>();
        for (var d0 = 0u; d0 < WIDTH; d0 += DEPTH) {
          workgroupBarrier();
          for (var i = 0u; i < Y / 2u; i++) {  // unroll
            let t = thread + i * X * Y;
            tile_r[t] = load4_q(from_q, min(m0 + t / QUADS, M - 1u), d0 + t % QUADS * 4u);
          }
          for (var i = 0u; i < 4u; i++) {  // unroll
            let t = thread + i * X * Y;
            let row = t / QUADS;
            let quad = t % QUADS;
            tile_k[row * QUADS + (quad ^ (row & 7u))] = load4_k(from_k, min(n0 + row, N - 1u), d0 + quad * 4u);
          }
          workgroupBarrier();
          for (var d = 0u; d < QUADS; d++) {
            let a0 = tile_r[(y * 4u) * QUADS + d];
            let a1 = tile_r[(y * 4u + 1u) * QUADS + d];
            let a2 = tile_r[(y * 4u + 2u) * QUADS + d];
            let a3 = tile_r[(y * 4u + 3u) * QUADS + d];
            for (var c = 0u; c < 4u; c++) {  // unroll
              let b = tile_k[(x + X * c) * QUADS + (d ^ x)];
              s[c] = fma(vec4(a0.x, a1.x, a2.x, a3.x), vec4(b.x), s[c]);
              s[c] = fma(vec4(a0.y, a1.y, a2.y, a3.y), vec4(b.y), s[c]);
              s[c] = fma(vec4(a0.z, a1.z, a2.z, a3.z), vec4(b.z), s[c]);
              s[c] = fma(vec4(a0.w, a1.w, a2.w, a3.w), vec4(b.w), s[c]);
            }
          }
        }
        var u = array<vec4<f32>, 4>();
        for (var d0 = 0u; d0 < VALUES; d0 += DEPTH) {
          workgroupBarrier();
          for (var i = 0u; i < Y / 2u; i++) {  // unroll
            let t = thread + i * X * Y;
            tile_r[t] = load4_g(from_g, min(m0 + t / QUADS, M - 1u), d0 + t % QUADS * 4u);
          }
          for (var i = 0u; i < 4u; i++) {  // unroll
            let t = thread + i * X * Y;
            let row = t / QUADS;
            let quad = t % QUADS;
            tile_k[row * QUADS + (quad ^ (row & 7u))] = load4_v(from_v, min(n0 + row, N - 1u), d0 + quad * 4u);
          }
          workgroupBarrier();
          for (var d = 0u; d < QUADS; d++) {
            let a0 = tile_r[(y * 4u) * QUADS + d];
            let a1 = tile_r[(y * 4u + 1u) * QUADS + d];
            let a2 = tile_r[(y * 4u + 2u) * QUADS + d];
            let a3 = tile_r[(y * 4u + 3u) * QUADS + d];
            for (var c = 0u; c < 4u; c++) {  // unroll
              let b = tile_k[(x + X * c) * QUADS + (d ^ x)];
              u[c] = fma(vec4(a0.x, a1.x, a2.x, a3.x), vec4(b.x), u[c]);
              u[c] = fma(vec4(a0.y, a1.y, a2.y, a3.y), vec4(b.y), u[c]);
              u[c] = fma(vec4(a0.z, a1.z, a2.z, a3.z), vec4(b.z), u[c]);
              u[c] = fma(vec4(a0.w, a1.w, a2.w, a3.w), vec4(b.w), u[c]);
            }
          }
        }
        for (var r = 0u; r < 4u; r++) {  // unroll unless ROLLED
          let m = m0 + y * 4u + r;
          let row = min(m, M - 1u);
          let lse = load_lse(batch, row);
          let delta = load_delta(batch, row);
          for (var c = 0u; c < 4u; c++) {  // unroll
            let n = n0 + x + X * c;
            let seen = min(n, N - 1u);
            let p = exp(score(batch, row, seen, s[c][r]) - lse);
            o[c][r] += select(0.0, p * (u[c][r] * kept(batch, row, seen) - delta), m < M && n < N);
          }
        }
      }
    }
  }
  for (var c = 0u; c < 4u; c++) {  // unroll
    let n = group.x * KEYS + x + X * c;
    for (var r = 0u; r < 4u; r++) {  // unroll
      let m = group.y * ROWS + y * 4u + r;
      if (m < rows() && n < columns()) { store_mask(group.z, m, n, o[c][r]); }
    }
  }
}

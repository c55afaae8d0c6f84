// out[b, m, :] = sum over n of p[m, n] v[b, n, :], where p[m, :] is the softmax of score(q[b, m] . k[b, n]), in one pass over n:
// scores are never in memory (Dao et al., FlashAttention, 2022; Milakov & Gimelshein, online softmax, 2018).
//
// A workgroup of X * Y threads makes ROWS = 4 Y rows of results, and takes KEYS keys a step. A thread makes the scores of 4
// rows with 4 keys that lie X apart, and, of the same rows, RUNS vectors of 4 columns of the result. Of q, k and v, DEPTH
// columns at a time lie in workgroup memory, where a row of k or of p begins at a place of its own (the exclusive or below), so
// that threads side by side use different banks. Vectors of 4 rows (largest, total, a column of p) are vectors of WGSL.
//
// The engine writes: size_M/N(); first_row(group), where a workgroup's rows begin; last_key(row), before which the keys of the
// rows up to `row` end; keys_of(b), which batch of k and v serves b; begin_*(b), load4_*(begin, row, column), see engine/template.py;
// score(b, m, n, value); skipped(b, m, n): whether the tile that begins there takes no part; kept(b, m, n): what dropout multiplies
// a probability by, 1 where there is none; store4_out(b, m, column, value); store_lse(b, m, value): the logarithm of the sum of
// exp(score), and infinity for a row that sees no key, which makes its probabilities zeros in the gradient.

const Y: u32 = 16u;
const WIDTH: u32 = 64u;  // columns of q and k, rounded up to a multiple of DEPTH
const VALUES: u32 = 64u;  // columns of v, likewise
const ROLLED: u32 = 0u;  // 1 where scores are long to write
const BASELINE: u32 = 0u;  // 1 for the text that compiles soonest
const DROPOUT: u32 = 0u;
const X = 8u;
const KEYS = 32u;
const ROWS = 4u * Y;
const DEPTH = ROWS;
const QUADS = DEPTH / 4u;
const RUNS = VALUES / 32u;
const RUNS_AT_ONCE = DEPTH / 32u;

var<workgroup> tile_q: array<vec4<f32>, ROWS * QUADS>;
var<workgroup> tile_k: array<vec4<f32>, KEYS * QUADS>;  // and then p, with 4 rows a vector
var<workgroup> tile_v: array<vec4<f32>, KEYS * QUADS>;

@compute @workgroup_size(8u, Y, 1)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(local_invocation_id) local: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
) {
  let M = size_M();
  let N = size_N();
  let batch = group.y;
  let keys = keys_of(batch);
  let m0 = first_row(group.x);
  let end = last_key(m0 + ROWS - 1u);
  let from_q = begin_q(batch);
  let from_k = begin_k(keys);
  let from_v = begin_v(keys);
  let x = local.x;
  let y = local.y;

  if (WIDTH == DEPTH) {
    for (var i = 0u; i < Y / 2u; i++) {  // unroll
      let t = thread + i * X * Y;
      tile_q[t] = load4_q(from_q, min(m0 + t / QUADS, M - 1u), t % QUADS * 4u);
    }
  }
  var largest = vec4(-tt_inf());
  var total = vec4<f32>();
  var o: array<vec4<f32>, RUNS * 4u>;  // registers
  for (var n0 = 0u; n0 < end; n0 += KEYS) {
    if (skipped(batch, m0, n0)) { continue; }
    var s: array<vec4<f32>, 4u>;  // registers
    for (var d0 = 0u; d0 < WIDTH; d0 += DEPTH) {
      workgroupBarrier();
      if (WIDTH > DEPTH) {
        for (var i = 0u; i < Y / 2u; i++) {  // unroll
          let t = thread + i * X * Y;
          tile_q[t] = load4_q(from_q, min(m0 + t / QUADS, M - 1u), d0 + t % QUADS * 4u);
        }
      }
      for (var i = 0u; i < 4u; i++) {  // unroll
        let t = thread + i * X * Y;
        let row = t / QUADS;
        let quad = t % QUADS;
        tile_k[row * QUADS + (quad ^ (row & 7u))] = load4_k(from_k, min(n0 + row, N - 1u), d0 + quad * 4u);
      }
      if (d0 == 0u) {
        for (var i = 0u; i < 4u; i++) {  // unroll
          let t = thread + i * X * Y;
          tile_v[t] = load4_v(from_v, min(n0 + t / QUADS, N - 1u), t % QUADS * 4u);
        }
      }
      workgroupBarrier();
      for (var d = 0u; d < QUADS; d++) {  // unroll unless BASELINE
        let q0 = tile_q[(y * 4u) * QUADS + d];
        let q1 = tile_q[(y * 4u + 1u) * QUADS + d];
        let q2 = tile_q[(y * 4u + 2u) * QUADS + d];
        let q3 = tile_q[(y * 4u + 3u) * QUADS + d];
        for (var c = 0u; c < 4u; c++) {  // unroll
          let k = tile_k[(x + X * c) * QUADS + (d ^ x)];
          s[c] = fma(vec4(q0.x, q1.x, q2.x, q3.x), vec4(k.x), s[c]);
          s[c] = fma(vec4(q0.y, q1.y, q2.y, q3.y), vec4(k.y), s[c]);
          s[c] = fma(vec4(q0.z, q1.z, q2.z, q3.z), vec4(k.z), s[c]);
          s[c] = fma(vec4(q0.w, q1.w, q2.w, q3.w), vec4(k.w), s[c]);
        }
      }
    }
    for (var c = 0u; c < 4u; c++) {  // unroll
      let n = n0 + x + X * c;
      for (var r = 0u; r < 4u; r++) {  // unroll unless ROLLED or BASELINE
        s[c][r] = select(-tt_inf(), score(batch, min(m0 + y * 4u + r, M - 1u), min(n, N - 1u), s[c][r]), n < N);
      }
    }

    // the largest of each row, by way of the memory of k
    workgroupBarrier();
    tile_k[y * X + x] = max(max(s[0], s[1]), max(s[2], s[3]));
    workgroupBarrier();
    var top = largest;
    for (var i = 0u; i < X; i++) {  // unroll
      top = max(top, tile_k[y * X + i]);
    }
    let base = select(top, vec4<f32>(), top == vec4(-tt_inf()));  // a row that has seen no key
    let shrunk = exp(largest - base);
    largest = top;
    total *= shrunk;
    for (var i = 0u; i < RUNS; i++) {  // unroll
      o[i * 4u] *= shrunk.x;
      o[i * 4u + 1u] *= shrunk.y;
      o[i * 4u + 2u] *= shrunk.z;
      o[i * 4u + 3u] *= shrunk.w;
    }
    workgroupBarrier();
    for (var c = 0u; c < 4u; c++) {  // unroll
      var p = exp(s[c] - base);
      total += p;
      if (DROPOUT == 1u) {
        for (var r = 0u; r < 4u; r++) {  // unroll unless ROLLED or BASELINE
          p[r] *= kept(batch, min(m0 + y * 4u + r, M - 1u), min(n0 + x + X * c, N - 1u));
        }
      }
      tile_k[(x + X * c) * Y + (y ^ x)] = p;
    }
    for (var v0 = 0u; v0 < VALUES / DEPTH; v0++) {  // unroll
      if (v0 > 0u) {
        workgroupBarrier();
        for (var i = 0u; i < 4u; i++) {  // unroll
          let t = thread + i * X * Y;
          tile_v[t] = load4_v(from_v, min(n0 + t / QUADS, N - 1u), v0 * DEPTH + t % QUADS * 4u);
        }
      }
      workgroupBarrier();
      for (var j = 0u; j < KEYS; j++) {
        let p = tile_k[j * Y + (y ^ (j & 7u))];
        for (var i = 0u; i < RUNS_AT_ONCE; i++) {  // unroll
          let v = tile_v[j * QUADS + x + X * i];
          o[(v0 * RUNS_AT_ONCE + i) * 4u] = fma(vec4(p.x), v, o[(v0 * RUNS_AT_ONCE + i) * 4u]);
          o[(v0 * RUNS_AT_ONCE + i) * 4u + 1u] = fma(vec4(p.y), v, o[(v0 * RUNS_AT_ONCE + i) * 4u + 1u]);
          o[(v0 * RUNS_AT_ONCE + i) * 4u + 2u] = fma(vec4(p.z), v, o[(v0 * RUNS_AT_ONCE + i) * 4u + 2u]);
          o[(v0 * RUNS_AT_ONCE + i) * 4u + 3u] = fma(vec4(p.w), v, o[(v0 * RUNS_AT_ONCE + i) * 4u + 3u]);
        }
      }
    }
  }

  // the threads of a row have each the total of their own keys
  workgroupBarrier();
  tile_k[y * X + x] = total;
  workgroupBarrier();
  total = vec4<f32>();
  for (var i = 0u; i < X; i++) {  // unroll
    total += tile_k[y * X + i];
  }
  let part = select(vec4(1.0) / total, vec4<f32>(), total == vec4<f32>());
  for (var r = 0u; r < 4u; r++) {  // unroll
    let m = m0 + y * 4u + r;
    if (m < M) {
      for (var i = 0u; i < RUNS; i++) {  // unroll
        store4_out(batch, m, (x + X * i) * 4u, o[i * 4u + r] * part[r]);
      }
      if (x == 0u) { store_lse(batch, m, select(log(total[r]) + largest[r], tt_inf(), total[r] == 0.0)); }
    }
  }
}

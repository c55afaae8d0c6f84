// out[b, m, :] = sum over n of p[m, n] v[b, n, :], where p[m, :] is the softmax of score(q[b, m] . k[b, n]), in one pass over n:
// scores are never in memory (Dao et al., FlashAttention, 2022; Milakov & Gimelshein, online softmax, 2018).
//
// A workgroup of X * Y threads makes ROWS rows of results, and takes KEYS keys a step. A thread has one or two (HALVES) groups of
// 4 neighbouring rows: it makes their scores with 4 keys that lie X apart, and of each row of the result RUNS vectors of 4
// columns. Of q, k and v, DEPTH columns at a time lie in workgroup memory, where a row of k or of p begins at a place of its own
// (the exclusive or below), so that threads side by side use different banks. What a thread has of 4 rows (the largest scores,
// totals, a column of p) is a vector.
//
// The engine writes: size_M/N(); first_row(group), where a workgroup's rows begin; last_key(row), before which the keys of the
// rows up to `row` end; keys_of(b), which batch of k and v serves b; begin_*(b), load4_*(begin, row, column), see engine/template.py;
// score(b, m, n, value); store4_out(b, m, column, value); store_lse(b, m, value): the logarithm of the sum of exp(score), and
// infinity for a row that sees no key, which makes its probabilities zeros in the gradient.

const Y: u32 = 16u;
const HALVES: u32 = 1u;
const WIDTH: u32 = 64u;  // columns of q and k, rounded up to a multiple of DEPTH
const VALUES: u32 = 64u;  // columns of v, likewise
const X = 8u;
const KEYS = 32u;
const ROWS = 4u * Y * HALVES;
const DEPTH = ROWS;
const QUADS = DEPTH / 4u;  // and groups of 4 rows
const LOADS = 4u * HALVES;  // of a thread, for KEYS rows of a tile
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
    for (var i = 0u; i < ROWS * QUADS / (X * Y); i++) {  // unroll
      let t = thread + i * X * Y;
      tile_q[t] = load4_q(from_q, min(m0 + t / QUADS, M - 1u), t % QUADS * 4u);
    }
  }
  var largest = array<vec4<f32>, HALVES>();
  var total = array<vec4<f32>, HALVES>();
  for (var h = 0u; h < HALVES; h++) {  // unroll
    largest[h] = vec4(-tt_inf());
  }
  var o = array<vec4<f32>, HALVES * RUNS * 4u>();
  for (var n0 = 0u; n0 < end; n0 += KEYS) {
    var s = array<vec4<f32>, HALVES * 4u>();  // without a value, compilers leave what the last step had
    for (var d0 = 0u; d0 < WIDTH; d0 += DEPTH) {
      workgroupBarrier();
      if (WIDTH > DEPTH) {
        for (var i = 0u; i < ROWS * QUADS / (X * Y); i++) {  // unroll
          let t = thread + i * X * Y;
          tile_q[t] = load4_q(from_q, min(m0 + t / QUADS, M - 1u), d0 + t % QUADS * 4u);
        }
      }
      for (var i = 0u; i < LOADS; i++) {  // unroll
        let t = thread + i * X * Y;
        let row = t / QUADS;
        let quad = t % QUADS;
        tile_k[row * QUADS + (quad ^ (row & 7u))] = load4_k(from_k, min(n0 + row, N - 1u), d0 + quad * 4u);
      }
      if (d0 == 0u) {
        for (var i = 0u; i < LOADS; i++) {  // unroll
          let t = thread + i * X * Y;
          tile_v[t] = load4_v(from_v, min(n0 + t / QUADS, N - 1u), t % QUADS * 4u);
        }
      }
      workgroupBarrier();
      for (var d = 0u; d < QUADS; d++) {
        let k0 = tile_k[x * QUADS + (d ^ x)];
        let k1 = tile_k[(x + X) * QUADS + (d ^ x)];
        let k2 = tile_k[(x + X * 2u) * QUADS + (d ^ x)];
        let k3 = tile_k[(x + X * 3u) * QUADS + (d ^ x)];
        for (var h = 0u; h < HALVES; h++) {  // unroll
          let q0 = tile_q[((h * Y + y) * 4u) * QUADS + d];
          let q1 = tile_q[((h * Y + y) * 4u + 1u) * QUADS + d];
          let q2 = tile_q[((h * Y + y) * 4u + 2u) * QUADS + d];
          let q3 = tile_q[((h * Y + y) * 4u + 3u) * QUADS + d];
          let ax = vec4(q0.x, q1.x, q2.x, q3.x);
          let ay = vec4(q0.y, q1.y, q2.y, q3.y);
          let az = vec4(q0.z, q1.z, q2.z, q3.z);
          let aw = vec4(q0.w, q1.w, q2.w, q3.w);
          s[h * 4u] = fma(aw, vec4(k0.w), fma(az, vec4(k0.z), fma(ay, vec4(k0.y), fma(ax, vec4(k0.x), s[h * 4u]))));
          s[h * 4u + 1u] = fma(aw, vec4(k1.w), fma(az, vec4(k1.z), fma(ay, vec4(k1.y), fma(ax, vec4(k1.x), s[h * 4u + 1u]))));
          s[h * 4u + 2u] = fma(aw, vec4(k2.w), fma(az, vec4(k2.z), fma(ay, vec4(k2.y), fma(ax, vec4(k2.x), s[h * 4u + 2u]))));
          s[h * 4u + 3u] = fma(aw, vec4(k3.w), fma(az, vec4(k3.z), fma(ay, vec4(k3.y), fma(ax, vec4(k3.x), s[h * 4u + 3u]))));
        }
      }
    }
    for (var h = 0u; h < HALVES; h++) {  // unroll
      for (var c = 0u; c < 4u; c++) {  // unroll
        let n = n0 + x + X * c;
        for (var r = 0u; r < 4u; r++) {  // unroll
          let m = min(m0 + (h * Y + y) * 4u + r, M - 1u);
          s[h * 4u + c][r] = select(-tt_inf(), score(batch, m, min(n, N - 1u), s[h * 4u + c][r]), n < N);
        }
      }
    }

    // the largest of each row, by way of the memory of k
    workgroupBarrier();
    for (var h = 0u; h < HALVES; h++) {  // unroll
      tile_k[(h * Y + y) * X + x] = max(max(s[h * 4u], s[h * 4u + 1u]), max(s[h * 4u + 2u], s[h * 4u + 3u]));
    }
    workgroupBarrier();
    for (var h = 0u; h < HALVES; h++) {  // unroll
      var top = largest[h];
      for (var i = 0u; i < X; i++) {  // unroll
        top = max(top, tile_k[(h * Y + y) * X + i]);
      }
      let base = select(top, vec4<f32>(), top == vec4(-tt_inf()));  // a row that has seen no key
      let shrunk = exp(largest[h] - base);
      largest[h] = top;
      var sum = total[h] * shrunk;
      for (var c = 0u; c < 4u; c++) {  // unroll
        s[h * 4u + c] = exp(s[h * 4u + c] - base);
        sum += s[h * 4u + c];
      }
      total[h] = sum;
      for (var i = 0u; i < RUNS; i++) {  // unroll
        o[(h * RUNS + i) * 4u] *= shrunk.x;
        o[(h * RUNS + i) * 4u + 1u] *= shrunk.y;
        o[(h * RUNS + i) * 4u + 2u] *= shrunk.z;
        o[(h * RUNS + i) * 4u + 3u] *= shrunk.w;
      }
    }
    workgroupBarrier();
    for (var h = 0u; h < HALVES; h++) {  // unroll
      for (var c = 0u; c < 4u; c++) {  // unroll
        tile_k[(x + X * c) * QUADS + h * Y + (y ^ x)] = s[h * 4u + c];
      }
    }
    for (var v0 = 0u; v0 < VALUES / DEPTH; v0++) {  // unroll
      if (v0 > 0u) {
        workgroupBarrier();
        for (var i = 0u; i < LOADS; i++) {  // unroll
          let t = thread + i * X * Y;
          tile_v[t] = load4_v(from_v, min(n0 + t / QUADS, N - 1u), v0 * DEPTH + t % QUADS * 4u);
        }
      }
      workgroupBarrier();
      for (var j = 0u; j < KEYS; j++) {
        for (var i = 0u; i < RUNS_AT_ONCE; i++) {  // unroll
          let v = tile_v[j * QUADS + x + X * i];
          for (var h = 0u; h < HALVES; h++) {  // unroll
            let p = tile_k[j * QUADS + h * Y + (y ^ (j & 7u))];
            o[(h * RUNS + v0 * RUNS_AT_ONCE + i) * 4u] = fma(vec4(p.x), v, o[(h * RUNS + v0 * RUNS_AT_ONCE + i) * 4u]);
            o[(h * RUNS + v0 * RUNS_AT_ONCE + i) * 4u + 1u] = fma(vec4(p.y), v, o[(h * RUNS + v0 * RUNS_AT_ONCE + i) * 4u + 1u]);
            o[(h * RUNS + v0 * RUNS_AT_ONCE + i) * 4u + 2u] = fma(vec4(p.z), v, o[(h * RUNS + v0 * RUNS_AT_ONCE + i) * 4u + 2u]);
            o[(h * RUNS + v0 * RUNS_AT_ONCE + i) * 4u + 3u] = fma(vec4(p.w), v, o[(h * RUNS + v0 * RUNS_AT_ONCE + i) * 4u + 3u]);
          }
        }
      }
    }
  }

  // the threads of a row have each the total of their own keys
  workgroupBarrier();
  for (var h = 0u; h < HALVES; h++) {  // unroll
    tile_k[(h * Y + y) * X + x] = total[h];
  }
  workgroupBarrier();
  for (var h = 0u; h < HALVES; h++) {  // unroll
    var sum = vec4<f32>();
    for (var i = 0u; i < X; i++) {  // unroll
      sum += tile_k[(h * Y + y) * X + i];
    }
    let part = select(vec4(1.0) / sum, vec4<f32>(), sum == vec4<f32>());
    for (var r = 0u; r < 4u; r++) {  // unroll
      let m = m0 + (h * Y + y) * 4u + r;
      if (m < M) {
        for (var i = 0u; i < RUNS; i++) {  // unroll
          store4_out(batch, m, (x + X * i) * 4u, o[(h * RUNS + i) * 4u + r] * part[r]);
        }
        if (x == 0u) { store_lse(batch, m, select(log(sum[r]) + largest[h][r], tt_inf(), sum[r] == 0.0)); }
      }
    }
  }
}

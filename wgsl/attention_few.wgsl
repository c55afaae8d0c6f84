// attention.wgsl for a few rows of queries, as a decoder asks for one token after another: a workgroup makes one row.
//
// KEYS keys a step: each thread makes the scores of its own keys, the query in workgroup memory; then all threads go along the
// rows of v side by side, VALUES / 4 of them a row, and each adds up what its keys contribute to four columns. Largest and total
// are kept from step to step as in attention.wgsl.
//
// The engine writes what it writes there, for tiles of one row.

const WIDTH: u32 = 64u;  // columns of q and k, rounded up to a multiple of 4
const VALUES: u32 = 64u;  // columns of v, rounded up to 32, 64, 128 or 256
const DROPOUT: u32 = 0u;
const THREADS = 256u;
const KEYS = 1024u;
const QUADS = WIDTH / 4u;
const COLUMNS = VALUES / 4u;  // vectors of a row of v
const TURNS = THREADS / COLUMNS;  // rows of v side by side
const SHARES = 16u;

var<workgroup> query: array<vec4<f32>, QUADS>;
var<workgroup> p: array<f32, KEYS>;  // scores, then probabilities
var<workgroup> each: array<f32, THREADS>;
var<workgroup> shares: array<f32, SHARES>;
var<workgroup> sums: array<vec4<f32>, THREADS>;

@compute @workgroup_size(THREADS, 1, 1)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let M = size_M();
  let N = size_N();
  let batch = group.y;
  let keys = keys_of(batch);
  let m = first_row(group.x);
  let end = last_key(m);
  let from_q = begin_q(batch);
  let from_k = begin_k(keys);
  let from_v = begin_v(keys);
  let column = thread % COLUMNS;
  let turn = thread / COLUMNS;
  if (thread < QUADS) { query[thread] = load4_q(from_q, m, thread * 4u); }
  var largest = -tt_inf();
  var total = 0.0;  // of the thread's own keys
  var o = vec4<f32>();
  for (var n0 = 0u; n0 < end; n0 += KEYS) {
    workgroupBarrier();
    var top = largest;
    for (var i = thread; i < min(KEYS, end - n0); i += THREADS) {
      let n = n0 + i;
      var s = -tt_inf();
      if (!skipped(batch, m, n / 64u * 64u)) {
        var found = vec4<f32>();
        for (var d = 0u; d < QUADS; d++) {
          found = fma(query[d], load4_k(from_k, n, d * 4u), found);
        }
        s = score(batch, m, n, (found.x + found.y) + (found.z + found.w));
      }
      p[i] = s;
      top = max(top, s);
    }

    // the largest of all, by way of SHARES threads
    each[thread] = top;
    workgroupBarrier();
    if (thread < SHARES) {
      for (var i = 0u; i < THREADS / SHARES; i++) {  // unroll
        top = max(top, each[i * SHARES + thread]);
      }
      shares[thread] = top;
    }
    workgroupBarrier();
    for (var i = 0u; i < SHARES; i++) {  // unroll
      top = max(top, shares[i]);
    }
    let base = select(top, 0.0, top == -tt_inf());  // no key has been seen
    let shrunk = exp(largest - base);
    largest = top;
    total *= shrunk;
    o *= shrunk;
    for (var i = thread; i < min(KEYS, end - n0); i += THREADS) {
      let x = exp(p[i] - base);
      total += x;
      p[i] = select(x, x * kept(batch, m, n0 + i), DROPOUT == 1u);
    }
    workgroupBarrier();
    for (var i = turn; i < min(KEYS, end - n0); i += TURNS) {
      o = fma(vec4(p[i]), load4_v(from_v, n0 + i, column * 4u), o);
    }
  }

  each[thread] = total;
  sums[thread] = o;
  workgroupBarrier();
  if (thread < SHARES) {
    total = 0.0;
    for (var i = 0u; i < THREADS / SHARES; i++) {  // unroll
      total += each[i * SHARES + thread];
    }
    shares[thread] = total;
  }
  workgroupBarrier();
  if (thread < COLUMNS) {
    total = 0.0;
    for (var i = 0u; i < SHARES; i++) {  // unroll
      total += shares[i];
    }
    for (var i = 1u; i < TURNS; i++) {  // unroll
      o += sums[i * COLUMNS + thread];
    }
    store4_out(batch, m, thread * 4u, o * select(1.0 / total, 0.0, total == 0.0));
    if (thread == 0u) { store_lse(batch, m, select(log(total) + largest, tt_inf(), total == 0.0)); }
  }
}

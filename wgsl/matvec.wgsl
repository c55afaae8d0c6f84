// out[b, m, n] = sum over k of x[b, m, k] * w[b, n, k] for few rows m: a vector, or some, times a matrix, which is read once.
//
// A workgroup of 256 threads makes 256 / TEAM groups of 4 columns n, for all rows. A thread takes blocks of w, 4 columns by 4 of
// k, and adds their products with every row's 4 of k in registers: TEAM threads walk k side by side for the same columns.
// WALK says along what neighbouring threads go: along k where the values of one n lie together in memory, else along n.
// Of two blocks (AHEAD) all is read before anything is multiplied. The sums of a team are joined in workgroup memory, for
// CHUNK rows at a time: some threads add a share each, and a thread a result adds those.
//
// FEW rows are computed, rows past the last read the last again and are not stored; neither are columns. RAGGED: k may be no
// multiple of 4; each of the last ones, 3 at most, is one thread's.
//
// The engine writes: size_M/N(); batch_of(z), first_k(z), last_k(z), what a workgroup's z stands for: where a matrix has
// few columns and k is long, it is cut and the parts are added by a second kernel; place_x(b, m), place_w(b, n), where a row or
// a column begins; load4_x(place, k), four of k; load_x(place, k); block_w(places, k), whose columns are four of k, of the
// four n that begin at `places`; line_w(places, k), one of them; store_out(z, m, n, value).

const FEW = 1u;
const TEAM = 64u;
const CHUNK = 1u;
const AHEAD = 2u;
const SHARES = 8u;
const WALK = true;
const RAGGED = true;

const THREADS = 256u;
const GROUPS = THREADS / TEAM;

var<workgroup> sums: array<vec4<f32>, THREADS * CHUNK>;
var<workgroup> shares: array<vec4<f32>, GROUPS * SHARES * CHUNK>;

@compute @workgroup_size(THREADS, 1, 1)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let M = size_M();
  let N = size_N();
  let batch = batch_of(group.z);
  let begin = first_k(group.z);
  let end = last_k(group.z);
  let own = select(thread % GROUPS, thread / TEAM, WALK);
  let lane = select(thread / GROUPS, thread % TEAM, WALK);
  let n = min(vec4((group.x * GROUPS + own) * 4u) + vec4(0u, 1u, 2u, 3u), vec4(N - 1u));
  let places = vec4(place_w(batch, n.x), place_w(batch, n.y), place_w(batch, n.z), place_w(batch, n.w));
  var rows: array<u32, FEW>;
  var sum: array<vec4<f32>, FEW>;
  for (var m = 0u; m < FEW; m++) {  // unroll
    rows[m] = place_x(batch, min(m, M - 1u));
  }
  let full = begin + (end - begin) / 4u * 4u;
  for (var k = begin + lane * 4u; k < full; k += AHEAD * TEAM * 4u) {
    var w: array<mat4x4<f32>, AHEAD>;
    for (var i = 0u; i < AHEAD; i++) {  // unroll
      let at = k + i * TEAM * 4u;
      w[i] = block_w(places, select(k, at, at < full));
    }
    for (var i = 0u; i < AHEAD; i++) {  // unroll
      let at = k + i * TEAM * 4u;
      if (at < full) {
        for (var m = 0u; m < FEW; m++) {  // unroll
          let x = load4_x(rows[m], at);
          sum[m] = fma(vec4(x.x), w[i][0], sum[m]);
          sum[m] = fma(vec4(x.y), w[i][1], sum[m]);
          sum[m] = fma(vec4(x.z), w[i][2], sum[m]);
          sum[m] = fma(vec4(x.w), w[i][3], sum[m]);
        }
      }
    }
  }
  if (RAGGED && full + lane < end) {
    let w = line_w(places, full + lane);
    for (var m = 0u; m < FEW; m++) {  // unroll
      sum[m] = fma(vec4(load_x(rows[m], full + lane)), w, sum[m]);
    }
  }

  // a loop, so that what is done with a result stands there once: of the arrays in registers each turn takes its own
  for (var first = 0u; first < FEW; first += CHUNK) {
    for (var m = 0u; m < FEW; m++) {  // unroll
      if (m / CHUNK * CHUNK == first) { sums[m % CHUNK * THREADS + own * TEAM + lane] = sum[m]; }
    }
    workgroupBarrier();
    if (thread < GROUPS * SHARES * CHUNK) {
      let at = thread / SHARES * TEAM + thread % SHARES;
      var share = sums[at];
      for (var i = 1u; i < TEAM / SHARES; i++) {  // unroll
        share += sums[at + i * SHARES];
      }
      shares[thread] = share;
    }
    workgroupBarrier();
    if (thread < GROUPS * 4u * CHUNK) {
      let at = thread / 4u * SHARES;
      var value = shares[at][thread % 4u];
      for (var i = 1u; i < SHARES; i++) {  // unroll
        value += shares[at + i][thread % 4u];
      }
      let m = first + thread / (GROUPS * 4u);
      let n = group.x * GROUPS * 4u + thread % (GROUPS * 4u);
      if (m < M && n < N) { store_out(group.z, m, n, value); }
    }
  }
}

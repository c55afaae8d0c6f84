// out[n] = sum over k of w[n, k] * x[k], where the rows of w are packed in blocks of BLOCK weights.
//
// A workgroup makes ROWS results. Each step brings THREADS blocks' worth of x into workgroup memory, where a block takes one
// place more than it has, so that threads that read the same place of their blocks read from different banks. A thread then has a
// block of each row: it reads the words of the block once, and takes the weights out of them in registers. The sums of the
// threads are joined at the end.
//
// The engine writes: size_rows(), size_blocks() of a row; load_x(k); dot_block(block, at), the sum of the products of the weights
// of a block of w with what lies in `xs` from `at` on; store_out(n, value).

const THREADS = 64u;
const ROWS = 4u;
const BLOCK = 32u;

var<workgroup> xs: array<f32, THREADS * (BLOCK + 1u)>;
var<workgroup> sums: array<vec4<f32>, THREADS>;

@compute @workgroup_size(THREADS, 1, 1)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let rows = size_rows();
  let blocks = size_blocks();
  let first = group.x * ROWS;
  let last = rows - 1u; // rows past it read it again, and are not stored
  var sum = vec4<f32>();
  for (var start = 0u; start < blocks; start += THREADS) {
    for (var t = thread; t < THREADS * BLOCK; t += THREADS) {
      let k = start * BLOCK + t;
      var x = 0.0;
      if (k < blocks * BLOCK) { x = load_x(k); }
      xs[t + t / BLOCK] = x;
    }
    workgroupBarrier();
    let block = start + thread;
    if (block < blocks) {
      let at = thread * (BLOCK + 1u);
      sum += vec4(
        dot_block(min(first, last) * blocks + block, at),
        dot_block(min(first + 1u, last) * blocks + block, at),
        dot_block(min(first + 2u, last) * blocks + block, at),
        dot_block(min(first + 3u, last) * blocks + block, at),
      );
    }
    workgroupBarrier();
  }
  sums[thread] = sum;
  workgroupBarrier();
  for (var half = THREADS / 2u; half > 0u; half /= 2u) {
    if (thread < half) { sums[thread] += sums[thread + half]; }
    workgroupBarrier();
  }
  if (thread < ROWS && first + thread < rows) { store_out(first + thread, sums[0][thread]); }
}

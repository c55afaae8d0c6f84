// Of each digit, how many there are in the blocks before each block, and in all: see sort.wgsl. A workgroup does a digit of a row.
//
// The engine writes: size_blocks(); count_of(row, digit, block); keep(row, digit, block, before), in its place;
// keep_total(row, digit, count).

const THREADS = 256u;

var<workgroup> sums: array<u32, THREADS>;

@compute @workgroup_size(THREADS, 1, 1)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  var carry = 0u;
  for (var block = 0u; block < size_blocks(); block += THREADS) {
    let at = block + thread;
    var own = 0u;
    if (at < size_blocks()) { own = count_of(group.y, group.x, at); }
    workgroupBarrier();
    sums[thread] = own;
    for (var step = 1u; step < THREADS; step *= 2u) {
      workgroupBarrier();
      var left = 0u;
      if (thread >= step) { left = sums[thread - step]; }
      workgroupBarrier();
      sums[thread] += left;
    }
    workgroupBarrier();
    if (at < size_blocks()) { keep(group.y, group.x, at, carry + sums[thread] - own); }
    carry += sums[THREADS - 1u];
  }
  if (thread == 0u) { keep_total(group.y, group.x, carry); }
}

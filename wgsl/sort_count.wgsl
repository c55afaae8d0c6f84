// How many of a block's keys have each digit of 8 bits: see sort.wgsl.
//
// The engine writes: size_N(); shift(); key_of(row, i); keep(row, digit, block, count).

const THREADS = 256u;
const RUN = 8u;

var<workgroup> counts: array<atomic<u32>, 256>;

@compute @workgroup_size(THREADS, 1, 1)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  for (var i = 0u; i < RUN; i++) {  // unroll
    let at = group.x * THREADS * RUN + thread + i * THREADS;
    if (at < size_N()) { atomicAdd(&counts[(key_of(group.y, at) >> shift()) & 255u], 1u); }
  }
  workgroupBarrier();
  keep(group.y, thread, group.x, atomicLoad(&counts[thread]));
}

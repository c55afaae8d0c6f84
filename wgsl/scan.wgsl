// Running combinations along rows whose elements lie side by side: y[i] = finish(x[0] joined with x[1] … x[i]).
//
// A workgroup walks one chunk of a row, a block of THREADS * RUN elements a step. They come to workgroup memory as they lie, so
// that threads side by side read what lies side by side; then a thread takes a run of RUN neighbours, and the states of
// the runs are scanned by doubling (Hillis & Steele, 1986). Where a row has several chunks, a first pass with TOTALS
// keeps each chunk's state alone, a second scans those, and this one begins with what they say.
//
// The engine writes: State, Value and Result, types; neutral(), join(a, b); fetch(row, i), lifted(value, i); finish(state);
// keep(row, i, result); size_N(), size_chunk(); before(row, chunk), the state of all before; keep_total(row, chunk, state);
// stage_out(i, result), staged(i): results that go out by way of workgroup memory (or, where it has no room for their
// type, not: then STAGED is false, and they go out at once).

const TOTALS = false;
const STAGED = true;
const THREADS = 256u;
const RUN = 8u;
const BLOCK = THREADS * RUN;

var<workgroup> stage: array<Value, BLOCK + BLOCK / 32u>;  // an element of padding after 32, against conflicts of banks
var<workgroup> states: array<State, THREADS>;

fn padded(i: u32) -> u32 { return i + (i >> 5u); }

@compute @workgroup_size(THREADS, 1, 1)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let row = group.y;
  let start = group.x * size_chunk();
  let end = min(start + size_chunk(), size_N());
  var carry = before(row, group.x);
  for (var block = start; block < end; block += BLOCK) {
    workgroupBarrier();
    for (var i = 0u; i < RUN; i++) {  // unroll
      let at = thread + i * THREADS;
      if (block + at < end) { stage[padded(at)] = fetch(row, block + at); }
    }
    workgroupBarrier();
    let first = thread * RUN;
    var state = neutral();
    for (var i = 0u; i < RUN; i++) {  // unroll
      let at = block + first + i;
      if (at < end) { state = join(state, lifted(stage[padded(first + i)], at)); }
    }
    states[thread] = state;
    for (var step = 1u; step < THREADS; step *= 2u) {
      workgroupBarrier();
      var left = neutral();
      if (thread >= step) { left = states[thread - step]; }
      workgroupBarrier();
      if (thread >= step) {
        state = join(left, state);
        states[thread] = state;
      }
    }
    workgroupBarrier();
    if (!TOTALS) {
      state = neutral();
      if (thread > 0u) { state = states[thread - 1u]; }
      state = join(carry, state);
      for (var i = 0u; i < RUN; i++) {  // unroll
        let at = block + first + i;
        if (at < end) {
          state = join(state, lifted(stage[padded(first + i)], at));
          if (STAGED) { stage_out(padded(first + i), finish(state)); } else { keep(row, at, finish(state)); }
        }
      }
      if (STAGED) {
        workgroupBarrier();
        for (var i = 0u; i < RUN; i++) {  // unroll
          let at = thread + i * THREADS;
          if (block + at < end) { keep(row, block + at, staged(padded(at))); }
        }
      }
    }
    carry = join(carry, states[THREADS - 1u]);
  }
  if (TOTALS && thread == 0u) { keep_total(row, group.x, carry); }
}

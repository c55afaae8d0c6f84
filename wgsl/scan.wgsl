// Running combinations along rows whose elements lie side by side: y[i] = finish(x[0] joined with x[1] … x[i]).
//
// A workgroup walks one chunk of a row, a block of THREADS * RUN elements a step; a thread has a run of RUN neighbours, read in
// fours, in registers. Of the states of the runs, LANES threads join SHARE each, those are scanned by doubling (Hillis &
// Steele, 1986), and handed back: fewer joins than if all threads doubled, for an exact sum is a dozen operations. Results go
// out by way of workgroup memory, HALF of a thread's at a time, so that threads side by side store what lies side by
// side; where it has no room for their type (STAGED is false) they go out at once. Where a row has several chunks, a first
// pass with TOTALS keeps each chunk's state alone, a second scans those, and this one begins with what they say. What lies
// behind a row's end, in its last block, is joined like the rest: it only reaches what is behind the end too, which is never kept.
//
// The engine writes: State, Value and Result, types; neutral(), join(a, b); fetch4(row, i, last), four values from i on, none
// behind the last; lifted(value, i); finish(state); keep(row, i, result); size_N(), size_chunk(); before(row, chunk), the state
// of all before; keep_total(row, chunk, state).

const TOTALS = false;
const STAGED = true;
const RUN = 16u;
const THREADS = 256u;
const BLOCK = THREADS * RUN;
const HALF = 8u;
const ROOM = 2112u;  // for HALF of all threads', with an element of padding after 32, against conflicts of banks
const LANES = 32u;
const SHARE = THREADS / LANES;

var<workgroup> stage: array<Result, ROOM>;
var<workgroup> states: array<State, THREADS + LANES>;  // one after SHARE
var<workgroup> lanes: array<State, LANES * 2u>;  // before and after a step of the doubling

fn padded(i: u32) -> u32 { return i + (i >> 5u); }

@compute @workgroup_size(THREADS, 1, 1)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let row = group.y;
  let start = group.x * size_chunk();
  let end = min(start + size_chunk(), size_N());
  let own = thread + thread / SHARE;
  let mine = thread * (SHARE + 1u);
  var carry = before(row, group.x);
  for (var block = start; block < end; block += BLOCK) {
    let first = block + thread * RUN;
    var value: array<Value, RUN>;
    for (var i = 0u; i < RUN / 4u; i++) {  // unroll
      let four = fetch4(row, first + i * 4u, end - 1u);
      value[i * 4u] = four[0];
      value[i * 4u + 1u] = four[1];
      value[i * 4u + 2u] = four[2];
      value[i * 4u + 3u] = four[3];
    }
    var state = neutral();
    for (var i = 0u; i < RUN; i++) {  // unroll
      state = join(state, lifted(value[i], first + i));
    }
    states[own] = state;
    workgroupBarrier();
    var part = neutral();
    if (thread < LANES) {
      for (var i = 0u; i < SHARE; i++) {  // unroll
        part = join(part, states[mine + i]);
      }
      lanes[thread] = part;
    }
    var side = 0u;
    for (var step = 1u; step < LANES; step *= 2u) {
      workgroupBarrier();
      if (thread < LANES) {
        if (thread >= step) { part = join(lanes[side + thread - step], part); }
        lanes[LANES - side + thread] = part;
      }
      side = LANES - side;
    }
    workgroupBarrier();
    if (!TOTALS) {
      if (thread < LANES) {
        part = neutral();
        if (thread > 0u) { part = lanes[side + thread - 1u]; }
        for (var i = 0u; i < SHARE; i++) {  // unroll
          let next = states[mine + i];
          states[mine + i] = part;
          part = join(part, next);
        }
      }
      workgroupBarrier();
      state = join(carry, states[own]);
      for (var half = 0u; half < RUN / HALF; half++) {  // unroll
        for (var i = 0u; i < HALF; i++) {  // unroll
          let at = first + half * HALF + i;
          state = join(state, lifted(value[half * HALF + i], at));
          if (STAGED) { stage[padded(thread * HALF + i)] = finish(state); } else if (at < end) { keep(row, at, finish(state)); }
        }
        if (STAGED) {
          workgroupBarrier();
          for (var i = 0u; i < HALF; i++) {  // unroll
            let q = thread + i * THREADS;
            let at = block + q / HALF * RUN + half * HALF + q % HALF;
            if (at < end) { keep(row, at, stage[padded(q)]); }
          }
          workgroupBarrier();
        }
      }
    }
    carry = join(carry, lanes[side + LANES - 1u]);
  }
  if (TOTALS && thread == 0u) { keep_total(row, group.x, carry); }
}

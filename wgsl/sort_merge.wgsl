// Merges sorted runs of rows pairwise, stably. A workgroup makes BLOCK places of the result: its threads find where these begin and end in
// both runs, by as many probes at once as there are threads; what lies between comes to workgroup memory, where each thread
// finds its RUN places in the same way, see sort_block.wgsl.
//
// The engine writes: Key, in_order(a, b), size_N(), size_blocks(), size_groups(), keep(row, i, key, item), as there; size_width(), of a run,
// a multiple of BLOCK; key_of(row, i), item_of(row, i).

const THREADS = 128u;
const RUN = 8u;
const BLOCK = THREADS * RUN;
const PROBES = THREADS / 2u;

var<workgroup> keys: array<Key, BLOCK + BLOCK / 32u>;  // an element of padding after 32, against conflicts of banks
var<workgroup> items: array<u32, BLOCK + BLOCK / 32u>;
// of the first place and of the one behind the last: how many elements of the left run come before it, between these bounds
var<workgroup> lows: array<atomic<u32>, 2>;
var<workgroup> highs: array<atomic<u32>, 2>;

fn padded(i: u32) -> u32 { return i + (i >> 5u); }

@compute @workgroup_size(THREADS, 1, 1)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
) {
  let number = (group.z * groups.y + group.y) * groups.x + group.x;
  if (number >= size_groups()) { return; }
  let row = number / size_blocks();
  let start = number % size_blocks() * BLOCK;
  let width = size_width();
  let left = start / (2u * width) * (2u * width);
  let right = min(left + width, size_N());
  let lefts = right - left;
  let rights = min(right + width, size_N()) - right;
  let count = min(size_N() - start, BLOCK);

  let side = thread / PROBES;
  let place = start - left + side * count;
  var low = max(place, rights) - rights;
  var high = min(place, lefts);
  if (thread % PROBES == 0u) {
    atomicStore(&lows[side], low);
    atomicStore(&highs[side], high);
  }
  for (var range = width; range > 0u; range /= PROBES) {
    workgroupBarrier();
    low = atomicLoad(&lows[side]);
    high = atomicLoad(&highs[side]);
    workgroupBarrier();
    if (low < high) {
      let step = (high - low + PROBES - 1u) / PROBES;
      let probe = low + thread % PROBES * step;
      if (probe < high) {
        if (in_order(key_of(row, left + probe), key_of(row, right + place - 1u - probe))) {
          atomicMax(&lows[side], probe + 1u);
        } else {
          atomicMin(&highs[side], probe);
        }
      }
    }
  }
  workgroupBarrier();
  let from_left = atomicLoad(&lows[0]);
  let mine = atomicLoad(&lows[1]) - from_left;  // so many of the left run, and first in workgroup memory
  let from_right = start - left - from_left;
  for (var i = 0u; i < RUN; i++) {  // unroll
    let at = thread + i * THREADS;
    if (at < count) {
      let source = select(right + from_right + at - mine, left + from_left + at, at < mine);
      keys[padded(at)] = key_of(row, source);
      items[padded(at)] = item_of(row, source);
    }
  }
  workgroupBarrier();
  let first = min(thread * RUN, count);
  low = max(first, count - mine) - (count - mine);
  high = min(first, mine);
  while (low < high) {
    let half = (low + high) / 2u;
    if (in_order(keys[padded(half)], keys[padded(mine + first - 1u - half)])) { low = half + 1u; } else { high = half; }
  }
  var a = low;
  var b = mine + first - low;
  var key_a = keys[padded(min(a, BLOCK - 1u))];
  var key_b = keys[padded(min(b, BLOCK - 1u))];
  var key: array<Key, RUN>;
  var item: array<u32, RUN>;
  for (var i = 0u; i < RUN; i++) {  // unroll
    if (a < mine && (b >= count || in_order(key_a, key_b))) {
      key[i] = key_a;
      item[i] = items[padded(a)];
      a++;
      key_a = keys[padded(min(a, BLOCK - 1u))];
    } else {
      key[i] = key_b;
      item[i] = items[padded(min(b, BLOCK - 1u))];
      b++;
      key_b = keys[padded(min(b, BLOCK - 1u))];
    }
  }
  workgroupBarrier();
  for (var i = 0u; i < RUN; i++) {  // unroll
    let at = thread * RUN + i;
    keys[padded(at)] = key[i];
    items[padded(at)] = item[i];
  }
  workgroupBarrier();
  for (var i = 0u; i < RUN; i++) {  // unroll
    let at = thread + i * THREADS;
    if (at < count) { keep(row, start + at, keys[padded(at)], items[padded(at)]); }
  }
}

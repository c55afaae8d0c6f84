// Sorts the blocks of rows, stably: a thread sorts RUN neighbours in registers, then runs are merged pairwise in workgroup memory, where each
// thread finds by bisection which RUN places of the result are its own (Green, Odeh & Birk, Merge path, 2014).
// sort_merge.wgsl goes on from there.
//
// The engine writes: Key, a type; in_order(a, b), whether a may stand before b; last_key(), which nothing comes after;
// size_N(); size_blocks(), of a row; size_groups(), blocks in all; key_of(row, i); keep(row, i, key, item), where item is the number of the
// element in its row.

const THREADS = 256u;
const RUN = 8u;
const BLOCK = THREADS * RUN;

var<workgroup> keys: array<Key, BLOCK + BLOCK / 32u>;  // an element of padding after 32, against conflicts of banks
var<workgroup> items: array<u32, BLOCK + BLOCK / 32u>;

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
  let count = min(size_N() - start, BLOCK);
  for (var i = 0u; i < RUN; i++) {  // unroll
    let at = thread + i * THREADS;
    var key = last_key();  // what fills the block stays behind all that is there
    if (at < count) { key = key_of(row, start + at); }
    keys[padded(at)] = key;
  }
  workgroupBarrier();
  let first = thread * RUN;
  var key: array<Key, RUN>;
  var item: array<u32, RUN>;
  for (var i = 0u; i < RUN; i++) {  // unroll
    key[i] = keys[padded(first + i)];
    item[i] = first + i;
  }
  for (var turn = 0u; turn < RUN; turn++) {  // unroll
    for (var pair = 0u; pair < RUN / 2u - turn % 2u; pair++) {  // unroll
      let a = 2u * pair + turn % 2u;
      if (!in_order(key[a], key[a + 1u])) {
        let other = key[a];
        key[a] = key[a + 1u];
        key[a + 1u] = other;
        let number = item[a];
        item[a] = item[a + 1u];
        item[a + 1u] = number;
      }
    }
  }
  for (var width = RUN; width < count; width *= 2u) {
    workgroupBarrier();
    for (var i = 0u; i < RUN; i++) {  // unroll
      keys[padded(first + i)] = key[i];
      items[padded(first + i)] = item[i];
    }
    workgroupBarrier();
    let left = first / (2u * width) * (2u * width);
    let right = left + width;
    let end = right + width;
    let before = first - left;
    var low = max(before, width) - width;  // how many of them are of the left run
    var high = min(before, width);
    while (low < high) {
      let half = (low + high) / 2u;
      if (in_order(keys[padded(left + half)], keys[padded(right + before - 1u - half)])) { low = half + 1u; } else { high = half; }
    }
    var a = left + low;
    var b = right + before - low;
    var key_a = keys[padded(min(a, BLOCK - 1u))];
    var key_b = keys[padded(min(b, BLOCK - 1u))];
    for (var i = 0u; i < RUN; i++) {  // unroll
      if (a < right && (b >= end || in_order(key_a, key_b))) {
        key[i] = key_a;
        item[i] = items[padded(a)];
        a++;
        key_a = keys[padded(min(a, BLOCK - 1u))];
      } else {
        key[i] = key_b;
        item[i] = items[padded(b)];
        b++;
        key_b = keys[padded(min(b, BLOCK - 1u))];
      }
    }
  }
  workgroupBarrier();
  for (var i = 0u; i < RUN; i++) {  // unroll
    keys[padded(first + i)] = key[i];
    items[padded(first + i)] = item[i];
  }
  workgroupBarrier();
  for (var i = 0u; i < RUN; i++) {  // unroll
    let at = thread + i * THREADS;
    if (at < count) { keep(row, start + at, keys[padded(at)], start + items[padded(at)]); }
  }
}

// A stable sort of keys of 32 bits, with their numbers, by digits (Satish, Harris & Garland, 2009). Where WHOLE a workgroup sorts a row
// in its memory, digit after digit. Else this is one pass over 8 bits of a longer row: a workgroup sorts a block by them, and
// what it has goes where counts of these digits in all blocks (sort_count.wgsl, sort_bins.wgsl) say.
//
// A digit has 4 bits. Each thread counts those of its RUN neighbours, two digits in a word, and where an element goes is the
// sum of all counts before: those of lower digits, then those of threads before.
//
// The engine writes: size_N(), elements of a row; size_blocks(); shift(), of this pass; key_of(row, i), item_of(row, i);
// offset(row, digit, block), of the block's elements of a digit among all of that digit; digits(row, digit), how many there
// are in the row; keep(row, i, key, item), what is i-th now.

const WHOLE = false;
const BITS: u32 = 32u;  // of a key, where a row is sorted at once
const RUN: u32 = 8u;
const THREADS = 256u;
const BLOCK = THREADS * RUN;

var<workgroup> keys: array<u32, BLOCK>;
var<workgroup> items: array<u32, BLOCK>;
var<workgroup> counts: array<u32, THREADS * 8u>;
var<workgroup> sums: array<u32, THREADS>;

// sums[i] becomes the sum of those up to i
fn scan(thread: u32) {
  for (var step = 1u; step < THREADS; step *= 2u) {
    workgroupBarrier();
    var left = 0u;
    if (thread >= step) { left = sums[thread - step]; }
    workgroupBarrier();
    sums[thread] += left;
  }
  workgroupBarrier();
}

// sorts the block by the 4 bits from `at` on
fn split(thread: u32, at: u32) {
  var key: array<u32, RUN>;
  var item: array<u32, RUN>;
  for (var d = 0u; d < 8u; d++) {  // unroll
    counts[d * THREADS + thread] = 0u;
  }
  for (var i = 0u; i < RUN; i++) {  // unroll
    key[i] = keys[thread * RUN + i];
    item[i] = items[thread * RUN + i];
    let d = (key[i] >> at) & 15u;
    counts[(d & 7u) * THREADS + thread] += select(1u, 65536u, d > 7u);
  }
  workgroupBarrier();
  var total = 0u;
  for (var i = 0u; i < 8u; i++) {  // unroll
    let c = counts[thread * 8u + i];
    counts[thread * 8u + i] = total;
    total += c;
  }
  sums[thread] = total;
  scan(thread);
  // digits from 8 on come after all lower ones
  var before = sums[THREADS - 1u] << 16u;
  if (thread > 0u) { before += sums[thread - 1u]; }
  for (var i = 0u; i < 8u; i++) {  // unroll
    counts[thread * 8u + i] += before;
  }
  workgroupBarrier();
  for (var i = 0u; i < RUN; i++) {  // unroll
    let d = (key[i] >> at) & 15u;
    let c = counts[(d & 7u) * THREADS + thread];
    counts[(d & 7u) * THREADS + thread] = c + select(1u, 65536u, d > 7u);
    let to = select(c & 0xffffu, c >> 16u, d > 7u);
    keys[to] = key[i];
    items[to] = item[i];
  }
  workgroupBarrier();
}

@compute @workgroup_size(THREADS, 1, 1)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let row = group.y;
  let start = group.x * BLOCK;
  let count = min(size_N() - start, BLOCK);
  for (var i = 0u; i < RUN; i++) {  // unroll
    let at = thread + i * THREADS;
    var key = 0xffffffffu;  // what fills the block stays behind all that is there
    var item = 0u;
    if (at < count) {
      key = key_of(row, start + at);
      item = item_of(row, start + at);
    }
    keys[at] = key;
    items[at] = item;
  }
  workgroupBarrier();
  if (WHOLE) {
    for (var at = 0u; at < BITS; at += 4u) { split(thread, at); }
    for (var i = 0u; i < RUN; i++) {  // unroll
      let at = thread + i * THREADS;
      if (at < count) { keep(row, at, keys[at], items[at]); }
    }
    return;
  }
  split(thread, shift());
  split(thread, shift() + 4u);
  // where each digit begins: in the row, and in the block
  sums[thread] = digits(row, thread);
  scan(thread);
  var begin = offset(row, thread, group.x);
  if (thread > 0u) { begin += sums[thread - 1u]; }
  for (var i = 0u; i < RUN; i++) {  // unroll
    let at = thread + i * THREADS;
    let d = (keys[at] >> shift()) & 255u;
    if (at == 0u || ((keys[max(at, 1u) - 1u] >> shift()) & 255u) != d) { counts[d] = at; }
  }
  workgroupBarrier();
  sums[thread] = begin - counts[thread];  // of digits that are not there it means nothing
  workgroupBarrier();
  for (var i = 0u; i < RUN; i++) {  // unroll
    let at = thread + i * THREADS;
    if (at < count) { keep(row, sums[(keys[at] >> shift()) & 255u] + at, keys[at], items[at]); }
  }
}

// Philox 4x32-10: a counter and a key -> four random words (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as
// easy as 1, 2, 3", SC 2011). The same on every device, and for element i needs nothing from element i - 1.

/// The high and low word of a * b. WGSL has no wide multiplication, so by halves.
fn philox_wide(a: u32, b: u32) -> vec2<u32> {
  let al = a & 0xffffu;
  let ah = a >> 16u;
  let bl = b & 0xffffu;
  let bh = b >> 16u;
  let cross = ah * bl + ((al * bl) >> 16u);
  let middle = al * bh + (cross & 0xffffu);
  return vec2<u32>(ah * bh + (cross >> 16u) + (middle >> 16u), a * b);
}

fn philox(counter: vec4<u32>, key: vec2<u32>) -> vec4<u32> {
  var c = counter;
  var k = key;
  for (var round = 0u; round < 10u; round++) {
    let first = philox_wide(0xd2511f53u, c.x);
    let second = philox_wide(0xcd9e8d57u, c.z);
    c = vec4<u32>(second.x ^ c.y ^ k.x, second.y, first.x ^ c.w ^ k.y, first.y);
    k += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
  }
  return c;
}

/// Uniform in [0, 1), from the upper 24 bits.
fn philox_uniform(word: u32) -> f32 {
  return f32(word >> 8u) * 0x1p-24f;
}

// Philox 4x32-10, as philox.wgsl has it, for the cpu device.

function philoxHigh(a, b) {
  const al = a & 0xffff;
  const ah = a >>> 16;
  const bl = b & 0xffff;
  const bh = b >>> 16;
  const cross = ah * bl + ((al * bl) >>> 16);
  const middle = al * bh + (cross & 0xffff);
  return ah * bh + (cross >>> 16) + (middle >>> 16);
}

/** Four words of the counter (c0, c1, c2, c3) under the key (k0, k1), to out[0..3]. */
function philox(out, c0, c1, c2, c3, k0, k1) {
  for (let round = 0; round < 10; round++) {
    const high = philoxHigh(0xd2511f53, c0);
    const low = Math.imul(0xd2511f53, c0);
    c0 = (philoxHigh(0xcd9e8d57, c2) ^ c1 ^ k0) >>> 0;
    c1 = Math.imul(0xcd9e8d57, c2);
    c2 = (high ^ c3 ^ k1) >>> 0;
    c3 = low;
    k0 = (k0 + 0x9e3779b9) >>> 0;
    k1 = (k1 + 0xbb67ae85) >>> 0;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

/** Uniform in [0, 1), from the upper 24 bits. */
function philoxUniform(word) {
  return (word >>> 8) * 2 ** -24;
}

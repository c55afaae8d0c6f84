/** Random numbers: the same streams as PyTorch's generators in tabtorch. See py/tabtorch/random.py. */

const MASK = (1n << 64n) - 1n;

/** Philox: a seed, and how far it has come. Each draw takes four words. */
export class Philox {
  constructor(
    public seed: bigint,
    public offset: bigint,
  ) {}

  manualSeed(seed: bigint): void {
    this.seed = seed & MASK;
    this.offset = 0n;
  }

  /** What the next draw is made of: seed and offset, each as its low and its high word. */
  next(): [number, number, number, number] {
    const { seed, offset } = this;
    this.offset = (offset + 4n) & MASK;
    return [Number(seed & 0xffffffffn), Number(seed >> 32n), Number(offset & 0xffffffffn), Number(offset >> 32n)];
  }
}

/** words of the state of an MT19937 generator: see py/tabtorch/engine/kernels/mt19937.js, which draws */
export const STATE_BYTES = 4 * 634;

/** The state of an MT19937 generator that has just been seeded: PyTorch's `manual_seed`. */
export function seededState(seed: bigint): Uint8Array<ArrayBuffer> {
  const s = new Uint32Array(634);
  const [low, high] = [Number(seed & 0xffffffffn), Number((seed & MASK) >> 32n)];
  s[0] = low;
  for (let j = 1; j < 624; j++) {
    const before = (s[j - 1] as number) ^ ((s[j - 1] as number) >>> 30);
    s[j] = Math.imul(1812433253, before) + j;
  }
  s[624] = 1;
  s[626] = low;
  s[627] = high;
  return new Uint8Array(s.buffer);
}

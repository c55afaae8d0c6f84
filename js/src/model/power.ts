/**
 * Python's `**`. Browsers' own differ in the last bit for whole exponents, of which are the powers of optimizers' betas: so
 * these are multiplied out with twice as many digits, and rounded once.
 */

/** A sum of two doubles, of which the second is what the first has lost. */
type Pair = [high: number, low: number];

const SPLIT = 2 ** 27 + 1;

function product(a: number, b: number): Pair {
  const high = a * b;
  const [c, d] = [SPLIT * a, SPLIT * b];
  const [ah, bh] = [c - (c - a), d - (d - b)];
  const [al, bl] = [a - ah, b - bh];
  return [high, al * bl - (high - ah * bh - al * bh - ah * bl)];
}

function times([ah, al]: Pair, [bh, bl]: Pair): Pair {
  const [high, low] = product(ah, bh);
  const rest = low + (ah * bl + al * bh);
  const sum = high + rest;
  return [sum, rest - (sum - high)];
}

export function power(base: number, exponent: number): number {
  const plain = base ** exponent;
  // where the halves would overflow, or vanish, the plain way is near enough
  const size = Math.abs(plain);
  if (!Number.isInteger(exponent) || exponent < 0 || exponent > 2 ** 31 || !(size > 1e-250 && size < 1e250))
    return plain;
  let result: Pair = [1, 0];
  let square: Pair = [base, 0];
  for (let n = exponent; n > 0; n = Math.floor(n / 2)) {
    if (n % 2 === 1) result = times(result, square);
    if (n > 1) square = times(square, square);
  }
  return result[0] + result[1];
}

/**
 * Size classes of buffers: four steps to each power of two, eight from 16 MiB on.
 * So a buffer wastes at most 25 % (12.5 % where it hurts), and a freed one finds a new use.
 */

const SMALLEST_LOG = 8; // 256 bytes: no GPU allocates less
const FINE_LOG = 24;
const FIRST_FINE = 1 + (FINE_LOG - SMALLEST_LOG) * 4;

export const CLASS_COUNT = FIRST_FINE + (32 - FINE_LOG) * 8;

/** The class of a buffer of `nbytes` (below 4 GiB). */
export function sizeClass(nbytes: number): number {
  if (nbytes <= 256) return 0;
  const last = nbytes - 1;
  const log = 31 - Math.clz32(last);
  const rest = last - 2 ** log;
  if (log < FINE_LOG) return 1 + (log - SMALLEST_LOG) * 4 + Math.floor(rest / 2 ** (log - 2));
  return FIRST_FINE + (log - FINE_LOG) * 8 + Math.floor(rest / 2 ** (log - 3));
}

/** Bytes in a buffer of class `index`. */
export function classCapacity(index: number): number {
  if (index === 0) return 256;
  const fine = index >= FIRST_FINE;
  const steps = fine ? 8 : 4;
  const i = fine ? index - FIRST_FINE : index - 1;
  const log = (fine ? FINE_LOG : SMALLEST_LOG) + Math.floor(i / steps);
  return 2 ** log + ((i % steps) + 1) * (2 ** log / steps);
}

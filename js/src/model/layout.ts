/** Where the temporaries of a plan lie: the same places as py/tabtorch/engine/temporaries.py gives, which says how. */

/** bytes; where a binding may begin on every device */
const ALIGNMENT = 256;
/** bytes of all temporaries, below which it does not pay to look for the best place */
const LITTLE = 4 << 20;

export interface Layout {
  /** bytes of each piece of memory */
  pieces: number[];
  /** of each temporary: its piece, and at which byte it begins there */
  places: [piece: number, begin: number][];
}

type Lives = readonly (readonly [first: number, last: number])[];

/**
 * lives: the first and the last step that names each temporary, in the order of the first ones. apart: those of which a step reads
 * one and writes the other. limit: bytes of the largest piece.
 */
export function layOut(lives: Lives, sizes: readonly number[], apart: readonly number[][], limit: number): Layout {
  if (sizes.reduce((sum, size) => sum + size, 0) <= LITTLE) return wholePieces(lives, sizes);
  const pieces: number[] = [];
  /** of each piece what lies there */
  const lying: { first: number; last: number; begin: number; end: number }[][] = [];
  const places: [number, number][] = sizes.map(() => [-1, 0]);
  const largestFirst = sizes.map((_, i) => i).sort((i, j) => (sizes[j] as number) - (sizes[i] as number));
  for (const i of largestFirst) {
    const [first, last] = lives[i] as [number, number];
    const size = Math.ceil((sizes[i] as number) / ALIGNMENT) * ALIGNMENT;
    const taken = new Set((apart[i] ?? []).map((j) => places[j]?.[0]));
    let best: { grows: number; begin: number; piece: number } | null = null;
    lying.forEach((others, piece) => {
      if (taken.has(piece)) return;
      let begin = 0;
      const meanwhile = others.filter((o) => o.first <= last && first <= o.last);
      for (const other of meanwhile.sort((a, b) => a.begin - b.begin || a.end - b.end)) {
        if (other.begin - begin >= size) break;
        begin = Math.max(begin, other.end);
      }
      const has = pieces[piece] as number;
      const grows = Math.max(0, begin + size - has);
      if (has + grows > limit) return;
      if (best === null || grows < best.grows || (grows === best.grows && begin < best.begin))
        best = { grows, begin, piece };
    });
    const { grows, begin, piece } = best ?? { grows: size, begin: 0, piece: pieces.length };
    pieces[piece] = (pieces[piece] ?? 0) + grows;
    lying[piece] ??= [];
    lying[piece].push({ first, last, begin, end: begin + size });
    places[i] = [piece, begin];
  }
  return { pieces, places };
}

/** The same in a hurry: a piece serves one temporary at a time, and the next if that is about as large. */
function wholePieces(lives: Lives, sizes: readonly number[]): Layout {
  const pieces: number[] = [];
  const places: [number, number][] = [];
  let ending: { last: number; piece: number }[] = [];
  const unused: number[] = []; // pieces
  lives.forEach(([first, last], i) => {
    const size = sizes[i] as number;
    const over = ending.filter((e) => e.last < first);
    ending = ending.filter((e) => e.last >= first);
    unused.push(...over.map((e) => e.piece));
    unused.sort((a, b) => (pieces[a] as number) - (pieces[b] as number) || a - b);
    const at = unused.findIndex((piece) => (pieces[piece] as number) >= size);
    let piece = pieces.length;
    if (at >= 0 && (pieces[unused[at] as number] as number) <= 2 * size + 64)
      [piece] = unused.splice(at, 1) as [number];
    else pieces.push(size);
    ending.push({ last, piece });
    places.push([piece, 0]);
  });
  return { pieces, places };
}

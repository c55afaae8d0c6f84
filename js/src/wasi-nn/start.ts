/**
 * Programs that run while they are instantiated, as AssemblyScript makes them: nobody knows their memory by then, and they could not
 * be suspended. What they run by themselves becomes `_start`.
 */

const HEADER = 8;
const EXPORTS = 7;
const START = 8;
const NAME = "_start";

/** A number as WebAssembly writes it, 7 bits a byte. */
function written(value: number): number[] {
  const bytes: number[] = [];
  for (let rest = value; ; rest = Math.floor(rest / 128)) {
    if (rest < 128) return [...bytes, rest];
    bytes.push((rest % 128) + 128);
  }
}

/** Of a valid module: its bytes with the start function as an export; null, where it has none. */
export function exportedStart(module: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> | null {
  let at = HEADER;
  const number = (): number => {
    let value = 0;
    for (let unit = 1; ; unit *= 128) {
      const byte = module[at++] as number;
      value += (byte & 127) * unit;
      if (byte < 128) return value;
    }
  };
  const parts: Uint8Array<ArrayBuffer>[] = [module.subarray(0, HEADER)];
  let count = 0;
  let others = new Uint8Array(0);
  let place = -1;
  let start: number | null = null;
  while (at < module.length) {
    const begin = at;
    const id = module[at++] as number;
    const end = number() + at;
    if (id === START) {
      start = number();
      place = place < 0 ? parts.length : place; // exports would come before it
    } else if (id === EXPORTS) {
      count = number();
      others = module.slice(at, end);
      place = parts.length;
    } else parts.push(module.subarray(begin, end));
    at = end;
  }
  if (start === null) return null;
  const name = [...NAME].map((c) => c.charCodeAt(0));
  const entry = [name.length, ...name, 0, ...written(start)];
  const body = [...written(count + 1), ...others, ...entry];
  parts.splice(place, 0, Uint8Array.from([EXPORTS, ...written(body.length), ...body]));
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

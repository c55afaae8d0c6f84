/** The safetensors format, both ways: a header (JSON: name -> dtype, shape, place), then the numbers. */

import { DTYPES, type DType } from "./dtypes";
import { check, FileError } from "./errors";
import type { ReadFile } from "./file";

/** As in `safetensors` itself. */
const LARGEST_HEADER = 100_000_000;

export interface Entry {
  name: string;
  /** null: one that PyTorch's names have not */
  dtype: DType | null;
  shape: number[];
  /** from the beginning of the file */
  begin: number;
  nbytes: number;
}

export interface Header {
  metadata: Record<string, string>;
  /** in the order of the file */
  entries: Map<string, Entry>;
}

const BITS: Record<string, number> = { F8_E5M2: 8, F8_E4M3: 8, U16: 16, U32: 32, U64: 64 };

function no(what: string): never {
  throw new FileError(`this is no safetensors file: ${what}`);
}

export async function readHeader(file: ReadFile): Promise<Header> {
  const head = await file.read(0, 8);
  if (head.byteLength < 8) no("it is too short");
  const length = Number(new DataView(head.buffer, head.byteOffset).getBigUint64(0, true));
  if (length > LARGEST_HEADER || (file.size >= 0 && 8 + length > file.size)) no("its header is too large");
  const raw = await file.read(8, length);
  if (raw.byteLength < length) no("it ends within its header");
  let table: unknown;
  try {
    table = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(raw));
  } catch (error) {
    no(`its header is no JSON (${(error as Error).message})`);
  }
  if (typeof table !== "object" || table === null || Array.isArray(table)) no("its header is no object");
  const { __metadata__: metadata = {}, ...rest } = table as Record<string, unknown>;
  if (typeof metadata !== "object" || metadata === null || Object.values(metadata).some((v) => typeof v !== "string"))
    no("its metadata are no strings");
  const names = Object.fromEntries(Object.entries(DTYPES).map(([name, { file: kind }]) => [kind, name as DType]));
  const entries: Entry[] = [];
  for (const [name, found] of Object.entries(rest)) {
    const { dtype: kind, shape, data_offsets: offsets } = (found ?? {}) as Record<string, unknown>;
    const whole = (x: unknown): x is number[] =>
      Array.isArray(x) && x.every((n) => Number.isSafeInteger(n) && (n as number) >= 0);
    if (typeof kind !== "string" || !whole(shape) || !whole(offsets) || offsets.length !== 2)
      no(`the entry of ${JSON.stringify(name)}`);
    const dtype = names[kind] ?? null;
    const [begin, end] = offsets as [number, number];
    const bits = dtype === null ? BITS[kind] : 8 * DTYPES[dtype].size;
    const numbers = shape.reduce((n, d) => n * d, 1);
    if (bits !== undefined && (end - begin) * 8 !== numbers * bits) no(`the size of ${JSON.stringify(name)}`);
    entries.push({ name, dtype, shape, begin: 8 + length + begin, nbytes: end - begin });
  }
  entries.sort((a, b) => a.begin - b.begin || a.nbytes - b.nbytes);
  let at = 8 + length;
  for (const { name, begin, nbytes } of entries) {
    if (begin !== at || nbytes < 0) no(`the place of ${JSON.stringify(name)}`);
    at += nbytes;
  }
  if (file.size >= 0 && at !== file.size) no(`it should have ${at} bytes, and has ${file.size}`);
  return { metadata: metadata as Record<string, string>, entries: new Map(entries.map((e) => [e.name, e])) };
}

/** A file as a Blob: the entries' bytes in their order. */
export function writeFile(
  metadata: Record<string, string>,
  tensors: { name: string; dtype: DType; shape: readonly number[]; bytes: Uint8Array<ArrayBuffer> }[],
): Blob {
  let at = 0;
  const table: Record<string, unknown> = { __metadata__: metadata };
  for (const { name, dtype, shape, bytes } of tensors) {
    check(!Object.hasOwn(table, name), `two tensors are called ${name}`);
    table[name] = { dtype: DTYPES[dtype].file, shape, data_offsets: [at, at + bytes.byteLength] };
    at += bytes.byteLength;
  }
  const text = new TextEncoder().encode(JSON.stringify(table));
  const head = new Uint8Array(8 + Math.ceil(text.byteLength / 8) * 8).fill(32);
  new DataView(head.buffer).setBigUint64(0, BigInt(head.byteLength - 8), true);
  head.set(text, 8);
  return new Blob([head, ...tensors.map(({ bytes }) => bytes)], { type: "application/octet-stream" });
}

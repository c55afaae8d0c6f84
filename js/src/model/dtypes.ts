/** The types of numbers, by PyTorch's names, and how they lie in memory. */

import { check } from "./errors";

export type DType =
  | "float32"
  | "float64"
  | "float16"
  | "bfloat16"
  | "int64"
  | "int32"
  | "int16"
  | "int8"
  | "uint8"
  | "bool"
  | "complex64"
  | "complex128";

export type TypedArray =
  | Float32Array
  | Float64Array
  | BigInt64Array
  | Int32Array
  | Int16Array
  | Int8Array
  | Uint8Array
  | Uint8ClampedArray
  | Uint16Array;

interface Kind {
  /** as safetensors calls it */
  file: string;
  size: number;
  /** of memory; complex numbers are pairs, 16-bit floats are bits */
  array: new (
    buffer: ArrayBuffer,
  ) => TypedArray;
}

export const DTYPES: Record<DType, Kind> = {
  float32: { file: "F32", size: 4, array: Float32Array },
  float64: { file: "F64", size: 8, array: Float64Array },
  float16: { file: "F16", size: 2, array: Uint16Array },
  bfloat16: { file: "BF16", size: 2, array: Uint16Array },
  int64: { file: "I64", size: 8, array: BigInt64Array },
  int32: { file: "I32", size: 4, array: Int32Array },
  int16: { file: "I16", size: 2, array: Int16Array },
  int8: { file: "I8", size: 1, array: Int8Array },
  uint8: { file: "U8", size: 1, array: Uint8Array },
  bool: { file: "BOOL", size: 1, array: Uint8Array },
  complex64: { file: "C64", size: 8, array: Float32Array },
  complex128: { file: "C128", size: 16, array: Float64Array },
};

const RANGES: Partial<Record<DType, [least: number, most: number]>> = {
  int32: [-(2 ** 31), 2 ** 31 - 1],
  int16: [-(2 ** 15), 2 ** 15 - 1],
  int8: [-128, 127],
  uint8: [0, 255],
};

export const isDType = (x: unknown): x is DType => typeof x === "string" && Object.hasOwn(DTYPES, x);

export function dtypeOf(x: unknown, where: string): DType {
  check(isDType(x), `${where} has the dtype ${JSON.stringify(x)}`);
  return x;
}

/** "Float32Array"; of a class of its own (Node's Buffer), that which it extends. */
export const kindOfArray = (data: ArrayBufferView): string => (data as Float32Array)[Symbol.toStringTag];

/** The type whose numbers a typed array holds; null where none is meant. */
export function dtypeOfArray(data: ArrayBufferView): DType | null {
  const kind = kindOfArray(data);
  if (kind === "Uint8ClampedArray") return "uint8";
  if (kind === "Float16Array") return "float16";
  if (kind === "Uint16Array") return null;
  const found = Object.entries(DTYPES).find(([, { array }]) => kind === array.name);
  return (found?.[0] as DType) ?? null;
}

export const count = (shape: readonly number[]): number => shape.reduce((n, d) => n * d, 1);

/** Bytes of a tensor of that shape. */
export const nbytesOf = (dtype: DType, shape: readonly number[]): number => count(shape) * DTYPES[dtype].size;

const scratch = new Float32Array(1);
const bits = new Uint32Array(scratch.buffer);

function toBfloat16(x: number): number {
  scratch[0] = x;
  const b = bits[0] as number;
  if (Number.isNaN(x)) return 0x7fc0;
  return ((b + 0x7fff + ((b >>> 16) & 1)) >>> 16) & 0xffff;
}

function fromBfloat16(x: number): number {
  bits[0] = x << 16;
  return scratch[0] as number;
}

/** Rounds once: `x` may have more digits than a float32. */
function toFloat16(x: number): number {
  const sign = x < 0 || Object.is(x, -0) ? 0x8000 : 0;
  const size = Math.abs(x);
  if (Number.isNaN(x)) return 0x7e00;
  if (size >= 65520) return sign | 0x7c00;
  const exponent = Math.max(-14, Math.floor(Math.log2(size || 2 ** -24)));
  const steps = evenly(size / 2 ** (exponent - 10)); // 1024 to 2048, less where it is subnormal
  return sign | (steps >= 1024 ? ((exponent + 15) << 10) + (steps - 1024) : steps);
}

/** To the nearest whole number, a half to the even one. */
function evenly(x: number): number {
  const near = Math.round(x);
  return near - x === 0.5 && near % 2 === 1 ? near - 1 : near;
}

function fromFloat16(x: number): number {
  const sign = x & 0x8000 ? -1 : 1;
  const exponent = (x >> 10) & 31;
  const rest = x & 1023;
  if (exponent === 31) return rest ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  return sign * (exponent === 0 ? rest * 2 ** -24 : (1024 + rest) * 2 ** (exponent - 25));
}

/** Numbers as the bytes of a type. TypeError or RangeError for what is no number of that type. */
export function encode(dtype: DType, numbers: ArrayLike<number | bigint | boolean>): Uint8Array<ArrayBuffer> {
  const { array, size } = DTYPES[dtype];
  const buffer = new ArrayBuffer(numbers.length * (dtype.startsWith("complex") ? size / 2 : size));
  const out = new array(buffer) as { [i: number]: number | bigint };
  const range = RANGES[dtype];
  for (let i = 0; i < numbers.length; i++) {
    const given = numbers[i] as number | bigint | boolean;
    if (typeof given !== "number" && typeof given !== "bigint" && typeof given !== "boolean")
      throw new TypeError(`expected numbers for ${dtype}, but got ${typeof given}`);
    if (dtype === "int64") {
      if (typeof given === "number" && !Number.isSafeInteger(given))
        throw new RangeError(`value ${given} is no whole number that int64 can take from a JavaScript number`);
      out[i] = BigInt(given);
      if (typeof given === "bigint" && out[i] !== given)
        throw new RangeError(`value ${given} cannot be converted to type int64 without overflow`);
      continue;
    }
    const x = Number(given);
    if (range !== undefined && !(Number.isInteger(x) && x >= range[0] && x <= range[1]))
      throw new RangeError(`value ${x} cannot be converted to type ${dtype} without overflow`);
    if (dtype === "float16") out[i] = toFloat16(x);
    else if (dtype === "bfloat16") out[i] = toBfloat16(x);
    else out[i] = dtype === "bool" ? Number(x !== 0) : x;
  }
  return new Uint8Array(buffer);
}

/** The bytes of a type as numbers: 16-bit floats as a Float32Array, complex numbers as pairs. */
export function decode(dtype: DType, bytes: Uint8Array): TypedArray {
  const buffer = bytes.slice().buffer as ArrayBuffer;
  const raw = new DTYPES[dtype].array(buffer);
  if (dtype === "float16") return Float32Array.from(raw as Uint16Array, fromFloat16);
  if (dtype === "bfloat16") return Float32Array.from(raw as Uint16Array, fromBfloat16);
  return raw;
}

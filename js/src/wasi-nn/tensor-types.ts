/**
 * The types of tensors that cross the border between a guest and a model.
 *
 * A guest names a type by a number, of which there are three lists: that of wasi-nn.witx (f16 f32 f64 u8 i32 i64), the one
 * before it had f64 and i64 (f16 f32 u8 i32), and that of wasi-nn.wit (f16 f32 f64 bf16 u8 i32 i64), which some C headers have.
 * The length of the data tells which one was meant: no number has the same size in two lists, unless it is the same type.
 *
 * A model has inputs of one type each. Data of another one is converted where every value stays what it is, and refused
 * otherwise: nothing is rounded.
 */

import { fail } from "./errno";

/** PyTorch's names */
export type Dtype =
  | "float16"
  | "bfloat16"
  | "float32"
  | "float64"
  | "uint8"
  | "int8"
  | "int16"
  | "int32"
  | "int64"
  | "bool";

export interface HostTensor {
  dtype: Dtype;
  shape: readonly number[];
  /** little-endian, row after row */
  bytes: Uint8Array<ArrayBuffer>;
}

const SIZES: Record<Dtype, number> = {
  float16: 2,
  bfloat16: 2,
  float32: 4,
  float64: 8,
  uint8: 1,
  int8: 1,
  int16: 2,
  int32: 4,
  int64: 8,
  bool: 1,
};

const WITX: readonly Dtype[] = ["float16", "float32", "float64", "uint8", "int32", "int64"];
const EARLIER: readonly Dtype[] = ["float16", "float32", "uint8", "int32"];
const WIT: readonly Dtype[] = ["float16", "float32", "float64", "bfloat16", "uint8", "int32", "int64"];

export function isDtype(name: string): name is Dtype {
  return name in SIZES;
}

export function itemSize(dtype: Dtype): number {
  return SIZES[dtype];
}

/** How many bytes an element takes whose type has the number `type` in wasi-nn.witx. */
export function sizeOfType(type: number): number {
  return SIZES[WITX[type] ?? fail("invalidArgument", `there is no tensor type ${type}`)];
}

/** The number of elements; refused where it is more than any memory holds. */
export function elementsOf(shape: readonly number[]): number {
  const count = shape.reduce((product, size) => product * size, 1);
  // A product with a zero in it may have overflowed before: Infinity * 0
  if (shape.includes(0)) return 0;
  if (!Number.isSafeInteger(count)) fail("invalidArgument", `a tensor cannot have the shape [${shape.join(", ")}]`);
  return count;
}

/**
 * Which type the guest means by a number, with `nbytes` bytes for `elements` elements; `wanted`: what the model takes, if it says that.
 *
 * The number is that of wasi-nn.witx, unless the size of the data speaks against it and for the model's type in another list.
 */
export function dtypeOf(type: number, elements: number, nbytes: number, wanted: Dtype | null): Dtype {
  const named = WITX[type];
  if (named && SIZES[named] * elements === nbytes) return named;
  if (wanted && SIZES[wanted] * elements === nbytes && (EARLIER[type] === wanted || WIT[type] === wanted))
    return wanted;
  if (!named) fail("invalidArgument", `there is no tensor type ${type}`);
  fail("invalidArgument", `${elements} elements of ${named} take ${SIZES[named] * elements} bytes, not ${nbytes}`);
}

type Values = ArrayLike<number> | ArrayLike<bigint>;

/** The bytes as an array of their type; 16-bit floating-point numbers as their values. */
function valuesOf(dtype: Dtype, bytes: Uint8Array<ArrayBuffer>): Values {
  const { buffer, byteOffset, byteLength } = bytes.byteOffset % 8 ? bytes.slice() : bytes;
  const count = byteLength / SIZES[dtype];
  switch (dtype) {
    case "float16":
      return Float32Array.from(new Uint16Array(buffer, byteOffset, count), halfToNumber);
    case "bfloat16":
      return new Float32Array(
        Uint32Array.from(new Uint16Array(buffer, byteOffset, count), (bits) => bits << 16).buffer,
      );
    case "float32":
      return new Float32Array(buffer, byteOffset, count);
    case "float64":
      return new Float64Array(buffer, byteOffset, count);
    case "int8":
      return new Int8Array(buffer, byteOffset, count);
    case "int16":
      return new Int16Array(buffer, byteOffset, count);
    case "int32":
      return new Int32Array(buffer, byteOffset, count);
    case "int64":
      return new BigInt64Array(buffer, byteOffset, count);
    default:
      return new Uint8Array(buffer, byteOffset, count);
  }
}

const FLOATING = new Set<Dtype>(["float16", "bfloat16", "float32", "float64"]);

/**
 * `bytes` of type `from` as bytes of type `to`, each value the same; a NaN stays a NaN.
 *
 * Error invalid_argument: a value that `to` does not have, or numbers with a fraction where whole ones are wanted.
 */
export function convert(bytes: Uint8Array<ArrayBuffer>, from: Dtype, to: Dtype): Uint8Array<ArrayBuffer> {
  if (from === to) return bytes;
  if (FLOATING.has(from) && !FLOATING.has(to)) fail("invalidArgument", `the model wants ${to}, not ${from}`);
  const values = valuesOf(from, bytes);
  const made = new Uint8Array(values.length * SIZES[to]);
  const view = new DataView(made.buffer);
  for (let index = 0; index < values.length; index++) {
    const value = values[index] as number | bigint;
    if (!put(view, index, value, to)) fail("invalidArgument", `the model wants ${to}, which has no ${value} (${from})`);
  }
  return made;
}

const RANGES: Partial<Record<Dtype, [number, number]>> = {
  uint8: [0, 255],
  int8: [-128, 127],
  int16: [-32768, 32767],
  int32: [-(2 ** 31), 2 ** 31 - 1],
  bool: [0, 1],
};

/** Writes a value as element `index`; false if the type does not have it. */
function put(view: DataView, index: number, value: number | bigint, to: Dtype): boolean {
  if (to === "int64") {
    view.setBigInt64(8 * index, BigInt(value), true);
    return true;
  }
  const number = Number(value);
  if (typeof value === "bigint" && BigInt(number) !== value) return false;
  const range = RANGES[to];
  if (range && !(number >= range[0] && number <= range[1])) return false;
  switch (to) {
    case "uint8":
    case "bool":
      view.setUint8(index, number);
      return true;
    case "int8":
      view.setInt8(index, number);
      return true;
    case "int16":
      view.setInt16(2 * index, number, true);
      return true;
    case "int32":
      view.setInt32(4 * index, number, true);
      return true;
    case "float64":
      view.setFloat64(8 * index, number, true);
      return true;
    case "float32":
      view.setFloat32(4 * index, number, true);
      return same(Math.fround(number), number);
    case "bfloat16": {
      const bits = new Uint32Array(Float32Array.of(number).buffer)[0] as number;
      view.setUint16(2 * index, bits >>> 16, true);
      return Number.isNaN(number) || ((bits & 0xffff) === 0 && Math.fround(number) === number);
    }
    default: {
      const bits = numberToHalf(number);
      view.setUint16(2 * index, bits, true);
      return same(halfToNumber(bits), number);
    }
  }
}

function same(one: number, other: number): boolean {
  return one === other || (Number.isNaN(one) && Number.isNaN(other));
}

/** The value of an IEEE half. */
export function halfToNumber(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  return exponent ? sign * 2 ** (exponent - 15) * (1 + fraction / 1024) : sign * 2 ** -24 * fraction;
}

/** The bits of an IEEE half that is `value`, or of one beside it. */
export function numberToHalf(value: number): number {
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  const size = Math.abs(value);
  if (Number.isNaN(value)) return 0x7e00;
  if (size >= 65536) return sign | 0x7c00;
  if (size < 2 ** -14) return sign | Math.trunc(size * 2 ** 24);
  const exponent = Math.floor(Math.log2(size));
  return sign | ((exponent + 15) << 10) | Math.trunc((size / 2 ** exponent - 1) * 1024);
}

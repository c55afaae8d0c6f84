/** Tensors: what goes into a model and what comes out. They hold numbers and do no arithmetic. */

import {
  count,
  type DType,
  decode,
  dtypeOfArray,
  encode,
  isDType,
  kindOfArray,
  nbytesOf,
  type TypedArray,
} from "./dtypes";
import type { Engine } from "./engine";

/** Numbers, however deep. */
export type Nested = number | bigint | boolean | readonly Nested[];

/** Where a tensor's numbers are: on a device, or in `bytes`. */
export type Place = { engine: Engine; id: number } | { bytes: Uint8Array<ArrayBuffer> };

/** Frees what nobody has disposed of. It must not refer to the tensor. */
const lost = new FinalizationRegistry<{ engine: Engine; id: number }>(({ engine, id }) => engine.free(id));

export class Tensor {
  #place: Place | null;
  /** when it was made, as its engine counts; and what its method still has to say of it, if it is asked */
  readonly #made: number;
  readonly #verdict: (() => Promise<void>) | null;

  /**
   * Use `tensor(...)`, or a model's results.
   * @internal
   */
  constructor(
    readonly dtype: DType,
    readonly shape: readonly number[],
    place: Place,
    verdict: (() => Promise<void>) | null = null,
  ) {
    this.#place = place;
    this.#made = "engine" in place ? place.engine.time : 0;
    this.#verdict = verdict;
    if ("engine" in place) lost.register(this, place, this);
  }

  /** how many numbers it has */
  get size(): number {
    return count(this.shape);
  }

  get nbytes(): number {
    return nbytesOf(this.dtype, this.shape);
  }

  /** "host" for numbers that were made here. */
  get device(): "webgpu" | "cpu" | "host" {
    const place = this.place;
    return "engine" in place ? place.engine.device : "host";
  }

  /**
   * For models. Throws if it is disposed of.
   * @internal
   */
  get place(): Place {
    if (this.#place === null) throw new Error("this tensor has been disposed of");
    return this.#place;
  }

  /**
   * For models: other numbers in its place.
   * @internal
   */
  replace(place: Place): void {
    this.dispose();
    this.#place = place;
    if ("engine" in place) lost.register(this, place, this);
  }

  /** A copy of its bytes, as they lie in memory. */
  async bytes(): Promise<Uint8Array<ArrayBuffer>> {
    const place = this.place;
    if (!("engine" in place)) return place.bytes.slice();
    const reading = place.engine.read(place.id, this.nbytes, this.#made);
    const [bytes] = await Promise.all([reading, this.#verdict?.()]);
    return bytes;
  }

  /** Its numbers, row by row. 16-bit floats come as a Float32Array, int64 as a BigInt64Array, bool as a Uint8Array, complex as pairs. */
  async data(): Promise<TypedArray> {
    return decode(this.dtype, await this.bytes());
  }

  /** The number of a tensor that has one. */
  async item(): Promise<number | boolean> {
    if (this.size !== 1) throw new Error(`a Tensor with ${this.size} elements cannot be converted to Scalar`);
    const x = (await this.data())[0] as number | bigint;
    return this.dtype === "bool" ? x !== 0 : Number(x);
  }

  /** Where the largest number is: of all, or along a dimension (then one for each of the rest, row by row). */
  argmax(): Promise<number>;
  argmax(dim: number): Promise<Int32Array>;
  async argmax(dim?: number): Promise<number | Int32Array> {
    const all = await this.data();
    if (dim === undefined) {
      if (all.length === 0) throw new Error("argmax(): Expected reduction dim to be specified for input.numel() == 0.");
      return largest(all, 0, 1, all.length);
    }
    const rank = this.shape.length;
    if (!(Number.isInteger(dim) && dim >= -rank && dim < rank))
      throw new RangeError(
        `Dimension out of range (expected to be in range of [${-rank}, ${rank - 1}], but got ${dim})`,
      );
    const at = dim < 0 ? dim + rank : dim;
    const length = this.shape[at] as number;
    if (length === 0) throw new Error(`argmax(): Expected reduction dim ${dim} to have non-zero size.`);
    const step = count(this.shape.slice(at + 1));
    const found = new Int32Array(all.length / length);
    for (let i = 0; i < found.length; i++)
      found[i] = largest(all, Math.floor(i / step) * step * length + (i % step), step, length);
    return found;
  }

  /** Gives its memory back now, and not when it is found that nobody has it. */
  dispose(): void {
    const place = this.#place;
    if (place === null) return;
    this.#place = null;
    if (!("engine" in place)) return;
    lost.unregister(this);
    place.engine.free(place.id);
  }
}

/** The first of the largest, and NaN is larger than all, as in PyTorch. */
function largest(all: ArrayLike<number | bigint>, begin: number, step: number, length: number): number {
  let found = 0;
  let most = all[begin] as number | bigint;
  for (let k = 1; k < length && !Number.isNaN(most); k++) {
    const x = all[begin + k * step] as number | bigint;
    if (x > most || Number.isNaN(x)) [found, most] = [k, x];
  }
  return found;
}

function flatten(data: Nested, depth: number, shape: number[], out: (number | bigint | boolean)[]): void {
  if (!Array.isArray(data)) {
    if (depth !== shape.length) throw new Error("the lists are not of one depth everywhere");
    out.push(data as number);
    return;
  }
  if (depth === shape.length && out.length === 0) shape.push(data.length);
  if (depth === shape.length) throw new Error("the lists are not of one depth everywhere");
  if (shape[depth] !== data.length)
    throw new Error(`expected sequence of length ${shape[depth]} at dim ${depth} (got ${data.length})`);
  for (const x of data) flatten(x, depth + 1, shape, out);
}

/** A typed array, or a list of lists, as its shape, its bytes, and its type if it says that itself. */
export function spread(
  data: TypedArray | Nested,
  dtype: DType | null,
): { shape: number[]; dtype: DType; bytes: Uint8Array<ArrayBuffer> } {
  if (ArrayBuffer.isView(data)) {
    const own = dtypeOfArray(data);
    const type = dtype ?? own;
    if (type === null)
      throw new TypeError(`${kindOfArray(data)} is no array of a dtype: name it, tensor(data, { dtype })`);
    const flat = data as TypedArray;
    // bits of 16-bit floats, bytes of booleans, pairs of complex numbers
    const raw = type.endsWith("float16") ? kindOfArray(data) === "Uint16Array" : own === "uint8" && type === "bool";
    const pairs = type.startsWith("complex") && own === (type === "complex64" ? "float32" : "float64");
    const bytes =
      own === type || raw || pairs
        ? new Uint8Array(flat.buffer as ArrayBuffer, flat.byteOffset, flat.byteLength).slice()
        : encode(type, flat as ArrayLike<number>);
    return { shape: [pairs ? flat.length / 2 : flat.length], dtype: type, bytes };
  }
  const shape: number[] = [];
  const flat: (number | bigint | boolean)[] = [];
  flatten(data, 0, shape, flat);
  const kind = typeof flat[0];
  const type = dtype ?? (kind === "boolean" ? "bool" : kind === "bigint" ? "int64" : "float32");
  return { shape, dtype: type, bytes: encode(type, flat) };
}

/**
 * A tensor of these numbers: a typed array, or lists of lists. Plain numbers are float32 unless `dtype` says otherwise. Where
 * there is a `shape`, the numbers are taken row by row.
 */
export function tensor(data: TypedArray | Nested, options: { shape?: readonly number[]; dtype?: DType } = {}): Tensor {
  if (options.dtype !== undefined && !isDType(options.dtype)) throw new TypeError(`unknown dtype ${options.dtype}`);
  const { shape: own, dtype, bytes } = spread(data, options.dtype ?? null);
  const shape = [...(options.shape ?? own)];
  if (!shape.every((d) => Number.isSafeInteger(d) && d >= 0) || count(shape) !== count(own))
    throw new Error(`shape '[${shape.join(", ")}]' is invalid for input of size ${count(own)}`);
  return new Tensor(dtype, shape, { bytes });
}

/** What a method is called with: tensors of the types and shapes that its file names, and the sizes that follow. */

import { count, type DType, kindOfArray, type TypedArray } from "./dtypes";
import type { InputSpec, PlanFile, Tree } from "./plan";
import { type Nested, spread, Tensor } from "./tensor";

/** A tensor, a typed array, or lists of numbers. */
export type Input = Tensor | TypedArray | Nested;

export interface Argument {
  shape: number[];
  /** or the numbers */
  tensor: Tensor | null;
  bytes: Uint8Array<ArrayBuffer>;
}

const NOTHING = new Uint8Array(0);

const isOne = (x: unknown): boolean =>
  x instanceof Tensor || ArrayBuffer.isView(x) || Array.isArray(x) || typeof x !== "object" || x === null;

/** The arguments by parameter: they come by name in one object, or one after the other. */
function named(method: string, tree: Record<string, Tree>, given: unknown[]): Record<string, unknown> {
  const names = Object.keys(tree).filter((name) => !("value" in (tree[name] as Tree)));
  const [first] = given;
  const byName =
    given.length === 1 &&
    !isOne(first) &&
    !(
      names.length === 1 &&
      "dict" in (tree[names[0] as string] as Tree) &&
      !((names[0] as string) in (first as object))
    );
  const found = byName
    ? (first as Record<string, unknown>)
    : Object.fromEntries(given.map((x, i) => [names[i] ?? `argument ${i}`, x]));
  for (const name of Object.keys(found))
    if (!names.includes(name))
      throw new TypeError(`${method}() got an unexpected input '${name}': it takes ${names.join(", ") || "none"}`);
  for (const name of names)
    if (found[name] === undefined)
      throw new TypeError(`${method}() missing required input '${name}': it takes ${names.join(", ")}`);
  return found;
}

/** The tensors of a tree, each in its place. */
function flatten(tree: Tree, x: unknown, path: string, out: unknown[]): void {
  const [[kind, spec]] = Object.entries(tree) as [[string, unknown]];
  if (kind === "tensor") out[spec as number] = x;
  if (kind === "list" || kind === "tuple") {
    const parts = spec as Tree[];
    if (!Array.isArray(x) || x.length !== parts.length) throw new TypeError(`'${path}' is a list of ${parts.length}`);
    parts.forEach((part, i) => {
      flatten(part, x[i], `${path}.${i}`, out);
    });
  }
  if (kind !== "dict") return;
  const parts = spec as Record<string, Tree>;
  const given = (x ?? {}) as Record<string, unknown>;
  for (const name of Object.keys(given))
    if (!Object.hasOwn(parts, name)) throw new TypeError(`unexpected input '${path}.${name}'`);
  for (const [name, part] of Object.entries(parts)) flatten(part, given[name], `${path}.${name}`, out);
}

/** One argument; where it is a flat array, its shape is left to `fit`. */
function one(method: string, { name, dtype, shape }: InputSpec, x: unknown): Argument & { flat: boolean } {
  if (x instanceof Tensor) {
    if (x.dtype !== dtype) throw wrongType(method, name, dtype, x.dtype);
    return { shape: [...x.shape], tensor: x, bytes: NOTHING, flat: false };
  }
  if (x === undefined || x === null) throw new TypeError(`${method}() missing required input '${name}'`);
  const plain = !ArrayBuffer.isView(x);
  const found = spread(
    x as TypedArray | Nested,
    plain ? dtype : ArrayBuffer.isView(x) && isBits(x, dtype) ? dtype : null,
  );
  if (found.dtype !== dtype) throw wrongType(method, name, dtype, found.dtype);
  const flat = found.shape.length === 1 && shape.length !== 1;
  return { shape: found.shape, tensor: null, bytes: found.bytes, flat };
}

/** Arrays that hold the bytes of a type that has no array of its own. */
function isBits(x: ArrayBufferView, dtype: DType): boolean {
  if (dtype.endsWith("float16")) return ["Uint16Array", "Float32Array", "Float16Array"].includes(kindOfArray(x));
  return (dtype === "bool" && x instanceof Uint8Array) || dtype.startsWith("complex");
}

function wrongType(method: string, name: string, wanted: string, got: string): TypeError {
  return new TypeError(`${method}(): expected dtype ${wanted} for input '${name}' but got ${got}`);
}

/** The tensors that a method is called with, and the dims of the file (of those that they do not have, 2). */
export function prepare(
  method: string,
  inputs: InputSpec[],
  tree: Record<string, Tree>,
  dims: PlanFile["dims"],
  given: unknown[],
): { found: Argument[]; sizes: number[] } {
  const byName = named(method, tree, given);
  const each: unknown[] = [];
  for (const [name, part] of Object.entries(tree)) flatten(part, byName[name], name, each);
  const all = inputs.map((spec, k) => one(method, spec, each[k]));
  const sizes = new Map<string, number>();
  const no = (k: number): never => {
    const { name, shape } = inputs[k] as InputSpec;
    const dimsText = sizes.size ? ` (${[...sizes].map(([d, n]) => `${d} = ${n}`).join(", ")})` : "";
    throw new Error(
      `${method}(): expected shape [${shape.join(", ")}] for input '${name}' but got [${(all[k] as Argument).shape.join(", ")}]${dimsText}`,
    );
  };
  // those that say their shape first: flat arrays follow
  const order = all.map((_, k) => k).sort((a, b) => Number(all[a]?.flat) - Number(all[b]?.flat));
  for (const k of order) {
    const argument = all[k] as Argument & { flat: boolean };
    const { shape } = inputs[k] as InputSpec;
    if (argument.flat) {
      const unknown = shape.filter((d) => typeof d === "string" && !sizes.has(d));
      const rest = shape.reduce<number>((n, d) => n * (typeof d === "number" ? d : (sizes.get(d) ?? 1)), 1);
      const length = argument.shape[0] as number;
      if (unknown.length > 1)
        throw new Error(`${method}(): give '${(inputs[k] as InputSpec).name}' a shape: tensor(data, { shape })`);
      if (unknown.length === 1 && rest > 0 && length % rest === 0) sizes.set(unknown[0] as string, length / rest);
      const full = shape.map((d) => (typeof d === "number" ? d : (sizes.get(d) as number)));
      if (count(full) !== length || full.includes(undefined as never)) no(k);
      argument.shape = full;
    }
    if (argument.shape.length !== shape.length) no(k);
    shape.forEach((d, i) => {
      const n = argument.shape[i] as number;
      if (typeof d === "string" && !sizes.has(d)) sizes.set(d, n);
      if (n !== (typeof d === "string" ? sizes.get(d) : d)) no(k);
    });
  }
  return { found: all, sizes: Object.keys(dims).map((name) => sizes.get(name) ?? 2) };
}

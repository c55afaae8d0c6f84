/** The npm package `tabtorch`: models of files that Python's tabtorch exported, in a page or in Node. See docs/npm.md. */

import type { FileLike } from "./file";
import { type LoadOptions, type Method, Model } from "./model";

/** Methods of a model, by name, where nothing more is known of it. */
export type Methods = Record<string, Method>;

/**
 * Loads a model: a URL, a File or Blob, bytes, a Response, or a path in Node. Its methods are called by their names.
 * Rejects with a FileError for a file that is none or is damaged, and where the device that is asked for cannot be had.
 */
export function load<M extends object = Methods>(from: FileLike, options: LoadOptions = {}): Promise<Model & M> {
  return Model.load(from, options) as Promise<Model & M>;
}

export type { Input } from "./arguments";
export type { DType, TypedArray } from "./dtypes";
export { DeviceError, FileError } from "./errors";
export type { FileLike } from "./file";
export { fromImage, type ImageOptions, toImageData } from "./image";
export type { LoadOptions, Method, MethodInfo, Model } from "./model";
export { type Nested, Tensor, tensor } from "./tensor";

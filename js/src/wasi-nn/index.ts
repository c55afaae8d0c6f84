/** `tabtorch/wasi-nn`: a host of wasi-nn for WebAssembly guests, in a page or in Node. See docs/wasi-nn.md. */

import { createHost, type WasiNN, type WasiNNOptions } from "./host";
import { reader } from "./reader";

/**
 * A host of wasi-nn: `nn.imports` for guests that you instantiate yourself, or `run(wasm, { nn })`.
 *
 * Rejects where this thread can neither suspend a guest nor share memory with one on another thread.
 */
export function wasiNN(options: WasiNNOptions = {}): Promise<WasiNN> {
  return createHost(options, { reader, worker: new URL("./wasi-nn-worker.js", import.meta.url) });
}

export type { Limits, Report } from "./calls";
export { compileWithPyodide, type PyodideOptions } from "./compiler";
export { type ErrnoName, NNError } from "./errno";
export type { Graph, Outputs, TensorInfo } from "./graph";
export type { Guest, WasiNN, WasiNNOptions } from "./host";
export type { Compile, Compiled, CompileRequest, ModelSource } from "./models";
export { type FileContent, type Folder, Preview1, type Preview1Options } from "./preview1";
export { type Program, type RunOptions, run, type Wasi } from "./run";
export type { Mode } from "./suspend";
export type { Dtype, HostTensor } from "./tensor-types";

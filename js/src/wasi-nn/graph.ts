/** What a host of wasi-nn has graphs of: a model with inputs and outputs by number. */

import type { Maybe } from "./maybe";
import type { Dtype, HostTensor } from "./tensor-types";

export interface TensorInfo {
  name: string;
  /** null: the one that a guest gives it */
  dtype: Dtype | null;
  /** a size, or the name of one that is free; null: any shape */
  shape: readonly (number | string)[] | null;
}

/** What one run of a graph gave. `read` may be called for any output, in any order, until `dispose`. */
export interface Outputs {
  readonly count: number;
  read(index: number): Maybe<HostTensor>;
  dispose(): void;
}

/**
 * A loaded model. A page can give one of its own making to a guest, under a name (`models`).
 *
 * Where a guest cannot be suspended (`nn.mode` is not "suspend") a graph of the page's own must answer at once, with no promise.
 */
export interface Graph {
  readonly inputs: readonly TensorInfo[];
  /** one tensor for each input, of its type; the shapes fit to `inputs`, and to nothing more */
  compute(inputs: readonly HostTensor[]): Maybe<Outputs>;
  dispose(): void;
}

/** What a guest wants of a graph besides its bytes. */
export interface Wanted {
  /** 0 cpu, 1 gpu, 2 tpu, 3 any; null: the guest named the model, and nothing else */
  target: number | null;
  /** the method of the plan; null: the host's choice */
  method: string | null;
}

/** Where graphs come from: this thread, or another one. Errors: NNError. */
export interface Graphs {
  fromBytes(parts: readonly Uint8Array<ArrayBuffer>[], encoding: number, wanted: Wanted): Maybe<Graph>;
  fromName(name: string, wanted: Wanted): Maybe<Graph>;
}

/**
 * The functions of wasi-nn that a guest imports: those of wasi-nn.witx, and those that WasmEdge added.
 *
 * Written once for guests that are suspended and for guests that wait (see suspend.ts): each returns a number, or a promise of
 * one. Whatever a guest passes, it gets a number of `Errno` back; what went wrong is told to `report` in words.
 */

import { asNNError, Errno, fail, type NNError } from "./errno";
import type { Graph, Graphs, Outputs, TensorInfo, Wanted } from "./graph";
import { lastly, type Maybe, then } from "./maybe";
import { GuestMemory } from "./memory";
import { convert, dtypeOf, elementsOf, type HostTensor, sizeOfType } from "./tensor-types";

/** What the guest called, as its error. */
export type Report = (call: string, error: NNError) => void;

export interface Limits {
  /** graphs and contexts that are open at the same time */
  handles: number;
  /** bytes of one model, and of all inputs that are set */
  bytes: number;
}

export const LIMITS: Limits = { handles: 1024, bytes: 2 ** 31 };
const MAX_RANK = 64;
const MAX_NAME = 4096;
const MAX_CONFIG = 2 ** 20;

/** A graph, which lives as long as a handle or a context of it. */
interface Shared {
  graph: Graph;
  uses: number;
  /** a graph that the guest has by name is not loaded twice */
  name: string | null;
}

interface Context {
  of: Shared;
  inputs: (HostTensor | undefined)[];
  outputs: Outputs | null;
  /** outputs that were read: a guest whose buffer was too small asks again */
  read: Map<number, HostTensor>;
  /** a call of the guest is waiting for this context */
  busy: boolean;
  closed: boolean;
}

/** Handles are never used twice: an old one is refused, and means nothing else. */
class Handles<T> {
  private readonly entries = new Map<number, T>();
  private next = 0;
  constructor(
    private readonly what: string,
    private readonly limit: number,
  ) {}

  /** Throws before anything is made, if there is no place. */
  reserve(): void {
    if (this.entries.size >= this.limit) fail("busy", `the guest has ${this.limit} ${this.what}s open`);
  }
  add(entry: T): number {
    this.entries.set(this.next, entry);
    return this.next++;
  }
  get(handle: number): T {
    return this.entries.get(handle) ?? fail("invalidArgument", `there is no ${this.what} ${handle}`);
  }
  remove(handle: number): T {
    const entry = this.get(handle);
    this.entries.delete(handle);
    return entry;
  }
  drain(): T[] {
    const all = [...this.entries.values()];
    this.entries.clear();
    return all;
  }
}

export type Call = (...args: number[]) => Maybe<number>;

export class Calls {
  readonly memory = new GuestMemory();
  private readonly graphs: Handles<Shared>;
  private readonly contexts: Handles<Context>;
  private readonly named = new Map<string, Shared>();
  /** bytes of inputs that are set */
  private held = 0;

  constructor(
    private readonly source: Graphs,
    private readonly report: Report,
    private readonly limits: Limits,
  ) {
    this.graphs = new Handles("graph", limits.handles);
    this.contexts = new Handles("context", limits.handles);
  }

  /** A call as the guest makes it: addresses and handles are unsigned, errors are numbers. */
  call(name: string, body: (...args: number[]) => Maybe<void>): Call {
    const failed = (error: unknown): number => {
      const known = asNNError(error);
      this.report(name, known);
      return Errno[known.code];
    };
    return (...args) => {
      try {
        const result = then(body(...args.map((arg) => arg >>> 0)), () => Errno.success as number);
        return result instanceof Promise ? result.catch(failed) : result;
      } catch (error) {
        return failed(error);
      }
    };
  }

  load(builders: number, count: number, encoding: number, target: number, result: number): Maybe<void> {
    this.memory.view(result, 4, "the place of the graph");
    this.graphs.reserve();
    if (target > 3) fail("invalidArgument", `there is no execution target ${target}`);
    if (target === 2) fail("unsupportedOperation", "there is no TPU here: a page has a GPU and a CPU");
    const regions = this.memory.words(builders, 2 * count, "the list of builders");
    const nbytes = regions.reduce((sum, word, index) => sum + (index % 2 ? word : 0), 0);
    if (nbytes > this.limits.bytes) fail("tooLarge", `a model of ${nbytes} bytes: ${this.limits.bytes} are allowed`);
    const parts: Uint8Array<ArrayBuffer>[] = [];
    for (let at = 0; at < regions.length; at += 2)
      parts.push(this.memory.bytes(regions[at] as number, regions[at + 1] as number, "a builder"));
    const graph = this.source.fromBytes(parts, encoding, { target, method: null });
    return then(graph, (graph) => this.opened({ graph, uses: 0, name: null }, result));
  }

  loadByName(address: number, length: number, result: number, wanted?: Wanted): Maybe<void> {
    this.memory.view(result, 4, "the place of the graph");
    this.graphs.reserve();
    if (length > MAX_NAME) fail("invalidArgument", `a name of ${length} bytes`);
    const name = this.memory.text(address, length, "the name");
    const key = `${wanted?.method ?? ""}\n${name}`;
    const known = this.named.get(key);
    if (known) return this.opened(known, result);
    return then(this.source.fromName(name, wanted ?? { target: null, method: null }), (graph) => {
      const other = this.named.get(key); // while this call was waiting, another one may have loaded it
      if (other) graph.dispose();
      const shared = other ?? { graph, uses: 0, name: key };
      this.named.set(key, shared);
      this.opened(shared, result);
    });
  }

  /** WasmEdge's: the configuration is JSON, of which `method` says what of the plan is computed. */
  loadByNameWithConfig(
    name: number,
    length: number,
    config: number,
    configLength: number,
    result: number,
  ): Maybe<void> {
    if (configLength > MAX_CONFIG) fail("invalidArgument", `a configuration of ${configLength} bytes`);
    const text = this.memory.text(config, configLength, "the configuration");
    let method: unknown;
    try {
      method = text.trim() ? JSON.parse(text)?.method : null;
    } catch {
      fail("invalidArgument", "the configuration is not JSON");
    }
    if (method !== undefined && method !== null && typeof method !== "string")
      fail("invalidArgument", "the configuration's `method` is not a text");
    return this.loadByName(name, length, result, { target: null, method: method ?? null });
  }

  initExecutionContext(graph: number, result: number): void {
    const shared = this.graphs.get(graph);
    this.memory.view(result, 4, "the place of the context");
    this.contexts.reserve();
    shared.uses++;
    const inputs = new Array(shared.graph.inputs.length).fill(undefined);
    const handle = this.contexts.add({
      of: shared,
      inputs,
      outputs: null,
      read: new Map(),
      busy: false,
      closed: false,
    });
    this.memory.writeWord(result, handle, "the place of the context");
  }

  setInput(handle: number, index: number, record: number): void {
    const [dims, rank, type, data, nbytes] = this.memory.words(record, 5, "the tensor") as [number, ...number[]];
    // The type is one byte, and what follows it is not the guest's to fill
    this.setTensor(handle, index, [dims, rank as number], (type as number) & 255, [data as number, nbytes as number]);
  }

  /** dims, data: address and length; no length of data: as many bytes as `type` takes */
  setTensor(handle: number, index: number, dims: number[], type: number, data: [number, number | null]): void {
    const context = this.idle(handle);
    const { inputs } = context.of.graph;
    const info = inputs[index];
    if (!info) fail("invalidArgument", `there is no input ${index}: the model has ${inputs.length}`);
    const [address, rank] = dims as [number, number];
    if (rank > MAX_RANK) fail("invalidArgument", `a tensor of ${rank} dimensions`);
    const given = this.memory.words(address, rank, "the dimensions");
    const shape = fittingShape(given, info.shape);
    if (!shape)
      fail("invalidArgument", `input ${index} (${info.name}) has the shape [${info.shape}], and [${given}] was given`);
    const elements = elementsOf(shape);
    const nbytes = data[1] ?? elements * sizeOfType(type);
    const bytes = this.memory.view(data[0], nbytes, "the data of the tensor");
    const dtype = dtypeOf(type, elements, nbytes, info.dtype);
    const old = context.inputs[index]?.bytes.length ?? 0;
    if (this.held - old + nbytes > this.limits.bytes)
      fail("tooLarge", `the inputs that are set take more than ${this.limits.bytes} bytes`);
    const wanted = info.dtype ?? dtype;
    const copy = convert(Uint8Array.from(bytes), dtype, wanted);
    context.inputs[index] = { dtype: wanted, shape, bytes: copy };
    this.held += copy.length - old;
  }

  compute(handle: number): Maybe<void> {
    const context = this.idle(handle);
    const missing = context.inputs.findIndex((input) => !input);
    if (missing >= 0) fail("runtimeError", `input ${missing} is not set`);
    this.forget(context);
    context.busy = true;
    return lastly(
      () =>
        then(context.of.graph.compute(context.inputs as HostTensor[]), (outputs) => {
          if (context.closed) outputs.dispose();
          else context.outputs = outputs;
        }),
      () => {
        context.busy = false;
      },
    );
  }

  getOutput(handle: number, index: number, buffer: number, size: number, written: number): Maybe<void> {
    const context = this.idle(handle);
    const { outputs } = context;
    if (!outputs) fail("runtimeError", "nothing has been computed");
    if (index >= outputs.count) fail("invalidArgument", `there is no output ${index}: the model has ${outputs.count}`);
    this.memory.view(buffer, size, "the buffer of the output");
    this.memory.view(written, 4, "the place of the output's size");
    const known = context.read.get(index);
    if (known) return this.give(known, buffer, size, written);
    context.busy = true;
    return lastly(
      () =>
        then(outputs.read(index), (tensor) => {
          context.read.set(index, tensor);
          this.give(tensor, buffer, size, written);
        }),
      () => {
        context.busy = false;
      },
    );
  }

  unload(handle: number): void {
    this.release(this.graphs.remove(handle));
  }

  finalizeExecutionContext(handle: number): void {
    this.idle(handle);
    this.close(this.contexts.remove(handle));
  }

  /** Ends all that the guest left open. */
  dispose(): void {
    for (const context of this.contexts.drain()) this.close(context);
    for (const graph of this.graphs.drain()) this.release(graph);
  }

  private idle(handle: number): Context {
    const context = this.contexts.get(handle);
    if (context.busy) fail("busy", `context ${handle} is computing, or being read`);
    return context;
  }

  private opened(shared: Shared, result: number): void {
    shared.uses++;
    this.memory.writeWord(result, this.graphs.add(shared), "the place of the graph");
  }

  private give(tensor: HostTensor, buffer: number, size: number, written: number): void {
    const { bytes } = tensor;
    this.memory.writeWord(written, bytes.length, "the place of the output's size");
    if (bytes.length > size) fail("tooLarge", `the output has ${bytes.length} bytes, and the buffer ${size}`);
    this.memory.view(buffer, bytes.length, "the buffer of the output").set(bytes);
  }

  private forget(context: Context): void {
    context.outputs?.dispose();
    context.outputs = null;
    context.read.clear();
  }

  private close(context: Context): void {
    context.closed = true;
    this.forget(context);
    for (const input of context.inputs) this.held -= input?.bytes.length ?? 0;
    this.release(context.of);
  }

  private release(shared: Shared): void {
    if (--shared.uses > 0) return;
    if (shared.name !== null) this.named.delete(shared.name);
    shared.graph.dispose();
  }
}

/** The shape of the model that the guest's dimensions are; null: none. A scalar comes as [1] or as []. */
function fittingShape(given: readonly number[], wanted: TensorInfo["shape"]): readonly number[] | null {
  if (wanted === null) return given;
  if (wanted.length === 0) return given.every((size) => size === 1) ? [] : null;
  if (given.length !== wanted.length) return null;
  return given.every((size, axis) => typeof wanted[axis] !== "number" || wanted[axis] === size) ? given : null;
}

/**
 * A thread that waits, and one that answers.
 *
 * A guest that cannot be suspended blocks its thread (`Atomics.wait`) until a model's result is there; the models are on
 * another thread, which goes on. Requests are messages, answers lie in shared memory: JSON, and bytes piece by piece.
 */

import { asNNError, type ErrnoName, NNError } from "./errno";
import type { Graph, Graphs, Outputs, TensorInfo, Wanted } from "./graph";
import type { Dtype, HostTensor } from "./tensor-types";

/** control: state, length of the JSON or piece in `data`, length of the bytes that can be asked for */
export interface SharedAnswer {
  control: Int32Array<SharedArrayBuffer>;
  data: Uint8Array<SharedArrayBuffer>;
}

const STATE = 0;
const LENGTH = 1;
const BYTES = 2;
const WAITING = 0;
const ANSWERED = 1;
const GONE = 2;
const PIECE = 2 ** 20;

export type Request =
  | { ask: "bytes"; parts: readonly Uint8Array<ArrayBuffer>[]; encoding: number; wanted: Wanted }
  | { ask: "name"; name: string; wanted: Wanted }
  | { ask: "compute"; graph: number; inputs: readonly HostTensor[] }
  | { ask: "read"; outputs: number; index: number }
  | { ask: "piece"; at: number }
  | { ask: "dispose"; what: "graph" | "outputs"; id: number };

interface GraphAnswer {
  graph: number;
  inputs: TensorInfo[];
}

type Answer = { value: unknown } | { code: ErrnoName; message: string };

export function sharedAnswer(): SharedAnswer {
  return { control: new Int32Array(new SharedArrayBuffer(16)), data: new Uint8Array(new SharedArrayBuffer(PIECE)) };
}

/** From now on nobody answers: wakes a thread that waits for it. */
export function endAnswers({ control }: SharedAnswer): void {
  Atomics.store(control, STATE, GONE);
  Atomics.notify(control, STATE);
}

/** Whether this thread may wait: a page's own may not, workers and Node's main thread may. */
export function canWait(): boolean {
  if (typeof SharedArrayBuffer === "undefined") return false;
  try {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 0);
    return true;
  } catch {
    return false;
  }
}

/** The side that waits. */
export class WaitingGraphs implements Graphs {
  constructor(
    private readonly post: (request: Request) => void,
    private readonly shared: SharedAnswer,
  ) {}

  fromBytes(parts: readonly Uint8Array<ArrayBuffer>[], encoding: number, wanted: Wanted): Graph {
    return this.graph(this.ask({ ask: "bytes", parts, encoding, wanted }) as GraphAnswer);
  }

  fromName(name: string, wanted: Wanted): Graph {
    return this.graph(this.ask({ ask: "name", name, wanted }) as GraphAnswer);
  }

  private graph({ graph, inputs }: GraphAnswer): Graph {
    return {
      inputs,
      compute: (inputs) =>
        this.outputs(this.ask({ ask: "compute", graph, inputs }) as { outputs: number; count: number }),
      dispose: () => this.end("graph", graph),
    };
  }

  private outputs({ outputs, count }: { outputs: number; count: number }): Outputs {
    return {
      count,
      read: (index) => {
        const { dtype, shape } = this.ask({ ask: "read", outputs, index }) as { dtype: Dtype; shape: number[] };
        return { dtype, shape, bytes: this.bytes() };
      },
      dispose: () => this.end("outputs", outputs),
    };
  }

  /** With the thread of the models all has ended. */
  private end(what: "graph" | "outputs", id: number): void {
    if (Atomics.load(this.shared.control, STATE) !== GONE) this.ask({ ask: "dispose", what, id });
  }

  private bytes(): Uint8Array<ArrayBuffer> {
    const all = new Uint8Array(this.shared.control[BYTES] as number);
    for (let at = 0; at < all.length; ) {
      const piece = this.wait({ ask: "piece", at });
      all.set(piece, at);
      at += piece.length;
    }
    return all;
  }

  private ask(request: Request): unknown {
    const answer = JSON.parse(new TextDecoder().decode(this.wait(request))) as Answer;
    if ("code" in answer) throw new NNError(answer.code, answer.message);
    return answer.value;
  }

  /** What lies in the shared memory when the answer is there. */
  private wait(request: Request): Uint8Array<ArrayBuffer> {
    const { control, data } = this.shared;
    if (Atomics.load(control, STATE) === GONE) throw new NNError("runtimeError", "the thread of the models has ended");
    Atomics.store(control, STATE, WAITING);
    this.post(request);
    // A thread can be woken by the notice of the answer before, which it had seen already
    while (Atomics.load(control, STATE) === WAITING) Atomics.wait(control, STATE, WAITING);
    if (Atomics.load(control, STATE) === GONE) throw new NNError("runtimeError", "the thread of the models has ended");
    return data.slice(0, control[LENGTH]) as Uint8Array<ArrayBuffer>;
  }
}

/** The side that answers. */
export class AnsweringGraphs {
  private readonly graphs = new Map<number, Graph>();
  private readonly outputs = new Map<number, Outputs>();
  private next = 0;
  private bytes = new Uint8Array(0);

  constructor(
    private readonly source: Graphs,
    private readonly shared: SharedAnswer,
  ) {}

  async answer(request: Request): Promise<void> {
    if (request.ask === "piece") return this.put(this.bytes.subarray(request.at, request.at + PIECE));
    let answer: Answer;
    try {
      answer = { value: (await this.value(request)) ?? null };
    } catch (error) {
      const { code, message } = asNNError(error);
      answer = { code, message: message.slice(0, 10_000) };
    }
    let text = new TextEncoder().encode(JSON.stringify(answer));
    if (text.length > PIECE) {
      const message = "the answer of the thread of the models is too long";
      text = new TextEncoder().encode(JSON.stringify({ code: "runtimeError", message } satisfies Answer));
    }
    this.shared.control[BYTES] = this.bytes.length;
    this.put(text);
  }

  /** Wakes a thread that waits for what will never come. */
  gone(): void {
    endAnswers(this.shared);
  }

  dispose(): void {
    for (const outputs of this.outputs.values()) outputs.dispose();
    for (const graph of this.graphs.values()) graph.dispose();
    this.outputs.clear();
    this.graphs.clear();
  }

  private put(bytes: Uint8Array): void {
    const { control, data } = this.shared;
    data.set(bytes);
    control[LENGTH] = bytes.length;
    Atomics.store(control, STATE, ANSWERED);
    Atomics.notify(control, STATE);
  }

  private async value(request: Exclude<Request, { ask: "piece" }>): Promise<unknown> {
    switch (request.ask) {
      case "bytes":
        return this.opened(await this.source.fromBytes(request.parts, request.encoding, request.wanted));
      case "name":
        return this.opened(await this.source.fromName(request.name, request.wanted));
      case "compute": {
        const outputs = await found(this.graphs, request.graph).compute(request.inputs);
        this.outputs.set(++this.next, outputs);
        return { outputs: this.next, count: outputs.count };
      }
      case "read": {
        const { dtype, shape, bytes } = await found(this.outputs, request.outputs).read(request.index);
        this.bytes = bytes;
        return { dtype, shape };
      }
      case "dispose": {
        const from: Map<number, Graph | Outputs> = request.what === "graph" ? this.graphs : this.outputs;
        found(from, request.id).dispose();
        from.delete(request.id);
      }
    }
  }

  private opened(graph: Graph): GraphAnswer {
    this.graphs.set(++this.next, graph);
    return { graph: this.next, inputs: [...graph.inputs] };
  }
}

function found<T>(entries: Map<number, T>, id: number): T {
  const entry = entries.get(id);
  if (!entry) throw new NNError("runtimeError", `the thread of the models has no number ${id}`);
  return entry;
}

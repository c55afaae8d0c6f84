/** A host of wasi-nn: where its models are, and what its guests import. */

import { type Call, Calls, LIMITS, type Limits, type Report } from "./calls";
import { AnsweringGraphs, canWait, endAnswers, type Request, sharedAnswer, WaitingGraphs } from "./channel";
import { Errno, type ErrnoName, NNError } from "./errno";
import type { Graph, Graphs, Wanted } from "./graph";
import { functionsOf, type MODULES, unknown, WAITING } from "./imports";
import { isPromise, type Maybe } from "./maybe";
import { type Compile, type DeviceChoice, type ModelSource, Models, type PlanReader } from "./models";
import { canSuspend, type Mode, promising, suspending } from "./suspend";
import { startThread, type Thread } from "./threads";
import type { ModelsMessage } from "./worker";

export interface WasiNNOptions {
  /** Models that a guest loads by name: plans, files for `compile`, or graphs of the page's own making. */
  models?: Readonly<Record<string, ModelSource | Graph>>;
  /** Default "auto": WebGPU where that can be had. "guest": the one that the guest asks for. */
  device?: DeviceChoice | "guest";
  /** Which method of a plan is computed. Default: `forward`, `predict`, or the only one. */
  method?: string;
  /** Makes plans of ONNX, `.pt2` and TorchScript: see compileWithPyodide. Without it they are refused. */
  compile?: Compile;
  /** What a guest may hold: `handles` (1024) of graphs and of contexts, `bytes` (2 GiB) of a model, and of inputs. */
  limits?: Partial<Limits>;
  /** Told of each error that a guest gets as a number. Default: a warning of the console. */
  onError?: Report;
  /** How a guest waits. Default: what this browser, or this Node, can do best. */
  mode?: Mode;
}

/** What is needed of the package around: its reader of plans, and the module of its threads. */
export interface Surroundings {
  reader: PlanReader;
  worker: URL;
}

type Imports = Record<(typeof MODULES)[number], Record<string, (...args: never[]) => unknown>>;

/** One guest, with graphs and contexts of its own. */
export interface Guest {
  /** by module: `{ wasi_ephemeral_nn: { load, … }, wasi_nn: { … } }` */
  readonly imports: Imports;
  /** Tells which memory the guest has. Until then its calls return missing_memory. */
  attach(instance: WebAssembly.Instance | WebAssembly.Memory): void;
  /** Functions that a module asks of wasi-nn and that are not here: they return unsupported_operation. */
  others(module: WebAssembly.Module): WebAssembly.Imports;
  /** Ends the graphs and contexts that the guest left open. */
  dispose(): void;
}

export class WasiNN {
  private own: Guest | null = null;
  private readonly report: Report;
  /** of each guest */
  readonly limits: Limits;

  /** Use `wasiNN(options)`. thread: where the models are, if they are not here */
  constructor(
    readonly mode: Mode,
    private readonly graphs: Graphs,
    /** where a guest runs that cannot run here */
    readonly worker: URL,
    private readonly thread: Thread | null,
    options: WasiNNOptions,
  ) {
    this.limits = { ...LIMITS, ...options.limits };
    this.report =
      options.onError ?? ((call, { code, message }) => console.warn(`wasi-nn: ${call}: ${code}: ${message}`));
  }

  /** What a module that you instantiate yourself imports; `attach` it then. */
  get imports(): Imports {
    this.own ??= this.guest();
    return this.own.imports;
  }

  attach(instance: WebAssembly.Instance | WebAssembly.Memory): void {
    this.own ??= this.guest();
    this.own.attach(instance);
  }

  /** An export of a guest that you instantiated yourself, as a function that gives a promise. */
  promising(exported: (...args: never[]) => unknown): (...args: unknown[]) => Promise<unknown> {
    if (this.mode === "suspend") return promising(exported);
    return async (...args) => exported(...(args as never[]));
  }

  /** For a guest besides the one that `imports` is for. */
  guest(): Guest {
    if (this.mode === "thread")
      throw new Error(
        "this page's thread can neither suspend a guest nor wait for one: use run(), or instantiate the guest in a worker",
      );
    const calls = new Calls(this.graphs, this.report, this.limits);
    const wrap = (name: string, call: Call) => this.wrapped(name, call);
    const imports = Object.fromEntries(
      Object.entries(functionsOf(calls)).map(([module, functions]) => [
        module,
        Object.fromEntries(Object.entries(functions).map(([name, call]) => [name, wrap(name, call)])),
      ]),
    ) as Imports;
    return {
      imports,
      attach(instance) {
        const memory = "exports" in instance ? instance.exports.memory : instance;
        if (memory instanceof WebAssembly.Memory) calls.memory.attach(memory);
      },
      others(module) {
        const made: WebAssembly.Imports = {};
        for (const { module: from, name, kind } of WebAssembly.Module.imports(module))
          if (kind === "function" && from in imports && !(name in imports[from as keyof Imports])) {
            made[from] ??= {};
            made[from][name] = calls.call(name, unknown(name)) as never;
          }
        return made;
      },
      dispose: () => calls.dispose(),
    };
  }

  /** Tells of an error of a guest that runs on another thread. */
  failed(call: string, code: ErrnoName, message: string): void {
    this.report(call, new NNError(code, message));
  }

  /** Answers a guest that runs on another thread. */
  answering(shared: ReturnType<typeof sharedAnswer>): { answer(request: Request): void; dispose(): void } {
    const answering = new AnsweringGraphs(this.graphs, shared);
    return { answer: (request) => void answering.answer(request), dispose: () => answering.dispose() };
  }

  /** Ends the thread of the models, if there is one, and what the guest of `imports` left open. */
  dispose(): void {
    this.own?.dispose();
    this.own = null;
    this.thread?.terminate();
  }

  private wrapped(name: string, call: Call): (...args: never[]) => unknown {
    if (!WAITING.has(name)) return call as never;
    if (this.mode === "suspend") return suspending(call as never);
    return (...args: number[]) => {
      const result = call(...args);
      if (!isPromise(result)) return result;
      // Nobody can wait for it on this thread, which the guest is on
      this.report(name, new NNError("runtimeError", "a graph of the page's own must answer at once in this mode"));
      return Errno.runtimeError;
    };
  }
}

/** Graphs of the page's own making, before those of the models. */
class OwnGraphs implements Graphs {
  constructor(
    private readonly own: Readonly<Record<string, Graph>>,
    private readonly rest: Graphs,
  ) {}
  fromBytes(...args: Parameters<Graphs["fromBytes"]>): Maybe<Graph> {
    return this.rest.fromBytes(...args);
  }
  fromName(name: string, wanted: Wanted): Maybe<Graph> {
    if (!Object.hasOwn(this.own, name)) return this.rest.fromName(name, wanted);
    const graph = this.own[name] as Graph;
    // It is the page's: what a guest is through with, another one may ask for
    return { inputs: graph.inputs, compute: (inputs) => graph.compute(inputs), dispose: () => {} };
  }
}

function isGraph(model: ModelSource | Graph): model is Graph {
  return typeof (model as Graph).compute === "function";
}

const MODES: readonly Mode[] = ["suspend", "block", "thread"];
const DEVICES: readonly (DeviceChoice | "guest")[] = ["auto", "webgpu", "cpu", "guest"];

function defaultMode(): Mode {
  return canSuspend() ? "suspend" : canWait() ? "block" : "thread";
}

export async function createHost(options: WasiNNOptions, surroundings: Surroundings): Promise<WasiNN> {
  const mode = options.mode ?? defaultMode();
  if (!MODES.includes(mode)) throw new TypeError(`mode is ${MODES.join(", ")}, not ${mode}`);
  if (mode === "suspend" && !canSuspend())
    throw new Error('mode "suspend" needs JavaScript Promise Integration, which is not here');
  if (mode === "block" && !canWait())
    throw new Error('mode "block" needs a thread that may wait, which a page\'s is not');
  if (mode === "thread" && typeof SharedArrayBuffer === "undefined")
    throw new Error(
      "without JavaScript Promise Integration a guest needs shared memory: serve the page with the headers " +
        "Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: require-corp",
    );
  const { models = {}, device = "auto", method = null, compile = null } = options;
  if (!DEVICES.includes(device)) throw new TypeError(`device is ${DEVICES.join(", ")}, not ${device}`);
  const own = Object.fromEntries(Object.entries(models).filter(([, model]) => isGraph(model))) as Record<string, Graph>;
  const named = Object.fromEntries(
    Object.entries(models)
      .filter(([, model]) => !isGraph(model))
      .map(absolute),
  );
  const { reader, worker } = surroundings;
  if (mode !== "block") {
    const here = new Models(reader, { models: named, device, method, compile });
    return new WasiNN(mode, new OwnGraphs(own, here), worker, null, options);
  }
  if (compile && compile.settings === undefined)
    throw new TypeError("here models are on another thread, to which `compile` cannot go: take compileWithPyodide");
  const shared = sharedAnswer();
  const settings = { models: named, device, method, compile: compile?.settings ?? null };
  const thread = await startModels(worker, { role: "models", shared, settings });
  const there = new WaitingGraphs((request) => thread.postMessage(request), shared);
  const terminate = () => {
    endAnswers(shared);
    thread.terminate();
  };
  return new WasiNN(mode, new OwnGraphs(own, there), worker, { ...thread, terminate }, options);
}

/** Addresses are the page's, and not the worker's. */
function absolute([name, model]: [string, ModelSource | Graph]): [string, ModelSource] {
  if (model instanceof URL) return [name, model.href];
  const base = globalThis.location?.href;
  if (typeof model === "string" && base) return [name, new URL(model, base).href];
  return [name, model as ModelSource];
}

async function startModels(module: URL, message: ModelsMessage): Promise<Thread> {
  const thread = startThread(module);
  await new Promise<void>((resolve, reject) => {
    thread.listen(() => resolve(), reject);
    thread.postMessage(message);
  });
  thread.rest();
  return thread;
}

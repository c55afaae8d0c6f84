/** The life of one Python: a worker that can be stopped, replaced, and asked to run things one at a time. */
import * as Comlink from "comlink";
import type { Bytes } from "./folder";
import type {
  About,
  CellRun,
  CellsResult,
  Completion,
  Device,
  Interpreter,
  PageEvent,
  RunResult,
  StartOptions,
} from "./interpreter";

import { isolate } from "./isolation";
import { carryOut, type RunReply, type RunRequest } from "./request";
import { manifest } from "./version";

export type State = "loading" | "ready" | "busy" | "failed";

/** How long a worker may leave Stop unanswered before it is ended: one that shares memory answers once it is out of C or JavaScript. */
const GRACE_MS = 1500;
const SHARED_GRACE_MS = 5000;
/** How long a script may take to end, in a worker that has answered: it was waiting, and will meet the interrupt. */
const ANSWERED_GRACE_MS = 15000;
const POLL_MS = 50;

export class Stopped extends Error {}

export interface SessionHandlers {
  onEvent(event: PageEvent): void;
  onState(state: State, problem?: string): void;
  onDevice(device: Device): void;
}

export class Session {
  state: State = "loading";
  #worker: Worker | undefined;
  #python: Comlink.Remote<Interpreter> | undefined;
  #ready: Promise<void> = Promise.resolve();
  #interrupt: Uint8Array | undefined;
  #watched: Int32Array | undefined;
  #watching = false;
  #ended: Promise<never> = new Promise(() => {});
  #abandon: ((reason: Stopped) => void) | undefined;
  #generation = 0;
  readonly #options: StartOptions;
  readonly #handlers: SessionHandlers;

  constructor(options: StartOptions, handlers: SessionHandlers) {
    this.#options = options;
    this.#handlers = handlers;
  }

  /** End what runs, whatever it does, and start a new Python. Resolves when that is ready. */
  restart(): Promise<void> {
    this.#abandon?.(new Stopped("restarted"));
    this.#worker?.terminate();
    const generation = ++this.#generation;
    this.#ended = new Promise((_, reject) => {
      this.#abandon = reject;
    });
    this.#ended.catch(() => {});
    this.#set("loading");
    this.#ready = this.#start(generation);
    this.#ready.catch((error: unknown) => {
      if (generation === this.#generation) this.#set("failed", describe(error));
    });
    return this.#ready;
  }

  /** Run a script. Waits for Python if that is still loading. */
  run(source: string, filename: string, argv: string[] = []): Promise<RunResult> {
    return this.#exclusive((python) => python.run(source, filename, argv));
  }

  /** Run cells of a script that has this text, one after another until one fails. */
  runCells(cells: CellRun[], source: string, filename: string, clean: boolean): Promise<CellsResult> {
    return this.#exclusive((python) => python.runCells(cells, source, filename, clean));
  }

  /** Run what somebody else has, who waits for what comes of it. */
  carryOut(request: RunRequest): Promise<RunReply> {
    return this.#exclusive((python) => carryOut(python, request));
  }

  evaluate(source: string): Promise<number> {
    return this.#exclusive((python) => python.evaluate(source));
  }

  needsMore(source: string): Promise<boolean> {
    return this.#ask((python) => python.needsMore(source));
  }

  /** Have the runtime's counters told, or no longer; also by a Python that is started later. */
  watch(on: boolean): void {
    this.#watching = on;
    if (this.#watched) Atomics.store(this.#watched, 0, Number(on));
    if (this.state === "ready" || this.state === "busy") this.#python?.watch(on).catch(() => {}); // it may be ended meanwhile
  }

  /** What a function of the inspector's module says; while it works Python is busy. */
  inspect(source: string, name: string, ...args: unknown[]): Promise<unknown> {
    return this.#exclusive((python) => python.inspect(source, name, ...args));
  }

  compileTimes(): Promise<[kernel: number, ms: number][]> {
    return this.#ask((python) => python.compileTimes());
  }

  /** Answer a script that asked for input. */
  answer(line: string | undefined): void {
    this.#python?.answer(line).catch(() => {}); // it may be ended meanwhile
  }

  /** Put a file into the working folder, once Python is there. The result is what it replaces. */
  putFile(path: string, file: Blob): Promise<Bytes | undefined> {
    return this.#ask((python) => python.putFile(path, file));
  }

  readFile(path: string): Promise<Bytes> {
    return this.#ask((python) => python.readFile(path));
  }

  /** Delete a file of the working folder. The result is what was in it. */
  removeFile(path: string): Promise<Bytes | undefined> {
    return this.#ask((python) => python.removeFile(path));
  }

  about(text: string): Promise<About | undefined> {
    return this.#ask((python) => python.about(text));
  }

  complete(text: string): Promise<Completion> {
    return this.#ask((python) => python.complete(text));
  }

  /**
   * Stop the running script. A script that waits for anything (the GPU, a sleep) gets a KeyboardInterrupt, as does any
   * script on a cross-origin isolated page, and its variables stay: true. One that does not answer loses its worker,
   * and a new Python starts: false.
   */
  async stop(): Promise<boolean> {
    if (this.state !== "busy") return true;
    const generation = this.#generation;
    let patience = this.#interrupt ? SHARED_GRACE_MS : GRACE_MS;
    const answered = () => {
      patience = ANSWERED_GRACE_MS;
    };
    if (this.#interrupt) this.#interrupt[0] = 2;
    this.#python?.interrupt().then(answered, () => {});
    // Turns are counted, not time: a page that stood still for a while has not been waiting for an answer.
    for (let waited = 0; waited < patience; waited += POLL_MS) {
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
      if (this.state !== "busy" || generation !== this.#generation) return true;
    }
    this.restart().catch(() => {}); // said by onState
    return false;
  }

  async #start(generation: number): Promise<void> {
    await isolate();
    if (generation !== this.#generation) throw new Stopped("restarted");
    const worker = new Worker(new URL("./worker.ts", import.meta.url), { type: "module", name: "python" });
    this.#worker = worker;
    const shared = globalThis.crossOriginIsolated;
    this.#interrupt = shared ? new Uint8Array(new SharedArrayBuffer(1)) : undefined;
    const python = Comlink.wrap<Interpreter>(worker);
    this.#python = python;
    const drawn = shared ? new Int32Array(new SharedArrayBuffer(4)) : undefined;
    this.#watched = shared ? new Int32Array(new SharedArrayBuffer(4)) : undefined;
    worker.addEventListener("message", ({ data }: MessageEvent<PageEvent>) => {
      if (data?.event && generation === this.#generation) this.#receive(data, drawn);
    });
    const broken = new Promise<never>((_, reject) => {
      worker.addEventListener("error", (event) => reject(new Error(event.message || "the worker could not start")));
    });
    broken.catch(() => {});
    const options = { ...this.#options, manifest: await manifest };
    const shares = { interruptBuffer: this.#interrupt, drawn, watched: this.#watched };
    const starting = python.start({ ...options, ...shares, interactive: true });
    const device = await Promise.race([starting, broken]);
    if (generation !== this.#generation) throw new Stopped("restarted");
    this.#handlers.onDevice(device);
    this.#set("ready");
    if (this.#watching) this.watch(true);
  }

  #receive(event: PageEvent, drawn: Int32Array | undefined): void {
    if (event.event !== "batch") {
      this.#handlers.onEvent(event);
      return;
    }
    const { items, dropped, number } = event;
    if (dropped.characters) this.#handlers.onEvent({ event: "dropped", ...dropped });
    for (const item of items) this.#handlers.onEvent(item);
    if (drawn) afterDrawing(() => Atomics.store(drawn, 0, number));
  }

  async #exclusive<T>(work: (python: Comlink.Remote<Interpreter>) => Promise<T>): Promise<T> {
    await this.#ready;
    if (this.state !== "ready") throw new Error("Python is busy");
    const generation = this.#generation;
    this.#set("busy");
    try {
      return await this.#ask(work);
    } finally {
      if (generation === this.#generation) this.#set("ready");
    }
  }

  /** A call whose answer does not come once the worker is ended: it is then rejected here. */
  async #ask<T>(work: (python: Comlink.Remote<Interpreter>) => Promise<T>): Promise<T> {
    await this.#ready;
    return Promise.race([work(this.#python as Comlink.Remote<Interpreter>), this.#ended]);
  }

  #set(state: State, problem?: string): void {
    if (this.#interrupt) this.#interrupt[0] = 0; // a Stop is meant for what runs, not for what comes next
    this.state = state;
    this.#handlers.onState(state, problem);
  }
}

/** Once a frame has been drawn; in a hidden tab, which draws none, a while later. */
function afterDrawing(work: () => void): void {
  let waits = true;
  const once = () => {
    if (waits) work();
    waits = false;
  };
  requestAnimationFrame(() => setTimeout(once));
  setTimeout(once, 500);
}

export function describe(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

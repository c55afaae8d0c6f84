/**
 * The bare page behind `tabtorch run`: one call is one process. Output goes to `window.__tabtorchOutput(stream, text)`
 * as it comes; files travel as base64.
 */
import * as Comlink from "comlink";
import { type FileEntry, Interpreter, type PageEvent, type Stage, type StartOptions } from "./interpreter";
import type { Stream } from "./outbox";

export interface RunRequest {
  source: string;
  filename?: string;
  argv?: string[];
  /** TABTORCH_DEVICE: webgpu, cpu or auto. */
  device?: string;
  env?: Record<string, string>;
  /** What lies in the working directory. Left out: no files. */
  files?: [path: string, base64: string][];
  /** The working directory; `/work`, if left out. */
  work?: string | undefined;
  /** Where Python runs. The main thread has one Python for as long as the page lasts. */
  thread?: "worker" | "main";
  /** false: as in a browser without promise integration. */
  jspi?: boolean;
}

export interface RunReply {
  /** As a process's: 0, or what SystemExit said, or 1 after a traceback. */
  status: number;
  /** New and changed files of the working directory. */
  files: [path: string, base64: string][];
}

declare global {
  interface Window {
    tabtorchRun: (request: RunRequest) => Promise<RunReply>;
    /** Start the Python that the next request of this device and environment will find, in a worker. */
    tabtorchPrepare: (request: Pick<RunRequest, "device" | "env">) => void;
    __tabtorchOutput?: (stream: Stream | "report", text: string) => unknown;
    /** A part of Python's start is done. */
    __tabtorchStage?: (stage: Stage) => unknown;
  }
}

type Python = Interpreter | Comlink.Remote<Interpreter>;

let onMainThread: { python: Interpreter; key: string } | undefined;

function send(event: PageEvent): void {
  if (event.event === "batch") event.items.forEach(send);
  else if (event.event === "output" && event.stream !== "note") window.__tabtorchOutput?.(event.stream, event.text);
  else if (event.event === "report") window.__tabtorchOutput?.("report", event.text);
  else if (event.event === "stage" && event.done) window.__tabtorchStage?.(event.stage);
}

/** A worker in which Python starts; what it says is heard once somebody listens. */
class Starting {
  readonly #worker = new Worker(new URL("./worker.ts", import.meta.url), { type: "module", name: "python" });
  readonly key: string;
  readonly #python: Promise<Comlink.Remote<Interpreter>>;
  #heard: ((event: PageEvent) => void) | undefined;
  #last: PageEvent | undefined;

  constructor(options: StartOptions) {
    this.key = JSON.stringify(options);
    this.#worker.addEventListener("message", ({ data }: MessageEvent<PageEvent>) => {
      if (!data?.event) return;
      this.#last = data;
      this.#heard?.(data);
    });
    const broken = new Promise<never>((_, reject) => {
      this.#worker.addEventListener("error", (event) =>
        reject(new Error(event.message || "the worker could not start")),
      );
    });
    const python = Comlink.wrap<Interpreter>(this.#worker);
    this.#python = Promise.race([python.start(options), broken]).then(() => python);
    this.#broken = broken;
    for (const promise of [broken, this.#python]) promise.catch(() => {}); // reported by work()
  }

  readonly #broken: Promise<never>;

  async work<T>(work: (python: Python) => Promise<T>): Promise<T> {
    this.#heard = send;
    if (this.#last) send(this.#last);
    try {
      return await Promise.race([this.#python.then((python) => work(python)), this.#broken]);
    } finally {
      this.end();
    }
  }

  end(): void {
    this.#worker.terminate();
  }
}

let spare: Starting | undefined;

function inWorker<T>(options: StartOptions, work: (python: Python) => Promise<T>): Promise<T> {
  const ready = spare;
  spare = undefined;
  if (ready?.key === JSON.stringify(options)) return ready.work(work);
  ready?.end();
  return new Starting(options).work(work);
}

function startOptions({ device, env, jspi = true }: RunRequest): StartOptions {
  return { base: new URL("./", document.baseURI).href, device, env, jspi };
}

window.tabtorchPrepare = (request) => {
  spare?.end();
  spare = new Starting(startOptions({ source: "", ...request }));
};

async function onMain<T>(options: StartOptions, work: (python: Python) => Promise<T>): Promise<T> {
  const key = JSON.stringify([options.device, options.jspi, options.env]);
  if (onMainThread && onMainThread.key !== key)
    throw new Error("the main thread's Python was started with other options");
  if (!onMainThread) {
    const python = new Interpreter(send);
    await python.start(options);
    onMainThread = { python, key };
  }
  return work(onMainThread.python);
}

window.tabtorchRun = async (request) => {
  const { source, filename = "main.py", argv = [], thread = "worker", work } = request;
  const files = (request.files ?? []).map(([path, text]): FileEntry => [path, fromBase64(text)]);
  return (thread === "main" ? onMain : inWorker)(startOptions(request), async (python) => {
    await python.putFiles(files, work);
    const { status } = await python.run(source, filename, argv);
    await python.finish();
    const changed = await python.changedFiles(files, work);
    return { status, files: changed.map(([path, bytes]): [string, string] => [path, toBase64(bytes)]) };
  });
};

function fromBase64(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
}

function toBase64(bytes: Uint8Array): string {
  let binary = "";
  for (let at = 0; at < bytes.length; at += 0x8000) binary += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(binary);
}

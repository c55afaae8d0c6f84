/** The bare page behind `tabtorch run`: what request.ts says, each in a Python of its own. */
import * as Comlink from "comlink";
import { Interpreter, type PageEvent, type StartOptions } from "./interpreter";
import { carryOut, type Python, type RunRequest, tell } from "./request";

let onMainThread: { python: Interpreter; key: string } | undefined;

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
    this.#heard = tell;
    if (this.#last) tell(this.#last);
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
    const python = new Interpreter(tell);
    await python.start(options);
    onMainThread = { python, key };
  }
  return work(onMainThread.python);
}

window.tabtorchRun = (request) =>
  (request.thread === "main" ? onMain : inWorker)(startOptions(request), (python) => carryOut(python, request));

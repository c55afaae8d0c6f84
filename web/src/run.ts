/**
 * The bare page behind `tabtorch run`: one call is one process. Output goes to `window.__tabtorchOutput(stream, text)`
 * as it comes; files travel as base64.
 */
import * as Comlink from "comlink";
import { type FileEntry, Interpreter, type PageEvent, type StartOptions, type Stream } from "./interpreter";

export interface RunRequest {
  source: string;
  filename?: string;
  argv?: string[];
  /** TABTORCH_DEVICE: webgpu, cpu or auto. */
  device?: string;
  env?: Record<string, string>;
  /** The working directory, `/work` there. Left out: no files. */
  files?: [path: string, base64: string][];
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
    __tabtorchOutput?: (stream: Stream, text: string) => unknown;
  }
}

type Python = Interpreter | Comlink.Remote<Interpreter>;

let onMainThread: { python: Interpreter; key: string } | undefined;

function send(event: PageEvent): void {
  if (event.event === "output") window.__tabtorchOutput?.(event.stream, event.text);
}

async function inWorker<T>(options: StartOptions, work: (python: Python) => Promise<T>): Promise<T> {
  const worker = new Worker(new URL("./worker.ts", import.meta.url), { type: "module", name: "python" });
  try {
    worker.addEventListener("message", ({ data }: MessageEvent<PageEvent>) => {
      if (data?.event) send(data);
    });
    const broken = new Promise<never>((_, reject) => {
      worker.addEventListener("error", (event) => reject(new Error(event.message || "the worker could not start")));
    });
    const python = Comlink.wrap<Interpreter>(worker);
    return await Promise.race([python.start(options).then(() => work(python)), broken]);
  } finally {
    worker.terminate();
  }
}

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
  const { source, filename = "main.py", argv = [], device, env, thread = "worker", jspi = true } = request;
  const files = (request.files ?? []).map(([path, text]): FileEntry => [path, fromBase64(text)]);
  const options = { base: new URL("./", document.baseURI).href, device, env, jspi };
  return (thread === "main" ? onMain : inWorker)(options, async (python) => {
    await python.putFiles(files);
    const { status } = await python.run(source, filename, argv);
    await python.finish();
    const changed = await python.changedFiles(files);
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

/**
 * What `tabtorch run` asks of a page, run.html or with `--screenshot` the one with the editor: one call is one process.
 * Output goes to `window.__tabtorchOutput(stream, text)` as it comes; files travel as base64.
 */
import type * as Comlink from "comlink";
import { fromBase64, toBase64 } from "./base64";
import { Compiling, type Counts } from "./compiling";
import type { FileEntry, Interpreter, PageEvent, Stage } from "./interpreter";
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
    /** How many kernels are compiled, once the script waits for that; null once it goes on. */
    __tabtorchCompiling?: (counts: Counts | null) => unknown;
  }
}

export type Python = Interpreter | Comlink.Remote<Interpreter>;

const compiling = new Compiling((counts) => window.__tabtorchCompiling?.(counts ?? null));

/** Tell who asked what Python says. */
export function tell(event: PageEvent): void {
  if (event.event === "batch") event.items.forEach(tell);
  else if (event.event === "output" && event.stream !== "note") window.__tabtorchOutput?.(event.stream, event.text);
  else if (event.event === "report") window.__tabtorchOutput?.("report", event.text);
  else if (event.event === "stage" && event.done) window.__tabtorchStage?.(event.stage);
  else if (event.event === "compiling") compiling.hear(event);
}

/** Whether somebody asks: then nobody sits before the page. */
export function isAsked(): boolean {
  return window.__tabtorchOutput !== undefined;
}

export async function carryOut(python: Python, request: RunRequest): Promise<RunReply> {
  const { source, filename = "main.py", argv = [], work } = request;
  const files = (request.files ?? []).map(([path, text]): FileEntry => [path, fromBase64(text)]);
  await python.putFiles(files, work);
  const { status } = await python.run(source, filename, argv);
  await python.finish();
  compiling.end();
  const changed = await python.changedFiles(files, work);
  return { status, files: changed.map(([path, bytes]): [string, string] => [path, toBase64(bytes)]) };
}

/**
 * Plans of models that are none yet: Python makes them, in a thread that exists only for that, and what it made is kept.
 *
 * A model is known by the SHA-256 of its bytes. Where its plan is kept already, no Python is started.
 */

import { asNNError, NNError } from "./errno";
import { kept } from "./kept";
import type { Bytes, Compile, Compiled, CompileRequest } from "./models";
import { startThread, type Thread } from "./threads";

export interface PyodideOptions {
  /** Pyodide's module: the URL of `pyodide.mjs`. In Node a path, too, or the name of a package; default: npm's `pyodide`. */
  pyodide?: string | URL;
  /** The URL (in Node: or the path) of tabtorch's wheel for a tab. */
  wheel: string | URL;
  /** false: keep nothing. In Node the folder; default `~/.cache/tabtorch-wasi-nn`. A page has the origin's own file system. */
  keep?: string | false;
}

/** as `PyodideOptions`, and can go to another thread */
export interface PyodideSettings {
  pyodide: string;
  wheel: string;
  keep: string | false | null;
  /** the module of the thread of Python: bundlers look for that in the page's own modules alone */
  thread: string;
}

/** What the thread of Python is asked, and says. */
export interface PythonRequest extends CompileRequest {
  settings: PyodideSettings;
}
export type PythonAnswer = Compiled | { failed: "start" | "model"; message: string };

/** ms for which a thread waits for the shapes of a model that it has read */
const LINGER = 60_000;

function absolute(address: string | URL): string {
  if (address instanceof URL) return address.href;
  const base = globalThis.location?.href;
  return base === undefined ? address : new URL(address, base).href;
}

/** For `wasiNN({ compile })`. Throws in a page where it is not said where Pyodide is. */
export function compileWithPyodide({ pyodide, wheel, keep }: PyodideOptions): Compile {
  if (pyodide === undefined && globalThis.process === undefined)
    throw new TypeError("compileWithPyodide({ pyodide }) is the URL of pyodide.mjs");
  const thread = new URL("./wasi-nn-python.js", import.meta.url).href;
  const settings = { pyodide: absolute(pyodide ?? "pyodide"), wheel: absolute(wheel), keep: keep ?? null, thread };
  return compilerOf(settings);
}

export function compilerOf(settings: PyodideSettings): Compile {
  const python = new Python(settings);
  const store = settings.keep === false ? null : kept(settings.keep ?? undefined);
  const compile = async (request: CompileRequest): Promise<Compiled> => {
    const name = await nameOf(request, settings.wheel);
    const plan = await store?.read(`${name}.safetensors`);
    if (plan) return { plan };
    const known = await store?.read(`${name}.json`);
    if (known) return { inputs: JSON.parse(new TextDecoder().decode(known)) };
    const made = await python.ask(request);
    if ("plan" in made) await store?.write(`${name}.safetensors`, made.plan);
    else await store?.write(`${name}.json`, new TextEncoder().encode(JSON.stringify(made.inputs)));
    return made;
  };
  return Object.assign(compile, { settings });
}

/** By what is compiled, and who compiles. */
async function nameOf({ bytes, format, method, inputs }: CompileRequest, wheel: string): Promise<string> {
  const model = await sha256(bytes);
  const version = /tabtorch-([\w.+!]+)-[^/\\]*\.whl/.exec(wheel)?.[1] ?? "";
  const rest = await sha256(new TextEncoder().encode(JSON.stringify([version, format, method, inputs])));
  return `${model}-${rest.slice(0, 16)}`;
}

async function sha256(bytes: Bytes): Promise<string> {
  if (!globalThis.crypto?.subtle) throw new NNError("runtimeError", "a page that is not secure (https) has no SHA-256");
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(hash, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Python, one request after another. */
class Python {
  private last: Promise<unknown> = Promise.resolve();
  /** a thread that has read a model, and waits for the shapes of its inputs */
  private waiting: { thread: Thread; bytes: Bytes; timer: ReturnType<typeof setTimeout> } | null = null;

  constructor(private readonly settings: PyodideSettings) {}

  ask(request: CompileRequest): Promise<Compiled> {
    const answer = this.last.then(() => this.answer(request));
    this.last = answer.catch(() => {});
    return answer;
  }

  private async answer(request: CompileRequest): Promise<Compiled> {
    const thread = this.taken(request.bytes) ?? startThread(new URL(this.settings.thread));
    let stays = false;
    try {
      const answer = await new Promise<PythonAnswer>((resolve, reject) => {
        thread.listen(resolve, reject);
        thread.postMessage({ ...request, settings: this.settings } satisfies PythonRequest);
      }).catch((error) => {
        throw new NNError("runtimeError", `Python has failed: ${asNNError(error).message}`);
      });
      if ("failed" in answer)
        throw new NNError(answer.failed === "model" ? "invalidEncoding" : "runtimeError", answer.message);
      stays = "inputs" in answer;
      if (stays) this.leave(thread, request.bytes);
      return answer;
    } finally {
      if (!stays) thread.terminate();
    }
  }

  private leave(thread: Thread, bytes: Bytes): void {
    const timer = setTimeout(() => this.taken(bytes)?.terminate(), LINGER);
    (timer as { unref?(): void }).unref?.();
    thread.rest();
    this.waiting = { thread, bytes, timer };
  }

  /** The thread that waits, if it has that model; another one is ended. */
  private taken(bytes: Bytes): Thread | null {
    const { waiting } = this;
    if (waiting === null) return null;
    this.waiting = null;
    clearTimeout(waiting.timer);
    if (waiting.bytes === bytes) {
      waiting.thread.wake();
      return waiting.thread;
    }
    waiting.thread.terminate();
    return null;
  }
}

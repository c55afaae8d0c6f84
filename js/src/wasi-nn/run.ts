/** Runs a program for WASI (preview 1) that asks for wasi-nn. */

import { sharedAnswer } from "./channel";
import type { Guest, WasiNN } from "./host";
import { Exit, Preview1, type Preview1Options } from "./preview1";
import { exportedStart } from "./start";
import { promising } from "./suspend";
import { startThread } from "./threads";
import type { GuestMessage, GuestReport } from "./worker";

/** The program: its bytes, a module, an address, or what `fetch` gives. */
export type Program = BufferSource | WebAssembly.Module | Response | URL | string;

/** Any shim of preview 1: Node's, npm's `@bjorn3/browser_wasi_shim`, … */
export interface Wasi {
  readonly wasiImport?: object;
  getImportObject?(): object;
  start?(instance: never): unknown;
}

export interface RunOptions extends Preview1Options {
  nn: WasiNN;
  /** A shim to be used in the place of the small one here, which `args`, `env`, `preopens` and the streams are for. */
  wasi?: Wasi;
  /** More modules to import from. */
  imports?: WebAssembly.Imports;
}

/**
 * Runs `_start` of a program to its end; gives its exit code.
 *
 * Errors: what the program traps with; WebAssembly.LinkError, if it imports what is not there.
 */
export async function run(program: Program | Promise<Program>, options: RunOptions): Promise<number> {
  const module = await compiled(await program);
  if (!hasStart(module))
    throw new TypeError("the program exports no _start: instantiate it with nn.imports, then nn.attach(instance)");
  return options.nn.mode === "thread" ? runThere(module, options) : runHere(module, options);
}

function hasStart(module: WebAssembly.Module): boolean {
  return WebAssembly.Module.exports(module).some(({ name, kind }) => name === "_start" && kind === "function");
}

async function compiled(program: Program): Promise<WebAssembly.Module> {
  if (program instanceof WebAssembly.Module) return program;
  const source = await bytesOf(program);
  const module = await WebAssembly.compile(source);
  if (hasStart(module)) return module;
  const bytes = ArrayBuffer.isView(source)
    ? new Uint8Array(source.buffer, source.byteOffset, source.byteLength)
    : new Uint8Array(source);
  const other = exportedStart(bytes as Uint8Array<ArrayBuffer>);
  return other ? WebAssembly.compile(other) : module;
}

async function bytesOf(program: BufferSource | Response | URL | string): Promise<BufferSource> {
  if (typeof program === "string" || program instanceof URL) return fetched(program);
  if (typeof Response !== "function" || !(program instanceof Response)) return program as BufferSource;
  if (!program.ok) throw new Error(`${program.url || "the program"} cannot be fetched: HTTP ${program.status}`);
  return program.arrayBuffer();
}

async function fetched(address: string | URL): Promise<BufferSource> {
  const fs = globalThis.process?.getBuiltinModule?.("node:fs") as typeof import("node:fs") | undefined;
  const url = address instanceof URL ? address : URL.canParse(address) ? new URL(address) : null;
  if (fs && (url === null || url.protocol === "file:")) return fs.readFileSync(url ?? address);
  const response = await fetch(address);
  if (!response.ok) throw new Error(`${address} cannot be fetched: HTTP ${response.status}`);
  return response.arrayBuffer();
}

/** On this thread, which is suspended or blocked while the guest waits. */
export async function runHere(module: WebAssembly.Module, options: RunOptions): Promise<number> {
  const { nn } = options;
  const wasi: Wasi | Preview1 = options.wasi ?? new Preview1(options);
  const guest = nn.guest();
  const shim = (wasi.wasiImport ??
    ((wasi as Wasi).getImportObject?.() as WebAssembly.Imports | undefined)
      ?.wasi_snapshot_preview1) as WebAssembly.ModuleImports;
  if (!shim) throw new TypeError("`wasi` is no shim of preview 1: it has no wasiImport");
  // Every shim ends a program in a way of its own; this one goes through all of them.
  const proc_exit = (code: number) => {
    throw new Exit(code >>> 0);
  };
  try {
    const instance = await WebAssembly.instantiate(module, {
      ...options.imports,
      ...nnOf(guest, module),
      wasi_snapshot_preview1: { ...absent(module), ...bound(shim), proc_exit },
    });
    guest.attach(instance);
    await started(instance, wasi, nn.mode === "suspend");
    return 0;
  } catch (error) {
    if (error instanceof Exit) return error.code;
    throw error;
  } finally {
    if (wasi instanceof Preview1) wasi.flush();
    guest.dispose();
  }
}

/** All that a module asks of wasi-nn, known or not. */
function nnOf(guest: Guest, module: WebAssembly.Module): WebAssembly.Imports {
  const others = guest.others(module);
  return Object.fromEntries(
    Object.entries(guest.imports).map(([name, functions]) => [name, { ...(functions as object), ...others[name] }]),
  ) as WebAssembly.Imports;
}

const NOSYS = 52;

/** For what a shim may not have: it is said to a guest that calls it, and keeps none from running. */
function absent(module: WebAssembly.Module): WebAssembly.ModuleImports {
  const asked = WebAssembly.Module.imports(module).filter((x) => x.module === "wasi_snapshot_preview1");
  return Object.fromEntries(asked.filter((x) => x.kind === "function").map(({ name }) => [name, () => NOSYS]));
}

/** The functions of a shim, which may be those of its class. */
function bound(shim: WebAssembly.ModuleImports): WebAssembly.ModuleImports {
  const functions: WebAssembly.ModuleImports = {};
  for (let from: object | null = shim; from && from !== Object.prototype; from = Object.getPrototypeOf(from))
    for (const name of Object.getOwnPropertyNames(from)) {
      const value = shim[name];
      if (typeof value === "function" && !Object.hasOwn(functions, name)) functions[name] = value.bind(shim);
    }
  return functions;
}

/** Calls `_start`, by way of the shim: it looks for the memory there. */
async function started(instance: WebAssembly.Instance, wasi: Wasi | Preview1, suspend: boolean): Promise<void> {
  const start = instance.exports._start as () => void;
  if (wasi instanceof Preview1) {
    if (instance.exports.memory instanceof WebAssembly.Memory) wasi.attach(instance.exports.memory);
    await (suspend ? promising(start)() : start());
    return;
  }
  if (!wasi.start) throw new TypeError("`wasi` is no shim of preview 1: it has no start(instance)");
  if (!suspend) {
    wasi.start(instance as never);
    return;
  }
  let end: Promise<unknown> | undefined;
  const _start = () => {
    end = promising(start)();
  };
  wasi.start({ exports: { ...instance.exports, _start } } as never);
  await end;
}

/** On a thread of its own: the models stay on this one, which must not be blocked. */
async function runThere(module: WebAssembly.Module, options: RunOptions): Promise<number> {
  const { nn, wasi, imports, stdout, stderr, ...rest } = options;
  if (wasi || imports)
    throw new Error(
      "here a guest runs on a thread of its own, to which `wasi` and `imports` cannot go: call run() in a worker",
    );
  const shared = sharedAnswer();
  const answering = nn.answering(shared);
  const thread = startThread(nn.worker);
  const { args, env, preopens, stdin } = rest;
  try {
    return await new Promise<number>((resolve, reject) => {
      thread.listen((message: GuestReport) => {
        if ("ask" in message) answering.answer(message);
        else if ("stdout" in message) (stdout ?? console.log)(message.stdout);
        else if ("stderr" in message) (stderr ?? console.error)(message.stderr);
        else if ("failed" in message) nn.failed(message.failed.call, message.failed.code, message.failed.message);
        else if ("exit" in message) resolve(message.exit);
        else reject(message.error);
      }, reject);
      const settings = withoutUndefined({ args, env, preopens, stdin });
      thread.postMessage({ role: "guest", shared, module, settings, limits: nn.limits } satisfies GuestMessage);
    });
  } finally {
    thread.terminate();
    answering.dispose();
  }
}

type Defined<T> = { [K in keyof T]?: Exclude<T[K], undefined> };

function withoutUndefined<T extends object>(settings: T): Defined<T> {
  return Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== undefined)) as Defined<T>;
}

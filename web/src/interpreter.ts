/**
 * Python in this thread: Pyodide, the wheel, and the page's own module (python/tabpage.py).
 * The same class runs in a module worker and on the main thread.
 */
import type { Lockfile, PyodideAPI } from "pyodide";
import type { PyCallable, PyProxy } from "pyodide/ffi";
import { Bytecode } from "./bytecode";
import { watchWheels } from "./downloads";
import { type Bytes, Folder, type FolderEvent, filesBelow } from "./folder";
import { CONTROL, type Link, Links } from "./links";
import type { Manifest } from "./manifest";
import { type Batch, type Item, Outbox } from "./outbox";
import { HOME, WORK } from "./places";
import type { Bundle, Metadata, Mode } from "./rich";
import { signalBuffer } from "./signals";
import { Watch, type WatchEvent, type Watched } from "./watch";

/** The page's own modules, by path. */
const modules = import.meta.glob<string>("./python/**/*.py", { query: "?raw", import: "default", eager: true });

export type Stage = "runtime" | "python" | "tabtorch" | "device";

export type PageEvent =
  | Item
  | Batch
  | FolderEvent
  | WatchEvent
  | { event: "input" }
  | { event: "cell"; number: number }
  | { event: "report"; text: string }
  | { event: "missing"; name: string; from: string }
  | { event: "dropped"; lines: number; characters: number }
  | { event: "stage"; stage: Stage; loaded: number; total: number; done: boolean };

export interface StartOptions {
  /** Where the site lies: an absolute address that ends with a slash. */
  base: string;
  /** What the site holds, where that is known already. */
  manifest?: Manifest | undefined;
  /** TABTORCH_DEVICE: webgpu, cpu or auto. */
  device?: string | undefined;
  env?: Record<string, string> | undefined;
  /** false takes promise integration away, as in a browser that lacks it. */
  jspi?: boolean | undefined;
  /** Shared memory through which Stop reaches a loop that never waits, where the page is cross-origin isolated. */
  interruptBuffer?: Uint8Array | undefined;
  /** Somebody sits before the page: input() asks them, what the page would not keep is not sent, a Run starts clean. */
  interactive?: boolean | undefined;
  /** Packages that are fetched from PyPI, unasked, where a script imports one that is not here. */
  packages?: string[] | undefined;
  /** Shared memory where the page says what it has drawn: see Outbox. */
  drawn?: Int32Array | undefined;
  /** Shared memory where the page says whether it looks at the runtime's counters: see Watch. */
  watched?: Int32Array | undefined;
}

export interface Device {
  device: string;
  version: string;
  /** Of the interpreter. */
  python: string;
  error?: string;
  info: {
    webgpu?: {
      adapter?: { vendor?: string; architecture?: string; device?: string; description?: string; isFallback?: boolean };
      limits?: Record<string, number>;
      features?: string[];
    } | null;
    reason?: string;
    platform?: string;
  };
}

export interface RunResult {
  status: number;
  /** Line of the script at which it failed, or 0. */
  line: number;
}

/** A cell to be run. */
export interface CellRun {
  /** Of the run: another one each time. */
  number: number;
  /** The line of the script that its text begins at. */
  first: number;
  text: string;
}

export interface CellsResult extends RunResult {
  /** Of the run in whose text the line is, as that was then; or 0. */
  number: number;
}

export interface Completion {
  /** How many characters the names replace. */
  replace: number;
  names: string[];
  /** Of each name. */
  hints: [signature: string, summary: string][];
}

/** What a name is. */
export interface About {
  heading: string;
  text: string;
}

export type FileEntry = [path: string, bytes: Uint8Array];

const encoder = new TextEncoder();

/** The part of Python's library that is fetched at once, and the whole. */
const START = "pyodide/python_start.zip";
const LIBRARY = "pyodide/python_stdlib.zip";

/** What Pyodide fetches. Of the modules that it imports nobody sees the bytes. */
const stageOf: Record<string, Stage> = {
  "pyodide/pyodide.asm.wasm": "runtime",
  [START]: "python",
};

/** ms without a program, after which what was compiled is kept */
const IDLE = 500;

/** The exit status of what a KeyboardInterrupt ended: a shell's for SIGINT. */
const STOPPED = 130;

export class Interpreter {
  #pyodide!: PyodideAPI;
  #page!: PyProxy & Record<string, PyCallable>;
  #interrupt: Uint8Array = new Uint8Array(1);
  #shared = false; // the page writes #interrupt itself
  #manifest!: Manifest;
  #site!: string; // where packages lie
  #running = false;
  #outbox!: Outbox;
  #interactive = false;
  #bytecode!: Bytecode;
  #keeping: ReturnType<typeof setTimeout> | undefined;
  #allowed: string[] = [];
  #runtime: Watched | undefined;
  #watch: Watch | undefined;
  #folder: Folder | undefined; // where files outlive this Python
  readonly #links = new Links();
  #answer: ((line: string | undefined) => void) | undefined; // to input(), which waits for it
  readonly #emit: (event: PageEvent) => void;

  constructor(emit: (event: PageEvent) => void) {
    this.#emit = emit;
  }

  /** Fetch and start everything. Each stage is announced, with bytes. */
  async start(options: StartOptions): Promise<Device> {
    if (options.jspi === false) takePromiseIntegrationAway();
    this.#allowed = options.packages ?? [];
    watchWheels(options.base, (text) => this.#outbox.text("note", text));
    const progress = new Progress(options.base, this.#emit);
    this.#manifest = await progress.manifest(options.manifest);
    progress.hurry();
    const wheel = progress.fetch(this.#manifest.wheel, "tabtorch");
    const data = this.#manifest.data.map((path) => progress.fetch(path, "tabtorch"));
    const { hash, pyodide: version, wheel: ours, extras } = this.#manifest;
    this.#bytecode = new Bytecode(options.base, [version, hash[ours], hash[extras]].join("-"));
    const known = this.#bytecode.load();
    for (const early of [wheel, ...data]) early.catch(() => {}); // reported where they are awaited

    const pyodide = await progress.watch(async () => {
      const indexURL = `${options.base}pyodide/`;
      const module = await import(/* @vite-ignore */ `${indexURL}pyodide.mjs`);
      return (await module.loadPyodide({
        indexURL,
        stdLibURL: options.base + START,
        lockFileContents: progress.lock(),
        packageBaseUrl: this.#packages,
        env: {
          HOME,
          TABTORCH_EXTRAS: progress.address(this.#manifest.extras),
          ...(options.device ? { TABTORCH_DEVICE: options.device } : {}),
          ...options.env,
        },
      })) as PyodideAPI;
    });
    this.#pyodide = pyodide;
    progress.finish("runtime");
    progress.finish("python");
    this.#interactive = options.interactive ?? false;
    this.#outbox = new Outbox(this.#emit, this.#interactive, options.drawn);
    this.#connectStreams();
    if (!this.#interactive) this.#takeReports();
    this.#interrupt = options.interruptBuffer ?? this.#interrupt;
    this.#shared = options.interruptBuffer !== undefined;
    pyodide.setInterruptBuffer(signalBuffer(this.#interrupt));

    const site = pyodide.runPython("import site; site.getsitepackages()[0]") as string;
    this.#site = site;
    for (const [path, source] of Object.entries(modules))
      this.#write(`${site}/${path.slice("./python/".length)}`, encoder.encode(source));
    const library = pyodide.pyimport("tablibrary");
    library.start((archive: string) => this.#write(archive, fetchNow(progress.address(LIBRARY))));
    library.destroy();
    pyodide.unpackArchive(await wheel, "whl", { extractDir: site });
    const kept = await known;
    if (kept) this.#write(`${site}/tabtorch/compiled`, kept);
    for (const [index, path] of this.#manifest.data.entries()) {
      this.#write(`${HOME}/${path}`, new Uint8Array((await data[index]) as ArrayBuffer));
    }
    if (this.#interactive) await this.#openFolder();
    pyodide.FS.chdir(HOME);
    this.#page = pyodide.pyimport("tabpage");
    this.#call("start", (kind: string, ...details: unknown[]) => this.#fromPython(kind, details), this.#interactive);
    await this.#call("load_tabtorch");
    progress.finish("tabtorch");
    progress.begin("device");
    const device = JSON.parse(this.#call("describe") as string) as Device;
    if (this.#interactive) this.#call("start_clean");
    if (!device.error) this.#observe(options.watched);
    progress.finish("device");
    return device;
  }

  /** Run a script as `__main__`, in a fresh namespace that the prompt then shares. */
  run(source: string, filename: string, argv: string[] = []): Promise<RunResult> {
    return this.#guarded(async () => {
      const path = this.#place(filename, source);
      if (!(await this.#fetchPackages(source))) return { status: STOPPED, line: 0 };
      const pair = (await this.#call("run_file", source, filename, path, argv)) as PyProxy;
      const [status, line] = pair.toJs() as [number, number];
      pair.destroy();
      return { status, line };
    });
  }

  /** Run cells of a script, one after another until one fails; in a fresh namespace if `clean`. Each is announced. */
  runCells(cells: CellRun[], source: string, filename: string, clean: boolean): Promise<CellsResult> {
    return this.#guarded(async () => {
      const path = this.#place(filename, source);
      const fetched = await this.#fetchPackages(cells.map(({ text }) => text).join("\n"));
      if (!fetched) return { status: STOPPED, number: 0, line: 0 };
      const given = cells.map(({ number, first, text }) => [number, first, text]);
      const triple = (await this.#call("run_cells", given, filename, path, clean)) as PyProxy;
      const [status, number, line] = triple.toJs() as [number, number, number];
      triple.destroy();
      return { status, number, line };
    });
  }

  /** Whether the prompt should wait for another line. */
  needsMore(source: string): boolean {
    return this.#call("needs_more", source) as boolean;
  }

  /** Run what was entered at the prompt. */
  evaluate(source: string): Promise<number> {
    return this.#guarded(async () => {
      if (!(await this.#fetchPackages(source))) return STOPPED;
      return (await this.#call("evaluate", source)) as number;
    });
  }

  /** What can stand at the end of `text`. */
  complete(text: string): Completion {
    const found = this.#call("complete", text) as PyProxy;
    const [replace, names, hints] = found.toJs() as [number, string[], [string, string][]];
    found.destroy();
    return { replace, names, hints };
  }

  /** What the name at the end of `text` is. */
  about(text: string): About | undefined {
    const found = this.#call("about", text) as PyProxy;
    const [heading, words = ""] = found.toJs() as string[];
    found.destroy();
    return heading === undefined ? undefined : { heading, text: words };
  }

  /**
   * Raise KeyboardInterrupt in the running script where it waits, for anything: only then is this message read.
   * Where the page shares the buffer it has written there, too: what Python has seen of that is not raised again.
   */
  interrupt(): void {
    if (!this.#running || (this.#shared && !this.#interrupt[0])) return;
    this.#interrupt[0] = 0;
    this.#call("interrupt");
  }

  /** What was typed where input() asked: a line with its end; nothing, for the end of the file. */
  answer(line: string | undefined): void {
    this.#answer?.(line);
    this.#answer = undefined;
  }

  /** Lay files out in the working directory, and go there. */
  putFiles(files: FileEntry[], work = WORK): void {
    this.#pyodide.FS.mkdirTree(work);
    this.#pyodide.FS.chdir(work);
    for (const [path, bytes] of files) this.#write(within(work, path), bytes);
  }

  /** Files of the working directory that are new, or not what they were in `before`. */
  changedFiles(before: FileEntry[], work = WORK): FileEntry[] {
    const old = new Map(before.map(([path, bytes]) => [within(work, path), bytes]));
    return filesBelow(this.#pyodide.FS, work)
      .map((path): FileEntry => [path, this.#pyodide.FS.readFile(path) as Uint8Array])
      .filter(([path, bytes]) => !sameBytes(bytes, old.get(path)))
      .map(([path, bytes]): FileEntry => [path.slice(work.length + 1), bytes])
      .filter(([path]) => !/(^|\/)__pycache__\//.test(path));
  }

  /** Put a file into the working folder. The result is what it replaces. */
  async putFile(path: string, file: Blob): Promise<Bytes | undefined> {
    return this.#folder?.put(path, file);
  }

  readFile(path: string): Bytes {
    return this.#pyodide.FS.readFile(`${HOME}/${path}`) as Bytes;
  }

  /** Delete a file of the working folder. The result is what was in it. */
  async removeFile(path: string): Promise<Bytes | undefined> {
    return this.#folder?.remove(path);
  }

  /** Tell the runtime's counters, now and again, or no longer. */
  watch(on: boolean): void {
    if (this.#watch) this.#watch.on = on;
  }

  /** The result of a function of the inspector's module, which has this text. */
  async inspect(source: string, name: string, ...args: unknown[]): Promise<unknown> {
    const module = "tabinspect";
    if (!this.#pyodide.FS.analyzePath(`${this.#site}/${module}.py`).exists)
      this.#write(`${this.#site}/${module}.py`, encoder.encode(source));
    const inspector = this.#pyodide.pyimport(module);
    const call = inspector[name] as PyCallable;
    try {
      return await this.#guarded(async () => await call(...args));
    } finally {
      call.destroy();
      inspector.destroy();
    }
  }

  /** After how long it was known of kernels that they are compiled. */
  compileTimes(): [kernel: number, ms: number][] {
    return this.#runtime?.compileTimes() ?? [];
  }

  /** Exit handlers, as at the end of a process. */
  finish(): void {
    this.#call("finish");
    this.#outbox.flush();
  }

  /** Put a script into the file system, unless it came from there: its path. */
  #place(filename: string, source: string): string {
    const path = filename.startsWith("/") ? filename : `${HOME}/${filename.split("/").at(-1)}`;
    if (path !== filename || !this.#pyodide.FS.analyzePath(path).exists) {
      this.#write(path, encoder.encode(source));
      this.#folder?.own(path);
    }
    return path;
  }

  #write(path: string, bytes: Uint8Array): void {
    this.#pyodide.FS.mkdirTree(path.slice(0, path.lastIndexOf("/")));
    this.#pyodide.FS.writeFile(path, bytes);
  }

  async #openFolder(): Promise<void> {
    const demos = this.#manifest.data.map((path) => `${HOME}/${path}`);
    this.#folder = await Folder.open(this.#pyodide.FS, HOME, demos, this.#emit);
  }

  /** Have Python do this, where Stop reaches it: also one that comes before the first line runs. */
  async #guarded<T>(begin: () => Promise<T>): Promise<T> {
    this.#running = true;
    this.#links.live = true;
    try {
      const work = begin();
      const result = await (this.#folder?.keeping(work) ?? work);
      this.#interrupt[0] = 0;
      this.#call("forget_interrupt"); // one that came too late is not the next one's
      return result;
    } finally {
      this.#outbox.flush();
      this.#links.live = false;
      this.#running = false;
      this.#interrupt[0] = 0;
      clearTimeout(this.#keeping);
      this.#keeping = setTimeout(() => this.#keep(), IDLE);
    }
  }

  /** Keeps what was compiled, when nothing runs. */
  #keep(): void {
    if (this.#running) return;
    const compiled = this.#call("compiled") as PyProxy;
    const bytes = compiled.toJs() as Bytes;
    compiled.destroy();
    if (bytes.byteLength > 0) void this.#bytecode.save(bytes);
  }

  #call(name: string, ...args: unknown[]): unknown {
    const call = this.#page[name] as PyCallable;
    const converted = args.map((arg) => (Array.isArray(arg) ? this.#pyodide.toPy(arg) : arg));
    try {
      return call(...converted);
    } finally {
      call.destroy();
    }
  }

  #fromPython(kind: string, details: unknown[]): unknown {
    if (kind === "interrupt") {
      this.#interrupt[0] = 2;
    } else if (kind === "note") {
      this.#outbox.text("note", details[0] as string);
    } else if (kind === "cell") {
      this.#outbox.flush(); // what was said before is not this cell's
      this.#emit({ event: "cell", number: details[0] as number });
    } else if (kind === "missing" && this.#interactive) {
      this.#offer(details[0] as string);
    } else if (kind === "input") {
      return this.#interactive ? this.#ask() : undefined;
    } else if (kind === "display") {
      const [bundle, metadata, id, mode] = details as [PyProxy, PyProxy, string | undefined, Mode];
      this.#outbox.show({ event: "display", bundle: object(bundle), metadata: object(metadata), id, mode });
    } else if (kind === "control") {
      return this.#connect(details[0] as string, details[1] as string, details[2] as number[]);
    } else if (kind === "clear") {
      this.#outbox.clear(details[0] as boolean);
    }
    return undefined;
  }

  /** A control, with an element that is shown; it is waited for. */
  #connect(label: string, about: string, first: number[]): Link {
    const [link, connection] = this.#links.connect(first);
    const bundle = { [CONTROL]: about, "text/plain": label };
    this.#outbox.show({
      event: "display",
      bundle,
      metadata: { [CONTROL]: { ...connection } },
      id: undefined,
      mode: "new",
    });
    this.#outbox.flush();
    return link;
  }

  /** A script has missed a module: the page may ask whether its package should be fetched. */
  #offer(module: string): void {
    const name = this.#known.get(module);
    this.#outbox.flush();
    this.#emit({ event: "missing", name: name ?? module, from: name ? "Pyodide's distribution" : "PyPI" });
  }

  #ask(): Promise<string | undefined> {
    this.#outbox.flush();
    this.#emit({ event: "input" });
    return new Promise((resolve) => {
      this.#answer = resolve;
    });
  }

  /** What a program that runs for another one has to say to that, beside what it prints: `js.tabtorchReport(text)`. */
  #takeReports(): void {
    const tabtorchReport = (text: string) => {
      this.#outbox.flush();
      this.#emit({ event: "report", text });
    };
    Object.assign(globalThis, { tabtorchReport });
  }

  #observe(flag: Int32Array | undefined): void {
    const module = (this.#pyodide as unknown as { _module: { HEAPU8: Uint8Array } })._module;
    this.#runtime = this.#call("runtime") as Watched;
    this.#watch = new Watch(this.#runtime, this.#emit, () => module.HEAPU8.byteLength, flag);
  }

  #connectStreams(): void {
    for (const [stream, set] of [
      ["stdout", "setStdout"],
      ["stderr", "setStderr"],
    ] as const) {
      const decoder = new TextDecoder();
      this.#pyodide[set]({
        write: (bytes: Uint8Array) => {
          this.#outbox.text(stream, decoder.decode(bytes, { stream: true }));
          return bytes.length;
        },
        isatty: false,
      });
    }
  }

  get #packages(): string {
    return `https://cdn.jsdelivr.net/pyodide/v${this.#manifest.pyodide}/full/`;
  }

  /** Packages of Pyodide's distribution, by the module that is imported. */
  get #known(): Map<string, string> {
    return (this.#pyodide as unknown as { _api: { _import_name_to_package_name: Map<string, string> } })._api
      ._import_name_to_package_name;
  }

  /**
   * Packages that the source imports and that may be fetched. What cannot be had is said only if it is missed.
   * false: it was stopped meanwhile.
   */
  async #fetchPackages(source: string): Promise<boolean> {
    const names = this.#call("wanted", source) as PyProxy;
    const wanted = names.toJs() as string[];
    names.destroy();
    const known = this.#known;
    for (const name of wanted.filter((name) => !known.has(name) && this.#allowed.includes(name)))
      if ((await this.#call("evaluate", `%pip install ${name}`)) === STOPPED) return false;
    const imports = wanted.filter((name) => known.has(name));
    if (!imports.length) return true;
    const problems: string[] = [];
    const report = (problem: string) => void problems.push(problem);
    try {
      await this.#pyodide.loadPackage(
        imports.map((name) => known.get(name) as string),
        { messageCallback: () => {}, errorCallback: report },
      );
    } catch (error) {
      report(String(error));
    }
    if (!problems.length) return true;
    const why = `${this.#packages} could not be reached (${problems.join(" ").replace(/\s+/g, " ").trim()})`;
    this.#call("missing", imports, why);
    return true;
  }
}

/** Counts bytes as they arrive, by stage. */
class Progress {
  #base: string;
  #emit: (event: PageEvent) => void;
  #manifest: Manifest | undefined;
  readonly #early = new Map<string, Promise<Response>>();
  #loaded: Record<Stage, number> = { runtime: 0, python: 0, tabtorch: 0, device: 0 };
  #announced = 0;

  constructor(base: string, emit: (event: PageEvent) => void) {
    this.#base = base;
    this.#emit = emit;
  }

  async manifest(known: Manifest | undefined): Promise<Manifest> {
    this.#manifest = known ?? (await this.#fetchManifest());
    return this.#manifest;
  }

  async #fetchManifest(): Promise<Manifest> {
    const response = await fetch(`${this.#base}manifest.json`, { cache: "no-cache" });
    if (!response.ok) throw new Error(`${response.url}: ${response.status} ${response.statusText}`);
    return (await response.json()) as Manifest;
  }

  /** What Pyodide can load: from its distribution, or from the site where the build has put a wheel there. */
  async lock(): Promise<Lockfile> {
    const path = "pyodide/pyodide-lock.json";
    const lock: Lockfile = JSON.parse(new TextDecoder().decode(await this.fetch(path)));
    for (const each of Object.values(lock.packages)) {
      if (this.#manifest?.hash[each.file_name]) each.file_name = this.#base + each.file_name;
    }
    return lock;
  }

  /** Begin to fetch what Pyodide asks for once its own modules are here. */
  hurry(): void {
    for (const path of Object.keys(stageOf)) {
      const response = fetch(this.address(path));
      response.catch(() => {}); // reported where it is asked for
      this.#early.set(path, response);
    }
  }

  async fetch(path: string, stage?: Stage): Promise<ArrayBuffer> {
    const response = await fetch(this.address(path));
    if (!response.ok) throw new Error(`${response.url}: ${response.status} ${response.statusText}`);
    return (stage ? this.#counted(response, stage) : response).arrayBuffer();
  }

  address(path: string): string {
    return `${this.#base}${path}?${this.#manifest?.hash[path] ?? ""}`;
  }

  /** Run `load` while every fetch that it makes of a file we know is counted. */
  async watch<T>(load: () => Promise<T>): Promise<T> {
    const original = globalThis.fetch;
    globalThis.fetch = async (input, init) => {
      const address = input instanceof Request ? input.url : String(input);
      const path = address.startsWith(this.#base) ? address.slice(this.#base.length) : "";
      const response = await (this.#early.get(path) ?? original(path ? this.address(path) : input, init));
      this.#early.delete(path);
      const stage = stageOf[path];
      return stage && response.ok ? this.#counted(response, stage) : response;
    };
    try {
      return await load();
    } finally {
      globalThis.fetch = original;
    }
  }

  /** It has nothing to fetch. */
  begin(stage: Stage): void {
    this.#emit({ event: "stage", stage, loaded: 0, total: 0, done: false });
  }

  finish(stage: Stage): void {
    const total = this.#total(stage);
    this.#emit({ event: "stage", stage, loaded: total, total, done: true });
  }

  #announce(stage: Stage): void {
    this.#announced = performance.now();
    const total = this.#total(stage);
    this.#emit({ event: "stage", stage, loaded: Math.min(this.#loaded[stage], total), total, done: false });
  }

  #total(stage: Stage): number {
    const { bytes, wheel, data } = this.#manifest as Manifest;
    const paths = stage === "tabtorch" ? [wheel, ...data] : Object.keys(stageOf).filter((p) => stageOf[p] === stage);
    return paths.reduce((sum, path) => sum + (bytes[path] ?? 0), 0);
  }

  #counted(response: Response, stage: Stage): Response {
    if (!response.body) return response;
    const counter = new TransformStream<Uint8Array, Uint8Array>({
      transform: (chunk, controller) => {
        controller.enqueue(chunk);
        this.#loaded[stage] += chunk.length;
        if (performance.now() - this.#announced > 50) this.#announce(stage);
      },
      flush: () => this.#announce(stage),
    });
    const { status, statusText, headers } = response;
    return new Response(response.body.pipeThrough(counter), { status, statusText, headers });
  }
}

function takePromiseIntegrationAway(): void {
  const wasm = WebAssembly as unknown as Record<string, unknown>;
  for (const name of ["Suspending", "promising", "Suspender", "SuspendError"]) delete wasm[name];
}

/** A file's bytes, before anything else is done: an import cannot wait. Also where a page has no thread but its own. */
function fetchNow(address: string): Uint8Array {
  const request = new XMLHttpRequest();
  request.open("GET", address, false);
  request.overrideMimeType("text/plain; charset=x-user-defined"); // a page's own thread gets no bytes, but characters for them
  request.send();
  if (request.status !== 200) throw new Error(`${address}: ${request.status} ${request.statusText}`);
  return Uint8Array.from(request.responseText, (character) => character.charCodeAt(0) & 0xff);
}

/** A dict as an object; of bytes a copy. */
function object<T extends Bundle | Metadata>(dict: PyProxy): T {
  return dict.toJs({ dict_converter: Object.fromEntries }) as T;
}

function within(folder: string, path: string): string {
  return path.startsWith("/") ? path : `${folder}/${path}`;
}

function sameBytes(a: Uint8Array, b: Uint8Array | undefined): boolean {
  return b !== undefined && a.length === b.length && a.every((byte, index) => byte === b[index]);
}

/** The module of the thread that makes plans: tabtorch in Pyodide, as long as this thread lives. */

import type { PyodideSettings, PythonAnswer, PythonRequest } from "./compiler";
import { parentThread } from "./threads";

type Bytes = Uint8Array<ArrayBuffer>;

/** What is used of Pyodide. */
interface Pyodide {
  FS: {
    writeFile(path: string, bytes: Uint8Array): void;
    readFile(path: string): Bytes;
    unlink(path: string): void;
  };
  unpackArchive(archive: Bytes, format: string, options: { extractDir: string }): void;
  runPython(source: string): unknown;
  runPythonAsync(source: string): Promise<unknown>;
  globals: { get(name: string): (...args: unknown[]) => string };
}

const builtin = (globalThis.process as { getBuiltinModule?: <T>(name: string) => T } | undefined)?.getBuiltinModule;

async function fetched(address: string): Promise<Bytes> {
  const fs = builtin?.<typeof import("node:fs")>("node:fs");
  const isUrl = /^[a-z][a-z\d+.-]+:/i.test(address);
  if (fs && (!isUrl || address.startsWith("file:")))
    return new Uint8Array(fs.readFileSync(isUrl ? new URL(address) : address));
  const response = await fetch(address);
  if (!response.ok) throw new Error(`${address} cannot be fetched: HTTP ${response.status}`);
  return new Uint8Array(await response.arrayBuffer());
}

/** Of a package's name, a path, or a URL. */
function moduleOf(address: string): string {
  const url = builtin?.<typeof import("node:url")>("node:url");
  return url && /^([./]|[a-z]:[\\/])/i.test(address) ? url.pathToFileURL(address).href : address;
}

const PYTHON = `
import json
import tabtorch
from tabtorch import bridge
from tabtorch.plan_files.foreign import Foreign

await bridge.init()
_model = None

def compile_model(kind, method, inputs):
    global _model
    if _model is None:
        _model = Foreign("/tmp/model", kind)
    given = json.loads(inputs)
    if _model.save("/tmp/plan", method, given and [(x["dtype"], x["shape"]) for x in given]):
        return ""
    return json.dumps([{"name": n, "dtype": d and str(d).removeprefix("torch.")} for n, d, _ in _model.inputs])
`;

async function start({ pyodide: address, wheel: from }: PyodideSettings): Promise<Pyodide> {
  // a model's file is read, and a plan written, by what few programs use: the wheel beside
  const wheels = [from, from.replace(/tabtorch-(?=[^/\\]*$)/, "tabtorch_extras-")].map(fetched);
  for (const wheel of wheels) wheel.catch(() => {}); // reported where it is awaited
  const { loadPyodide } = await import(/* @vite-ignore */ /* webpackIgnore: true */ moduleOf(address));
  // Nothing is computed here: whatever the host computes with, this needs no GPU
  const pyodide: Pyodide = await loadPyodide({ env: { HOME: "/home/pyodide", TABTORCH_DEVICE: "cpu" } });
  const site = pyodide.runPython("import site; site.getsitepackages()[0]") as string;
  for (const wheel of wheels) pyodide.unpackArchive(await wheel, "whl", { extractDir: site });
  await pyodide.runPythonAsync(PYTHON);
  return pyodide;
}

/** The last line of Python's report says what is wrong. */
function reason(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return text.trim().split("\n").at(-1) ?? text;
}

let starting: Promise<Pyodide> | null = null;

async function answer({ bytes, format, method, inputs, settings }: PythonRequest): Promise<PythonAnswer> {
  let pyodide: Pyodide;
  try {
    const first = starting === null;
    starting ??= start(settings);
    pyodide = await starting;
    if (first) pyodide.FS.writeFile("/tmp/model", bytes);
  } catch (error) {
    return { failed: "start", message: `Python could not be started: ${reason(error)}` };
  }
  try {
    const said = pyodide.globals.get("compile_model")(format, method, JSON.stringify(inputs));
    if (said) return { inputs: JSON.parse(said) };
    const plan = pyodide.FS.readFile("/tmp/plan");
    pyodide.FS.unlink("/tmp/plan");
    return { plan };
  } catch (error) {
    return { failed: "model", message: `${format}: ${reason(error)}` };
  }
}

const parent = parentThread();
parent.listen((request: PythonRequest) => {
  void answer(request).then((said) => parent.postMessage(said));
});

// Runs a script in Pyodide in Node, on npm's webgpu (Dawn): `node run-node.mjs SPEC.json`, started by run.py.
import { existsSync, readFileSync, writeSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";

const spec = JSON.parse(readFileSync(process.argv[2], "utf8"));

/** An npm package: beside the checkout, or where the user stands. */
async function load(name) {
  for (const base of [import.meta.url, pathToFileURL(join(process.cwd(), "package.json"))]) {
    const places = createRequire(base).resolve.paths(name) ?? [];
    const folder = places.map((place) => join(place, name)).find((place) => existsSync(join(place, "package.json")));
    if (!folder) continue;
    const { exports, module, main } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const entry = exports?.["."]?.import ?? module ?? main;
    return [await import(pathToFileURL(join(folder, entry)).href), folder];
  }
  return [undefined, undefined];
}

let said = false; // a line of the terminal says what is being done
let within = false; // a line of the script's, which is not to be overwritten

/** As status.py does: in place on a terminal, a line each with -v, else not at all. */
function say(text) {
  if (spec.status === "in place" && within) return;
  if (spec.status === "in place") write(2, Buffer.from(`\r\x1b[2K${text}`));
  if (spec.status === "lines" && text) write(2, Buffer.from(`tabtorch: ${text}\n`));
  said = spec.status === "in place" && text !== "";
}

/** All of `bytes` to a descriptor, also if it is a pipe that is full. */
function write(fd, bytes) {
  if (said) {
    said = false;
    say("");
  }
  let at = 0;
  while (at < bytes.length) {
    try {
      at += writeSync(fd, bytes, at);
    } catch (error) {
      if (error.code === "EPIPE") process.exit(141);
      if (error.code !== "EAGAIN") throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2);
    }
  }
  return bytes.length;
}

/** Of the script. */
function print(fd, bytes) {
  const length = write(fd, bytes);
  within = bytes.at(-1) !== 10;
  return length;
}

/** Says how many kernels are compiled, where the script waits for that. */
function watch(runtime) {
  let before = 0; // that were compiled when nothing was waited for
  let compiles = false;
  setInterval(() => {
    const { asked, ready } = runtime.compiling;
    if (asked > ready) say(`compiling ${ready - before} of ${asked - before} kernels…`);
    else if (compiles) say("running");
    compiles = asked > ready;
    if (!compiles) before = ready;
  }, 500).unref();
}

const [pyodideModule] = await load("pyodide");
if (!pyodideModule) {
  console.error("tabtorch: --browser node needs npm's pyodide and webgpu: `npm install pyodide webgpu`");
  process.exit(2);
}

const [dawn] = spec.device === "cpu" ? [] : await load("webgpu");
if (dawn) {
  Object.assign(globalThis, dawn.globals);
  globalThis.__tabtorch_gpu = dawn.create(["disable-dawn-features=timestamp_quantization"]); // see js/src/host-node.ts
}

const home = "/home/pyodide";
const env = { HOME: home, PYTHONDONTWRITEBYTECODE: "1" };
for (const [name, value] of Object.entries(process.env)) if (name.startsWith("TABTORCH_")) env[name] = value;
if (spec.device) env.TABTORCH_DEVICE = spec.device;

say("loading Python…");
const pyodide = await pyodideModule.loadPyodide({ env });
const { FS } = pyodide;
pyodide.setStdout({ write: (bytes) => print(1, bytes), isatty: process.stdout.isTTY ?? false });
pyodide.setStderr({ write: (bytes) => print(2, bytes), isatty: process.stderr.isTTY ?? false });
pyodide.setStdin({ stdin: undefined, error: false });

// The package, with WGSL where it lies in a checkout; in a wheel it is inside the package.
for (const [there, here] of [
  ["/tabtorch/py/tabtorch", spec.package],
  ["/tabtorch/wgsl", spec.wgsl],
  [spec.work, spec.mount],
]) {
  if (!here) continue;
  FS.mkdirTree(there);
  pyodide.mountNodeFS(there, here);
}
FS.mkdirTree(spec.work);
FS.chdir(spec.work);
for (const [there, here] of spec.files) {
  FS.mkdirTree(dirname(there));
  FS.writeFile(there, readFileSync(here));
}

// As in the bare page (interpreter.ts): what the script has to say to who runs it.
if (spec.reports) globalThis.tabtorchReport = (text) => void write(spec.reports, Buffer.from(`${text}\n`));

// Packages such as numpy come from Pyodide's distribution; without a network the import fails, and says so itself.
await pyodide.loadPackagesFromImports(spec.source, { messageCallback() {}, errorCallback() {} }).catch(() => {});

say("starting the device…");
pyodide.globals.set("_spec", pyodide.toPy(spec));
pyodide.globals.set("_watch", watch);
let status = 2;
try {
  status = await pyodide.runPythonAsync(`
import sys
sys.path.insert(0, "/tabtorch/py")
from tabtorch.cli.inside import run
_spec = globals().pop("_spec")
await run(_spec["source"], _spec["filename"], _spec["argv"], globals().pop("_watch"))
`);
} catch (error) {
  write(2, Buffer.from(`tabtorch: ${error.message ?? error}\n`));
}
if (said) say("");
process.exit(status);

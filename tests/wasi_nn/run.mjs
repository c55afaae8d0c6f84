// Runs a guest on the package as built: `node run.mjs SPEC`, SPEC as JSON; prints what came of it as JSON.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const spec = JSON.parse(process.argv[2]);
const { wasiNN, run, compileWithPyodide } = await import(pathToFileURL(`${spec.package}/wasi-nn.js`).href);
const result = { stdout: [], stderr: [], errors: [] };
const nn = await wasiNN({
  models: spec.models ?? {},
  device: spec.device ?? "cpu",
  ...spec.options,
  ...(spec.compile && { compile: compileWithPyodide(spec.compile) }),
  onError: (call, error) => result.errors.push(`${call}: ${error.code}: ${error.message}`),
});
let wasi;
if (spec.shim) {
  const shim = await import("@bjorn3/browser_wasi_shim");
  const files = Object.entries(spec.files ?? {}).map(([name, path]) => [name, new shim.File(readFileSync(path))]);
  wasi = new shim.WASI(["guest", ...(spec.args ?? [])], Object.entries(spec.env ?? {}).map(([k, v]) => `${k}=${v}`), [
    new shim.OpenFile(new shim.File([])),
    shim.ConsoleStdout.lineBuffered((line) => result.stdout.push(line)),
    shim.ConsoleStdout.lineBuffered((line) => result.stderr.push(line)),
    new shim.PreopenDirectory(".", new Map(files)),
  ]);
}
const folder = Object.fromEntries(Object.entries(spec.files ?? {}).map(([name, path]) => [name, readFileSync(path)]));
try {
  result.exit = await run(readFileSync(spec.wasm), {
    nn,
    ...(wasi && { wasi }),
    args: ["guest", ...(spec.args ?? [])],
    env: spec.env ?? {},
    preopens: { [spec.at ?? "."]: folder },
    stdin: spec.stdin ?? "",
    stdout: (line) => result.stdout.push(line),
    stderr: (line) => result.stderr.push(line),
  });
} catch (error) {
  result.failed = String(error?.stack ?? error);
}
result.mode = nn.mode;
nn.dispose();
console.log(JSON.stringify(result));

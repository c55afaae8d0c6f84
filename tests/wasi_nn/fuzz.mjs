// Random sequences of a guest's calls, with addresses, handles and bytes that may be anything: each gives an error's number, and the host
// goes on. `node fuzz.mjs PACKAGE PLAN COUNT SEED`
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, plan, count, seed] = process.argv.slice(2);
const { wasiNN, Preview1 } = await import(pathToFileURL(`${folder}/wasi-nn.js`).href);
let state = Number(seed) >>> 0;
const random = (n) => {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return Math.floor((state / 2 ** 32) * n);
};
const pick = (list) => list[random(list.length)];

const nn = await wasiNN({
  models: { plan },
  device: "cpu",
  limits: { handles: 20, bytes: 1 << 22 },
  onError: () => {},
});
const memory = new WebAssembly.Memory({ initial: 4, maximum: 64 });
let guest = nn.guest();
guest.attach(memory);
const bytes = readFileSync(plan);
// What lies in the memory: a name, a plan at PLAN (again and again: some calls write over it), records and numbers.
const PLAN = 65536;
const edges = [0, 1, 2, 3, 4, 8, 16, 64, 100, 200, 1024, 4096, 65532, 65535, PLAN, bytes.length, -1, -4, 2 ** 31 - 1, -(2 ** 31)];
const fill = () => {
  const view = new DataView(memory.buffer);
  const all = new Uint8Array(memory.buffer);
  all.set(new TextEncoder().encode("plan"), 16);
  all.set(bytes, PLAN);
  for (let k = random(4); k > 0; k--) all[PLAN + random(bytes.length)] = random(256);
  const words = (at, ...values) => {
    for (const [k, value] of values.entries()) view.setInt32(at + 4 * k, value, true);
  };
  words(32, PLAN, bytes.length, PLAN, 100); // builders
  words(64, 2, 8); // dimensions
  words(100, 64, 2, 1, 1024, 64); // a tensor
  words(200, 64, pick(edges), pick([0, 1, 2, 3, 4, 5, 6, 255]), pick(edges), pick(edges)); // one that may be none
  for (let k = 0; k < 16; k++) view.setFloat32(1024 + 4 * k, Math.fround(random(100) / 50 - 1), true);
};
/** one of the latest: handles are never used again */
const latest = { 4096: 0, 4100: 0 };
const handle = (at) => Math.max(0, latest[at] - random(6));
const plausible = {
  load: () => [32, pick([1, 1, 2]), pick([0, 3, 5]), pick([0, 1, 3]), 4096],
  load_by_name: () => [16, 4, 4096],
  load_by_name_with_config: () => [16, 4, 0, 0, 4096],
  init_execution_context: () => [handle(4096), 4100],
  set_input: () => [handle(4100), 0, pick([100, 100, 200])],
  compute: () => [handle(4100)],
  get_output: () => [handle(4100), 0, 8192, pick([4, 24, 4096]), 4104],
  unload: () => [handle(4096)],
  finalize_execution_context: () => [handle(4100)],
};
const answers = {};
const began = performance.now();
for (let k = 0; k < Number(count); k++) {
  if (k % 16 === 0) fill();
  if (k % 1000 === 999) {
    guest.dispose(); // what it left open
    guest = nn.guest();
    guest.attach(memory);
    latest[4096] = latest[4100] = 0;
  }
  if (random(2000) === 0 && memory.buffer.byteLength < 1 << 21) memory.grow(1);
  const functions = guest.imports[random(8) ? "wasi_ephemeral_nn" : "wasi_nn"];
  const name = pick(Object.keys(functions));
  const args = plausible[name]?.() ?? [random(30)];
  if (random(4) === 0) args[random(args.length)] = random(4) ? pick(edges) : (random(2 ** 32) | 0);
  // Many loads of a plan would be all that it does
  if (name.startsWith("load") && random(8)) continue;
  if (/^(unload|finalize|compute_|fini|get_output_)/.test(name) && random(4)) continue;
  const answer = functions[name](...args);
  if (!Number.isInteger(answer) || answer < 0 || answer > 8) throw new Error(`${name}(${args}) gave ${answer}`);
  answers[answer] = (answers[answer] ?? 0) + 1;
  if (answer === 0)
    for (const at of [4096, 4100]) if (args.at(-1) === at) latest[at] = new DataView(memory.buffer).getUint32(at, true);
}

const files = { a: "text", folder: { b: new Uint8Array(100) } };
const wasi = new Preview1({ preopens: { "/": files }, stdout: () => {}, stderr: () => {} });
wasi.attach(memory);
for (let k = 0; k < Number(count); k++) {
  const name = pick(Object.keys(wasi.wasiImport));
  if (name === "proc_exit") continue;
  if (k % 16 === 0) {
    new Uint8Array(memory.buffer).set(new TextEncoder().encode(pick(["a", "folder/b", "../a", "folder/../a", "\xff"])), 16);
    new Uint32Array(memory.buffer, 32, 4).set([1024, 10, 2048, 20]);
  }
  // fd, address, length, …: 64-bit numbers are where preview 1 has them
  const wide = { clock_time_get: [1], fd_seek: [1], fd_pread: [3], fd_readdir: [3], path_open: [5, 6], fd_advise: [1, 2] }[name] ?? [];
  const args = Array.from({ length: 9 }, (_, i) => {
    const value = i === 0 ? pick([0, 1, 2, 3, 4, 5, 6, -1]) : pick([...edges, 16, 32, 3]);
    return wide.includes(i) ? BigInt(value) : value;
  });
  // As many bytes as the memory has are random ones at most
  if (name === "random_get") args[1] = random(1000);
  const answer = wasi.wasiImport[name](...args);
  if (!Number.isInteger(answer) || answer < 0 || answer > 76) throw new Error(`${name}(${args}) gave ${answer}`);
}
guest.dispose();
nn.dispose();
console.log(JSON.stringify({ answers, ms: performance.now() - began }));

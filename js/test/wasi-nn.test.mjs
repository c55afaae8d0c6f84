// The functions that a guest of wasi-nn imports, called as a guest calls them, over a graph that gives its input back.
import assert from "node:assert/strict";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const source = join(dirname(fileURLToPath(import.meta.url)), "../src/wasi-nn");
const contents = `export * from "./calls"; export * from "./imports"; export * from "./models"; export * from "./formats"; export * from "./tensor-types";`;
const bundle = await build({ stdin: { contents, resolveDir: source }, bundle: true, format: "esm", write: false });
const code = Buffer.from(bundle.outputFiles[0].contents).toString("base64");
const { Calls, LIMITS, functionsOf, convert, numberToHalf, halfToNumber, formatOf } = await import(
  `data:text/javascript;base64,${code}`
);

const echo = {
  inputs: [{ name: "x", dtype: "float32", shape: ["batch", 2] }],
  compute: ([x]) => ({ count: 1, read: () => x, dispose: () => {} }),
  dispose: () => {},
};
const failing = (code) => {
  throw Object.assign(new Error(code));
};

function guest({ limits = {}, attached = true } = {}) {
  const heard = [];
  const graphs = {
    fromBytes: () => echo,
    fromName: (name) => (name === "echo" ? echo : failing("the device is gone")),
  };
  const calls = new Calls(graphs, (call, error) => heard.push(`${call}: ${error.code}`), { ...LIMITS, ...limits });
  const memory = new WebAssembly.Memory({ initial: 1 });
  if (attached) calls.memory.attach(memory);
  const nn = functionsOf(calls).wasi_ephemeral_nn;
  const at = () => new DataView(memory.buffer);
  const word = (address, ...values) => {
    for (const [i, value] of values.entries()) at().setUint32(address + 4 * i, value, true);
  };
  return { nn, memory, at, word, heard, calls };
}

/** a context of the echo, with the record of a 1 by 2 tensor at 100 */
function ready(options) {
  const g = guest(options);
  new Uint8Array(g.memory.buffer).set(new TextEncoder().encode("echo"), 16);
  assert.equal(g.nn.load_by_name(16, 4, 0), 0);
  assert.equal(g.nn.init_execution_context(g.at().getUint32(0, true), 4), 0);
  g.word(200, 1, 2);
  g.at().setFloat32(300, 1.5, true);
  g.at().setFloat32(304, -2, true);
  g.word(100, 200, 2, 1, 300, 8);
  return { ...g, context: g.at().getUint32(4, true) };
}

test("a tensor goes in and comes out, also after the memory has grown; a buffer too small stays as it is", () => {
  const { nn, memory, at, context } = ready();
  assert.equal(nn.get_output(context, 0, 400, 8, 8), 5, "nothing computed");
  assert.equal(nn.compute(context), 5, "no input set");
  assert.equal(nn.set_input(context, 0, 100), 0);
  assert.equal(nn.compute(context), 0);
  assert.equal(nn.get_output(context, 0, 400, 4, 8), 7);
  assert.equal(at().getUint32(8, true), 8, "the size that is needed");
  assert.equal(at().getUint32(400, true), 0);
  memory.grow(1);
  assert.equal(nn.get_output(context, 0, 65536, 8, 8), 0);
  assert.deepEqual([at().getFloat32(65536, true), at().getFloat32(65540, true)], [1.5, -2]);
  assert.equal(nn.get_output(context, 1, 400, 8, 8), 1);
});

test("errors have their numbers", () => {
  assert.equal(guest({ attached: false }).nn.load_by_name(0, 0, 0), 3);
  const { nn, word, context, heard } = ready({ limits: { handles: 2, bytes: 100 } });
  word(500, 0, 101);
  assert.equal(nn.load(500, 1, 5, 1, 0), 7);
  assert.equal(nn.load(500, 1, 5, 2, 0), 6, "a TPU");
  assert.equal(nn.load(500, 1, 5, 9, 0), 1, "no target");
  assert.equal(nn.compute_single(context), 6);
  assert.equal(nn.init_execution_context(0, 4), 0);
  assert.equal(nn.init_execution_context(0, 4), 4, "no third context");
  assert.equal(nn.load_by_name(20, 4, 0), 5);
  word(100, 200, 3);
  assert.equal(nn.set_input(context, 0, 100), 1, "three dimensions");
  assert.equal(nn.set_input(context, 0, -4), 1, "a record outside of the memory");
  assert.equal(nn.finalize_execution_context(context), 0);
  assert.equal(nn.compute(context), 1, "a handle that is gone");
  assert.equal(heard.length, 9);
});

test("numbers are converted if they stay what they are", () => {
  const bytes = (array) => new Uint8Array(array.buffer);
  assert.deepEqual(convert(bytes(Float64Array.of(0.5)), "float64", "float32"), bytes(Float32Array.of(0.5)));
  assert.throws(() => convert(bytes(Float64Array.of(0.1)), "float64", "float32"), /which has no 0.1/);
  assert.throws(() => convert(bytes(Int32Array.of(300)), "int32", "uint8"), /which has no 300/);
  assert.throws(() => convert(bytes(Float32Array.of(1)), "float32", "int64"), /wants int64/);
  for (let bits = 0; bits < 0x7c00; bits++) assert.equal(numberToHalf(halfToNumber(bits)), bits);
});

test("formats are told by their bytes", () => {
  const header = new TextEncoder().encode(`{"__metadata__":{"tabtorch.plan":"{}"}}`);
  const file = new Uint8Array(8 + header.length);
  file[0] = header.length;
  file.set(header, 8);
  assert.equal(formatOf(file), "plan");
  assert.equal(formatOf(new TextEncoder().encode("GGUF\x03")), "gguf");
  assert.equal(formatOf(Uint8Array.of(0x08, 0x0a, 0x3a, 0x02, 0x0a, 0x00)), "onnx");
  assert.equal(formatOf(Uint8Array.of(0x08, 0x0a)), null);
  assert.equal(formatOf(new Uint8Array(0)), null);
});

test("a guest of WAMR's header has other records and arguments", () => {
  const { calls, memory, at, word } = guest();
  const nn = functionsOf(calls).wasi_nn;
  word(16, 24, 1); // a list of one builder
  word(24, 400, 4);
  assert.equal(nn.load(16, 1, 1, 0), 0);
  assert.equal(nn.init_execution_context(at().getUint32(0, true), 4), 0);
  const context = at().getUint32(4, true);
  word(200, 1, 2);
  word(208, 200, 2); // dimensions: address and count
  word(100, 208, 1, 300);
  new Float32Array(memory.buffer, 300, 2).set([3, 4]);
  assert.equal(nn.set_input(context, 0, 100), 0);
  assert.equal(nn.compute(context), 0);
  word(8, 4);
  assert.equal(nn.get_output(context, 0, 500, 8), 7);
  assert.equal(at().getUint32(8, true), 8);
  assert.equal(nn.get_output(context, 0, 500, 8), 0);
  assert.deepEqual([...new Float32Array(memory.buffer, 500, 2)], [3, 4]);
});

test("any arguments give a number", () => {
  let seed = 7;
  const random = () => {
    seed = (Math.imul(seed, 1664525) + 1013904223) | 0;
    return seed;
  };
  const edges = [0, 1, 2, 16, 100, 200, 300, 65532, 65536, -1, -4, 0x7fffffff];
  const { nn } = ready({ limits: { handles: 50, bytes: 10_000 } });
  const names = Object.keys(nn);
  for (let round = 0; round < 20_000; round++) {
    const args = Array.from({ length: 5 }, () => (random() & 3 ? edges[(random() >>> 8) % edges.length] : random()));
    const result = nn[names[(random() >>> 8) % names.length]](...args);
    assert.ok(Number.isInteger(result) && result >= 0 && result <= 8);
  }
});

// Writes command blocks by hand, and starts runtimes to carry them out.
import { existsSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build } from "esbuild";
import { devices } from "../devices.mjs";

const here = dirname(fileURLToPath(import.meta.url));

export class Block {
  parts = [];
  size = 0;

  command(op, words, data = new Uint8Array(0)) {
    const head = 8 + 4 * words.length;
    const total = Math.ceil((head + data.byteLength) / 8) * 8;
    const bytes = new Uint8Array(total);
    const view = new Uint32Array(bytes.buffer);
    view.set([op, total, ...words]);
    bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), head);
    this.parts.push(bytes);
    this.size += total;
    return this;
  }

  json(op, id, spec) {
    const text = new TextEncoder().encode(JSON.stringify(spec));
    return this.command(op, [id, text.byteLength], text);
  }

  kernel(id, spec) {
    return this.json(1, id, { name: `kernel${id}`, device: 0, ...spec });
  }

  plan(id, spec) {
    return this.json(2, id, { name: `plan${id}`, device: 0, outputs: {}, temps: [], scalars: [], ...spec });
  }

  /** numbers: work, then those of the steps, outputs, places and temps */
  bind(id, template, ...numbers) {
    const data = Uint32Array.from(numbers);
    return this.command(11, [id, template, data.byteLength], data);
  }

  /** scalars: numbers (f64) and bigints (i64) */
  run(plan, ids, scalars = []) {
    const words = [plan, ids.length, ...ids];
    if (words.length % 2) words.push(0);
    const data = new DataView(new ArrayBuffer(8 * scalars.length));
    scalars.forEach((s, i) => {
      if (typeof s === "bigint") data.setBigInt64(8 * i, s, true);
      else data.setFloat64(8 * i, s, true);
    });
    return this.command(3, words, data);
  }

  free(...ids) {
    return this.command(4, [ids.length, ...ids]);
  }

  upload(id, dev, data) {
    return this.command(5, [id, dev, data.byteLength], data);
  }

  write(id, offset, data) {
    return this.command(10, [id, offset, data.byteLength], data);
  }

  copy(dst, dev, src, nbytes) {
    return this.command(6, [dst, dev, src, nbytes]);
  }

  alias(id, base, offset, nbytes) {
    return this.command(7, [id, base, offset, nbytes]);
  }

  alloc(id, dev, nbytes) {
    return this.command(8, [id, dev, nbytes]);
  }

  forget(...ids) {
    return this.command(9, [ids.length, ...ids]);
  }

  bytes() {
    const all = new Uint8Array(this.size);
    let at = 0;
    for (const part of this.parts) {
      all.set(part, at);
      at += part.byteLength;
    }
    return all;
  }
}

/** The runtime as it is in the sources, not as it was when last built. */
const bundle = await build({
  entryPoints: [join(here, "../src/runtime.ts")],
  bundle: true,
  format: "esm",
  target: "es2022",
  plugins: [devices()],
  write: false,
});
const url = `data:text/javascript;base64,${Buffer.from(bundle.outputFiles[0].contents).toString("base64")}`;
export const { createRuntime } = await import(url);

// With no graphics card, the software GPU that comes with Chromium.
if (!process.env.VK_ICD_FILENAMES && !existsSync("/dev/nvidiactl") && !existsSync("/dev/dri")) {
  const folder = existsSync("/usr/lib") ? readdirSync("/usr/lib").filter((name) => name.startsWith("chromium")) : [];
  const icd = folder.map((name) => `/usr/lib/${name}/vk_swiftshader_icd.json`).find(existsSync);
  if (icd) process.env.VK_ICD_FILENAMES = icd;
}

const modules = process.env.TABTORCH_NODE_MODULES;
const dawn = await import(modules ? pathToFileURL(join(modules, "webgpu/index.js")).href : "webgpu");
Object.assign(globalThis, dawn.globals);
export const gpu = dawn.create([]);

export const start = async (options = {}) => {
  const runtime = await createRuntime({ gpu, patience: 0, ...options });
  if (!options.preferCpu && !JSON.parse(runtime.info()).webgpu) throw new Error(JSON.parse(runtime.info()).reason);
  return runtime;
};

export const stats = (runtime) => JSON.parse(runtime.stats());
export const errors = (runtime) => JSON.parse(runtime.takeErrors());

/** Carries out a block that must not fail. */
export async function execute(runtime, block) {
  runtime.execute(block.bytes());
  await runtime.synchronize();
  const found = errors(runtime);
  if (found.length > 0) throw new Error(JSON.stringify(found, null, 1));
}

export const readAs = async (runtime, Type, id, n, offset = 0) => [
  ...new Type((await runtime.readAsync(id, offset, n * Type.BYTES_PER_ELEMENT)).slice().buffer),
];

/** out[i] = a[i] * P[0].x (f32) + f32(P[0].y), over P[0].z elements; on both devices. */
export const scaleAdd = (dev) =>
  dev === 0
    ? {
        name: "scale_add",
        device: 0,
        bindings: [
          { type: "f32", access: "r" },
          { type: "f32", access: "rw" },
        ],
        source: `@group(0) @binding(0) var<uniform> P: array<vec4<u32>, 256>;
          @group(0) @binding(1) var<storage, read> a: array<f32>;
          @group(0) @binding(2) var<storage, read_write> o: array<f32>;
          @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) g: vec3<u32>) {
            if (g.x >= P[0].z) { return; }
            o[g.x] = a[g.x] * bitcast<f32>(P[0].x) + f32(bitcast<i32>(P[0].y)); }`,
      }
    : {
        name: "scale_add",
        device: 1,
        bindings: [
          { type: "f32", access: "r" },
          { type: "f32", access: "rw" },
        ],
        source: "for (let i = 0; i < P[2]; i++) b1[i] = b0[i] * F[0] + I[1];",
      };

/** A plan of one scale_add from slot 0 to the output slot 1, with scalars f32 and i32. */
export const scaleAddPlan = (dev, kernel, n) => ({
  device: dev,
  slots: 2,
  outputs: { 1: 4 * n },
  scalars: ["f32", "i32"],
  steps: [
    {
      kernel,
      bind: [0, 1],
      words: [0, 0, n, 0],
      patch: [
        [0, 0, "f32"],
        [1, 1, "i32"],
      ],
      grid: [Math.ceil(n / 64), 1, 1],
      label: "mul, add",
    },
  ],
});

/**
 * What an adapter's arithmetic does beyond what WGSL asks for: whether quotients and square roots are correctly rounded, and
 * whether `fma` rounds once. The engine has quotients and roots of its own, in integers, which take a software adapter as long as
 * all the rest of an optimizer's step, and a GPU three times as long as with such an `fma`.
 */

import { nudged } from "./nudge";

const PAIRS = 1 << 14;
const TRIPLES = 1 << 12;
const STORAGE = 128;
const COPY_SRC = 4;
const COPY_DST = 8;
const MAP_READ = 1;

const code = (type: string, found: string) => `
@group(0) @binding(0) var<storage, read> given: array<${type}>;
@group(0) @binding(1) var<storage, read_write> found: array<${type}>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let x = given[id.x];
  found[id.x] = ${found};
}`;
const EXACT = code("vec2<f32>", "vec2(x.x / x.y, sqrt(x.x))");
const FUSED = code(
  "vec4<f32>",
  "vec4(fma(x.x, x.y, x.z), fma(-x.y, x.x, x.w), fma(-x.x, x.y, -x.z), fma(x.y, x.x, -x.w))",
);

/** Numbers of 32 bits, the same each time. */
function randomly(): () => number {
  let state = 2463534242;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return state >>> 0;
  };
}

/** Pairs of floats: of any exponent, near each other, whole numbers, and such as make quotients near the middle of two floats. */
function pairs(): Float32Array<ArrayBuffer> {
  const floats = new Float32Array(2 * PAIRS);
  const bits = new Uint32Array(floats.buffer);
  const random = randomly();
  for (let i = 0; i < PAIRS; i++) {
    const [x, y] = [random(), random()];
    bits[2 * i] = x;
    bits[2 * i + 1] = y;
    if (i % 4 === 1) bits[2 * i + 1] = (x & 0x7f800000) | (y & 0x807fffff);
    if (i % 4 === 2) floats.set([x >>> 20, (y >>> 20) + 1], 2 * i);
    if (i % 4 === 3) {
      const by = 1 + (y & 0x7fffff) * 2 ** -23;
      floats.set([(1 + ((x & 0x7fffff) + 0.5) * 2 ** -23) * by, by], 2 * i);
    }
  }
  return floats;
}

/** Zero, or of full precision: what lies between, adapters may flush, and it is not asked of them. */
const usual = (x: number) => x === 0 || !(Math.abs(x) < 2 ** -126);

/** What the shader finds for these, a workgroup 64 of its vectors. */
async function run(
  device: GPUDevice,
  code: string,
  given: Float32Array<ArrayBuffer>,
  workgroups: number,
): Promise<Float32Array> {
  const nbytes = given.byteLength;
  const buffers = [STORAGE | COPY_DST, STORAGE | COPY_SRC, COPY_DST | MAP_READ].map((usage) =>
    device.createBuffer({ size: nbytes, usage }),
  ) as [GPUBuffer, GPUBuffer, GPUBuffer];
  const [from, to, read] = buffers;
  device.queue.writeBuffer(from, 0, given);
  const module = device.createShaderModule({ code });
  const compute = { module, entryPoint: "main" };
  const pipeline = device.createComputePipeline({ label: "exact arithmetic", layout: "auto", compute });
  const entries = [from, to].map((buffer, binding) => ({ binding, resource: { buffer } }));
  const group = device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries });
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  pass.setPipeline(pipeline);
  pass.setBindGroup(0, group);
  pass.dispatchWorkgroups(workgroups);
  pass.end();
  encoder.copyBufferToBuffer(to, 0, read, 0, nbytes);
  device.queue.submit([encoder.finish()]);
  await nudged(device, read.mapAsync(MAP_READ));
  const found = new Float32Array(read.getMappedRange().slice(0));
  for (const buffer of buffers) buffer.destroy();
  return found;
}

/** Tries it, with thousands of pairs; the answer is for all that are no subnormal numbers, and have a quotient that is none. */
export async function exact(device: GPUDevice): Promise<boolean> {
  const given = pairs();
  const found = await run(device, EXACT, given, PAIRS / 64);
  for (let i = 0; i < 2 * PAIRS; i += 2) {
    const [x, y] = [given[i] as number, given[i + 1] as number];
    const quotient = Math.fround(x / y); // of floats, rounding to double first changes nothing
    const root = Math.fround(Math.sqrt(x));
    if (usual(x) && usual(y) && usual(quotient) && !Object.is(found[i], quotient)) return false;
    if (usual(x) && !Object.is(found[i + 1], root)) return false;
  }
  return true;
}

/** Whether `fma` gives what a product that was rounded lacks, of thousands, in the forms in which it is called. */
export async function fused(device: GPUDevice): Promise<boolean> {
  const random = randomly();
  const given = new Float32Array(4 * TRIPLES);
  for (let i = 0; i < 4 * TRIPLES; i += 4) {
    const [x, y] = [random(), random()].map((bits) =>
      Math.fround((1 + (bits & 0x7fffff) * 2 ** -23) * 2 ** ((bits >>> 26) - 32)),
    ) as [number, number];
    const product = Math.fround(x * y);
    given.set([x, y, -product, product], i);
  }
  const found = await run(device, FUSED, given, TRIPLES / 64);
  for (let i = 0; i < 4 * TRIPLES; i += 4) {
    const [x, y, , product] = [...given.subarray(i, i + 4)] as [number, number, number, number];
    const rest = x * y - product; // exact, in double
    const wants = [rest, -rest, -rest, rest];
    for (let j = 0; j < 4; j++) if (found[i + j] !== wants[j]) return false;
  }
  return true;
}

// onnxruntime-web on its WebGPU execution provider: the steps of rows.py that are no training, each an ONNX model of its own, whose
// inputs are on the GPU and whose output stays there. A model that it would run on the CPU in part is refused.

import * as ort from "onnxruntime-web/webgpu";
import { Graph, Real } from "./onnx.js";
import { offer } from "./timing.js";

let device = null;

const library = {
  async start() {
    ort.env.wasm.numThreads = 1; // nothing is computed on the CPU
    ort.env.wasm.wasmBinary = await (await fetch("/ort-wasm-simd-threaded.asyncify.wasm")).arrayBuffer();
  },
  // the end of a run sends its work
  send() {},
  free: (result) => result.dispose(),
  wait: () => device.queue.onSubmittedWorkDone(),
  numbers: (result) => result.getData(),
};

/** A tensor on the GPU, which stays. */
function put({ shape, data }) {
  const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
  const buffer = device.createBuffer({ size: Math.ceil(data.byteLength / 16) * 16, usage });
  device.queue.writeBuffer(buffer, 0, data);
  return ort.Tensor.fromGpuBuffer(buffer, { dataType: data instanceof Int32Array ? "int32" : "float32", dims: shape });
}

/** A row whose model `build(graph, sizes)` makes, which returns the name of the output. */
const model = (build) => async (inputs, sizes) => {
  const graph = new Graph(inputs);
  const session = await ort.InferenceSession.create(graph.model(build(graph, sizes)), {
    executionProviders: ["webgpu"],
    externalData: graph.files,
    preferredOutputLocation: "gpu-buffer",
    extra: { session: { disable_cpu_ep_fallback: "1" } },
  });
  device = await ort.env.webgpu.device;
  const feeds = Object.fromEntries(session.inputNames.map((name) => [name, put(inputs[name])]));
  const [output] = session.outputNames;
  return async () => (await session.run(feeds))[output];
};

const matmul = model((g) => g.node("MatMul", [g.input("x"), g.input("y")]));

const convolution = (attributes) =>
  model((g) => {
    const { w } = g.inputs;
    const size = w.shape[2];
    const pads = Array(4).fill(size >> 1);
    return g.node("Conv", [g.input("x"), g.weight("w")], { kernel_shape: [size, size], pads, ...attributes(w) });
  });

const MICROSOFT = { domain: "com.microsoft" };
const causal = (heads) => ({ num_heads: heads, unidirectional: 1 });
const EPSILON = { epsilon: new Real(1e-5) };

/** Batch, length and width, as it has them, of what has its heads before the length: made before anything is timed. */
function joined({ shape: [batch, heads, length, width], data }) {
  const found = new data.constructor(data.length);
  for (let at = 0, b = 0; b < batch; b++)
    for (let h = 0; h < heads; h++)
      for (let t = 0; t < length; t++, at += width)
        found.set(data.subarray(at, at + width), ((b * length + t) * heads + h) * width);
  return { shape: [batch, length, heads * width], data: found };
}

/** Its result with the heads before the length again, so that numbers can be compared; not part of what is timed. */
class Heads {
  constructor(inner, heads) {
    this.inner = inner;
    this.heads = heads;
  }
  dispose() {
    this.inner.dispose();
  }
  async getData() {
    const [batch, length, width] = this.inner.dims;
    const shape = [batch, length, this.heads, width / this.heads];
    return joined({ shape, data: await this.inner.getData() }).data;
  }
}

async function attention({ q, k, v }, sizes) {
  const fused = model((g, { heads }) => {
    const names = ["q", "k", "v"].map((name) => g.input(name));
    return g.node("MultiHeadAttention", names, causal(heads), MICROSOFT);
  });
  const step = await fused({ q: joined(q), k: joined(k), v: joined(v) }, sizes);
  return async () => new Heads(await step(), sizes.heads);
}

const resnet = model((g) => {
  const convolved = (x, conv, norm, stride) => {
    const name = `model.${conv}.weight`;
    const size = g.inputs[name].shape[2];
    const attributes = { kernel_shape: [size, size], pads: Array(4).fill(size >> 1), strides: [stride, stride] };
    const scales = ["weight", "bias", "running_mean", "running_var"].map((each) => g.weight(`model.${norm}.${each}`));
    return g.node("BatchNormalization", [g.node("Conv", [x, g.weight(name)], attributes), ...scales], EPSILON);
  };
  const stem = g.node("Relu", [convolved(g.input("x"), "0", "1", 2)]);
  let x = g.node("MaxPool", [stem], { kernel_shape: [3, 3], pads: [1, 1, 1, 1], strides: [2, 2] });
  for (let i = 4; i < 12; i++) {
    const narrow = g.inputs[`model.${i}.shortcut.0.weight`] !== undefined;
    const shortcut = narrow ? convolved(x, `${i}.shortcut.0`, `${i}.shortcut.1`, 2) : x;
    const y = g.node("Relu", [convolved(x, `${i}.conv1`, `${i}.bn1`, narrow ? 2 : 1)]);
    x = g.node("Relu", [g.node("Add", [convolved(y, `${i}.conv2`, `${i}.bn2`, 1), shortcut])]);
  }
  const flat = g.node("Flatten", [g.node("GlobalAveragePool", [x])]);
  return g.node("Gemm", [flat, g.weight("model.14.weight"), g.weight("model.14.bias")], { transB: 1 });
});

const prefill = model((g, { layers, heads, length }) => {
  const p = (name) => g.weight(`model.${name}`);
  // weights are turned once, when the session is made
  const product = (x, name) => g.node("MatMul", [x, g.node("Transpose", [p(`${name}.weight`)], { perm: [1, 0] })]);
  const linear = (x, name) => g.node("Add", [product(x, name), p(`${name}.bias`)]);
  const norm = (x, name) => g.node("LayerNormalization", [x, p(`${name}.weight`), p(`${name}.bias`)], EPSILON);
  const places = g.constant(Array.from({ length }, (_, i) => i));
  let x = g.node("Add", [
    g.node("Gather", [p("tokens.weight"), g.input("ids")]),
    g.node("Gather", [p("places.weight"), places]),
  ]);
  for (let i = 0; i < layers; i++) {
    const qkv = linear(norm(x, `blocks.${i}.norm1`), `blocks.${i}.qkv`);
    const parts = g.node("Split", [qkv], { axis: -1, num_outputs: 3 }, { outputs: 3 });
    const y = g.node("MultiHeadAttention", parts, causal(heads), MICROSOFT);
    x = g.node("Add", [x, linear(y, `blocks.${i}.out`)]);
    const wide = g.node("FastGelu", [linear(norm(x, `blocks.${i}.norm2`), `blocks.${i}.up`)], {}, MICROSOFT);
    x = g.node("Add", [x, linear(wide, `blocks.${i}.down`)]);
  }
  const logits = product(norm(x, "norm"), "head");
  return g.node("Slice", [logits, g.constant([length - 1]), g.constant([length]), g.constant([1])]);
});

// Without cumsum: its kernel adds up for each element all that come before it, which of 16 M are too many.
const rows = {
  "ResNet-18 forward 1x224": resnet,
  "ResNet-18 forward 32x224": resnet,
  "GPT-2 124M prefill 512": prefill,
  "matmul 1024": matmul,
  "matmul 2048": matmul,
  "matmul 4096": matmul,
  "matmul 16384x384x1536": matmul,
  "bmm 384 x 256x64x256": matmul,
  "matvec 1x4096x4096": matmul,
  "matvec 16x4096x4096": matmul,
  "x * 2, 64 M": model((g) => g.node("Mul", [g.input("x"), g.constant(2)])),
  "tanh(x * 2 + 1) * x, 64 M": model((g) => {
    const x = g.input("x");
    const inner = g.node("Add", [g.node("Mul", [x, g.constant(2)]), g.constant(1)]);
    return g.node("Mul", [g.node("Tanh", [inner]), x]);
  }),
  "sum, 64 M": model((g) => g.node("ReduceSum", [g.input("x")], { keepdims: 0 })),
  "sum of columns 4096x16384": model((g) => g.node("ReduceSum", [g.input("x"), g.constant([0])], { keepdims: 0 })),
  "softmax 8192x768": model((g) => g.node("Softmax", [g.input("x")], { axis: -1 })),
  "layer_norm 8192x768": model((g) =>
    g.node("LayerNormalization", [g.input("x"), g.weight("w"), g.weight("b")], EPSILON),
  ),
  "conv 3x3 8x64x56": convolution(() => ({})),
  "conv 3x3 32x256x14": convolution(() => ({})),
  "conv 1x1 32x256x14 to 1024": convolution(() => ({})),
  "conv 7x7 s2 32x3x224": convolution(() => ({ strides: [2, 2] })),
  "conv depthwise 3x3 32x256x28": convolution((w) => ({ group: w.shape[0] })),
  "attention 8x12x1024x64": attention,
  "topk 50 of 64x50257": model((g) => g.node("TopK", [g.input("x"), g.constant([50])], {}, { outputs: 2 })[0]),
  "sort, 1 M": model(
    (g) => g.node("TopK", [g.input("x"), g.constant(g.inputs.x.shape)], { largest: 0 }, { outputs: 2 })[0],
  ),
  "transpose copy 8192": model((g) => g.node("Transpose", [g.input("x")], { perm: [1, 0] })),
};

offer(library, rows);

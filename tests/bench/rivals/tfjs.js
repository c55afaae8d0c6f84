// TensorFlow.js on its WebGPU backend: the steps of rows.py. Images are NHWC, as it has them, and are given so.

import * as tf from "@tensorflow/tfjs-core";
import "@tensorflow/tfjs-core/dist/register_all_gradients.js";
import "@tensorflow/tfjs-backend-webgpu";
import { offer } from "./timing.js";

const library = {
  async start() {
    if (!(await tf.setBackend("webgpu"))) throw new Error("no WebGPU backend");
    await tf.ready();
  },
  // it gathers dispatches and sends fifteen at a time: left to it
  send() {},
  free: (result) => result.dispose(),
  async wait() {
    const backend = tf.backend();
    backend.endComputePassEncoder();
    if (backend.commandEncoder) backend.submitQueue();
    await backend.queue.onSubmittedWorkDone();
  },
  numbers: (result) => result.data(),
};

const put = ({ shape, data }) => tf.tensor(data, shape, data instanceof Int32Array ? "int32" : "float32");

/** Once, while a step is made: a tensor that stays. */
const made = (f) => tf.keep(tf.tidy(f));

/** Its transpose, kept. */
const turned = (x, order) => made(() => tf.transpose(put(x), order));

/** NCHW's order, so that numbers can be compared; not part of what is timed. */
class Images {
  constructor(inner) {
    this.inner = inner;
  }
  dispose() {
    this.inner.dispose();
  }
  data() {
    return tf.tidy(() => tf.transpose(this.inner, [0, 3, 1, 2])).data();
  }
}

/** A step of tfjs's Adam: its optimizers have no AdamW, which would be one operation more for each parameter. */
function training(parameters, forward) {
  const variables = parameters.map((p) => tf.variable(p));
  const optimizer = tf.train.adam(1e-3);
  return () => optimizer.minimize(() => forward(variables), true, variables);
}

function crossEntropy(logits, hot) {
  return tf.neg(tf.mean(tf.sum(tf.mul(tf.logSoftmax(logits), hot), -1)));
}

const hot = (y, classes) => made(() => tf.cast(tf.oneHot(put(y), classes), "float32"));

function matmul({ x, y }) {
  const a = put(x);
  const b = put(y);
  return () => tf.matMul(a, b);
}

function perceptron(inputs) {
  const x = put(inputs.x);
  const y = hot(inputs.y, 10);
  const layers = ["0", "2", "4"];
  const parameters = layers.flatMap((i) => [
    turned(inputs[`model.${i}.weight`], [1, 0]),
    put(inputs[`model.${i}.bias`]),
  ]);
  return training(parameters, ([w0, b0, w1, b1, w2, b2]) => {
    const first = tf.relu(tf.add(tf.matMul(x, w0), b0));
    const second = tf.relu(tf.add(tf.matMul(first, w1), b1));
    return crossEntropy(tf.add(tf.matMul(second, w2), b2), y);
  });
}

function convolutions(inputs) {
  const x = turned(inputs.x, [0, 2, 3, 1]);
  const y = hot(inputs.y, 10);
  const p = (name) => inputs[`model.${name}`];
  // what is flattened here has its channels last
  const first = p("7.weight");
  const out = first.shape[0];
  const wide = made(() =>
    tf.reshape(tf.transpose(tf.reshape(put(first), [out, 64, 7, 7]), [2, 3, 1, 0]), [64 * 7 * 7, out]),
  );
  const parameters = [
    turned(p("0.weight"), [2, 3, 1, 0]),
    put(p("0.bias")),
    turned(p("3.weight"), [2, 3, 1, 0]),
    put(p("3.bias")),
    wide,
    put(p("7.bias")),
    turned(p("9.weight"), [1, 0]),
    put(p("9.bias")),
  ];
  const block = (x, w, b) => tf.maxPool(tf.relu(tf.add(tf.conv2d(x, w, 1, "same"), b)), 2, 2, "valid");
  return training(parameters, ([w0, b0, w1, b1, w2, b2, w3, b3]) => {
    const seen = block(block(x, w0, b0), w1, b1);
    const flat = tf.reshape(seen, [seen.shape[0], -1]);
    return crossEntropy(tf.add(tf.matMul(tf.relu(tf.add(tf.matMul(flat, w2), b2)), w3), b3), y);
  });
}

const rows = {
  "MLP step": perceptron,
  "CNN step": convolutions,
  "matmul 1024": matmul,
  "matmul 2048": matmul,
  "matmul 4096": matmul,
  "x * 2, 64 M"(inputs) {
    const x = put(inputs.x);
    return () => tf.mul(x, 2);
  },
  "tanh(x * 2 + 1) * x, 64 M"(inputs) {
    const x = put(inputs.x);
    return () => tf.tidy(() => tf.mul(tf.tanh(tf.add(tf.mul(x, 2), 1)), x));
  },
  "sum, 64 M"(inputs) {
    const x = put(inputs.x);
    return () => tf.sum(x);
  },
  "sum of columns 4096x16384"(inputs) {
    const x = put(inputs.x);
    return () => tf.sum(x, 0);
  },
  "softmax 8192x768"(inputs) {
    const x = put(inputs.x);
    return () => tf.softmax(x);
  },
  // composed: the library has no such function, and the layer of tfjs-layers composes it likewise
  "layer_norm 8192x768"(inputs) {
    const [x, w, b] = [inputs.x, inputs.w, inputs.b].map(put);
    return () =>
      tf.tidy(() => {
        const { mean, variance } = tf.moments(x, -1, true);
        const scaled = tf.mul(tf.rsqrt(tf.add(variance, 1e-5)), w);
        return tf.add(tf.mul(tf.sub(x, mean), scaled), b);
      });
  },
  "conv 3x3 8x64x56"(inputs) {
    const x = turned(inputs.x, [0, 2, 3, 1]);
    const w = turned(inputs.w, [2, 3, 1, 0]);
    return () => new Images(tf.conv2d(x, w, 1, "same"));
  },
  "cumsum, 16 M"(inputs) {
    const x = put(inputs.x);
    return () => tf.cumsum(x, 0);
  },
  "topk 50 of 64x50257"(inputs) {
    const x = put(inputs.x);
    return () => tf.tidy(() => tf.topk(x, 50).values);
  },
};

offer(library, rows);

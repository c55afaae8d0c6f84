// jax-js on WebGPU: the steps of rows.py, each one function under `jit`, which fuses what it can. A function takes its arguments
// as its own: what is still needed after the call is passed as `.ref`.

import { defaultDevice, getWebGPUDevice, init, jit, lax, nn, numpy as np, tree, valueAndGrad } from "@jax-js/jax";
import { offer } from "./timing.js";

const library = {
  async start() {
    if (!(await init("webgpu")).includes("webgpu")) throw new Error("no WebGPU backend");
    defaultDevice("webgpu");
  },
  // it is lazy, and what nobody asks for is never computed: the buffer is asked for, which sends the work and waits for nothing
  send(result) {
    for (const each of tree.leaves(result)) each.ref.gpuBufferSync();
  },
  free: (result) => tree.dispose(result),
  wait: () => getWebGPUDevice().queue.onSubmittedWorkDone(),
  numbers: (result) => result.ref.data(),
};

const put = ({ shape, data }) => np.array(data, { shape, dtype: data instanceof Int32Array ? np.int32 : np.float32 });

/** A step that calls `f`, compiled, with these inputs. */
function compiled(f, ...inputs) {
  const arrays = inputs.map(put);
  const run = jit(f);
  return () => run(...arrays.map((a) => a.ref));
}

function matmul({ x, y }) {
  return compiled((a, b) => np.matmul(a, b), x, y);
}

function crossEntropy(logits, y) {
  const classes = logits.shape.at(-1);
  const count = logits.size / classes;
  return nn
    .logSoftmax(logits)
    .mul(nn.oneHot(y, classes))
    .sum()
    .mul(-1 / count);
}

/**
 * A step of AdamW, all of it one compiled function: the loss and its gradients, and what optax's adamw does with them.
 *
 * parameters: by name; forward(parameters, x): logits.
 */
function training(parameters, inputs, rate, forward) {
  const [x, y] = [put(inputs.x), put(inputs.y)];
  const [beta1, beta2, small, decay] = [0.9, 0.999, 1e-8, 0.01];
  const differentiated = valueAndGrad((p, x, y) => crossEntropy(forward(p, x), y));
  const run = jit((state, x, y) => {
    const { p, m, v, power1, power2 } = state;
    const [loss, g] = differentiated(tree.ref(p), x, y);
    const [next1, next2] = [power1.mul(beta1), power2.mul(beta2)];
    const found = { p: {}, m: {}, v: {}, power1: next1, power2: next2 };
    for (const name of Object.keys(p)) {
      found.m[name] = m[name].mul(beta1).add(g[name].ref.mul(1 - beta1));
      found.v[name] = v[name].mul(beta2).add(np.square(g[name]).mul(1 - beta2));
      const mean = found.m[name].ref.div(next1.ref.mul(-1).add(1));
      const size = np.sqrt(found.v[name].ref.div(next2.ref.mul(-1).add(1))).add(small);
      found.p[name] = p[name].mul(1 - rate * decay).sub(mean.div(size).mul(rate));
    }
    return [loss, found];
  });
  const zeros = () => tree.map((each) => np.zeros(each.shape), parameters);
  let state = { p: parameters, m: zeros(), v: zeros(), power1: np.array(1), power2: np.array(1) };
  return () => {
    const [loss, next] = run(state, x.ref, y.ref);
    library.send(next);
    state = next;
    return loss;
  };
}

/** The parameters of a model, weights of linear layers with their inputs first, as jax has them. */
function parametersOf(inputs, linear) {
  const found = {};
  for (const [name, each] of Object.entries(inputs)) {
    if (!name.startsWith("model.")) continue;
    const short = name.slice("model.".length);
    found[short] = linear.test(short) ? jit((w) => w.transpose().add(0))(put(each)) : put(each);
  }
  return found;
}

function perceptron(inputs) {
  const layer = (x, p, i) => np.dot(x, p[`${i}.weight`]).add(p[`${i}.bias`]);
  return training(parametersOf(inputs, /weight/), inputs, 1e-3, (p, x) =>
    layer(nn.relu(layer(nn.relu(layer(x, p, 0)), p, 2)), p, 4),
  );
}

function convolutions(inputs) {
  const layer = (x, p, i) => np.dot(x, p[`${i}.weight`]).add(p[`${i}.bias`]);
  const block = (x, p, i) => {
    const y = lax.convGeneralDilated(x, p[`${i}.weight`], [1, 1], "SAME").add(p[`${i}.bias`].reshape([-1, 1, 1]));
    return lax.reduceWindow(nn.relu(y), np.max, [2, 2], [2, 2]);
  };
  return training(parametersOf(inputs, /^[79]\.weight/), inputs, 1e-3, (p, x) => {
    const seen = block(block(x, p, 0), p, 3);
    return layer(nn.relu(layer(seen.reshape([seen.shape[0], -1]), p, 7)), p, 9);
  });
}

function gpt(inputs, { layers, heads, width }) {
  const linear = (x, p, name) => np.matmul(x, p[`${name}.weight`]).add(p[`${name}.bias`]);
  const norm = (x, p, name) => nn.standardize(x).mul(p[`${name}.weight`]).add(p[`${name}.bias`]);
  return training(parametersOf(inputs, /(qkv|out|up|down|head)\.weight/), inputs, 1e-4, (p, ids) => {
    const [batch, length] = ids.shape;
    let x = np.take(p["tokens.weight"], ids, 0).add(p["places.weight"].slice([0, length]));
    for (let i = 0; i < layers; i++) {
      const block = `blocks.${i}`;
      const qkv = linear(norm(x.ref, p, `${block}.norm1`), p, `${block}.qkv`);
      const [q, k, v] = np.split(qkv, 3, -1).map((each) => each.reshape([batch, length, heads, width / heads]));
      const y = nn.dotProductAttention(q, k, v, { isCausal: true }).reshape([batch, length, width]);
      x = x.add(linear(y, p, `${block}.out`));
      const wide = nn.gelu(linear(norm(x.ref, p, `${block}.norm2`), p, `${block}.up`), { approximate: true });
      x = x.add(linear(wide, p, `${block}.down`));
    }
    return np.matmul(norm(x, p, "norm"), p["head.weight"]);
  });
}

const rows = {
  "MLP step": perceptron,
  "CNN step": convolutions,
  "GPT 4/4/128/64/12 step": gpt,
  "GPT 6/6/384/256/64 step": gpt,
  "matmul 1024": matmul,
  "matmul 2048": matmul,
  "matmul 4096": matmul,
  "x * 2, 64 M": ({ x }) => compiled((x) => x.mul(2), x),
  "tanh(x * 2 + 1) * x, 64 M": ({ x }) => compiled((x) => np.tanh(x.ref.mul(2).add(1)).mul(x), x),
  "sum, 64 M": ({ x }) => compiled((x) => x.sum(), x),
  "sum of columns 4096x16384": ({ x }) => compiled((x) => x.sum(0), x),
  "softmax 8192x768": ({ x }) => compiled((x) => nn.softmax(x, -1), x),
  "layer_norm 8192x768": ({ x, w, b }) => compiled((x, w, b) => nn.standardize(x).mul(w).add(b), x, w, b),
  "conv 3x3 8x64x56": ({ x, w }) => compiled((x, w) => lax.convGeneralDilated(x, w, [1, 1], "SAME"), x, w),
  "cumsum, 16 M": ({ x }) => compiled((x) => np.cumsum(x, 0), x),
  "topk 50 of 64x50257": ({ x }) =>
    compiled((x) => {
      const [values, places] = lax.topK(x, 50);
      places.dispose();
      return values;
    }, x),
};

offer(library, rows);

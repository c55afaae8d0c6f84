// torch-pyodide, a `torch` for Pyodide whose operations are each one awaited call of JavaScript: the steps of rows.py, in Python.
// Nothing of it is freed unless that is said, so that steps free what they made and do not return; what its training steps hold
// between the lines nobody can. Without attention: no matmul of four dimensions. Of 0.0.84 the sum of all of a large tensor is wrong,
// as a reduction starts a 256th of the groups that it needs, and so are topk and sort, which have room for 2048 numbers.

import { installTorchRuntime } from "torch-pyodide/runtime/src/index.ts";
import { offer } from "./timing.js";

const PRELUDE = `
import torch
import torch.nn.functional as F
from torch._tensor import Tensor

async def asked(step):
    return step()._id  # what JavaScript knows it by
`;

let pyodide = null;
let runtime = null;

const library = {
  async start() {
    runtime = installTorchRuntime();
    await runtime.init();
    const address = "/pyodide.mjs";
    const { loadPyodide } = await import(address);
    pyodide = await loadPyodide({ indexURL: "/" });
    pyodide.unpackArchive(await (await fetch("/torch.whl")).arrayBuffer(), "wheel");
    await pyodide.runPythonAsync(PRELUDE);
  },
  // each operation sends itself
  send() {},
  free: (id) => runtime.destroy(id),
  wait: () => runtime.deviceMgr.syncDevice(),
  async numbers(id) {
    const { buffer, length } = runtime.deviceMgr.getTensorMeta(id);
    return new Float32Array(await runtime.deviceMgr.readFromGPUBuffer(buffer, length * 4));
  },
};

/** A row whose step is what a piece of Python calls `step`; the inputs are there by name, those of a model in `model`. */
const python = (source) => async (inputs, sizes) => {
  const given = {};
  for (const [name, { shape, data }] of Object.entries(inputs)) {
    const { id } = await runtime.tensorFromData(data, shape, data instanceof Int32Array ? "int64" : "float32");
    given[name] = [id, shape, data instanceof Int32Array ? "int64" : "float32"];
  }
  const names = pyodide.toPy({ given, sizes });
  pyodide.globals.update(names);
  await pyodide.runPythonAsync(`
given = {name: Tensor(*what) for name, what in given.items()}
globals().update({n: t for n, t in given.items() if "." not in n}, **sizes)
${source}`);
  const [asked, step] = ["asked", "step"].map((name) => pyodide.globals.get(name));
  return () => asked(step);
};

const matmul = python("step = lambda: torch.matmul(x, y)");

/** A step of its AdamW; layers: as `nn.Sequential` has them, with the inputs' parameters. */
const training = (layers) =>
  python(`
from torch import nn, optim
model = nn.Sequential(${layers})
parameters = []
for name, parameter in given.items():
    if name.startswith("model."):
        _, place, kind = name.split(".")
        parameters.append(parameter.requires_grad_())
        setattr(model[int(place)], kind, parameter)
optimizer = optim.AdamW(parameters, lr=1e-3)

def step():
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss
`);

const rows = {
  "MLP step": training("nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)"),
  "CNN step": training(
    "nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), " +
      "nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10)",
  ),
  "matmul 1024": matmul,
  "matmul 2048": matmul,
  "matmul 4096": matmul,
  "bmm 384 x 256x64x256": matmul,
  "x * 2, 64 M": python("step = lambda: x * 2.0"),
  "tanh(x * 2 + 1) * x, 64 M": python(`
def step():
    twice = x * 2.0
    more = twice + 1.0
    inner = more.tanh()
    result = inner * x
    for each in (twice, more, inner):
        each.destroy()
    return result
`),
  "sum, 64 M": python("step = lambda: x.sum()"),
  "sum of columns 4096x16384": python("step = lambda: x.sum(0)"),
  "softmax 8192x768": python("step = lambda: x.softmax(-1)"),
  "layer_norm 8192x768": python("step = lambda: F.layer_norm(x, (n,), w, b)"),
  "conv 3x3 8x64x56": python("step = lambda: F.conv2d(x, w, None, 1, 1)"),
  "cumsum, 16 M": python("step = lambda: x.cumsum(0)"),
  "topk 50 of 64x50257": python(`
def step():
    values, places = x.topk(50)
    places.destroy()
    return values
`),
  "sort, 1 M": python(`
def step():
    values, places = x.sort()
    places.destroy()
    return values
`),
};

offer(library, rows);

// ONNX models, written: as much of https://github.com/onnx/onnx/blob/main/onnx/onnx.proto as the graphs of onnxruntime-web.js need.

const FLOAT = 1;
const INT32 = 6;
const INT64 = 7;
/** kinds of attributes: FLOAT, INT, STRING, INTS */
const KINDS = { f: 1, i: 2, s: 3, ints: 7 };

function varint(value) {
  const bytes = [];
  let rest = BigInt.asUintN(64, BigInt(value));
  for (; rest > 127n; rest >>= 7n) bytes.push(Number(rest & 127n) | 128);
  return [...bytes, Number(rest)];
}

const whole = (field, value) => [...varint(field << 3), ...varint(value)];
const bytes = (field, value) => [...varint((field << 3) | 2), ...varint(value.length), ...value];
const text = (field, value) => bytes(field, new TextEncoder().encode(value));
const real = (field, value) => [...varint((field << 3) | 5), ...new Uint8Array(new Float32Array([value]).buffer)];

/** name, type and shape of an input; of an output the shape is left to be found */
function valueInfo(name, type, shape) {
  const dimensions = shape?.flatMap((size) => bytes(1, whole(1, size)));
  const tensor = [...whole(1, type), ...(dimensions ? bytes(2, dimensions) : [])];
  return [...text(1, name), ...bytes(2, bytes(1, tensor))];
}

function attribute(name, value) {
  const kind = Array.isArray(value) ? "ints" : typeof value === "string" ? "s" : value instanceof Real ? "f" : "i";
  const fields = {
    ints: () => value.flatMap((each) => whole(8, each)),
    s: () => text(4, value),
    f: () => real(2, value.value),
    i: () => whole(3, value),
  };
  return [...text(1, name), ...fields[kind](), ...whole(20, KINDS[kind])];
}

/** An attribute that is no whole number, even if it looks like one. */
export class Real {
  constructor(value) {
    this.value = value;
  }
}

const typeOf = (data) => (data instanceof Int32Array ? INT32 : FLOAT);

/**
 * A graph: tensors are their names. What `weights` has is part of the model, in files beside it; other inputs are given with each run.
 */
export class Graph {
  constructor(inputs) {
    this.inputs = inputs;
    this.nodes = [];
    this.initializers = [];
    this.given = [];
    this.files = [];
    this.count = 0;
  }

  /** An input of each run. */
  input(name) {
    const { shape, data } = this.inputs[name];
    this.given.push(valueInfo(name, typeOf(data), shape));
    return name;
  }

  /** A constant, with the data of an input. */
  weight(name, { shape, data } = this.inputs[name]) {
    const entry = (key, value) => bytes(13, [...text(1, key), ...text(2, value)]);
    const where = [...entry("location", name), ...entry("offset", "0"), ...entry("length", `${data.byteLength}`)];
    const dimensions = shape.flatMap((size) => whole(1, size));
    this.initializers.push([...dimensions, ...whole(2, typeOf(data)), ...text(8, name), ...where, ...whole(14, 1)]);
    this.files.push({ path: name, data: new Uint8Array(data.buffer, data.byteOffset, data.byteLength) });
    return name;
  }

  /** A small constant of its own: whole numbers in a list, or one number. */
  constant(value) {
    const name = `constant${this.count++}`;
    const list = Array.isArray(value);
    const raw = list ? new BigInt64Array(value.map(BigInt)) : new Float32Array([value]);
    const dimensions = list ? whole(1, value.length) : [];
    const data = bytes(9, new Uint8Array(raw.buffer));
    this.initializers.push([...dimensions, ...whole(2, list ? INT64 : FLOAT), ...text(8, name), ...data]);
    return name;
  }

  /** A node with one output, or with `outputs` of them. */
  node(kind, inputs, attributes = {}, { outputs, domain = "" } = {}) {
    const names = Array.from({ length: outputs ?? 1 }, () => `value${this.count++}`);
    this.nodes.push([
      ...inputs.flatMap((name) => text(1, name)),
      ...names.flatMap((name) => text(2, name)),
      ...text(3, names[0]),
      ...text(4, kind),
      ...Object.entries(attributes).flatMap(([name, value]) => bytes(5, attribute(name, value))),
      ...text(7, domain),
    ]);
    return outputs ? names : names[0];
  }

  /** The model, whose output is `output`, of floats. */
  model(output) {
    const graph = [
      ...this.nodes.flatMap((each) => bytes(1, each)),
      ...text(2, "step"),
      ...this.initializers.flatMap((each) => bytes(5, each)),
      ...this.given.flatMap((each) => bytes(11, each)),
      ...bytes(12, valueInfo(output, FLOAT)),
    ];
    const opset = (domain, version) => bytes(8, [...text(1, domain), ...whole(2, version)]);
    return new Uint8Array([...whole(1, 10), ...bytes(7, graph), ...opset("", 21), ...opset("com.microsoft", 1)]);
  }
}

/** Where graphs come from: bytes that a guest has, models that the page names, and a compiler for what is no plan yet. */

import { asNNError, fail, NNError } from "./errno";
import { checkedFormat, type Format, formatOf, safetensorsHeader } from "./formats";
import type { Graph, Graphs, Outputs, TensorInfo, Wanted } from "./graph";
import { LateGraph } from "./late";
import { convert, type Dtype, type HostTensor, isDtype } from "./tensor-types";

export type Bytes = Uint8Array<ArrayBuffer>;
/** A URL (or a path, in Node), a file, or bytes */
export type ModelSource = string | URL | Blob | ArrayBuffer | Uint8Array;
export type DeviceChoice = "auto" | "webgpu" | "cpu";

/** What a plan is to be made of. inputs: as a guest has set them; null: as the model says itself. */
export interface CompileRequest {
  bytes: Bytes;
  format: Format;
  /** as what the plan is to have it */
  method: string;
  inputs: readonly { dtype: Dtype; shape: readonly number[] }[] | null;
}
/** A plan; or, where no inputs were given and the model does not say what they are, as much as is known of them. */
export type Compiled = { plan: Bytes } | { inputs: readonly { name: string; dtype: Dtype | null }[] };

/** Makes plans of models in other formats: see compiler.ts. Errors: NNError, or others, which are invalid_encoding. */
export interface Compile {
  (request: CompileRequest): Promise<Compiled>;
  /** what it is made again of on another thread; without it the function cannot go there */
  readonly settings?: unknown;
}

/** A tensor of the package, as far as it is used here. */
export interface PlanTensor {
  readonly dtype: string;
  readonly shape: readonly number[];
  bytes(): Promise<Bytes>;
  dispose(): void;
}

/** A loaded plan, as far as it is used here. */
export interface Plan {
  readonly device: string;
  readonly methods: Readonly<Record<string, { readonly inputs: readonly PlanInput[] }>>;
  run(method: string, inputs: readonly HostTensor[]): Promise<PlanTensor[]>;
  dispose(): void;
}
export interface PlanInput {
  readonly name: string;
  readonly dtype: string;
  readonly shape: readonly (number | string)[];
}

export interface PlanOptions {
  device: DeviceChoice;
  weights?: Bytes;
}
export interface PlanReader {
  load(source: ModelSource, options: PlanOptions): Promise<Plan>;
  /** the whole of a model's bytes */
  read(source: ModelSource): Promise<Bytes>;
}

export interface ModelOptions {
  /** models that a guest can load by name */
  models: Readonly<Record<string, ModelSource>>;
  /** "guest": the one that the guest asks for */
  device: DeviceChoice | "guest";
  /** which method of a plan is computed; default: `forward`, `predict`, or the only one */
  method: string | null;
  compile: Compile | null;
}

export class Models implements Graphs {
  constructor(
    private readonly reader: PlanReader,
    private readonly options: ModelOptions,
  ) {}

  async fromBytes(parts: readonly Bytes[], encoding: number, wanted: Wanted): Promise<Graph> {
    const { model, weights } = joined(parts);
    return this.open(model, checkedFormat(model, encoding), wanted, weights);
  }

  async fromName(name: string, wanted: Wanted): Promise<Graph> {
    if (!Object.hasOwn(this.options.models, name)) fail("notFound", `there is no model named ${JSON.stringify(name)}`);
    const source = this.options.models[name] as ModelSource;
    if (typeof source === "string" || source instanceof URL) {
      // A plan goes from the network to the device piece by piece, and is never in memory whole
      if (/\.safetensors$/i.test(new URL(String(source), "file:///").pathname)) return this.plan(source, wanted);
    }
    const bytes = await this.reader.read(source).catch((error) => fail("notFound", asNNError(error).message));
    return this.open(bytes, checkedFormat(bytes, AUTODETECT), wanted, null);
  }

  private async open(bytes: Bytes, format: Format, wanted: Wanted, weights: Bytes | null): Promise<Graph> {
    if (format === "plan") return this.plan(bytes, wanted, weights);
    const { compile } = this.options;
    if (format === "gguf")
      fail(
        "invalidEncoding",
        "a GGUF file has weights and tokens, and no program to be planned: Python's tabtorch.gguf reads it",
      );
    if (!compile)
      fail(
        "invalidEncoding",
        `the model is ${format}, which Python makes a plan of: give wasiNN the option \`compile\``,
      );
    const method = wanted.method ?? this.options.method ?? "forward";
    const compiled = async (inputs: CompileRequest["inputs"]): Promise<Compiled> => {
      try {
        return await compile({ bytes, format, method, inputs });
      } catch (error) {
        throw error instanceof NNError ? error : new NNError("invalidEncoding", asNNError(error).message);
      }
    };
    const whole = (made: Compiled): Promise<Graph> => {
      if (!("plan" in made) || formatOf(made.plan) !== "plan")
        fail("runtimeError", "what `compile` gave is not a plan");
      return this.plan(made.plan, wanted);
    };
    const first = await compiled(null);
    if ("plan" in first) return whole(first);
    const infos = first.inputs.map(({ name, dtype }) => {
      if (dtype !== null && !isDtype(dtype))
        fail("unsupportedOperation", `input ${name} is ${dtype}, which wasi-nn has not`);
      return { name, dtype, shape: null };
    });
    return new LateGraph(infos, async (inputs) => {
      const given = inputs.map(({ dtype, shape }) => ({ dtype, shape: [...shape] }));
      const made = await compiled(given).catch((error) => {
        // The bytes are a model, and these shapes are not for it
        const known = asNNError(error);
        throw known.code === "invalidEncoding" ? new NNError("runtimeError", known.message) : known;
      });
      return whole(made);
    });
  }

  private async plan(source: ModelSource, wanted: Wanted, weights: Bytes | null = null): Promise<Graph> {
    let plan: Plan;
    try {
      plan = await this.reader.load(source, { device: this.device(wanted.target), ...(weights && { weights }) });
    } catch (error) {
      // What the file says is wrong with it, as against what the device or the network says
      const { name, message } = error as Error;
      throw new NNError(name === "FileError" ? "invalidEncoding" : "runtimeError", message);
    }
    try {
      return new PlanGraph(plan, this.method(plan, wanted));
    } catch (error) {
      plan.dispose();
      throw error;
    }
  }

  private device(target: number | null): DeviceChoice {
    if (this.options.device !== "guest") return this.options.device;
    return target === 0 ? "cpu" : target === 1 ? "webgpu" : "auto";
  }

  private method(plan: Plan, wanted: Wanted): string {
    const names = Object.keys(plan.methods);
    const asked = wanted.method ?? this.options.method;
    if (asked !== null) {
      if (names.includes(asked)) return asked;
      fail("invalidArgument", `the plan has no method ${JSON.stringify(asked)}: it has ${names.join(", ")}`);
    }
    const [only] = names;
    const usual = ["forward", "predict"].find((name) => names.includes(name));
    if (usual) return usual;
    if (names.length === 1 && only) return only;
    fail("invalidArgument", `the plan has the methods ${names.join(", ")}: say which (wasiNN's option \`method\`)`);
  }
}

const AUTODETECT = 5;

/** A guest's parts: pieces of one file, or a plan and another file of weights for it. */
function joined(parts: readonly Bytes[]): { model: Bytes; weights: Bytes | null } {
  const [first, second, ...more] = parts.filter((part) => part.length > 0);
  if (!first) fail("invalidEncoding", "the model has no bytes");
  if (!second) return { model: first, weights: null };
  if (more.length === 0 && safetensorsHeader(first)?.nbytes === first.length) {
    const other = safetensorsHeader(second);
    if (other?.nbytes === second.length) return { model: first, weights: second };
  }
  return { model: joinedBytes([first, second, ...more]), weights: null };
}

function joinedBytes(parts: readonly Bytes[]): Bytes {
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** A method of a plan. */
class PlanGraph implements Graph {
  readonly inputs: readonly TensorInfo[];

  constructor(
    private readonly plan: Plan,
    private readonly method: string,
  ) {
    this.inputs = (plan.methods[method]?.inputs ?? []).map(({ name, dtype, shape }) => {
      if (!isDtype(dtype)) fail("unsupportedOperation", `input ${name} is ${dtype}, which wasi-nn has no type for`);
      return { name, dtype, shape };
    });
  }

  async compute(inputs: readonly HostTensor[]): Promise<Outputs> {
    const results = await this.plan.run(this.method, inputs);
    return {
      count: results.length,
      read: (index) => outputOf(results[index] as PlanTensor, index),
      dispose: () => {
        for (const result of results) result.dispose();
      },
    };
  }

  dispose(): void {
    this.plan.dispose();
  }
}

/** As a guest gets it: brain floats, which have no number, as the float32 that they are the beginning of. */
async function outputOf(tensor: PlanTensor, index: number): Promise<HostTensor> {
  const { dtype, shape } = tensor;
  if (!isDtype(dtype)) fail("unsupportedOperation", `output ${index} is ${dtype}, which wasi-nn has no type for`);
  const bytes = await tensor.bytes();
  if (dtype === "bfloat16") return { dtype: "float32", shape, bytes: convert(bytes, dtype, "float32") };
  return { dtype, shape, bytes };
}

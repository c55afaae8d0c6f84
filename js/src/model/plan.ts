/** The plan of a file: its form (docs/plan-files.md says what each key means), and the checks that everything in it can be run. */

import type { KernelSpec, PlanSpec } from "../protocol";
import { type DType, dtypeOf } from "./dtypes";
import { check, FileError } from "./errors";
import { Recipe, type RecipeSpec } from "./recipe";

export const KEY = "tabtorch.plan";
const VERSION = 1;
/** levels of a tree, temporaries of a template, sizes that a template hangs on, at most */
const DEEPEST = 100;
const MOST_TEMPORARIES = 1 << 14;
const MOST_SIZES = 1 << 16;

export type Source = [kind: string, number: number | string, slot?: number];
export type Tree = Record<string, unknown>;

export interface TemplateSpec {
  plan: PlanSpec & { temps: number[]; places: number[]; scalars: string[]; work: number };
  recipe: RecipeSpec;
  lives: [first: number, last: number][];
  apart: number[][];
}

export interface PlaceSpec {
  nbytes: number;
  parts: [tensor: string, offset: number][];
  window?: [place: number, offset: number];
  log?: unknown;
}

export interface RunSpec {
  template: number;
  values: number[];
  inputs: Source[];
  scalars: [first: number, count: number];
}

export interface VariantSpec {
  sizes: RecipeSpec;
  numbers: RecipeSpec;
  words: number[];
  ahead: ({ draw: RunSpec } | { copy: Source; device: number; nbytes: number })[];
  plans: RunSpec[];
  after: number[];
  rebinds: [Source, number][];
  written: number[];
  outputs: { source: Source; dtype: DType; shape: number[] }[];
  tree: Tree;
  tree_sizes: number[];
}

export interface InputSpec {
  readonly name: string;
  readonly dtype: DType;
  readonly shape: readonly (number | string)[];
}

export interface MethodSpec {
  inputs: InputSpec[];
  tree: { dict: Record<string, Tree> };
  variants: Record<string, VariantSpec[]>;
}

export type GeneratorSpec = { philox: { seed: string; offset: string } } | { mt19937: string };

export interface PlanFile {
  version: number;
  dims: Record<string, { min: number; max: number | null }>;
  numbers: Record<string, number>;
  generators: GeneratorSpec[];
  aliases?: Record<string, string>;
  requires?: { webgpu?: Record<string, number> };
  asserts: Record<string, [text: string, below: string, where: string]>;
  kernels: Record<string, KernelSpec[]>;
  templates: Record<string, TemplateSpec[]>;
  state: Record<string, PlaceSpec[]>;
  methods: Record<string, MethodSpec>;
}

/** A variant with its recipes, which are checked. */
export interface Variant {
  spec: VariantSpec;
  sizes: Recipe;
  numbers: Recipe;
}

/** What of a plan is for one device. */
export interface Checked {
  kernels: KernelSpec[];
  templates: { spec: TemplateSpec; recipe: Recipe }[];
  places: PlaceSpec[];
  variants: Record<string, Variant[]>;
}

/** The plan in a file's metadata. FileError where there is none, or one of a later version. */
export function parsePlan(text: string | undefined): PlanFile {
  if (text === undefined)
    throw new FileError("this safetensors file has no plan: Python's tabtorch.plan_files.save writes one");
  let plan: PlanFile;
  try {
    plan = JSON.parse(text);
  } catch {
    throw new FileError("this plan file is damaged: its plan is no JSON");
  }
  object(plan, "the plan");
  if (plan.version > VERSION)
    throw new FileError(`the file is of version ${plan.version}, and this tabtorch reads up to ${VERSION}: update it`);
  check(plan.version === VERSION, "its version");
  for (const key of ["dims", "numbers", "kernels", "templates", "state", "methods", "asserts"] as const)
    object(plan[key], key);
  return plan;
}

function object(x: unknown, what: string): asserts x is Record<string, unknown> {
  check(typeof x === "object" && x !== null && !Array.isArray(x), `${what} is no object`);
}

function list(x: unknown, what: string): asserts x is unknown[] {
  check(Array.isArray(x), `${what} is no list`);
}

function whole(x: unknown, below: number, what: string): asserts x is number {
  check(Number.isSafeInteger(x) && (x as number) >= 0 && (x as number) < below, what);
}

const LARGEST = Number.MAX_SAFE_INTEGER;
const SCALARS = ["f32", "f64", "i32", "u32", "i64"];
const TYPES = [...SCALARS, "u8", "i8", "i16", "u16"];

function checkKernel(k: KernelSpec, limit: number): void {
  object(k, "a kernel");
  check(typeof k.name === "string" && typeof k.source === "string", "a kernel without text");
  whole(k.device, limit, "a kernel's device");
  list(k.bindings, "bindings");
  for (const b of k.bindings) {
    object(b, "a binding");
    // WGSL's types are for its compiler to look at
    check(
      (k.device === 0 || TYPES.includes(b.type as string)) && ["r", "rw"].includes(b.access as string),
      "a binding",
    );
  }
  object(k.constants ?? {}, "constants");
}

function checkTemplate(t: TemplateSpec, kernels: KernelSpec[]): Recipe {
  object(t, "a template");
  const { plan, lives, apart } = t;
  object(plan, "a plan");
  whole(plan.slots, 1 << 20, "slots");
  whole(plan.device, 2, "a plan's device");
  list(lives, "lives");
  list(apart, "apart");
  list(plan.scalars, "scalars");
  list(plan.steps, "steps");
  list(plan.temps, "temps");
  list(plan.places, "places");
  object(plan.outputs, "outputs");
  check(typeof plan.name === "string" && typeof plan.work === "number", "a plan");
  check(lives.length <= MOST_TEMPORARIES && apart.length === lives.length, "temporaries");
  check(plan.places.length === 3 * lives.length, "temporaries");
  let before = 0;
  lives.forEach((life, i) => {
    list(life, "a life");
    const [first, last] = life as unknown[];
    whole(last, Math.max(1, plan.steps.length), "a life");
    whole(first, last + 1, "a life");
    check(first >= before, "lives are out of order");
    before = first;
    list(apart[i], "apart");
    for (const j of apart[i] as unknown[]) whole(j, lives.length, "apart");
  });
  check(
    plan.scalars.every((x) => SCALARS.includes(x as string)),
    "a scalar",
  );
  const every = plan.slots + lives.length;
  let count = 0;
  for (const step of plan.steps as unknown as Record<string, unknown>[]) {
    object(step, "a step");
    if ("kernel" in step) {
      whole(step.kernel, kernels.length, "a kernel's number");
      const kernel = kernels[step.kernel] as KernelSpec;
      check(kernel.device === plan.device, "a kernel of another device");
      for (const key of ["bind", "words", "patch", "grid"]) list(step[key], key);
      const { bind, words, patch, grid } = step as Record<string, unknown[]> as {
        [key in "bind" | "words" | "patch" | "grid"]: unknown[];
      };
      check(bind.length === kernel.bindings.length && grid.length === 3, "a step binds otherwise");
      for (const slot of bind) whole(slot, every, "a slot");
      for (const p of patch) {
        list(p, "a patch");
        const wide = p[2] === "f64" || p[2] === "i64";
        whole(p[0], words.length - (wide ? 1 : 0), "a patch");
        whole(p[1], plan.scalars.length, "a patch");
        check(p.length === 3 && SCALARS.includes(p[2] as string), "a patch");
      }
      count += words.length + 3;
    } else {
      const slots = step.copy ?? step.clear;
      list(slots, "a step");
      check(slots.length === ("copy" in step ? 3 : 1), "a step");
      for (const slot of slots.slice(0, 2)) whole(slot, every, "a slot");
      count += "copy" in step ? 1 : 0;
    }
  }
  for (const slot of Object.keys(plan.outputs))
    check(String(Number(slot)) === slot && Number(slot) < plan.slots, "an output");
  const recipe = new Recipe(t.recipe, { s: MOST_SIZES }, "a template's recipe");
  check(recipe.count === count + Object.keys(plan.outputs).length + lives.length, "a template has other numbers");
  return recipe;
}

/** Checks all that is for `device`. tensors: bytes of those in the file, by name. */
export function checkPlan(plan: PlanFile, device: "webgpu" | "cpu", tensors: Map<string, { nbytes: number }>): Checked {
  const { dims, numbers, generators, asserts } = plan;
  for (const d of Object.values(dims)) {
    object(d, "a dim");
    check(Number.isSafeInteger(d.min) && (d.max === null || Number.isSafeInteger(d.max)), "the bounds of a dim");
  }
  for (const [name, x] of Object.entries(numbers)) check(typeof x === "number", `the number ${name}`);
  list(generators, "generators");
  for (const g of generators) {
    object(g, "a generator");
    if ("philox" in g) {
      object(g.philox, "a generator");
      for (const x of [g.philox.seed, g.philox.offset])
        check(typeof x === "string" && /^\d{1,20}$/.test(x) && BigInt(x) < 1n << 64n, "a generator");
    } else check(tensors.get((g as { mt19937: string }).mt19937)?.nbytes === 4 * 634, "a generator has no state");
  }
  for (const a of Object.values(asserts)) {
    list(a, "an assert");
    check(a.length === 3 && a.every((x) => typeof x === "string"), "an assert");
  }
  const kernels = plan.kernels[device];
  const specs = plan.templates[device];
  const places = plan.state[device];
  list(kernels, `plans for ${device}`);
  list(specs, `plans for ${device}`);
  list(places, `plans for ${device}`);
  for (const k of kernels) checkKernel(k, 2);
  const templates = specs.map((spec) => ({ spec, recipe: checkTemplate(spec, kernels) }));
  for (const p of places) {
    object(p, "a place");
    whole(p.nbytes, LARGEST, "a place's size");
    list(p.parts, "parts");
    if (p.window !== undefined) {
      list(p.window, "a window");
      const [base, offset] = p.window as unknown[];
      whole(base, places.length, "a window");
      whole(offset, LARGEST, "a window");
      const whom = places[base] as PlaceSpec;
      check(whom.window === undefined && offset % 256 === 0 && offset + p.nbytes <= whom.nbytes, "a window");
    }
    for (const part of p.parts as unknown[]) {
      list(part, "a part");
      const has = tensors.get(part[0] as string);
      check(has !== undefined, `there is no tensor ${part[0]}`);
      whole(part[1], LARGEST, "a part");
      check(part[1] + has.nbytes <= p.nbytes, `${part[0]} lies outside of its memory`);
    }
  }
  const found: Checked = { kernels, templates, places, variants: {} };
  for (const [name, m] of Object.entries(plan.methods)) {
    object(m, "a method");
    list(m.inputs, "inputs");
    for (const i of m.inputs as InputSpec[]) {
      object(i, "an input");
      dtypeOf(i.dtype, `input ${i.name}`);
      check(typeof i.name === "string", "an input's name");
      list(i.shape, "a shape");
      for (const d of i.shape)
        if (typeof d === "string") check(Object.hasOwn(dims, d), `there is no dim ${d}`);
        else whole(d, LARGEST, "a shape");
    }
    checkTree(m.tree, m.inputs.length, 0, 0);
    object((m.tree as Tree).dict, "the inputs of a method");
    object(m.variants, "variants");
    list(m.variants[device], `plans for ${device}`);
    const variants = m.variants[device] as VariantSpec[];
    found.variants[name] = variants.map((v) => checkVariant(plan, found, v, m.inputs.length, tensors));
  }
  return found;
}

function checkTree(t: unknown, tensors: number, sizes: number, deep: number): void {
  object(t, "a tree");
  check(deep < DEEPEST && Object.keys(t).length === 1, "a tree");
  const [[kind, x]] = Object.entries(t) as [[string, unknown]];
  if (kind === "tensor") whole(x, tensors, "a tree");
  else if (kind === "size") whole(x, sizes, "a tree");
  else if (kind === "list" || kind === "tuple") {
    list(x, "a tree");
    for (const y of x) checkTree(y, tensors, sizes, deep + 1);
  } else if (kind === "dict") {
    object(x, "a tree");
    for (const y of Object.values(x)) checkTree(y, tensors, sizes, deep + 1);
  } else check(kind === "value" && (x === null || typeof x !== "object"), "a tree");
}

function checkVariant(
  plan: PlanFile,
  { templates, places }: Checked,
  v: VariantSpec,
  inputs: number,
  tensors: Map<string, unknown>,
): Variant {
  object(v, "a variant");
  for (const key of ["words", "ahead", "plans", "after", "rebinds", "written", "outputs", "tree_sizes"] as const)
    list(v[key], key);
  const { generators } = plan;
  for (const k of v.words) {
    whole(k, generators.length, "a generator's number");
    check("philox" in (generators[k] as object), "words of no Philox generator");
  }
  const dims = Object.keys(plan.dims).length;
  const numbers = Object.keys(plan.numbers).length;
  const sizes = new Recipe(v.sizes, { s: dims }, "a variant's sizes");
  const given = { s: dims, v: numbers, r: v.words.map(() => 4) };
  const live = new Recipe(v.numbers, given, "a variant's numbers");
  check(v.after.length <= live.count, "numbers after");
  for (const k of v.after) whole(k, numbers, "numbers after");
  const source = (x: unknown, counts: Record<string, number>, before: RunSpec[]) => {
    list(x, "a source");
    const [kind, k, slot] = x as Source;
    if (kind === "constant") return check(tensors.has(k as string), "a constant");
    if (kind === "new") {
      whole(k, before.length, "a source");
      const { outputs } = (templates[(before[k] as RunSpec).template] as { spec: TemplateSpec }).spec.plan;
      return check(Object.hasOwn(outputs, String(slot)), "a source is no output");
    }
    check(Object.hasOwn(counts, kind), "a source");
    whole(k, counts[kind] as number, "a source");
  };
  const run = (p: RunSpec, counts: Record<string, number>, before: RunSpec[]) => {
    object(p, "a plan");
    whole(p.template, templates.length, "a template's number");
    const { spec } = templates[p.template] as { spec: TemplateSpec };
    const { slots, outputs, scalars } = spec.plan;
    list(p.values, "values");
    for (const k of p.values) whole(k, sizes.count, "a value");
    const most = spec.recipe.steps.reduce((n, [op, a]) => (op === "s" ? Math.max(n, (a as number) + 1) : n), 0);
    check(p.values.length >= most, "a template is given too few numbers");
    list(p.inputs, "inputs");
    check(p.inputs.length + Object.keys(outputs).length === slots, "a plan binds otherwise");
    for (const slot of Object.keys(outputs)) check(Number(slot) >= p.inputs.length, "an output's slot");
    for (const x of p.inputs) source(x, counts, before);
    list(p.scalars, "scalars");
    const [first, count] = p.scalars as unknown[];
    whole(count, LARGEST, "scalars");
    whole(first, live.count + 1, "scalars");
    check(count === scalars.length && first + count <= live.count, "a plan has other scalars");
  };
  const counts: Record<string, number> = { state: places.length, input: inputs, ahead: 0 };
  v.ahead.forEach((a, k) => {
    counts.ahead = k;
    object(a, "what is done ahead");
    if ("draw" in a) {
      const draw = a.draw as RunSpec;
      run(draw, { ...counts, generator: generators.length }, []);
      check(Object.keys((templates[draw.template] as { spec: TemplateSpec }).spec.plan.outputs).length === 1, "a draw");
      for (const [kind, g] of draw.inputs)
        check(kind !== "generator" || "mt19937" in (generators[g as number] as object), "a draw of no such generator");
    } else {
      const copy = a as { copy: Source; device: number; nbytes: number };
      whole(copy.device, 2, "a copy");
      whole(copy.nbytes, sizes.count, "a copy");
      source(copy.copy, counts, []);
    }
  });
  counts.ahead = v.ahead.length;
  v.plans.forEach((p, k) => {
    run(p, counts, v.plans.slice(0, k));
  });
  for (const b of v.rebinds) {
    list(b, "a rebinding");
    source(b[0], { state: places.length, input: inputs }, []);
    check(["state", "input"].includes((b[0] as Source)[0]), "a rebinding");
    whole(b[1], v.ahead.length, "a rebinding");
  }
  for (const k of v.written) whole(k, inputs, "an input that is written");
  for (const o of v.outputs) {
    object(o, "an output");
    dtypeOf(o.dtype, "an output");
    source(o.source, counts, v.plans);
    list(o.shape, "a shape");
    for (const n of o.shape) whole(n, sizes.count, "a shape");
  }
  for (const n of v.tree_sizes) whole(n, sizes.count, "a size");
  checkTree(v.tree, v.outputs.length, v.tree_sizes.length, 0);
  return { spec: v, sizes, numbers: live };
}

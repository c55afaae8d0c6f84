/**
 * Parameter blocks of a plan: one template with the words of all its dispatches, and the patches
 * that a RUN writes over it. Both devices share it.
 */

import type { DispatchSpec, PatchType, PlanSpec, StepSpec } from "./protocol";

// What a patch does, by the type of its scalar (f64 or i64 in the block) and of its words.
const F64_TO_F32 = 0;
const F64_TO_INT = 1;
const F64_TO_I64 = 2;
const I64_TO_F32 = 3;
const I64_TO_F64 = 4;
const COPY_1 = 5;
const COPY_2 = 6;

const FROM_F64: Record<PatchType, number> = {
  f32: F64_TO_F32,
  i32: F64_TO_INT,
  u32: F64_TO_INT,
  f64: COPY_2,
  i64: F64_TO_I64,
};
const FROM_I64: Record<PatchType, number> = {
  f32: I64_TO_F32,
  i32: COPY_1,
  u32: COPY_1,
  f64: I64_TO_F64,
  i64: COPY_2,
};

export const isDispatch = (step: StepSpec): step is DispatchSpec => "kernel" in step;

const scratch = new DataView(new ArrayBuffer(8));

/** For each slot, whether a step binds it, or it is an output: a value that nobody needs may come from one that is not there. */
export function neededSlots(spec: PlanSpec): boolean[] {
  const needed: boolean[] = new Array(spec.slots).fill(false);
  for (const slot of Object.keys(spec.outputs)) needed[Number(slot)] = true;
  for (const step of spec.steps) {
    const slots = isDispatch(step) ? step.bind : "copy" in step ? step.copy.slice(0, 2) : step.clear;
    for (const slot of slots) if (slot < spec.slots) needed[slot] = true;
  }
  return needed;
}

export class ParamTemplate {
  readonly words: Uint32Array<ArrayBuffer>;
  /** byte offset of each step's words; 0 for a step that is no dispatch */
  readonly offsets: number[];
  /** triples: word, scalar, what to do */
  private readonly patches: Int32Array;

  /** like: that of a plan which differs from this one in numbers alone. */
  constructor(steps: StepSpec[], scalars: string[], alignment: number, like?: ParamTemplate) {
    if (like !== undefined) {
      this.offsets = like.offsets;
      this.patches = like.patches;
      this.words = new Uint32Array(like.words.length);
      this.fill(steps);
      return;
    }
    const patches: number[] = [];
    this.offsets = [];
    let size = 0;
    for (const step of steps) {
      this.offsets.push(size);
      if (!isDispatch(step)) continue;
      for (const [word, scalar, type] of step.patch ?? []) {
        const code = (scalars[scalar] === "i64" ? FROM_I64 : FROM_F64)[type];
        const width = type === "i64" || type === "f64" ? 2 : 1;
        if (code === undefined || scalar >= scalars.length || word + width > step.words.length)
          throw new Error(`bad patch [${word}, ${scalar}, ${type}] in ${step.label ?? "a step"}`);
        patches.push(size / 4 + word, scalar, code);
      }
      size += Math.ceil((step.words.length * 4) / alignment) * alignment;
    }
    this.patches = Int32Array.from(patches);
    this.words = new Uint32Array(size / 4);
    this.fill(steps);
  }

  private fill(steps: StepSpec[]): void {
    for (let i = 0; i < steps.length; i++) {
      const step = steps[i] as StepSpec;
      if (isDispatch(step)) this.words.set(step.words, (this.offsets[i] as number) / 4);
    }
  }

  /**
   * Writes the scalars over a copy of the template that starts at word `base` of `words`
   * (`floats`: the same memory). Scalar k lies in `source` at word `first + 2 k`.
   */
  patch(
    words: Uint32Array,
    floats: Float32Array,
    base: number,
    source: Uint32Array,
    doubles: Float64Array,
    first: number,
  ): void {
    const { patches } = this;
    for (let i = 0; i < patches.length; i += 3) {
      const at = base + (patches[i] as number);
      const from = first + 2 * (patches[i + 1] as number);
      switch (patches[i + 2]) {
        case F64_TO_F32:
          floats[at] = doubles[from >> 1] as number;
          break;
        case F64_TO_INT:
          words[at] = doubles[from >> 1] as number;
          break;
        case COPY_1:
          words[at] = source[from] as number;
          break;
        case COPY_2:
          words[at] = source[from] as number;
          words[at + 1] = source[from + 1] as number;
          break;
        case F64_TO_I64: {
          const value = Math.trunc(doubles[from >> 1] as number);
          scratch.setBigInt64(0, Number.isFinite(value) ? BigInt(value) : 0n, true);
          words[at] = scratch.getUint32(0, true);
          words[at + 1] = scratch.getUint32(4, true);
          break;
        }
        default: {
          const value = BigInt.asIntN(64, (BigInt(source[from + 1] as number) << 32n) | BigInt(source[from] as number));
          if (patches[i + 2] === I64_TO_F32) {
            floats[at] = Number(value);
          } else {
            scratch.setFloat64(0, Number(value), true);
            words[at] = scratch.getUint32(0, true);
            words[at + 1] = scratch.getUint32(4, true);
          }
        }
      }
    }
  }
}

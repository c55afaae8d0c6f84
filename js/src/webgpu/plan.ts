/** A plan made ready for the GPU: pipelines, parameter template, size classes, and what the last RUN bound. */

import { placesOf } from "../binding";
import type { Plan } from "../device";
import { isDispatch, neededSlots, ParamTemplate } from "../params";
import type { DispatchSpec, PlanSpec } from "../protocol";
import { sizeClass } from "../sizes";
import type { Layout } from "./bindgroups";
import { type Block, Handle } from "./buffers";
import type { Kernel, Pipeline, Pipelines } from "./pipelines";

export interface Dispatch {
  kind: "dispatch";
  kernel: Kernel;
  /** null while it is being made */
  pipeline: Pipeline | null;
  layout: Layout;
  bind: number[];
  /** byte offset of its parameters in the template */
  params: number;
  x: number;
  y: number;
  z: number;
  label: string;
  /** the bind group of the last RUN, and the keys of the handles it binds */
  group: GPUBindGroup | null;
  keys: number[];
}

export type Step =
  | Dispatch
  | { kind: "copy"; src: number; dst: number; nbytes: number }
  | { kind: "clear"; slot: number };

export interface Output {
  slot: number;
  nbytes: number;
  classIndex: number;
  /** the blocks of the last two RUNs, taken again where free */
  last: Block | undefined;
  before: Block | undefined;
}

/** A piece of memory for temporaries, taken from the pool for each RUN. */
export interface Piece {
  nbytes: number;
  classIndex: number;
  last: Block | undefined;
}

/** A temporary's place in a piece, and the handle of that in the block which the piece had last. */
export interface Temp {
  piece: number;
  begin: number;
  nbytes: number;
  handle: Handle | undefined;
}

export class GpuPlan implements Plan {
  readonly steps: Step[];
  readonly outputs: Output[];
  readonly pieces: Piece[];
  readonly temps: Temp[];
  readonly kernels: Kernel[];
  readonly params: ParamTemplate;
  /** what the RUN at hand binds, slots and then temps, and the keys of that */
  readonly bound: (Handle | undefined)[];
  readonly keys: number[];
  /** whether it binds just what the RUN before did */
  same = false;
  /** the states of what it binds, together */
  state = 0;
  /** whether it ran, so that only what is new to it can be wrong */
  ran = false;
  /** how many pieces it has taken from the pool */
  leased = 0;
  readonly dispatches: number;
  /** pipelines that have to be there before it runs; shared by those that are alike */
  private readonly making: { pipelines: Promise<void>[]; done: Promise<void> | null; runs: number };
  /** the slots that a step binds: what lies in the others need not be there */
  readonly needed: boolean[];

  constructor(
    readonly spec: PlanSpec,
    kernelOf: (id: number) => Kernel,
    pipelines: Pipelines,
    private readonly alignment: number,
    private readonly limits: GPUSupportedLimits,
    /** whether pipelines are made beside others and beside Python, and not one after the other */
    private readonly sideBySide: boolean,
    /** a plan of the same steps, of which this one differs in numbers alone */
    like?: GpuPlan,
  ) {
    this.making = like?.making ?? { pipelines: [], done: null, runs: 0 };
    this.params = new ParamTemplate(spec.steps, spec.scalars ?? [], alignment, like?.params);
    this.outputs = Object.entries(spec.outputs).map(([slot, nbytes]) => ({
      slot: Number(slot),
      nbytes,
      classIndex: sizeClass(nbytes),
      last: undefined,
      before: undefined,
    }));
    this.pieces = (spec.temps ?? []).map((nbytes) => ({ nbytes, classIndex: sizeClass(nbytes), last: undefined }));
    this.temps = placesOf(spec).map((place) => ({ ...place, handle: undefined }));
    const total = spec.slots + this.temps.length;
    this.bound = new Array(total).fill(undefined);
    this.keys = new Array(total).fill(0);
    this.kernels = like?.kernels ?? [];
    this.steps = spec.steps.map((step, i): Step => {
      if (isDispatch(step)) {
        if (like !== undefined) return this.dispatchLike(like.steps[i] as Dispatch, step);
        return this.dispatch(step, this.params.offsets[i] as number, kernelOf, pipelines);
      }
      if ("copy" in step) return { kind: "copy", src: step.copy[0], dst: step.copy[1], nbytes: step.copy[2] };
      return { kind: "clear", slot: step.clear[0] };
    });
    this.needed = like?.needed ?? neededSlots(spec);
    this.dispatches = this.steps.filter((step) => step.kind === "dispatch").length;
    const { making } = this;
    if (making.pipelines.length > 0) {
      making.done = Promise.all(making.pipelines).then(() => {
        making.done = null;
      });
      making.pipelines = [];
    }
  }

  /** What it waits for: its pipelines, some of which are not there yet. */
  get waiting(): Promise<void> | null {
    return this.making.done;
  }

  /** Notes a run. Whether it, or one that is alike, runs for the second time: then its kernels are worth more. */
  again(): boolean {
    return ++this.making.runs === 2;
  }

  get failed(): boolean {
    return this.kernels.some((kernel) => kernel.failed);
  }

  /** What a temporary is, given the block of its piece. */
  handle(temp: Temp, block: Block): Handle {
    let { handle } = temp;
    if (handle?.block === block) return handle;
    const { begin, nbytes, piece } = temp;
    const unit = this.alignment;
    if (begin % unit !== 0) throw new Error(`${this.spec.name}: a temporary at ${begin} is not aligned`);
    const span = Math.max(1, Math.ceil(nbytes / unit)) * unit;
    const alone = begin === 0 && span >= (this.pieces[piece] as Piece).nbytes;
    handle = alone ? block.whole : new Handle(block, begin, nbytes, block.keyAt(begin, span), span);
    temp.handle = handle;
    return handle;
  }

  /** Forgets bind groups and blocks that no longer hold. */
  reset(): void {
    this.keys.fill(0);
    for (const step of this.steps) {
      if (step.kind !== "dispatch") continue;
      step.group = null;
      step.keys.fill(0);
    }
  }

  private dispatchLike({ kernel, pipeline, layout, bind, params, label }: Dispatch, step: DispatchSpec): Dispatch {
    const [x, y, z] = this.gridOf(step, label);
    const keys = new Array(bind.length).fill(0);
    return { kind: "dispatch", kernel, pipeline, layout, bind, params, x, y, z, label, group: null, keys };
  }

  private gridOf(step: DispatchSpec, label: string): [number, number, number] {
    const [x = 1, y = 1, z = 1] = step.grid;
    const most = this.limits.maxComputeWorkgroupsPerDimension;
    if (Math.max(x, y, z) > most)
      throw new Error(`${label}: a grid of ${x} × ${y} × ${z} workgroups, at most ${most} a dimension`);
    return [x, y, z];
  }

  private dispatch(
    step: DispatchSpec,
    params: number,
    kernelOf: (id: number) => Kernel,
    pipelines: Pipelines,
  ): Dispatch {
    const kernel = kernelOf(step.kernel);
    const label = step.label ?? kernel.spec.name;
    if (step.bind.length !== kernel.access.length)
      throw new Error(
        `${label}: ${kernel.spec.name} binds ${kernel.access.length} buffers, its step ${step.bind.length}`,
      );
    if (step.bind.some((slot) => slot >= this.bound.length))
      throw new Error(`${label}: binds a slot that is not there`);
    const [x, y, z] = this.gridOf(step, label);
    this.kernels.push(kernel);
    const layout = pipelines.layout(kernel, step.words.length);
    const made = this.sideBySide ? pipelines.prepare(kernel, layout) : null;
    if (made !== null) this.making.pipelines.push(made);
    const pipeline = made === null ? pipelines.pipeline(kernel, layout) : null;
    const { bind } = step;
    const keys = bind.map(() => 0);
    return { kind: "dispatch", kernel, pipeline, layout, bind, params, x, y, z, label, group: null, keys };
  }
}

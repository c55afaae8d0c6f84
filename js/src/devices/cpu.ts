/**
 * The `cpu` device: kernels are JavaScript functions over typed arrays, run at once and in order.
 * It takes the same commands as the GPU and needs nothing but the language.
 */

import { type Place, placesOf } from "../binding";
import type { HostDevice, HostDeviceKind, Plan } from "../device";
import { CommandError, type ErrorRecord, fail, recordOf } from "../errors";
import type { Faults } from "../faults";
import { isDispatch, neededSlots, ParamTemplate } from "../params";
import { Pool, type Pooled } from "../pool";
import type { BlockReader, ElementType, KernelSpec, PlanSpec } from "../protocol";
import { classCapacity, sizeClass } from "../sizes";
import type { Stats } from "../stats";

type Arrays =
  | Float32Array
  | Float64Array
  | Int32Array
  | Uint32Array
  | BigInt64Array
  | Uint8Array
  | Int8Array
  | Int16Array
  | Uint16Array;
type Body = (...args: unknown[]) => void;

const VIEWS = [
  ["f32", Float32Array],
  ["f64", Float64Array],
  ["i32", Int32Array],
  ["u32", Uint32Array],
  ["i64", BigInt64Array],
  ["u8", Uint8Array],
  ["i8", Int8Array],
  ["i16", Int16Array],
  ["u16", Uint16Array],
] as const satisfies [ElementType, unknown][];

/** Free memory kept for reuse, at most. */
const POOL_LIMIT = 256 * 2 ** 20;

class CpuBlock implements Pooled {
  poolIndex = -1;
  refs = 1;
  /** whether it may hold anything but zeros */
  dirty = false;
  readonly whole: CpuHandle;

  constructor(
    readonly data: ArrayBuffer,
    readonly classIndex: number,
    readonly capacity: number,
    readonly bad: ErrorRecord | null,
  ) {
    this.whole = new CpuHandle(this, 0, capacity);
  }
}

/** A window onto a block, with one view per element type, made on demand. */
class CpuHandle {
  private readonly views: (Arrays | undefined)[] = new Array(VIEWS.length).fill(undefined);

  constructor(
    readonly block: CpuBlock,
    readonly offset: number,
    public nbytes: number,
  ) {}

  view(type: number): Arrays {
    const known = this.views[type];
    if (known !== undefined) return known;
    const make = (VIEWS[type] as (typeof VIEWS)[number])[1];
    const room = this.block.capacity - this.offset;
    const made = new make(this.block.data, this.offset, Math.floor(room / make.BYTES_PER_ELEMENT));
    this.views[type] = made;
    return made;
  }

  bytes(offset: number, nbytes: number): Uint8Array<ArrayBuffer> {
    return new Uint8Array(this.block.data, this.offset + offset, nbytes);
  }
}

class CpuKernel {
  readonly body: Body;
  readonly types: number[];

  constructor(readonly spec: KernelSpec) {
    const buffers = spec.bindings.map((_, i) => `b${i}`);
    this.types = spec.bindings.map((b) => VIEWS.findIndex(([name]) => name === b.type));
    if (this.types.includes(-1)) fail("compile", spec.name, "unknown element type in the bindings");
    try {
      this.body = new Function("P", "I", "F", "D", "Q", ...buffers, "G", spec.source) as Body;
    } catch (error) {
      fail("compile", spec.name, `kernel ${spec.name} did not compile: ${(error as Error).message}`);
    }
  }
}

interface CpuDispatch {
  kind: "dispatch";
  kernel: CpuKernel;
  bind: number[];
  label: string;
  grid: number[];
  /** P, I, F, D, Q, then room for the buffers and the grid; plans that differ in numbers alone share it */
  args: unknown[];
}
type CpuStep =
  | CpuDispatch
  | { kind: "copy"; src: number; dst: number; nbytes: number }
  | { kind: "clear"; slot: number };

class CpuPlan implements Plan {
  readonly steps: CpuStep[];
  readonly outputs: { slot: number; nbytes: number; classIndex: number }[];
  /** classes of the pieces of memory in which temporaries lie */
  readonly pieces: number[];
  readonly temps: Place[];
  readonly params: ParamTemplate;
  /** where the words are while it runs, as kernels see them; plans that differ in numbers alone share it, and `slots` */
  readonly words: Uint32Array<ArrayBuffer>;
  readonly floats: Float32Array;
  readonly slots: (CpuHandle | undefined)[];
  /** the slots that a step binds: what lies in the others need not be there */
  readonly needed: boolean[];

  constructor(
    readonly spec: PlanSpec,
    kernelOf: (id: number) => CpuKernel,
    like?: CpuPlan,
  ) {
    this.params = new ParamTemplate(spec.steps, spec.scalars ?? [], 8, like?.params);
    const words = like?.words ?? new Uint32Array(this.params.words.length);
    this.words = words;
    this.floats = like?.floats ?? new Float32Array(words.buffer);
    this.outputs = Object.entries(spec.outputs).map(([slot, nbytes]) => ({
      slot: Number(slot),
      nbytes,
      classIndex: sizeClass(nbytes),
    }));
    this.pieces = (spec.temps ?? []).map(sizeClass);
    this.temps = placesOf(spec);
    this.slots = like?.slots ?? new Array(spec.slots + this.temps.length).fill(undefined);
    this.needed = like?.needed ?? neededSlots(spec);
    this.steps = spec.steps.map((step, i): CpuStep => {
      if (isDispatch(step)) {
        const { grid } = step;
        if (like !== undefined) {
          const { kernel, bind, label, args } = like.steps[i] as CpuDispatch;
          return { kind: "dispatch", kernel, bind, label, grid, args };
        }
        const kernel = kernelOf(step.kernel);
        const at = this.params.offsets[i] as number;
        const n = step.words.length;
        const wide = Math.ceil(n / 2);
        const args: unknown[] = [
          new Uint32Array(words.buffer, at, n),
          new Int32Array(words.buffer, at, n),
          new Float32Array(words.buffer, at, n),
          new Float64Array(words.buffer, at, wide),
          new BigInt64Array(words.buffer, at, wide),
          ...step.bind.map(() => undefined),
          undefined,
        ];
        if (step.bind.length !== kernel.types.length)
          throw new Error(`${kernel.spec.name} binds ${kernel.types.length} buffers, its step ${step.bind.length}`);
        return { kind: "dispatch", kernel, bind: step.bind, label: step.label ?? kernel.spec.name, grid, args };
      }
      if ("copy" in step) return { kind: "copy", src: step.copy[0], dst: step.copy[1], nbytes: step.copy[2] };
      return { kind: "clear", slot: step.clear[0] };
    });
  }
}

export class CpuDevice implements HostDevice {
  private readonly pool = new Pool<CpuBlock>();
  /** or why there is none */
  private readonly kernels: (CpuKernel | ErrorRecord | undefined)[] = [];
  private readonly handles: (CpuHandle | undefined)[] = [];
  liveBytes = 0;
  /** the most that was ever live */
  peakBytes = 0;
  liveBuffers = 0;
  dispatches = 0;

  constructor(
    private readonly stats: Stats,
    private readonly faults: Faults,
  ) {}

  /** how long the table of buffers is */
  get ids(): number {
    return this.handles.length;
  }

  get pooledBytes(): number {
    return this.pool.bytes;
  }

  defineKernel(id: number, spec: KernelSpec): void {
    this.stats.kernels++;
    try {
      this.kernels[id] = new CpuKernel(spec);
    } catch (error) {
      this.kernels[id] = recordOf(error, spec.name);
      throw error;
    }
  }

  /** like: a plan of the same steps, of which this one differs in numbers alone. */
  definePlan(spec: PlanSpec, like?: CpuPlan): CpuPlan {
    const kernelOf = (id: number) => {
      const kernel = this.kernels[id];
      if (kernel instanceof CpuKernel) return kernel;
      if (kernel !== undefined) throw new CommandError(kernel);
      return fail("internal", spec.name, `kernel ${id} is not defined`);
    };
    return new CpuPlan(spec, kernelOf, like);
  }

  has(id: number): boolean {
    return this.handles[id] !== undefined;
  }

  run(plan: CpuPlan, reader: BlockReader): void {
    const { spec } = plan;
    const nslots = reader.arg(1);
    if (nslots !== spec.slots) fail("internal", spec.name, `RUN binds ${nslots} slots, its plan ${spec.slots}`);
    try {
      for (const out of plan.outputs) this.create(reader.arg(2 + out.slot), out.nbytes, out.classIndex, spec.name);
      this.carryOut(plan, reader);
    } catch (error) {
      this.poison(plan, reader, recordOf(error, spec.name));
      throw error;
    }
  }

  private carryOut(plan: CpuPlan, reader: BlockReader): void {
    const { spec, slots } = plan;
    const nslots = spec.slots;
    for (let i = 0; i < nslots; i++) {
      const handle = this.handles[reader.arg(2 + i)];
      if (handle === undefined) fail("internal", spec.name, `no cpu buffer ${reader.arg(2 + i)} (slot ${i})`);
      if (handle.block.bad !== null && plan.needed[i]) throw new CommandError(handle.block.bad);
      slots[i] = handle;
    }
    const scalars = (reader.at + 4 + nslots + 1) & ~1;
    plan.words.set(plan.params.words);
    plan.params.patch(plan.words, plan.floats, 0, reader.words, reader.doubles, scalars);
    const leased: CpuBlock[] = [];
    try {
      for (const classIndex of plan.pieces) leased.push(this.lease(classIndex, spec.name));
      plan.temps.forEach(({ piece, begin, nbytes }, i) => {
        const block = leased[piece] as CpuBlock;
        slots[nslots + i] = begin === 0 ? block.whole : new CpuHandle(block, begin, nbytes);
      });
      for (const step of plan.steps) this.step(step, slots as CpuHandle[]);
    } finally {
      for (const block of leased) this.release(block);
      slots.fill(undefined);
    }
  }

  private step(step: CpuStep, slots: CpuHandle[]): void {
    if (step.kind === "dispatch") {
      const { args, bind, grid, kernel } = step;
      for (let i = 0; i < bind.length; i++)
        args[5 + i] = (slots[bind[i] as number] as CpuHandle).view(kernel.types[i] as number);
      args[5 + bind.length] = grid;
      this.dispatches++;
      try {
        kernel.body(...args);
      } catch (error) {
        fail("internal", step.label, `kernel ${kernel.spec.name} failed: ${(error as Error).message}`);
      } finally {
        args.fill(undefined, 5, 5 + bind.length);
      }
    } else if (step.kind === "copy") {
      const src = slots[step.src] as CpuHandle;
      (slots[step.dst] as CpuHandle).bytes(0, step.nbytes).set(src.bytes(0, step.nbytes));
      this.stats.copies++;
    } else {
      const { block, offset, nbytes } = slots[step.slot] as CpuHandle;
      new Uint8Array(block.data, offset, nbytes).fill(0);
      this.stats.clears++;
    }
  }

  upload(id: number, data: Uint8Array): void {
    const handle = this.create(id, data.byteLength, sizeClass(data.byteLength), "upload");
    handle.bytes(0, data.byteLength).set(data);
  }

  write(id: number, offset: number, data: Uint8Array): void {
    this.peek(id, offset, data.byteLength, "write").set(data);
  }

  alloc(id: number, nbytes: number): void {
    const handle = this.create(id, nbytes, sizeClass(nbytes), "zeros");
    if (handle.block.dirty) new Uint8Array(handle.block.data).fill(0);
  }

  copy(id: number, source: number, nbytes: number): void {
    this.upload(id, this.source(id, source, 0, nbytes, "copy"));
  }

  alias(id: number, base: number, offset: number, nbytes: number): void {
    this.source(id, base, offset, nbytes, "alias");
    const on = this.handles[base] as CpuHandle;
    this.name(id, new CpuHandle(on.block, on.offset + offset, nbytes));
    on.block.refs++;
  }

  /** The bytes from which `id` is made; where they are not to be had, neither is `id`. */
  private source(id: number, from: number, offset: number, nbytes: number, operation: string): Uint8Array {
    try {
      return this.peek(from, offset, nbytes, operation);
    } catch (error) {
      this.lack(id, recordOf(error, operation));
      throw error;
    }
  }

  /** Puts buffers that fail every use in place of the outputs. */
  private poison(plan: CpuPlan, reader: BlockReader, reason: ErrorRecord): void {
    for (const { slot } of plan.outputs) {
      const id = reader.arg(2 + slot);
      this.free(id);
      this.lack(id, reason);
    }
  }

  /** The bytes themselves, not a copy. */
  peek(id: number, offset: number, nbytes: number, operation: string): Uint8Array<ArrayBuffer> {
    const handle = this.handles[id];
    if (handle === undefined) fail("internal", operation, `no cpu buffer ${id}`);
    if (handle.block.bad !== null) throw new CommandError(handle.block.bad);
    if (offset + nbytes > handle.nbytes)
      fail("internal", operation, `bytes ${offset} to ${offset + nbytes} of a buffer of ${handle.nbytes}`);
    return handle.bytes(offset, nbytes);
  }

  /** Makes `id` a buffer that fails every use. */
  lack(id: number, reason: ErrorRecord): void {
    this.name(id, stillborn(reason));
  }

  /** False where `id` is no buffer of this device. */
  free(id: number): boolean {
    const handle = this.handles[id];
    if (handle === undefined) return false;
    this.handles[id] = undefined;
    this.liveBuffers--;
    if (--handle.block.refs === 0) this.release(handle.block);
    return true;
  }

  destroy(): void {
    this.handles.length = 0;
    this.liveBytes = this.liveBuffers = 0;
    this.pool.trim(0, () => {});
  }

  private name(id: number, handle: CpuHandle): void {
    if (this.handles[id] !== undefined) fail("internal", "buffer", `cpu buffer ${id} is in use`);
    this.handles[id] = handle;
    this.liveBuffers++;
  }

  /** Names a block of at least `nbytes`; where memory is out, a block that fails every later use. */
  private create(id: number, nbytes: number, classIndex: number, operation: string): CpuHandle {
    let block: CpuBlock;
    try {
      block = this.lease(classIndex, operation);
    } catch (error) {
      if (!(error instanceof CommandError)) throw error;
      this.lack(id, error.record);
      throw error;
    }
    block.whole.nbytes = nbytes;
    this.name(id, block.whole);
    return block.whole;
  }

  private lease(classIndex: number, operation: string): CpuBlock {
    this.faults.allocation(classCapacity(classIndex), operation);
    let block = this.pool.take(classIndex);
    if (block === undefined) {
      const capacity = classCapacity(classIndex);
      block = new CpuBlock(this.allocate(capacity, operation), classIndex, capacity, null);
      this.stats.buffersCreated++;
    } else {
      block.refs = 1;
      block.dirty = true;
    }
    this.liveBytes += block.capacity;
    if (this.liveBytes > this.peakBytes) this.peakBytes = this.liveBytes;
    return block;
  }

  private allocate(capacity: number, operation: string): ArrayBuffer {
    try {
      return new ArrayBuffer(capacity);
    } catch {
      this.pool.trim(0, () => this.stats.buffersDestroyed++);
    }
    try {
      return new ArrayBuffer(capacity);
    } catch {
      fail("out-of-memory", operation, `cpu out of memory: tried to allocate ${capacity} bytes`);
    }
  }

  private release(block: CpuBlock): void {
    if (block.bad !== null) return;
    this.liveBytes -= block.capacity;
    this.pool.give(block);
    if (this.pool.bytes > POOL_LIMIT) this.pool.trim(POOL_LIMIT / 2, () => this.stats.buffersDestroyed++);
  }
}

/** A buffer that could not be had: everything that uses it fails with `reason`. */
function stillborn(reason: ErrorRecord): CpuHandle {
  return new CpuBlock(new ArrayBuffer(0), -1, 0, reason).whole;
}

const cpu: HostDeviceKind = {
  number: 1,
  name: "cpu",
  prefix: "cpu",
  accelerator: false,
  open: ({ counters, faults }) => new CpuDevice(counters, faults),
};

export default cpu;

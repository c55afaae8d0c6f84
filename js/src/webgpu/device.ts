/** The `webgpu` device: carries out the commands, in the order they come. */

import type { Accelerator } from "../device";
import { CommandError, type ErrorKind, type ErrorLog, type ErrorRecord, fail, recordOf } from "../errors";
import type { Faults } from "../faults";
import type { Picture } from "../picture";
import type { BlockReader, KernelSpec, PlanSpec } from "../protocol";
import { sizeClass } from "../sizes";
import type { Stats } from "../stats";
import type { Opened } from "./adapter";
import { Backlog } from "./backlog";
import { BindGroups } from "./bindgroups";
import { BAD, type Block, Buffers, FINE, Handle, UNSURE } from "./buffers";
import { CanvasReader } from "./canvas";
import { nudged } from "./nudge";
import { type Kernel, Pipelines, SMALL_PARAMS } from "./pipelines";
import { type Dispatch, GpuPlan, type Output, type Piece, type Temp } from "./plan";
import { Readback } from "./readback";
import { ErrorScopes } from "./scopes";
import { Screen } from "./screen";
import { Stream } from "./stream";
import { Timer } from "./timer";
import { Uniforms } from "./uniforms";

const LOST = "the GPU device was lost";
const GONE = "this needs a tensor that was on a GPU device which has been lost: make it again, or load it";

export class GpuDevice implements Accelerator {
  /** set once the device is gone */
  lost: ErrorRecord | null = null;
  readonly deviceLost: Promise<ErrorRecord>;
  readonly buffers: Buffers;
  liveBuffers = 0;
  dispatches = 0;
  /** what is in flight, where somebody wants to know */
  backlog: Backlog | null = null;
  private readonly device: GPUDevice;
  private readonly scopes: ErrorScopes;
  private readonly stream: Stream;
  private readonly groups: BindGroups;
  private readonly uniforms: Uniforms;
  private readonly pipelines: Pipelines;
  private readonly readback: Readback;
  private readonly canvas: CanvasReader;
  private screen: Screen | null = null;
  private readonly kernels: (Kernel | undefined)[] = [];
  private readonly handles: (Handle | undefined)[] = [];
  private readonly plans = new Set<GpuPlan>();
  private readonly offset = new Uint32Array(1);
  private closed = false;
  private work = 0; // recorded, and not yet submitted

  constructor(
    private readonly opened: Opened,
    private readonly errors: ErrorLog,
    private readonly stats: Stats,
    faults: Faults,
    /** whether pipelines are made beside others, and plans wait for theirs: see `waitsFor` */
    private readonly sideBySide = false,
  ) {
    const { device } = opened;
    this.device = device;
    const submit = () => this.submit();
    this.scopes = new ErrorScopes(device, errors);
    this.stream = new Stream(device, stats, () => this.uniforms.flush());
    const largest = Math.min(65536, device.limits.maxUniformBufferBindingSize);
    this.uniforms = new Uniforms(device, Math.max(largest, SMALL_PARAMS), submit, () => {
      this.scopes.enter();
      this.groups.clear();
      for (const plan of this.plans) plan.reset();
    });
    this.groups = new BindGroups(device, this.scopes, stats, this.uniforms);
    this.pipelines = new Pipelines(device, this.groups, this.scopes, errors, stats, () => this.lost !== null);
    this.buffers = new Buffers(device, this.scopes, errors, stats, faults, submit, () => this.groups.sweep());
    this.readback = new Readback(
      device,
      this.stream,
      this.scopes,
      stats,
      () => {
        this.flush();
        return this.scopes.settled();
      },
      () => this.lost,
    );
    this.canvas = new CanvasReader(device, opened.adapter.architecture);
    device.addEventListener("uncapturederror", (event) => {
      event.preventDefault();
      const { error } = event;
      const kinds: Record<string, ErrorKind> = {
        GPUOutOfMemoryError: "out-of-memory",
        GPUValidationError: "validation",
      };
      const operation = this.scopes.blamed(error.message);
      errors.add({ kind: kinds[error.constructor.name] ?? "internal", operation, message: error.message });
    });
    this.deviceLost = device.lost.then(({ reason, message }) => {
      this.lost = {
        kind: "lost",
        operation: this.scopes.last,
        message: `${LOST} (${reason}): ${message.replace(/\.+$/, "")}; what it held is gone`,
      };
      if (!this.closed) errors.add(this.lost);
      return this.lost;
    });
  }

  /** Watches what is in flight from now on. */
  watch(): void {
    this.backlog ??= new Backlog(this.device, this.opened.adapter.isFallback);
  }

  /** how long the table of buffers is, and how many bind groups are kept */
  get ids(): number {
    return this.handles.length;
  }

  get info(): object {
    const { adapter, limits, features, exact, fused, matrices } = this.opened;
    return { adapter, limits, features, exact, fused, matrices };
  }

  get liveBytes(): number {
    return this.buffers.liveBytes;
  }

  get pooledBytes(): number {
    return this.buffers.pooledBytes;
  }

  get peakBytes(): number {
    return this.buffers.peakBytes;
  }

  set peakBytes(nbytes: number) {
    this.buffers.peakBytes = nbytes;
  }

  get groupCount(): number {
    return this.groups.count;
  }

  /** how many pipelines were asked for, and how many are ready */
  get compiling(): { asked: number; ready: number } {
    const { asked, ready } = this.pipelines;
    return { asked, ready };
  }

  get optimizing(): number {
    return this.pipelines.optimizing;
  }

  /** Takes over from a device that was lost: its kernels, and the ids of its buffers, which fail every use. */
  inherit(from: GpuDevice): void {
    if (from.backlog !== null) this.watch();
    this.scopes.enter();
    from.kernels.forEach((kernel, id) => {
      if (kernel !== undefined) this.kernels[id] = this.pipelines.kernel(kernel.spec);
    });
    from.handles.forEach((handle, id) => {
      if (handle !== undefined) this.lack(id, { kind: "gone", operation: "", message: GONE });
    });
    this.flush();
  }

  /** Sends what was recorded, and closes its error scopes. */
  flush(): void {
    this.submit();
    this.scopes.leave();
  }

  defineKernel(id: number, spec: KernelSpec): void {
    this.kernels[id] = undefined;
    this.use(spec.name);
    this.scopes.enter();
    const kernel = this.pipelines.kernel(spec);
    this.kernels[id] = kernel;
    // The plan that runs it is still being made. Few have so many parameters that their layout is another one.
    if (this.sideBySide) void this.pipelines.prepare(kernel, this.pipelines.layout(kernel, 0));
  }

  async prepare(kernels: [id: number, words: number][]): Promise<void> {
    const known = kernels.flatMap(([id, words]) => {
      const kernel = this.kernels[id];
      return kernel === undefined ? [] : [this.pipelines.prepare(kernel, this.pipelines.layout(kernel, words))];
    });
    await Promise.all(known);
  }

  /** like: a plan of the same steps, of which this one differs in numbers alone. */
  definePlan(spec: PlanSpec, like?: GpuPlan): GpuPlan {
    this.use(spec.name);
    this.scopes.enter();
    const kernelOf = (id: number) => this.kernels[id] ?? fail("internal", spec.name, `kernel ${id} is not defined`);
    const plan = new GpuPlan(
      spec,
      kernelOf,
      this.pipelines,
      this.uniforms.alignment,
      this.device.limits,
      this.sideBySide,
      like,
    );
    this.plans.add(plan);
    return plan;
  }

  /** Null: it can run. It can be run before, too, and then what is not there is made first. */
  waitsFor(plan: GpuPlan): Promise<void> | null {
    const { waiting } = plan;
    if (waiting === null || this.lost !== null) return null;
    return Promise.race([waiting, this.deviceLost.then(() => {})]);
  }

  forgetPlan(plan: GpuPlan): void {
    this.plans.delete(plan);
  }

  has(id: number): boolean {
    return this.handles[id] !== undefined;
  }

  run(plan: GpuPlan, reader: BlockReader): void {
    const { words } = reader;
    const first = reader.at + 4;
    const nslots = words[first - 1] as number;
    const { name, slots } = plan.spec;
    if (this.lost !== null) for (const out of plan.outputs) this.lack(words[first + out.slot] as number, this.lost);
    this.use(name);
    if (!plan.ran) this.scopes.enter();
    if (nslots !== slots) fail("internal", name, `RUN binds ${nslots} slots, its plan ${slots}`);
    for (const out of plan.outputs) this.output(words[first + out.slot] as number, out, name);
    plan.leased = 0;
    try {
      const { byteLength } = plan.params.words;
      this.uniforms.ensure(byteLength); // first, because it may submit, and what is bound is marked with its submit
      this.bind(plan, words, first);
      this.scopes.note(name);
      this.scopes.suspect(plan);
      const base = this.uniforms.reserve(byteLength);
      this.uniforms.words.set(plan.params.words, base >> 2);
      const scalars = (first + nslots + 1) & ~1;
      plan.params.patch(this.uniforms.words, this.uniforms.floats, base >> 2, words, reader.doubles, scalars);
      this.record(plan, base);
      plan.ran = true;
      if (plan.again()) for (const kernel of plan.kernels) this.pipelines.optimize(kernel);
      this.work += plan.spec.work ?? 0;
      if (plan.state !== FINE) this.submit();
    } catch (error) {
      // What the plan remembers of its last RUN no longer holds, and nothing of this one does.
      plan.keys.fill(0);
      this.poison(plan, words, first, recordOf(error, name));
      throw error;
    } finally {
      for (let i = 0; i < plan.leased; i++) this.buffers.release((plan.pieces[i] as Piece).last as Block);
    }
  }

  /** Finds the buffers of a RUN: slots from its words, temps from the pool. */
  private bind(plan: GpuPlan, words: Uint32Array, first: number): void {
    const { bound, keys, pieces, spec, temps } = plan;
    const { serial } = this.stream;
    const nslots = spec.slots;
    let state = FINE;
    let same = true;
    for (let i = 0; i < nslots; i++) {
      const handle = this.handles[words[first + i] as number];
      if (handle === undefined) fail("internal", spec.name, `no webgpu buffer ${words[first + i]} (slot ${i})`);
      const { block } = handle;
      if (block.state === BAD) {
        if (plan.needed[i]) throw new CommandError(named(block.reason as ErrorRecord, spec.name));
        bound[i] = handle;
        keys[i] = handle.key;
        continue;
      }
      block.serial = serial;
      state |= block.state;
      bound[i] = handle;
      if (keys[i] !== handle.key) {
        keys[i] = handle.key;
        same = false;
      }
    }
    for (let i = 0; i < pieces.length; i++) {
      const piece = pieces[i] as Piece;
      const block = this.buffers.leaseAgain(piece.last, piece.classIndex, piece.nbytes, spec.name);
      block.whole.nbytes = piece.nbytes;
      piece.last = block;
      block.serial = serial;
      state |= block.state;
      plan.leased = i + 1;
    }
    for (let i = 0; i < temps.length; i++) {
      const temp = temps[i] as Temp;
      const handle = plan.handle(temp, (pieces[temp.piece] as Piece).last as Block);
      bound[nslots + i] = handle;
      if (keys[nslots + i] !== handle.key) {
        keys[nslots + i] = handle.key;
        same = false;
      }
    }
    plan.same = same;
    plan.state = state;
    if (this.pipelines.failures > 0) this.check(plan);
    if (state === FINE && serial === this.stream.serial) return;
    // A large buffer may turn out not to be there, and then takes its whole submit with it:
    // nothing else may be in that. (The pool may have submitted as well, to make room.)
    if (state !== FINE) {
      this.scopes.enter();
      this.submit();
    }
    for (let i = 0; i < bound.length; i++) {
      const { block } = bound[i] as Handle;
      block.serial = this.stream.serial;
      if (block.state === FINE) continue;
      this.scopes.suspect(block);
      // The news may be long in coming (Python may not yield for a while), and a submit for each use is dear.
      if (--block.watched <= 0) block.state = FINE;
    }
  }

  upload(id: number, data: Uint8Array<ArrayBuffer>): void {
    this.use("upload", id);
    const nbytes = data.byteLength;
    const block = this.lease(id, nbytes, "upload", true);
    if (nbytes === 0) return;
    // The reader's data is padded to words, and there is always a word to spare.
    const size = (nbytes + 3) & ~3;
    this.device.queue.writeBuffer(block.buffer, 0, data.buffer, data.byteOffset, size);
    this.stats.uploads++;
    this.stats.uploadBytes += nbytes;
  }

  /** Bytes into a buffer, in the order of the stream; `offset` is a multiple of 4, and so is the end, or it is the buffer's. */
  write(id: number, offset: number, data: Uint8Array<ArrayBuffer>): void {
    this.use("write");
    const { block, offset: start, nbytes } = this.handle(id, "write");
    const size = (data.byteLength + 3) & ~3;
    if (
      offset % 4 !== 0 ||
      offset + data.byteLength > nbytes ||
      (size !== data.byteLength && offset + data.byteLength < nbytes)
    )
      fail("internal", "write", `bytes ${offset} to ${offset + data.byteLength} of a buffer of ${nbytes}`);
    this.submit(); // what is recorded comes first
    this.device.queue.writeBuffer(block.buffer, start + offset, data.buffer, data.byteOffset, size);
    if (size >= 2 ** 20) this.device.queue.submit([]); // else the pieces of a large file gather before the first is copied
    this.stats.uploads++;
    this.stats.uploadBytes += data.byteLength;
  }

  alloc(id: number, nbytes: number): void {
    this.use("zeros", id);
    const block = this.lease(id, nbytes, "zeros");
    if (!block.dirty) return;
    block.serial = this.stream.serial;
    this.stream.encode().clearBuffer(block.buffer, 0, (nbytes + 3) & ~3 || 4);
    this.stats.clears++;
  }

  copy(id: number, source: number, nbytes: number): void {
    this.use("copy", id);
    const from = this.source(id, source, "copy");
    if (nbytes > from.nbytes) fail("internal", "copy", `${nbytes} bytes of a buffer of ${from.nbytes}`);
    const block = this.lease(id, nbytes, "copy");
    if (block.state !== FINE) this.submit();
    this.copyBytes(from, block.whole, nbytes);
    if (block.state !== FINE) this.submit();
  }

  alias(id: number, base: number, offset: number, nbytes: number): void {
    this.use("alias", id);
    const on = this.source(id, base, "alias");
    if (offset + nbytes > on.nbytes)
      fail("internal", "alias", `${offset} + ${nbytes} bytes of a buffer of ${on.nbytes}`);
    const start = on.offset + offset;
    const unit = this.device.limits.minStorageBufferOffsetAlignment;
    if (start % unit !== 0) fail("internal", "alias", `offset ${start} is not aligned`);
    const span = Math.max(1, Math.ceil(nbytes / unit)) * unit;
    this.name(id, new Handle(on.block, start, nbytes, on.block.keyAt(start, span), span));
    on.block.refs++;
  }

  /** Makes `id` a buffer that fails every use. */
  lack(id: number, reason: ErrorRecord): void {
    this.name(id, this.buffers.stillborn(reason).whole);
  }

  /** False where `id` is no buffer of this device. */
  free(id: number): boolean {
    const handle = this.handles[id];
    if (handle === undefined) return false;
    this.handles[id] = undefined;
    this.liveBuffers--;
    this.buffers.release(handle.block);
    return true;
  }

  /** Bytes of a buffer, once everything before is done. Rejects if the device is lost, or the buffer was never had. */
  async read(id: number, offset: number, nbytes: number): Promise<Uint8Array<ArrayBuffer>> {
    const handle = this.readable(id, offset, nbytes);
    if (!this.scopes.quiet) this.scopes.enter();
    if (nbytes === 0) {
      this.flush();
      await this.scopes.settled();
      return new Uint8Array(0);
    }
    // A buffer that may turn out not to be there takes its whole submit with it: the copy of it goes alone.
    const unsure = handle.block.state === UNSURE;
    if (unsure) this.submit();
    const reading = this.readback.read(handle, offset, nbytes);
    if (unsure) this.submit();
    const bytes = await reading;
    if (handle.block.state === BAD && handle.block.reason !== null) throw new CommandError(handle.block.reason);
    return bytes;
  }

  readCanvas(id: number, offset: number, nbytes: number): Uint8Array<ArrayBuffer> {
    const handle = this.readable(id, offset, nbytes);
    this.scopes.enter();
    this.flush();
    this.stats.reads++;
    this.stats.readBytes += nbytes;
    return this.canvas.read(handle.block.buffer, handle.offset + offset, nbytes);
  }

  contextOf(canvas: OffscreenCanvas): GPUCanvasContext | null {
    return canvas.getContext("webgpu");
  }

  /** Draws a buffer of this device, or bytes, as they are at this point of the stream. */
  present(context: GPUCanvasContext, picture: Picture, from: number | Uint8Array<ArrayBuffer>): void {
    const handle = typeof from === "number" ? this.readable(from, 0, picture.nbytes) : null;
    this.use("draw");
    this.scopes.enter();
    this.flush();
    this.screen ??= new Screen(this.device);
    this.stats.pictures++;
    if (handle === null) {
      this.screen.draw(context, picture, this.screen.upload(from as Uint8Array<ArrayBuffer>));
    } else {
      const { block, offset } = handle;
      this.screen.draw(context, picture, { buffer: block.buffer, offset, size: (picture.nbytes + 3) & ~3 });
    }
  }

  canvasWorks(): boolean {
    return this.lost === null && this.canvas.works();
  }

  async synchronize(): Promise<void> {
    const { device } = this;
    this.flush();
    if (this.lost === null) await nudged(device, device.queue.onSubmittedWorkDone()).catch(() => this.deviceLost);
    await this.scopes.settled();
    await this.stream.timer?.settled();
    if (this.lost !== null) throw new CommandError(this.lost);
  }

  /** Times every dispatch from now on; false where the device cannot. */
  startTimes(): boolean {
    if (!this.device.features.has("timestamp-query")) return false;
    this.submit();
    this.stream.timer ??= new Timer(this.device);
    return true;
  }

  /** Ends that: when each dispatch began and how long it took, in order. To be called when all is synchronized. */
  takeTimes(): [begin: number, ns: number][] {
    const { timer } = this.stream;
    this.submit();
    this.stream.timer = null;
    timer?.destroy();
    return timer?.times ?? [];
  }

  /** Of kernels that are compiled, by id: how many milliseconds after they were asked for that was known. */
  compileTimes(): [id: number, ms: number][] {
    return this.kernels.flatMap((kernel, id): [number, number][] => {
      const ms = kernel?.program.ms ?? null;
      return ms === null ? [] : [[id, ms]];
    });
  }

  /** As a driver reset would. */
  loseDevice(): void {
    this.device.destroy();
  }

  destroy(): void {
    this.closed = true;
    this.readback.destroy();
    this.buffers.destroy();
    this.uniforms.destroy();
    this.device.destroy();
  }

  private submit(): void {
    if (this.stream.empty) return;
    this.stream.submit();
    this.backlog?.submitted(this.work);
    this.work = 0;
    this.buffers.settle();
  }

  private record(plan: GpuPlan, base: number): void {
    const bound = plan.bound as Handle[];
    const { same } = plan;
    for (const step of plan.steps) {
      if (step.kind === "dispatch") {
        if (!same || step.group === null) this.rebind(plan, step);
        step.pipeline ??= this.pipelines.pipeline(step.kernel, step.layout);
        const pass = this.stream.compute();
        if (this.stream.pipeline !== step.pipeline.now) {
          this.stream.pipeline = step.pipeline.now;
          pass.setPipeline(step.pipeline.now);
        }
        this.offset[0] = base + step.params;
        pass.setBindGroup(0, step.group, this.offset, 0, 1);
        pass.dispatchWorkgroups(step.x, step.y, step.z);
      } else if (step.kind === "copy") {
        this.copyBytes(bound[step.src] as Handle, bound[step.dst] as Handle, step.nbytes);
      } else {
        const { block, offset, nbytes } = bound[step.slot] as Handle;
        this.stream.encode().clearBuffer(block.buffer, offset, (nbytes + 3) & ~3 || 4);
        this.stats.clears++;
      }
    }
    this.dispatches += plan.dispatches;
  }

  /** Finds the bind group of a step whose plan binds something else than last time. */
  private rebind(plan: GpuPlan, step: Dispatch): void {
    const { bind, keys } = step;
    let same = step.group !== null;
    for (let i = 0; i < bind.length; i++) {
      const key = plan.keys[bind[i] as number] as number;
      if (keys[i] !== key) {
        keys[i] = key;
        same = false;
      }
    }
    if (same) return;
    // Not kept if the next line throws
    step.group = null;
    step.group = this.groups.find(step.layout, plan.bound as Handle[], bind).group;
  }

  private copyBytes(from: Handle, to: Handle, nbytes: number): void {
    const { serial } = this.stream;
    from.block.serial = to.block.serial = serial;
    const size = (nbytes + 3) & ~3;
    if (size === 0) return;
    this.stats.copies++;
    if (from.block !== to.block) {
      this.stream.encode().copyBufferToBuffer(from.block.buffer, from.offset, to.block.buffer, to.offset, size);
      return;
    }
    // Within one buffer WebGPU does not copy.
    const between = this.buffers.lease(sizeClass(size), size, "copy");
    between.serial = serial;
    const encoder = this.stream.encode();
    encoder.copyBufferToBuffer(from.block.buffer, from.offset, between.buffer, 0, size);
    encoder.copyBufferToBuffer(between.buffer, 0, to.block.buffer, to.offset, size);
    this.buffers.release(between);
  }

  private output(id: number, out: Output, operation: string): void {
    let block: Block;
    try {
      const again = out.before !== undefined && out.before.poolIndex >= 0 ? out.before : out.last;
      block = this.buffers.leaseAgain(again, out.classIndex, out.nbytes, operation);
    } catch (error) {
      this.lack(id, recordOf(error, operation));
      return; // the loop over the slots finds it
    }
    out.before = out.last;
    out.last = block;
    block.whole.nbytes = out.nbytes;
    this.name(id, block.whole);
  }

  /**
   * A new buffer; where it cannot be had, its id names one that fails every use. An `idle` one may be
   * filled by `queue.writeBuffer` now, although that overtakes what is recorded and not submitted.
   */
  private lease(id: number, nbytes: number, operation: string, idle = false): Block {
    let block: Block;
    try {
      block = idle
        ? this.buffers.leaseIdle(nbytes, this.stream.empty ? -1 : this.stream.serial, operation)
        : this.buffers.lease(sizeClass(nbytes), nbytes, operation);
    } catch (error) {
      this.lack(id, recordOf(error, operation));
      throw error;
    }
    block.whole.nbytes = nbytes;
    this.name(id, block.whole);
    if (block.state === UNSURE) this.scopes.suspect(block);
    return block;
  }

  /** The buffer `from` which `id` is made; where it is not to be had, neither is `id`. */
  private source(id: number, from: number, operation: string): Handle {
    try {
      return this.handle(from, operation);
    } catch (error) {
      this.lack(id, recordOf(error, operation));
      throw error;
    }
  }

  private name(id: number, handle: Handle): void {
    if (this.handles[id] !== undefined) fail("internal", "buffer", `webgpu buffer ${id} is in use`);
    this.handles[id] = handle;
    this.liveBuffers++;
  }

  private handle(id: number, operation: string): Handle {
    const handle = this.handles[id];
    if (handle === undefined) fail("internal", operation, `no webgpu buffer ${id}`);
    const { state, reason } = handle.block;
    if (state === BAD && reason !== null) throw new CommandError(named(reason, operation));
    return handle;
  }

  private readable(id: number, offset: number, nbytes: number): Handle {
    if (this.lost !== null) {
      this.errors.add(this.lost);
      throw new CommandError(this.lost);
    }
    const handle = this.handle(id, "read");
    if (offset + nbytes > handle.nbytes)
      fail("internal", "read", `bytes ${offset} to ${offset + nbytes} of a buffer of ${handle.nbytes}`);
    return handle;
  }

  private check(plan: GpuPlan): void {
    const kernel = plan.kernels.find((each) => each.failed);
    if (kernel === undefined) return;
    const { name } = kernel.spec;
    fail("compile", name, `kernel ${name} did not compile: ${kernel.program.failure}`);
  }

  /** Puts buffers that fail every use in place of the outputs. */
  private poison(plan: GpuPlan, words: Uint32Array, first: number, reason: ErrorRecord): void {
    for (const { slot } of plan.outputs) {
      const id = words[first + slot] as number;
      const { block } = this.handles[id] as Handle;
      if (block.state === BAD) continue;
      this.handles[id] = this.buffers.stillborn(reason).whole;
      this.buffers.release(block);
    }
  }

  /** Before anything that records or writes, or makes the buffer `id`. */
  private use(operation: string, id?: number): void {
    if (this.lost !== null) {
      if (id !== undefined) this.lack(id, this.lost);
      throw new CommandError({ ...this.lost, operation });
    }
    if (!this.scopes.quiet) this.scopes.enter();
  }
}

/** The reason why a buffer is not there, for the operation that needs it. */
function named(reason: ErrorRecord, operation: string): ErrorRecord {
  return reason.operation ? reason : { ...reason, operation };
}

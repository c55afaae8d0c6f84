/** The runtime: two devices that take the same commands. It knows no operation by name. */

import { bound } from "./binding";
import { CpuDevice, CpuPlan } from "./cpu";
import { CommandError, ErrorLog, type ErrorRecord, fail, recordOf } from "./errors";
import { Faults } from "./faults";
import { type Picture, pixels } from "./picture";
import { BlockReader, CPU, type KernelSpec, Op, type PlanSpec } from "./protocol";
import { Stats } from "./stats";
import { type Opened, openDevice } from "./webgpu/adapter";
import { GpuDevice } from "./webgpu/device";
import { GpuPlan } from "./webgpu/plan";

export interface RuntimeOptions {
  /** where to find WebGPU; by default `navigator.gpu` */
  gpu?: GPU;
  /** leave WebGPU alone */
  preferCpu?: boolean;
  /** how long to go on asking for an adapter, in ms: a browser's GPU process may still be starting */
  patience?: number;
  /** keep `behind` up to date */
  watch?: boolean;
  /** why there is no `gpu`, where the host knows */
  reason?: string;
}

type Context = GPUCanvasContext | OffscreenCanvasRenderingContext2D;

/** A plan that could not be made: its runs fail with the same words, and so do the uses of what they should have made. */
class BrokenPlan {
  readonly dev: number;
  private readonly outputs: number[];

  constructor(
    spec: PlanSpec,
    private readonly reason: ErrorRecord,
  ) {
    this.dev = spec.device;
    this.outputs = Object.keys(spec.outputs).map(Number);
  }

  run(reader: BlockReader, device: GpuDevice | CpuDevice): never {
    for (const slot of this.outputs) device.lack(reader.arg(2 + slot), this.reason);
    throw new CommandError(this.reason);
  }
}

export class Runtime {
  /** Resolves with a message if the GPU device is lost; never, where there is none. */
  readonly deviceLost: Promise<string>;
  private readonly reader = new BlockReader();
  private readonly plans: (GpuPlan | CpuPlan | BrokenPlan | undefined)[] = [];
  /** the plans that were sent whole, from which others are made */
  private readonly templates = new Map<number, PlanSpec>();
  private readonly cpu: CpuDevice;
  private readonly contexts = new WeakMap<OffscreenCanvas, Context>();
  /** called after each block of commands, by whoever shows what goes on */
  observer: (() => void) | null = null;
  private reviving: Promise<void> | null = null;
  private readonly faults: Faults;

  constructor(
    private gpu: GpuDevice | null,
    private readonly errors: ErrorLog,
    private readonly counters: Stats,
    private readonly reason: string | undefined,
    faults: Faults,
    /** asks for another device */
    private readonly open: () => Promise<Opened>,
  ) {
    this.faults = faults;
    this.cpu = new CpuDevice(counters, faults);
    this.deviceLost = gpu === null ? new Promise(() => {}) : gpu.deviceLost.then((record) => record.message);
  }

  /**
   * Carries out a block of commands. A command that fails is noted and the next one is taken.
   * Returns the number of errors that wait to be taken, of this block or of earlier ones.
   */
  execute(block: Uint8Array): number {
    if (block.byteLength === 0) return this.errors.count;
    const { gpu, reader, counters } = this;
    counters.executes++;
    reader.open(block);
    for (;;) {
      try {
        this.carryOut(reader);
        break;
      } catch (error) {
        this.errors.add(recordOf(error, ""));
      }
    }
    reader.close();
    try {
      gpu?.flush();
    } catch (error) {
      this.errors.add(recordOf(error, "submit"));
    }
    this.observer?.();
    return this.errors.count;
  }

  /** Whether so much is in flight on the GPU that its caller should wait for `caughtUp`, if it can. */
  get behind(): boolean {
    return this.gpu?.backlog?.behind ?? false;
  }

  /** How much work should be sent at once, as `PlanSpec.work` counts it. */
  get portion(): number {
    return this.gpu?.backlog?.portion ?? Number.POSITIVE_INFINITY;
  }

  /** Resolves when there is room for more. */
  async caughtUp(): Promise<void> {
    await this.gpu?.backlog?.caughtUp();
  }

  /** The errors so far as JSON `[{kind, operation, message}]`; they are not given twice. */
  takeErrors(): string {
    return JSON.stringify(this.errors.take());
  }

  /** Bytes of a cpu buffer, as a copy. */
  read(id: number, offset: number, nbytes: number): Uint8Array<ArrayBuffer> {
    const bytes = this.cpu.peek(id, offset, nbytes, "read").slice();
    this.counters.reads++;
    this.counters.readBytes += nbytes;
    return bytes;
  }

  /** Bytes of a buffer of either device, once all work before is done and its errors are known. */
  async readAsync(id: number, offset: number, nbytes: number): Promise<Uint8Array<ArrayBuffer>> {
    if (this.gpu === null || this.cpu.has(id)) return this.read(id, offset, nbytes);
    const bytes = this.gpu.read(id, offset, nbytes);
    if (this.faults.read()) this.loseDevice();
    return bytes;
  }

  /** As `readAsync`, at once; only where `canvasWorks()`. */
  readCanvas(id: number, offset: number, nbytes: number): Uint8Array<ArrayBuffer> {
    if (this.gpu === null || this.cpu.has(id)) return this.read(id, offset, nbytes);
    return this.gpu.readCanvas(id, offset, nbytes);
  }

  /**
   * Draws a buffer of either device on a canvas of that size: by the GPU where it is drawn to by one, and with no read then.
   * Else its bytes are read.
   */
  async present(canvas: OffscreenCanvas, id: number, picture: Picture): Promise<void> {
    const { gpu, cpu } = this;
    const context = this.contextOf(canvas);
    if (gpu !== null && !("putImageData" in context)) {
      gpu.present(context, picture, cpu.has(id) ? cpu.peek(id, 0, picture.nbytes, "draw") : id);
      return;
    }
    const bytes = await this.readAsync(id, 0, picture.nbytes);
    this.counters.pictures++;
    (context as OffscreenCanvasRenderingContext2D).putImageData(pixels(bytes, picture), 0, 0);
  }

  /** Kept, for Firefox gives that of WebGPU only once. */
  private contextOf(canvas: OffscreenCanvas): Context {
    let context = this.contexts.get(canvas);
    if (context === undefined) {
      const found = (this.gpu && canvas.getContext("webgpu")) ?? canvas.getContext("2d");
      context = found ?? fail("internal", "draw", "this canvas cannot be drawn on");
      this.contexts.set(canvas, context);
    }
    return context;
  }

  /**
   * Starts another GPU device where the last was lost. Kernels, plans and ids go on; what uses a buffer that was lost
   * fails and says so. Resolves also where there is none to be had: then every use fails as before, and says why.
   */
  revive(): Promise<void> {
    if (this.gpu === null || this.gpu.lost === null) return Promise.resolve();
    this.reviving ??= this.replace(this.gpu).finally(() => {
      this.reviving = null;
    });
    return this.reviving;
  }

  private async replace(old: GpuDevice): Promise<void> {
    let next: GpuDevice;
    try {
      next = new GpuDevice(await this.open(), this.errors, this.counters, this.faults);
    } catch (error) {
      const lost = old.lost as ErrorRecord;
      old.lost = {
        ...lost,
        message: `${lost.message.split("; no other")[0]}; no other one: ${(error as Error).message}`,
      };
      return;
    }
    next.inherit(old);
    for (const [id, plan] of this.plans.entries()) {
      if (!(plan instanceof GpuPlan)) continue;
      try {
        this.plans[id] = next.definePlan(plan.spec);
      } catch (error) {
        this.plans[id] = new BrokenPlan(plan.spec, recordOf(error, plan.spec.name));
      }
    }
    next.flush();
    this.gpu = next;
    old.destroy();
  }

  /** Whether a buffer can be read through a canvas: tried once, on a known pattern. */
  canvasWorks(): boolean {
    return this.gpu?.canvasWorks() ?? false;
  }

  /** Resolves when all work so far is done and its errors are known; rejects if the device is lost. */
  async synchronize(): Promise<void> {
    await this.gpu?.synchronize();
  }

  /** JSON `{webgpu, reason?, platform}`. */
  info(): string {
    const opened = this.gpu?.opened;
    const webgpu = opened ? { adapter: opened.adapter, limits: opened.limits, features: opened.features } : null;
    return JSON.stringify({ webgpu, reason: this.reason, platform: platform() });
  }

  /** JSON of the counters, and of the memory of both devices together (`bytes`, `buffers`) and of each. */
  stats(): string {
    const { cpu, gpu } = this;
    const gpuBytes = gpu?.buffers.liveBytes ?? 0;
    const gpuBuffers = gpu?.liveBuffers ?? 0;
    const gpuPooledBytes = gpu?.buffers.pooledBytes ?? 0;
    return JSON.stringify({
      ...this.counters,
      buffers: gpuBuffers + cpu.liveBuffers,
      bytes: gpuBytes + cpu.liveBytes,
      pooledBytes: gpuPooledBytes + cpu.pooledBytes,
      gpuBuffers,
      gpuBytes,
      gpuPooledBytes,
      gpuPeakBytes: gpu?.buffers.peakBytes ?? 0,
      cpuBuffers: cpu.liveBuffers,
      cpuBytes: cpu.liveBytes,
      cpuPooledBytes: cpu.pooledBytes,
      cpuPeakBytes: cpu.peakBytes,
      ids: Math.max(cpu.ids, gpu?.ids ?? 0),
      planIds: this.plans.length,
      groups: gpu?.groupCount ?? 0,
    });
  }

  /** Sets the counters to nought, and the peaks of memory to what is there. */
  resetStats(): void {
    this.counters.reset();
    this.cpu.peakBytes = this.cpu.liveBytes;
    if (this.gpu) this.gpu.buffers.peakBytes = this.gpu.buffers.liveBytes;
  }

  /** Times dispatches on the GPU until `takeTimes`: "true", or "false" where it cannot. */
  startTimes(): string {
    return String(this.gpu?.startTimes() ?? false);
  }

  /** When each began and how long it took, in ns, as a JSON list of pairs. Call `synchronize` before. */
  takeTimes(): string {
    return JSON.stringify(this.gpu?.takeTimes() ?? []);
  }

  /** How many pipelines were asked for, and how many of these are ready. */
  get compiling(): { asked: number; ready: number } {
    return this.gpu?.compiling ?? { asked: 0, ready: 0 };
  }

  /** Of kernels of the GPU that are compiled, by id: how many milliseconds after they were asked for that was known. */
  compileTimes(): [id: number, ms: number][] {
    return this.gpu?.compileTimes() ?? [];
  }

  /** Fails where `spec` (JSON, see `FaultSpec`) says, from now on. Returns what was counted so far. For tests. */
  fault(spec: string): string {
    return JSON.stringify(this.faults.arm(JSON.parse(spec)));
  }

  /** Loses the GPU device, as a driver reset would. For tests. */
  loseDevice(): void {
    this.gpu?.loseDevice();
  }

  destroy(): void {
    this.gpu?.destroy();
    this.cpu.destroy();
  }

  private carryOut(reader: BlockReader): void {
    for (;;) {
      const op = reader.advance();
      // FREE is not counted: how many there are, and whether one comes after a program's last read, is up to Python's collector.
      if (op !== 0 && op !== Op.FREE && this.faults.command()) this.loseDevice();
      switch (op) {
        case 0:
          return;
        case Op.RUN: {
          const plan = this.plans[reader.arg(0)];
          if (plan === undefined) fail("internal", "run", `plan ${reader.arg(0)} is not defined`);
          this.counters.runs++;
          if (plan instanceof BrokenPlan) plan.run(reader, this.on(plan.dev));
          else if (plan instanceof CpuPlan) this.cpu.run(plan, reader);
          else (this.gpu as GpuDevice).run(plan, reader);
          break;
        }
        case Op.FREE:
          for (let i = 0, n = reader.arg(0); i < n; i++) {
            const id = reader.arg(1 + i);
            if (!this.gpu?.free(id) && !this.cpu.free(id) && !this.gpu?.lost)
              fail("internal", "free", `no buffer ${id}`);
          }
          break;
        case Op.UPLOAD:
          this.on(reader.arg(1)).upload(reader.arg(0), reader.data(3, reader.arg(2)));
          break;
        case Op.WRITE:
          this.owner(reader.arg(0)).write(reader.arg(0), reader.arg(1), reader.data(3, reader.arg(2)));
          break;
        case Op.ALLOC:
          this.on(reader.arg(1)).alloc(reader.arg(0), reader.arg(2));
          break;
        case Op.COPY:
          this.copy(reader.arg(0), reader.arg(1), reader.arg(2), reader.arg(3));
          break;
        case Op.ALIAS:
          this.owner(reader.arg(1)).alias(reader.arg(0), reader.arg(1), reader.arg(2), reader.arg(3));
          break;
        case Op.KERNEL: {
          const spec = reader.json(2, reader.arg(1)) as KernelSpec;
          this.on(spec.device).defineKernel(reader.arg(0), spec);
          break;
        }
        case Op.PLAN: {
          const spec = reader.json(2, reader.arg(1)) as PlanSpec;
          this.templates.set(reader.arg(0), spec);
          this.define(reader.arg(0), spec);
          break;
        }
        case Op.BIND: {
          const template = this.templates.get(reader.arg(1));
          if (template === undefined) fail("internal", "bind", `plan ${reader.arg(1)} is not defined`);
          this.define(reader.arg(0), bound(template, reader.numbers(3, reader.arg(2))), this.plans[reader.arg(1)]);
          break;
        }
        case Op.FORGET:
          for (let i = 0, n = reader.arg(0); i < n; i++) this.forget(reader.arg(1 + i));
          break;
        default:
          fail("internal", "execute", `unknown command ${op}`);
      }
    }
  }

  /** like: the plan of whose template this one is, or nothing. */
  private define(id: number, spec: PlanSpec, like?: GpuPlan | CpuPlan | BrokenPlan): void {
    this.counters.plans++;
    try {
      this.plans[id] =
        spec.device === CPU
          ? this.cpu.definePlan(spec, like instanceof CpuPlan ? like : undefined)
          : (this.on(spec.device) as GpuDevice).definePlan(spec, like instanceof GpuPlan ? like : undefined);
    } catch (error) {
      this.plans[id] = new BrokenPlan(spec, recordOf(error, spec.name));
      throw error;
    }
  }

  private copy(id: number, dev: number, source: number, nbytes: number): void {
    const from = this.owner(source);
    const to = this.on(dev);
    if (from === to) {
      to.copy(id, source, nbytes);
      return;
    }
    let data: Uint8Array<ArrayBuffer>;
    try {
      if (from !== this.cpu) fail("internal", "copy", "webgpu to cpu goes through a read");
      data = this.cpu.peek(source, 0, nbytes, "copy");
    } catch (error) {
      to.lack(id, recordOf(error, "copy"));
      throw error;
    }
    to.upload(id, data);
  }

  private forget(id: number): void {
    const plan = this.plans[id];
    this.plans[id] = undefined;
    this.templates.delete(id);
    if (plan instanceof GpuPlan) this.gpu?.forgetPlan(plan);
  }

  private on(dev: number): GpuDevice | CpuDevice {
    if (dev === CPU) return this.cpu;
    return this.gpu ?? fail("internal", "webgpu", `there is no webgpu device: ${this.reason}`);
  }

  private owner(id: number): GpuDevice | CpuDevice {
    if (this.cpu.has(id)) return this.cpu;
    if (this.gpu?.has(id)) return this.gpu;
    return fail("internal", "buffer", `no buffer ${id}`);
  }
}

function platform(): string {
  const { process, navigator } = globalThis as { process?: { versions?: { node?: string } }; navigator?: Navigator };
  return process?.versions?.node !== undefined ? `node ${process.versions.node}` : (navigator?.userAgent ?? "unknown");
}

export { CommandError, type ErrorRecord };

/** Starts a runtime, with a GPU device where there is one; `info()` says why where there is none. */
export async function createRuntime(options: RuntimeOptions = {}): Promise<Runtime> {
  const errors = new ErrorLog();
  const counters = new Stats();
  const gpu = options.gpu ?? (typeof navigator === "object" ? navigator.gpu : undefined);
  const faults = new Faults();
  const open = () => openDevice(gpu as GPU, options.patience ?? 5000);
  const without = (reason: string) => new Runtime(null, errors, counters, reason, faults, open);
  if (options.preferCpu) return without("the cpu device was asked for");
  if (!gpu) return without(options.reason ?? "this platform has no WebGPU (navigator.gpu)");
  try {
    const device = new GpuDevice(await open(), errors, counters, faults);
    if (options.watch) device.watch();
    return new Runtime(device, errors, counters, undefined, faults, open);
  } catch (error) {
    return without((error as Error).message);
  }
}

export default createRuntime;

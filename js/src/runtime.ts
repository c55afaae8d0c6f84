/** The runtime: devices that take the same commands. It knows no operation by name, and no device either. */

import devices from "devices";
import { bound } from "./binding";
import type {
  Accelerator,
  AcceleratorKind,
  Device,
  DeviceKind,
  Host,
  HostDevice,
  Plan,
  RuntimeOptions,
} from "./device";
import { CommandError, ErrorLog, type ErrorRecord, fail, recordOf } from "./errors";
import { Faults } from "./faults";
import { isDispatch } from "./params";
import { type Picture, pixels } from "./picture";
import { BlockReader, type KernelSpec, Op, type PlanSpec } from "./protocol";
import { Stats } from "./stats";

/** Bytes of a buffer. */
export interface ReadSpec {
  id: number;
  offset: number;
  nbytes: number;
}

/** What is done with a buffer at its place in the stream, once that is there. */
interface Turn {
  id: number;
  act: () => void;
}
type Held = Uint8Array | Turn;
/** How a block is carried out: as it comes, in memory of the caller's; held until now; or with no more waiting. */
type Manner = "new" | "held" | "forced";

/** Bytes of blocks that may wait for pipelines: no more is copied for that. */
const MOST_HELD = 64 * 2 ** 20;
/** Bytes on their way to host devices, after which Python had better wait: the GPU has them in memory of their own until they are there. */
const MANY_ARRIVING = 512 * 2 ** 20;
/** Held blocks that run something, after which Python had better wait, too. */
const MANY_HELD = 16;

type Context = GPUCanvasContext | OffscreenCanvasRenderingContext2D;

/** A plan that could not be made: its runs fail with the same words, and so do the uses of what they should have made. */
class BrokenPlan implements Plan {
  constructor(
    readonly spec: PlanSpec,
    private readonly reason: ErrorRecord,
  ) {}

  run(reader: BlockReader, device: Device): never {
    for (const slot of Object.keys(this.spec.outputs)) device.lack(reader.arg(2 + Number(slot)), this.reason);
    throw new CommandError(this.reason);
  }
}

const isHost = (device: Device): device is HostDevice => "peek" in device;

export class Runtime {
  /** Resolves with a message if an accelerator is lost; never, where there is none. */
  readonly deviceLost: Promise<string>;
  private readonly reader = new BlockReader();
  private readonly plans: (Plan | undefined)[] = [];
  /** the plans that were sent whole, from which others are made */
  private readonly templates = new Map<number, PlanSpec>();
  private readonly contexts = new WeakMap<OffscreenCanvas, Context>();
  /** called after each block of commands, by whoever shows what goes on */
  observer: (() => void) | null = null;
  private reviving: Promise<void> | null = null;
  /** blocks, or what is left of them, and reads, that come after a plan whose pipelines are not there yet, or a use of an arrival */
  private readonly held: Held[] = [];
  private heldBytes = 0;
  /** the held blocks that run nothing: kernels that are defined while plans are still being made */
  private readonly idle = new WeakSet<Held>();
  /** resumes; never null while anything is held */
  private waking: Promise<void> | null = null;
  /** of buffers of host devices that are on their way from an accelerator, by id: resolves when one is there, or lacking */
  private readonly arrivals = new Map<number, Promise<void>>();
  private arriving = 0;
  private all: (HostDevice | Accelerator)[] = [];
  private accelerators: Accelerator[] = [];

  constructor(
    private readonly host: Host,
    private readonly kinds: DeviceKind[],
    /** by number */
    private readonly devices: Map<number, HostDevice | Accelerator>,
    /** of those that are not there: why */
    private readonly reasons: Map<number, string>,
  ) {
    this.listDevices();
    this.deviceLost = this.nextLoss();
  }

  /**
   * Carries out a block of commands. A command that fails is noted and the next one is taken.
   * Returns the number of errors that wait to be taken, of this block or of earlier ones.
   */
  execute(block: Uint8Array): number {
    const { errors } = this.host;
    if (block.byteLength === 0) return errors.count;
    this.accept(block);
    this.sendOff();
    return errors.count;
  }

  /**
   * Carries out a block, and reads what it has made or what was there before: in one submit, so that the GPU starts once, and
   * with one wait. The bytes come once all work before is done and its errors are known; they hold only if there are none.
   */
  executeAndRead(block: Uint8Array, wanted: ReadSpec[]): Promise<Uint8Array<ArrayBuffer>[]> {
    if (block.byteLength > 0) this.accept(block);
    // The copies are recorded now, and only then is anything sent.
    const reads = wanted.map(({ id, offset, nbytes }) => this.readAsync(id, offset, nbytes));
    this.sendOff();
    return Promise.all(reads);
  }

  private accept(block: Uint8Array): void {
    this.host.counters.executes++;
    if (this.held.length === 0) this.take(block, "new");
    else this.hold(block.slice());
  }

  /** The commands of a block, recorded and not yet sent. */
  private take(block: Uint8Array, manner: Manner): void {
    const { errors } = this.host;
    const { reader } = this;
    reader.open(block);
    for (;;) {
      try {
        this.carryOut(reader, manner);
        break;
      } catch (error) {
        errors.add(recordOf(error, ""));
      }
    }
    reader.close();
  }

  // -- what waits, for pipelines or for arrivals. All that comes after it waits too, so that the order stays

  private hold(block: Uint8Array): void {
    if (!this.ahead(block)) this.idle.add(block);
    this.held.push(block);
    this.heldBytes += block.byteLength;
    if (this.heldBytes > MOST_HELD) this.force();
  }

  /** Whether the command at hand has to wait: then it is held, and the rest of its block with it. */
  private waits(op: number, reader: BlockReader, manner: Manner): boolean {
    const arrival = this.arrivals.size > 0 ? this.arrivalFor(op, reader) : undefined;
    const waiting = arrival ?? (op === Op.RUN && manner !== "forced" ? this.pipelinesFor(reader) : null);
    if (waiting === null) return false;
    let rest = reader.rest();
    if (manner === "new") {
      if (rest.byteLength > MOST_HELD && arrival === undefined) return false;
      rest = rest.slice();
      this.ahead(rest);
    }
    this.held.unshift(rest);
    this.heldBytes += rest.byteLength;
    this.resumeAfter(waiting);
    return true;
  }

  private pipelinesFor(reader: BlockReader): Promise<void> | null {
    const plan = this.plans[reader.arg(0)];
    if (plan === undefined || plan instanceof BrokenPlan) return null;
    const device = this.devices.get(plan.spec.device);
    return device === undefined || isHost(device) ? null : device.waitsFor(plan);
  }

  /** Of what the command at hand uses, and is not there yet. */
  private arrivalFor(op: number, reader: BlockReader): Promise<void> | undefined {
    if (op === Op.COPY) return this.arrivals.get(reader.arg(2));
    if (op === Op.ALIAS) return this.arrivals.get(reader.arg(1));
    if (op === Op.WRITE) return this.arrivals.get(reader.arg(0));
    if (op !== Op.RUN) return undefined;
    for (let i = 0, n = reader.arg(1); i < n; i++) {
      const found = this.arrivals.get(reader.arg(2 + i));
      if (found !== undefined) return found;
    }
    return undefined;
  }

  private resumeAfter(waiting: Promise<void>): void {
    this.waking = waiting.then(() => this.resume());
  }

  /**
   * Of a block that is held, defines the kernels and asks for the pipelines of the plans: those take time, and nothing before them
   * matters to them. The plans have to wait, for their numbers may be those of others until then. Returns whether it runs any.
   */
  private ahead(block: Uint8Array): boolean {
    const { reader } = this;
    let runs = false;
    reader.open(block);
    try {
      for (let op = reader.advance(); op !== 0; op = reader.advance()) {
        if (op === Op.KERNEL) this.kernelAhead(reader);
        else if (op === Op.PLAN) this.pipelinesAhead(reader.json(2, reader.arg(1)) as PlanSpec);
        else if (op === Op.RUN) runs = true;
      }
    } catch {
      // malformed, which is noted when its turn comes
    }
    reader.close();
    return runs;
  }

  private kernelAhead(reader: BlockReader): void {
    try {
      this.defineKernel(reader);
    } catch (error) {
      this.host.errors.add(recordOf(error, ""));
    }
    reader.done();
  }

  private pipelinesAhead({ device, steps }: PlanSpec): void {
    const on = this.devices.get(device);
    if (on === undefined || isHost(on)) return;
    const needed = steps.filter(isDispatch).map(({ kernel, words }): [number, number] => [kernel, words.length]);
    on.prepare(needed).catch(() => {}); // what is wrong with a plan is noted when it is defined
  }

  private resume(): void {
    this.waking = null;
    while (this.held.length > 0 && this.waking === null) this.release("held");
    this.sendOff();
  }

  /**
   * Carries out what is held, now: for callers that cannot wait. Pipelines that are not there yet are made here; nothing makes
   * an arrival come, and what uses one stays held, with all after it.
   */
  private force(): void {
    if (this.held.length === 0) return;
    this.waking = null;
    while (this.held.length > 0 && this.waking === null) this.release("forced");
    this.sendOff();
  }

  /** The same for a caller that wants a buffer. */
  private forceFor(id: number): void {
    this.force();
    if (this.held.length === 0 && !this.arrivals.has(id)) return;
    const what =
      "a value is still on its way from the GPU, and Python cannot wait for it here; use `await tensor.read()`";
    fail("early", "read", what);
  }

  private release(manner: Manner): void {
    const next = this.held.shift() as Held;
    if (!("act" in next)) {
      this.heldBytes -= next.byteLength;
      this.take(next, manner);
      return;
    }
    const arrival = this.arrivals.get(next.id);
    if (arrival === undefined) {
      next.act();
      return;
    }
    this.held.unshift(next);
    this.resumeAfter(arrival);
  }

  /** Does it with a buffer at its place in the stream: now, or after what is held, and once the buffer is there. */
  private inTurn<T>(id: number, act: () => Promise<T>): Promise<T> {
    const arrival = this.arrivals.get(id);
    if (this.held.length === 0 && arrival === undefined) return act();
    return new Promise((resolve, reject) => {
      this.held.push({ id, act: () => void act().then(resolve, reject) });
      if (this.waking === null && arrival !== undefined) this.resumeAfter(arrival);
    });
  }

  /** A buffer of a host device whose bytes come later. What a read of them would fail of now, its uses fail of. */
  private expect(id: number, to: HostDevice, nbytes: number, bytes: Promise<Uint8Array<ArrayBuffer>>): void {
    const { errors } = this.host;
    const { told } = errors;
    const arrive = (put: () => void) => {
      this.arriving -= nbytes;
      if (this.arrivals.get(id) !== arrival) return; // it was freed meanwhile, and its number may be another's
      this.arrivals.delete(id);
      try {
        put();
      } catch (error) {
        errors.add(recordOf(error, "copy"));
      }
    };
    const lack = (error: ErrorRecord) => {
      // News of the loss is of then: when this is used, there may be another device.
      to.lack(id, error.kind === "lost" ? { ...error, kind: "gone" } : error);
    };
    const arrival: Promise<void> = bytes.then(
      (data) => arrive(() => (errors.failure === told ? to.upload(id, data) : lack(errors.failure as ErrorRecord))),
      (error) => arrive(() => lack(recordOf(error, "copy"))),
    );
    this.arrivals.set(id, arrival);
    this.arriving += nbytes;
  }

  /** Resolves when nothing is held any more. */
  private async resumed(): Promise<void> {
    while (this.waking !== null) await this.waking;
  }

  private sendOff(): void {
    for (const each of this.accelerators) {
      try {
        each.flush();
      } catch (error) {
        this.host.errors.add(recordOf(error, "submit"));
      }
    }
    this.observer?.();
  }

  /** Whether so much is in flight that its caller should wait for `caughtUp`, if it can. */
  get behind(): boolean {
    const running = this.held.filter((each) => !this.idle.has(each));
    if (running.length > MANY_HELD || this.heldBytes > MOST_HELD || this.arriving > MANY_ARRIVING) return true;
    return this.accelerators.some((each) => each.backlog?.behind);
  }

  /** Whether commands wait, or a value is on its way: `read` may have to make pipelines, or may fail, where `readAsync` waits. */
  get holding(): boolean {
    return this.held.length > 0 || this.arrivals.size > 0;
  }

  /** How much work should be sent at once, as `PlanSpec.work` counts it. */
  get portion(): number {
    return Math.min(...this.accelerators.map((each) => each.backlog?.portion ?? Number.POSITIVE_INFINITY));
  }

  /** Resolves when there is room for more. */
  async caughtUp(): Promise<void> {
    await this.resumed();
    if (this.arriving > MANY_ARRIVING) await Promise.all(this.arrivals.values());
    for (const each of this.accelerators) await each.backlog?.caughtUp();
  }

  /** The errors so far as JSON `[{kind, operation, message}]`; they are not given twice. */
  takeErrors(): string {
    return JSON.stringify(this.host.errors.take());
  }

  /** Bytes of a buffer of a host device, as a copy. Fails where it, or what comes before, is still on its way. */
  read(id: number, offset: number, nbytes: number): Uint8Array<ArrayBuffer> {
    this.forceFor(id);
    const device = this.owner(id);
    if (!isHost(device)) fail("internal", "read", `buffer ${id} cannot be read at once`);
    return this.peek(device, id, offset, nbytes);
  }

  private peek(device: HostDevice, id: number, offset: number, nbytes: number): Uint8Array<ArrayBuffer> {
    const bytes = device.peek(id, offset, nbytes, "read").slice();
    this.host.counters.reads++;
    this.host.counters.readBytes += nbytes;
    return bytes;
  }

  /** Bytes of a buffer of any device, once all work before is done and its errors are known. */
  readAsync(id: number, offset: number, nbytes: number): Promise<Uint8Array<ArrayBuffer>> {
    return this.inTurn(id, () => this.readNow(id, offset, nbytes));
  }

  private async readNow(id: number, offset: number, nbytes: number): Promise<Uint8Array<ArrayBuffer>> {
    const device = this.owner(id);
    if (isHost(device)) return this.peek(device, id, offset, nbytes);
    const bytes = device.read(id, offset, nbytes);
    if (this.host.faults.read()) this.loseDevice();
    return bytes;
  }

  /** As `readAsync`, at once; only where `canvasWorks()`. */
  readCanvas(id: number, offset: number, nbytes: number): Uint8Array<ArrayBuffer> {
    this.forceFor(id);
    const device = this.owner(id);
    return isHost(device) ? this.peek(device, id, offset, nbytes) : device.readCanvas(id, offset, nbytes);
  }

  /**
   * Draws a buffer of any device on a canvas of that size: by an accelerator where it is drawn to by one, and with no read of its
   * own buffers then. Else its bytes are read.
   */
  present(canvas: OffscreenCanvas, id: number, picture: Picture): Promise<void> {
    return this.inTurn(id, () => this.draw(canvas, id, picture));
  }

  private async draw(canvas: OffscreenCanvas, id: number, picture: Picture): Promise<void> {
    const [painter] = this.accelerators;
    const context = this.contextOf(canvas, painter);
    const device = this.owner(id);
    if (painter !== undefined && !("putImageData" in context)) {
      const bytes = isHost(device) ? device.peek(id, 0, picture.nbytes, "draw") : id;
      painter.present(context, picture, bytes);
      return;
    }
    const bytes = await this.readNow(id, 0, picture.nbytes);
    this.host.counters.pictures++;
    (context as OffscreenCanvasRenderingContext2D).putImageData(pixels(bytes, picture), 0, 0);
  }

  /** Kept, for Firefox gives that of WebGPU only once. */
  private contextOf(canvas: OffscreenCanvas, painter: Accelerator | undefined): Context {
    let context = this.contexts.get(canvas);
    if (context === undefined) {
      const found = painter?.contextOf(canvas) ?? canvas.getContext("2d");
      context = found ?? fail("internal", "draw", "this canvas cannot be drawn on");
      this.contexts.set(canvas, context);
    }
    return context;
  }

  /**
   * Starts another device where one was lost. Kernels, plans and ids go on; what uses a buffer that was lost
   * fails and says so. Resolves also where there is none to be had: then every use fails as before, and says why.
   */
  revive(): Promise<void> {
    const lost = this.accelerators.filter((each) => each.lost !== null);
    if (lost.length === 0) return Promise.resolve();
    this.reviving ??= Promise.all(lost.map((each) => this.replace(each))).then(() => {
      this.reviving = null;
    });
    return this.reviving;
  }

  private async replace(old: Accelerator): Promise<void> {
    const kind = this.kinds.find(({ number }) => this.devices.get(number) === old) as AcceleratorKind;
    let next: Accelerator;
    try {
      next = await kind.open(this.host);
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
      if (plan === undefined || plan.spec.device !== kind.number || plan instanceof BrokenPlan) continue;
      try {
        this.plans[id] = next.definePlan(plan.spec);
      } catch (error) {
        this.plans[id] = new BrokenPlan(plan.spec, recordOf(error, plan.spec.name));
      }
    }
    next.flush();
    this.devices.set(kind.number, next);
    this.listDevices();
    old.destroy();
  }

  /** Resolves with a message when one of the accelerators that are there now is lost; never, where there is none. */
  nextLoss(): Promise<string> {
    return Promise.race(this.accelerators.map((each) => each.deviceLost.then((record) => record.message)));
  }

  /** Makes the pipelines of kernels (ids, and how many parameter words) side by side, before plans need them. */
  async prepare(kernels: [id: number, words: number][]): Promise<void> {
    await Promise.all(this.accelerators.map((each) => each.prepare(kernels)));
  }

  private listDevices(): void {
    this.all = [...this.devices.values()];
    this.accelerators = this.all.filter((each) => !isHost(each)) as Accelerator[];
  }

  /** Whether a buffer can be read through a canvas: tried once, on a known pattern. */
  canvasWorks(): boolean {
    return this.accelerators.some((each) => each.canvasWorks());
  }

  /** Resolves when all work so far is done, its errors are known and its copies are there; rejects if the device is lost. */
  async synchronize(): Promise<void> {
    await this.resumed();
    for (const each of this.accelerators) await each.synchronize();
    await Promise.all(this.arrivals.values());
  }

  /** JSON `{webgpu, reason?, platform}`: of each accelerator what it is, or null. */
  info(): string {
    const found: Record<string, unknown> = {};
    for (const { accelerator, name, number } of this.kinds)
      if (accelerator) found[name] = (this.devices.get(number) as Accelerator | undefined)?.info ?? null;
    const [reason] = this.reasons.values();
    return JSON.stringify({ ...found, reason, platform: platform() });
  }

  /**
   * JSON of the counters, and of the memory and the dispatches of all devices together and of each. asItIs: what is held back until
   * pipelines are there is not carried out for this.
   */
  stats(asItIs = false): string {
    if (asItIs !== true) this.force();
    const sums: Record<string, number> = {};
    const each: Record<string, number> = {};
    for (const { number, prefix } of this.kinds) {
      const device = this.devices.get(number);
      const figures = {
        Buffers: device?.liveBuffers ?? 0,
        Bytes: device?.liveBytes ?? 0,
        PooledBytes: device?.pooledBytes ?? 0,
        PeakBytes: device?.peakBytes ?? 0,
        Dispatches: device?.dispatches ?? 0,
      };
      for (const [name, n] of Object.entries(figures)) {
        each[prefix + name] = n;
        const sum = name[0]?.toLowerCase() + name.slice(1);
        sums[sum] = (sums[sum] ?? 0) + n;
      }
    }
    const ids = Math.max(...this.all.map((device) => device.ids));
    const groups = this.accelerators.reduce((sum, { groupCount }) => sum + groupCount, 0);
    const optimizing = this.accelerators.reduce((sum, each) => sum + each.optimizing, 0);
    const more = { ids, planIds: this.plans.length, groups, optimizing };
    return JSON.stringify({ ...this.host.counters, ...sums, ...each, ...more });
  }

  /** Sets the counters to nought, and the peaks of memory to what is there. */
  resetStats(): void {
    this.force();
    this.host.counters.reset();
    for (const each of this.all) {
      each.peakBytes = each.liveBytes;
      each.dispatches = 0;
    }
  }

  /** Times dispatches on accelerators until `takeTimes`: "true", or "false" where none can. */
  startTimes(): string {
    this.force();
    return String(this.accelerators.map((each) => each.startTimes()).includes(true));
  }

  /** When each began and how long it took, in ns, as a JSON list of pairs. Call `synchronize` before. */
  takeTimes(): string {
    this.force();
    return JSON.stringify(this.accelerators.flatMap((each) => each.takeTimes()));
  }

  /** How many pipelines were asked for, and how many of these are ready. */
  get compiling(): { asked: number; ready: number } {
    const found = { asked: 0, ready: 0 };
    for (const { compiling } of this.accelerators) {
      found.asked += compiling.asked;
      found.ready += compiling.ready;
    }
    return found;
  }

  /** Of kernels of accelerators that are compiled, by id: how many milliseconds after they were asked for that was known. */
  compileTimes(): [id: number, ms: number][] {
    return this.accelerators.flatMap((each) => each.compileTimes());
  }

  /** Fails where `spec` (JSON, see `FaultSpec`) says, from now on. Returns what was counted so far. For tests. */
  fault(spec: string): string {
    this.force();
    return JSON.stringify(this.host.faults.arm(JSON.parse(spec)));
  }

  /** Loses the accelerators, as a driver reset would. For tests. */
  loseDevice(): void {
    for (const each of this.accelerators) each.loseDevice();
  }

  destroy(): void {
    for (const each of this.all) each.destroy();
    this.arrivals.clear();
    for (const each of this.held.splice(0)) if ("act" in each) each.act(); // reads, which fail now
  }

  private carryOut(reader: BlockReader, manner: Manner): void {
    for (;;) {
      const op = reader.advance();
      if (this.waits(op, reader, manner)) return;
      // FREE is not counted: how many there are, and whether one comes after a program's last read, is up to Python's collector.
      if (op !== 0 && op !== Op.FREE && this.host.faults.command()) this.loseDevice();
      switch (op) {
        case 0:
          return;
        case Op.RUN: {
          const plan = this.plans[reader.arg(0)];
          if (plan === undefined) fail("internal", "run", `plan ${reader.arg(0)} is not defined`);
          this.host.counters.runs++;
          const device = this.on(plan.spec.device);
          if (plan instanceof BrokenPlan) plan.run(reader, device);
          else device.run(plan, reader);
          break;
        }
        case Op.FREE:
          for (let i = 0, n = reader.arg(0); i < n; i++) this.free(reader.arg(1 + i));
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
        case Op.KERNEL:
          this.defineKernel(reader);
          break;
        case Op.DONE:
          break;
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

  private defineKernel(reader: BlockReader): void {
    const spec = reader.json(2, reader.arg(1)) as KernelSpec;
    this.on(spec.device).defineKernel(reader.arg(0), spec);
  }

  /** like: the plan of whose template this one is, or nothing. */
  private define(id: number, spec: PlanSpec, like?: Plan): void {
    this.host.counters.plans++;
    try {
      this.plans[id] = this.on(spec.device).definePlan(spec, like instanceof BrokenPlan ? undefined : like);
    } catch (error) {
      this.plans[id] = new BrokenPlan(spec, recordOf(error, spec.name));
      throw error;
    }
  }

  private free(id: number): void {
    if (this.arrivals.delete(id)) return;
    for (const each of this.all) if (each.free(id)) return;
    if (!this.accelerators.some((each) => each.lost)) fail("internal", "free", `no buffer ${id}`);
  }

  private copy(id: number, dev: number, source: number, nbytes: number): void {
    const from = this.owner(source);
    const to = this.on(dev);
    if (from === to) {
      to.copy(id, source, nbytes);
      return;
    }
    if (!isHost(from) && isHost(to)) {
      this.expect(id, to, nbytes, this.readNow(source, 0, nbytes));
      return;
    }
    let data: Uint8Array<ArrayBuffer>;
    try {
      if (!isHost(from)) fail("internal", "copy", "from an accelerator to another goes through a read");
      data = from.peek(source, 0, nbytes, "copy");
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
    if (plan === undefined) return;
    const device = this.on(plan.spec.device);
    if (!isHost(device)) device.forgetPlan(plan);
  }

  private on(dev: number): HostDevice | Accelerator {
    const device = this.devices.get(dev);
    if (device !== undefined) return device;
    const name = this.kinds.find((kind) => kind.number === dev)?.name ?? `device ${dev}`;
    return fail("internal", name, `there is no ${name} device: ${this.reasons.get(dev)}`);
  }

  private owner(id: number): HostDevice | Accelerator {
    for (const each of this.all) if (each.has(id)) return each;
    return fail("internal", "buffer", `no buffer ${id}`);
  }
}

function platform(): string {
  const { process, navigator } = globalThis as { process?: { versions?: { node?: string } }; navigator?: Navigator };
  return process?.versions?.node !== undefined ? `node ${process.versions.node}` : (navigator?.userAgent ?? "unknown");
}

export { CommandError, type ErrorRecord };

/** Starts a runtime, with every device that can be had; `info()` says why one is not there. */
export async function createRuntime(options: RuntimeOptions = {}): Promise<Runtime> {
  const host: Host = { options, errors: new ErrorLog(), counters: new Stats(), faults: new Faults() };
  const found = new Map<number, HostDevice | Accelerator>();
  const reasons = new Map<number, string>();
  for (const kind of devices) {
    if (kind.accelerator && options.preferCpu) {
      reasons.set(kind.number, "the cpu device was asked for");
      continue;
    }
    if (options.only !== undefined && kind.name !== options.only) continue;
    try {
      found.set(kind.number, await kind.open(host));
    } catch (error) {
      reasons.set(kind.number, (error as Error).message);
    }
  }
  return new Runtime(host, devices, found, reasons);
}

export default createRuntime;

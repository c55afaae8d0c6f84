/** A device, shared by the models on it: the runtime, the ids of buffers, kernels and plans, and the commands for it. */

import { type ErrorRecord, recordOf } from "../errors";
import { type KernelSpec, Op, type PlanSpec } from "../protocol";
import { createRuntime, type Runtime } from "../runtime";
import { Block } from "./block";
import { DeviceError } from "./errors";

export type DeviceName = "webgpu" | "cpu";

/** As in the commands: see js/src/devices. */
export const NUMBERS: Record<DeviceName, number> = { webgpu: 0, cpu: 1 };

export interface DeviceOptions {
  /** Default "auto": "webgpu" where that can be had, else "cpu"; `model.device` and `model.deviceReason` say which and why. */
  device?: DeviceName | "auto";
  /** Where to find WebGPU. Default: `navigator.gpu`, in Node npm's package `webgpu` if it is installed. */
  gpu?: GPU;
}

/** Whether this page may make functions of text, which kernels of the cpu device are. */
function mayCompile(): boolean {
  try {
    return new Function("return 1")() === 1;
  } catch {
    return false;
  }
}

const FORBIDDEN =
  "the cpu device makes JavaScript functions of kernels, which the Content-Security-Policy of this page forbids ('unsafe-eval'); the webgpu device needs no such thing";

/** How long the cpu device works on end, in milliseconds, before others of this thread have their turn: events, and what frees memory. */
const TURN_MS = 50;

/** Node has no WebGPU of its own. Its object is kept: Dawn ends with it. */
let dawn: Promise<GPU | undefined> | null = null;

async function findGpu(): Promise<GPU | undefined> {
  if (typeof navigator === "object" && navigator.gpu) return navigator.gpu;
  if (typeof process !== "object" || !process.versions?.node) return undefined;
  dawn ??= (async () => {
    const name = "webgpu"; // no bundler is to look for it
    try {
      const found = await import(/* @vite-ignore */ /* webpackIgnore: true */ name);
      Object.assign(globalThis, found.globals);
      return found.create([]) as GPU;
    } catch {
      return undefined;
    }
  })();
  return dawn;
}

const open = new Map<DeviceName | GPU, Promise<Engine>>();

export class Engine {
  readonly number: number;
  /** how often the device was lost and another one taken */
  generation = 0;
  readonly block = new Block();
  private users = 0;
  private found: { limits: Record<string, number> } | null = null;
  private top = 0;
  private spare: number[] = [];
  private freed: number[] = [];
  private readonly kernels = new Map<string, number>();
  private planTop = 0;
  private planSpare: number[] = [];
  /** counts what is sent, so that it is known what came before an error */
  private sent = 0;
  private failure: { error: DeviceError; sent: number } | null = null;
  private reviving: Promise<void> | null = null;
  private turn = performance.now();
  /** resolves with what the device says when it is lost */
  lost: Promise<string>;
  isLost = false;

  private constructor(
    readonly runtime: Runtime,
    readonly device: DeviceName,
    private readonly key: DeviceName | GPU,
  ) {
    this.number = NUMBERS[device];
    this.lost = this.watch();
  }

  /** The engine of that device, which may be another's, too: `release` it. Rejects with the reason where there is none. */
  static async open(device: DeviceName, gpu?: GPU): Promise<Engine> {
    const key = gpu ?? device;
    let opening = open.get(key);
    if (opening === undefined) {
      opening = Engine.start(device, key, gpu);
      open.set(key, opening);
      opening.catch(() => open.delete(key));
    }
    const engine = await opening;
    engine.users++;
    try {
      if (engine.isLost) await engine.revive(); // the others on it are told so, and call revive() themselves
      return engine;
    } catch (error) {
      engine.release();
      throw error;
    }
  }

  private static async start(device: DeviceName, key: DeviceName | GPU, given?: GPU): Promise<Engine> {
    if (device === "cpu") {
      if (!mayCompile()) throw new Error(FORBIDDEN);
      return new Engine(await createRuntime({ only: device }), device, key);
    }
    const gpu = given ?? (await findGpu());
    if (gpu === undefined) throw new Error("this platform has no WebGPU (navigator.gpu)");
    const runtime = await createRuntime({ gpu, only: device, watch: true });
    const { webgpu, reason } = JSON.parse(runtime.info());
    if (webgpu === null) throw new Error(reason);
    return new Engine(runtime, device, key);
  }

  /** When its last user has done so, all its memory is given back. */
  release(): void {
    if (--this.users > 0) return;
    open.delete(this.key);
    this.runtime.destroy();
  }

  /** What the adapter can; null on the cpu. */
  get adapter(): { limits: Record<string, number> } | null {
    this.found ??= JSON.parse(this.runtime.info()).webgpu ?? null;
    return this.found;
  }

  /** Of the cpu device, whose work is done at once: the bytes of a buffer. */
  readNow(id: number, nbytes: number): Uint8Array<ArrayBuffer> {
    return this.runtime.read(id, 0, nbytes);
  }

  // -- ids

  newId(): number {
    return this.spare.pop() ?? ++this.top;
  }

  /** Frees a buffer with the next commands. */
  free(id: number): void {
    this.freed.push(id);
  }

  private writeFrees(): void {
    const ids = this.freed;
    if (ids.length === 0) return;
    this.freed = [];
    this.block.command(Op.FREE, [ids.length, ...ids]);
    this.spare.push(...ids);
  }

  kernel(spec: KernelSpec): number {
    const key = JSON.stringify(spec);
    let id = this.kernels.get(key);
    if (id === undefined) {
      id = this.kernels.size + 1;
      this.kernels.set(key, id);
      this.block.define(Op.KERNEL, id, spec);
    }
    return id;
  }

  plan(spec: PlanSpec): number {
    const id = this.planSpare.pop() ?? ++this.planTop;
    this.block.define(Op.PLAN, id, spec);
    return id;
  }

  bind(template: number, numbers: readonly number[]): number {
    const id = this.planSpare.pop() ?? ++this.planTop;
    this.block.bind(id, template, numbers);
    return id;
  }

  forget(plans: readonly number[]): void {
    if (plans.length === 0) return;
    this.block.command(Op.FORGET, [plans.length, ...plans]);
    this.planSpare.push(...plans);
  }

  // -- commands

  upload(bytes: Uint8Array): number {
    const id = this.newId();
    this.block.command(Op.UPLOAD, [id, this.number, bytes.byteLength], bytes);
    return id;
  }

  /** A buffer of zeros. */
  alloc(nbytes: number): number {
    const id = this.newId();
    this.block.command(Op.ALLOC, [id, this.number, nbytes]);
    return id;
  }

  /** Bytes into a buffer, from byte `offset` on. */
  write(id: number, offset: number, bytes: Uint8Array): void {
    this.block.command(Op.WRITE, [id, offset, bytes.byteLength], bytes);
  }

  /** A part of a buffer as one. */
  alias(base: number, offset: number, nbytes: number): number {
    const id = this.newId();
    this.block.command(Op.ALIAS, [id, base, offset, nbytes]);
    return id;
  }

  copy(source: number, nbytes: number): number {
    const id = this.newId();
    this.block.command(Op.COPY, [id, this.number, source, nbytes]);
    return id;
  }

  /** Sends what was written. Throws what goes wrong at once. */
  send(): void {
    this.writeFrees();
    this.sent++;
    this.runtime.execute(this.block.take());
    this.check();
  }

  /** how many times something was sent */
  get time(): number {
    return this.sent;
  }

  /** Waits while more is on its way than the device does in a while; where nothing ever is, for the events of this thread. */
  async room(): Promise<void> {
    if (this.runtime.behind) await this.runtime.caughtUp();
    if (this.device === "webgpu" || performance.now() - this.turn < TURN_MS) return;
    await new Promise((resolve) => setTimeout(resolve));
    this.turn = performance.now();
  }

  /** The bytes of a buffer. made: when what is in it was sent. An error of the device from then on may be of that, and is thrown. */
  async read(id: number, nbytes: number, made = this.sent): Promise<Uint8Array<ArrayBuffer>> {
    if (this.freed.length > 0) this.send();
    let bytes: Uint8Array<ArrayBuffer>;
    try {
      bytes = await this.runtime.readAsync(id, 0, nbytes);
    } catch (error) {
      this.note(recordOf(error, "read"));
      throw this.failure?.error;
    }
    this.take();
    if (this.failure !== null && made <= this.failure.sent) throw this.failure.error;
    return bytes;
  }

  /** Resolves when all that was sent is done; rejects with what went wrong. */
  async synchronize(): Promise<void> {
    try {
      await this.runtime.synchronize();
    } catch (error) {
      this.note(recordOf(error, "synchronize"));
      throw this.failure?.error;
    }
    this.check();
  }

  private check(): void {
    const [first] = this.take();
    if (first !== undefined) throw this.failure?.error ?? new DeviceError(first);
  }

  private take(): ErrorRecord[] {
    const errors: ErrorRecord[] = JSON.parse(this.runtime.takeErrors());
    if (errors.length > 0) this.note(errors[0] as ErrorRecord);
    return errors;
  }

  private note(record: ErrorRecord): void {
    this.failure = { error: new DeviceError(record), sent: this.sent };
  }

  // -- loss

  private watch(): Promise<string> {
    this.isLost = false;
    return this.runtime.nextLoss().then((message) => {
      this.isLost = true;
      return message;
    });
  }

  /** Takes another device in the place of one that was lost. What the buffers held is gone. */
  revive(): Promise<void> {
    this.reviving ??= this.again().finally(() => {
      this.reviving = null;
    });
    return this.reviving;
  }

  private async again(): Promise<void> {
    this.runtime.takeErrors();
    await this.runtime.revive();
    try {
      await this.runtime.synchronize();
    } catch (error) {
      throw new DeviceError(recordOf(error, ""));
    }
    this.take();
    this.failure = null;
    this.generation++;
    this.lost = this.watch();
  }
}

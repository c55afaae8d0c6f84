/** What the runtime asks of a device. Each file of `devices/` is one: its default export says how to open it. */

import type { ErrorLog, ErrorRecord } from "./errors";
import type { Faults } from "./faults";
import type { Picture } from "./picture";
import type { BlockReader, KernelSpec, PlanSpec } from "./protocol";
import type { Stats } from "./stats";

type Bytes = Uint8Array<ArrayBuffer>;

/** What a device has made of a `PlanSpec`, to be run again and again. */
export interface Plan {
  readonly spec: PlanSpec;
}

/** Carries out commands in the order they come. A failure is thrown; what it keeps from being made is `lack`ed. */
export interface Device {
  /** how long the table of buffers is */
  readonly ids: number;
  readonly liveBuffers: number;
  readonly liveBytes: number;
  readonly pooledBytes: number;
  /** the most that was ever live */
  peakBytes: number;
  dispatches: number;
  defineKernel(id: number, spec: KernelSpec): void;
  /** like: a plan of this device and of the same steps, of which this one differs in numbers alone. */
  definePlan(spec: PlanSpec, like?: Plan): Plan;
  run(plan: Plan, reader: BlockReader): void;
  has(id: number): boolean;
  upload(id: number, data: Bytes): void;
  write(id: number, offset: number, data: Bytes): void;
  alloc(id: number, nbytes: number): void;
  copy(id: number, source: number, nbytes: number): void;
  alias(id: number, base: number, offset: number, nbytes: number): void;
  /** Makes `id` a buffer that fails every use. */
  lack(id: number, reason: ErrorRecord): void;
  /** False where `id` is no buffer of this device. */
  free(id: number): boolean;
  destroy(): void;
}

/** A device whose work is done when a command returns. */
export interface HostDevice extends Device {
  /** The bytes themselves of a buffer, not a copy. */
  peek(id: number, offset: number, nbytes: number, operation: string): Bytes;
}

/** A device that works while the program goes on, and may be lost. */
export interface Accelerator extends Device {
  /** why it is gone; the runtime opens another in its place */
  lost: ErrorRecord | null;
  readonly deviceLost: Promise<ErrorRecord>;
  /** what Python is told of it (`Runtime.info`) */
  readonly info: object;
  /** what is in flight, where somebody wants to know */
  readonly backlog: { readonly behind: boolean; readonly portion: number; caughtUp(): Promise<void> } | null;
  readonly compiling: { asked: number; ready: number };
  /** how many kernels run their baseline text while the other is compiled */
  readonly optimizing: number;
  readonly groupCount: number;
  /** Takes over from one that was lost: its kernels, and the ids of its buffers, which fail every use. */
  inherit(from: Accelerator): void;
  forgetPlan(plan: Plan): void;
  /** What a plan should wait for before it is run; null where there is nothing. */
  waitsFor(plan: Plan): Promise<void> | null;
  /** Sends what was recorded. */
  flush(): void;
  /** Makes pipelines ahead of the plans that need them: of kernels of its own, by id, with so many parameter words. */
  prepare(kernels: [id: number, words: number][]): Promise<void>;
  /** Resolves when all work so far is done; rejects if the device is lost. */
  synchronize(): Promise<void>;
  read(id: number, offset: number, nbytes: number): Promise<Bytes>;
  /** Whether a buffer can be read at once, through a canvas. */
  canvasWorks(): boolean;
  readCanvas(id: number, offset: number, nbytes: number): Bytes;
  /** What it draws with on a canvas; null where it cannot. */
  contextOf(canvas: OffscreenCanvas): GPUCanvasContext | null;
  present(context: GPUCanvasContext, picture: Picture, from: number | Bytes): void;
  startTimes(): boolean;
  takeTimes(): [begin: number, ns: number][];
  compileTimes(): [id: number, ms: number][];
  /** As a driver reset would. */
  loseDevice(): void;
}

export interface RuntimeOptions {
  /** where to find WebGPU; by default `navigator.gpu` */
  gpu?: GPU;
  /** leave accelerators alone */
  preferCpu?: boolean;
  /** the one kind of device to open, by its name; the others are left alone */
  only?: string;
  /** how long to go on asking for an adapter, in ms: a browser's GPU process may still be starting */
  patience?: number;
  /** keep `behind` up to date */
  watch?: boolean;
  /**
   * whether pipelines are made side by side while the program goes on, and plans wait for theirs; by default where the adapter is
   * hardware. Software compiles on the processors that everything else runs on. For callers that can wait for promises
   */
  sideBySide?: boolean;
  /** why there is no `gpu`, where the host knows */
  reason?: string;
}

/** What a runtime shares with its devices. */
export interface Host {
  readonly options: RuntimeOptions;
  readonly errors: ErrorLog;
  readonly counters: Stats;
  readonly faults: Faults;
}

interface Named {
  /** as in the commands, and in `BACKENDS` of py/tabtorch/base/device.py */
  readonly number: number;
  readonly name: string;
  /** what its counters are called by in `Runtime.stats` */
  readonly prefix: string;
}

export interface HostDeviceKind extends Named {
  readonly accelerator: false;
  open(host: Host): HostDevice | Promise<HostDevice>;
}

export interface AcceleratorKind extends Named {
  readonly accelerator: true;
  /** Rejects where there is none, and says why. */
  open(host: Host): Promise<Accelerator>;
}

export type DeviceKind = HostDeviceKind | AcceleratorKind;

/**
 * Who compiles. A device makes few pipelines at a time, whatever the processors (Dawn on an H200: two, where six devices make six
 * times as many): so, where many wait, other devices of the same adapter compile them too, and what the first device makes of the
 * same text then comes from the browser's, or the driver's, cache. Whether that is so is seen by its time; if it is not, or nothing
 * waits any more, they are let go.
 */

import { Layout } from "./bindgroups";

/** A pipeline that somebody wants. */
export interface Job {
  readonly label: string;
  readonly code: string;
  readonly constants: Record<string, number>;
  readonly layout: Layout;
  /** the first device's module of the code: made when it is needed */
  module(): GPUShaderModule;
  /** whether anybody still waits for it */
  wanted(): boolean;
}

interface Waiting {
  readonly job: Job;
  resolve(pipeline: GPUComputePipeline | null): void;
  reject(error: unknown): void;
}

/** Pipelines that have to wait before other devices are asked for; how long they have waited by then, in ms. */
const MANY = 6;
const LONG = 50;
/** How many the first device compiles itself while others may come, and how many each of those has at once. */
const FEW = 4;
const EACH = 2;
/** Ready in less than this many ms on average, they come from a cache already. */
const KNOWN = 15;
/** Others are of no use if the first device takes more than this share of their time to make the same again: seen of so many. */
const SHARE = 0.5;
const TRIED = 4;
/** ms without work after which others are let go. */
const IDLE = 5000;

/** Another device, which compiles and does nothing else. */
class Other {
  busy = 0;
  private readonly layouts = new Map<string, Layout>();

  constructor(readonly device: GPUDevice) {
    // what is wrong with a kernel the first device says, too
    device.addEventListener("uncapturederror", (event) => event.preventDefault());
  }

  async compile({ label, code, constants, layout }: Job): Promise<void> {
    const { device } = this;
    const { name, access, paramBytes } = layout;
    let own = this.layouts.get(name);
    if (own === undefined) {
      own = new Layout(device, name, access, paramBytes);
      this.layouts.set(name, own);
    }
    const module = device.createShaderModule({ label, code });
    await device.createComputePipelineAsync({ label, layout: own.pipeline, compute: { module, constants } });
  }
}

export class Compilers {
  private readonly urgent: Waiting[] = [];
  private readonly later: Waiting[] = [];
  private readonly others: Other[] = [];
  private opening = false;
  /** how many other devices there may be: none, once they have turned out to be of no use */
  private most: number;
  /** what the first device compiles, not counting what others have compiled already */
  private busy = 0;
  private done = 0;
  /** of what others have compiled: how many, the ms that they took, and those that the first device then took */
  private tried = 0;
  private theirs = 0;
  private ours = 0;
  private idle: ReturnType<typeof setTimeout> | undefined;
  private closed = false;

  constructor(
    private readonly first: GPUDevice,
    private readonly another: () => Promise<GPUDevice>,
    processors: number,
  ) {
    this.most = Math.max(0, Math.min(5, Math.floor(processors / 2) - 1));
  }

  /** how many other devices compile */
  get count(): number {
    return this.others.length;
  }

  /** The pipeline of a job, or null if nobody waits for it when its turn comes. later: after all those that are not. */
  compile(job: Job, later = false): Promise<GPUComputePipeline | null> {
    return new Promise((resolve, reject) => {
      (later ? this.later : this.urgent).push({ job, resolve, reject });
      this.turn();
    });
  }

  close(): void {
    this.closed = true;
    this.dismiss();
  }

  private get lacking(): boolean {
    return this.urgent.length >= MANY && this.others.length < this.most && !this.closed;
  }

  private turn(): void {
    clearTimeout(this.idle);
    for (const other of this.others)
      while (other.busy < EACH) {
        const next = this.urgent.shift() ?? this.later.shift();
        if (next === undefined) break;
        void this.by(other, next);
      }
    // The first one makes what the others have compiled, as long as there are any.
    const room = this.most === 0 ? Number.POSITIVE_INFINITY : this.others.length > 0 ? 0 : FEW;
    while (this.busy < room && this.urgent.length > 0) void this.alone(this.urgent.shift() as Waiting);
    if (this.others.length === 0 && this.busy === 0 && this.later.length > 0)
      void this.alone(this.later.shift() as Waiting);
    if (this.lacking && !this.opening) void this.open();
    if (this.others.length > 0 && this.others.every((other) => other.busy === 0)) {
      this.idle = setTimeout(() => this.dismiss(), IDLE);
      (this.idle as { unref?(): void }).unref?.(); // Node may end meanwhile
    }
  }

  /** Has other devices, one after the other, as long as many pipelines wait. */
  private async open(): Promise<void> {
    this.opening = true;
    const before = this.done;
    await new Promise((resolve) => setTimeout(resolve, LONG));
    if ((this.done - before) * KNOWN < LONG) {
      while (this.lacking) {
        const device = await this.another().catch(() => null);
        if (device === null) this.most = this.others.length;
        else if (this.closed || this.most === 0) device.destroy();
        else this.join(new Other(device));
      }
    }
    this.opening = false;
    this.turn();
  }

  private join(other: Other): void {
    this.others.push(other);
    void other.device.lost.then(() => {
      const at = this.others.indexOf(other);
      if (at >= 0) this.others.splice(at, 1);
      this.turn();
    });
    this.turn();
  }

  private async alone({ job, resolve, reject }: Waiting): Promise<void> {
    this.busy++;
    await this.make(job).then(resolve, reject);
    this.busy--;
    this.done++;
    this.turn();
  }

  private async by(other: Other, { job, resolve, reject }: Waiting): Promise<void> {
    if (!job.wanted()) return resolve(null);
    other.busy++;
    const begin = performance.now();
    const compiled = await other.compile(job).then(
      () => true,
      () => false,
    );
    other.busy--;
    this.turn();
    const made = performance.now();
    await this.make(job).then(resolve, reject);
    if (!compiled) return;
    this.tried++;
    this.theirs += made - begin;
    this.ours += performance.now() - made;
    if (this.tried === TRIED && this.ours > SHARE * this.theirs) {
      this.most = 0;
      this.dismiss();
      this.turn();
    }
  }

  private async make(job: Job): Promise<GPUComputePipeline | null> {
    if (!job.wanted()) return null;
    const { label, layout, constants } = job;
    return this.first.createComputePipelineAsync({
      label,
      layout: layout.pipeline,
      compute: { module: job.module(), constants },
    });
  }

  private dismiss(): void {
    clearTimeout(this.idle);
    for (const { device } of this.others.splice(0)) device.destroy();
  }
}

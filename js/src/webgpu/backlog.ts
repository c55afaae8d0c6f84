/**
 * How far Python may run ahead of the GPU: some frames' worth of work, so that what is stopped is soon over, what is read is
 * soon there, and the page can draw meanwhile. Work is counted as the engine does, in elements (`PlanSpec.work`); how much of
 * it the GPU does in a millisecond is found by watching.
 */

import { nudged } from "./nudge";

/** Work in flight after which Python waits, in milliseconds of the GPU's. */
export const AHEAD_MS = 100;
/** Elements a millisecond, until more is known: of an adapter that is software, and of one that is not. */
const SOFTWARE = 2 ** 21;
const HARDWARE = 2 ** 27;
const FASTEST = 2 ** 37;
/** Fences in what may be in flight. News of them comes only while Python waits: with one alone it waited for all, and the GPU was idle. */
const FENCES = 8;
/** Waits that say nothing: the GPU was done already, and the news of it took so long. */
const NEWS_MS = 4;

export class Backlog {
  /** How much should be sent at once. Changed seldom: programs that are cut at other places are scheduled anew. */
  portion: number;
  private sent = 0;
  private done = 0;
  private fenced = 0;
  private speed: number;
  private readonly fences: Promise<void>[] = [];

  constructor(
    private readonly device: GPUDevice,
    software: boolean,
  ) {
    this.speed = software ? SOFTWARE : HARDWARE;
    this.portion = this.suitable();
  }

  /** A submit, with the work in it. */
  submitted(work: number): void {
    this.sent += work;
    if (this.fences.length === 0 || this.sent - this.fenced > (this.speed * AHEAD_MS) / FENCES) this.fence();
  }

  /** Whether more is in flight than should be, as far as is known: news of the GPU comes only while Python waits. */
  get behind(): boolean {
    return this.sent - this.done > this.speed * AHEAD_MS;
  }

  /** Resolves when there is room again. Half is left in flight, so that the GPU is not idle meanwhile. */
  async caughtUp(): Promise<void> {
    const begin = performance.now();
    const before = this.done;
    while (this.sent - this.done > (this.speed * AHEAD_MS) / 2) {
      if (this.fences.length === 0) this.fence();
      await nudged(this.device, this.fences[0]);
    }
    const ms = performance.now() - begin;
    // Part of what is done now may have been so before; and a kernel that had to be compiled tells nothing of the others.
    const seen = ms > NEWS_MS ? (this.done - before) / ms : 2 * this.speed;
    this.speed = Math.max(SOFTWARE / 4, Math.min(seen, 2 * this.speed, FASTEST), this.speed / 2);
    const ahead = this.speed * AHEAD_MS;
    if (ahead < this.portion || ahead > 16 * this.portion) this.portion = this.suitable();
  }

  private suitable(): number {
    return 4 ** Math.floor(Math.log2(this.speed * AHEAD_MS) / 2);
  }

  /** After what was sent so far. Queues end in order, so the first fence is the next to be reached. */
  private fence(): void {
    const upTo = this.sent;
    this.fenced = upTo;
    const reached = this.device.queue.onSubmittedWorkDone().catch(() => {}); // a lost device has nothing in flight
    const fence = reached.then(() => {
      this.done = Math.max(this.done, upTo);
      this.fences.splice(this.fences.indexOf(fence), 1);
      if (this.fences.length === 0 && this.sent > upTo) this.fence();
    });
    this.fences.push(fence);
  }
}

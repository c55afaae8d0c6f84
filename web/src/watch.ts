/**
 * What the runtime is doing, told to the page: how many pipelines are ready while some are not, and, while somebody looks,
 * its counters. Both go out from here, beside Python: a loop that never waits sends commands, and each block is an occasion.
 */

/** What the page needs of the runtime of js/src. */
export interface Watched {
  observer: (() => void) | null;
  readonly compiling: { asked: number; ready: number };
  stats(asItIs?: boolean): string;
  compileTimes(): [kernel: number, ms: number][];
}

export type WatchEvent =
  /** Of so many pipelines that were asked for since all were ready, so many are. */
  | { event: "compiling"; ready: number; asked: number }
  /** Counters of the runtime at a time in ms, and bytes of Python's memory. */
  | { event: "figures"; at: number; counters: Record<string, number>; heap: number };

const FIGURES_MS = 250;
const COMPILING_MS = 100;
/** Pipelines that are asked for so soon after the last are counted with them. */
const PAUSE_MS = 2000;

export class Watch {
  #on = false;
  #timer: ReturnType<typeof setInterval> | undefined;
  #told = Number.NEGATIVE_INFINITY;
  #before = 0; // pipelines that were there already
  #settled = true; // whether the page knows that all are ready
  #settledAt = Number.NEGATIVE_INFINITY;
  #progressAt = Number.NEGATIVE_INFINITY;

  /** flag: shared memory in which the page says whether it looks, so that a loop that never waits learns it. */
  constructor(
    private readonly runtime: Watched,
    private readonly emit: (event: WatchEvent) => void,
    private readonly heap: () => number,
    private readonly flag: Int32Array | undefined,
  ) {
    runtime.observer = () => this.#look();
  }

  /** Tell the counters from now on, or no longer. */
  set on(on: boolean) {
    this.#on = on;
    this.#told = Number.NEGATIVE_INFINITY;
    this.#look();
  }

  get #looking(): boolean {
    return this.#on || (this.flag !== undefined && Atomics.load(this.flag, 0) === 1);
  }

  #look(): void {
    const { asked, ready } = this.runtime.compiling;
    const compiles = asked > ready || !this.#settled;
    if (compiles) this.#compiling(asked, ready);
    const looking = this.#looking;
    if (looking) this.#figures();
    const waits = looking || !this.#settled;
    if (waits) this.#timer ??= setInterval(() => this.#look(), COMPILING_MS);
    else {
      clearInterval(this.#timer);
      this.#timer = undefined;
    }
  }

  #compiling(asked: number, ready: number): void {
    const now = performance.now();
    if (this.#settled) {
      this.#settled = false;
      if (now - this.#settledAt > PAUSE_MS || ready < this.#before) this.#before = ready;
    } else if (asked > ready && now - this.#progressAt < COMPILING_MS) return;
    this.#progressAt = now;
    if (asked <= ready) {
      this.#settled = true;
      this.#settledAt = now;
    }
    this.emit({ event: "compiling", ready: ready - this.#before, asked: asked - this.#before });
  }

  #figures(): void {
    const at = performance.now();
    if (at - this.#told < FIGURES_MS) return;
    this.#told = at;
    this.emit({ event: "figures", at, counters: JSON.parse(this.runtime.stats(true)), heap: this.heap() });
  }
}

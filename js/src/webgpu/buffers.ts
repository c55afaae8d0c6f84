/** GPU memory: blocks from a pool in size classes, and the handles that Python's ids stand for. */

import { CommandError, type ErrorLog, type ErrorRecord } from "../errors";
import type { Faults } from "../faults";
import { Pool, type Pooled } from "../pool";
import { classCapacity, sizeClass } from "../sizes";
import type { Stats } from "../stats";
import type { ErrorScopes } from "./scopes";

const USAGE = 0x80 | 0x04 | 0x08; // STORAGE | COPY_SRC | COPY_DST

export const FINE = 0;
/** asked for, and not yet known to have been had: only large ones are watched */
export const UNSURE = 1;
export const BAD = 2;

/** From this size on a failed allocation must not take other work down with it. */
const WATCHED = 16 * 2 ** 20;
/** Free memory that is always kept; above, what recent work needed at its height decides. */
const FLOOR = 64 * 2 ** 20;
const WINDOW = 64;
/** How much of that may be held: of what is unused for so many submits, and in all. A step has its sizes one after the other. */
const UNUSED = 1.25;
const IN_ALL = 2;
const LONG_UNUSED = 2 * WINDOW;

let nextKey = 1;

/** One GPUBuffer, shared by the handles (`refs`) onto it. */
export class Block implements Pooled {
  poolIndex = -1;
  refs = 1;
  state = FINE;
  /** how many more uses are kept apart while it is unsure */
  watched = 8;
  /** the submit (see `Stream.serial`) that last used it */
  serial = 0;
  /** whether it may hold anything but zeros */
  dirty = false;
  /** how many submits there had been when it was last released */
  released = 0;
  destroyed = false;
  reason: ErrorRecord | null = null;
  readonly whole: Handle;
  private windows: Map<string, number> | null = null;

  constructor(
    readonly buffer: GPUBuffer,
    readonly classIndex: number,
    readonly capacity: number,
  ) {
    this.whole = new Handle(this, 0, capacity, nextKey++);
  }

  get failed(): boolean {
    return this.state === BAD;
  }

  /** The same number for the same window, so that bind groups of it are found again. */
  keyAt(offset: number, span: number): number {
    this.windows ??= new Map();
    const place = `${offset} ${span}`;
    let key = this.windows.get(place);
    if (key === undefined) {
      key = nextKey++;
      this.windows.set(place, key);
    }
    return key;
  }
}

/**
 * A window onto a block. `key` names block, offset and span, once and for all. `span`: the bytes that a bind group binds; 0:
 * all from `offset` on. Windows that do not overlap have spans that do not, so that one dispatch may write to several.
 */
export class Handle {
  constructor(
    readonly block: Block,
    readonly offset: number,
    public nbytes: number,
    readonly key: number,
    readonly span = 0,
  ) {}
}

export class Buffers {
  liveBytes = 0;
  /** the most that was ever live */
  peakBytes = 0;
  private readonly pool = new Pool<Block>();
  /** what the device has shown not to hold */
  private budget = Number.POSITIVE_INFINITY;
  /** the most that was live since `age` was 0, and in the window before */
  private peak = 0;
  private peakBefore = 0;
  private age = 0;
  private submits = 0;
  private readonly largest: number;

  constructor(
    private readonly device: GPUDevice,
    private readonly scopes: ErrorScopes,
    private readonly errors: ErrorLog,
    private readonly stats: Stats,
    private readonly faults: Faults,
    /** submits pending work, after which free buffers may be destroyed */
    private readonly submit: () => void,
    private readonly dropped: () => void,
  ) {
    // whole groups of four of the widest elements, as all classes are: kernels store such groups, the last one too
    this.largest = device.limits.maxBufferSize - (device.limits.maxBufferSize % 64);
  }

  get pooledBytes(): number {
    return this.pool.bytes;
  }

  /** A block of the class; its contents are whatever they were. Throws out-of-memory where it can never be. */
  lease(classIndex: number, nbytes: number, operation: string): Block {
    this.faults.allocation(nbytes, operation);
    const block = this.pool.take(classIndex);
    return block === undefined ? this.create(classIndex, nbytes, operation) : this.reuse(block);
  }

  /** This very block if it is free, so that what was cached for it still holds; else any of its class. */
  leaseAgain(block: Block | undefined, classIndex: number, nbytes: number, operation: string): Block {
    if (block === undefined || block.poolIndex < 0) return this.lease(classIndex, nbytes, operation);
    this.faults.allocation(nbytes, operation);
    this.pool.claim(block);
    return this.reuse(block);
  }

  /** A block that no work since submit `serial` uses: it may be written at once, ahead of that work. */
  leaseIdle(nbytes: number, serial: number, operation: string): Block {
    this.faults.allocation(nbytes, operation);
    const classIndex = sizeClass(nbytes);
    const block = this.pool.find(classIndex, (free) => free.serial !== serial);
    return block === undefined ? this.create(classIndex, nbytes, operation) : this.reuse(block);
  }

  release(block: Block): void {
    if (--block.refs > 0) return;
    if (block.state === BAD) {
      this.forget(block);
      return;
    }
    this.liveBytes -= block.capacity;
    block.released = this.submits;
    this.pool.give(block);
  }

  /** A stand-in for a buffer that could not be had: everything that uses it fails with `reason`. */
  stillborn(reason: ErrorRecord): Block {
    const block = new Block(this.device.createBuffer({ size: 16, usage: USAGE, label: "none" }), -1, 16);
    block.state = BAD;
    block.reason = reason;
    return block;
  }

  /** Called after a submit: gives back memory that recent work has not needed, temporaries of its plans included. */
  settle(): void {
    this.submits++;
    if (++this.age >= WINDOW) {
      this.age = 0;
      this.peakBefore = this.peak;
      this.peak = this.liveBytes;
    }
    const height = Math.max(this.peak, this.peakBefore);
    const bound = (times: number) => Math.min(times * height + FLOOR, this.budget);
    const held = this.liveBytes + this.pool.bytes;
    if (held <= bound(UNUSED)) return;
    const room = (most: number) => Math.max(0, 0.8 * most - this.liveBytes);
    this.trim(room(bound(UNUSED)), (block) => this.submits - block.released > LONG_UNUSED);
    if (this.liveBytes + this.pool.bytes > bound(IN_ALL)) this.trim(room(bound(IN_ALL)));
  }

  destroy(): void {
    this.trim(0);
  }

  private reuse(block: Block): Block {
    block.refs = 1;
    block.dirty = true;
    this.hold(block.capacity);
    return block;
  }

  private hold(bytes: number): void {
    this.liveBytes += bytes;
    if (this.liveBytes > this.peakBytes) this.peakBytes = this.liveBytes;
    if (this.liveBytes > this.peak) this.peak = this.liveBytes;
  }

  private create(classIndex: number, nbytes: number, operation: string): Block {
    const capacity = Math.min(classCapacity(classIndex), this.largest);
    const refused = (why: string): ErrorRecord => ({
      kind: "out-of-memory",
      operation,
      message: `tried to allocate ${mib(nbytes)} on webgpu (${mib(this.liveBytes)} in use, ${mib(this.pool.bytes)} free for reuse): ${why}`,
    });
    if (nbytes > this.largest)
      throw new CommandError(refused(`one buffer holds at most ${mib(this.largest)} on this device`));
    if (this.pool.bytes > 0 && this.liveBytes + this.pool.bytes + capacity > this.budget) {
      this.submit();
      this.trim(Math.max(0, this.budget - this.liveBytes - capacity));
    }
    this.scopes.enter();
    const make = () => this.device.createBuffer({ size: capacity, usage: USAGE });
    this.stats.buffersCreated++;
    this.hold(capacity);
    if (capacity < WATCHED) return new Block(make(), classIndex, capacity);

    const failed = (error: { message: string }) => {
      block.reason = refused(error.message);
      block.state = BAD;
      this.errors.add(block.reason);
      if (block.poolIndex >= 0) {
        this.pool.claim(block);
        this.forget(block);
      } else {
        this.liveBytes -= capacity;
      }
      // Leave room for the next try.
      this.budget = Math.max(WATCHED, 0.95 * (this.liveBytes + this.pool.bytes + capacity));
      this.submit();
      this.trim(0);
    };
    let block: Block;
    try {
      const buffer = this.scopes.around("out-of-memory", make, failed, () => {
        if (block.state === UNSURE) block.state = FINE;
      });
      block = new Block(buffer, classIndex, capacity);
    } catch (error) {
      this.liveBytes -= capacity;
      throw new CommandError(refused((error as Error).message));
    }
    block.state = UNSURE;
    return block;
  }

  private trim(target: number, may?: (block: Block) => boolean): void {
    const before = this.pool.bytes;
    this.pool.trim(target, (block) => this.forget(block), may);
    if (this.pool.bytes < before) this.dropped();
  }

  private forget(block: Block): void {
    block.destroyed = true;
    block.buffer.destroy();
    this.stats.buffersDestroyed++;
  }
}

function mib(bytes: number): string {
  return bytes < 2 ** 20 ? `${bytes} bytes` : `${(bytes / 2 ** 20).toFixed(1)} MiB`;
}

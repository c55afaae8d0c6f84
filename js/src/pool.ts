/** Free buffers by size class. Both devices run in order, so a buffer may be reused as soon as it is freed. */

import { CLASS_COUNT } from "./sizes";

export interface Pooled {
  readonly classIndex: number;
  readonly capacity: number;
  /** place in its free list, -1 while in use */
  poolIndex: number;
}

export class Pool<T extends Pooled> {
  bytes = 0;
  private readonly free: T[][] = Array.from({ length: CLASS_COUNT }, () => []);

  /** The most recently freed buffer of the class. */
  take(classIndex: number): T | undefined {
    const block = (this.free[classIndex] as T[]).pop();
    if (block === undefined) return undefined;
    block.poolIndex = -1;
    this.bytes -= block.capacity;
    return block;
  }

  /** The most recently freed buffer of the class that `fits`. */
  find(classIndex: number, fits: (block: T) => boolean): T | undefined {
    const block = (this.free[classIndex] as T[]).findLast(fits);
    if (block !== undefined) this.claim(block);
    return block;
  }

  /** Takes this very buffer, which must be free. */
  claim(block: T): void {
    const list = this.free[block.classIndex] as T[];
    const last = list.pop() as T;
    if (last !== block) {
      list[block.poolIndex] = last;
      last.poolIndex = block.poolIndex;
    }
    block.poolIndex = -1;
    this.bytes -= block.capacity;
  }

  give(block: T): void {
    const list = this.free[block.classIndex] as T[];
    block.poolIndex = list.length;
    list.push(block);
    this.bytes += block.capacity;
  }

  /**
   * Drops free buffers that may go, the largest classes and the longest unused first, until at most `target` bytes stay.
   */
  trim(target: number, destroy: (block: T) => void, may: (block: T) => boolean = () => true): void {
    for (let i = this.free.length - 1; i >= 0 && this.bytes > target; i--) {
      const list = this.free[i] as T[];
      const kept = list.filter((block) => {
        if (this.bytes <= target || !may(block)) return true;
        block.poolIndex = -1;
        this.bytes -= block.capacity;
        destroy(block);
        return false;
      });
      list.splice(0, list.length, ...kept);
      kept.forEach((block, at) => {
        block.poolIndex = at;
      });
    }
  }
}

/**
 * Reads: copies into mappable buffers, which are kept for the next ones. Reads that are asked for
 * in one turn of the event loop share a buffer, a submit and a map.
 */

import { CommandError, type ErrorRecord } from "../errors";
import { classCapacity, sizeClass } from "../sizes";
import type { Stats } from "../stats";
import type { Handle } from "./buffers";
import { nudged } from "./nudge";
import type { ErrorScopes } from "./scopes";
import type { Stream } from "./stream";

const SMALLEST = 1 << 16;
const KEPT_BYTES = 64 * 2 ** 20;
const MAP_READ = 1;

interface Read {
  at: number;
  nbytes: number;
  resolve: (bytes: Uint8Array<ArrayBuffer>) => void;
  reject: (error: unknown) => void;
}

class Batch {
  used = 0;
  readonly reads: Read[] = [];
  constructor(
    readonly buffer: GPUBuffer,
    readonly capacity: number,
  ) {}
}

export class Readback {
  private kept: Batch[] = [];
  private open: Batch[] = [];
  private scheduled = false;

  constructor(
    private readonly device: GPUDevice,
    private readonly stream: Stream,
    private readonly scopes: ErrorScopes,
    private readonly stats: Stats,
    /** submits under error scopes, and resolves when the scopes of everything before have answered */
    private readonly flush: () => Promise<void>,
    private readonly lost: () => ErrorRecord | null,
  ) {}

  /** Bytes [offset, offset + nbytes) of `handle`, as they are at this point of the stream. */
  read(handle: Handle, offset: number, nbytes: number): Promise<Uint8Array<ArrayBuffer>> {
    const from = handle.offset + offset;
    const start = from - (from % 4); // copies are in words
    const size = Math.ceil((from + nbytes - start) / 4) * 4;
    const batch = this.room(size);
    this.stream.encode().copyBufferToBuffer(handle.block.buffer, start, batch.buffer, batch.used, size);
    handle.block.serial = this.stream.serial;
    this.stats.reads++;
    this.stats.readBytes += nbytes;
    const done = new Promise<Uint8Array<ArrayBuffer>>((resolve, reject) => {
      batch.reads.push({ at: batch.used + from - start, nbytes, resolve, reject });
    });
    batch.used += size;
    if (!this.scheduled) {
      this.scheduled = true;
      queueMicrotask(() => this.send());
    }
    return done;
  }

  destroy(): void {
    for (const batch of this.kept) batch.buffer.destroy();
    this.kept = [];
  }

  private room(size: number): Batch {
    const last = this.open[this.open.length - 1];
    if (last !== undefined && last.used + size <= last.capacity) return last;
    const capacity = Math.max(SMALLEST, classCapacity(sizeClass(size)));
    const at = this.kept.findIndex((batch) => batch.capacity === capacity);
    let batch: Batch;
    if (at >= 0) {
      [batch] = this.kept.splice(at, 1) as [Batch];
    } else {
      const usage = MAP_READ | 0x08; // COPY_DST
      this.scopes.enter();
      batch = new Batch(this.device.createBuffer({ label: "read", size: capacity, usage }), capacity);
    }
    this.open.push(batch);
    return batch;
  }

  private send(): void {
    this.scheduled = false;
    const batches = this.open;
    this.open = [];
    const settled = this.flush();
    for (const batch of batches) void this.deliver(batch, settled);
  }

  private async deliver(batch: Batch, settled: Promise<void>): Promise<void> {
    const { reads, buffer } = batch;
    try {
      this.stats.maps++;
      await nudged(this.device, buffer.mapAsync(MAP_READ, 0, batch.used));
      await settled;
      const all = buffer.getMappedRange(0, batch.used);
      for (const read of reads) read.resolve(new Uint8Array(all.slice(read.at, read.at + read.nbytes)));
      buffer.unmap();
      batch.reads.length = 0;
      batch.used = 0;
      this.keep(batch);
    } catch (error) {
      await settled;
      buffer.destroy();
      // A map may fail a moment before the news of a lost device comes.
      if (this.lost() === null) await new Promise((resolve) => setTimeout(resolve, 20));
      const record = this.lost() ?? {
        kind: "internal" as const,
        operation: "read",
        message: `the read failed: ${(error as Error).message}`,
      };
      for (const read of reads) read.reject(new CommandError(record));
    }
  }

  private keep(batch: Batch): void {
    this.kept.push(batch);
    let bytes = this.kept.reduce((sum, each) => sum + each.capacity, 0);
    while (bytes > KEPT_BYTES && this.kept.length > 0) {
      const oldest = this.kept.shift() as Batch;
      bytes -= oldest.capacity;
      oldest.buffer.destroy();
    }
  }
}

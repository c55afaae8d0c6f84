/** The GPU's own times of dispatches, where the device has timestamp queries. For the profiler: each takes a pass. */

const DISPATCHES = 2048; // a query set holds 4096 timestamps
const QUERY_RESOLVE = 0x200;
const COPY_SRC = 0x4;
const COPY_DST = 0x8;
const MAP_READ = 0x1;

export class Timer {
  /** of each dispatch, in order, as far as they have come back: when it began, since the first of all, and how long it took, in ns */
  readonly times: [begin: number, ns: number][] = [];
  private first: bigint | null = null;
  private readonly queries: GPUQuerySet;
  private readonly resolved: GPUBuffer;
  private count = 0;
  private staging: GPUBuffer | null = null;
  private waiting: Promise<void> = Promise.resolve();

  constructor(private readonly device: GPUDevice) {
    this.queries = device.createQuerySet({ type: "timestamp", count: 2 * DISPATCHES });
    this.resolved = device.createBuffer({ size: 16 * DISPATCHES, usage: QUERY_RESOLVE | COPY_SRC });
  }

  get full(): boolean {
    return this.count === DISPATCHES;
  }

  /** What the pass of the next dispatch is begun with. */
  next(): GPUComputePassDescriptor {
    const at = 2 * this.count++;
    return {
      timestampWrites: { querySet: this.queries, beginningOfPassWriteIndex: at, endOfPassWriteIndex: at + 1 },
    };
  }

  resolve(encoder: GPUCommandEncoder): void {
    if (this.count === 0) return;
    const size = 16 * this.count;
    this.staging = this.device.createBuffer({ size, usage: MAP_READ | COPY_DST });
    encoder.resolveQuerySet(this.queries, 0, 2 * this.count, this.resolved, 0);
    encoder.copyBufferToBuffer(this.resolved, 0, this.staging, 0, size);
    this.count = 0;
  }

  submitted(): void {
    const { staging } = this;
    if (staging === null) return;
    this.staging = null;
    const mapped = staging.mapAsync(MAP_READ);
    this.waiting = this.waiting.then(async () => {
      try {
        await mapped;
      } catch {
        return; // the device is lost, which others say
      }
      const stamps = new BigUint64Array(staging.getMappedRange());
      this.first ??= stamps[0] as bigint;
      for (let i = 0; i < stamps.length; i += 2) {
        const begin = stamps[i] as bigint;
        this.times.push([Number(begin - this.first), Number((stamps[i + 1] as bigint) - begin)]);
      }
      staging.destroy();
    });
  }

  /** Once the times of everything that was submitted are there. */
  settled(): Promise<void> {
    return this.waiting;
  }

  destroy(): void {
    this.queries.destroy();
    this.resolved.destroy();
  }
}

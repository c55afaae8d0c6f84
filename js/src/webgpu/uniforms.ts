/**
 * Parameter blocks of the dispatches that are not submitted yet: staged here, and written to one
 * buffer with one call just before they are submitted. The queue keeps the order between submits,
 * so each starts again at the front.
 */

const INITIAL = 1 << 20;

export class Uniforms {
  words = new Uint32Array(INITIAL / 4);
  floats = new Float32Array(this.words.buffer);
  buffer: GPUBuffer;
  readonly alignment: number;
  private used = 0;

  constructor(
    private readonly device: GPUDevice,
    /** the largest binding, which may reach past the last parameter block */
    private readonly slack: number,
    /** submits pending work, and with it what is staged */
    private readonly submit: () => void,
    /** called before another buffer is made */
    private readonly replacing: () => void,
  ) {
    this.alignment = Math.max(device.limits.minUniformBufferOffsetAlignment, 32);
    this.buffer = this.create();
  }

  /** Makes sure that there is room for `nbytes`; this may submit what is recorded. */
  ensure(nbytes: number): void {
    if (this.used + nbytes <= this.words.byteLength) return;
    this.submit();
    this.used = 0;
    if (nbytes > this.words.byteLength) this.grow(nbytes);
  }

  /** `nbytes` of the room that there is, aligned: where they start. */
  reserve(nbytes: number): number {
    const start = this.used;
    this.used += nbytes;
    return start;
  }

  /** Sends what is staged. */
  flush(): void {
    if (this.used > 0) this.device.queue.writeBuffer(this.buffer, 0, this.words, 0, this.used / 4);
    this.used = 0;
  }

  destroy(): void {
    this.buffer.destroy();
  }

  private grow(nbytes: number): void {
    this.words = new Uint32Array(2 ** Math.ceil(Math.log2(nbytes)) / 4);
    this.floats = new Float32Array(this.words.buffer);
    this.buffer.destroy();
    this.replacing();
    this.buffer = this.create();
  }

  private create(): GPUBuffer {
    const size = this.words.byteLength + this.slack;
    return this.device.createBuffer({ label: "parameters", size, usage: 0x40 | 0x08 }); // UNIFORM | COPY_DST
  }
}

/** What has been recorded and not yet submitted: one encoder, and in it one pass for as long as only dispatches come. */

import type { Stats } from "../stats";
import type { Timer } from "./timer";

export class Stream {
  /** names the submit that is being recorded */
  serial = 1;
  /** what the open pass has set, to be set only when it changes */
  pipeline: GPUComputePipeline | null = null;
  /** while dispatches are timed, each in a pass of its own */
  timer: Timer | null = null;
  private encoder: GPUCommandEncoder | null = null;
  private pass: GPUComputePassEncoder | null = null;

  constructor(
    private readonly device: GPUDevice,
    private readonly stats: Stats,
    private readonly beforeSubmit: () => void,
  ) {}

  get empty(): boolean {
    return this.encoder === null;
  }

  /** The open pass. */
  compute(): GPUComputePassEncoder {
    if (this.timer !== null) {
      this.endPass();
      if (this.timer.full) this.submit();
    }
    if (this.pass !== null) return this.pass;
    this.encoder ??= this.device.createCommandEncoder();
    this.pass = this.encoder.beginComputePass(this.timer?.next());
    this.stats.passes++;
    return this.pass;
  }

  /** The encoder, between passes: for copies and clears. */
  encode(): GPUCommandEncoder {
    this.endPass();
    this.encoder ??= this.device.createCommandEncoder();
    return this.encoder;
  }

  submit(): void {
    if (this.encoder === null) return;
    this.endPass();
    this.beforeSubmit();
    const { timer } = this;
    timer?.resolve(this.encoder);
    const commands = this.encoder.finish();
    this.encoder = null;
    this.serial++;
    this.stats.submits++;
    this.device.queue.submit([commands]);
    timer?.submitted();
  }

  private endPass(): void {
    if (this.pass === null) return;
    this.pass.end();
    this.pass = null;
    this.pipeline = null;
  }
}

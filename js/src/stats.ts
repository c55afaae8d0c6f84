/** Counters of one runtime. Plain fields, because the hot path adds to them. */

export class Stats {
  executes = 0;
  runs = 0;
  submits = 0;
  passes = 0;
  /** kernels compiled (pipelines made, or JavaScript functions) */
  kernels = 0;
  plans = 0;
  uploads = 0;
  uploadBytes = 0;
  copies = 0;
  clears = 0;
  reads = 0;
  readBytes = 0;
  maps = 0;
  /** drawn on a canvas */
  pictures = 0;
  bindGroups = 0;
  bindGroupHits = 0;
  buffersCreated = 0;
  buffersDestroyed = 0;

  reset(): void {
    const self = this as unknown as Record<string, number>;
    for (const name of Object.keys(this)) self[name] = 0;
  }
}

/** What tabinspect.py tells of a run under the profiler: times are in µs since it began. */

/** An operation of a kernel, and the shape and dtype of its value. again: it is computed here once more rather than stored. */
export type Operation = [name: string, shape: number[], dtype: string, again: boolean];

export interface Kernel {
  name: string;
  /** Its number at the runtime. */
  kernel: number;
  device: "webgpu" | "cpu";
  calls: number;
  /** Of the device's time; null where it has no clock. */
  us: number | null;
  /** What it computes: null where that is not known, nothing where it only helps another one. */
  operations: Operation[] | null;
  read: number | null;
  written: number | null;
  workgroups: [least: number, most: number];
  /** Whether it was written in this run. */
  fresh: boolean;
  /** What keeps it from being one with kernels whose values it reads. */
  apart: string[];
  source: string;
  /** Milliseconds after which it was known to be compiled, where it was so in this run. */
  compiled?: number | undefined;
}

export interface Recording {
  duration: number;
  timed: boolean;
  names: string[];
  calls: [name: number, start: number, us: number, depth: number][];
  calls_left_out: number;
  dispatches: [kernel: number, sent: number, begin: number | null, us: number | null][];
  dispatches_left_out: number;
  kernels: Kernel[];
}

/** The `webgpu` device: see webgpu/device.ts. */

import type { AcceleratorKind } from "../device";
import { openDevice } from "../webgpu/adapter";
import { GpuDevice } from "../webgpu/device";

const webgpu: AcceleratorKind = {
  number: 0,
  name: "webgpu",
  prefix: "gpu",
  accelerator: true,
  async open({ options, errors, counters, faults }) {
    const gpu = options.gpu ?? (typeof navigator === "object" ? navigator.gpu : undefined);
    if (!gpu) throw new Error(options.reason ?? "this platform has no WebGPU (navigator.gpu)");
    const device = new GpuDevice(await openDevice(gpu, options.patience ?? 5000), errors, counters, faults);
    if (options.watch) device.watch();
    return device;
  },
};

export default webgpu;

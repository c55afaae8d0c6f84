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
    const opened = await openDevice(gpu, options.patience ?? 5000);
    const sideBySide = options.sideBySide ?? !opened.software;
    const device = new GpuDevice(opened, errors, counters, faults, sideBySide);
    if (options.watch) device.watch();
    return device;
  },
};

export default webgpu;

/** A third device of the runtime: that of tests/test_backends.py. */

import type { HostDeviceKind } from "../js/src/device";
import { CpuDevice } from "../js/src/devices/cpu";

const toy: HostDeviceKind = {
  number: 3,
  name: "toy",
  prefix: "toy",
  accelerator: false,
  open: ({ counters, faults }) => new CpuDevice(counters, faults),
};

export default toy;

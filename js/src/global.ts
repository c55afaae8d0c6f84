/** The classic-script bundle: `globalThis.tabtorchRuntime(options)` starts a runtime. */

import { createRuntime, Runtime } from "./runtime";

Object.assign(globalThis, { tabtorchRuntime: Object.assign(createRuntime, { createRuntime, Runtime }) });

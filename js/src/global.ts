/** The classic-script bundle: `globalThis.tabtorchRuntime(options)` starts a runtime. */

import { createRuntime, Runtime } from "./runtime";
import { forget, Source } from "./source";

Object.assign(globalThis, {
  tabtorchRuntime: Object.assign(createRuntime, { createRuntime, Runtime, Source, forget }),
});

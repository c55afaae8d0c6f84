/**
 * How a guest waits for the device: by being suspended (JavaScript Promise Integration) where the browser can do that, and by
 * blocking its thread elsewhere.
 */

export type Mode =
  /** The guest is suspended; everything is on this thread. */
  | "suspend"
  /** The guest blocks this thread, and the models are on another one. */
  | "block"
  /** This thread may not be blocked (it is a page's own): the guest runs on another one, the models are here. */
  | "thread";

type Function = (...args: never[]) => unknown;

/** What of WebAssembly TypeScript's library has no names for */
const wasm = WebAssembly as unknown as {
  Suspending?: new (call: Function) => Function;
  promising?: (exported: Function) => (...args: unknown[]) => Promise<unknown>;
};

export function canSuspend(): boolean {
  return typeof wasm.Suspending === "function" && typeof wasm.promising === "function";
}

/** An import of a guest, during which the guest is suspended if `call` gives a promise. */
export function suspending(call: Function): Function {
  return new (wasm.Suspending as NonNullable<typeof wasm.Suspending>)(call);
}

/** An export of a guest as a function that gives a promise: the guest may be suspended in it. */
export function promising(exported: Function): (...args: unknown[]) => Promise<unknown> {
  return (wasm.promising as NonNullable<typeof wasm.promising>)(exported);
}

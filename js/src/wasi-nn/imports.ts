/**
 * What a guest imports, by module and name.
 *
 * `wasi_ephemeral_nn` is wasi-nn.witx with WasmEdge's additions. `wasi_nn` has two meanings: the same functions, and an older
 * set of WAMR's, whose records and numbers of arguments are others. A function of JavaScript gets as many arguments as the
 * guest's import has, and so `load` tells which of the two the guest was made for.
 */

import type { Call, Calls } from "./calls";
import { fail } from "./errno";
import type { Maybe } from "./maybe";

export type Functions = Record<string, Call>;

export const MODULES = ["wasi_ephemeral_nn", "wasi_nn"] as const;

type Body = (...args: number[]) => Maybe<void>;

function named(calls: Calls, bodies: Record<string, Body>): Functions {
  return Object.fromEntries(Object.entries(bodies).map(([name, body]) => [name, calls.call(name, body)]));
}

const single: Body = () =>
  fail("unsupportedOperation", "a plan has no tokens to give one at a time: compute and get_output");

function standard(calls: Calls): Record<string, Body> {
  return {
    load: (builders, count, encoding, target, graph) =>
      calls.load(builders as number, count as number, encoding as number, target as number, graph as number),
    load_by_name: (name, length, graph) => calls.loadByName(name as number, length as number, graph as number),
    load_by_name_with_config: (name, length, config, configLength, graph) =>
      calls.loadByNameWithConfig(
        name as number,
        length as number,
        config as number,
        configLength as number,
        graph as number,
      ),
    init_execution_context: (graph, context) => calls.initExecutionContext(graph as number, context as number),
    set_input: (context, index, tensor) => calls.setInput(context as number, index as number, tensor as number),
    compute: (context) => calls.compute(context as number),
    get_output: (context, index, buffer, size, written) =>
      calls.getOutput(context as number, index as number, buffer as number, size as number, written as number),
    unload: (graph) => calls.unload(graph as number),
    finalize_execution_context: (context) => calls.finalizeExecutionContext(context as number),
    compute_single: single,
    get_output_single: single,
    fini_single: single,
  };
}

/** WAMR's types of tensors, f16 f32 u8 i32, as numbers of wasi-nn.witx */
const WAMR_TYPES = [0, 1, 3, 4];

/** `wasi_nn`: a guest of WAMR's header, or one of wasi-nn.witx, as its first call tells that has other arguments in the two. */
function earlier(calls: Calls): Record<string, Body> {
  const base = standard(calls);
  let witx: boolean | null = null;
  const setInput = (context: number, index: number, tensor: number): void => {
    const [shape, type, data] = calls.memory.words(tensor, 3, "the tensor") as [number, number, number];
    const dims = calls.memory.words(shape, 2, "the dimensions");
    calls.setTensor(context, index, dims, WAMR_TYPES[type] ?? 255, [data, null]);
  };
  return {
    ...base,
    load: (...args) => {
      witx = args.length === 5;
      if (witx) return base.load?.(...args);
      const [list, encoding, target, graph] = args as [number, number, number, number];
      const [builders, count] = calls.memory.words(list, 2, "the list of builders") as [number, number];
      return calls.load(builders, count, encoding, target, graph);
    },
    set_input: (context, index, tensor) => {
      if (witx === false) return setInput(context as number, index as number, tensor as number);
      try {
        return base.set_input?.(context as number, index as number, tensor as number);
      } catch (error) {
        if (witx) throw error;
        try {
          return setInput(context as number, index as number, tensor as number);
        } catch {
          throw error;
        }
      }
    },
    get_output: (...args) => {
      if (args.length === 5) return base.get_output?.(...args);
      const [context, index, buffer, size] = args as [number, number, number, number];
      const [room] = calls.memory.words(size, 1, "the size of the buffer") as [number];
      return calls.getOutput(context, index, buffer, room, size);
    },
  };
}

/** What a function of these modules is that nobody here knows. */
export const unknown =
  (name: string): Body =>
  () =>
    fail("unsupportedOperation", `there is no function ${name} here`);

/** Functions that may have to wait for a model or a device. */
export const WAITING: ReadonlySet<string> = new Set([
  "load",
  "load_by_name",
  "load_by_name_with_config",
  "compute",
  "get_output",
]);

export function functionsOf(calls: Calls): Record<(typeof MODULES)[number], Functions> {
  return { wasi_ephemeral_nn: named(calls, standard(calls)), wasi_nn: named(calls, earlier(calls)) };
}

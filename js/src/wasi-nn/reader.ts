/** Plans for guests: the package's models, whose inputs and outputs have numbers here. */

import type { DType } from "../model/dtypes";
import { type FileLike, lasting, openFile } from "../model/file";
import { Model } from "../model/model";
import { Tensor } from "../model/tensor";
import { fail } from "./errno";
import type { Bytes, ModelSource, Plan, PlanOptions, PlanReader } from "./models";
import type { HostTensor } from "./tensor-types";

/** The tensors of what a method gave, in the order in which they stand there; each once. */
function tensorsOf(result: unknown, found: Set<Tensor> = new Set()): Set<Tensor> {
  if (result instanceof Tensor) found.add(result);
  else if (typeof result === "object" && result !== null) for (const x of Object.values(result)) tensorsOf(x, found);
  return found;
}

async function load(source: ModelSource, { device, weights }: PlanOptions): Promise<Plan> {
  const model = await Model.load(source as FileLike, { device, ...(weights && { weights }) });
  let lost = false;
  const watch = () => {
    model.lost.then(() => {
      lost = true;
    });
  };
  watch();
  return {
    device: model.device,
    methods: model.methods,
    async run(method: string, inputs: readonly HostTensor[]) {
      const tensors = inputs.map(({ dtype, shape, bytes }) => new Tensor(dtype as DType, shape, { bytes }));
      if (lost) {
        await model.revive(); // with the weights of the file: what ran on the lost device is an error of its own
        lost = false;
        watch();
      }
      return [...tensorsOf(await model.runInOrder(method, tensors))];
    },
    dispose: () => model.dispose(),
  };
}

async function read(source: ModelSource): Promise<Bytes> {
  const file = await openFile((await lasting(source as FileLike)) as Exclude<FileLike, Response>);
  try {
    const pieces: Bytes[] = [];
    let at = 0;
    for (;;) {
      const piece = await file.read(at, PIECE);
      pieces.push(piece);
      at += piece.byteLength;
      if (at > MOST_BYTES) fail("tooLarge", `a model of more than ${MOST_BYTES} bytes`);
      if (piece.byteLength < PIECE) break;
    }
    if (pieces.length === 1) return pieces[0] as Bytes;
    const all = new Uint8Array(at);
    at = 0;
    for (const piece of pieces) {
      all.set(piece, at);
      at += piece.byteLength;
    }
    return all;
  } finally {
    file.close();
  }
}

const PIECE = 4 << 20;
/** what one array can hold everywhere */
const MOST_BYTES = 2 ** 31;

export const reader: PlanReader = { load, read };

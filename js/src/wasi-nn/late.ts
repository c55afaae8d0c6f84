/** A model that does not say which shapes it takes: there is a plan for each that a guest has set, made when it computes. */

import type { Graph, Outputs, TensorInfo } from "./graph";
import type { HostTensor } from "./tensor-types";

/** plans of one model that are kept in memory */
const MOST = 8;

export class LateGraph implements Graph {
  private readonly plans = new Map<string, Promise<Graph>>();
  private disposed = false;

  constructor(
    readonly inputs: readonly TensorInfo[],
    private readonly open: (inputs: readonly HostTensor[]) => Promise<Graph>,
  ) {}

  async compute(inputs: readonly HostTensor[]): Promise<Outputs> {
    const key = inputs.map(({ dtype, shape }) => `${dtype}[${shape}]`).join();
    let plan = this.plans.get(key);
    this.plans.delete(key);
    plan ??= this.open(inputs);
    this.plans.set(key, plan); // the last, and so the latest to go
    let graph: Graph;
    try {
      graph = await plan;
    } catch (error) {
      if (this.plans.get(key) === plan) this.plans.delete(key);
      throw error;
    }
    const result = await graph.compute(inputs);
    const [oldest] = this.plans;
    if (this.disposed) this.dispose();
    else if (this.plans.size > MOST && oldest) {
      this.plans.delete(oldest[0]);
      oldest[1].then((graph) => graph.dispose()).catch(() => {});
    }
    return result;
  }

  dispose(): void {
    this.disposed = true;
    for (const plan of this.plans.values()) plan.then((graph) => graph.dispose()).catch(() => {});
    this.plans.clear();
  }
}

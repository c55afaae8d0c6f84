/** A plan of a file for any sizes, on one device: what is bound to the sizes at hand is kept for the next call. */

import type { Engine } from "./engine";
import { layOut } from "./layout";
import type { TemplateSpec } from "./plan";
import type { Recipe } from "./recipe";

/** Sizes for which a plan is kept. */
const KEPT = 64;

interface Bound {
  plan: number;
  /** bytes, in the order of the outputs */
  outputs: number[];
}

export class Template {
  readonly slots: number[];
  private readonly whole: number;
  private readonly bound = new Map<string, Bound>();

  /** kernels: their ids. */
  constructor(
    readonly engine: Engine,
    private readonly spec: TemplateSpec,
    readonly recipe: Recipe,
    kernels: readonly number[],
  ) {
    const steps = spec.plan.steps.map((s) => ("kernel" in s ? { ...s, kernel: kernels[s.kernel] as number } : s));
    this.slots = Object.keys(spec.plan.outputs).map(Number);
    this.whole = engine.plan({ ...spec.plan, steps });
  }

  private at(values: number[]): Bound {
    const key = values.join();
    let found = this.bound.get(key);
    if (found !== undefined) {
      this.bound.delete(key); // to the end
    } else {
      const numbers = this.recipe.values(values);
      if (!numbers.every((n) => Number.isSafeInteger(n) && n >= 0)) throw new Error("these sizes are too large");
      const { lives, apart } = this.spec;
      const firstTemp = numbers.length - lives.length;
      const sizes = numbers.slice(firstTemp);
      const limits = this.engine.adapter?.limits;
      const most = limits
        ? Math.min(limits.maxBufferSize as number, limits.maxStorageBufferBindingSize as number)
        : 2 ** 32;
      const { pieces, places } = layOut(lives, sizes, apart, most);
      const flat = places.flatMap(([piece, begin], i) => [piece, begin, sizes[i] as number]);
      const sent = [this.spec.plan.work % 2 ** 32, ...numbers.slice(0, firstTemp), ...flat, ...pieces];
      const outputs = numbers.slice(firstTemp - this.slots.length, firstTemp);
      if ([...pieces, ...outputs].some((n) => n >= 2 ** 32)) throw new Error("these sizes need more than a buffer has");
      found = { plan: this.engine.bind(this.whole, sent), outputs };
      if (this.bound.size >= KEPT) {
        const oldest = this.bound.keys().next().value as string;
        this.engine.forget([(this.bound.get(oldest) as Bound).plan]);
        this.bound.delete(oldest);
      }
    }
    this.bound.set(key, found);
    return found;
  }

  /** Writes the command that runs it: new buffers for its outputs, by slot. */
  run(values: number[], inputs: number[], scalars: number[]): Map<number, { id: number; nbytes: number }> {
    const { plan, outputs } = this.at(values);
    const ids = [...inputs];
    const made = new Map<number, { id: number; nbytes: number }>();
    this.slots.forEach((slot, i) => {
      const id = this.engine.newId();
      ids[slot] = id;
      made.set(slot, { id, nbytes: outputs[i] as number });
    });
    this.engine.block.run(plan, ids, this.spec.plan.scalars, scalars);
    return made;
  }

  dispose(): void {
    this.engine.forget([this.whole, ...[...this.bound.values()].map(({ plan }) => plan)]);
  }
}

/**
 * The sizes of a plan. One that was sent whole is a template too: `BIND` makes another of it, with other numbers.
 * Its temporaries are numbered, and `places` says which piece of memory each of them has for these sizes.
 */

import { isDispatch } from "./params";
import type { PlanSpec, StepSpec } from "./protocol";

/** A spec whose steps name pieces of memory, where the one that was sent names temporaries. */
export function placed(spec: PlanSpec): PlanSpec {
  const { places, slots } = spec;
  if (places === undefined || places.every((piece, i) => piece === i)) return spec;
  const at = (slot: number): number => (slot < slots ? slot : slots + (places[slot - slots] as number));
  const steps = spec.steps.map((step): StepSpec => {
    if (isDispatch(step)) return { ...step, bind: step.bind.map(at) };
    if ("copy" in step) return { copy: [at(step.copy[0]), at(step.copy[1]), step.copy[2]] };
    return { clear: [at(step.clear[0])] };
  });
  return { ...spec, steps, places: undefined };
}

/**
 * The plan `spec` for other sizes. `numbers`: its work; of each dispatch the words and the grid, of each copy the bytes; the bytes
 * of the outputs; the places; the bytes of the temps.
 */
export function bound(spec: PlanSpec, numbers: Uint32Array): PlanSpec {
  let at = 1;
  const take = (count: number): Uint32Array => {
    at += count;
    if (at > numbers.length) throw new Error(`${spec.name}: too few numbers`);
    return numbers.subarray(at - count, at);
  };
  const steps = spec.steps.map((step): StepSpec => {
    if (isDispatch(step)) return { ...step, words: take(step.words.length), grid: [...take(step.grid.length)] };
    if ("copy" in step) return { copy: [step.copy[0], step.copy[1], take(1)[0] as number] };
    return step;
  });
  const outputs: Record<string, number> = {};
  for (const slot of Object.keys(spec.outputs)) outputs[slot] = take(1)[0] as number;
  const places = [...take(spec.places?.length ?? 0)];
  const temps = [...numbers.subarray(at)];
  return placed({ ...spec, steps, outputs, places, temps, work: numbers[0] });
}

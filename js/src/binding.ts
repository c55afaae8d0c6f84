/** The sizes of a plan. One that was sent whole is a template too: `BIND` makes another of it, with other numbers. */

import { isDispatch } from "./params";
import type { PlanSpec, StepSpec } from "./protocol";

/** Where a temporary lies: bytes `begin` to `begin + nbytes` of piece number `piece`. */
export interface Place {
  piece: number;
  begin: number;
  nbytes: number;
}

/** The places of a plan's temporaries; by default each has a piece of its own. */
export function placesOf(spec: PlanSpec): Place[] {
  const { places, temps = [] } = spec;
  if (places === undefined) return temps.map((nbytes, piece) => ({ piece, begin: 0, nbytes }));
  const found: Place[] = [];
  for (let i = 0; i < places.length; i += 3) {
    const place = { piece: places[i] as number, begin: places[i + 1] as number, nbytes: places[i + 2] as number };
    if (!(place.begin + place.nbytes <= (temps[place.piece] as number)))
      throw new Error(`${spec.name}: temporary ${i / 3} lies outside of its memory`);
    found.push(place);
  }
  return found;
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
    if (isDispatch(step)) {
      const { bind, kernel, label, patch } = step;
      return { kernel, bind, words: take(step.words.length), patch, grid: Array.from(take(step.grid.length)), label };
    }
    if ("copy" in step) return { copy: [step.copy[0], step.copy[1], take(1)[0] as number] };
    return step;
  });
  const outputs: Record<string, number> = {};
  for (const slot of Object.keys(spec.outputs)) outputs[slot] = take(1)[0] as number;
  const places = Array.from(take(spec.places?.length ?? 0));
  const temps = Array.from(numbers.subarray(at));
  return { ...spec, steps, outputs, places, temps, work: numbers[0] };
}

/**
 * How numbers come about, as data: operations over numbers that are given, and what has to hold of them. The same as
 * py/tabtorch/engine/recipes.py, whose recipes these are; they are interpreted, never made into code.
 */

import { check } from "./errors";
import { power } from "./power";

/** As in the file. A step's operation may be the name of what is given, its operands are then indices. */
export interface RecipeSpec {
  steps: [op: string, a: number | string, b?: number][];
  tests: [op: string, a: number, b: number, answer: boolean][];
  results: number[];
}

type Given = readonly ArrayLike<number>[] | readonly (ArrayLike<number> | ArrayLike<number>[])[];

const COMPARED = ["==", "!=", "<", "<=", ">", ">="];
const UNARY = ["neg", "abs"];
const BINARY = ["+", "-", "*", "/", "//", "%", "**", "&", "ceil", ...COMPARED];
/** steps of one recipe, at most */
const MOST = 1_000_000;

/** Thrown where a number cannot be computed. */
class NoNumber extends Error {}

function divided(a: number, b: number): number {
  if (b === 0) throw new NoNumber("division by zero");
  return a / b;
}

/** Python's `%`: of the divisor's sign. */
function modulo(a: number, b: number): number {
  if (b === 0) throw new NoNumber("modulo by zero");
  const rest = a % b;
  if (rest === 0) return b < 0 ? -0 : 0;
  return rest < 0 !== b < 0 ? rest + b : rest;
}

/** Python's `//`, which is exact. */
function floored(a: number, b: number): number {
  const whole = (a - modulo(a, b)) / b;
  const near = Math.floor(whole);
  return whole - near > 0.5 ? near + 1 : near;
}

/** Of whole numbers, as of two's complement with no end. */
function masked(a: number, b: number): number {
  if (b === 0xffffffff) return modulo(a, 2 ** 32);
  return Number.isSafeInteger(a) && Number.isSafeInteger(b) ? Number(BigInt(a) & BigInt(b)) : Number.NaN;
}

function apply(op: string, a: number, b: number): number {
  switch (op) {
    case "+":
      return a + b;
    case "-":
      return a - b;
    case "*":
      return a * b;
    case "/":
      return divided(a, b);
    case "//":
      return floored(a, b);
    case "ceil":
      return -floored(-a, b);
    case "%":
      return modulo(a, b);
    case "**":
      return power(a, b);
    case "&":
      return masked(a, b);
    case "neg":
      return -a;
    case "abs":
      return Math.abs(a);
    default:
      return Number(compare(op, a, b));
  }
}

function compare(op: string, a: number, b: number): boolean {
  switch (op) {
    case "==":
      return a === b;
    case "!=":
      return a !== b;
    case "<":
      return a < b;
    case "<=":
      return a <= b;
    case ">":
      return a > b;
    default:
      return a >= b;
  }
}

export class Recipe {
  private readonly given: string[];
  private readonly forTests: boolean[];
  private readonly forResults: boolean[];

  /**
   * sizes: of each thing given, how many numbers it has; of what is a list of lists, how many those have. Everything in the
   * recipe is looked at here, so that computing it needs no more looks.
   */
  constructor(
    private readonly spec: RecipeSpec,
    sizes: Record<string, number | number[]>,
    where: string,
  ) {
    check(typeof spec === "object" && spec !== null, `${where} is no recipe`);
    const { steps, tests, results } = spec;
    this.given = Object.keys(sizes);
    const { given } = this;
    const list = [steps, tests, results].every(Array.isArray);
    check(list && steps.length <= MOST, `${where} is no recipe`);
    const index = (k: unknown, count: number) => Number.isInteger(k) && (k as number) >= 0 && (k as number) < count;
    steps.forEach((step, k) => {
      check(Array.isArray(step), `${where}, step ${k}`);
      const [op, a, b = -1] = step;
      const size = given.includes(op) ? sizes[op] : undefined;
      let fine: boolean;
      if (op === "number") fine = typeof a === "number" || ["inf", "-inf", "nan"].includes(a);
      else if (typeof size === "number") fine = index(a, size) && b === -1;
      else if (size !== undefined) fine = index(a, size.length) && index(b, size[a as number] as number);
      else fine = index(a, k) && (BINARY.includes(op) ? index(b, k) : UNARY.includes(op) && b === -1);
      check(fine, `${where}, step ${k}: ${JSON.stringify(step).slice(0, 80)}`);
    });
    for (const test of tests)
      check(
        Array.isArray(test) &&
          COMPARED.includes(test[0]) &&
          index(test[1], steps.length) &&
          index(test[2], steps.length),
        `a test of ${where}`,
      );
    check(
      results.every((k) => index(k, steps.length)),
      `a result of ${where}`,
    );
    this.forTests = this.needed(tests.flatMap(([, a, b]) => [a, b]));
    this.forResults = this.needed(results);
  }

  /** how many numbers it gives */
  get count(): number {
    return this.spec.results.length;
  }

  /** Whether every test comes out as it has to. */
  holds(...given: Given): boolean {
    return this.failing(...given) === null;
  }

  /** The first test that does not come out as it has to, as text; null if there is none. */
  failing(...given: Given): string | null {
    try {
      const x = this.computed(this.forTests, given);
      const failed = this.spec.tests.find(
        ([op, a, b, answer]) => compare(op, x[a] as number, x[b] as number) !== Boolean(answer),
      );
      if (failed === undefined) return null;
      return `${this.text(failed[1])} ${failed[0]} ${this.text(failed[2])} is not ${Boolean(failed[3])}`;
    } catch (error) {
      if (error instanceof NoNumber) return error.message;
      throw error;
    }
  }

  /** The numbers. */
  values(...given: Given): number[] {
    const x = this.computed(this.forResults, given);
    return this.spec.results.map((k) => x[k] as number);
  }

  /** Which of what is given the first failing test hangs on: indices in `name`. */
  uses(name: string, given: Given): number[] {
    const { tests, steps } = this.spec;
    const x = this.computed(this.forTests, given);
    const failed = tests.find(([op, a, b, answer]) => compare(op, x[a] as number, x[b] as number) !== Boolean(answer));
    if (failed === undefined) return [];
    const needed = this.needed([failed[1], failed[2]]);
    return [...new Set(steps.flatMap(([op, a], k) => (needed[k] && op === name ? [a as number] : [])))];
  }

  private needed(wanted: number[]): boolean[] {
    const { given, spec } = this;
    const { steps } = spec;
    const needed: boolean[] = new Array(steps.length).fill(false);
    for (const k of wanted) needed[k] = true;
    for (let k = steps.length - 1; k >= 0; k--) {
      const [op, a, b = -1] = steps[k] as RecipeSpec["steps"][number];
      if (!needed[k] || op === "number" || given.includes(op)) continue;
      needed[a as number] = true;
      if (b >= 0) needed[b] = true;
    }
    return needed;
  }

  private computed(needed: boolean[], given: Given): Float64Array {
    const { steps } = this.spec;
    const x = new Float64Array(steps.length);
    for (let k = 0; k < steps.length; k++) {
      if (!needed[k]) continue;
      const [op, a, b = -1] = steps[k] as RecipeSpec["steps"][number];
      const at = this.given.indexOf(op);
      if (op === "number") {
        x[k] = typeof a === "number" ? a : Number(a.replace("inf", "Infinity")); // "nan" is none
      } else if (at >= 0) {
        const list = given[at] as ArrayLike<number>;
        x[k] = b < 0 ? (list[a as number] as number) : ((list as unknown as number[][])[a as number]?.[b] as number);
      } else {
        x[k] = apply(op, x[a as number] as number, b < 0 ? 0 : (x[b] as number));
      }
    }
    return x;
  }

  private text(k: number): string {
    const [op, a, b] = this.spec.steps[k] as RecipeSpec["steps"][number];
    if (op === "number") return String(a);
    if (this.given.includes(op)) return b === undefined || b < 0 ? `${op}[${a}]` : `${op}[${a}][${b}]`;
    return "a number made of these";
  }
}

/** A line of losses that grows: a picture of the last few hundred. */

const WIDTH = 320;
const HEIGHT = 120;
const MOST = 400;
const SVG = "http://www.w3.org/2000/svg";

export class Curve {
  readonly #line = document.createElementNS(SVG, "polyline");
  readonly #words = document.createElement("figcaption");
  #values: number[] = [];
  #count = 0;

  constructor(
    private readonly figure: HTMLElement,
    private readonly name: string,
  ) {
    const picture = document.createElementNS(SVG, "svg");
    picture.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    picture.setAttribute("preserveAspectRatio", "none");
    picture.setAttribute("aria-hidden", "true"); // the caption says it
    this.#line.setAttribute("vector-effect", "non-scaling-stroke");
    picture.append(this.#line);
    figure.classList.add("curve");
    figure.replaceChildren(picture, this.#words);
    this.#show();
  }

  /** How many there were. */
  get count(): number {
    return this.#count;
  }

  add(value: number): void {
    this.#count += 1;
    this.#values.push(value);
    if (this.#values.length > MOST) this.#values.shift();
    this.#show();
  }

  clear(): void {
    this.#values = [];
    this.#count = 0;
    this.#show();
  }

  #show(): void {
    const values = this.#values;
    const last = values.at(-1);
    this.figure.dataset.values = JSON.stringify(values.slice(-MOST));
    this.#words.textContent =
      last === undefined
        ? `The ${this.name} comes here once it learns.`
        : `${this.name} ${last.toFixed(4)} after ${this.#count} step${this.#count === 1 ? "" : "s"}`;
    const top = Math.max(...values, 1e-9);
    const across = WIDTH / Math.max(values.length - 1, 1);
    const points = values.map((value, k) => `${(k * across).toFixed(1)},${(HEIGHT * (1 - value / top)).toFixed(1)}`);
    this.#line.setAttribute("points", points.join(" "));
  }
}

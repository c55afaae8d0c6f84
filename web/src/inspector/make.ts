/** Elements, with what is in them. */

type Properties = Record<string, unknown>;

/** An element with these properties: those with a hyphen, and `role`, `for` and such, are attributes. */
export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  properties: Properties = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) (made as unknown as Properties)[name] = value;
    else made.setAttribute(name, String(value));
  }
  made.append(...children);
  return made;
}

export function button(label: string, act: () => unknown, properties: Properties = {}): HTMLButtonElement {
  const made = make("button", { type: "button", ...properties }, label);
  made.addEventListener("click", act);
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Record<string, string | number> = {},
  ...children: (Node | string)[]
): SVGElementTagNameMap[K] {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
}

/** A number of bytes in words. */
export function bytes(n: number): string {
  const units = ["B", "KiB", "MiB", "GiB"];
  const power = Math.min(units.length - 1, Math.floor(Math.log2(Math.max(1, n)) / 10));
  return `${short(n / 1024 ** power)} ${units[power]}`;
}

/** A time in µs in words. */
export function time(us: number): string {
  if (us >= 1e6) return `${short(us / 1e6)} s`;
  return us >= 1e3 ? `${short(us / 1e3)} ms` : `${short(us)} µs`;
}

/** Three digits, and no fraction of what is a whole number. */
export function short(n: number): string {
  if (n >= 100 || Number.isInteger(n)) return Math.round(n).toLocaleString("en");
  return n.toPrecision(3).replace(/\.?0+$/, "");
}

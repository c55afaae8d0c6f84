/** A page of the documentation: examples that come alive where they stand, and search. */
import type { Entry } from "../guides";
import "./docs.css";

const site = new URL("../", document.baseURI);

function element<T extends HTMLElement = HTMLElement>(id: string): T {
  return document.getElementById(id) as T; // all of them are in docs/template.html
}

// -- examples

const examples = [...document.querySelectorAll<HTMLElement>(".example")];
const shown = new Map<HTMLElement, Element[]>(); // the text of those that are cells by now

for (const example of examples) {
  const button = buttonOf(example);
  button.hidden = false;
  button.addEventListener("click", () => (shown.has(example) ? reset(example) : tryIt(example)));
}

function buttonOf(example: HTMLElement): HTMLButtonElement {
  return example.querySelector("button") as HTMLButtonElement;
}

/** Make a cell of it, and of those that it goes on from. All cells of a page share one Python, and run in their order. */
function tryIt(example: HTMLElement): void {
  const before = examples[examples.indexOf(example) - 1];
  if (before && "continued" in example.dataset && !shown.has(before)) tryIt(before);
  const button = buttonOf(example);
  const text = [...example.querySelectorAll("pre")];
  const cell = document.createElement("tabtorch-cell");
  cell.textContent = text[0]?.textContent ?? "";
  cell.setAttribute("run", "");
  shown.set(example, text);
  for (const each of text) each.remove();
  example.append(cell);
  button.textContent = "Back";
  button.title = "Show the example as it was";
  loadCells();
}

function reset(example: HTMLElement): void {
  example.querySelector("tabtorch-cell")?.remove();
  example.append(...(shown.get(example) ?? []));
  shown.delete(example);
  const button = buttonOf(example);
  button.textContent = "Try it";
  button.removeAttribute("title");
}

/** What makes cells of the tags is loaded when the first one is wanted. */
function loadCells(): void {
  if (document.querySelector("script[data-cells]")) return;
  const script = document.createElement("script");
  script.type = "module";
  script.dataset.cells = "";
  script.src = new URL("tabtorch-cell.js", site).href;
  document.head.append(script);
}

// -- search

const field = element<HTMLInputElement>("find");
const list = element("found");
const LONGEST = 12;
let index: Promise<Entry[]> | undefined;
let chosen = -1; // of what was found

function load(): Promise<Entry[]> {
  index ??= fetch("./search.json").then((reply) => reply.json());
  return index;
}

/** Better ones first: what begins with the words, then where a word does, then where they are at all. */
function rank({ title, of }: Entry, words: string[]): number {
  const name = title.toLowerCase();
  const all = `${name} ${of.toLowerCase()}`;
  if (!words.every((word) => all.includes(word))) return 0;
  const [first = ""] = words;
  if (name.startsWith(first) || name.includes(`.${first}`)) return 3;
  return name.includes(first) ? 2 : 1;
}

async function search(): Promise<void> {
  const words = field.value.trim().toLowerCase().replace(/\(.*$/, "").split(/\s+/).filter(Boolean);
  const entries = words.length ? await load() : [];
  const best = entries
    .map((entry) => ({ entry, worth: rank(entry, words) }))
    .filter(({ worth }) => worth)
    .sort((a, b) => b.worth - a.worth)
    .slice(0, LONGEST);
  list.replaceChildren(...best.map(({ entry }, at) => option(entry, at)));
  if (words.length && !best.length) list.append(nothing());
  open(words.length > 0);
}

function option({ page, id, title, of }: Entry, at: number): HTMLElement {
  const link = document.createElement("a");
  link.id = `found-${at}`;
  link.role = "option";
  link.ariaSelected = "false";
  link.href = id ? `${page}#${id}` : page;
  link.tabIndex = -1; // the arrow keys come here
  const where = document.createElement("small");
  where.textContent = title === of ? "" : of;
  link.append(title, " ", where);
  link.addEventListener("click", () => open(false));
  return link;
}

function nothing(): HTMLElement {
  const item = document.createElement("div");
  item.role = "option";
  item.ariaDisabled = "true";
  item.textContent = "Nothing has these words in its heading";
  return item;
}

function open(now: boolean): void {
  list.hidden = !now;
  field.ariaExpanded = String(now);
  choose(-1);
}

/** Mark one of what was found, or none by -1. */
function choose(at: number): void {
  chosen = at;
  const options = found();
  for (const [place, item] of options.entries()) item.ariaSelected = String(place === at);
  const now = options[at];
  if (now) field.setAttribute("aria-activedescendant", now.id);
  else field.removeAttribute("aria-activedescendant");
  now?.scrollIntoView({ block: "nearest" });
}

function found(): HTMLElement[] {
  return [...list.querySelectorAll<HTMLElement>("[role=option][id]")];
}

function onKey(event: KeyboardEvent): void {
  const count = found().length;
  if (event.key === "Escape") {
    field.value = "";
    open(false);
  } else if (event.key === "Enter") found()[Math.max(chosen, 0)]?.click();
  else if (event.key === "ArrowDown" && count) choose((chosen + 1) % count);
  else if (event.key === "ArrowUp" && count) choose(chosen > 0 ? chosen - 1 : count - 1);
  else return;
  event.preventDefault();
}

field.addEventListener("input", () => void search());
field.addEventListener("keydown", onKey);
field.addEventListener("blur", ({ relatedTarget }) => list.contains(relatedTarget as Node) || open(false));
list.addEventListener("mousedown", (event) => event.preventDefault()); // the field keeps the focus, and the list stays
addEventListener("keydown", (event) => {
  const at = event.target as HTMLElement;
  if (event.key !== "/" || event.ctrlKey || event.metaKey || at.matches("input, textarea, tabtorch-cell")) return;
  event.preventDefault();
  field.focus();
});

// -- the page

const menu = element<HTMLDetailsElement>("menu");
const wide = matchMedia("(min-width: 60rem)");
const fold = () => {
  menu.open = wide.matches;
};
wide.addEventListener("change", fold);
fold();

// Who has read one page here can read them all without a network.
navigator.serviceWorker?.controller?.postMessage("keep guides");

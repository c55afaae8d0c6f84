/**
 * What a script shows other than text: a MIME bundle becomes an element, of the richest type that is known here. It has an
 * id if Python gave it one, and Python can then change it where it stands. Nothing in it may run: see sanitise.ts.
 */
import { CONTROL, type Connection } from "./links";
import { imageView } from "./picture";

/** Forms of one thing, by MIME type. */
export type Bundle = Record<string, string | Uint8Array>;

/** By MIME type as well: of an image, say, `alt`, `width`, `height` in CSS pixels, and whether it is `pixelated`. */
export type Metadata = Record<string, Record<string, unknown>>;

/** `new` is placed at the end; `update` changes all that have its id; `put` does that too, or is placed if none has. */
export type Mode = "new" | "update" | "put";

export interface Shown {
  event: "display";
  bundle: Bundle;
  metadata: Metadata;
  id: string | undefined;
  mode: Mode;
}

/** The content of one type. `update` changes it in place; without that it is made anew. */
export interface View {
  element: HTMLElement;
  update?(bundle: Bundle, metadata: Metadata): void;
  dispose?(): void;
  /** It is not taken away to make room. */
  stays?: boolean;
  /** What it shows now, for a notebook, where nothing draws it. */
  picture?(): Picture | undefined;
}

export interface Picture {
  canvas: HTMLCanvasElement;
  /** As for an image. */
  metadata: Record<string, unknown>;
}

type Maker = (bundle: Bundle, metadata: Metadata) => View;

/** The richest first. */
const MAKERS: [type: string, make: Maker][] = [
  ["application/vnd.tabtorch.chart+json", chartView],
  [CONTROL, controlView],
  ["text/html", (bundle) => markup((sanitise) => sanitise.html(textOf(bundle["text/html"])))],
  ["text/markdown", (bundle) => markup((sanitise) => sanitise.markdown(textOf(bundle["text/markdown"])))],
  ...["image/svg+xml", "image/png", "image/jpeg", "image/gif", "image/webp"].map((type): [string, Maker] => [
    type,
    (bundle, metadata) => imageView(type, bundle, metadata),
  ]),
  ["text/latex", (bundle) => textView(textOf(bundle["text/latex"]), "latex")],
  ["application/json", (bundle) => textView(textOf(bundle["application/json"]), "json")],
  ["text/plain", (bundle) => textView(textOf(bundle["text/plain"]), "stdout")],
];

const all = new Map<string, Set<Rich>>();

/** A place in the output, and what is in it now. */
export class Rich {
  readonly element = document.createElement("div");
  #type: string | undefined;
  #view: View | undefined;
  #bundle: Bundle = {};
  #metadata: Metadata = {};
  readonly #id: string | undefined;

  constructor({ bundle, metadata, id }: Shown) {
    this.element.className = "rich";
    this.#id = id;
    if (id !== undefined) all.set(id, (all.get(id) ?? new Set()).add(this));
    this.show(bundle, metadata);
  }

  /** Those with this id, wherever they are. */
  static withId(id: string | undefined): Rich[] {
    return id === undefined ? [] : [...(all.get(id) ?? [])];
  }

  /** What is shown now. */
  get bundle(): Bundle {
    return this.#bundle;
  }

  get metadata(): Metadata {
    return this.#metadata;
  }

  /** Of what is no image itself. */
  get picture(): Picture | undefined {
    return this.#view?.picture?.();
  }

  get stays(): boolean {
    return this.#view?.stays ?? false;
  }

  show(bundle: Bundle, metadata: Metadata): void {
    this.#bundle = bundle;
    this.#metadata = metadata;
    const [type, make] = MAKERS.find(([type]) => type in bundle) ?? [];
    if (type === this.#type && this.#view?.update) {
      this.#view.update(bundle, metadata);
      return;
    }
    this.#view?.dispose?.();
    this.#type = type;
    this.#view = make?.(bundle, metadata);
    this.element.replaceChildren(...(this.#view ? [this.#view.element] : []));
  }

  /** It is taken out of the output. */
  dispose(): void {
    this.element.remove();
    this.#view?.dispose?.();
    if (this.#id === undefined) return;
    const others = all.get(this.#id);
    others?.delete(this);
    if (!others?.size) all.delete(this.#id);
  }
}

export function textOf(content: string | Uint8Array | undefined): string {
  return content instanceof Uint8Array ? new TextDecoder().decode(content) : (content ?? "");
}

function textView(text: string, kind: string): View {
  const element = document.createElement("pre");
  element.className = kind;
  element.textContent = text;
  return { element };
}

/** A chart is drawn by what is loaded when there is one. */
function chartView(bundle: Bundle): View {
  const element = document.createElement("div");
  let latest = bundle;
  let chart: import("./chart").Chart | undefined;
  let gone = false;
  import("./chart").then(
    ({ Chart }) => {
      if (!gone) chart = new Chart(element, latest);
    },
    (error: unknown) => element.replaceChildren(`This chart could not be drawn: ${error}`),
  );
  return {
    element,
    update(bundle) {
      latest = bundle;
      chart?.show(bundle);
    },
    picture: () => chart?.picture,
    dispose() {
      gone = true;
      chart?.dispose();
    },
  };
}

/** A control is made by what is loaded when there is one. */
function controlView(bundle: Bundle, metadata: Metadata): View {
  const element = document.createElement("div");
  const connection = metadata[CONTROL] as unknown as Connection | undefined;
  let control: import("./controls").Control | undefined;
  let gone = false;
  const end = () => control?.end();
  ending.add(end);
  import("./controls").then(
    ({ Control }) => {
      control = new Control(element, JSON.parse(textOf(bundle[CONTROL])), connection);
      if (gone) control.dispose();
    },
    (error: unknown) => element.replaceChildren(`This control could not be shown: ${error}`),
  );
  return {
    element,
    stays: true,
    picture: () => control?.picture,
    dispose() {
      gone = true;
      ending.delete(end);
      control?.dispose();
    },
  };
}

/** Of each control that is shown. */
const ending = new Set<() => void>();

/** The Python is gone that the controls were for. */
export function endControls(): void {
  for (const end of ending) end();
}

/** Markup has a tree of its own: its styles reach nothing outside, and its ids and names mean nothing there. */
function markup(clean: (sanitise: typeof import("./sanitise")) => DocumentFragment): View {
  const element = document.createElement("div");
  element.className = "markup";
  const root = element.attachShadow({ mode: "open" });
  import("./sanitise").then(
    (sanitise) => {
      root.adoptedStyleSheets = [sanitise.sheet];
      root.replaceChildren(clean(sanitise));
    },
    (error: unknown) => root.replaceChildren(`This HTML could not be shown: ${error}`),
  );
  return { element };
}

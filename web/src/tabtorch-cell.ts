/**
 * <tabtorch-cell>: Python in anybody's page, with PyTorch, on the reader's device. docs/embedding.md is its guide.
 *
 * Until the first Run the element is a text field in a shadow tree, and nothing is loaded but this file. Then it becomes a
 * frame of the site (embed.html), for three reasons: no page may start a worker of another origin; what a script shows has
 * the origin of the site, not of the page; and the page's style sheets and Content-Security-Policy stay apart from ours: it
 * has to allow the site in script-src and frame-src, and nothing else. One more frame (cells.html), which nobody sees,
 * holds the Python that all cells of the page share.
 *
 * A page that is not cross-origin isolated, as most are, has no memory to share with that Python: Stop works where a
 * script yields, and ends Python where it does not. The frames may be isolated where the page is.
 */
import style from "./tabtorch-cell.css?raw";

/** From the page to the frame of a cell; a port that leads to Python comes with the first. */
export interface Setup {
  tabtorch: "cell";
  code: string;
  run: boolean;
  readonly: boolean;
  /** It has the height that the page gives it. */
  fixed: boolean;
  scheme: "dark" | "light";
}

/** From the frame of a cell to the page. */
export type FromCell =
  | { tabtorch: "hello" | "begun" }
  | { tabtorch: "height"; height: number }
  | { tabtorch: "text"; text: string };

const SITE = new URL(/* @vite-ignore */ "./", import.meta.url);
const LARGEST = 900; // a frame's height

const dark = matchMedia("(prefers-color-scheme: dark)");
const sheet = new CSSStyleSheet();
sheet.replaceSync(style);

let python: Promise<HTMLIFrameElement> | undefined;
let begun: Promise<unknown> = Promise.resolve(); // cells that run by themselves do so in their order

class TabtorchCell extends HTMLElement {
  readonly #root = this.attachShadow({ mode: "open" });
  readonly #field = document.createElement("textarea");
  readonly #button = document.createElement("button");
  readonly #state = document.createElement("span");
  readonly #probe = document.createElement("i"); // tells dark from light
  #frame: HTMLIFrameElement | undefined;
  #onBegun = () => {};
  #text: string | undefined;

  connectedCallback(): void {
    if (this.#text !== undefined) this.#listen();
    // the parser may not have come to the text yet
    else if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", () => this.#start());
    else this.#start();
  }

  disconnectedCallback(): void {
    removeEventListener("message", this.#hear);
    document.removeEventListener("securitypolicyviolation", this.#refused);
    dark.removeEventListener("change", this.#recolour);
  }

  /** The code as it is now. */
  get code(): string {
    return this.#text ?? codeIn(this);
  }

  /** Run the code; where the reader has the cell running already, nothing. Resolves once it was asked for. */
  run(): Promise<void> {
    if (this.#frame) return Promise.resolve();
    return new Promise((resolve) => {
      this.#onBegun = resolve;
      this.#load();
    });
  }

  #start(): void {
    if (!this.isConnected || this.#text !== undefined) return;
    this.#text = codeIn(this);
    this.#draw(this.#text);
    this.#listen();
    if (!this.hasAttribute("run")) return;
    begun = begun.then(() => this.run());
  }

  #draw(text: string): void {
    const field = this.#field;
    field.value = text;
    field.rows = Math.min(Math.max(text.split("\n").length, 1), 24);
    field.readOnly = this.hasAttribute("readonly");
    field.spellcheck = false;
    field.wrap = "off";
    field.autocapitalize = "off";
    field.setAttribute("autocomplete", "off");
    field.setAttribute("aria-label", "Python script");
    field.addEventListener("input", () => {
      this.#text = field.value;
    });
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.shiftKey || event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      void this.run();
    });
    this.#button.type = "button";
    this.#button.textContent = "▶ Run";
    this.#button.title = "Loads Python and PyTorch into this page, once, and runs this: Shift+Enter, or Ctrl/Cmd+Enter";
    this.#button.addEventListener("click", () => void this.run());
    this.#state.setAttribute("role", "status");
    const about = document.createElement("a");
    about.href = SITE.href;
    about.target = "_blank";
    about.rel = "noopener";
    about.textContent = "tabtorch";
    const bar = document.createElement("div");
    bar.append(this.#button, this.#state, about);
    this.#root.adoptedStyleSheets = [sheet];
    this.#root.replaceChildren(bar, field, this.#probe);
    if (this.hasAttribute("height")) this.style.height = cssHeight(this.getAttribute("height") ?? "");
  }

  #listen(): void {
    addEventListener("message", this.#hear);
    document.addEventListener("securitypolicyviolation", this.#refused);
    dark.addEventListener("change", this.#recolour);
  }

  #load(): void {
    this.#button.disabled = true;
    this.#state.textContent = "Loading";
    this.#frame = frameOf("embed.html?cell", "A script of tabtorch", this.getAttribute("allow") ?? "");
    this.#frame.className = "coming";
    this.#root.append(this.#frame);
  }

  readonly #recolour = () => this.#post(false);

  readonly #hear = ({ source, origin, data }: MessageEvent<FromCell>): void => {
    if (!this.#frame || source !== this.#frame.contentWindow || origin !== SITE.origin) return;
    if (data.tabtorch === "hello") void this.#sit();
    else if (data.tabtorch === "begun") this.#onBegun();
    else if (data.tabtorch === "text") this.#text = data.text;
    else if (data.tabtorch === "height") this.#show(data.height);
  };

  /** The page's Content-Security-Policy does not let the site's frames in. */
  readonly #refused = ({ blockedURI, effectiveDirective }: SecurityPolicyViolationEvent): void => {
    if (!this.#frame || !blockedURI.startsWith(SITE.origin)) return;
    this.#state.textContent = `The Content-Security-Policy of this page lacks ${SITE.origin} in its ${effectiveDirective}.`;
    this.#onBegun();
  };

  /** The frame is there, or there again: what it shows, and its end of a channel to Python. */
  async #sit(): Promise<void> {
    const { port1, port2 } = new MessageChannel();
    python ??= loadPython(this.getAttribute("device"));
    void python.then((frame) => frame.contentWindow?.postMessage({ tabtorch: "seat" }, SITE.origin, [port1]));
    this.#post(this.#field.isConnected, port2);
  }

  #post(run: boolean, ...ports: MessagePort[]): void {
    const { color } = getComputedStyle(this.#probe);
    const setup: Setup = {
      tabtorch: "cell",
      code: this.code,
      run,
      readonly: this.hasAttribute("readonly"),
      fixed: this.hasAttribute("height"),
      scheme: color === "rgb(255, 255, 255)" ? "dark" : "light",
    };
    this.#frame?.contentWindow?.postMessage(setup, SITE.origin, ports);
  }

  #show(height: number): void {
    const frame = this.#frame as HTMLIFrameElement;
    if (!this.hasAttribute("height")) frame.style.height = `${Math.min(height, LARGEST)}px`;
    if (!frame.classList.contains("coming")) return;
    frame.className = "";
    for (const each of [...this.#root.children]) if (each !== frame && each !== this.#probe) each.remove(); // a frame that moves is loaded again
  }
}

/** The text in the element, or in a <script type="text/plain"> there, in which `<` is no mark-up. Indented together, it is moved left. */
function codeIn(element: HTMLElement): string {
  const text = (element.querySelector("script[type='text/plain']") ?? element).textContent ?? "";
  const lines = text
    .replace(/^([ \t]*\n)+/, "")
    .trimEnd()
    .split("\n");
  const indents = lines.filter((line) => line.trim()).map((line) => /^[ \t]*/.exec(line)?.[0].length ?? 0);
  const indent = Math.min(...indents);
  return lines.map((line) => line.slice(indent)).join("\n");
}

function cssHeight(height: string): string {
  return /^\d+$/.test(height) ? `${height}px` : height;
}

/** `allowed`: what the page lets it have besides, in the words of an iframe's `allow`. */
function frameOf(path: string, title: string, allowed = ""): HTMLIFrameElement {
  const frame = document.createElement("iframe");
  frame.src = new URL(path, SITE).href;
  frame.title = title;
  frame.allow = `cross-origin-isolated; clipboard-write; ${allowed}`;
  return frame;
}

/** The frame in which Python will be. A style sheet of the page cannot show it. */
function loadPython(device: string | null): Promise<HTMLIFrameElement> {
  const frame = frameOf(device ? `cells.html?device=${encodeURIComponent(device)}` : "cells.html", "tabtorch: Python");
  frame.style.setProperty("display", "none", "important");
  frame.ariaHidden = "true";
  const loaded = new Promise<HTMLIFrameElement>((resolve) => {
    addEventListener("message", ({ source, data }) => {
      if (source === frame.contentWindow && data?.tabtorch === "hello") resolve(frame);
    });
  });
  document.body.append(frame);
  return loaded;
}

customElements.define("tabtorch-cell", TabtorchCell);

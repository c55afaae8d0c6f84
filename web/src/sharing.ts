/** The panel behind Share: the script as a link, as a frame and as a tag for somebody's page, each to be copied. */
import { element } from "./element";
import type { Notice } from "./notice";
import { copy, LONG_LINK, shareLink } from "./share";

const MOST_ROWS = 8;

type Form = "link" | "frame" | "tag";

export class Sharing {
  readonly #panel = element("shared");
  readonly #form = element<HTMLSelectElement>("shared-form");
  readonly #field = element<HTMLTextAreaElement>("link");
  readonly #words = element("shared-words");

  constructor(
    private readonly script: { text(): string; name(): string },
    private readonly notice: Notice,
  ) {
    const button = element("share");
    button.addEventListener("click", () => void this.#open());
    this.#form.addEventListener("change", () => void this.#show());
    element("shared-copy").addEventListener("click", () => void this.#copy());
    element("shared-close").addEventListener("click", () => {
      this.#panel.hidden = true;
      button.focus();
    });
  }

  async #open(): Promise<void> {
    this.#form.value = "link";
    if (!(await this.#show())) return;
    await this.#copy();
    this.#field.focus({ preventScroll: true });
    this.#field.select();
    this.#field.scrollTo(0, 0);
  }

  /** Show the chosen form of what the script is now, if it has that. */
  async #show(): Promise<boolean> {
    const form = this.#form.value as Form;
    const text = await this.#text(form).catch((error: Error) => error);
    if (text instanceof Error) {
      this.notice.tell(`No link: ${text.message}. Send the file: File, Download .py.`);
      return false;
    }
    this.#field.value = text;
    this.#field.rows = Math.min(text.split("\n").length, MOST_ROWS);
    this.#field.scrollTo(0, 0);
    this.#words.textContent = "";
    this.#panel.hidden = false;
    if (form !== "tag" && text.length > LONG_LINK)
      this.notice.tell(
        `The link has ${text.length.toLocaleString("en")} characters, and some programs for mail and chat cut such off. ` +
          "The file always arrives: File, Download .py.",
      );
    return true;
  }

  async #copy(): Promise<void> {
    this.#words.textContent = (await copy(this.#field.value, this.#field)) ? "Copied" : "Copy this";
  }

  async #text(form: Form): Promise<string> {
    const source = this.script.text();
    if (form === "link") return shareLink(source);
    if (form === "tag") return tag(source);
    const address = await shareLink(source, "embed.html");
    return `<iframe src="${address}" title="${escaped(this.script.name()).replaceAll('"', "&quot;")}" width="600" height="400"></iframe>`;
  }
}

/** What is in it can be read without JavaScript, too. */
function tag(source: string): string {
  const file = new URL("./tabtorch-cell.js", document.baseURI).href;
  const code = escaped(source.trimEnd());
  return `<script type="module" src="${file}"></script>\n<tabtorch-cell><pre>\n${code}\n</pre></tabtorch-cell>`;
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}

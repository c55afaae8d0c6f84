/** The panel over Python's working folder: what is there, and what can be done with it. */
import { saveAs } from "./files";
import type { Bytes, FolderFile } from "./folder";
import type { Notice } from "./notice";
import { describe } from "./session";
import { copy } from "./share";

export interface FolderWork {
  /** Where relative paths begin. */
  home: string;
  put(path: string, file: Blob): Promise<Bytes | undefined>;
  read(path: string): Promise<Bytes>;
  remove(path: string): Promise<Bytes | undefined>;
}

/** A script that computes lets nobody at its files until it waits: that is said after so long. */
const SLOW_MS = 1500;

export class FilesPanel {
  readonly #button: HTMLButtonElement;
  readonly #panel: HTMLElement;
  readonly #list: HTMLElement;
  readonly #words: HTMLElement;

  constructor(
    button: HTMLButtonElement,
    panel: HTMLElement,
    private readonly work: FolderWork,
    private readonly notice: Notice,
  ) {
    this.#button = button;
    this.#panel = panel;
    this.#list = panel.querySelector("ul") as HTMLElement;
    this.#words = panel.querySelector("p") as HTMLElement;
    const field = panel.querySelector("input") as HTMLInputElement;
    button.addEventListener("click", () => this.open(Boolean(panel.hidden)));
    panel.querySelector("[data-act=close]")?.addEventListener("click", () => {
      this.open(false);
      button.focus();
    });
    panel.querySelector("[data-act=add]")?.addEventListener("click", () => field.click());
    field.addEventListener("change", () => {
      for (const file of field.files ?? []) void this.add(file);
      field.value = "";
    });
  }

  open(shown: boolean): void {
    this.#panel.hidden = !shown;
    this.#button.ariaExpanded = String(shown);
  }

  show(files: FolderFile[]): void {
    this.#button.textContent = files.length ? `Files (${files.length})` : "Files";
    const rows = new Map([...this.#list.children].map((row) => [(row as HTMLElement).dataset.path, row]));
    this.#list.replaceChildren(
      ...files.map((file) => {
        const row = rows.get(file.path) ?? this.#row(file.path);
        (row.querySelector("small") as HTMLElement).textContent = [sizeWords(file.size), file.problem].join(" ");
        row.classList.toggle("unkept", file.problem !== "");
        return row;
      }),
    );
    this.#panel.classList.toggle("empty", !files.length);
    this.#words.textContent = !files.length
      ? "Nothing here yet. Drop files on the page, or add some: scripts open them by name, and what they write is listed here."
      : files.some(({ problem }) => problem)
        ? "What is marked lasts until Python is started again: download it, or delete other files."
        : `In ${this.work.home}, where scripts open and write them by name. Kept in this browser.`;
  }

  /** Put a file from the disk into the folder. */
  async add(file: File): Promise<void> {
    this.open(true);
    const before = await this.#do(file.name, () => this.work.put(file.name, file));
    if (before === LOST) return;
    const done = before ? `${file.name} was replaced.` : `${file.name} is in the working folder.`;
    this.notice.tell(done, before ? [this.#undo(file.name, before)] : []);
  }

  #row(path: string): HTMLElement {
    const row = document.createElement("li");
    row.dataset.path = path;
    const name = document.createElement("span");
    name.textContent = path;
    const size = document.createElement("small");
    row.append(
      name,
      size,
      this.#action("Download", path, () => this.#download(path)),
      this.#action("Copy path", path, () => this.#copy(path)),
      this.#action("Delete", path, () => this.#remove(path)),
    );
    return row;
  }

  #action(label: string, path: string, act: () => Promise<void>): HTMLButtonElement {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.ariaLabel = `${label}: ${path}`;
    button.addEventListener("click", () => void act());
    return button;
  }

  async #download(path: string): Promise<void> {
    const bytes = await this.#do(path, () => this.work.read(path));
    if (bytes !== LOST) saveAs(path.split("/").at(-1) ?? path, new Blob([bytes]));
  }

  async #copy(path: string): Promise<void> {
    const whole = `${this.work.home}/${path}`;
    const field = document.createElement("input");
    field.value = whole;
    this.#panel.append(field);
    const copied = await copy(whole, field);
    field.remove();
    this.notice.tell(copied ? `Copied: ${whole}` : `Its path: ${whole}`);
  }

  async #remove(path: string): Promise<void> {
    const before = await this.#do(path, () => this.work.remove(path));
    if (before === LOST) return;
    this.notice.tell(`${path} is deleted.`, before ? [this.#undo(path, before)] : []);
    this.#button.focus(); // the button that was pressed is gone
  }

  #undo(path: string, bytes: Bytes) {
    const act = () => this.#do(path, () => this.work.put(path, new Blob([bytes])));
    return { label: "Undo", act };
  }

  /** Ask Python's thread, and say where it does not answer. */
  async #do<T>(path: string, work: () => Promise<T>): Promise<T | typeof LOST> {
    const slow = setTimeout(() => this.notice.tell(`${path} waits for Python, which is busy.`), SLOW_MS);
    try {
      return await work();
    } catch (error) {
      this.notice.tell(`${path}: Python did not answer (${describe(error)}).`);
      return LOST;
    } finally {
      clearTimeout(slow);
    }
  }
}

const LOST = Symbol("no answer");

function sizeWords(bytes: number): string {
  if (bytes < 1000) return `${bytes} B`;
  const [size, unit] = bytes < 1e6 ? [bytes / 1e3, "kB"] : bytes < 1e9 ? [bytes / 1e6, "MB"] : [bytes / 1e9, "GB"];
  return `${size.toPrecision(size < 100 ? 2 : 3)} ${unit}`;
}

/** Which script is open, and what can be done with it: the list, the address and the editor follow it. */
import { type Demo, demos } from "./demos";
import { type Document, Documents } from "./documents";
import type { Editor } from "./editor";
import type { Action, Notice } from "./notice";
import { linkId, sharedCode } from "./share";

/** The one script that pages kept before scripts had names. */
const OLD_SLOT = "tabtorch.script";
/** The script that was open last. */
const LAST = "tabtorch.last";
const NEW_NAME = "script.py";
const LINK_NAME = "shared.py";

export interface WorkspaceParts {
  editor: Editor;
  notice: Notice;
  /** Another script is open, or what it is called, or which there are, has changed. */
  onShown(): void;
}

export class Workspace {
  readonly documents: Documents;
  readonly #editor: Editor;
  readonly #notice: Notice;
  readonly #onShown: () => void;
  #open = ""; // the id of a document, or of a demo that was never edited
  #asked = 0; // addresses that were looked at: a slow one must not win over a later one

  constructor({ editor, notice, onShown }: WorkspaceParts) {
    this.#editor = editor;
    this.#notice = notice;
    this.#onShown = onShown;
    this.documents = new Documents({
      onOther: (id, before) => this.#otherTab(id, before),
      onContest: (id) => this.#contest(id),
      onTrouble: (error) =>
        notice.tell(`This browser keeps no scripts here (${error}). Download what you do not want to lose.`),
    });
  }

  async start(): Promise<void> {
    await this.documents.load();
    this.#migrate();
    addEventListener("hashchange", () => void this.#openFromAddress());
    await this.#openFromAddress();
  }

  /** The id of the open script. */
  get open(): string {
    return this.#open;
  }

  /** The open script's file name. */
  get name(): string {
    return this.documents.get(this.#open)?.name ?? `${demoOf(this.#open)?.name ?? "main"}.py`;
  }

  /** Whether the open script is a demo, and whether it was edited. */
  get demo(): "no" | "edited" | "as it is" {
    if (!demoOf(this.#open)) return "no";
    return this.documents.get(this.#open) ? "edited" : "as it is";
  }

  /** The reader changed the text. A demo becomes a document with that. */
  edited(): void {
    if (!this.#open) return;
    const text = this.#editor.text;
    if (this.documents.get(this.#open)) {
      this.documents.update(this.#open, { text });
      if (location.hash !== addressOf(this.#open)) history.replaceState(null, "", addressOf(this.#open));
    } else {
      this.documents.add(this.name, text, this.#open);
      this.#onShown();
    }
  }

  /** A new document with this text is opened. */
  create(text = "", name = NEW_NAME): void {
    this.#go(this.documents.add(this.#freeName(name), text).id);
    this.#editor.focus();
  }

  duplicate(): void {
    this.create(this.#editor.text, this.name);
  }

  /** Rename the open script: what is wrong with the name, or undefined. */
  rename(wanted: string): string | undefined {
    const name = wanted.endsWith(".py") ? wanted : `${wanted}.py`;
    if (name === this.name) return undefined;
    if (!/^[^/\\\p{C}]*[^/\\\p{C}.]\.py$/u.test(name))
      return "A file name has no slashes, and something before its .py.";
    if (this.#isTaken(name)) return `There is a script called ${name} already.`;
    if (demoOf(this.#open)) return void this.#detach(name);
    this.documents.update(this.#open, { name });
    this.#onShown();
    return undefined;
  }

  /** Delete the open script, or give a demo its own text again. */
  async remove(): Promise<void> {
    const id = this.#open;
    const { name, demo } = this;
    const list = this.documents.list();
    const undo = await this.documents.remove(id);
    if (demo === "no") this.#go((list[list.findIndex((each) => each.id === id) + 1] ?? list.at(-2))?.id ?? firstDemo());
    else this.#show(id);
    this.#notice.tell(demo === "no" ? `${name} is deleted.` : `${name} is as it came.`, [
      { label: "Undo", act: () => void undo().then(() => this.#go(id)) },
    ]);
  }

  /** Put an older text into the open script. What it replaces is kept. */
  async restore(text: string): Promise<void> {
    await this.documents.keep(this.#open);
    this.#editor.edit(text);
    this.#editor.focus();
  }

  /** Show what the address asks for, in its newest form; else what was open last; else a demo. Nothing runs by itself. */
  async #openFromAddress(): Promise<void> {
    const asked = ++this.#asked;
    const { hash } = location;
    const demo = demos.find(({ name }) => hash === `#demo=${name}`);
    this.#notice.hide();
    if (demo) return this.#show(demoId(demo));
    const id = /^#doc=(.+)/.exec(hash)?.[1];
    if (id && this.documents.get(id)) return this.#show(id);
    try {
      const code = await sharedCode(hash);
      if (asked !== this.#asked) return;
      if (code !== undefined) return this.#receive(code);
    } catch {
      if (asked !== this.#asked) return;
      this.#goBack();
      return this.#notice.tell("The link is damaged: its script could not be read.");
    }
    this.#goBack();
    if (id) this.#notice.tell("The script of this address is not kept in this browser.");
  }

  /** What was open last, for an address that shows nothing. */
  #goBack(): void {
    const last = read(LAST) ?? "";
    this.#show(this.documents.get(last) || demoOf(last) ? last : firstDemo());
    history.replaceState(null, "", addressOf(this.#open));
  }

  #receive(code: string): void {
    const id = linkId(code);
    const kept = this.documents.get(id);
    if (!kept) {
      this.documents.add(this.#freeName(LINK_NAME), code, id);
      void this.documents.keep(id);
    }
    this.#show(id);
    this.#notice.tell(
      kept && kept.text !== code
        ? "This script came with the link, and was edited here since."
        : "This script came with the link. Read it, then press Run.",
    );
  }

  #go(id: string): void {
    if (location.hash !== addressOf(id)) history.pushState(null, "", addressOf(id));
    this.#notice.hide();
    this.#show(id);
  }

  #show(id: string): void {
    this.#open = id;
    this.#editor.open(id, this.documents.get(id)?.text ?? demoOf(id)?.source ?? "");
    try {
      localStorage.setItem(LAST, id);
    } catch {
      // storage is full or not allowed
    }
    this.#onShown();
  }

  /** A renamed demo is the reader's own script, and the demo is there again. */
  async #detach(name: string): Promise<void> {
    const { id } = this.documents.add(name, this.#editor.text);
    const versions = await this.documents.versions(this.#open);
    await this.documents.remove(this.#open);
    await this.documents.adopt(id, versions);
    this.#go(id);
  }

  #otherTab(id: string, before: Document | undefined): void {
    const text = this.documents.get(id)?.text ?? demoOf(id)?.source;
    if (id !== this.#open) this.#onShown();
    else if (text === undefined) this.#deletedElsewhere(before);
    else {
      this.#editor.follow(text);
      this.#onShown();
    }
  }

  #deletedElsewhere(before: Document | undefined): void {
    const id = this.#open;
    const text = this.#editor.text;
    const name = before?.name ?? NEW_NAME;
    this.#go(this.documents.list()[0]?.id ?? firstDemo());
    const keep = () => this.#go(this.documents.add(this.#freeName(name), text, id).id);
    this.#notice.tell(`${name} was deleted in another tab.`, [{ label: "Bring it back", act: keep }]);
  }

  #contest(id: string): void {
    const name = this.documents.get(id)?.name;
    const choice = (label: string, mine: boolean): Action => ({
      label,
      act: () => void this.documents.settle(id, mine),
    });
    this.#notice.tell(`${name} was changed in another tab too. History keeps the text you do not take.`, [
      choice("Take the other's", false),
      choice("Keep this one", true),
    ]);
  }

  #migrate(): void {
    const kept = read(OLD_SLOT);
    if (kept === null) return;
    localStorage.removeItem(OLD_SLOT);
    const { fileName, text } = parse(kept);
    if (typeof text !== "string" || typeof fileName !== "string") return;
    const demo = demos.find(({ name }) => `${name}.py` === fileName);
    if (text === demo?.source) return;
    const id = demo && !this.documents.get(demoId(demo)) ? demoId(demo) : undefined;
    const document = this.documents.add(id ? fileName : this.#freeName(fileName), text, id);
    localStorage.setItem(LAST, document.id);
  }

  #isTaken(name: string): boolean {
    return this.documents.list().some((each) => each.name === name) || demos.some((demo) => `${demo.name}.py` === name);
  }

  /** This name, or with a number the first that is not in use. */
  #freeName(name: string): string {
    const stem = name.replace(/(-\d+)?\.py$/, "");
    for (let count = 1; ; count++) {
      const free = count === 1 ? name : `${stem}-${count}.py`;
      if (!this.#isTaken(free)) return free;
    }
  }
}

/** The part of an address that shows this script. */
export function addressOf(id: string): string {
  return demoOf(id) ? `#demo=${demoOf(id)?.name}` : `#doc=${id}`;
}

function demoId(demo: Demo): string {
  return `demo-${demo.name}`;
}

function demoOf(id: string): Demo | undefined {
  return demos.find((demo) => demoId(demo) === id);
}

function firstDemo(): string {
  return demos[0] ? demoId(demos[0]) : "";
}

function read(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

function parse(text: string): Record<string, unknown> {
  try {
    return Object(JSON.parse(text));
  } catch {
    return {};
  }
}

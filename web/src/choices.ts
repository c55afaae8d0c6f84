/** A list below the prompt to choose from: completions, or the history. The focus stays in the prompt. */
import "./choices.css";

export interface Choice {
  text: string;
  /** What it takes, beside the text; and what it does, below the list while it is the chosen one. */
  detail?: string | undefined;
  summary?: string | undefined;
}

export class Choices {
  readonly #field: HTMLTextAreaElement;
  readonly #box = document.createElement("div");
  readonly #list = document.createElement("ul");
  readonly #summary = document.createElement("p");
  readonly #take: (index: number) => void;
  #choices: Choice[] = [];
  #at = 0;

  constructor(field: HTMLTextAreaElement, after: HTMLElement, take: (index: number) => void) {
    this.#field = field;
    this.#take = take;
    this.#box.className = "choices";
    this.#box.hidden = true;
    this.#list.id = `${field.id}-choices`;
    this.#list.setAttribute("role", "listbox");
    this.#list.setAttribute("aria-label", "Choices");
    this.#list.tabIndex = -1;
    this.#summary.setAttribute("aria-live", "polite");
    this.#box.append(this.#list, this.#summary);
    after.after(this.#box);
    field.setAttribute("aria-autocomplete", "list");
    field.setAttribute("aria-controls", this.#list.id);
    this.#box.addEventListener("mousedown", (event) => event.preventDefault());
    this.#list.addEventListener("click", (event) => {
      const item = (event.target as HTMLElement).closest("li");
      if (item) this.#take([...this.#list.children].indexOf(item));
    });
  }

  get open(): boolean {
    return !this.#box.hidden;
  }

  get chosen(): number {
    return this.#at;
  }

  show(label: string, choices: Choice[]): void {
    this.#choices = choices;
    this.#list.setAttribute("aria-label", label);
    this.#list.replaceChildren(...choices.map((choice, index) => this.#item(choice, index)));
    this.#box.hidden = false;
    this.#choose(0);
    this.#box.scrollIntoView({ block: "nearest" });
  }

  close(): void {
    this.#box.hidden = true;
    this.#list.replaceChildren();
    this.#field.removeAttribute("aria-activedescendant");
  }

  move(step: number): void {
    const count = this.#choices.length;
    if (count) this.#choose((this.#at + step + count) % count);
  }

  #choose(index: number): void {
    this.#list.children[this.#at]?.removeAttribute("aria-selected");
    this.#at = index;
    const item = this.#list.children[index];
    const { summary } = this.#choices[index] ?? {};
    this.#summary.textContent = summary ?? (item ? "" : "Nothing found");
    this.#summary.hidden = !this.#summary.textContent;
    if (!item) {
      this.#field.removeAttribute("aria-activedescendant");
      return;
    }
    item.setAttribute("aria-selected", "true");
    item.scrollIntoView({ block: "nearest" });
    this.#field.setAttribute("aria-activedescendant", item.id);
  }

  #item({ text, detail }: Choice, index: number): HTMLElement {
    const item = document.createElement("li");
    item.id = `${this.#list.id}-${index}`;
    item.setAttribute("role", "option");
    item.textContent = text;
    if (detail) {
      const small = document.createElement("small");
      small.textContent = detail;
      item.append(small);
    }
    return item;
  }
}

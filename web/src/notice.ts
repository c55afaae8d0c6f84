/** The one line above the editor in which the page says something, with what can be done about it. */

export interface Action {
  label: string;
  act(): unknown;
}

export class Notice {
  readonly #element: HTMLElement;

  constructor(element: HTMLElement) {
    this.#element = element;
  }

  tell(words: string, actions: Action[] = []): void {
    if (!this.#element.hidden && this.#element.firstChild?.textContent === words) return; // said already
    const text = document.createElement("span");
    text.textContent = words;
    const buttons = actions.map(({ label, act }) =>
      this.#button(label, () => {
        this.hide();
        act();
      }),
    );
    const close = this.#button("✕", () => this.hide());
    close.ariaLabel = "Close";
    this.#element.replaceChildren(text, ...buttons, close);
    this.#element.hidden = false;
  }

  hide(): void {
    this.#element.hidden = true;
  }

  #button(label: string, act: () => void): HTMLButtonElement {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.addEventListener("click", act);
    return button;
  }
}

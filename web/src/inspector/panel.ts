/** The inspector's panel: four views of what Python and the device do, one at a time. */
import type { InspectParts } from "../inspect";
import type { Device } from "../interpreter";
import { describe, type State } from "../session";
import type { WatchEvent } from "../watch";
import { Live } from "./live";
import { button, make } from "./make";
import { Profile } from "./profile";
import { Report } from "./report";
import { Tape } from "./tape";
import "./inspector.css";

export type Figures = Extract<WatchEvent, { event: "figures" }>;
export type Progress = Extract<WatchEvent, { event: "compiling" }>;

/** What each of the views may use. */
export interface Around extends InspectParts {
  readonly device: Device | undefined;
  /** Do this for the view, and show there what fails. */
  attempt(view: View, work: () => Promise<void>): Promise<void>;
}

/** One of the views. */
export interface View {
  readonly title: string;
  readonly element: HTMLElement;
  /** It comes into sight, or goes out of it. */
  show?(shown: boolean): void;
  onState?(state: State): void;
}

export class Panel {
  readonly #element: HTMLElement;
  readonly #tabs: HTMLButtonElement[];
  readonly #views: View[];
  readonly #live: Live;
  readonly #report: Report;
  #device: Device | undefined;
  #chosen = 0;

  constructor(
    private readonly opener: HTMLButtonElement,
    private readonly parts: InspectParts,
    device: Device | undefined,
  ) {
    this.#device = device;
    const panel = this;
    const around: Around = {
      ...parts,
      get device() {
        return panel.#device;
      },
      attempt: (view, work) => panel.#attempt(view, work),
    };
    this.#report = new Report(around);
    this.#live = new Live(around);
    this.#views = [this.#report, this.#live, new Profile(around), new Tape(around)];
    this.#tabs = this.#views.map((view, index) =>
      button(view.title, () => this.#choose(index), {
        id: `inspector-tab-${index}`,
        role: "tab",
        "aria-controls": `inspector-view-${index}`,
      }),
    );
    const list = make("div", { role: "tablist", "aria-label": "Inspector" }, ...this.#tabs);
    list.addEventListener("keydown", (event) => this.#onKey(event));
    const close = button("✕", () => this.open(false), { ariaLabel: "Close the inspector" });
    this.#element = make(
      "section",
      { id: "inspector", className: "inspector", ariaLabel: "Inspector", hidden: true },
      make("div", { className: "inspector-bar" }, list, close),
      ...this.#views.map(({ element }, index) => {
        const role = { role: "tabpanel", "aria-labelledby": `inspector-tab-${index}`, tabIndex: 0 };
        return Object.assign(
          make("div", { id: `inspector-view-${index}`, className: "inspector-view", ...role }, element),
        );
      }),
    );
    this.#element.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !event.defaultPrevented) this.open(false);
    });
    opener.setAttribute("aria-controls", "inspector");
    document.querySelector("main")?.append(this.#element);
    this.#choose(0);
  }

  get shown(): boolean {
    return !this.#element.hidden;
  }

  open(shown: boolean): void {
    this.#element.hidden = !shown;
    this.opener.ariaExpanded = String(shown);
    this.parts.session.watch(shown);
    this.#views[this.#chosen]?.show?.(shown);
    (shown ? this.#tabs[this.#chosen] : this.opener)?.focus();
  }

  onDevice(device: Device): void {
    this.#device = device;
    this.#report.draw();
  }

  onState(state: State): void {
    for (const view of this.#views) view.onState?.(state);
  }

  onFigures(figures: Figures): void {
    this.#live.add(figures);
  }

  onCompiling(progress: Progress): void {
    this.#live.compiling(progress);
  }

  #choose(index: number): void {
    if (this.shown && index !== this.#chosen) this.#views[this.#chosen]?.show?.(false);
    this.#chosen = index;
    for (const [each, tab] of this.#tabs.entries()) {
      const chosen = each === index;
      tab.ariaSelected = String(chosen);
      tab.tabIndex = chosen ? 0 : -1;
      (this.#element.querySelector(`#inspector-view-${each}`) as HTMLElement).hidden = !chosen;
    }
    if (this.shown) this.#views[index]?.show?.(true);
  }

  #onKey(event: KeyboardEvent): void {
    const count = this.#tabs.length;
    const steps: Record<string, number> = {
      ArrowRight: this.#chosen + 1,
      ArrowLeft: this.#chosen - 1 + count,
      Home: 0,
    };
    const to = event.key === "End" ? count - 1 : steps[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.#choose(to % count);
    this.#tabs[to % count]?.focus();
  }

  async #attempt(view: View, work: () => Promise<void>): Promise<void> {
    view.element.querySelector(":scope > .problem")?.remove();
    try {
      await work();
    } catch (error) {
      view.element.prepend(make("p", { className: "problem", role: "alert" }, describe(error)));
    }
  }
}

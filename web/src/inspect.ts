/** The button of the inspector, whose panel is loaded when it is first opened; what it looks at is kept for it here. */
import type { Panel } from "./inspector/panel";
import type { Device, PageEvent } from "./interpreter";
import { describe, type Session, type State } from "./session";

export interface InspectParts {
  session: Session;
  /** Run the script that is open. */
  run(): unknown;
  /** Run the cell that the cursor is in; false where there is none. */
  runCell(): boolean;
}

export class Inspect {
  #panel: Panel | undefined;
  #device: Device | undefined;

  constructor(
    private readonly button: HTMLButtonElement,
    private readonly parts: InspectParts,
  ) {
    button.addEventListener("click", () => void this.#toggle());
  }

  onDevice(device: Device): void {
    this.#device = device;
    this.#panel?.onDevice(device);
  }

  onState(state: State): void {
    this.#panel?.onState(state);
  }

  hear(event: PageEvent): void {
    if (event.event === "figures") this.#panel?.onFigures(event);
    else if (event.event === "compiling") this.#panel?.onCompiling(event);
  }

  async #toggle(): Promise<void> {
    try {
      this.#panel ??= await this.#load();
    } catch (error) {
      this.button.title = `The inspector could not be loaded: ${describe(error)}`;
      this.button.textContent = "Inspect: not loaded";
      return;
    }
    this.#panel.open(!this.#panel.shown);
  }

  async #load(): Promise<Panel> {
    const { Panel } = await import("./inspector/panel");
    return new Panel(this.button, this.parts, this.#device);
  }
}

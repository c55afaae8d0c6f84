/**
 * Controls of a script in its output: native elements, whose numbers Python reads as it runs (links.ts). They are live while
 * a script runs, and disabled when it has ended.
 */
import type { Connection, FromControl, Refusal, ToControl } from "./links";
import { camera, microphone } from "./media";
import { pad } from "./pad";
import type { Picture } from "./rich";
import "./controls.css";

/** What Python says of it, by kind. */
export interface About {
  kind: "slider" | "button" | "pad" | "canvas" | "webcam" | "microphone";
  label: string;
  low: number;
  high: number;
  step: number;
  height: number;
  width: number;
  scale: number;
  seconds: number;
  rate: number;
}

/** What a kind does when it is told to. */
export interface Parts {
  live?(live: boolean): void;
  clear?(): void;
  listen?(): void;
  ask?(): Promise<ArrayBuffer>;
}

type Maker = (control: Control, about: About) => Parts;

const MAKERS: Record<About["kind"], Maker> = { slider, button, pad, canvas, webcam: camera, microphone };

export class Control {
  /** What Python reads: tell it by `changed`. */
  readonly numbers: Float64Array;
  readonly #shared: boolean;
  readonly #port: MessagePort | undefined;
  readonly #parts: Parts;

  constructor(
    readonly element: HTMLElement,
    about: About,
    connection: Connection | undefined,
  ) {
    element.className = `control ${about.kind}`;
    this.#port = connection?.port;
    this.#shared = connection?.shared ?? false;
    this.numbers = connection?.numbers ?? new Float64Array((about.height ?? 1) * (about.width ?? 1));
    this.#parts = MAKERS[about.kind](this, about);
    if (this.#port) this.#port.onmessage = ({ data }: MessageEvent<ToControl>) => this.#hear(data);
    else this.end(); // of a notebook that was saved
  }

  /** Of one that is drawn on. */
  get picture(): Picture | undefined {
    const canvas = this.element.querySelector("canvas");
    if (!canvas) return undefined;
    const { clientWidth: width, clientHeight: height, ariaLabel: alt } = canvas;
    return { canvas, metadata: { width, height, alt, pixelated: true } };
  }

  /** Nobody reads it any more. */
  end(): void {
    this.#live(false);
  }

  changed(): void {
    if (!this.#shared) this.say({ numbers: this.numbers.slice() as Float64Array<ArrayBuffer> });
  }

  say(message: FromControl, ...transfer: Transferable[]): void {
    this.#port?.postMessage(message, transfer);
  }

  dispose(): void {
    this.end();
    this.say({ gone: true });
  }

  #hear(told: ToControl): void {
    if ("live" in told) this.#live(told.live);
    else if ("clear" in told) this.#parts.clear?.();
    else if ("listen" in told) this.#parts.listen?.();
    else void this.#answer(told.ask);
  }

  #live(live: boolean): void {
    this.element.toggleAttribute("data-ended", !live);
    for (const each of this.element.querySelectorAll<HTMLInputElement | HTMLButtonElement>("input, button"))
      each.disabled = !live;
    this.#parts.live?.(live);
  }

  async #answer(to: number): Promise<void> {
    try {
      const answer = await this.#parts.ask?.();
      if (answer) this.say({ to, answer }, answer);
    } catch (error) {
      const { name, message } = error as Error;
      this.say({ to, refused: { name, message } satisfies Refusal });
    }
  }
}

function slider(control: Control, { label, low, high, step }: About): Parts {
  const field = document.createElement("label");
  const name = document.createElement("span");
  const input = document.createElement("input");
  const value = document.createElement("output");
  name.textContent = label;
  Object.assign(input, { type: "range", min: low, max: high, step });
  input.valueAsNumber = control.numbers[0] as number;
  const show = () => {
    value.textContent = String(Number((control.numbers[0] as number).toPrecision(6)));
  };
  show();
  input.addEventListener("input", () => {
    control.numbers[0] = input.valueAsNumber;
    show();
    control.changed();
  });
  field.append(name, input, value);
  control.element.append(field);
  return {};
}

function button(control: Control, { label }: About): Parts {
  const element = document.createElement("button");
  element.type = "button";
  element.textContent = label;
  element.addEventListener("click", () => {
    control.numbers[0] = (control.numbers[0] as number) + 1;
    control.changed();
  });
  control.element.append(element);
  return {};
}

/** Places in the numbers of a canvas: see display/canvases.py. */
const [POINTER, CLICKS, PLACES] = [0, 4, 5] as const;

function canvas(control: Control, { label, height, width, scale }: About): Parts {
  const element = document.createElement("canvas");
  const { numbers } = control;
  Object.assign(element, { height, width, role: "img", ariaLabel: label });
  element.style.width = `${width * scale}px`;
  control.element.append(element);
  const screen = element.transferControlToOffscreen();
  control.say({ screen }, screen);
  const move = (event: PointerEvent, there: boolean) => {
    const place = placeIn(element, event, height, width);
    numbers.set([Number(there), place.x, place.y, Number(there && event.buttons !== 0)], POINTER);
    control.changed();
  };
  element.addEventListener("pointerdown", (event) => {
    element.setPointerCapture(event.pointerId);
    move(event, true);
  });
  element.addEventListener("pointermove", (event) => move(event, true));
  element.addEventListener("pointerup", (event) => move(event, event.pointerType === "mouse"));
  for (const kind of ["pointerleave", "pointercancel"] as const)
    element.addEventListener(kind, (event) => move(event, false));
  element.addEventListener("click", (event) => {
    const { x, y } = placeIn(element, event, height, width);
    const count = numbers[CLICKS] as number;
    const kept = (numbers.length - PLACES) / 2;
    numbers.set([x, y], PLACES + 2 * (count % kept));
    numbers[CLICKS] = count + 1;
    control.changed();
  });
  return { listen: () => element.classList.add("listens") };
}

/** The column and the row of the pixel below the pointer. */
export function placeIn(
  element: HTMLElement,
  { clientX, clientY }: MouseEvent,
  height: number,
  width: number,
): { x: number; y: number } {
  const box = element.getBoundingClientRect();
  const within = (part: number, size: number) => Math.min(Math.max(Math.floor(part * size), 0), size - 1);
  return { x: within((clientX - box.left) / box.width, width), y: within((clientY - box.top) / box.height, height) };
}

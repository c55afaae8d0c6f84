/**
 * Controls, where Python runs: each has numbers, which the page keeps up to date, and a port to its element (controls.ts).
 * The numbers are in shared memory on a page that is cross-origin isolated; else they come as messages.
 */
import type { PageEvent } from "./interpreter";

export const CONTROL = "application/vnd.tabtorch.control+json";

/** Why there is no answer: the name of a DOMException, and what it says. */
export interface Refusal {
  name: string;
  message: string;
}

/** From the element. */
export type FromControl =
  | { numbers: Float64Array<ArrayBuffer> }
  | { screen: OffscreenCanvas }
  | { to: number; answer: ArrayBuffer }
  | { to: number; refused: Refusal }
  | { gone: true };

/** To the element. `live`: a script runs. */
export type ToControl = { live: boolean } | { clear: true } | { listen: true } | { ask: number };

/** Ports that go with what is said to the page. */
export function portsOf(event: PageEvent | { event: "state" }): MessagePort[] {
  if (event.event === "batch") return event.items.flatMap(portsOf);
  const connection = event.event === "display" ? (event.metadata[CONTROL] as unknown as Connection) : undefined;
  return connection ? [connection.port] : [];
}

/** What the element is made with, beside its description. */
export interface Connection {
  port: MessagePort;
  /** What Python reads, if they are shared; else a copy. */
  numbers: Float64Array;
  shared: boolean;
}

const GONE: Refusal = { name: "NotFoundError", message: "it is no longer in the output" };
/** A canvas that nobody shows is not waited for longer. */
const COMING_MS = 10_000;
/** A hidden page has no frames. */
const FRAME_MS = 100;

export class Links {
  readonly #all = new Set<Link>();

  /** A control with these numbers at first: what Python has of it, and what its element is made with. */
  connect(first: number[]): [Link, Connection] {
    const { port1, port2 } = new MessageChannel();
    const link = new Link(first, port1, () => this.#all.delete(link));
    this.#all.add(link);
    return [link, { port: port2, numbers: link.numbers, shared: link.shared }];
  }

  /** A script begins, or has ended. */
  set live(live: boolean) {
    for (const link of this.#all) link.tell({ live });
  }
}

export class Link {
  readonly shared = globalThis.crossOriginIsolated === true;
  readonly numbers: Float64Array;
  /** What is drawn on. */
  screen: OffscreenCanvas | undefined;
  gone = false;
  readonly #port: MessagePort;
  readonly #onGone: () => void;
  #arrived: (() => void) | undefined;
  #waits = true; // for the screen
  #asked = 0;
  #answer: ((bytes: Uint8Array) => void) | undefined;
  #refuse: ((reason: Error) => void) | undefined;

  constructor(first: number[], port: MessagePort, onGone: () => void) {
    const size = 8 * first.length;
    this.numbers = new Float64Array(this.shared ? new SharedArrayBuffer(size) : new ArrayBuffer(size));
    this.numbers.set(first);
    this.#port = port;
    this.#onGone = onGone;
    port.onmessage = ({ data }: MessageEvent<FromControl>) => this.#hear(data);
  }

  readonly read = (i: number): number => this.numbers[i] as number;

  readonly clear = (): void => {
    this.numbers.fill(0);
    this.tell({ clear: true });
  };

  floats(): Float32Array {
    return Float32Array.from(this.numbers);
  }

  listen(): void {
    this.tell({ listen: true });
  }

  tell(message: ToControl): void {
    this.#port.postMessage(message);
  }

  /** Ask the element for bytes. Rejects with its reason. */
  ask(): Promise<Uint8Array> {
    const answer = new Promise<Uint8Array>((resolve, reject) => {
      this.#answer = resolve;
      this.#refuse = reject;
    });
    if (this.gone) this.#refused(GONE);
    else this.tell({ ask: ++this.#asked });
    return answer;
  }

  /** Resolves when the screen is there, or will not come; with a frame, where it is known that it will not. */
  coming(): Promise<void> {
    if (this.screen || this.gone || !this.#waits) return frame();
    this.#waits = false;
    return new Promise((resolve) => {
      this.#arrived = resolve;
      setTimeout(resolve, COMING_MS);
    });
  }

  /** Once that is drawn and a frame has begun. */
  readonly shown = async <T>(drawn: Promise<T>): Promise<T> => {
    const result = await drawn;
    await frame();
    return result;
  };

  /** Once the messages are read that are here. */
  turn(): Promise<void> {
    const { port1, port2 } = new MessageChannel();
    return new Promise((resolve) => {
      port1.onmessage = () => {
        port1.close();
        resolve();
      };
      port2.postMessage(0);
    });
  }

  #hear(said: FromControl): void {
    if ("numbers" in said) this.numbers.set(said.numbers);
    else if ("to" in said) this.#answered(said);
    else if ("screen" in said) {
      this.screen = said.screen;
      this.#arrived?.();
    } else this.#leave();
  }

  /** What was asked before, and is waited for no longer, is no answer to what was asked since. */
  #answered(said: Extract<FromControl, { to: number }>): void {
    if (said.to !== this.#asked) return;
    if ("answer" in said) this.#answer?.(new Uint8Array(said.answer));
    else this.#refused(said.refused);
  }

  #refused({ name, message }: Refusal): void {
    this.#refuse?.(Object.assign(new Error(message), { name }));
  }

  #leave(): void {
    this.gone = true;
    this.screen = undefined;
    this.#arrived?.();
    this.#refused(GONE);
    this.#port.close();
    this.#onGone();
  }
}

/** The next frame of the screen. */
function frame(): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      cancelAnimationFrame(request);
      resolve();
    };
    const timer = setTimeout(done, FRAME_MS);
    const request = requestAnimationFrame(done);
  });
}

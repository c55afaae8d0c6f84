/** Says how many of the pipelines that a script needs are compiled, once that takes a while. */

export interface Counts {
  ready: number;
  asked: number;
}

/** What is over sooner is not worth a word. */
const PATIENCE_MS = 500;

export class Compiling {
  #counts: Counts = { ready: 0, asked: 0 };
  #shown = false;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** say: show the counts; without them, that nothing is compiled any more. */
  constructor(private readonly say: (counts?: Counts) => void) {}

  hear({ ready, asked }: Counts): void {
    if (ready >= asked) {
      this.end();
      return;
    }
    this.#counts = { ready, asked };
    if (this.#timer === undefined) this.#timer = setTimeout(() => this.#show(), PATIENCE_MS);
  }

  /** All are ready, or nobody waits any longer. */
  end(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#shown) this.say();
    this.#shown = false;
  }

  /** Now and again, as long as some are not: who has it read out would else hear nothing but numbers. */
  #show(): void {
    this.#shown = true;
    this.say(this.#counts);
    this.#timer = setTimeout(() => this.#show(), PATIENCE_MS);
  }
}

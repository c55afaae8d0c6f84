/** Says how many of the pipelines that a script needs are compiled, once that takes a while. */

/** What is over sooner is not worth a word. */
const PATIENCE_MS = 500;

export class Compiling {
  #words = "";
  #shown = false;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** say: show the words; "" takes them away. */
  constructor(private readonly say: (words: string) => void) {}

  hear({ ready, asked }: { ready: number; asked: number }): void {
    if (ready >= asked) {
      this.end();
      return;
    }
    this.#words = `Compiling ${ready} of ${asked}`;
    if (this.#timer === undefined) this.#timer = setTimeout(() => this.#show(), PATIENCE_MS);
  }

  /** All are ready, or nobody waits any longer. */
  end(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#shown) this.say("");
    this.#shown = false;
  }

  /** Now and again, as long as some are not: who has it read out would else hear nothing but numbers. */
  #show(): void {
    this.#shown = true;
    this.say(this.#words);
    this.#timer = setTimeout(() => this.#show(), PATIENCE_MS);
  }
}

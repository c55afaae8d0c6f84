/** On a phone the output is below the text, and the keyboard before it. */

const BELOW = matchMedia("(max-width: 760px)");
const STILL = matchMedia("(prefers-reduced-motion: reduce)");

/** Bring the output into sight, where it is not beside the text: a script runs, and nobody types just now. */
export function reveal(output: Element): void {
  if (!BELOW.matches) return;
  if (document.activeElement instanceof HTMLElement) document.activeElement.blur(); // the keyboard goes
  output.scrollIntoView({ block: "start", behavior: STILL.matches ? "auto" : "smooth" });
}

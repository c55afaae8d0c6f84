/** A script's history: which versions are worth keeping, and the dialog to look at one and take it back. */
import type { Version } from "./documents";

/** Versions of one script. */
const MOST = 60;
/** Two versions may be no closer than this part of their age: many of the last hour, few of last month. */
const SPACING = 1 / 8;

/** Of versions made at these times, in ascending order, those that are dropped. The newest stays. */
export function thin(times: number[], now: number): number[] {
  const newestFirst = [...times].reverse();
  const kept: number[] = [];
  for (const time of newestFirst) {
    const next = kept.at(-1);
    if (next === undefined || (kept.length < MOST && next - time >= (now - time) * SPACING)) kept.push(time);
  }
  return times.filter((time) => !kept.includes(time));
}

/** Let the reader look through `versions`, the newest first: the text of the one that is taken, or undefined. */
export function chooseVersion(dialog: HTMLDialogElement, versions: Version[]): Promise<string | undefined> {
  const list = part<HTMLSelectElement>(dialog, "select");
  const preview = part<HTMLTextAreaElement>(dialog, "textarea");
  const take = part<HTMLButtonElement>(dialog, "button[value=restore]");
  list.replaceChildren(...versions.map(({ time, text }) => new Option(`${when(time)} · ${lines(text)}`)));
  list.selectedIndex = 0;
  const show = () => {
    preview.value = versions[list.selectedIndex]?.text ?? "There are no versions yet: they come with runs and time.";
  };
  list.onchange = show;
  show();
  take.disabled = list.disabled = !versions.length;
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.onclose = () => resolve(dialog.returnValue === "restore" ? versions[list.selectedIndex]?.text : undefined);
  });
}

function when(time: number): string {
  return new Date(time).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}

function lines(text: string): string {
  const count = text.split("\n").length;
  return count === 1 ? "1 line" : `${count} lines`;
}

function part<T extends HTMLElement>(dialog: HTMLDialogElement, selector: string): T {
  const found = dialog.querySelector<T>(selector);
  if (!found) throw new Error(`no ${selector} in #${dialog.id}`);
  return found;
}

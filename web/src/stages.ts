/** How far Python has come: each stage's bytes, and then a bar that moves until the stage is done. */
import type { PageEvent } from "./interpreter";

type StageEvent = Extract<PageEvent, { event: "stage" }>;

export function showStage(loading: HTMLElement, { stage, loaded, total, done }: StageEvent): void {
  const row = loading.querySelector<HTMLElement>(`[data-stage=${stage}]`);
  const bar = row?.querySelector("progress");
  const words = row?.querySelector("small");
  if (!row || !bar || !words) return;
  const starts = !done && loaded >= total;
  row.classList.toggle("done", done);
  if (starts) bar.removeAttribute("value");
  else bar.value = done ? 1 : loaded / total;
  const size = (bytes: number) => (bytes / 1e6).toFixed(1);
  if (starts) words.textContent = "starting";
  else if (!done) words.textContent = `${size(loaded)} of ${size(total)} MB`;
  else words.textContent = total ? `${size(total)} MB` : "ready";
}

/** Nothing has begun. */
export function resetStages(loading: HTMLElement): void {
  for (const row of loading.querySelectorAll(".stage")) {
    row.classList.remove("done");
    for (const bar of row.querySelectorAll("progress")) bar.value = 0;
    for (const words of row.querySelectorAll("small")) words.textContent = "";
  }
}

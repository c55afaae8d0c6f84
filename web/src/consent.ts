/** A package that a script misses is fetched once the reader has said so; after that, whenever it is missed. */

const KEY = "tabtorch.packages";

/** Names of the packages that may be fetched. */
export function allowed(): string[] {
  try {
    const names: unknown = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(names) ? names.filter((name) => typeof name === "string") : [];
  } catch {
    return []; // storage is not allowed, or holds something else
  }
}

export function allow(name: string): void {
  try {
    localStorage.setItem(KEY, JSON.stringify([...new Set([...allowed(), name])]));
  } catch {
    // storage is full or not allowed: it is asked again
  }
}

/** A line that asks. */
export function question(name: string, from: string, act: () => void): HTMLElement {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = `Install ${name} from ${from}`;
  button.addEventListener("click", () => {
    button.disabled = true;
    allow(name);
    act();
  });
  const line = document.createElement("div");
  line.className = "question";
  line.append(button, " It is remembered for this package.");
  return line;
}

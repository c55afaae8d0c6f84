/** The compatibility page: its tables come from COMPATIBILITY.md as the site is built; here they are searched. */
import "./compatibility.css";

function find<T extends HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (!found) throw new Error(`no element #${id}`);
  return found as T;
}

const table = [...document.querySelectorAll("table")].at(-1);
if (!table) throw new Error("no table of operators");
table.id = "operators";
const rows = [...table.tBodies].flatMap((body) => [...body.rows]);
const name = find<HTMLInputElement>("name");
const failing = find<HTMLInputElement>("failing");
const count = find<HTMLSpanElement>("count");

/** A row with a fraction in one of its seven columns of results does not pass whole. */
function passes(row: HTMLTableRowElement): boolean {
  return ![...row.cells].slice(1, 8).some((cell) => cell.textContent?.includes("/"));
}

function show(): void {
  const wanted = name.value.trim().toLowerCase();
  let shown = 0;
  for (const row of rows) {
    const title = row.cells[0]?.textContent?.toLowerCase() ?? "";
    row.hidden = !title.includes(wanted) || (failing.checked && passes(row));
    shown += row.hidden ? 0 : 1;
  }
  count.textContent = `${shown} of ${rows.length}`;
}

name.addEventListener("input", show);
failing.addEventListener("change", show);
show();

/** The compatibility page: its tables come from COMPATIBILITY.md as the site is built; here they are searched. */
import "./compatibility.css";

interface Row {
  element: HTMLTableRowElement;
  /** All that it may be called, from `torch.` on, in lower case. */
  names: string;
  passes: boolean;
}

function find<T extends HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (!found) throw new Error(`no element #${id}`);
  return found as T;
}

/** The tables with a row for each module, optimizer or operator, by their sections; the others have none. */
const sections = [...document.querySelectorAll<HTMLElement>("main section")].map((element) => {
  const table = element.querySelector("table");
  const first = table?.tHead?.rows[0]?.cells[0]?.textContent ?? "";
  const listed = table && ["module", "optimizer", "operator"].includes(first);
  return { element, rows: listed ? [...table.tBodies].flatMap((body) => [...body.rows].map(describe)) : [] };
});
const all = sections.reduce((sum, { rows }) => sum + rows.length, 0);
const name = find<HTMLInputElement>("name");
const failing = find<HTMLInputElement>("failing");
const count = find<HTMLSpanElement>("count");

/** A row's name is short; its link says in full where PyTorch has it. */
function describe(element: HTMLTableRowElement): Row {
  const cell = element.cells[0];
  const documented = /generated\/(.*)\.html/.exec(cell?.querySelector("a")?.href ?? "")?.[1] ?? "";
  // A fraction in one of the columns of results; after those come counts.
  const passes = ![...element.cells].slice(1, 8).some(({ textContent }) => textContent?.includes("/"));
  return { element, names: `${documented} torch.${cell?.textContent}`.toLowerCase(), passes };
}

/** A name as code has it: by the alias that `torch.nn.functional` goes by, as a method, in place, with a call's bracket. */
function written(text: string): string {
  return text
    .trim()
    .toLowerCase()
    .replace(/\(.*$/, "")
    .replace(/^f\./, "nn.functional.")
    .replace(/^(torch\.)?tensor\.(?=.)/, "")
    .replace(/(?<=\w)(?<!_)_$/, "");
}

function show(): void {
  const wanted = written(name.value);
  const searching = wanted !== "" || failing.checked;
  let shown = 0;
  for (const { element, rows } of sections) {
    let here = 0;
    for (const row of rows) {
      row.element.hidden = !row.names.includes(wanted) || (failing.checked && row.passes);
      here += row.element.hidden ? 0 : 1;
    }
    element.hidden = searching && !here;
    shown += here;
  }
  count.textContent = `${shown} of ${all}`;
}

name.addEventListener("input", show);
failing.addEventListener("change", show);
show();

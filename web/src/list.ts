/** The lists beside the editor: the reader's scripts, and the demos. */
import { demos, wordsOf } from "./demos";
import type { Document } from "./documents";
import { addressOf } from "./workspace";

interface Entry {
  address: string;
  words: string;
  detail: string;
  current: boolean;
  demo?: string;
}

export function listDocuments(list: HTMLElement, documents: Document[], open: string): void {
  const entries = documents.map(({ id, name }) => ({
    address: addressOf(id),
    words: name,
    detail: id.startsWith("demo-") ? "edited demo" : id.startsWith("link-") ? "from a link" : "",
    current: id === open,
  }));
  fill(list, entries);
}

export function listDemos(list: HTMLElement, open: string): void {
  const entries = demos.map((demo) => {
    const { name } = demo;
    const { words, detail } = wordsOf(demo);
    return { address: `#demo=${name}`, words, detail, current: open === `demo-${name}`, demo: name };
  });
  fill(list, entries);
}

/** The entries that are there already stay: one of them may have the focus. */
function fill(list: HTMLElement, entries: Entry[]): void {
  const before = new Map([...list.children].map((item) => [(item.firstChild as HTMLAnchorElement).hash, item]));
  const items = entries.map((entry) => {
    const item = before.get(entry.address) ?? listItem(entry);
    const link = item.firstChild as HTMLAnchorElement;
    if (link.firstChild?.textContent !== entry.words) link.firstChild?.replaceWith(entry.words);
    link.ariaCurrent = entry.current ? "page" : null;
    return item;
  });
  if (items.length !== list.children.length || items.some((item, index) => item !== list.children[index]))
    list.replaceChildren(...items);
}

function listItem({ address, words, detail, demo }: Entry): HTMLElement {
  const link = document.createElement("a");
  link.href = address;
  if (demo) link.dataset.demo = demo;
  link.append(words);
  if (detail) {
    const small = document.createElement("small");
    small.textContent = detail;
    link.append(small);
  }
  const item = document.createElement("li");
  item.append(link);
  return item;
}

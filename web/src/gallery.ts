/** The gallery: every demo as a card with what it shows. Its pictures are fetched when it is opened first. */
import { type Demo, demos, wordsOf } from "./demos";
import "./gallery.css";

/** Made by running the demos: `make thumbnails`. As files of their own, so that a visit without the gallery has none of them. */
const thumbnails = import.meta.glob<string>("../demos/thumbnails/*.webp", {
  query: "?url&no-inline",
  import: "default",
  eager: true,
});

/** Demos that are pages of their own. */
const pages = [
  {
    name: "draw",
    words: "A classifier that keeps learning",
    detail: "draw digits, and teach it: a page with no Python",
  },
  { name: "write", words: "A small GPT that writes", detail: "and learns from text of yours: a page with no Python" },
  { name: "chat", words: "Chat with a model of your own", detail: "a GGUF file, in a page of its own" },
];

/** `open`: which script is open, by its id. */
export function gallery(button: HTMLElement, dialog: HTMLDialogElement, open: () => string): void {
  const list = dialog.querySelector("ul") as HTMLElement;
  button.addEventListener("click", () => {
    if (!list.childElementCount) list.append(...demos.map(card), ...pages.map(pageCard));
    for (const link of list.querySelectorAll("a"))
      link.ariaCurrent = open() === `demo-${link.dataset.demo}` ? "page" : null;
    dialog.showModal();
  });
  dialog.addEventListener("click", ({ target }) => {
    // on a card, which leads to its demo, or beside the dialog
    if (target === dialog || (target as Element).closest("a")) dialog.close();
  });
}

function card(demo: Demo): HTMLElement {
  const item = cardOf(`#demo=${demo.name}`, demo.name, wordsOf(demo));
  (item.firstElementChild as HTMLElement).dataset.demo = demo.name;
  return item;
}

function pageCard({ name, ...words }: (typeof pages)[number]): HTMLElement {
  return cardOf(`./${name}.html`, name, words);
}

function cardOf(href: string, name: string, { words, detail }: { words: string; detail: string }): HTMLElement {
  const link = document.createElement("a");
  link.href = href;
  const address = thumbnails[`../demos/thumbnails/${name}.webp`];
  if (address) link.append(picture(address));
  const title = document.createElement("strong");
  title.textContent = words;
  const small = document.createElement("small");
  small.textContent = detail;
  link.append(title, small);
  const item = document.createElement("li");
  item.append(link);
  return item;
}

/** It adds nothing to the words for those who cannot see it. */
function picture(address: string): HTMLElement {
  const image = document.createElement("img");
  image.loading = "lazy";
  image.alt = "";
  image.width = 240;
  image.height = 150;
  image.src = address;
  return image;
}

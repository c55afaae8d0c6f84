/** Markup from a script, without what could run or lead away from the page. Loaded when there is some. */
import DOMPurify from "dompurify";
import { marked } from "marked";
import style from "./markup.css?raw";

/** What HTML looks like here, where it says nothing of that itself. */
export const sheet = new CSSStyleSheet();
sheet.replaceSync(style);

/** What would run, or ask for something as though it were the page. */
const SCRIPTS = new Set(["SCRIPT", "IFRAME", "OBJECT", "EMBED"]);
const FORMS = ["form", "input", "button", "select", "option", "textarea", "dialog"];

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  // A link opens beside the page: what runs and what was written here is not left.
  if (node.nodeName === "A" && node.hasAttribute("href")) {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer");
  }
  if (node.nodeName === "IMG" && !node.hasAttribute("alt")) node.setAttribute("alt", "Image");
});

export function html(text: string): DocumentFragment {
  const clean = DOMPurify.sanitize(text, { RETURN_DOM_FRAGMENT: true, FORBID_TAGS: FORMS, FORCE_BODY: true });
  if (DOMPurify.removed.some((each) => "element" in each && SCRIPTS.has(each.element.nodeName)))
    clean.append(
      note("This HTML holds scripts or frames, which output of a script may not have here: they were left out."),
    );
  return clean;
}

export function markdown(text: string): DocumentFragment {
  return html(marked.parse(text, { async: false }));
}

function note(words: string): HTMLElement {
  const element = document.createElement("p");
  element.className = "note";
  element.textContent = words;
  return element;
}

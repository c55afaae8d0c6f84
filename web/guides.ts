/**
 * The documentation: docs/*.md, and the docstrings that reference.py reads, as pages of the site. docs/README.md is its
 * first page, and its lists are what leads from page to page.
 *
 * A block of Python is an example: it can be tried in place. Words after `python` say more of it: `continued` goes on from
 * the example before, `raises` ends in an error, `elsewhere` belongs into another program, `pytorch` into
 * PyTorch's. A block of `text` right below is what it prints. tests/test_guides.py reads them the same way, and runs them.
 */
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { deflateRawSync } from "node:zlib";
import { classHighlighter, highlightCode } from "@lezer/highlight";
import { parser } from "@lezer/python";
import { Marked, type Token, type Tokens } from "marked";

/** What search finds: a page, one of its headings, or a name of the reference. */
export interface Entry {
  page: string;
  id: string;
  title: string;
  /** The title of its page. */
  of: string;
}

interface Heading {
  id: string;
  level: number;
  text: string;
}

interface Page {
  /** The file's name in the site, without `.html`. */
  name: string;
  title: string;
  description: string;
  html: string;
  headings: Heading[];
}

interface Group {
  title: string;
  links: { href: string; title: string }[];
}

const root = join(import.meta.dirname, "..");
const folder = join(root, "docs");
/** Where a link between files of the repository leads in the site, which has pages of these too. */
const ELSEWHERE: Record<string, string> = {
  "../COMPATIBILITY.md": "../compatibility.html",
  "../BENCHMARKS.md": "../benchmarks.html",
  "../web/draw.html": "../draw.html",
  "../web/write.html": "../write.html",
  "../web/chat.html": "../chat.html",
  "README.md": "index.html",
};

/** All pages, by their paths in the site, and the index for search. `template` is the page with places to be filled. */
export function guides(template: string): Map<string, string> {
  const names = readdirSync(folder).filter((name) => name.endsWith(".md"));
  const reference = page("reference", referenceText(), new Set());
  const known = new Set(reference.headings.filter(({ level }) => level === 3).map(({ id }) => id));
  const pages = names.map((name) => {
    const text = readFileSync(join(folder, name), "utf8");
    return page(name === "README.md" ? "index" : name.slice(0, -3), text, known);
  });
  const groups = groupsOf(readFileSync(join(folder, "README.md"), "utf8"));
  const order = groups.flatMap(({ links }) => links.map(({ href }) => href));
  check(pages, order);
  const all = [...pages, reference];
  const made = new Map(all.map((each) => [`docs/${each.name}.html`, fill(template, each, groups, order)]));
  return made.set("docs/search.json", JSON.stringify(all.flatMap(entries)));
}

/** The Python that has the project's requirements. */
export function python(root: string): string {
  const own = join(root, ".venv", "bin", "python");
  return process.env.TABTORCH_PYTHON ?? (existsSync(own) ? own : "python3");
}

function referenceText(): string {
  return execFileSync(python(root), [join(import.meta.dirname, "reference.py")], { encoding: "utf8" });
}

/** Every guide is in the lists of docs/README.md, and nothing else. */
function check(pages: Page[], order: string[]): void {
  const listed = order.filter((href) => !href.startsWith("../")).sort();
  const there = [...pages.map(({ name }) => `${name}.html`), "reference.html"].sort();
  const wrong = [...listed.filter((each) => !there.includes(each)), ...there.filter((each) => !listed.includes(each))];
  if (wrong.length) throw new Error(`docs/README.md and docs/ differ in: ${wrong.join(", ")}`);
}

/** The lists of docs/README.md, each below its heading, around what the site has beside them. */
function groupsOf(text: string): Group[] {
  const groups: Group[] = [{ title: "", links: [{ href: "index.html", title: "Overview" }] }];
  for (const line of text.split("\n")) {
    const heading = /^## (.*)/.exec(line)?.[1];
    const [, title, href] = /^- \[(.*?)\]\((.*?)\)/.exec(line) ?? [];
    if (heading) groups.push({ title: heading, links: [] });
    else if (title && href) groups.at(-1)?.links.push({ href: address(href), title });
  }
  groups.at(-1)?.links.unshift({ href: "reference.html", title: "What is tabtorch's own" }); // made by the build
  return groups;
}

/** `devices.md#reading` in the site. */
function address(href: string): string {
  const [, path = "", part = ""] = /^([^#]*)(.*)$/.exec(href) ?? [];
  if (/^[a-z]+:/.test(path)) return href;
  return (ELSEWHERE[path] ?? path.replace(/\.md$/, ".html")) + part;
}

/** A page made of its text. Names in `known` that stand in code lead to the reference. */
function page(name: string, text: string, known: Set<string>): Page {
  const headings: Heading[] = [];
  const used = new Map<string, number>();
  const examples = new Examples();
  let within = 0; // headings and links, in which there can be no other link
  const inner = (render: () => string) => {
    within += 1;
    const html = render();
    within -= 1;
    return html;
  };
  const marked = new Marked({
    renderer: {
      heading({ tokens, depth }) {
        const html = inner(() => this.parser.parseInline(tokens));
        const words = plain(html);
        const id = name === "reference" && depth === 3 ? words.replaceAll(" ", "-") : slug(words, used);
        headings.push({ id, level: depth, text: words });
        const link = `<a class="anchor" href="#${id}" aria-label="Link to ${words}">#</a>`;
        return depth === 1 ? `<h1>${html}</h1>\n` : `<h${depth} id="${id}">${html}${link}</h${depth}>\n`;
      },
      link({ href, tokens }) {
        return `<a href="${inHtml(address(href))}">${inner(() => this.parser.parseInline(tokens))}</a>`;
      },
      codespan({ text }) {
        const called = text.replace(/\(.*$/, "");
        const code = `<code>${inHtml(text)}</code>`;
        return known.has(called) && !within ? `<a href="reference.html#${called}">${code}</a>` : code;
      },
      code: (token) => examples.block(token),
    },
  });
  const tokens = marked.lexer(text);
  joinPrinted(tokens);
  const html = marked.parser(tokens).replaceAll("<table>", '<div class="table" tabindex="0"><table>');
  const first = tokens.find((token): token is Tokens.Paragraph => token.type === "paragraph");
  return {
    name,
    title: headings.find(({ level }) => level === 1)?.text ?? name,
    description: plain(marked.parseInline(first?.text ?? "", { async: false })),
    html: html.replaceAll("</table>", "</table></div>"),
    headings,
  };
}

/** A block of Python with what it prints. */
interface Code extends Tokens.Code {
  printed?: string;
}

/** Puts each block of `text` that is right below Python into that block's token. */
function joinPrinted(tokens: Token[]): void {
  const blocks = tokens.filter(({ type }) => type !== "space");
  for (const [index, token] of blocks.entries()) {
    const before = blocks[index - 1] as Code | undefined;
    if (token.type !== "code" || token.lang !== "text" || before?.type !== "code") continue;
    before.printed = token.text;
    tokens.splice(tokens.indexOf(token), 1);
  }
}

/** The blocks of code of a page. */
class Examples {
  #count = 0;
  #chain: string[] = []; // what the next example may go on from

  block({ lang = "", text, printed }: Code): string {
    const [language, ...about] = lang.split(/\s+/);
    const python = language === "python" || language === "signature";
    const code = `<pre class="${language}"${scrolls(text)}><code>${python ? coloured(text) : inHtml(text)}</code></pre>\n`;
    if (language !== "python" || about.includes("elsewhere")) return code;
    const continued = about.includes("continued");
    this.#chain = continued ? [...this.#chain, text] : [text];
    this.#count += 1;
    const shown = printed === undefined ? "" : printedHtml(printed, about.includes("raises"));
    return this.#example(code + shown, continued);
  }

  #example(html: string, continued: boolean): string {
    const name = `Example ${this.#count}`;
    const link = `../#code=${deflateRawSync(this.#chain.join("\n\n"), { level: 9 }).toString("base64url")}`;
    return `<div class="example" role="group" aria-label="${name}"${continued ? " data-continued" : ""}>
<div class="of-example"><a href="${link}" aria-label="${name}: open in the page">Open in the page</a>
<button type="button" hidden>Try it</button></div>
${html}</div>
`;
  }
}

/** Lines that are wider than a phone scroll, by keyboard too. */
function scrolls(text: string): string {
  return text.split("\n").some((line) => line.length > 36) ? ' tabindex="0"' : "";
}

function printedHtml(text: string, isError: boolean): string {
  const about = isError ? "printed error" : "printed";
  return `<pre class="${about}"${scrolls(text)}><span class="unseen">Prints: </span>${inHtml(text)}</pre>\n`;
}

/** Python with the classes that the style sheet has for the editor. */
function coloured(text: string): string {
  let html = "";
  const put = (code: string, classes: string) => {
    html += classes ? `<span class="${classes}">${inHtml(code)}</span>` : inHtml(code);
  };
  highlightCode(text, parser.parse(text), classHighlighter, put, () => {
    html += "\n";
  });
  return html;
}

/** As GitHub makes it, so that links within docs/ lead to the same places there. */
function slug(words: string, used: Map<string, number>): string {
  const id = words
    .toLowerCase()
    .replace(/[^\p{L}\p{N}_ -]/gu, "")
    .replaceAll(" ", "-");
  const before = used.get(id) ?? 0;
  used.set(id, before + 1);
  return before ? `${id}-${before}` : id;
}

function inHtml(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}

/** The words of HTML, as HTML has them. */
function plain(html: string): string {
  return html.replace(/<[^>]*>/g, "").replace(/\s+/g, " ");
}

function entries({ name, title, headings }: Page): Entry[] {
  return headings.map(({ id, level, text }) => ({
    page: `${name}.html`,
    id: level === 1 ? "" : id,
    title: decode(text),
    of: decode(title),
  }));
}

function decode(html: string): string {
  return html
    .replace(/&#39;/g, "'")
    .replace(/&quot;/g, '"')
    .replace(/&lt;/g, "<")
    .replace(/&gt;/g, ">")
    .replace(/&amp;/g, "&");
}

/** The template with a page in it. */
function fill(template: string, page: Page, groups: Group[], order: string[]): string {
  const here = `${page.name}.html`;
  const parts: Record<string, string> = {
    TITLE: page.name === "index" ? "tabtorch: documentation" : `${page.title} – tabtorch`,
    DESCRIPTION: page.description.replaceAll('"', "&quot;"),
    GUIDES: groups.map((group) => groupHtml(group, here)).join("\n"),
    CONTENT: page.html,
    CONTENTS: contents(page),
    AROUND: around(groups, order, here),
  };
  return template.replace(
    /\b(?:TITLE|DESCRIPTION)\b|<!-- (\w+) -->/g,
    (found, comment) => parts[comment ?? found] ?? found,
  );
}

function groupHtml({ title, links }: Group, here: string): string {
  const items = links.map(
    ({ href, title }) => `<li><a href="${href}"${href === here ? ' aria-current="page"' : ""}>${title}</a></li>`,
  );
  return `${title ? `<h2>${title}</h2>\n` : ""}<ul>\n${items.join("\n")}\n</ul>`;
}

/** What is on this page, where that is worth a list. */
function contents({ headings }: Page): string {
  const shown = headings.filter(({ level }) => level === 2);
  if (shown.length < 3) return "";
  const items = shown.map(({ id, text }) => `<li><a href="#${id}">${text}</a></li>`);
  return `<aside aria-label="On this page">\n<h2>On this page</h2>\n<ul>\n${items.join("\n")}\n</ul>\n</aside>`;
}

/** Links to the pages before and after. */
function around(groups: Group[], order: string[], here: string): string {
  const titles = new Map(groups.flatMap(({ links }) => links.map(({ href, title }) => [href, title])));
  const at = order.indexOf(here);
  const link = (href: string | undefined, rel: string, words: string) =>
    href === undefined ? "" : `<a rel="${rel}" href="${href}"><small>${words}</small> ${titles.get(href)}</a>`;
  return link(order[at - 1], "prev", "Before") + link(order[at + 1], "next", "Next");
}

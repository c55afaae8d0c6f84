/** The demos, read from web/demos as the site is built: the first line of a file's docstring is its title. */

export interface Demo {
  /** The file's name without `.py`, as in the address: `#demo=01-digits`. */
  name: string;
  title: string;
  source: string;
}

const files = import.meta.glob<string>("../demos/*.py", { query: "?raw", import: "default", eager: true });

export const demos: Demo[] = Object.entries(files)
  .map(([path, source]) => {
    const name = path.replace(/^.*\/(.*)\.py$/, "$1");
    return { name, source, title: /^"""(.*?)("""|\n)/.exec(source)?.[1] ?? name };
  })
  .sort((a, b) => a.name.localeCompare(b.name, "en"));

/** What a demo is called in lists, with its number, and the rest of its title. */
export function wordsOf({ name, title }: Demo): { words: string; detail: string } {
  const [subject = "", detail = ""] = title.split(/: (.*)/s);
  return { words: `${Number.parseInt(name, 10)}. ${subject}`, detail };
}

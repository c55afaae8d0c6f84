/** What a page may load and run. It is a part of the page itself, since static hosts send no headers. */

/** Each directive, with what it allows and why. */
const PAGE: Record<string, string> = {
  "default-src": "'self'", // everything is the site's own, but for what follows
  "script-src": "'self'", // no script in the page's text, and none from elsewhere; Python's thread has a policy of its own
  "style-src": "'self' 'unsafe-inline'", // the editor writes a style sheet, and coloured output has colours of its own
  "img-src": "'self' data: blob:", // what scripts draw
  "media-src": "'self' data: blob:", // what scripts play
  "font-src": "'self' data:", // vector graphics that scripts draw carry their fonts
  "connect-src": "'self' data: blob:", // the page asks nobody else: packages and data are fetched by Python's thread
  "object-src": "'none'",
  "base-uri": "'none'", // nothing that a script shows may move the page's addresses
  "form-action": "'none'", // nor send a form
};

/** The bare page behind `tabtorch run`, where Python may run in the page itself, and its scripts are the user's own. */
const BARE: Record<string, string> = {
  ...PAGE,
  // Pyodide is WebAssembly; the cpu device makes functions of text, as does JavaScript that Python runs.
  "script-src": "'self' 'wasm-unsafe-eval' 'unsafe-eval'",
  "connect-src": "* data: blob:", // Pyodide's distribution, PyPI, and any file that a script reads by its address
};

/** The pages whose models run without Python. */
const MODELS: Record<string, string> = {
  ...PAGE,
  // Where there is no WebGPU, the cpu device makes functions of the text of the site's own plans, or of a file that the reader opens.
  "script-src": "'self' 'unsafe-eval'",
};

const OTHERS: Record<string, Record<string, string>> = { "run.html": BARE, "draw.html": MODELS, "write.html": MODELS };

/** The policy of the page of this file name. */
export function policy(page: string): string {
  const directives = OTHERS[page] ?? PAGE;
  return Object.entries(directives)
    .map(([name, value]) => `${name} ${value}`)
    .join("; ");
}

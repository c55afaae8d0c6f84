/** Packages come from far: what is fetched is said while it comes. */

const PAUSE_MS = 100;

/** From now on `say` gets a line of each wheel that is fetched from outside of `site`, written anew as its bytes come. */
export function watchWheels(site: string, say: (text: string) => void): void {
  const original = globalThis.fetch;
  globalThis.fetch = async (input, init) => {
    const address = input instanceof Request ? input.url : String(input);
    const name = /\/([^/]+)\.whl($|[?#])/.exec(address)?.[1];
    if (!name || address.startsWith(site)) return original(input, init);
    const words = `${decodeURIComponent(name)} from ${new URL(address).host}`;
    say(`Fetching ${words}…`);
    try {
      const response = await original(input, init);
      if (response.ok && response.body) return told(response, words, say);
      say(`\rFetching ${words}: ${response.status} ${response.statusText}\n`);
      return response;
    } catch (error) {
      say(`\rFetching ${words}: it could not be reached\n`);
      throw error;
    }
  };
}

function told(response: Response, words: string, say: (text: string) => void): Response {
  const total = Number(response.headers.get("content-length") ?? 0);
  let loaded = 0;
  let said = performance.now();
  const counter = new TransformStream<Uint8Array, Uint8Array>({
    transform(chunk, controller) {
      controller.enqueue(chunk);
      loaded += chunk.length;
      if (performance.now() - said < PAUSE_MS) return;
      said = performance.now();
      say(`\rFetching ${words}: ${size(loaded)}${total > loaded ? ` of ${size(total)}` : ""}`);
    },
    flush: () => say(`\rFetched ${words} (${size(loaded)})\n`),
  });
  const { status, statusText, headers } = response;
  return new Response(response.body?.pipeThrough(counter), { status, statusText, headers });
}

function size(bytes: number): string {
  return bytes < 1e6 ? `${Math.ceil(bytes / 1e3)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

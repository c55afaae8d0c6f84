/**
 * What Python has compiled tabtorch's modules to, kept from one visit to the next: compiling them is most of the time that a first
 * program takes to begin. Of one build and one Python; what is older goes. Where nothing can be kept, nothing is.
 */

const CACHE = "tabtorch bytecode";

export class Bytecode {
  readonly #address: string;

  /** version: of all that it depends on */
  constructor(base: string, version: string) {
    this.#address = `${base}bytecode?${version}`;
  }

  async load(): Promise<Uint8Array | undefined> {
    try {
      const found = await (await caches.open(CACHE)).match(this.#address);
      return found && new Uint8Array(await found.arrayBuffer());
    } catch {
      return undefined;
    }
  }

  async save(bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    try {
      const cache = await caches.open(CACHE);
      const others = (await cache.keys()).filter(({ url }) => url !== this.#address);
      await Promise.all(others.map((request) => cache.delete(request)));
      await cache.put(this.#address, new Response(bytes));
    } catch {
      // no room, or no leave
    }
  }
}

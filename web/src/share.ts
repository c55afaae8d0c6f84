/** Links that hold a script in the part after `#`, which no server sees: deflate, then base64url. */

const PREFIX = "#code=";
/** Bytes of a script: a link is somebody else's, and may claim more than a page can hold. */
const LARGEST = 1 << 20;

/** Characters of an address that all common programs pass on. */
export const LONG_LINK = 8000;

/** Throws if the script is over 1 MiB. */
export async function encode(source: string): Promise<string> {
  const plain = new TextEncoder().encode(source);
  if (plain.length > LARGEST) throw new Error("the script is too long for a link");
  const bytes = await pipe(plain, new CompressionStream("deflate-raw"));
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** The script that `encode` was given. Throws if the text is not one of its results, or the script is over 1 MiB. */
export async function decode(text: string): Promise<string> {
  const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  const bytes = Uint8Array.from(binary, (char) => char.charCodeAt(0));
  return new TextDecoder("utf-8", { fatal: true }).decode(await pipe(bytes, new DecompressionStream("deflate-raw")));
}

/** The address of the site's page, or of the one for frames, with the script in it. */
export async function shareLink(source: string, page: "" | "embed.html" = ""): Promise<string> {
  return `${new URL(`./${page}`, document.baseURI).href}${PREFIX}${await encode(source)}`;
}

/** The script in an address's `#` part, or undefined where there is none. */
export async function sharedCode(hash: string): Promise<string | undefined> {
  return hash.startsWith(PREFIX) ? decode(hash.slice(PREFIX.length)) : undefined;
}

/** The same for the same script, whenever and wherever its link is opened: FNV-1a, of 64 bits. */
export function linkId(code: string): string {
  let hash = 0xcbf29ce484222325n;
  for (const byte of new TextEncoder().encode(code)) hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n);
  return `link-${hash.toString(36)}`;
}

/** Whether the text reached the clipboard: some browsers and settings refuse. */
export async function copy(text: string, field: HTMLInputElement | HTMLTextAreaElement): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    field.select();
    return document.execCommand("copy");
  }
}

async function pipe(bytes: Uint8Array, through: CompressionStream | DecompressionStream): Promise<Uint8Array> {
  const reader = new Blob([bytes as Uint8Array<ArrayBuffer>]).stream().pipeThrough(through).getReader();
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return new Uint8Array(await new Blob(parts).arrayBuffer());
    parts.push(value as Uint8Array<ArrayBuffer>);
    size += value.byteLength;
    if (size > LARGEST) {
      void reader.cancel().catch(() => {});
      throw new Error("the script is too long for a link");
    }
  }
}

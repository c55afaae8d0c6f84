/** Files of the site as they travel: compressed when it is built, since the best takes half a minute for Pyodide. */
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { brotliCompress, constants } from "node:zlib";

const compress = promisify(brotliCompress);
/** What is not compressed by itself. */
const TEXT = /\.(html|css|m?js|json|svg|txt|wasm|webmanifest)$/;
const SMALL = 1000;

/** For each file that gains by it, the file that stands beside it: servers that are told so send that one instead. */
export async function brotli(files: Map<string, Buffer>, root: string): Promise<Map<string, Buffer>> {
  const kept = join(root, "dist", "brotli");
  mkdirSync(kept, { recursive: true });
  const large = [...files].filter(([path, bytes]) => TEXT.test(path) && bytes.length > SMALL);
  return new Map(
    await Promise.all(large.map(async ([path, bytes]) => [`${path}.br`, await once(bytes, kept)] as const)),
  );
}

/** What was compressed for a build before need not be again. */
async function once(bytes: Buffer, kept: string): Promise<Buffer> {
  const path = join(kept, createHash("sha256").update(bytes).digest("hex"));
  if (existsSync(path)) return readFileSync(path);
  const { BROTLI_PARAM_QUALITY, BROTLI_PARAM_LGWIN, BROTLI_PARAM_SIZE_HINT } = constants;
  const packed = await compress(bytes, {
    params: { [BROTLI_PARAM_QUALITY]: 11, [BROTLI_PARAM_LGWIN]: 24, [BROTLI_PARAM_SIZE_HINT]: bytes.length },
  });
  writeFileSync(`${path}.part`, packed);
  renameSync(`${path}.part`, path);
  return packed;
}

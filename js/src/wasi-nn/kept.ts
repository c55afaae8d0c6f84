/** Where plans that were compiled are kept: the origin's own file system in a page, a folder in Node. */

import type { Bytes } from "./models";

export interface Kept {
  /** null where there is none of that name */
  read(name: string): Promise<Bytes | null>;
  write(name: string, bytes: Bytes): Promise<void>;
}

const FOLDER = "tabtorch-wasi-nn";

type Builtin = <T>(name: string) => T;
const builtin = (globalThis.process as { getBuiltinModule?: Builtin } | undefined)?.getBuiltinModule;

/** folder: in Node, where; default: the user's cache. What cannot be kept is made again: no error of it is one of the model's. */
export function kept(folder?: string): Kept {
  return builtin ? inFolder(builtin, folder) : inOrigin();
}

function inFolder(builtin: Builtin, folder?: string): Kept {
  const fs = builtin<typeof import("node:fs/promises")>("node:fs/promises");
  const os = builtin<typeof import("node:os")>("node:os");
  const { join } = builtin<typeof import("node:path")>("node:path");
  const at = folder ?? join(process.env.XDG_CACHE_HOME ?? join(os.homedir(), ".cache"), FOLDER);
  return {
    async read(name) {
      const found = await fs.readFile(join(at, name)).catch(() => null);
      return found && new Uint8Array(found);
    },
    async write(name, bytes) {
      try {
        await fs.mkdir(at, { recursive: true });
        // Whole or not at all: another process may read it now
        const part = join(at, `${name}.${process.pid}-${Math.random().toString(36).slice(2)}`);
        await fs.writeFile(part, bytes);
        await fs.rename(part, join(at, name));
      } catch {
        // a folder that cannot be written
      }
    },
  };
}

function inOrigin(): Kept {
  const folder = async () => (await navigator.storage.getDirectory()).getDirectoryHandle(FOLDER, { create: true });
  return {
    async read(name) {
      try {
        const file = await (await (await folder()).getFileHandle(name)).getFile();
        return file.size > 0 ? new Uint8Array(await file.arrayBuffer()) : null;
      } catch {
        return null;
      }
    },
    async write(name, bytes) {
      try {
        const handle = await (await folder()).getFileHandle(name, { create: true });
        const writable = await handle.createWritable();
        await writable.write(bytes);
        await writable.close(); // until then the file is what it was
      } catch {
        // no such file system (private windows, older browsers), or no room
      }
    },
  };
}

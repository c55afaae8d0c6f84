/** What this package throws: an `Error` with a message for whoever wrote the page. */

import type { ErrorRecord } from "../errors";

/** A file that is no plan file, or one that is damaged. */
export class FileError extends Error {
  override name = "FileError";
}

/** Something that the device said: `kind` is "out-of-memory", "lost", "compile", … */
export class DeviceError extends Error {
  override name = "DeviceError";
  constructor(readonly record: ErrorRecord) {
    super(record.operation ? `${record.message} (in ${record.operation.slice(0, 200)})` : record.message);
  }
  get kind(): string {
    return this.record.kind;
  }
}

/** For what a file says: throws unless it holds. */
export function check(holds: boolean, what: string): asserts holds {
  if (!holds) throw new FileError(`this plan file is damaged: ${what}`);
}

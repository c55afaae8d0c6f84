/** Errors that come back to Python, each naming the operation that it belongs to. */

export type ErrorKind = "validation" | "out-of-memory" | "internal" | "lost" | "gone" | "compile" | "early";

export interface ErrorRecord {
  kind: ErrorKind;
  operation: string;
  message: string;
}

/** Thrown inside the runtime; `Runtime.execute` turns it into a record. */
export class CommandError extends Error {
  constructor(readonly record: ErrorRecord) {
    super(record.message);
  }
}

export function fail(kind: ErrorKind, operation: string, message: string): never {
  throw new CommandError({ kind, operation, message });
}

export function recordOf(error: unknown, operation: string): ErrorRecord {
  // By its form: the host's bundle has a class of its own.
  if (error instanceof Error && "record" in error) return (error as CommandError).record;
  const text = error instanceof Error ? error.message : String(error);
  return { kind: "internal", operation, message: text };
}

const LIMIT = 64;

export class ErrorLog {
  private records: ErrorRecord[] = [];
  /** the last that says of no buffer that it has no value (as lost devices and memory do), and the last of these that was taken */
  failure: ErrorRecord | null = null;
  told: ErrorRecord | null = null;

  get count(): number {
    return this.records.length;
  }

  add(record: ErrorRecord): void {
    if (["validation", "internal", "compile"].includes(record.kind)) this.failure = record;
    // One cause often shows up many times (each use of a failed kernel): say it once.
    const known = this.records.some(
      (r) =>
        r.kind === record.kind &&
        r.message === record.message &&
        (r.operation === record.operation || record.kind === "lost"),
    );
    if (!known && this.records.length < LIMIT) this.records.push(record);
  }

  take(): ErrorRecord[] {
    const taken = this.records;
    this.told = this.failure;
    this.records = [];
    return taken;
  }
}

/**
 * Error scopes. One pair (validation, out of memory) spans the GPU commands of one `execute` or read, from the first that may
 * fail; what it catches comes back later, naming the operations that were in it. Where nothing is made and all ran before
 * there is none: a pair costs as much as a submit does, twice. (What fails all the same the device tells as well, without names.)
 */

import { type ErrorKind, type ErrorLog, recordOf } from "../errors";
import { firefox } from "./nudge";

/** What may explain an error of a scope: plans whose kernels failed, buffers that were not had. */
export interface Suspect {
  readonly failed: boolean;
}

interface Record {
  /** names of what ran, most recent last */
  operations: string[];
  suspects: Suspect[];
}

const NAMES = 6;

export class ErrorScopes {
  /** the last that was noted */
  last = "";
  private open: Record | null = null;
  private readonly pending = new Set<Promise<void>>();
  /** Firefox (153) keeps its pace by the answers: in one of ten runs of a demo that draws its GPU process crashed without them. */
  private readonly spare = !firefox();

  constructor(
    private readonly device: GPUDevice,
    private readonly errors: ErrorLog,
  ) {}

  /** Whether all that may have failed is known not to have. */
  get quiet(): boolean {
    return this.spare && this.open === null && this.pending.size === 0;
  }

  enter(): void {
    if (this.open !== null) return;
    this.open = { operations: [], suspects: [] };
    this.device.pushErrorScope("out-of-memory");
    this.device.pushErrorScope("validation");
  }

  /** Notes that `operation` has commands in the open scope. */
  note(operation: string): void {
    this.last = operation;
    this.open?.operations.push(operation);
  }

  suspect(suspect: Suspect): void {
    this.open?.suspects.push(suspect);
  }

  leave(): void {
    const record = this.open;
    if (record === null) return;
    this.open = null;
    this.await(this.device.popErrorScope(), (error) => this.report("validation", error.message, record));
    this.await(this.device.popErrorScope(), (error) => this.report("out-of-memory", error.message, record));
  }

  /** A scope of its own around `make`, for something whose failure has one clear name. */
  around<T>(
    filter: GPUErrorFilter,
    make: () => T,
    failed: (error: GPUError) => void | Promise<void>,
    fine?: () => void,
  ): T {
    this.device.pushErrorScope(filter);
    const made = make();
    this.await(this.device.popErrorScope(), failed, fine);
    return made;
  }

  /** Resolves when every scope closed so far has answered. */
  async settled(): Promise<void> {
    while (this.pending.size > 0) await Promise.all(this.pending);
  }

  private await(
    pop: Promise<GPUError | null>,
    failed: (error: GPUError) => void | Promise<void>,
    fine?: () => void,
  ): void {
    const done = pop.then(
      (error) => (error === null ? fine?.() : failed(error)),
      () => {}, // the device is lost, which is reported on its own
    );
    const entry: Promise<void> = done
      .catch((error) => this.errors.add(recordOf(error, "error scope")))
      .then(() => {
        this.pending.delete(entry);
      });
    this.pending.add(entry);
  }

  private report(kind: ErrorKind, message: string, record: Record): void {
    // A failed kernel or buffer is reported by itself; what it breaks downstream adds nothing.
    if (record.suspects.some((s) => s.failed)) return;
    const names = [...new Set(record.operations)];
    const inMessage = names.filter((name) => message.includes(`"${name}"`));
    const blamed = inMessage.length > 0 ? inMessage : names;
    const more = blamed.length > NAMES ? `, and ${blamed.length - NAMES} more` : "";
    this.errors.add({ kind, operation: `${blamed.slice(-NAMES).join(", ")}${more}`, message });
  }
}

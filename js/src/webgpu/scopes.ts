/**
 * Error scopes. One pair (validation, out of memory) spans the GPU commands of one `execute` or read, from the first that may
 * fail; what it catches comes back later, naming the operations that were in it. Where nothing is made and all ran before
 * there is none: a pair costs as much as a submit does, twice. (What fails all the same comes as an uncaptured error, see `blamed`.)
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
  /** names of what ran outside of a scope, most recent last */
  private readonly outside: string[] = [];
  /** Without the answers Firefox's (153) GPU process crashed in 2 of 15 runs of the reaction-diffusion demo. */
  private readonly always = firefox();

  constructor(
    private readonly device: GPUDevice,
    private readonly errors: ErrorLog,
  ) {}

  /** Whether all that may have failed is known not to have. */
  get quiet(): boolean {
    return !this.always && this.open === null && this.pending.size === 0;
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
    if (this.open !== null) this.open.operations.push(operation);
    else if (this.outside.push(operation) > NAMES) this.outside.shift();
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
    this.errors.add({ kind, operation: this.blamed(message, record.operations), message });
  }

  /** The operations that an error may be of: those of a scope, or, of an error that no scope caught, what ran outside last. */
  blamed(message: string, operations = this.outside): string {
    const names = [...new Set(operations)];
    const inMessage = names.filter((name) => message.includes(`"${name}"`));
    const blamed = inMessage.length > 0 ? inMessage : names;
    const more = blamed.length > NAMES ? `, and ${blamed.length - NAMES} more` : "";
    return `${blamed.slice(-NAMES).join(", ")}${more}`;
  }
}

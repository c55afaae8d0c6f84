/** Failures that tests ask for: an allocation that is refused, a device that is lost in the middle of something. */

import { CommandError } from "./errors";

/** How many go well before one fails: allocations (those from the pool, too), commands of a block, reads. */
export interface FaultSpec {
  allocations?: number;
  commands?: number;
  reads?: number;
}

export class Faults {
  private readonly counts = { allocations: 0, commands: 0, reads: 0 };
  private after: FaultSpec = {};

  /** Begins to count anew, and fails as `spec` says, once each. Returns the counts so far. */
  arm(spec: FaultSpec): Required<FaultSpec> {
    const before = { ...this.counts };
    this.counts.allocations = this.counts.commands = this.counts.reads = 0;
    this.after = spec;
    return before;
  }

  /** Throws if this allocation is the one that fails. */
  allocation(nbytes: number, operation: string): void {
    if (this.counts.allocations++ !== this.after.allocations) return;
    const message = `tried to allocate ${nbytes} bytes: a failure that was asked for`;
    throw new CommandError({ kind: "out-of-memory", operation, message });
  }

  /** Whether the device is to be lost at this command. */
  command(): boolean {
    return this.counts.commands++ === this.after.commands;
  }

  /** Whether the device is to be lost while this read waits. */
  read(): boolean {
    return this.counts.reads++ === this.after.reads;
  }
}

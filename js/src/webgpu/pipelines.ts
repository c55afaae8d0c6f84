/**
 * Pipelines, cached by source and constants. A kernel that does not compile says so with its name.
 *
 * Compilation is tiered: a kernel that has a baseline text is first compiled from that, and from its full text once a plan runs
 * it again, while it goes on running.
 */

import type { ErrorLog } from "../errors";
import type { Access, KernelSpec } from "../protocol";
import type { Stats } from "../stats";
import type { BindGroups, Layout } from "./bindgroups";
import type { ErrorScopes } from "./scopes";

/** Parameter blocks are bound with one of two fixed sizes, so that few layouts serve all kernels. */
export const SMALL_PARAMS = 4096;

/** A pipeline, and later the one that is compiled from the full text. */
export interface Pipeline {
  now: GPUComputePipeline;
}

/** What one source and its constants compile to. Shared by the kernels that have both in common. */
class Program {
  failure: string | null = null;
  readonly pipelines = new Map<Layout, Pipeline>();
  /** those that are being made beside others */
  readonly making = new Map<Layout, Promise<void>>();
  /** how long after the first of them was asked for the browser said that it was ready */
  ms: number | null = null;
  constructor(
    public module: GPUShaderModule,
    /** whether that is of the baseline text, and nobody has asked for the other yet */
    public baseline: boolean,
  ) {}
}

export class Kernel {
  readonly access: Access[];

  constructor(
    readonly spec: KernelSpec,
    readonly program: Program,
  ) {
    this.access = spec.bindings.map((b) => b.access);
  }

  get failed(): boolean {
    return this.program.failure !== null;
  }
}

export class Pipelines {
  /** how many programs have failed so far */
  failures = 0;
  /** how many pipelines were asked for, and of how many the browser has said that they are ready, or have failed */
  asked = 0;
  ready = 0;
  /** how many programs are still to be compiled from their full text */
  optimizing = 0;
  private optimized: Promise<void> = Promise.resolve();
  private readonly programs = new Map<string, Program>();

  constructor(
    private readonly device: GPUDevice,
    private readonly groups: BindGroups,
    private readonly scopes: ErrorScopes,
    private readonly errors: ErrorLog,
    private readonly stats: Stats,
    private readonly lost: () => boolean,
  ) {}

  kernel(spec: KernelSpec): Kernel {
    const access = spec.bindings.map((b) => b.access).join(",");
    const key = `${access}\n${JSON.stringify(spec.constants ?? {})}\n${spec.source}`;
    let program = this.programs.get(key);
    if (program === undefined) {
      program = this.compile(spec);
      this.programs.set(key, program);
    }
    return new Kernel(spec, program);
  }

  layout(kernel: Kernel, words: number): Layout {
    const limit = this.device.limits.maxUniformBufferBindingSize;
    if (words * 4 > limit) throw new Error(`${kernel.spec.name}: ${words} parameter words, at most ${limit / 4}`);
    return this.groups.layout(kernel.access, words * 4 <= SMALL_PARAMS ? SMALL_PARAMS : Math.min(limit, 65536));
  }

  pipeline(kernel: Kernel, layout: Layout): Pipeline {
    const { program, spec } = kernel;
    const known = program.pipelines.get(layout);
    if (known !== undefined) return known;
    this.stats.kernels++;
    this.asked++;
    const asked = performance.now();
    const now = this.scopes.around(
      "validation",
      () => this.device.createComputePipeline(described(kernel, layout, program.module)),
      (error) => {
        this.ready++;
        this.fail(program, spec.name, error.message);
      },
      () => this.made(program, asked),
    );
    const made = { now };
    program.pipelines.set(layout, made);
    return made;
  }

  /**
   * Has it made beside others: `pipeline` finds it then, and makes it at once before that. What fails is noted, as there. Null:
   * nothing is to be waited for.
   */
  prepare(kernel: Kernel, layout: Layout): Promise<void> | null {
    const { program } = kernel;
    if (program.pipelines.has(layout) || program.failure !== null) return null;
    let making = program.making.get(layout);
    if (making === undefined) {
      making = this.make(kernel, layout).then(() => {
        program.making.delete(layout);
      });
      program.making.set(layout, making);
    }
    return making;
  }

  private async make(kernel: Kernel, layout: Layout): Promise<void> {
    const { program } = kernel;
    this.asked++;
    const asked = performance.now();
    try {
      const now = await this.device.createComputePipelineAsync(described(kernel, layout, program.module));
      if (program.pipelines.has(layout)) return;
      program.pipelines.set(layout, { now });
      this.stats.kernels++;
    } catch (error) {
      await this.failed(kernel, error as Error);
    } finally {
      this.made(program, asked);
    }
  }

  /** Has a kernel that runs again compiled from its full text, if that has not been done: one after the other, beside all else. */
  optimize(kernel: Kernel): void {
    const { program, spec } = kernel;
    if (!program.baseline || program.failure !== null) return;
    program.baseline = false;
    this.optimizing++;
    this.optimized = this.optimized.then(async () => {
      program.module = this.module(spec.name, spec.source, () => program);
      for (const [layout, pipeline] of program.pipelines) {
        try {
          pipeline.now = await this.device.createComputePipelineAsync(described(kernel, layout, program.module));
        } catch (error) {
          await this.failed(kernel, error as Error);
        }
      }
      this.optimizing--;
    });
  }

  private async failed({ program, spec }: Kernel, error: Error): Promise<void> {
    // Of a module that failed others tell, and of a lost device, whose news may come a moment later.
    await this.scopes.settled();
    if (program.failure === null) await new Promise((resolve) => setTimeout(resolve, 20));
    if (!this.lost()) this.fail(program, spec.name, error.message);
  }

  private made(program: Program, asked: number): void {
    program.ms ??= performance.now() - asked;
    this.ready++;
  }

  private compile(spec: KernelSpec): Program {
    const { name, source, baseline } = spec;
    const program: Program = new Program(
      this.module(name, baseline ?? source, () => program),
      baseline !== undefined,
    );
    return program;
  }

  private module(label: string, code: string, program: () => Program): GPUShaderModule {
    const module = this.scopes.around(
      "validation",
      () => this.device.createShaderModule({ label, code }),
      async (error) => {
        const { messages } = await module.getCompilationInfo().catch(() => ({ messages: [] }));
        const lines = messages.filter((m) => m.type === "error").map((m) => `${m.lineNum}:${m.linePos} ${m.message}`);
        this.fail(program(), label, lines.length > 0 ? lines.join("\n") : error.message);
      },
    );
    return module;
  }

  private fail(program: Program, name: string, message: string): void {
    if (program.failure !== null) return; // a pipeline of a module that failed adds nothing
    program.failure = message;
    this.failures++;
    this.errors.add({ kind: "compile", operation: name, message: `kernel ${name} did not compile: ${message}` });
  }
}

function described({ spec }: Kernel, layout: Layout, module: GPUShaderModule): GPUComputePipelineDescriptor {
  const compute = { module, constants: spec.constants ?? {} };
  return { label: spec.name, layout: layout.pipeline, compute };
}

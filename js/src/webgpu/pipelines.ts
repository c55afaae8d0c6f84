/** Pipelines, cached by source and constants. A kernel that does not compile says so with its name. */

import type { ErrorLog } from "../errors";
import type { Access, KernelSpec } from "../protocol";
import type { Stats } from "../stats";
import type { BindGroups, Layout } from "./bindgroups";
import type { ErrorScopes } from "./scopes";

/** Parameter blocks are bound with one of two fixed sizes, so that few layouts serve all kernels. */
export const SMALL_PARAMS = 4096;

/** What one source and its constants compile to. Shared by the kernels that have both in common. */
class Program {
  failure: string | null = null;
  readonly pipelines = new Map<Layout, GPUComputePipeline>();
  /** those that are being made beside others */
  readonly making = new Map<Layout, Promise<void>>();
  /** how long after the first of them was asked for the browser said that it was ready */
  ms: number | null = null;
  constructor(readonly module: GPUShaderModule) {}
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

  pipeline(kernel: Kernel, layout: Layout): GPUComputePipeline {
    const { program, spec } = kernel;
    const known = program.pipelines.get(layout);
    if (known !== undefined) return known;
    this.stats.kernels++;
    this.asked++;
    const asked = performance.now();
    const made = this.scopes.around(
      "validation",
      () => this.device.createComputePipeline(described(kernel, layout)),
      (error) => {
        this.ready++;
        this.fail(program, spec.name, error.message);
      },
      () => this.made(program, asked),
    );
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
    const { program, spec } = kernel;
    this.asked++;
    const asked = performance.now();
    try {
      const made = await this.device.createComputePipelineAsync(described(kernel, layout));
      if (program.pipelines.has(layout)) return;
      program.pipelines.set(layout, made);
      this.stats.kernels++;
    } catch (error) {
      // Of a module that failed others tell, and of a lost device, whose news may come a moment later.
      await this.scopes.settled();
      if (program.failure === null) await new Promise((resolve) => setTimeout(resolve, 20));
      if (!this.lost()) this.fail(program, spec.name, (error as Error).message);
    } finally {
      this.made(program, asked);
    }
  }

  private made(program: Program, asked: number): void {
    program.ms ??= performance.now() - asked;
    this.ready++;
  }

  private compile(spec: KernelSpec): Program {
    const module = this.scopes.around(
      "validation",
      () => this.device.createShaderModule({ label: spec.name, code: spec.source }),
      async (error) => {
        const { messages } = await module.getCompilationInfo().catch(() => ({ messages: [] }));
        const lines = messages.filter((m) => m.type === "error").map((m) => `${m.lineNum}:${m.linePos} ${m.message}`);
        this.fail(program, spec.name, lines.length > 0 ? lines.join("\n") : error.message);
      },
    );
    const program = new Program(module);
    return program;
  }

  private fail(program: Program, name: string, message: string): void {
    if (program.failure !== null) return; // a pipeline of a module that failed adds nothing
    program.failure = message;
    this.failures++;
    this.errors.add({ kind: "compile", operation: name, message: `kernel ${name} did not compile: ${message}` });
  }
}

function described({ program, spec }: Kernel, layout: Layout): GPUComputePipelineDescriptor {
  const compute = { module: program.module, constants: spec.constants ?? {} };
  return { label: spec.name, layout: layout.pipeline, compute };
}

/** A model: the methods of a file over its tensors, which lie on a device. */

import { type Argument, prepare } from "./arguments";
import { DTYPES } from "./dtypes";
import { type DeviceName, type DeviceOptions, Engine } from "./engine";
import { FileError } from "./errors";
import { type FileLike, type FileOptions, lasting, openFile, type ReadFile, unlessAborted } from "./file";
import { Philox, STATE_BYTES, seededState } from "./generators";
import {
  type Checked,
  checkPlan,
  type InputSpec,
  KEY,
  type PlanFile,
  parsePlan,
  type RunSpec,
  type Source,
  type Tree,
  type Variant,
} from "./plan";
import { type Entry, type Header, readHeader, writeFile } from "./safetensors";
import { Template } from "./template";
import { type Place, Tensor } from "./tensor";

export interface LoadOptions extends FileOptions, DeviceOptions {
  /** How far it has come: bytes of tensors, then kernels. */
  onProgress?: (done: number, total: number, what: "bytes" | "kernels") => void;
  /** Another safetensors file, whose tensors take the place of those of the same names, types and shapes. */
  weights?: FileLike;
}

/** What a method is called with, by name in one object or one after the other, and what it gives: the tree that the function returned. */
// biome-ignore lint/suspicious/noExplicitAny: the file says what; `load<Methods>` names it
export type Method = (...inputs: any[]) => Promise<any>;

export interface MethodInfo {
  readonly inputs: readonly InputSpec[];
}

type Lasting = Exclude<FileLike, Response>;
/** A buffer. owned: it is to be freed unless it is given away. */
interface Buffer {
  engine: Engine;
  id: number;
}

export class Model {
  /** Where it runs, and why there. */
  readonly device: DeviceName;
  readonly deviceReason: string;
  /** Settings and counts of the file, such as `lr`: set them before a call. */
  readonly numbers: Record<string, number>;
  readonly methods: Readonly<Record<string, MethodInfo>>;
  readonly dims: PlanFile["dims"];
  #engine: Engine;
  /** for PyTorch's random numbers, which the cpu draws */
  #host: Engine | null = null;
  #checked: Checked;
  #templates: Template[] = [];
  #places: Buffer[] = [];
  #constants = new Map<string, Buffer>();
  #generators: (Philox | Buffer)[] = [];
  #generation = 0;
  #busy = "loading";
  #reviving: Promise<void> | null = null;
  #disposed = false;
  #complaint: Error | null = null;
  #sources: Lasting[];

  private constructor(
    readonly metadata: Readonly<Record<string, string>>,
    private readonly plan: PlanFile,
    private readonly header: Header,
    engine: Engine,
    checked: Checked,
    reason: string,
    sources: Lasting[],
  ) {
    this.#engine = engine;
    this.#checked = checked;
    this.#sources = sources;
    this.device = engine.device;
    this.deviceReason = reason;
    this.dims = plan.dims;
    this.numbers = Object.seal({ ...plan.numbers });
    const methods: Record<string, MethodInfo> = {};
    for (const [name, m] of Object.entries(plan.methods)) {
      methods[name] = { inputs: m.inputs };
      // what a model has itself is called by `run`
      if (!(name in this) && name !== "then")
        Object.defineProperty(this, name, {
          value: (...inputs: unknown[]) => this.run(name, ...inputs),
          enumerable: true,
        });
    }
    this.methods = methods;
  }

  /** @internal */
  static async load(from: FileLike, options: LoadOptions = {}): Promise<Model> {
    const { signal, weights } = options;
    signal?.throwIfAborted();
    const sources = [await lasting(from, signal)];
    if (weights !== undefined) sources.push(await lasting(weights, signal));
    const file = await openFile(sources[0] as Lasting, options);
    let engine: Engine | null = null;
    let model: Model | null = null;
    try {
      const header = await readHeader(file);
      const plan = parsePlan(header.metadata[KEY]);
      const found = await choose(plan, options);
      engine = found.engine;
      const checked = checkPlan(plan, engine.device, header.entries);
      model = new Model(header.metadata, plan, header, engine, checked, found.reason, sources);
      await model.#start(file, options);
      signal?.throwIfAborted();
      return model;
    } catch (error) {
      if (model !== null) model.dispose();
      else engine?.release();
      throw error;
    } finally {
      file.close();
    }
  }

  async #start(file: ReadFile, options: LoadOptions): Promise<void> {
    const { kernels, templates } = this.#checked;
    const drawn = this.plan.generators.some((g) => "mt19937" in g) || kernels.some((k) => k.device === 1);
    if (this.device === "webgpu" && drawn) this.#host = await Engine.open("cpu");
    const on = (device: number) => (device === 0 ? this.#engine : (this.#host ?? this.#engine));
    const ids = kernels.map((k) => on(k.device).kernel(k));
    this.#engine.send();
    this.#host?.send();
    const words = new Map<number, number>();
    for (const { spec } of templates)
      for (const s of spec.plan.steps)
        if ("kernel" in s && spec.plan.device === 0) words.set(ids[s.kernel] as number, s.words.length);
    const wanted = [...words];
    let ready = 0;
    const compiling = wanted.map((each) =>
      this.#engine.runtime.prepare([each]).then(() => {
        if (!this.#disposed) options.onProgress?.(++ready, wanted.length, "kernels");
      }),
    );
    const compiled = Promise.all(compiling);
    compiled.catch(() => {}); // it may fail while the file is read
    await this.#fill(file, options);
    await unlessAborted(compiled, options.signal);
    this.#templates = templates.map(({ spec, recipe }) => new Template(on(spec.plan.device), spec, recipe, ids));
    this.#engine.send();
    this.#host?.send();
    await this.#engine.synchronize();
    this.#generation = this.#engine.generation;
    this.#busy = "";
  }

  /** Makes the memory, and puts the file's tensors there. */
  async #fill(file: ReadFile, options: LoadOptions): Promise<void> {
    const engine = this.#engine;
    const { places } = this.#checked;
    this.#places = [];
    places.forEach((p, k) => {
      if (p.window === undefined) this.#places[k] = { engine, id: engine.alloc(p.nbytes) };
    });
    places.forEach((p, k) => {
      if (p.window !== undefined) {
        const base = this.#places[p.window[0]] as Buffer;
        this.#places[k] = { engine, id: engine.alias(base.id, p.window[1], p.nbytes) };
      }
    });
    engine.send();
    const targets = new Map<string, [buffer: Buffer, offset: number][]>();
    const to = (name: string, buffer: Buffer, offset: number) =>
      targets.set(name, [...(targets.get(name) ?? []), [buffer, offset]]);
    places.forEach((p, k) => {
      for (const [name, offset] of p.parts) to(name, this.#places[k] as Buffer, offset);
    });
    this.#generators = this.plan.generators.map((g) => {
      if ("philox" in g) return new Philox(BigInt(g.philox.seed), BigInt(g.philox.offset));
      const host = this.#host ?? engine;
      const buffer = { engine: host, id: host.alloc(STATE_BYTES) };
      host.send();
      to(g.mt19937, buffer, 0);
      return buffer;
    });
    this.#constants = new Map();
    for (const [key, { name, engine: where }] of this.#wanted()) {
      const buffer = { engine: where, id: where.alloc((this.header.entries.get(name) as Entry).nbytes) };
      where.send();
      this.#constants.set(key, buffer);
      to(name, buffer, 0);
    }
    const [, other] = this.#sources;
    if (other === undefined) return this.#pour([[file, this.header, targets]], options);
    const second = await openFile(other, options);
    try {
      const header = await readHeader(second);
      const swapped = this.#swapped(header, targets);
      await this.#pour(
        [
          [file, this.header, targets],
          [second, header, swapped],
        ],
        options,
      );
    } finally {
      second.close();
    }
  }

  /** Those that another file's tensors take the place of, checked; they leave `targets`. */
  #swapped(header: Header, targets: Map<string, [Buffer, number][]>): Map<string, [Buffer, number][]> {
    const own = (name: string) => /^(optimizer|constant|generator)\./.test(name);
    const aliases = this.plan.aliases ?? {};
    const found = new Map<string, [Buffer, number][]>();
    for (const [name, entry] of header.entries) {
      if (own(name)) continue;
      const known = Object.hasOwn(aliases, name) ? (aliases[name] as string) : name;
      const old = this.header.entries.get(known);
      const places = targets.get(known) ?? found.get(name);
      if (old === undefined || places === undefined) throw new FileError(`weights: unexpected key '${name}'`);
      if (entry.dtype !== old.dtype || entry.shape.join() !== old.shape.join())
        throw new FileError(
          `weights: size mismatch for '${name}': ${entry.dtype} [${entry.shape}] in the weights, ${old.dtype} [${old.shape}] in the plan`,
        );
      found.set(name, places);
      targets.delete(known);
    }
    const missing = [...targets.keys()].filter((name) => !own(name));
    if (missing.length > 0) throw new FileError(`weights: missing keys: ${missing.slice(0, 5).join(", ")}`);
    return found;
  }

  async #pour(from: [ReadFile, Header, Map<string, [Buffer, number][]>][], options: LoadOptions): Promise<void> {
    const entries = from.flatMap(([file, { entries }, targets]) =>
      [...entries.values()].flatMap((e) => (targets.has(e.name) ? [{ ...e, file, targets }] : [])),
    );
    const total = entries.reduce((sum, { nbytes }) => sum + nbytes, 0);
    let done = 0;
    for (const { name, begin, nbytes, file, targets } of entries) {
      for (let at = 0; at < nbytes; at += PIECE) {
        options.signal?.throwIfAborted();
        const piece = await file.read(begin + at, Math.min(PIECE, nbytes - at));
        if (piece.byteLength < Math.min(PIECE, nbytes - at)) throw new FileError("the file ends within a tensor");
        for (const [{ engine, id }, offset] of targets.get(name) ?? []) {
          engine.write(id, offset + at, piece);
          engine.send();
        }
        done += piece.byteLength;
        options.onProgress?.(done, total, "bytes");
      }
    }
  }

  /** The constants that plans take, each on the engines that do. */
  #wanted(): Map<string, { name: string; engine: Engine }> {
    const found = new Map<string, { name: string; engine: Engine }>();
    const add = (x: Source, device: number) => {
      if (x[0] !== "constant") return;
      const engine = device === 1 && this.#host !== null ? this.#host : this.#engine;
      found.set(`${engine.device} ${x[1]}`, { name: x[1] as string, engine });
    };
    for (const variant of Object.values(this.#checked.variants).flat()) {
      const { ahead, plans, outputs } = variant.spec;
      const runs = [...plans, ...ahead.flatMap((a) => ("draw" in a ? [a.draw] : []))];
      for (const p of runs)
        for (const x of p.inputs) add(x, this.#checked.templates[p.template]?.spec.plan.device ?? 0);
      for (const a of ahead) if ("copy" in a) add(a.copy, 0);
      for (const o of outputs) add(o.source, this.#engine.number);
    }
    return found;
  }

  // -- calls

  #ready(): void {
    if (this.#disposed) throw new Error("this model has been disposed of");
    if (this.#busy) throw new Error(`this model is busy ${this.#busy}`);
    if (this.#engine.isLost || this.#generation !== this.#engine.generation)
      throw new Error("the GPU device was lost, and the model's tensors with it: call revive()");
    const complaint = this.#complaint;
    this.#complaint = null;
    if (complaint !== null) throw complaint;
  }

  /**
   * For guests of wasi-nn, whose inputs have no names: calls a method with its tensors in the order of `methods[name].inputs`. What an
   * earlier call's indices did wrong is an error of that call's results alone.
   * @internal
   */
  // biome-ignore lint/suspicious/noExplicitAny: as `Method`
  runInOrder(name: string, inputs: readonly Tensor[]): Promise<any> {
    this.#complaint = null;
    return this.run(name, inOrder({ dict: this.plan.methods[name]?.tree.dict ?? {} }, inputs));
  }

  /** Calls a method by its name. */
  // biome-ignore lint/suspicious/noExplicitAny: as `Method`
  async run(name: string, ...inputs: unknown[]): Promise<any> {
    this.#ready();
    if (!Object.hasOwn(this.plan.methods, name))
      throw new Error(`this file has no method '${name}': it has ${Object.keys(this.plan.methods).join(", ")}`);
    const result = this.#call(name, inputs);
    await this.#engine.room();
    return result;
  }

  #call(name: string, given: unknown[]): unknown {
    const method = this.plan.methods[name] as PlanFile["methods"][string];
    const { found: args, sizes } = prepare(name, method.inputs, method.tree.dict, this.dims, given);
    const v = Object.values(this.numbers);
    for (const [key, x] of Object.entries(this.numbers))
      if (typeof x !== "number") throw new TypeError(`the number '${key}' is ${typeof x}`);
    const { variant, found } = this.#chosen(name, sizes, v);
    const { spec } = variant;
    const engine = this.#engine;
    const mine: Buffer[] = []; // to be freed, but for what is given away
    const own = (buffer: Buffer) => {
      mine.push(buffer);
      return buffer;
    };
    const inputs = args.map((a, k) => this.#input(a, spec.written.includes(k), own));
    const r = spec.words.map((k) => (this.#generators[k] as Philox).next());
    const numbers = variant.numbers.values(sizes, v, r);
    const made: Buffer[] = [];
    const fresh: Map<number, Buffer>[] = [];
    const buffer = ([kind, k, slot]: Source, where: Engine): Buffer => {
      if (kind === "new") return fresh[k as number]?.get(slot as number) as Buffer;
      if (kind === "constant") return this.#constants.get(`${where.device} ${k}`) as Buffer;
      const table = { state: this.#places, input: inputs, ahead: made, generator: this.#generators as Buffer[] }[kind];
      return (table as Buffer[])[k as number] as Buffer;
    };
    const run = (p: RunSpec): Map<number, Buffer> => {
      const t = this.#templates[p.template] as Template;
      const ids = p.inputs.map((x) => {
        const b = buffer(x, t.engine);
        if (b.engine !== t.engine)
          throw new FileError("this plan file is damaged: a plan takes what is on another device");
        return b.id;
      });
      const [first, count] = p.scalars;
      const outputs = t.run(
        p.values.map((k) => found[k] as number),
        ids,
        numbers.slice(first, first + count),
      );
      return new Map([...outputs].map(([slot, { id }]) => [slot, own({ engine: t.engine, id })]));
    };
    const bytes = (o: { dtype: keyof typeof DTYPES; shape: number[] }) =>
      o.shape.reduce((n, k) => n * (found[k] as number), DTYPES[o.dtype].size);
    const away = new Set<Buffer>();
    const old: Buffer[] = [];
    for (const a of spec.ahead) {
      if ("draw" in a) made.push([...run(a.draw).values()][0] as Buffer);
      else {
        const from = buffer(a.copy, engine);
        const target = a.device === 1 && this.#host !== null ? this.#host : engine;
        const nbytes = found[a.nbytes] as number;
        let id: number;
        if (from.engine === target) id = target.copy(from.id, nbytes);
        else {
          if (from.engine.device !== "cpu") throw new FileError("this plan file is damaged: a copy from the GPU");
          from.engine.send();
          id = target.upload(from.engine.readNow(from.id, nbytes));
        }
        made.push(own({ engine: target, id }));
      }
    }
    for (const p of spec.plans) fresh.push(run(p));
    for (const [[kind, k], a] of spec.rebinds) {
      const now = made[a] as Buffer;
      const list = kind === "state" ? this.#places : inputs;
      const before = list[k as number] as Buffer;
      if (kind === "state") old.push(before);
      list[k as number] = now;
      if (kind === "state") away.add(now);
    }
    const outs = spec.outputs.map((o) => {
      const from = buffer(o.source, engine);
      if (mine.includes(from) && !away.has(from) && !inputs.includes(from)) {
        away.add(from);
        return from;
      }
      // what goes on being somebody else's
      return { engine: from.engine, id: from.engine.copy(from.id, bytes(o)) };
    });
    const changed = spec.written.map((k) => {
      const now = inputs[k] as Buffer;
      away.add(now);
      return [args[k]?.tensor ?? null, now] as const;
    });
    for (const b of mine) if (!away.has(b)) b.engine.free(b.id);
    for (const b of old) b.engine.free(b.id);
    engine.send();
    this.#host?.send();
    const names = Object.keys(this.numbers);
    const last = numbers.length - spec.after.length;
    spec.after.forEach((k, i) => {
      this.numbers[names[k] as string] = numbers[last + i] as number;
    });
    for (const [tensor, now] of changed)
      if (tensor === null) now.engine.free(now.id);
      else tensor.replace(now);
    const verdict = this.#look(spec.plans);
    const results = outs.map((b, i) => {
      const { dtype, shape } = spec.outputs[i] as (typeof spec.outputs)[number];
      return new Tensor(
        dtype,
        shape.map((k) => found[k] as number),
        b as Place,
        verdict,
      );
    });
    return built(
      spec.tree,
      results,
      spec.tree_sizes.map((k) => found[k] as number),
    );
  }

  #input({ tensor, bytes }: Argument, written: boolean, own: (b: Buffer) => Buffer): Buffer {
    const engine = this.#engine;
    if (tensor === null) return own({ engine, id: engine.upload(bytes) });
    const place = tensor.place;
    if (!("engine" in place)) return own({ engine, id: engine.upload(place.bytes) });
    if (place.engine !== engine)
      throw new Error(`the input is on another device (${place.engine.device}): pass its data()`);
    return written ? own({ engine, id: engine.copy(place.id, tensor.nbytes) }) : place;
  }

  /** The first variant for these sizes and numbers. */
  #chosen(name: string, s: number[], v: number[]): { variant: Variant; found: number[] } {
    let why = "";
    for (const variant of this.#checked.variants[name] as Variant[]) {
      if (!variant.sizes.holds(s)) continue;
      const found = variant.sizes.values(s);
      const { plans, ahead } = variant.spec;
      const runs = [...plans, ...ahead.flatMap((a) => ("draw" in a ? [a.draw] : []))];
      const fits = (p: RunSpec) =>
        this.#templates[p.template]?.recipe.holds(p.values.map((k) => found[k] as number)) ?? false;
      if (!runs.every(fits)) continue;
      if (variant.numbers.holds(s, v, [])) return { variant, found };
      const names = Object.keys(this.numbers);
      const used = variant.numbers.uses("v", [s, v, []]).map((k) => `${names[k]} = ${v[k]}`);
      why = ` with ${used.join(", ") || "these numbers"}: the method goes another way with such, for which it was not exported`;
    }
    const sizes = Object.entries(this.dims).map(
      ([d, { min, max }], k) => `${d} = ${s[k]} (from ${min} to ${max ?? "any"})`,
    );
    throw new RangeError(`${name}() has no plan for ${sizes.join(", ") || "its inputs"}${why}`);
  }

  /** Reads what the asserts of these plans say: an index out of range is an error of the results, and of the next call. */
  #look(plans: RunSpec[]): (() => Promise<void>) | null {
    const logs = new Set<number>();
    for (const p of plans)
      for (const [kind, k] of p.inputs)
        if (kind === "state" && this.#checked.places[k as number]?.log) logs.add(k as number);
    if (logs.size === 0) return null;
    const all = Promise.all([...logs].map((k) => this.#log(k))).then(() => {});
    all.catch((error) => {
      this.#complaint = error;
    });
    return () =>
      all.catch((error) => {
        if (this.#complaint === error) this.#complaint = null; // it is told here
        throw error;
      });
  }

  async #log(k: number): Promise<void> {
    const { engine, id } = this.#places[k] as Buffer;
    const [number, value, most, at] = new BigInt64Array((await engine.read(id, 32)).buffer);
    if (number === 0n) return;
    if (!this.#disposed) {
      engine.write(id, 0, new Uint8Array(32));
      engine.send();
    }
    const [text, below, where] = this.plan.asserts[String(number)] ?? ["an index is out of range", "", "a plan"];
    const said = below && (value as bigint) < 0n ? below : text;
    const filled = { i: value, n: (most as bigint) + 1n, k: at } as Record<string, unknown>;
    throw new RangeError(`${said.replace(/\{([ink])\}/g, (_, key) => String(filled[key]))} (${where})`);
  }

  // -- the whole

  /** Seeds the random numbers of all methods, as `torch.manual_seed`. */
  manualSeed(seed: number | bigint): void {
    this.#ready();
    for (const g of this.#generators)
      if (g instanceof Philox) g.manualSeed(BigInt(seed));
      else {
        g.engine.write(g.id, 0, seededState(BigInt(seed)));
        g.engine.send();
      }
  }

  /** The tensors of the file as they are now, by name. */
  async state(): Promise<Record<string, Tensor>> {
    const found: Record<string, Tensor> = {};
    for (const [name, bytes] of await this.#read()) {
      const { dtype, shape } = this.header.entries.get(name) as Entry;
      if (dtype !== null) found[name] = new Tensor(dtype, shape, { bytes });
    }
    return found;
  }

  async #read(constants = false): Promise<Map<string, Uint8Array<ArrayBuffer>>> {
    this.#ready();
    const found = new Map<string, Uint8Array<ArrayBuffer>>();
    const reading: Promise<void>[] = [];
    const { places } = this.#checked;
    places.forEach((p, k) => {
      if (p.parts.length === 0) return;
      const { engine, id } = this.#places[k] as Buffer;
      reading.push(
        engine.read(id, p.nbytes).then((bytes) => {
          for (const [name, offset] of p.parts)
            found.set(name, bytes.slice(offset, offset + (this.header.entries.get(name) as Entry).nbytes));
        }),
      );
    });
    const whole = (name: string, { engine, id }: Buffer, nbytes: number) =>
      reading.push(engine.read(id, nbytes).then((bytes) => void found.set(name, bytes)));
    this.plan.generators.forEach((g, k) => {
      if ("mt19937" in g) whole(g.mt19937, this.#generators[k] as Buffer, STATE_BYTES);
    });
    if (constants)
      for (const [key, { name }] of this.#wanted())
        whole(name, this.#constants.get(key) as Buffer, (this.header.entries.get(name) as Entry).nbytes);
    await Promise.all(reading);
    return found;
  }

  /** A file with the weights, the optimizer's state, numbers and random numbers as they are now, and the methods. */
  async save(): Promise<Blob> {
    this.#ready();
    const numbers = { ...this.numbers };
    const generators = this.plan.generators.map((g, k) => {
      const { seed, offset } = this.#generators[k] as Philox;
      return "philox" in g ? { philox: { seed: String(seed), offset: String(offset) } } : g;
    });
    const source = this.#sources[0] as Lasting;
    const { entries } = this.header;
    const now = await this.#read(true);
    let file: ReadFile | null = null; // for tensors that no method reads
    try {
      const tensors = [];
      for (const { name, dtype, shape, begin, nbytes } of entries.values()) {
        if (dtype === null) continue;
        let bytes = now.get(name);
        if (bytes === undefined) {
          file ??= await openFile(source);
          bytes = await file.read(begin, nbytes);
        }
        tensors.push({ name, dtype, shape, bytes });
      }
      const plan = JSON.stringify({ ...this.plan, numbers, generators });
      const blob = writeFile({ ...this.metadata, [KEY]: plan }, tensors);
      const header = await readHeader(await openFile(blob));
      this.#sources = [blob];
      this.header.entries = header.entries;
      this.plan.numbers = numbers;
      this.plan.generators = generators;
      return blob;
    } finally {
      file?.close();
    }
  }

  /** Resolves with what is known when the GPU device is lost; never on the cpu. After `revive()` it is another promise. */
  get lost(): Promise<string> {
    return this.#engine.lost;
  }

  /** Another device in the place of one that was lost, with what the file says, or the last `save()`. */
  revive(): Promise<void> {
    this.#reviving ??= this.#again().finally(() => {
      this.#reviving = null;
    });
    return this.#reviving;
  }

  async #again(): Promise<void> {
    if (this.#disposed) this.#ready();
    const engine = this.#engine;
    this.#busy = "reviving";
    try {
      if (engine.isLost) await engine.revive();
      if (this.#generation === engine.generation) return;
      this.#free();
      Object.assign(this.numbers, this.plan.numbers);
      const file = await openFile(this.#sources[0] as Lasting);
      try {
        this.header.entries = (await readHeader(file)).entries;
        await this.#fill(file, {});
      } finally {
        file.close();
      }
      await engine.synchronize();
      this.#complaint = null;
      this.#generation = engine.generation;
    } finally {
      this.#busy = "";
    }
  }

  /** Bytes and counts of the device, which models share. */
  stats(): Record<string, number> {
    return JSON.parse(this.#engine.runtime.stats());
  }

  #free(): void {
    const generators = this.#generators.filter((g): g is Buffer => !(g instanceof Philox));
    for (const b of [...this.#places, ...this.#constants.values(), ...generators]) b.engine.free(b.id);
    this.#places = [];
    this.#generators = [];
    this.#constants = new Map();
  }

  /** Gives back all it has on the device. Tensors that it gave stay. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#free();
    for (const t of this.#templates) t.dispose();
    for (const engine of [this.#engine, this.#host]) {
      if (engine === null) continue;
      try {
        engine.send();
      } catch {
        // a device that is lost has nothing to give back
      }
      engine.release();
    }
  }
}

const PIECE = 4 << 20;

/** What a function takes, of its tensors; constants are left out. */
function inOrder(tree: Tree, tensors: readonly Tensor[]): unknown {
  const [[kind, x]] = Object.entries(tree) as [[string, unknown]];
  if (kind === "tensor") return tensors[x as number];
  if (kind === "list" || kind === "tuple") return (x as Tree[]).map((y) => inOrder(y, tensors));
  if (kind !== "dict") return null;
  const parts = Object.entries(x as Record<string, Tree>).filter(([, y]) => !("value" in y));
  return Object.fromEntries(parts.map(([name, y]) => [name, inOrder(y, tensors)]));
}

/** What a function returned, of its tensors. */
function built(tree: Tree, tensors: Tensor[], sizes: number[]): unknown {
  const [[kind, x]] = Object.entries(tree) as [[string, unknown]];
  if (kind === "tensor") return tensors[x as number];
  if (kind === "size") return sizes[x as number];
  if (kind === "value") return x;
  if (kind === "dict")
    return Object.fromEntries(Object.entries(x as Record<string, Tree>).map(([k, y]) => [k, built(y, tensors, sizes)]));
  return (x as Tree[]).map((y) => built(y, tensors, sizes));
}

/** The device that is asked for, or the best one that can be had, and why it is that one. */
async function choose(plan: PlanFile, options: LoadOptions): Promise<{ engine: Engine; reason: string }> {
  const { device = "auto", gpu } = options;
  const has = (name: string) => Array.isArray(plan.templates[name]);
  if (device !== "auto") {
    if (device !== "webgpu" && device !== "cpu")
      throw new TypeError(`device is "auto", "webgpu" or "cpu", not ${device}`);
    if (!has(device)) throw new FileError(`this file has no plans for ${device}`);
    const engine = await Engine.open(device, device === "webgpu" ? gpu : undefined);
    const lacking = lacks(plan, engine);
    if (lacking === null) return { engine, reason: "it was asked for" };
    engine.release();
    throw new Error(lacking);
  }
  let why = "this file has no plans for webgpu";
  if (has("webgpu")) {
    try {
      const engine = await Engine.open("webgpu", gpu);
      const lacking = lacks(plan, engine);
      if (lacking === null) return { engine, reason: "there is a WebGPU adapter" };
      engine.release();
      why = lacking;
    } catch (error) {
      why = (error as Error).message;
    }
  }
  if (!has("cpu")) throw new Error(`${why}, and it has none for the cpu`);
  try {
    return { engine: await Engine.open("cpu"), reason: why };
  } catch (error) {
    throw new Error(`${why}; ${(error as Error).message}`);
  }
}

function lacks({ requires = {} }: PlanFile, engine: Engine): string | null {
  const limits = engine.adapter?.limits;
  if (limits === undefined) return null;
  const short = Object.entries(requires.webgpu ?? {}).find(([name, n]) => !((limits[name] ?? 0) >= n));
  return short === undefined
    ? null
    : `the adapter's ${short[0]} is ${limits[short[0]]}, and the file requires ${short[1]}`;
}

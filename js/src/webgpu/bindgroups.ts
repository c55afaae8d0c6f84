/**
 * Bind groups, cached by layout and by the buffers (and offsets) they bind. Keys are numbers that
 * are never used twice, so a lookup makes no string and a stale entry can never be found.
 */

import type { Access } from "../protocol";
import type { Stats } from "../stats";
import type { Handle } from "./buffers";
import type { ErrorScopes } from "./scopes";

const COMPUTE = 0x4; // GPUShaderStage.COMPUTE
const GENERATION = 8192;

/** A bind-group layout, as "r,r,rw" and the size of its parameter block say. */
export class Layout {
  readonly pipeline: GPUPipelineLayout;
  readonly group: GPUBindGroupLayout;
  young = new Map<number, Entry>();
  old = new Map<number, Entry>();

  constructor(
    device: GPUDevice,
    readonly name: string,
    access: Access[],
    readonly paramBytes: number,
  ) {
    const buffer = (type: GPUBufferBindingType): GPUBufferBindingLayout => ({ type });
    this.group = device.createBindGroupLayout({
      label: name,
      entries: [
        {
          binding: 0,
          visibility: COMPUTE,
          buffer: { type: "uniform", hasDynamicOffset: true, minBindingSize: paramBytes },
        },
        ...access.map((how, i) => ({
          binding: i + 1,
          visibility: COMPUTE,
          buffer: buffer(how === "r" ? "read-only-storage" : "storage"),
        })),
      ],
    });
    this.pipeline = device.createPipelineLayout({ label: name, bindGroupLayouts: [this.group] });
  }
}

export interface Entry {
  readonly group: GPUBindGroup;
  readonly handles: Handle[];
  /** another entry with the same hash */
  readonly next: Entry | undefined;
}

export class BindGroups {
  private readonly layouts = new Map<string, Layout>();
  private made = 0;

  constructor(
    private readonly device: GPUDevice,
    private readonly scopes: ErrorScopes,
    private readonly stats: Stats,
    private readonly uniforms: { readonly buffer: GPUBuffer },
  ) {}

  get count(): number {
    let count = 0;
    for (const { young, old } of this.layouts.values()) count += young.size + old.size;
    return count;
  }

  layout(access: Access[], paramBytes: number): Layout {
    const name = `${access.join(",")} ${paramBytes}`;
    let layout = this.layouts.get(name);
    if (layout === undefined) {
      layout = new Layout(this.device, name, access, paramBytes);
      this.layouts.set(name, layout);
    }
    return layout;
  }

  /** The entry for slots `bind` of `slots`. */
  find(layout: Layout, slots: Handle[], bind: number[]): Entry {
    let hash = 17;
    for (let i = 0; i < bind.length; i++) hash = (Math.imul(hash, 31) + (slots[bind[i] as number] as Handle).key) | 0;
    let entry = layout.young.get(hash);
    for (; entry !== undefined; entry = entry.next) {
      if (matches(entry, slots, bind)) {
        this.stats.bindGroupHits++;
        return entry;
      }
    }
    for (entry = layout.old.get(hash); entry !== undefined; entry = entry.next) {
      if (matches(entry, slots, bind)) {
        this.stats.bindGroupHits++;
        return this.keep(layout, hash, entry.group, entry.handles);
      }
    }
    const handles = bind.map((slot) => slots[slot] as Handle);
    return this.keep(layout, hash, this.create(layout, handles), handles);
  }

  /** Lets go of the groups of destroyed buffers. */
  sweep(): void {
    for (const layout of this.layouts.values()) {
      layout.young = this.alive(layout.young);
      layout.old = this.alive(layout.old);
    }
  }

  /** The uniform ring has changed: none of the groups holds any more. */
  clear(): void {
    for (const layout of this.layouts.values()) {
      layout.young.clear();
      layout.old.clear();
    }
    this.made = 0;
  }

  private create(layout: Layout, handles: Handle[]): GPUBindGroup {
    this.stats.bindGroups++;
    this.scopes.enter();
    const largest = Math.floor(this.device.limits.maxStorageBufferBindingSize / 4) * 4;
    return this.device.createBindGroup({
      layout: layout.group,
      entries: [
        { binding: 0, resource: { buffer: this.uniforms.buffer, offset: 0, size: layout.paramBytes } },
        // The whole block, not the bytes in use: the group then serves whoever has the block next.
        ...handles.map(({ block, offset, span }, i) => ({
          binding: i + 1,
          resource: {
            buffer: block.buffer,
            offset,
            size: Math.min(span || block.capacity, block.capacity - offset, largest),
          },
        })),
      ],
    });
  }

  private keep(layout: Layout, hash: number, group: GPUBindGroup, handles: Handle[]): Entry {
    if (++this.made > GENERATION) {
      // What has not been used since the last turn goes.
      this.made = 0;
      for (const each of this.layouts.values()) {
        each.old = each.young;
        each.young = new Map();
      }
    }
    const entry = { group, handles, next: layout.young.get(hash) };
    layout.young.set(hash, entry);
    return entry;
  }

  private alive(entries: Map<number, Entry>): Map<number, Entry> {
    const kept = new Map<number, Entry>();
    for (const [hash, first] of entries) {
      for (let entry: Entry | undefined = first; entry !== undefined; entry = entry.next) {
        if (entry.handles.some(({ block }) => block.destroyed)) continue;
        kept.set(hash, { group: entry.group, handles: entry.handles, next: kept.get(hash) });
      }
    }
    return kept;
  }
}

function matches(entry: Entry, slots: Handle[], bind: number[]): boolean {
  const { handles } = entry;
  for (let i = 0; i < bind.length; i++)
    if ((handles[i] as Handle).key !== (slots[bind[i] as number] as Handle).key) return false;
  return handles.length === bind.length;
}

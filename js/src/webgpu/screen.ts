/** Pictures on a canvas, straight from a tensor's buffer: a shader reads its elements where they lie. */

import type { Picture } from "../picture";

const SHADER = /* wgsl */ `
struct Picture { kind: u32, channels: u32, first: u32, row: u32, column: u32, channel: u32 }
@group(0) @binding(0) var<uniform> picture: Picture;
@group(0) @binding(1) var<storage, read> words: array<u32>;

@vertex fn corner(@builtin(vertex_index) i: u32) -> @builtin(position) vec4f {
  return vec4f(f32((i << 1u) & 2u) * 2.0 - 1.0, f32(i & 2u) * 2.0 - 1.0, 0.0, 1.0);
}

/** From 0 to 1; -1, of what is not a number. */
fn level(i: u32) -> f32 {
  if (picture.kind == 0u) {
    let bits = words[i];
    if ((bits & 0x7fffffffu) > 0x7f800000u) { return -1.0; }
    return clamp(bitcast<f32>(bits), 0.0, 1.0);
  }
  let byte = (words[i / 4u] >> (8u * (i % 4u))) & 255u;
  return select(min(f32(byte), 1.0), f32(byte) / 255.0, picture.kind == 1u);
}

@fragment fn colour(@builtin(position) at: vec4f) -> @location(0) vec4f {
  let i = picture.first + u32(at.y) * picture.row + u32(at.x) * picture.column;
  var rgb = vec3f(level(i));
  if (picture.channels > 2u) {
    rgb = vec3f(rgb.r, level(i + picture.channel), level(i + 2u * picture.channel));
  }
  if (any(rgb < vec3f(0.0))) { return vec4f(1.0, 0.0, 1.0, 1.0); }
  if (picture.channels < 4u) { return vec4f(rgb, 1.0); }
  let opacity = max(level(i + 3u * picture.channel), 0.0);
  return vec4f(rgb * opacity, opacity);
}
`;

/** Bytes that a shader can read. */
export interface Source {
  buffer: GPUBuffer;
  offset: number;
  size: number;
}

export class Screen {
  private pipeline: GPURenderPipeline | null = null;
  private readonly about: GPUBuffer;
  private readonly ours = new WeakSet<GPUCanvasContext>();
  private copy: GPUBuffer | null = null; // of bytes that are no buffer's

  constructor(private readonly device: GPUDevice) {
    this.about = device.createBuffer({ label: "picture", size: 32, usage: 0x40 | 0x08 }); // UNIFORM | COPY_DST
  }

  /** Draws what `source` holds; what fills it must be submitted. */
  draw(context: GPUCanvasContext, picture: Picture, source: Source): void {
    const { device } = this;
    const format = navigator.gpu.getPreferredCanvasFormat();
    if (!this.ours.has(context)) {
      context.configure({ device, format, alphaMode: "premultiplied" });
      this.ours.add(context);
    }
    this.pipeline ??= this.create(format);
    const { kind, channels, first, row, column, channel } = picture;
    device.queue.writeBuffer(this.about, 0, Uint32Array.of(kind, channels, first, row, column, channel));
    const encoder = device.createCommandEncoder();
    const view = context.getCurrentTexture().createView();
    const pass = encoder.beginRenderPass({ colorAttachments: [{ view, loadOp: "clear", storeOp: "store" }] });
    pass.setPipeline(this.pipeline);
    pass.setBindGroup(
      0,
      device.createBindGroup({
        layout: this.pipeline.getBindGroupLayout(0),
        entries: [
          { binding: 0, resource: { buffer: this.about } },
          { binding: 1, resource: source },
        ],
      }),
    );
    pass.draw(3);
    pass.end();
    device.queue.submit([encoder.finish()]);
  }

  /** Bytes of the host's, where the shader can read them. */
  upload(bytes: Uint8Array<ArrayBuffer>): Source {
    const size = Math.max(4, (bytes.byteLength + 3) & ~3);
    if (this.copy === null || this.copy.size < size) {
      this.copy?.destroy();
      this.copy = this.device.createBuffer({ label: "picture", size, usage: 0x80 | 0x08 }); // STORAGE | COPY_DST
    }
    const whole = new Uint8Array(size);
    whole.set(bytes);
    this.device.queue.writeBuffer(this.copy, 0, whole);
    return { buffer: this.copy, offset: 0, size };
  }

  private create(format: GPUTextureFormat): GPURenderPipeline {
    const module = this.device.createShaderModule({ label: "picture", code: SHADER });
    return this.device.createRenderPipeline({
      label: "picture",
      layout: "auto",
      vertex: { module },
      fragment: { module, targets: [{ format }] },
    });
  }
}

/**
 * Reading without waiting: buffer -> texture of a canvas -> 2-D canvas -> getImageData, all synchronous.
 *
 * A canvas keeps only opaque pixels exact, so a shader first spreads the bytes, three to a pixel.
 * Not every browser has the pixels ready in time: `works()` tries a known pattern, once. And each read ends with a
 * pixel that is known, for a device that was lost says nothing before Python waits: it draws nothing.
 */

import { fail } from "../errors";

const WIDTH = 1024; // pixels a row: 4096 bytes, a multiple of the 256 that copies need
const ROWS = 1024;
const CHUNK = WIDTH * ROWS * 3 - 3;
const LAST = [0xa5, 0xc3, 0x5a];

const SPREAD = /* wgsl */ `
struct Range { first: u32, pixels: u32, words: u32, unused: u32 }
@group(0) @binding(0) var<uniform> range: Range;
@group(0) @binding(1) var<storage, read> source: array<u32>;
@group(0) @binding(2) var<storage, read_write> pixels: array<u32>;

fn byte(i: u32) -> u32 {
  if (i / 4u >= range.words) { return 0u; }
  return (source[i / 4u] >> (8u * (i % 4u))) & 255u;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) at: vec3<u32>) {
  let i = at.y * ${WIDTH}u + at.x;
  if (i >= range.pixels) { return; }
  if (i == range.pixels - 1u) {
    pixels[i] = 0xff5ac3a5u;
    return;
  }
  let b = range.first + 3u * i;
  pixels[i] = byte(b) | (byte(b + 1u) << 8u) | (byte(b + 2u) << 16u) | 0xff000000u;
}
`;

interface Parts {
  pipeline: GPUComputePipeline;
  range: GPUBuffer;
  pixels: GPUBuffer;
  canvas: OffscreenCanvas;
  context: GPUCanvasContext;
  flat: OffscreenCanvasRenderingContext2D;
}

export class CanvasReader {
  private parts: Parts | null = null;
  private answer: boolean | null = null;

  constructor(
    private readonly device: GPUDevice,
    /** `GPUAdapterInfo.architecture` */
    private readonly architecture: string,
  ) {}

  works(): boolean {
    this.answer ??= this.probe();
    return this.answer;
  }

  /** Bytes [offset, offset + nbytes) of `buffer`. What uses it must be submitted. */
  read(buffer: GPUBuffer, offset: number, nbytes: number): Uint8Array<ArrayBuffer> {
    const found = new Uint8Array(nbytes);
    for (let at = 0; at < nbytes; at += CHUNK) this.chunk(buffer, offset + at, found.subarray(at, at + CHUNK));
    return found;
  }

  private probe(): boolean {
    if (typeof OffscreenCanvas === "undefined") return false;
    // Chromium's GPU process dies of it where WebGPU draws in software and the rest of the process does not.
    if (this.architecture === "swiftshader") return false;
    const pattern = Uint8Array.from({ length: 5000 }, (_, i) => (i * 89 + (i >> 8) * 7 + 1) & 255);
    const usage = 0x80 | 0x04 | 0x08; // STORAGE | COPY_SRC | COPY_DST
    try {
      const buffer = this.device.createBuffer({ size: pattern.byteLength, usage });
      this.device.queue.writeBuffer(buffer, 0, pattern);
      const back = this.read(buffer, 0, pattern.byteLength);
      buffer.destroy();
      return back.every((byte, i) => byte === pattern[i]);
    } catch {
      return false;
    }
  }

  private chunk(buffer: GPUBuffer, offset: number, into: Uint8Array): void {
    this.parts ??= this.create();
    const { device } = this;
    const { pipeline, range, pixels, canvas, context, flat } = this.parts;
    // A binding starts at a multiple of 256 bytes: the shader skips the rest.
    const start = offset - (offset % 256);
    const skip = offset - start;
    const count = Math.ceil(into.byteLength / 3) + 1; // with the last, known one
    const rows = Math.ceil(count / WIDTH);
    const bytes = Math.min(Math.ceil((skip + into.byteLength) / 4) * 4, buffer.size - start);
    if (canvas.width !== WIDTH || canvas.height !== rows) {
      canvas.width = WIDTH;
      canvas.height = rows;
    }
    device.queue.writeBuffer(range, 0, Uint32Array.of(skip, count, Math.ceil(bytes / 4), 0));
    const encoder = device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    pass.setPipeline(pipeline);
    pass.setBindGroup(
      0,
      device.createBindGroup({
        layout: pipeline.getBindGroupLayout(0),
        entries: [
          { binding: 0, resource: { buffer: range } },
          { binding: 1, resource: { buffer, offset: start, size: bytes } },
          { binding: 2, resource: { buffer: pixels } },
        ],
      }),
    );
    pass.dispatchWorkgroups(WIDTH / 64, rows);
    pass.end();
    const size = [WIDTH, rows];
    encoder.copyBufferToTexture(
      { buffer: pixels, bytesPerRow: WIDTH * 4 },
      { texture: context.getCurrentTexture() },
      size,
    );
    device.queue.submit([encoder.finish()]);
    flat.canvas.width = WIDTH;
    flat.canvas.height = rows;
    flat.globalCompositeOperation = "copy";
    flat.drawImage(canvas, 0, 0);
    const { data } = flat.getImageData(0, 0, WIDTH, rows);
    if (LAST.some((byte, i) => data[4 * (count - 1) + i] !== byte))
      fail("internal", "read", "the canvas stayed empty: the GPU device may be lost");
    for (let i = 0, from = 0; i < into.byteLength; from += 4) {
      into[i++] = data[from] as number;
      if (i < into.byteLength) into[i++] = data[from + 1] as number;
      if (i < into.byteLength) into[i++] = data[from + 2] as number;
    }
  }

  private create(): Parts {
    const { device } = this;
    const canvas = new OffscreenCanvas(WIDTH, 1);
    const context = canvas.getContext("webgpu") as GPUCanvasContext | null;
    const flat = new OffscreenCanvas(WIDTH, 1).getContext("2d", { willReadFrequently: true });
    if (context === null || flat === null) throw new Error("this browser has no canvas to read through");
    context.configure({ device, format: "rgba8unorm", usage: 0x02 | 0x10, alphaMode: "opaque" }); // COPY_DST | RENDER_ATTACHMENT
    const module = device.createShaderModule({ label: "canvas read", code: SPREAD });
    return {
      pipeline: device.createComputePipeline({ label: "canvas read", layout: "auto", compute: { module } }),
      range: device.createBuffer({ size: 16, usage: 0x40 | 0x08 }), // UNIFORM | COPY_DST
      pixels: device.createBuffer({ size: WIDTH * ROWS * 4, usage: 0x80 | 0x04 }), // STORAGE | COPY_SRC
      canvas,
      context,
      flat,
    };
  }
}

/** Pictures in and out. */

import { count } from "./dtypes";
import { Tensor } from "./tensor";

export interface ImageOptions {
  /** Size that the picture is drawn at; default: its own. */
  width?: number;
  height?: number;
  /** 3 (default), 1 (grey, as CCIR 601 weighs the colours), or 4 with opacity. */
  channels?: 1 | 3 | 4;
  /** Each value, of 0 to 255, becomes `(value * scale - mean) / std`; default scale 1/255, mean 0, std 1. A list: of each channel. */
  scale?: number;
  mean?: number | readonly number[];
  std?: number | readonly number[];
}

/** Pixels as a canvas has them. Where there is no `ImageData` (Node), an object of that form. */
export interface Pixels {
  readonly data: Uint8ClampedArray;
  readonly width: number;
  readonly height: number;
}

const of = (x: number | readonly number[] | undefined, channel: number, none: number): number =>
  x === undefined ? none : typeof x === "number" ? x : (x[channel] ?? none);

/** Draws what is no ImageData, or is of another size, on a canvas. */
function drawn(image: CanvasImageSource | Pixels, width?: number, height?: number): Pixels {
  const sized = image as { naturalWidth?: number; videoWidth?: number; displayWidth?: number; width?: number } & {
    naturalHeight?: number;
    videoHeight?: number;
    displayHeight?: number;
    height?: number;
  };
  const w = width ?? sized.naturalWidth ?? sized.videoWidth ?? sized.displayWidth ?? (sized.width as number);
  const h = height ?? sized.naturalHeight ?? sized.videoHeight ?? sized.displayHeight ?? (sized.height as number);
  const isPixels = "data" in image;
  if (isPixels && image.width === w && image.height === h) return image;
  if (typeof OffscreenCanvas !== "function") throw new Error("there is no canvas here that could resize the picture");
  const canvas = new OffscreenCanvas(w, h);
  const context = canvas.getContext("2d", { willReadFrequently: true }) as OffscreenCanvasRenderingContext2D;
  let source = image as CanvasImageSource;
  if (isPixels) {
    source = new OffscreenCanvas(image.width, image.height);
    source.getContext("2d")?.putImageData(image as ImageData, 0, 0);
  }
  context.drawImage(source, 0, 0, w, h);
  return context.getImageData(0, 0, w, h);
}

/** A picture (ImageData, canvas, ImageBitmap, image, video frame) as a float32 tensor (1, channels, height, width). */
export function fromImage(image: CanvasImageSource | Pixels, options: ImageOptions = {}): Tensor {
  const { channels = 3, scale = 1 / 255, mean, std } = options;
  const { data, width, height } = drawn(image, options.width, options.height);
  const plane = width * height;
  const out = new Float32Array(channels * plane);
  for (let c = 0; c < channels; c++) {
    const [m, s] = [of(mean, c, 0), of(std, c, 1)];
    for (let i = 0; i < plane; i++) {
      const at = 4 * i;
      const [r, g, b] = [data[at] as number, data[at + 1] as number, data[at + 2] as number];
      const value = channels === 1 ? 0.299 * r + 0.587 * g + 0.114 * b : (data[at + c] as number);
      out[c * plane + i] = (value * scale - m) / s;
    }
  }
  return new Tensor("float32", [1, channels, height, width], { bytes: new Uint8Array(out.buffer) });
}

/** The way back, of a tensor ([1,] [channels,] height, width) with 1, 3 or 4 channels: `value * std + mean`, times 255. */
export async function toImageData(
  image: Tensor,
  options: Pick<ImageOptions, "scale" | "mean" | "std"> = {},
): Promise<ImageData> {
  const { scale = 1 / 255, mean, std } = options;
  const shape = image.shape.length === 4 && image.shape[0] === 1 ? image.shape.slice(1) : image.shape;
  const [channels, height, width] = (shape.length === 2 ? [1, ...shape] : shape) as [number, number, number];
  if (shape.length > 3 || shape.length < 2 || ![1, 3, 4].includes(channels) || count(shape) === 0)
    throw new Error(`a tensor of shape [${image.shape.join(", ")}] is no picture: (channels, height, width) is`);
  const values = await image.data();
  const plane = width * height;
  const data = new Uint8ClampedArray(4 * plane).fill(255);
  for (let i = 0; i < plane; i++)
    for (let c = 0; c < (channels === 4 ? 4 : 3); c++) {
      const k = channels === 1 ? 0 : c;
      data[4 * i + c] = (Number(values[k * plane + i]) * of(std, k, 1) + of(mean, k, 0)) / scale;
    }
  return typeof ImageData === "function"
    ? new ImageData(data, width, height)
    : ({ data, width, height, colorSpace: "srgb" } as ImageData);
}

/** A tensor as a picture: how its elements lie, and, where no shader can read them, their pixels. */

/** Places are counted in elements. */
export interface Picture {
  /** 0: float32, from 0 to 1; 1: uint8; 2: bool */
  kind: number;
  height: number;
  width: number;
  /** 1: gray; 3: red, green, blue; 4: and opacity */
  channels: number;
  first: number;
  /** from one row, column and channel to the next */
  row: number;
  column: number;
  channel: number;
  /** of the buffer, to the last element and on */
  nbytes: number;
}

/** Red, green, blue and opacity of each pixel. What is not a number is magenta. */
export function pixels(bytes: Uint8Array<ArrayBuffer>, picture: Picture): ImageData {
  const { kind, height, width, channels, first, row, column, channel } = picture;
  const floats = kind === 0 ? new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength >> 2) : null;
  const scale = kind === 1 ? 1 : 255;
  const image = new ImageData(width, height);
  const { data } = image; // its elements are clamped, and rounded
  const level = (i: number) => (floats ?? bytes)[i] as number;
  for (let y = 0, at = 0; y < height; y++) {
    for (let x = 0; x < width; x++, at += 4) {
      const i = first + y * row + x * column;
      const levels = [0, 1, 2].map((c) => level(channels > 2 ? i + c * channel : i));
      const missing = levels.some(Number.isNaN);
      levels.push(channels > 3 && !missing ? level(i + 3 * channel) : 255 / scale);
      for (let c = 0; c < 4; c++) data[at + c] = missing ? (c === 1 ? 0 : 255) : (levels[c] as number) * scale;
    }
  }
  return image;
}

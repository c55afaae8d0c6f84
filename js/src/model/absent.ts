/**
 * In the place of what draws on a canvas, reads through one, and times dispatches (js/src/webgpu/canvas.ts, screen.ts, timer.ts): the
 * npm package leaves these out, and asks for none of them.
 */

class Absent {
  constructor() {
    this.none();
  }
  private none(): never {
    throw new Error("the npm package of tabtorch has no such part");
  }
}

/** Asked whether it works before it is used. */
export class CanvasReader {
  works(): boolean {
    return false;
  }
}

export { Absent as Screen, Absent as Timer };

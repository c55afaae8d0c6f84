/** A chart as one picture: the title above the plot and the legend below it are elements, which a canvas lacks. */

export interface Labels {
  title: string;
  lines: { name: string; colour: string }[];
  text: string;
  ground: string;
}

const ROW = 24;
const MARK = 12;

/** scale: pixels of `plot` to a CSS pixel. */
export function chartPicture(plot: HTMLCanvasElement, scale: number, labels: Labels): HTMLCanvasElement {
  const picture = document.createElement("canvas");
  picture.width = plot.width;
  picture.height = plot.height + 2 * ROW * scale;
  const context = picture.getContext("2d") as CanvasRenderingContext2D;
  const [width, height] = [picture.width / scale, picture.height / scale];
  context.fillStyle = labels.ground;
  context.fillRect(0, 0, picture.width, picture.height);
  context.drawImage(plot, 0, ROW * scale);
  context.scale(scale, scale);
  context.textBaseline = "middle";
  context.fillStyle = labels.text;
  context.font = "600 14px system-ui, sans-serif";
  context.textAlign = "center";
  context.fillText(labels.title, width / 2, ROW / 2, width);
  drawLegend(context, labels, width, height - ROW / 2);
  return picture;
}

/** In the middle of the row at `y`; what is too long is drawn narrower. */
function drawLegend(context: CanvasRenderingContext2D, { lines, text }: Labels, width: number, y: number): void {
  context.font = "13px system-ui, sans-serif";
  context.textAlign = "left";
  const sizes = lines.map(({ name }) => MARK + 6 + context.measureText(name).width + 16);
  const whole = sizes.reduce((sum, size) => sum + size, 0);
  const squeeze = Math.min(1, width / whole);
  context.scale(squeeze, 1);
  let x = Math.max(0, (width / squeeze - whole) / 2);
  for (const [index, { name, colour }] of lines.entries()) {
    context.fillStyle = colour;
    context.fillRect(x, y - 1.5, MARK, 3);
    context.fillStyle = text;
    context.fillText(name, x + MARK + 6, y);
    x += sizes[index] as number;
  }
}

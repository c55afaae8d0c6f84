/** Images in the output. An SVG is one too: in an <img> its scripts do not run, and it loads nothing. */
import type { Bundle, Metadata, View } from "./rich";

export function imageView(type: string, bundle: Bundle, metadata: Metadata): View {
  const element = document.createElement("img");
  let address = "";
  const release = () => URL.revokeObjectURL(address);
  const update = (bundle: Bundle, metadata: Metadata) => {
    release();
    const { alt, width, height, pixelated } = { ...metadata, ...metadata[type] };
    address = URL.createObjectURL(new Blob([bundle[type] as BlobPart], { type }));
    element.src = address;
    element.alt = String(alt ?? bundle["text/plain"] ?? "Image");
    element.classList.toggle("pixelated", pixelated === true);
    sized(element, "width", width);
    sized(element, "height", height);
  };
  update(bundle, metadata);
  return { element, update, dispose: release };
}

/** As an attribute: the space is there before the image is. */
function sized(element: HTMLImageElement, side: "width" | "height", pixels: unknown): void {
  if (Number.isFinite(Number(pixels ?? Number.NaN))) element.setAttribute(side, String(pixels));
  else element.removeAttribute(side);
}

/** Images in the output. An SVG is one too: in an <img> its scripts do not run, and it loads nothing. */
import type { Bundle, Metadata, View } from "./rich";

export function imageView(type: string, bundle: Bundle, metadata: Metadata): View {
  const element = document.createElement("figure");
  const caption = document.createElement("figcaption");
  const image = document.createElement("img");
  element.append(caption, image);
  let address = "";
  const release = () => URL.revokeObjectURL(address);
  const update = (bundle: Bundle, metadata: Metadata) => {
    release();
    const { alt, title, width, height, pixelated } = { ...metadata, ...metadata[type] };
    address = URL.createObjectURL(new Blob([bundle[type] as BlobPart], { type }));
    caption.textContent = String(title ?? "");
    image.src = address;
    image.alt = String(alt ?? bundle["text/plain"] ?? "Image");
    image.classList.toggle("pixelated", pixelated === true);
    sized(image, "width", width);
    sized(image, "height", height);
  };
  update(bundle, metadata);
  return { element, update, dispose: release };
}

/** As an attribute: the space is there before the image is. */
function sized(element: HTMLImageElement, side: "width" | "height", pixels: unknown): void {
  if (Number.isFinite(Number(pixels ?? Number.NaN))) element.setAttribute(side, String(pixels));
  else element.removeAttribute(side);
}

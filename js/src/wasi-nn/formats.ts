/**
 * What a model's bytes are, told by the bytes.
 *
 * The encoding that a guest names says less: wasi-nn.witx ends with autodetect = 5, other hosts have ggml = 5 and
 * autodetect = 6, and there is no number for a plan. So it is used for one thing: to refuse what contradicts the bytes.
 */

import { fail } from "./errno";

/** plan: a safetensors file with a plan of tabtorch. pt2: what torch.export.save writes */
export type Format = "plan" | "safetensors" | "pt2" | "torchscript" | "onnx" | "gguf";

/** openvino onnx tensorflow pytorch tensorflowlite, ggml or autodetect, autodetect or ggml: formats that each can mean.
 * A plan may have been made of any of them. */
const ENCODINGS: readonly (readonly Format[])[] = [
  ["plan"],
  ["plan", "onnx"],
  ["plan"],
  ["plan", "pt2", "torchscript"],
  ["plan"],
  ["plan", "pt2", "torchscript", "onnx", "gguf"],
  ["plan", "pt2", "torchscript", "onnx", "gguf"],
];
const ENCODING_NAMES = ["openvino", "onnx", "tensorflow", "pytorch", "tensorflowlite", "ggml", "autodetect"];
/** models of other frameworks, which deserve a better answer than "unknown": offset, bytes, name */
const ELSEWHERE: readonly (readonly [number, string, string])[] = [
  [4, "TFL3", "a TensorFlow Lite file"],
  [0, "<?xml", "OpenVINO's description of a model"],
  [0, "<net", "OpenVINO's description of a model"],
  [0, "\x89HDF", "a Keras file"],
];

export const PLAN_KEY = "tabtorch.plan";
const MAX_HEADER = 100 * 2 ** 20;

/** Error invalid_encoding: it is none of the formats, or not what `encoding` says. */
export function checkedFormat(bytes: Uint8Array<ArrayBuffer>, encoding: number): Format {
  const possible = ENCODINGS[encoding] ?? fail("invalidEncoding", `there is no encoding ${encoding}`);
  const format = formatOf(bytes);
  if (!format) {
    const other = ELSEWHERE.find(([at, mark]) => startsWith(bytes, at, mark));
    const hint = "models come as plans (docs/wasi-nn.md), ONNX, .pt2 or TorchScript";
    fail("invalidEncoding", `the model is ${other ? other[2] : "of no known format"}: ${hint}`);
  }
  if (format === "safetensors") fail("invalidEncoding", "the safetensors file has weights, and no plan of a model");
  if (!possible.includes(format))
    fail("invalidEncoding", `the model is ${format}, and not what encoding ${ENCODING_NAMES[encoding]} stands for`);
  return format;
}

export function formatOf(bytes: Uint8Array<ArrayBuffer>): Format | null {
  if (startsWith(bytes, 0, "GGUF")) return "gguf";
  if (startsWith(bytes, 0, "PK\x03\x04")) return archiveFormat(bytes);
  const header = safetensorsHeader(bytes);
  if (header) return header.plan ? "plan" : "safetensors";
  return isOnnx(bytes) ? "onnx" : null;
}

function startsWith(bytes: Uint8Array, at: number, mark: string): boolean {
  return mark.length + at <= bytes.length && [...mark].every((c, index) => bytes[at + index] === c.charCodeAt(0));
}

function viewOf(bytes: Uint8Array<ArrayBuffer>): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** What a safetensors file is: whether it has a plan, and how many bytes it has by its own account. null: it is none. */
export function safetensorsHeader(bytes: Uint8Array<ArrayBuffer>): { plan: boolean; nbytes: number } | null {
  if (bytes.length < 10 || bytes[8] !== 0x7b) return null;
  const length = Number(viewOf(bytes).getBigUint64(0, true));
  if (length > Math.min(MAX_HEADER, bytes.length - 8)) return null;
  let header: Record<string, { data_offsets?: [number, number] } | Record<string, string>>;
  try {
    header = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes.subarray(8, 8 + length)));
  } catch {
    return null;
  }
  let end = 0;
  for (const entry of Object.values(header)) {
    const offsets = (entry as { data_offsets?: unknown } | null)?.data_offsets;
    if (Array.isArray(offsets) && Number.isSafeInteger(offsets[1])) end = Math.max(end, offsets[1]);
  }
  const metadata = header.__metadata__ as Record<string, string> | undefined;
  return { plan: typeof metadata?.[PLAN_KEY] === "string", nbytes: 8 + length + end };
}

/** Archives of PyTorch are told by the names of what is in them. */
function archiveFormat(bytes: Uint8Array<ArrayBuffer>): Format | null {
  let scripted = false;
  for (const name of archiveNames(bytes)) {
    const inside = name.slice(name.indexOf("/") + 1);
    if (/^(models\/.*\.json|serialized_exported_program\.json|archive_format)$/.test(inside)) return "pt2";
    if (name === "serialized_exported_program.json") return "pt2";
    if (inside.startsWith("code/") || inside === "constants.pkl") scripted = true;
  }
  return scripted ? "torchscript" : null;
}

const DIRECTORY_END = 0x06054b50;
const DIRECTORY_ENTRY = 0x02014b50;

/** The names in a zip archive's directory, which lies at its end. None, where there is no whole directory. */
function archiveNames(bytes: Uint8Array<ArrayBuffer>): string[] {
  const view = viewOf(bytes);
  const names: string[] = [];
  for (let end = bytes.length - 22; end >= Math.max(0, bytes.length - 22 - 65535); end--) {
    if (view.getUint32(end, true) !== DIRECTORY_END) continue;
    let at = view.getUint32(end + 16, true);
    for (let left = view.getUint16(end + 10, true); left > 0; left--) {
      if (at + 46 > bytes.length || view.getUint32(at, true) !== DIRECTORY_ENTRY) return names;
      const length = view.getUint16(at + 28, true);
      names.push(new TextDecoder().decode(bytes.subarray(at + 46, at + 46 + length)));
      at += 46 + length + view.getUint16(at + 30, true) + view.getUint16(at + 32, true);
    }
    return names;
  }
  return names;
}

/** fields of onnx.ModelProto, and their wire types: 0 a number, 2 a length and so many bytes */
const MODEL_PROTO: Record<number, number> = {
  1: 0,
  2: 2,
  3: 2,
  4: 2,
  5: 0,
  6: 2,
  7: 2,
  8: 2,
  14: 2,
  20: 2,
  25: 2,
  26: 2,
};
const GRAPH = 7;
const MAX_FIELDS = 100_000;

/** Protocol buffers have no mark at their beginning: it is an ONNX model if its fields are those of one, to the last byte. */
function isOnnx(bytes: Uint8Array<ArrayBuffer>): boolean {
  let at = 0;
  const number = (): number => {
    let value = 0;
    for (let shift = 0; shift < 10; shift++) {
      const byte = bytes[at++] ?? Number.NaN;
      value += (byte & 127) * 128 ** shift;
      if (Number.isNaN(byte)) return Number.NaN;
      if (byte < 128) return value;
    }
    return Number.NaN;
  };
  let graph = false;
  for (let field = 0; field < MAX_FIELDS && at < bytes.length; field++) {
    const key = number();
    const id = Math.floor(key / 8);
    if (MODEL_PROTO[id] !== key % 8) return false;
    const value = number();
    if (Number.isNaN(value)) return false;
    if (key % 8 === 2) at += value;
    graph ||= id === GRAPH;
  }
  return graph && at === bytes.length;
}

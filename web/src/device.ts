/** The device in words. */
import type { Device } from "./interpreter";

/** A short line for the header, and all that is known for its tooltip. */
export function deviceWords({ device, version, info, error }: Device): { short: string; long: string; good: boolean } {
  const adapter = info.webgpu?.adapter;
  const long = [
    version && `torch ${version}`,
    adapter &&
      Object.entries(adapter)
        .filter(([, value]) => value)
        .map(([key, value]) => `${key}: ${value}`)
        .join("\n"),
    info.webgpu?.features?.length && `features: ${info.webgpu.features.join(", ")}`,
    !info.webgpu && info.reason,
    info.platform,
  ]
    .filter(Boolean)
    .join("\n");
  if (error) return { short: error, long: error, good: false };
  if (!info.webgpu) return { short: `cpu · no WebGPU: ${info.reason ?? "not known why"}`, long, good: false };
  const parts = [adapter?.vendor, adapter?.architecture, adapter?.description || adapter?.device];
  const name = [...new Set(parts.filter(Boolean))].join(" · ") || "unnamed adapter";
  if (device !== "webgpu") return { short: `${device || "no device"} · WebGPU is there: ${name}`, long, good: true };
  return { short: `webgpu · ${name}`, long, good: true };
}

/** Whether there is no GPU to be had, though nobody has asked for the cpu. */
export function lacksGpu({ info, error }: Device): boolean {
  return !error && !info.webgpu && !/was asked for/.test(info.reason ?? "");
}

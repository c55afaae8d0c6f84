/** The adapter and the device, with everything that the adapter has asked for. */

import { exact, fused } from "./arithmetic";

const MATRICES = "chromium-experimental-subgroup-matrix";
const WANTED: string[] = ["shader-f16", "subgroups", "timestamp-query", MATRICES];
const RETRY_MS = 100;
const SOFTWARE = /swiftshader|llvmpipe|lavapipe/i;

export interface Opened {
  device: GPUDevice;
  adapter: { vendor: string; architecture: string; device: string; description: string; isFallback: boolean };
  limits: Record<string, number>;
  features: string[];
  /** whether it computes on the processor */
  software: boolean;
  /** whether its quotients and square roots are correctly rounded; asked of software adapters alone, whose are a processor's */
  exact: boolean;
  /** whether its `fma` rounds once */
  fused: boolean;
  /** sides of the square matrices of halves that a subgroup multiplies at once, and adds up in float32 */
  matrices: number[];
}

const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

/** Asks until there is an adapter: while the browser's GPU process starts, the answer is null. */
async function findAdapter(gpu: GPU, patience: number): Promise<GPUAdapter> {
  const until = Date.now() + patience;
  for (;;) {
    let reason = "requestAdapter() found none";
    try {
      const adapter = await gpu.requestAdapter({ powerPreference: "high-performance" });
      if (adapter !== null) return adapter;
    } catch (error) {
      reason = (error as Error).message;
    }
    if (Date.now() >= until) throw new Error(`no WebGPU adapter: ${reason}`);
    await sleep(RETRY_MS);
  }
}

function limitsOf(limits: GPUSupportedLimits): Record<string, number> {
  const found: Record<string, number> = {};
  // The limits are getters on the prototype, which is all that enumerates them in every browser.
  for (const name in limits) {
    const value = (limits as unknown as Record<string, unknown>)[name];
    if (typeof value === "number") found[name] = value;
  }
  return found;
}

/** What Chromium's experimental feature says of an adapter, see `Opened.matrices`. */
interface MatrixConfig {
  componentType: string;
  resultComponentType: string;
  M: number;
  N: number;
  K: number;
}

function matricesOf(info: { subgroupMatrixConfigs?: Iterable<MatrixConfig> }, { features }: GPUDevice): number[] {
  if (!["shader-f16", "subgroups", MATRICES].every((name) => features.has(name))) return [];
  return [...(info.subgroupMatrixConfigs ?? [])]
    .filter((each) => each.componentType === "f16" && each.resultComponentType === "f32")
    .filter(({ M, N, K }) => M === N && N === K)
    .map(({ M }) => M);
}

/** Throws, saying why, where there is no adapter within `patience` ms or no device. */
export async function openDevice(gpu: GPU, patience: number): Promise<Opened> {
  const adapter = await findAdapter(gpu, patience);
  const requiredLimits = limitsOf(adapter.limits);
  const { features } = adapter;
  // matrices of halves are of no use without halves
  const asked = WANTED.filter((name) => features.has(name) && (name !== MATRICES || features.has("shader-f16")));
  const requiredFeatures = asked as GPUFeatureName[];
  const device = await adapter.requestDevice({ label: "tabtorch", requiredLimits, requiredFeatures });
  const info = adapter.info as GPUAdapterInfo & { isFallbackAdapter?: boolean };
  const words = `${info.vendor} ${info.architecture} ${info.device} ${info.description}`;
  const software = info.isFallbackAdapter === true || SOFTWARE.test(words);
  return {
    device,
    software,
    exact: software && (await exact(device).catch(() => false)), // what cannot be tried is not relied on
    fused: await fused(device).catch(() => false),
    matrices: matricesOf(info as object, device),
    adapter: {
      vendor: info.vendor,
      architecture: info.architecture,
      device: info.device,
      description: info.description,
      isFallback: info.isFallbackAdapter ?? false,
    },
    limits: limitsOf(device.limits),
    features: [...device.features].sort(),
  };
}

/** Where a browser gives no WebGPU: which one would, and which setting. */

export interface Browser {
  userAgent: string;
  /** There is `navigator.gpu`. */
  offersWebGpu: boolean;
  /** The page came by https, or from this machine. */
  isSecure: boolean;
}

export function thisBrowser(): Browser {
  return { userAgent: navigator.userAgent, offersWebGpu: "gpu" in navigator, isSecure: isSecureContext };
}

/** What to do, in two or three sentences; scripts run on the CPU meanwhile. */
export function advice({ userAgent, offersWebGpu, isSecure }: Browser): string {
  const meanwhile = "No GPU can be used here, so scripts run on the CPU: the same results, more slowly.";
  if (!isSecure) return `${meanwhile} Browsers offer WebGPU only to pages that come by https, or from localhost.`;
  return `${meanwhile} ${wayOf(userAgent, offersWebGpu)}`;
}

/** iPhones and iPads have Safari's engine, whatever the browser is called. */
function wayOf(userAgent: string, offers: boolean): string {
  if (/iPhone|iPad/.test(userAgent)) return "Here it comes with iOS and iPadOS 26: update the system.";
  if (/Firefox\//.test(userAgent)) return firefox(userAgent, offers);
  if (/Chrome\//.test(userAgent)) return chromium(userAgent, offers);
  if (/Safari\//.test(userAgent)) return safari();
  return "Current versions of Chrome, Edge, Safari and Firefox have WebGPU.";
}

function firefox(userAgent: string, offers: boolean): string {
  if (offers) return "Firefox found no graphics driver that it trusts: about:support says why, under Graphics.";
  const system = /Windows/.test(userAgent)
    ? "Firefox has it on Windows since version 141."
    : /Mac OS X/.test(userAgent)
      ? "Firefox has it on Macs with Apple's chips since version 145."
      : "On this system Firefox has it behind a setting.";
  return `${system} In about:config, set dom.webgpu.enabled to true, and start Firefox again; Chrome is another way.`;
}

function chromium(userAgent: string, offers: boolean): string {
  if (!offers && /Windows|Mac OS X|CrOS/.test(userAgent)) return "Chrome and Edge have it since version 113: update.";
  const acceleration =
    "Switch on “Use graphics acceleration when available” in the browser's settings, under System; chrome://gpu says more.";
  if (/Android/.test(userAgent)) return "Chrome has it on Android 12 and later, since version 121.";
  if (!/Linux/.test(userAgent)) return acceleration;
  return `On Linux, enable chrome://flags/#enable-unsafe-webgpu and chrome://flags/#enable-vulkan. ${acceleration}`;
}

function safari(): string {
  return "Safari has it since version 26, on macOS 26. Before that: Settings, Feature Flags, WebGPU. Chrome is another way.";
}

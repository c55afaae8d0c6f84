/**
 * Browsers are slow to say that the GPU is done. Firefox looks on a timer of about 100 ms, and sooner only when
 * something is submitted: so submit nothing, until what is waited for is there. Chromium's GPU process looks every 2.5 ms
 * or so, and sooner when a command arrives: so ask it something, again and again (0.5 ms a read, not 1.3 to 2.7).
 */

const EAGER_MS = 1; // after which to ask seldom: the work is long, and the processor has other things to do
const GIVE_UP_MS = 200;

type Manner = (device: GPUDevice, waiting: () => boolean) => void;

const agent = () => (typeof navigator === "object" ? (navigator.userAgent ?? "") : "");

const byEmptySubmits: Manner = (device, waiting) => {
  const nudge = () => {
    if (!waiting()) return;
    device.queue.submit([]);
    setTimeout(nudge, 1);
  };
  nudge();
};

const byQuestions: Manner = async (device, waiting) => {
  const begin = performance.now();
  while (waiting()) {
    const passed = performance.now() - begin;
    if (passed > GIVE_UP_MS) return;
    if (passed > EAGER_MS) await new Promise((resolve) => setTimeout(resolve, 1));
    device.pushErrorScope("validation");
    await device.popErrorScope().catch(() => {}); // a lost device ends what is waited for, too
  }
};

/** Whether this is Firefox. */
export const firefox = () => /firefox/i.test(agent());

function manner(): Manner | null {
  if (firefox()) return byEmptySubmits;
  return /chrom/i.test(agent()) ? byQuestions : null;
}

/** `promise`, of something that the GPU does, sooner. */
export function nudged<T>(device: GPUDevice, promise: Promise<T>): Promise<T> {
  const nudge = manner();
  if (nudge === null) return promise;
  let waiting = true;
  const done = promise.finally(() => {
    waiting = false;
  });
  nudge(device, () => waiting);
  return done;
}

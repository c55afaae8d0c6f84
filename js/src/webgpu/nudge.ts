/**
 * Firefox looks at its maps and finished work on a timer of about 100 ms, and sooner only when
 * something is submitted: so submit nothing, until what is waited for is there.
 */

const slow = () => typeof navigator === "object" && /firefox/i.test(navigator.userAgent ?? "");

export function nudged<T>(queue: GPUQueue, promise: Promise<T>): Promise<T> {
  if (!slow()) return promise;
  let waiting = true;
  const done = promise.finally(() => {
    waiting = false;
  });
  const nudge = () => {
    if (!waiting) return;
    queue.submit([]);
    setTimeout(nudge, 1);
  };
  nudge();
  return done;
}

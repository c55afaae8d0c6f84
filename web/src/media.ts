/** The camera and the microphone: on once they are asked, and off when the script has ended. */
import type { About, Control, Parts } from "./controls";

/** What the reader allows. Rejects with the browser's reason, in words that help. */
async function stream(wanted: MediaStreamConstraints): Promise<MediaStream> {
  const what = wanted.video ? "camera" : "microphone";
  const refused = (name: string, message: string) => Object.assign(new Error(message), { name });
  if (!navigator.mediaDevices)
    throw refused("NotSupportedError", `the ${what} can be had on pages of https and of localhost alone`);
  try {
    return await navigator.mediaDevices.getUserMedia(wanted);
  } catch (error) {
    const { name, message } = error as Error;
    if (name === "NotAllowedError")
      throw refused(
        name,
        `the ${what} was refused: allow it beside the page's address, and run this again (${message})`,
      );
    if (name === "NotFoundError") throw refused(name, `there is no ${what} (${message})`);
    throw refused(name, `the ${what} could not be had: ${message}`);
  }
}

function stop(media: MediaStream | undefined): void {
  for (const track of media?.getTracks() ?? []) track.stop();
}

export function camera(control: Control, { height, width }: About): Parts {
  const video = document.createElement("video");
  Object.assign(video, { muted: true, playsInline: true, width, height, ariaLabel: "What the camera sees" });
  control.element.append(video);
  const flat = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  let media: Promise<MediaStream> | undefined;
  const begin = async () => {
    const found = await stream({ video: { width: { ideal: width }, height: { ideal: height } } });
    video.srcObject = found;
    await video.play();
    return found;
  };
  return {
    async ask() {
      media ??= begin();
      await media.catch((error) => {
        media = undefined; // the next one asks again
        throw error;
      });
      const context = flat as OffscreenCanvasRenderingContext2D;
      context.drawImage(video, ...middle(video.videoWidth, video.videoHeight, width / height), 0, 0, width, height);
      return context.getImageData(0, 0, width, height).data.buffer;
    },
    live(live) {
      if (live) return;
      void media?.then(stop, () => {});
      media = undefined;
      video.srcObject = null;
    },
  };
}

/** The largest part of a picture, around its middle, that is so many times as wide as high. */
function middle(width: number, height: number, form: number): [x: number, y: number, width: number, height: number] {
  const across = Math.min(width, height * form);
  const down = Math.min(height, width / form);
  return [(width - across) / 2, (height - down) / 2, across, down];
}

export function microphone(control: Control, { seconds, rate }: About): Parts {
  const state = document.createElement("span");
  state.setAttribute("role", "status");
  state.textContent = "The microphone is off";
  control.element.append(state);
  let media: MediaStream | undefined;
  return {
    async ask() {
      media = await stream({ audio: true });
      state.textContent = "The microphone is on";
      try {
        return await sound(await recorded(media, seconds), seconds, rate);
      } finally {
        stop(media);
        state.textContent = "The microphone is off";
      }
    },
    live(live) {
      if (!live) stop(media);
    },
  };
}

function recorded(media: MediaStream, seconds: number): Promise<Blob> {
  const recorder = new MediaRecorder(media);
  const parts: Blob[] = [];
  recorder.addEventListener("dataavailable", ({ data }) => parts.push(data));
  const done = new Promise<Blob>((resolve) => {
    recorder.addEventListener("stop", () => resolve(new Blob(parts, { type: recorder.mimeType })));
  });
  recorder.addEventListener("start", () => {
    // its end is not exact
    setTimeout(() => recorder.state === "recording" && recorder.stop(), 1000 * seconds + 100);
  });
  recorder.start();
  return done;
}

/** So many seconds of it, of all channels together, at this rate. */
async function sound(record: Blob, seconds: number, rate: number): Promise<ArrayBuffer> {
  const audio = new OfflineAudioContext(1, 1, rate);
  const found = await audio.decodeAudioData(await record.arrayBuffer());
  const samples = new Float32Array(Math.round(seconds * rate));
  const count = found.numberOfChannels;
  for (let channel = 0; channel < count; channel++) {
    found
      .getChannelData(channel)
      .subarray(0, samples.length)
      .forEach((value, i) => {
        samples[i] = (samples[i] as number) + value / count;
      });
  }
  return samples.buffer;
}

/** The default exports of all files of `devices/`: written by js/devices.mjs when the runtime is bundled. */
declare module "devices" {
  const kinds: import("./device").DeviceKind[];
  export default kinds;
}

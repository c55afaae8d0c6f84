// A guest in AssemblyScript: a model by its name, a tensor made here, the largest of what comes out.
// @ts-nocheck: AssemblyScript's types
@external("wasi_ephemeral_nn", "load_by_name")
declare function load_by_name(name: usize, length: u32, graph: usize): u32;
@external("wasi_ephemeral_nn", "init_execution_context")
declare function init_execution_context(graph: u32, context: usize): u32;
@external("wasi_ephemeral_nn", "set_input")
declare function set_input(context: u32, index: u32, tensor: usize): u32;
@external("wasi_ephemeral_nn", "compute")
declare function compute(context: u32): u32;
@external("wasi_ephemeral_nn", "get_output")
declare function get_output(context: u32, index: u32, buffer: usize, size: u32, written: usize): u32;
@external("wasi_snapshot_preview1", "fd_write")
declare function fd_write(fd: u32, vectors: usize, count: u32, written: usize): u32;
@external("wasi_snapshot_preview1", "proc_exit")
declare function proc_exit(code: u32): void;

@unmanaged
class Tensor {
  dims: usize;
  rank: u32;
  type: u8;
  data: usize;
  size: u32;
}

function say(line: string): void {
  const text = String.UTF8.encode(line + "\n");
  const vector = new StaticArray<u32>(2);
  vector[0] = <u32>changetype<usize>(text);
  vector[1] = text.byteLength;
  fd_write(1, changetype<usize>(vector), 1, changetype<usize>(new StaticArray<u32>(1)));
}

function ok(error: u32): void {
  if (error != 0) {
    say("error " + error.toString());
    proc_exit(1);
  }
}

export function _start(): void {
  const handle = new StaticArray<u32>(1);
  const name = String.UTF8.encode("plan");
  ok(load_by_name(changetype<usize>(name), name.byteLength, changetype<usize>(handle)));
  ok(init_execution_context(handle[0], changetype<usize>(handle)));
  const context = handle[0];
  const dims: StaticArray<u32> = [1, 8];
  const x = new StaticArray<f32>(8);
  for (let k = 0; k < 8; k++) x[k] = <f32>k / 4 - 1;
  const tensor = changetype<Tensor>(heap.alloc(offsetof<Tensor>()));
  tensor.dims = changetype<usize>(dims);
  tensor.rank = 2;
  tensor.type = 1;
  tensor.data = changetype<usize>(x);
  tensor.size = 32;
  ok(set_input(context, 0, changetype<usize>(tensor)));
  ok(compute(context));
  const out = new StaticArray<f32>(16);
  ok(get_output(context, 0, changetype<usize>(out), 64, changetype<usize>(handle)));
  let best = 0;
  const count = <i32>handle[0] / 4;
  for (let k = 1; k < count; k++) if (out[k] > out[best]) best = k;
  say("class " + best.toString() + " of " + count.toString() + ", " + reinterpret<u32>(out[best]).toString());
}

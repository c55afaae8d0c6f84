/* Provokes every error number. Prints a line for each call: what was done, and the number. Arguments: a plan file. */
#include "wasi_nn.h"

#define SAY(what, call) printf("%s: %u\n", what, (unsigned)(call))

int main(int argc, char **argv) {
  uint32_t graph = 77, context = 77, written = 77, size;
  float out[64] = {1};
  nn_builder plan = {file_of(argv[1], &size), size}, nonsense = {"nonsense", 8}, nothing = {0, 0};
  nn_builder onnx = {"\x08\x07\x3a\x00", 4}, outside = {(void *)0xfffffff0, 64}, gguf = {"GGUF\3\0\0\0", 8};
  nn_builder huge[3] = {{0, 0x7fffffff}, {0, 0x7fffffff}, {0, 0x7fffffff}};
  SAY("load", nn_load(&plan, 1, PYTORCH, GPU, &graph));
  SAY("load, no bytes", nn_load(&nothing, 1, PYTORCH, GPU, &graph));
  SAY("load, nothing", nn_load(&nothing, 0, PYTORCH, GPU, &graph));
  SAY("load, nonsense", nn_load(&nonsense, 1, AUTODETECT, CPU, &graph));
  SAY("load, another encoding", nn_load(&onnx, 1, PYTORCH, CPU, &graph));
  SAY("load, no compiler", nn_load(&onnx, 1, ONNX, CPU, &graph));
  SAY("load, gguf", nn_load(&gguf, 1, 5, CPU, &graph));
  SAY("load, encoding 9", nn_load(&plan, 1, 9, CPU, &graph));
  SAY("load, target 9", nn_load(&plan, 1, PYTORCH, 9, &graph));
  SAY("load, tpu", nn_load(&plan, 1, PYTORCH, TPU, &graph));
  SAY("load, outside of memory", nn_load(&outside, 1, PYTORCH, CPU, &graph));
  SAY("load, too large", nn_load(huge, 3, PYTORCH, CPU, &graph));
  SAY("load, result outside", nn_load(&plan, 1, PYTORCH, CPU, (void *)0xfffffffe));
  SAY("load_by_name, unknown", nn_load_by_name("unknown", 7, &graph));
  SAY("load_by_name, no text", nn_load_by_name("\xff\xfe", 2, &graph));
  SAY("load_by_name_with_config, no json", nn_load_by_name_with_config("plan", 4, "{", 1, &graph));
  SAY("init_execution_context, no graph", nn_init_execution_context(99, &context));
  SAY("init_execution_context", nn_init_execution_context(graph, &context));
  SAY("compute, no inputs", nn_compute(context));
  SAY("compute, no context", nn_compute(99));
  SAY("get_output, not computed", nn_get_output(context, 0, out, sizeof out, &written));

  float x[16] = {0};
  uint32_t dims[2] = {2, 8}, wrong[2] = {2, 7}, overflow[2] = {0x80000000, 0x80000000};
  nn_tensor fits = {dims, 2, F32, x, sizeof x};
  nn_tensor shape = {wrong, 2, F32, x, 56}, rank = {dims, 1, F32, x, 8}, bytes = {dims, 2, F32, x, 60};
  nn_tensor type = {dims, 2, 9, x, sizeof x}, fraction = {dims, 2, I64, x, 128}, far = {dims, 2, F32, (void *)0xffffff00, 64};
  nn_tensor many = {overflow, 2, F32, x, 0}, ranks = {dims, 0x40000001, F32, x, 64};
  SAY("set_input, no context", nn_set_input(99, 0, &fits));
  SAY("set_input, no such input", nn_set_input(context, 5, &fits));
  SAY("set_input, shape", nn_set_input(context, 0, &shape));
  SAY("set_input, rank", nn_set_input(context, 0, &rank));
  SAY("set_input, length", nn_set_input(context, 0, &bytes));
  SAY("set_input, type", nn_set_input(context, 0, &type));
  SAY("set_input, not enough data", nn_set_input(context, 0, &far));
  SAY("set_input, overflow", nn_set_input(context, 0, &many));
  SAY("set_input, rank overflow", nn_set_input(context, 0, &ranks));
  int64_t whole[16] = {(1LL << 53) + 1};
  fraction.data = whole;
  SAY("set_input, not exact", nn_set_input(context, 0, &fraction));
  SAY("set_input, address", nn_set_input(context, 0, (void *)0xfffffffc));
  SAY("set_input", nn_set_input(context, 0, &fits));
  SAY("compute", nn_compute(context));
  SAY("get_output, no such output", nn_get_output(context, 7, out, sizeof out, &written));
  SAY("get_output, address", nn_get_output(context, 0, (void *)0xfffffff0, sizeof out, &written));
  out[0] = 123;
  SAY("get_output, too small", nn_get_output(context, 0, out, 4, &written));
  printf("kept %g, needs %u\n", out[0], (unsigned)written);
  SAY("get_output", nn_get_output(context, 0, out, sizeof out, &written));
  printf("written %u\n", (unsigned)written);
  SAY("compute_single", nn_compute_single(context));
  SAY("get_output_single", nn_get_output_single(context, 0, out, sizeof out, &written));
  SAY("fini_single", nn_fini_single(context));
  SAY("what no host knows", nn_of_a_later_version(1, 2));

  /* an index that is out of range is known when the result is read, and concerns no later call */
  uint32_t lookup = context_of(named("lookup")), one = 1, result;
  int64_t index = 50;
  nn_tensor at = {&one, 1, I64, &index, 8};
  SAY("set_input, an index", nn_set_input(lookup, 0, &at));
  SAY("compute, an index", nn_compute(lookup));
  SAY("get_output, an index", result = nn_get_output(lookup, 0, out, sizeof out, &written));
  index = 3;
  SAY("set_input, a good index", nn_set_input(lookup, 0, &at));
  SAY("compute, a good index", nn_compute(lookup));
  SAY("get_output, a good index", nn_get_output(lookup, 0, out, sizeof out, &written));

  SAY("unload", nn_unload(graph));
  SAY("unload, again", nn_unload(graph));
  SAY("init_execution_context, unloaded", nn_init_execution_context(graph, &context));
  SAY("compute, unloaded", nn_compute(context)); /* a context outlives its graph's handle */
  SAY("finalize_execution_context", nn_finalize_execution_context(context));
  SAY("finalize_execution_context, again", nn_finalize_execution_context(context));
  uint32_t last, opened = 0;
  graph = named("plan");
  while (!(result = nn_init_execution_context(graph, &last)) && opened < 100000) opened++;
  printf("too many contexts: %u\n", (unsigned)result);
  return 0;
}

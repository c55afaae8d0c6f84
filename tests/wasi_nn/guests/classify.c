/* The shape of Wasmtime's and WasmEdge's examples: a model by its name, or a file of it, and a tensor of a file; the first five
 * classes. Arguments: the model (or name:NAME), its encoding, the file of the tensor, its dimensions. */
#include "wasi_nn.h"

int main(int argc, char **argv) {
  uint32_t graph, dims[8], rank = 0, size;
  if (strncmp(argv[1], "name:", 5) == 0) {
    OK(nn_load_by_name(argv[1] + 5, strlen(argv[1] + 5), &graph));
  } else {
    void *bytes = file_of(argv[1], &size);
    nn_builder builder = {bytes, size};
    OK(nn_load(&builder, 1, atoi(argv[2]), GPU, &graph));
    free(bytes);
  }
  uint32_t context = context_of(graph);
  nn_tensor tensor = {.dims = dims, .type = F32};
  tensor.data = file_of(argv[3], &tensor.size);
  for (int k = 4; k < argc; k++) dims[rank++] = atoi(argv[k]);
  tensor.rank = rank;
  OK(nn_set_input(context, 0, &tensor));
  OK(nn_compute(context));
  static float out[4096];
  OK(nn_get_output(context, 0, out, sizeof out, &size));
  printf("%u bytes\n", (unsigned)size);
  for (int place = 1; place <= 5 && place <= (int)size / 4; place++) {
    uint32_t best = 0;
    for (uint32_t k = 1; k < size / 4; k++)
      if (out[k] > out[best]) best = k;
    printf("%d. class %u: %.6f\n", place, (unsigned)best, out[best]);
    out[best] = -1e38f;
  }
  return 0;
}

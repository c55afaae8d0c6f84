/* Graphs and contexts side by side: two graphs, four contexts of them, inputs set again, and memory that grows between calls. */
#include "wasi_nn.h"

static void say(uint32_t context, const char *name) {
  float out[64];
  uint32_t written;
  OK(nn_get_output(context, 0, out, sizeof out, &written));
  printf("%s", name);
  for (uint32_t k = 0; k < written / 4; k++) printf(" %.9g", out[k]);
  printf("\n");
}

int main(int argc, char **argv) {
  uint32_t size;
  nn_builder builder = {file_of(argv[1], &size), size};
  uint32_t graphs[2], contexts[4];
  OK(nn_load(&builder, 1, AUTODETECT, CPU, &graphs[0]));
  graphs[1] = named("other");
  for (int k = 0; k < 4; k++) contexts[k] = context_of(graphs[k / 2]);
  float x[24];
  for (int k = 0; k < 24; k++) x[k] = k / 8.0f - 1;
  set_f32(contexts[0], 0, x, 3, 8);
  set_f32(contexts[0], 0, x, 1, 8); /* the later one counts */
  set_f32(contexts[1], 0, x + 8, 2, 8);
  OK(nn_compute(contexts[1]));
  OK(nn_compute(contexts[0]));
  set_f32(contexts[2], 0, x, 2, 8);
  set_f32(contexts[3], 0, x + 8, 1, 8);
  OK(nn_compute(contexts[3]));
  OK(nn_compute(contexts[2]));
  char *more = malloc(8 << 20); /* another memory, and the old views of it are no more */
  memset(more, 7, 8 << 20);
  say(contexts[3], "3");
  say(contexts[0], "0");
  say(contexts[2], "2");
  say(contexts[1], "1");
  OK(nn_finalize_execution_context(contexts[0]));
  OK(nn_unload(graphs[0]));
  memset(x, 0, sizeof x); /* the host has inputs of its own */
  OK(nn_compute(contexts[1]));
  say(contexts[1], "1");
  set_f32(contexts[2], 0, (float *)(more + 4 - (uintptr_t)more % 4) + 1000000, 1, 8);
  say(contexts[3], "3");
  return more[5] != 7;
}

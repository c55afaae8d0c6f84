/* wasi-nn for C: the functions of wasi-nn.witx, with what WasmEdge added, and a few things that the guests here share. */
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  const void *data;
  uint32_t size;
} nn_builder;

typedef struct {
  const uint32_t *dims;
  uint32_t rank;
  uint8_t type;
  const void *data;
  uint32_t size;
} nn_tensor;

enum { OPENVINO, ONNX, TENSORFLOW, PYTORCH, TFLITE, AUTODETECT };
enum { CPU, GPU, TPU };
enum { F16, F32, F64, U8, I32, I64 };

#ifndef NN_MODULE
#define NN_MODULE "wasi_ephemeral_nn"
#endif
#define NN(name) __attribute__((import_module(NN_MODULE), import_name(#name))) uint32_t nn_##name
NN(load)(const nn_builder *builders, uint32_t count, uint32_t encoding, uint32_t target, uint32_t *graph);
NN(load_by_name)(const char *name, uint32_t length, uint32_t *graph);
NN(load_by_name_with_config)
(const char *name, uint32_t length, const char *config, uint32_t config_length, uint32_t *graph);
NN(init_execution_context)(uint32_t graph, uint32_t *context);
NN(set_input)(uint32_t context, uint32_t index, const nn_tensor *tensor);
NN(compute)(uint32_t context);
NN(get_output)(uint32_t context, uint32_t index, void *buffer, uint32_t size, uint32_t *written);
NN(compute_single)(uint32_t context);
NN(get_output_single)(uint32_t context, uint32_t index, void *buffer, uint32_t size, uint32_t *written);
NN(fini_single)(uint32_t context);
NN(unload)(uint32_t graph);
NN(finalize_execution_context)(uint32_t context);
NN(of_a_later_version)(uint32_t a, uint32_t b);

/* Ends the program where a call gives an error that is not expected. */
#define OK(call)                                                 \
  do {                                                           \
    uint32_t error = (call);                                     \
    if (error) {                                                 \
      fprintf(stderr, "%s: error %u\n", #call, (unsigned)error); \
      exit(1);                                                   \
    }                                                            \
  } while (0)

static inline void *file_of(const char *path, uint32_t *size) {
  FILE *file = fopen(path, "rb");
  if (!file) {
    perror(path);
    exit(2);
  }
  fseek(file, 0, SEEK_END);
  *size = ftell(file);
  rewind(file);
  void *bytes = malloc(*size);
  if (fread(bytes, 1, *size, file) != *size) exit(2);
  fclose(file);
  return bytes;
}

static inline uint32_t named(const char *name) {
  uint32_t graph;
  OK(nn_load_by_name(name, strlen(name), &graph));
  return graph;
}

static inline uint32_t context_of(uint32_t graph) {
  uint32_t context;
  OK(nn_init_execution_context(graph, &context));
  return context;
}

static inline void set_f32(uint32_t context, uint32_t index, const float *data, uint32_t rows, uint32_t columns) {
  uint32_t dims[2] = {rows, columns};
  nn_tensor tensor = {dims, 2, F32, data, rows * columns * 4};
  OK(nn_set_input(context, index, &tensor));
}

/* Adapters as onnxruntime.AdapterFormat and onnxruntime-genai's tools write them (.onnx_adapter): a table of
 * flatbuffers with the name, shape, type and bytes of each matrix, which are the network's inputs as they are: A [in,
 * rank] and B [rank, out], already scaled. The format: onnxruntime/core/session/lora (adapter_schema.fbs). */
#ifndef ONNX_ADAPTER_H
#define ONNX_ADAPTER_H

#include <stddef.h>
#include <stdint.h>

enum { ONNX_ADAPTER_WHY = 256 };

struct onnx_adapter {
    unsigned char *data;      /* the whole file */
    size_t size, list;        /* list: where the parameters' offsets are */
    uint32_t n;               /* parameters */
    char why[ONNX_ADAPTER_WHY];
};

/* Does the file begin as one? */
int onnx_adapter_is(const char *path);

/* 0: why says what is wrong, and nothing is open. Parameters are checked when they are asked for. */
int onnx_adapter_open(struct onnx_adapter *a, const char *path);

/* Of parameter i < n; NULL: why says what is wrong. */
const char *onnx_adapter_name(struct onnx_adapter *a, uint32_t i);

/* The shape of a matrix of f32, f16 or bf16 whose bytes the file has. 0: why says what is wrong. */
int onnx_adapter_shape(struct onnx_adapter *a, const char *name, int64_t shape[2]);

/* Its numbers, column by column, which the caller frees. NULL: why says what is wrong. */
float *onnx_adapter_read_turned(struct onnx_adapter *a, const char *name);

void onnx_adapter_close(struct onnx_adapter *a);

#endif

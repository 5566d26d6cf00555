/* Files of the package safetensors: a header of JSON with the type, shape and place of each tensor, then their bytes.
 * The format: github.com/huggingface/safetensors. */
#ifndef SAFETENSORS_H
#define SAFETENSORS_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

enum { SAFETENSORS_WHY = 256 };

struct safetensors {
    FILE *file;
    json_t *header;           /* by tensor; __metadata__ is none */
    uint64_t data, bytes;     /* where the tensors' bytes begin in the file, and how many there are */
    char why[SAFETENSORS_WHY];
};

/* 0: why says what is wrong, and nothing is open. Tensors are checked when they are asked for. */
int safetensors_open(struct safetensors *s, const char *path);

/* The shape of a matrix of F32, F16 or BF16 whose bytes the file has. 0: why says what is wrong. */
int safetensors_shape(struct safetensors *s, const char *name, int64_t shape[2]);

/* Its numbers, row by row, which the caller frees. NULL: why says what is wrong. */
float *safetensors_read(struct safetensors *s, const char *name);

void safetensors_close(struct safetensors *s);

#endif

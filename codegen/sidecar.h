/* The weights in a file of their own (sidecar.c). */
#pragma once

#include "codegen/codegen.h"

struct sink;

/* Bytes before the weights; head and weights into an empty file, with their hashes. */
uint64_t sidecar_head_size(struct arena *, const struct weights_writer *);
bool sidecar_put(struct sink *, struct arena *, const struct weights_writer *, uint64_t *hash, uint64_t *head_hash);

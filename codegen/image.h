/* Putting the weights into a linked file and the file into place (image.c, object.c). */
#ifndef MCC_CODEGEN_IMAGE_H
#define MCC_CODEGEN_IMAGE_H

#include "codegen/codegen.h"

struct sink;
struct function_names;

/* image: a linked shared object with a placeholder of the weights as its last segment. Writes it with the weights in
 * place, the note sealed, functions named, atomically to path. */
bool image_write(struct context *, struct arena *, struct span image, const struct weights_writer *,
                 const struct function_names *, const char *query, const char *path);

/* merged: a relocatable file. Writes it with the weights, all symbols but `query` local, functions named, as it is or
 * as the one member of an archive. */
bool object_write(struct context *, struct arena *, struct span merged, const struct weights_writer *,
                  const struct function_names *, const char *query, enum output_kind, const char *path);

/* The sidecar (sidecar.c): bytes before the weights; head and weights into an empty file, with their hashes. */
uint64_t sidecar_head_size(struct arena *, const struct weights_writer *);
bool sidecar_put(struct sink *, struct arena *, const struct weights_writer *, uint64_t *hash, uint64_t *head_hash);

#endif

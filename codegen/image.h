/* Putting the weights into a linked file and the file into place (image.c, object.c). */
#ifndef MCC_CODEGEN_IMAGE_H
#define MCC_CODEGEN_IMAGE_H

#include "codegen/codegen.h"

/* image: a linked shared object with a placeholder of the weights as its last segment. Writes it with the weights in
 * place, the note sealed, atomically to path. */
bool image_write(struct context *, struct arena *, struct span image, const struct weights_writer *, const char *query,
                 const char *path);

/* merged: a relocatable file. Writes it with the weights, all symbols but `query` local. */
bool object_write(struct context *, struct arena *, struct span merged, const struct weights_writer *,
                  const char *query, const char *path);

#endif

/* COFF objects and PE images (coff.c, coff_image.c): the little of them that mcc writes and patches itself. Layouts:
 * the PE Format of Microsoft's documentation.
 */
#ifndef MCC_CODEGEN_COFF_H
#define MCC_CODEGEN_COFF_H

#include "codegen/container/container.h"

/* The section of the table's pointers, whose first bytes are mcc_rt_model; of the weights; of the note. */
#define COFF_TABLE ".mccrt"
#define COFF_WEIGHTS ".mccw"
#define COFF_NOTE ".mccnote"

/* The row of container.c. */
struct span coff_object(struct arena *, const struct platform *, const struct object *);
struct span coff_rename(struct arena *, struct span object, const char *from, const char *to);
void coff_link(struct linking *);
bool coff_library(const struct linked *);

#endif

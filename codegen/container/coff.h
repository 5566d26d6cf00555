/* COFF objects and PE images (coff.c, coff_image.c): the little of them that mcc writes and patches itself. Layouts:
 * the PE Format of Microsoft's documentation.
 */
#pragma once

#include "codegen/container/container.h"

/* The section of the table's pointers, whose first bytes are mcc_rt_model; of the weights; of the note; of the graph;
 * of how it was made. */
#define COFF_TABLE ".mccrt"
#define COFF_WEIGHTS ".mccw"
#define COFF_NOTE ".mccnote"
#define COFF_GRAPH ".mccg"
#define COFF_BUILD ".mccb"
/* What a library calls itself, whatever its file is called (runtime/windows/rt_threads.c). */
#define COFF_NAME "model.dll"

#define COFF_IMAGE_MAX 1900000000u /* bytes of an image: Wine loads this many, and not 2.2 GB */
#define COFF_TOO_LARGE                                                                                    \
    "a program or DLL of Windows is at most 1.9 GB, weights included: store them in a file of their own " \
    "(--weights=sidecar)"

struct coff_head {
    uint16_t machine, n_sections;
    uint32_t time, symbols_at, n_symbols;
    uint16_t optional_bytes, flags;
};
struct coff_section {
    char name[8];
    uint32_t virtual_size, address, size, at, relocations_at, lines_at;
    uint16_t n_relocations, n_lines;
    uint32_t flags;
};
_Static_assert(sizeof(struct coff_head) == 20 && sizeof(struct coff_section) == 40, "as in the file");
enum {
    COFF_SYMBOL_BYTES = 18,
    COFF_RELOCATION_BYTES = 10,
    COFF_PE_AT = 0x3c, /* of an image: where its head is */
    COFF_OPTIONAL_BYTES = 112, /* before the directories */
    /* a symbol's type, its classes */
    COFF_FUNCTION = 0x20,
    COFF_EXTERNAL = 2,
    COFF_STATIC = 3,
    COFF_MANY = 0xffff, /* relocations of a section: the first says how many */
    /* flags of sections */
    COFF_CODE = 0x20,
    COFF_DATA = 0x40,
    COFF_UNINITIALIZED = 0x80,
    COFF_OVERFLOWS = 0x1000000,
    COFF_DISCARDABLE = 0x2000000 /* the last ones of an image */
};

struct coff_machine {
    const char *arch; /* as in platform.def */
    uint16_t machine, abs64; /* the relocation of a 64-bit address */
    const char *option; /* of the linker */
};
const struct coff_machine *coff_machine_of(const struct platform *);
const struct coff_machine *coff_machine_by_number(uint16_t); /* NULL: not one of ours */

/* Appends a symbol, and its name where it is long. */
void coff_put_symbol(struct strbuf *out, struct strbuf *names, const char *name, uint64_t value, int section,
                     uint16_t type, uint8_t class);

/* The row of container.c. */
struct span coff_object(struct arena *, const struct platform *, const struct object *);
void coff_link(struct linking *);
bool coff_library(const struct linked *);
bool coff_merged(const struct linked *);

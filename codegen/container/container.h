/* File formats of artifacts. table.c, objects.c and link.c make an artifact through a row of container.c; what they
 * know of its format is here. ELF's functions are in elf*.c.
 */
#pragma once

#include "codegen/codegen.h"
#include "ir/target/platform.h"

struct function_names;

/* ---- a relocatable object, before it has a format: sections of bytes, symbols, pointers; all that the table needs
 * ---- */

/* Constants; constants with pointers, which the loader fills in; a placeholder of the weights; what is not loaded. */
enum section { SECTION_RODATA = 1, SECTION_RELRO, SECTION_WEIGHTS, SECTION_GRAPH, SECTION_BUILD, SECTIONS };

struct object_symbol {
    const char *name;
    uint64_t offset, size;
    enum section section; /* 0: defined elsewhere */
};
struct object_pointer {
    uint64_t at;
    uint32_t symbol;
    uint64_t addend;
};
struct object {
    struct arena *arena;
    struct strbuf bytes[SECTIONS];
    VEC(struct object_symbol) symbols; /* the number of the first is SECTIONS: sections are symbols, too */
    VEC(struct object_pointer) pointers; /* all in SECTION_RELRO */
};

void object_init(struct object *, struct arena *);
/* Appends bytes at an aligned offset of a section; the offset. */
uint64_t object_put(struct object *, enum section, const void *, size_t size, size_t align);
/* A symbol that the artifact's other objects see. */
void object_define(struct object *, const char *name, enum section, uint64_t offset, uint64_t size);
/* The number of a symbol of another object. */
uint32_t object_undefined(struct object *, const char *name);
/* The 8 bytes at `at` of SECTION_RELRO become the address of symbol + addend. */
void object_pointer(struct object *, uint64_t at, uint32_t symbol, uint64_t addend);

/* ---- linking ---- */

/* Of the linker: its name, then its options, each ended by a NUL. An option that ends in % takes a file's path there */
struct linking {
    struct arena *arena;
    const struct platform *platform;
    enum output_kind kind;
    const char *query; /* the exported function; mcc_query is its name in the objects */
    bool weights, debug; /* these lie in the artifact */
    struct span table; /* the object with the artifact's table */
    const struct codegen_unit *units;
    uint32_t n_units;
    struct strbuf options;
    VEC(struct span) files; /* in the order in which options take them */
};
void linking_option(struct linking *, const char *option);
void linking_options(struct linking *, const char *const *, size_t n);
void linking_file(struct linking *, const char *option, struct span file);
/* The runtime's objects for the platform; those of the table and of units. alias(linking, name, of) tells the linker
 * that unit `name` has the code of `of`. */
struct span *linking_runtime(struct linking *, uint32_t *n);
struct span *linking_units(struct linking *, uint32_t *n,
                           void (*alias)(struct linking *, const char *name, const char *of));

/* What the linker made, to be written. */
struct linked {
    struct context *ctx;
    struct arena *arena;
    struct span bytes;
    struct linking *from;
    const struct weights_writer *weights;
    const struct function_names *names;
    const struct static_network *network; /* NULL: an artifact with a table */
    const char *query;
    enum output_kind kind;
    const char *path;
};

struct mcc_note;
struct mcc_rt_desc;
struct sink;

/* Bytes of the weights in the artifact itself. */
uint64_t embedded_size(const struct weights_writer *);
/* Writes the artifact to linked's path, whole or not at all: body(user, sink) puts all of it, and before that the
 * sidecar is written if there is one. desc, note: those of the artifact, before they are put; note NULL: it has none.
 * False after a diagnostic. */
bool artifact_put(const struct linked *, struct mcc_rt_desc *desc, struct mcc_note *note,
                  bool (*body)(void *user, struct sink *), void *user);
/* Is the query function's name short enough for the note? False after a diagnostic. */
bool note_fits(const struct linked *);

/* A linked library as it is written: the first `cut` bytes of data, the weights, the rest of data, the signature. */
struct library_file {
    const struct linked *l;
    unsigned char *data;
    size_t size;
    uint64_t cut, desc, note; /* the places of mcc_rt_desc and mcc_note, before the weights */
    const struct weights_writer *weights; /* which writes what l's does; NULL: l's */
    uint64_t (*hash)(void *user); /* of data, in which the note's hash is 0; NULL: of all bytes */
    struct span (*sign)(void *user); /* NULL: no signature */
    void *user;
};
/* Writes it with the note sealed, as artifact_put does. False after a diagnostic. */
bool library_put(struct library_file *);

/* ---- formats ---- */

struct file_reading;

struct container {
    const char *name; /* as in platform.def */
    /* Does a file of the format begin so? */
    bool (*begins)(const unsigned char *head, size_t n);
    /* Reads an artifact's file (reading.h). NULL: artifacts have another form in it. */
    bool (*read)(struct file_reading *);
    /* The object in the format; bytes of what is left unsaid are zeros. NULL: it is larger than the format can say. */
    struct span (*object)(struct arena *, const struct platform *, const struct object *);
    /* Fills options and files; none: merged() needs no linker. */
    void (*link)(struct linking *);
    /* A linked library with a placeholder of the weights. Writes it with the weights in place, the note sealed,
     * functions named, atomically to path. */
    bool (*library)(const struct linked *);
    /* A relocatable file. Writes it with the weights, all symbols but `query` local, functions named, as it is or as
     * the one member of an archive. */
    bool (*merged)(const struct linked *);
    /* codegen_static for the format. NULL: there are no static networks in it. */
    bool (*network)(struct context *, const struct static_network *, const struct platform *, const char *path);
    /* Static networks are linked: fills options and files, and `library` writes the result. NULL: they are not. */
    void (*network_link)(struct linking *, const struct static_network *);
};
/* That of the platform; NULL: none, as for no platform. */
const struct container *container_of(const struct platform *);

/* A Unix archive without index: members in order, names made here. */
struct span archive_of(struct arena *, const struct span *members, uint32_t n);
/* The first bytes of an archive with an index and one member: the index (one symbol, in the member) and the member's
 * header. */
struct span archive_head(struct arena *, const char *symbol, uint64_t member_size);

/* Files of artifacts as their readers see them, whatever the format: sections by what they hold, functions, pointers.
 * A file's own words are not believed: every section lies inside the file, and what is read of it into memory is no
 * more than the file has.
 */
#pragma once

#include "codegen/container/container.h"

enum part_role {
    PART_ABSENT,  /* no bytes in the file */
    PART_FORMAT,  /* symbols, names: what no loader needs */
    PART_CODE,
    PART_DATA,    /* what pointers lead to */
    PART_TABLES,  /* the loader's: relocations, names */
    PART_WEIGHTS,
    PART_GRAPH,
    PART_BUILD,
    PART_DEBUG
};
struct file_part {
    const char *name;
    uint64_t at, size; /* in the file */
    uint64_t address; /* of the linker in a library; number and offset in an object, which has none */
    enum part_role role;
    char *bytes; /* part_bytes */
};
struct file_function {
    const char *name;
    uint64_t address, size;
};
struct file_pointer {
    uint64_t at, to;
};

enum { PART_SHIFT = 40, SYMBOLS_MAX = 1 << 22 };

struct file_reading {
    struct context *ctx;
    struct arena *arena;
    int fd;
    uint64_t base, size; /* where the file begins: an archive's member, or all of it */
    uint64_t sealed; /* bytes that the note's hash covers; 0: all */
    struct file_hole {
        uint64_t at, bytes;
    } unsealed[4]; /* of them these count as zeros, as the note's field does */
    uint64_t held; /* bytes in memory: more than the file has only where parts overlap */
    bool linked; /* a library, not an object */
    bool slice; /* one of a universal file's */
    bool here; /* for this machine's architecture and system */
    bool in_place; /* what a pointer adds to `to` lies where the pointer is, counted from `origin` */
    uint64_t origin;
    struct file_part *parts;
    uint32_t n;
    uint32_t note; /* number of the part that has the note, + 1; 0: none */
    uint64_t model; /* address of the table's beginning; 0: none */
    uint64_t headers; /* bytes of the file's and the sections' heads */
    bool symbols; /* are there any? */
    VEC(struct file_function) functions;
    VEC(struct file_pointer) pointers;
};

/* Fills parts, functions and pointers through the row of the file's format. False after a diagnostic. */
bool file_reading_all(struct file_reading *);

/* ---- for the formats ---- */

/* The container whose file begins so; NULL: none. */
const struct container *container_by_head(const unsigned char *head, size_t n);

bool reading_refuse(const struct file_reading *, const char *why);
bool reading_damaged(const struct file_reading *, const char *what);
bool reading_at(const struct file_reading *, void *to, uint64_t bytes, uint64_t offset);
/* A piece of the file followed by a NUL; NULL after a diagnostic. */
char *reading_piece(struct file_reading *, uint64_t at, uint64_t bytes);
/* A part's bytes followed by a NUL, once; NULL after a diagnostic. */
char *part_bytes(struct file_reading *, struct file_part *);
/* Reads the parts that hold data, the graph and the note of how it was made. */
bool reading_data(struct file_reading *);
/* Sorts the functions, which so far end with their section: each now ends where the next one begins. */
void reading_function_sizes(struct file_reading *);

bool elf_read(struct file_reading *);
bool elf_head(const unsigned char *head, size_t n);
bool coff_read(struct file_reading *);
bool coff_head(const unsigned char *head, size_t n);
bool macho_read(struct file_reading *);
bool macho_begins(const unsigned char *head, size_t n);

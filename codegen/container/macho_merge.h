/* The model's objects as they become one for macOS or iOS: macho_merge.c reads them, finds what is reached and writes
 * the product, macho_join.c joins sections, symbols and relocations.
 */
#pragma once

#include "codegen/container/macho.h"
#include "codegen/container/merge.h"

enum { MACHO_JOINED_MAX = 64 };

struct macho_joined {
    char name[16], segment[16];
    uint32_t flags, align; /* align: a power of two */
    bool zeros; /* it has no bytes in the file */
    uint64_t address, size;
    struct strbuf bytes, relocations;
    uint32_t n_relocations;
    uint32_t number; /* in the product, from 1 on */
};

/* Of a member's section: where it came to. */
struct macho_place {
    int to; /* which of the joined; -1: nowhere, it is empty */
    uint64_t offset; /* in that */
    uint64_t by; /* what its addresses are moved by */
};

struct macho_member {
    const char *data;
    size_t size;
    struct macho_section *sections;
    struct macho_place *places;
    uint32_t n;
    const char *rows, *text; /* symbols, names */
    uint32_t n_symbols, text_bytes;
    uint32_t *numbers; /* of local symbols in the product, + 1 */
    bool live;
};

struct macho_merged {
    struct context *ctx;
    struct arena *arena;
    const struct linked *l;
    const struct macho_machine *machine;
    struct macho_member *members;
    struct merging from;
    VEC(uint32_t) work; /* live members, not looked at */
    struct macho_joined joined[MACHO_JOINED_MAX];
    int n_joined, order[MACHO_JOINED_MAX]; /* order: in the file */
    uint64_t stored, room; /* addresses up to the end of what is stored, of all */
    struct strbuf locals, outside, names;
    uint32_t n_local, n_outside;
    VEC(const char *) outside_names;
    struct macho_symbol query;
    struct span head, tail; /* the file before the weights and after them */
    struct mcc_rt_desc *desc;
    uint64_t desc_at; /* in the file */
};

bool macho_broken(struct macho_merged *, const char *what);
struct macho_symbol macho_symbol_of(const struct macho_member *, uint32_t i);
const char *macho_name_of(const struct macho_member *, const struct macho_symbol *);
/* Fills joined, order and the symbols. False after a diagnostic. */
bool macho_join(struct macho_merged *);

/* The model's objects as they become one for Windows: coff_reach.c reads them and says what the query function reaches,
 * coff_merge.c joins that.
 */
#pragma once

#include "codegen/container/coff.h"
#include "codegen/container/merge.h"

enum { COFF_COMDAT = 0x1000, COFF_JOINED_MAX = 64, COFF_UNPLACED = -1 };

struct joined {
    const char *name;
    uint32_t flags, align;
    struct strbuf bytes;
    uint64_t size; /* of what has no bytes, too */
    struct strbuf relocations;
    uint32_t n_relocations;
};

struct piece {
    bool live;
    int to; /* number of its joined section */
    uint32_t at;
    uint32_t with; /* associative: the section that it comes with */
};

struct member {
    const char *data;
    size_t size;
    struct coff_head head;
    struct coff_section *sections;
    struct piece *pieces;
    const char *symbols, *text;
    uint64_t text_size;
    uint32_t *number; /* of each symbol in the product, + 1 */
    bool live;
};

struct symbol {
    const char *name;
    uint32_t value;
    int16_t section;
    uint16_t type;
    uint8_t class, more;
};

struct merged {
    struct context *ctx;
    struct arena *arena;
    const struct linked *l;
    const struct coff_machine *machine;
    struct member *members;
    struct merging from;
    VEC(uint64_t) work; /* member << 32 | section: live, not looked at */
    struct joined joined[COFF_JOINED_MAX];
    int n_joined;
    struct strbuf symbols, names;
    uint32_t n_symbols;
    VEC(struct merge_name) outside; /* undefined in the product: symbol is its number */
    struct mcc_rt_desc *desc;
    uint64_t desc_at; /* in the file */
    struct span head; /* all of the file before the weights */
};

bool merged_broken(struct merged *, const char *what);
struct symbol merged_symbol(struct merged *, const struct member *, uint32_t i);
bool merged_is_global(const struct symbol *);
/* The place where the symbol is defined; false: not in this file. */
bool merged_resolve(struct merged *, uint32_t *member, uint32_t *symbol, struct symbol *);
/* Of a section: how many, and where the first is. */
uint32_t merged_relocations(const struct member *, const struct coff_section *, uint64_t *at);
/* Reads all objects; then marks what is reached as live. False after a diagnostic. */
bool merged_read(struct merged *);
bool merged_reach(struct merged *);

/* What the headers of --emit=header (header.c) and --emit=static (static.c) share: a typed prototype. */
#pragma once

#include "cli/library/compile/backend.h"

struct header {
    struct compilation *c;
    const struct artifact *a;
    bool is_static;
    const bool *takes;           /* of static networks, by symbol: is it an argument? */
    struct strbuf out;
    uint32_t n_in, n_out;        /* ports that callers see */
    const char *name, *upper;
    const char **in, **outs, **sym;
    bool derived;                /* some output dim is neither fixed nor a symbol: plan tells */
};

/* NAME of NAME_run: the prefix, or the output's file name, as C can have it. */
const char *header_name(const struct compilation *);
/* Names all; c, a and what is of static networks are set. False after a diagnostic: C has no words for a port. */
bool header_begin(struct header *);
/* "int NAME_run(...)" */
void header_prototype(struct header *);
/* --emit=c: the functions and the weights as C (write_c.c). */
bool c_write(struct header *);

/* JSON about a module for WebAssembly (describe.c). */
struct description {
    const char *entry, *plan; /* exported functions */
    int64_t scratch; /* bytes */
    const bool *takes; /* by symbol: is it an argument of the entry? */
    uint64_t stack; /* bytes of a worker's; 0: there are none */
};
struct span describe(struct compilation *, const struct artifact *, const struct description *);

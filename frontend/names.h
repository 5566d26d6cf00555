/* Names and scopes: a text is interned once; a stack of bindings says what it means at the moment. */
#pragma once

#include "ir/graph/graph.h"

struct name {
    const char *text;
    uint64_t hash;
    uint32_t top;        /* binding in force; 0: unbound */
    uint32_t hidden;     /* order.c: scopes under examination that define it themselves */
};
struct binding {
    uint32_t name, below;     /* below: what the name meant before */
    uint32_t scope;
    uint32_t producer;        /* index of the node that makes it, + 1; 0: a parameter or constant */
    value_id value;           /* {0}: not made yet */
};
struct names {
    struct arena *arena;
    VEC(struct name) list;          /* [0] unused */
    VEC(struct binding) bindings;   /* [0] unused; the stack */
    uint32_t *slots, n_slots;       /* open addressing, indices into list */
    uint32_t scope;                 /* number of open scopes */
};

void names_init(struct names *, struct arena *);
uint32_t name_intern(struct names *, const char *text);      /* the text is not copied */
struct name *name_get(struct names *, uint32_t);
/* What the text means now; NULL when nothing. Survives until the next name_bind. The text is not kept. */
struct binding *name_lookup(struct names *, const char *text);

void scope_open(struct names *);
void scope_close(struct names *);
/* Gives the text a meaning in the current scope, hiding outer ones. */
struct binding *name_bind(struct names *, const char *text, value_id, uint32_t producer);

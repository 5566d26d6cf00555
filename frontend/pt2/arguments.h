/* The arguments of a node of the file: arguments.c reads them, nodes.c makes the node. */
#pragma once

#include "frontend/pt2/pt2.h"

/* A node that is being read. */
struct pending {
    struct pt2 *p;
    src_id src;
    const char *what; /* the operator, for messages */
    VEC(value_id) in;
    VEC(struct attr) attrs;
    VEC(int64_t) lists;
    uint32_t first, listed; /* the values of the first argument, and of the first tensor in a list */
    bool ok;
};

#define refuse(n, ...) ((n)->ok = error_model((n)->p->ctx, (n)->src, __VA_ARGS__))

static inline void put(struct pending *n, struct attr a)
{
    VEC_PUSH(&n->p->scratch, &n->attrs, a);
}

/* Values that stand for the arguments self and src of the file. */
struct instead {
    value_id self, src;
};

/* All arguments of the schema; by: NULL, or what replaces the file's. */
void arguments(struct pending *, const struct schema *, const struct json *node, const struct instead *by);
/* The arguments of an operator that the table does not have, as they come. */
void arguments_unknown(struct pending *, const struct json *node);

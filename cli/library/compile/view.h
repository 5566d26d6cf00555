/* A network as people look at it: the nodes of its file, the kernels that compute them, and what of it stands for
 * nothing but constants. */
#pragma once

#include "cli/library/compile/backend.h"

struct named;
struct network_view {
    const struct compilation *c;
    const struct graph *g;   /* the imported graph */
    const mcc_node *row;
    uint32_t n_rows;
    uint32_t *lead;          /* by source: the node whose kernels compute it; 0: none */
    bool *hidden;            /* by node: computes only constants, of which nothing is left */
    uint32_t n_hidden;       /* of these that are nodes of the file */
    struct named *legal;     /* values of the legal graph that have names, sorted */
    uint32_t n_legal;
};

/* row: source_rows. */
void view_make(struct network_view *, const struct compilation *, const mcc_node *row, uint32_t n_rows, struct arena *);
bool view_is_constant(const struct network_view *, value_id);
/* Appends "f32[1,n,4]", where the legal graph knows a tensor's shape that; nothing for what is not a tensor. */
void view_type(const struct network_view *, value_id, struct strbuf *out);

/* Parts of values moved through operators (cut.h). */
#include "passes/graph/cut.h"

#include "passes/module/access_function.h"

struct cut cut_whole(struct graph *g, value_id v)
{
    const struct type *t = value_type(g, v);
    struct cut c = {.rank = t->rank};
    for (int32_t d = 0; d < t->rank; d++) {
        c.starts[d] = ex_const(g->ctx->exprs, 0);
        c.sizes[d] = t->dims[d];
        c.steps[d] = 1;
    }
    return c;
}

struct cut cut_of_slice(const struct node *slice)
{
    uint32_t n;
    const expr_id *starts = node_exprs(slice, "starts", &n), *sizes = node_exprs(slice, "sizes", &n);
    const int64_t *steps = node_ints(slice, "steps", &n);
    struct cut c = {.rank = (int32_t)n};
    for (uint32_t d = 0; d < n; d++) {
        c.starts[d] = starts[d];
        c.sizes[d] = sizes[d];
        c.steps[d] = steps[d];
    }
    return c;
}

bool cuts_equal(const struct cut *a, const struct cut *b)
{
    for (int32_t d = 0; d < a->rank; d++)
        if (a->starts[d].i != b->starts[d].i || a->sizes[d].i != b->sizes[d].i || a->steps[d] != b->steps[d])
            return false;
    return a->rank == b->rank;
}

uint32_t cut_dims(struct graph *g, value_id v, const struct cut *c)
{
    uint32_t mask = 0;
    for (int32_t d = 0; d < c->rank; d++)
        if (c->sizes[d].i != value_type(g, v)->dims[d].i || !ex_is(g->ctx->exprs, c->starts[d], 0) || c->steps[d] != 1)
            mask |= 1u << d;
    return mask;
}

bool cut_operand(struct graph *g, const struct node *n, uint32_t k, const struct cut *c, struct cut *of_operand)
{
    int32_t of[RANK_MAX];
    uint32_t mask = cut_dims(g, n->out[0], c);
    if (!source_dims(g, n, k, of))
        return false;
    *of_operand = cut_whole(g, n->in[k]);
    for (int32_t d = 0; d < c->rank; d++) {
        if ((mask >> d & 1) && of[d] == SOURCE_MIXED)
            return false;
        if ((mask >> d & 1) && of[d] != SOURCE_NONE) {
            of_operand->starts[of[d]] = c->starts[d];
            of_operand->sizes[of[d]] = c->sizes[d];
            of_operand->steps[of[d]] = c->steps[d];
        }
    }
    return true;
}

bool cut_is_free(struct graph *g, value_id v, uint32_t dims)
{
    int32_t of[RANK_MAX];
    if (value_op(g, v) != OP_BROADCAST || !source_dims(g, value_node(g, v), 0, of))
        return false;
    for (int32_t d = 0; d < value_type(g, v)->rank; d++)
        if ((dims >> d & 1) && of[d] != SOURCE_NONE)
            return false;
    return true;
}

/* A part of v: a shorter broadcast, or a slice. */
static value_id cut_value(struct builder *b, value_id v, const struct cut *c)
{
    if (cut_is_free(b->g, v, cut_dims(b->g, v, c)))
        return b_broadcast(b, value_node(b->g, v)->in[0], c->sizes, c->rank);
    return b_slice(b, v, c->starts, c->sizes, c->steps);
}

value_id cut_through(struct builder *b, const struct node *n, const struct cut *c, uint32_t made, value_id v)
{
    value_id *in = NEW_ARRAY(&b->g->arena, value_id, n->n_in + 1);
    struct attr *attr = NEW_ARRAY(&b->g->arena, struct attr, n->n_attr + 1);
    struct cut own;
    for (uint32_t k = 0; k < n->n_in; k++)
        if (k == made)
            in[k] = v;
        else if (cut_operand(b->g, n, k, c, &own))
            in[k] = cut_value(b, n->in[k], &own);
    for (uint32_t i = 0; i < n->n_attr; i++) {
        const char *name = n->attr[i].name; /* "dims" of a broadcast or a reshape, "sizes" of a slice: of the result */
        bool shape = !strcmp(name, "dims") || !strcmp(name, "sizes");
        attr[i] = shape ? attr_exprs(name, c->sizes, (uint32_t)c->rank) : n->attr[i];
    }
    return b_op(b, n->op, in, n->n_in, attr, n->n_attr);
}

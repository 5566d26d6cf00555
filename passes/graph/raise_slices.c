/* raise-slices: a slice that takes some rows of what a product makes row by row moves before the product.
 *
 *   slice(dot(f(x), w))     ->     dot(f(slice(x)), w)
 *
 * A language model's logits are wanted for the last position, a classifier reads the first token: what only one row is
 * read of computes one row. In and out: a legal graph.
 *
 * From the last node of a region to the first: where all that read a value are slices with the same bounds, and the
 * value's operator computes a row from the same rows of its operands, it computes those rows alone, of slices of its
 * operands; the readers read that. Operators that are fused anyway (maps and views) gain nothing by it, and a slice
 * between a product and its epilogue would part them: so a slice moves only on its way to a product with rows to spare.
 * Constants are never cut for a product, since its panels may be shared. What a row needs of other rows (scores of
 * attention that a reshape has folded, windows, scans) stays as it is.
 */
#include "passes/module/module.h"

#include <string.h>

enum {
    LOOKED_AT = 256, /* nodes behind one slice in search of a product */
    STEPS = 1 << 28 /* over lists of nodes, in all */
};

struct reader {
    node_id slice;
    uint32_t next; /* of the same value: index + 1 */
};
struct raiser {
    struct graph *g;
    uint32_t *readers; /* by value below n_values: index + 1 of reader */
    uint32_t n_values;
    VEC(struct reader) all;
    int64_t steps;
};
/* The bounds of a slice. */
struct cut {
    int32_t rank;
    const expr_id *starts, *sizes;
    const int64_t *steps;
};

static struct cut cut_of(const struct node *slice)
{
    uint32_t n;
    struct cut c = {.starts = node_exprs(slice, "starts", &n), .sizes = node_exprs(slice, "sizes", &n)};
    c.steps = node_ints(slice, "steps", &n);
    c.rank = (int32_t)n;
    return c;
}

static bool cuts_equal(const struct cut *a, const struct cut *b)
{
    for (int32_t i = 0; i < a->rank; i++)
        if (a->starts[i].i != b->starts[i].i || a->sizes[i].i != b->sizes[i].i || a->steps[i] != b->steps[i])
            return false;
    return a->rank == b->rank;
}

/* The dims of which not everything is taken in its order, as bits. */
static uint32_t cut_dims(struct graph *g, const struct cut *c, const struct type *t)
{
    uint32_t mask = 0;
    for (int32_t i = 0; i < c->rank; i++)
        if (c->sizes[i].i != t->dims[i].i || !ex_is(g->ctx->exprs, c->starts[i], 0) || c->steps[i] != 1)
            mask |= 1u << i;
    return mask;
}

/* ---- which dims of an operand make those of the result ------------------------------------------------------------
 */

/* to[d]: the dim of operand k that runs as dim d of the result does; -1: none, the operand is the same all along it;
 * -2: no such dim, and d cannot be cut. */
enum { SAME_ALONG = -1, WHOLE = -2 };

static void map_broadcast(const struct graph *g, const struct type *from, const struct type *t, int32_t *to)
{
    for (int32_t d = 0; d < t->rank; d++) {
        int32_t i = d - (t->rank - from->rank);
        bool one = i < 0 || ex_is(g->ctx->exprs, from->dims[i], 1);
        to[d] = one ? SAME_ALONG : from->dims[i].i == t->dims[d].i ? i : WHOLE;
    }
}

/* A dim with equal products of dims before it, and as long as before. */
static void map_reshape(struct graph *g, const struct type *from, const struct type *t, int32_t *to)
{
    struct exprs *x = g->ctx->exprs;
    expr_id before = ex_const(x, 1), behind = ex_const(x, 1);
    for (int32_t d = 0, i = 0; d < t->rank; d++) {
        while (i < from->rank && (before.i != behind.i || from->dims[i].i != t->dims[d].i) &&
               (ex_is(x, from->dims[i], 1) || before.i != behind.i || !ex_is(x, t->dims[d], 1)))
            before = ex_mul(x, before, from->dims[i++]);
        to[d] = WHOLE;
        if (i < from->rank && before.i == behind.i && from->dims[i].i == t->dims[d].i) {
            to[d] = i;
            before = ex_mul(x, before, from->dims[i++]);
        }
        behind = ex_mul(x, behind, t->dims[d]);
    }
}

static bool holds(const int64_t *list, uint32_t n, int64_t d)
{
    for (uint32_t i = 0; i < n; i++)
        if (list[i] == d)
            return true;
    return false;
}

static void map_reduce(const struct node *n, const struct type *from, int32_t *to)
{
    uint32_t n_axes;
    const int64_t *axes = node_ints(n, "axes", &n_axes);
    for (int32_t i = 0, d = 0; i < from->rank; i++)
        if (!holds(axes, n_axes, i))
            to[d++] = i;
}

/* Batch dims belong to both operands, the free ones to one. Scales (operand 2 and on) have the dims of what they scale.
 */
static void map_dot(const struct graph *g, const struct node *n, uint32_t k, int32_t *to)
{
    uint32_t nb, nc;
    int32_t d = 0;
    for (uint32_t o = 0; o < 2; o++) {
        const int64_t *batch = node_ints(n, o ? "batch_b" : "batch_a", &nb);
        const int64_t *contract = node_ints(n, o ? "contract_b" : "contract_a", &nc);
        for (uint32_t i = 0; i < nb && o == (k & 1); i++)
            to[i] = (int32_t)batch[i];
        d = o ? d : (int32_t)nb;
        for (int32_t i = 0; i < value_type(g, n->in[o])->rank; i++)
            if (!holds(batch, nb, i) && !holds(contract, nc, i))
                to[d++] = o == (k & 1) ? i : SAME_ALONG;
    }
}

/* False: an operator that this pass leaves alone. */
static bool dims_map(struct graph *g, const struct node *n, uint32_t k, int32_t *to)
{
    const struct type *from = value_type(g, n->in[k]), *t = value_type(g, n->out[0]);
    uint32_t rank;
    const int64_t *perm;
    for (int32_t d = 0; d < t->rank; d++)
        to[d] = d;
    switch (n->op) {
    case OP_BROADCAST: map_broadcast(g, from, t, to); return true;
    case OP_RESHAPE: map_reshape(g, from, t, to); return true;
    case OP_TRANSPOSE:
        perm = node_ints(n, "perm", &rank);
        for (int32_t d = 0; d < t->rank; d++)
            to[d] = (int32_t)perm[d];
        return true;
    case OP_REDUCE: map_reduce(n, from, to); return true;
    case OP_DOT: map_dot(g, n, k, to); return true;
    default: return op_shape(n->op) == SHAPE_MAP;
    }
}

/* The dims of operand k that a cut of the result's dims cuts; false where that cannot be. */
static bool operand_cut(struct graph *g, const struct node *n, uint32_t k, uint32_t mask, uint32_t *out)
{
    int32_t to[RANK_MAX];
    if (!dims_map(g, n, k, to))
        return false;
    *out = 0;
    for (int32_t d = 0; d < value_type(g, n->out[0])->rank; d++) {
        if (!(mask >> d & 1))
            continue;
        if (to[d] == WHOLE)
            return false;
        *out |= to[d] == SAME_ALONG ? 0 : 1u << to[d];
    }
    return n->op != OP_DOT || !*out || !value_is_const(g, n->in[k]);
}

/* Can the node's result be cut so? */
static bool cuttable(struct graph *g, const struct node *n, uint32_t mask)
{
    uint32_t of;
    if (n->dead || n->n_out != 1 || n->n_region || !n->n_in || value_is_const(g, n->out[0]))
        return false;
    for (uint32_t k = 0; k < n->n_in; k++)
        if (!operand_cut(g, n, k, mask, &of))
            return false;
    return true;
}

/* Does a cut of v, on its way up, come to a product? */
static bool pays(struct graph *g, value_id v, uint32_t mask, uint32_t *budget)
{
    node_id def = graph_value(g, v)->def;
    if (!def.i || !mask || !*budget || !cuttable(g, graph_node(g, def), mask))
        return false;
    --*budget;
    const struct node *n = graph_node(g, def);
    for (uint32_t k = 0; n->op != OP_DOT && k < n->n_in; k++) {
        uint32_t of;
        if (operand_cut(g, n, k, mask, &of) && pays(g, n->in[k], of, budget))
            return true;
    }
    return n->op == OP_DOT;
}

/* ---- the rewrite ---------------------------------------------------------------------------------------------------
 */

static void reader_add(struct raiser *r, node_id slice)
{
    value_id v = graph_node(r->g, slice)->in[0];
    if (v.i >= r->n_values)
        return;
    struct reader reader = {slice, r->readers[v.i]};
    VEC_PUSH(&r->g->arena, &r->all, reader);
    r->readers[v.i] = r->all.n;
}

/* The slice that all who read v have in common; {0}: there is none. */
static node_id common_slice(const struct raiser *r, value_id v, region_id region)
{
    node_id first = {0};
    uint32_t n = 0;
    for (uint32_t i = r->readers[v.i]; i; i = r->all.data[i - 1].next) {
        node_id id = r->all.data[i - 1].slice;
        const struct node *slice = graph_node(r->g, id);
        if (slice->dead || slice->in[0].i != v.i)
            continue;
        struct cut a = cut_of(slice), b = first.i ? cut_of(graph_node(r->g, first)) : a;
        if (slice->parent.i != region.i || !cuts_equal(&a, &b))
            return (node_id){0};
        first = id;
        n++;
    }
    return n == graph_value(r->g, v)->n_uses ? first : (node_id){0};
}

/* Who comes first of those that read v: bounds may be known there only. */
static node_id first_reader(const struct raiser *r, value_id v, uint32_t from)
{
    const struct region *region = graph_get_region(r->g, graph_node(r->g, graph_value(r->g, v)->def)->parent);
    for (uint32_t i = from; i < region->nodes.n; i++) {
        const struct node *n = graph_node(r->g, region->nodes.data[i]);
        if (n->op == OP_SLICE && !n->dead && n->in[0].i == v.i)
            return region->nodes.data[i];
    }
    return (node_id){0};
}

/* A broadcast that is the same along all dims which are cut: it becomes a shorter one. */
static bool is_spread(struct graph *g, value_id v, uint32_t mask)
{
    uint32_t of;
    return value_op(g, v) == OP_BROADCAST && operand_cut(g, graph_node(g, graph_value(g, v)->def), 0, mask, &of) && !of;
}

/* Operand k, cut as its dims are. */
static value_id cut_operand(struct raiser *r, struct builder *b, const struct node *n, uint32_t k, const struct cut *c)
{
    const struct type t = *value_type(r->g, n->in[k]);
    expr_id starts[RANK_MAX], sizes[RANK_MAX];
    int64_t steps[RANK_MAX];
    int32_t to[RANK_MAX];
    dims_map(r->g, n, k, to);
    for (int32_t i = 0; i < t.rank; i++) {
        starts[i] = ex_const(r->g->ctx->exprs, 0);
        sizes[i] = t.dims[i];
        steps[i] = 1;
    }
    for (int32_t d = 0; d < c->rank; d++)
        if (to[d] >= 0) {
            starts[to[d]] = c->starts[d];
            sizes[to[d]] = c->sizes[d];
            steps[to[d]] = c->steps[d];
        }
    struct cut own = {t.rank, starts, sizes, steps};
    if (is_spread(r->g, n->in[k], cut_dims(r->g, &own, &t)))
        return b_broadcast(b, graph_node(r->g, graph_value(r->g, n->in[k])->def)->in[0], sizes, t.rank);
    value_id v = b_slice(b, n->in[k], starts, sizes, steps);
    if (v.i && v.i != n->in[k].i && value_op(r->g, v) == OP_SLICE)
        reader_add(r, graph_value(r->g, v)->def);
    return v;
}

/* The node again, of cut operands. */
static value_id cut_node(struct raiser *r, struct builder *b, const struct node *n, const struct cut *c)
{
    value_id *in = NEW_ARRAY(&r->g->arena, value_id, n->n_in + 1);
    struct attr *attr = NEW_ARRAY(&r->g->arena, struct attr, n->n_attr + 1);
    for (uint32_t k = 0; k < n->n_in; k++)
        in[k] = cut_operand(r, b, n, k, c);
    for (uint32_t i = 0; i < n->n_attr; i++) {
        bool shape = (n->op == OP_BROADCAST || n->op == OP_RESHAPE) && !strcmp(n->attr[i].name, "dims");
        attr[i] = shape ? attr_exprs("dims", c->sizes, (uint32_t)c->rank) : n->attr[i];
    }
    return b_op(b, n->op, in, n->n_in, attr, n->n_attr);
}

/* What all slices of v give is `made` now. */
static void replace_readers(struct raiser *r, value_id v, value_id made)
{
    for (uint32_t i = r->readers[v.i]; i; i = r->all.data[i - 1].next) {
        node_id id = r->all.data[i - 1].slice;
        const struct node *slice = graph_node(r->g, id);
        if (slice->dead || slice->in[0].i != v.i)
            continue;
        graph_replace_uses(r->g, slice->out[0], made);
        graph_erase(r->g, id);
    }
}

static void raise(struct raiser *r, node_id id, uint32_t at)
{
    struct graph *g = r->g;
    const struct node n = *graph_node(g, id);
    uint32_t budget = LOOKED_AT;
    if (n.n_out != 1 || n.out[0].i >= r->n_values || !r->readers[n.out[0].i])
        return;
    node_id slice = common_slice(r, n.out[0], n.parent);
    if (!slice.i)
        return;
    struct cut c = cut_of(graph_node(g, slice));
    if (!pays(g, n.out[0], cut_dims(g, &c, value_type(g, n.out[0])), &budget))
        return;
    r->steps += 2 * (int64_t)graph_get_region(g, n.parent)->nodes.n;
    struct builder b = {.g = g, .region = n.parent, .src = n.src, .before = first_reader(r, n.out[0], at + 1)};
    value_id made = b.before.i ? cut_node(r, &b, &n, &c) : (value_id){0};
    if (!made.i)
        return;
    if (!graph_value(g, made)->name)
        graph_value(g, made)->name = graph_value(g, n.out[0])->name;
    replace_readers(r, n.out[0], made);
    graph_erase(g, id);
}

bool raise_slices(struct module *m)
{
    struct graph *g = m->g;
    struct raiser r = {.g = g, .n_values = g->values.n};
    r.readers = NEW_ARRAY(&g->arena, uint32_t, r.n_values);
    for (uint32_t i = 1; i < g->nodes.n; i++) {
        const struct node *n = graph_node(g, (node_id){i});
        if (!n->dead && n->op == OP_SLICE)
            reader_add(&r, (node_id){i});
    }
    for (uint32_t k = 1; k < g->regions.n && r.all.n; k++)
        for (uint32_t i = graph_get_region(g, (region_id){k})->nodes.n; i > 0 && r.steps < STEPS; i--)
            raise(&r, graph_get_region(g, (region_id){k})->nodes.data[i - 1], i - 1);
    graph_sweep(g);
    return true;
}

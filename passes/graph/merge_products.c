/* merge-products: narrow products of one operand by constants become one product and slices of its result.
 *
 *   dot(x, w1) + b1   dot(x, w2) + b2     ->     y = dot(x, concat(w1, w2)) + concat(b1, b2);  slices of y
 *
 * A step of a product along K takes one multiplication for each vector of columns and a load of the row's element that
 * all vectors of a register tile share. A product of few columns hardly shares it, and waits for its few sums; where
 * one product for all takes clearly fewer of both, they are merged. Wide ones gain nothing (their tiles are full), so
 * they stay, and rows of their results stay dense. Weights that others read too stay: they would be stored twice.
 * Biases that the products have alone are merged with them, so that they remain part of the product's kernel.
 *
 * For adjacent heads and gates of few columns: it changes 7 of the 554 networks of ../shared/models that
 * compile. In and out: a legal graph.
 */
#include "passes/module/access_function.h"
#include "passes/module/analysis.h"

enum {
    TILE_PANELS = 4, /* vectors of columns in a full register tile: wider products gain nothing */
    GAIN_PERCENT = 10, /* of the steps, at least */
    WEIGHT_BYTES = 4 << 20, /* of a merged constant: what is accepted is copied once */
    MEMBERS = 256,
    CONST_DEPTH = 8 /* operators over a constant (a transpose, a convert) that are looked through */
};

struct product {
    node_id dot, last; /* last: the dot, or the add of its bias */
    value_id bias; /* {0}: none */
    int64_t columns, bytes;
    uint32_t next; /* of the same first operand, later in the region: index + 1 */
    bool done;
};
struct merger {
    struct graph *g;
    uint32_t *first, *latest; /* by first operand: index + 1 of products */
    uint32_t n_values; /* of those that existed at the start */
    VEC(struct product) products; /* of one region, in order */
};
struct group {
    struct product *member[MEMBERS];
    uint32_t n;
};

/* ---- which ones -------------------------------------------------------------------------------------------------- */

/* A constant that can be written again elsewhere, with no bytes worth storing that anything else reads. */
static bool own_constant(struct graph *g, value_id v, bool shared, int depth)
{
    const struct node *n = value_node(g, v);
    const struct attr *data = node_attr(n, "data");
    bool small = !data || (data->kind == ATTR_DATA && data->u.data.size <= TILE_PANELS * CHANNEL_BLOCK * sizeof(float));
    shared |= graph_value(g, v)->n_uses != 1;
    if (depth > CONST_DEPTH || n->n_out != 1 || n->n_region || (shared && !small))
        return false;
    for (uint32_t i = 0; i < n->n_in; i++)
        if (!own_constant(g, n->in[i], shared, depth + 1))
            return false;
    return true;
}

/* The constant c of one element for each column that `add` adds to a product of type t; {0}: it adds something else. */
static value_id bias_of(struct graph *g, node_id add, value_id product, int64_t columns)
{
    const struct node *n = graph_node(g, add);
    if (n->op != OP_ADD)
        return (value_id){0};
    value_id c = value_unspread(g, n->in[n->in[0].i == product.i]);
    const struct type *t = value_type(g, c);
    if (!value_is_const(g, c) || t->rank < 1 || !ex_is(g->ctx->exprs, t->dims[t->rank - 1], columns) ||
        !own_constant(g, c, false, 0))
        return (value_id){0};
    for (int32_t i = 0; i + 1 < t->rank; i++)
        if (!ex_is(g->ctx->exprs, t->dims[i], 1))
            return (value_id){0};
    return c;
}

/* Is it a product of floats by a constant matrix of its own, narrower than a register tile? */
static bool is_narrow(struct merger *m, node_id id, struct product *p)
{
    struct graph *g = m->g;
    const struct node *n = graph_node(g, id);
    struct dot_dims d;
    int64_t rows;
    if (n->dead || n->op != OP_DOT || value_type(g, n->out[0])->elem != ELEM_F32 || value_is_const(g, n->in[0]) ||
        !value_is_const(g, n->in[1]) || !dot_dims(g, n, 1, &d) || d.n_batch)
        return false;
    const struct type *w = value_type(g, n->in[1]);
    struct exprs *x = g->ctx->exprs;
    *p = (struct product){.dot = id, .last = id};
    if (w->elem != ELEM_F32 || !ex_is_const(x, w->dims[d.free], &p->columns) ||
        !ex_is_const(x, w->dims[d.contract], &rows) || p->columns < 1 ||
        p->columns > (TILE_PANELS - 1) * CHANNEL_BLOCK || rows < 1 ||
        !mul_i64(rows, p->columns * (int64_t)sizeof(float), &p->bytes) || !own_constant(g, n->in[1], false, 0))
        return false;
    value_id out = n->out[0];
    node_id user = graph_value(g, out)->n_uses == 1 ? graph_user(g, out, NULL)->node : (node_id){0};
    if (user.i && graph_node(g, user)->parent.i == n->parent.i)
        p->bias = bias_of(g, user, out, p->columns);
    if (p->bias.i)
        p->last = user;
    return true;
}

static void collect(struct merger *m, region_id r)
{
    const struct region *region = graph_get_region(m->g, r);
    for (uint32_t i = 0; i < region->nodes.n; i++) {
        struct product p;
        if (!is_narrow(m, region->nodes.data[i], &p))
            continue;
        uint32_t x = graph_node(m->g, p.dot)->in[0].i;
        if (x >= m->n_values) /* a slice that this pass made, read in an inner region */
            continue;
        VEC_PUSH(&m->g->arena, &m->products, p);
        if (m->first[x])
            m->products.data[m->latest[x] - 1].next = m->products.n;
        else
            m->first[x] = m->products.n;
        m->latest[x] = m->products.n;
    }
}

/* Do both contract the same dims, so that one product can compute both? */
static bool alike(const struct graph *g, const struct product *p, const struct product *q)
{
    const struct node *a = graph_node(g, p->dot), *b = graph_node(g, q->dot);
    uint32_t n;
    return a->in[0].i == b->in[0].i && !p->bias.i == !q->bias.i &&
           node_ints(a, "contract_a", &n)[0] == node_ints(b, "contract_a", &n)[0] &&
           node_ints(a, "contract_b", &n)[0] == node_ints(b, "contract_b", &n)[0] &&
           p->bytes / p->columns == q->bytes / q->columns;
}

/* What a row takes for each element of K: multiplications of vectors, and loads that the vectors of a tile share. */
static int64_t steps_of(int64_t columns)
{
    int64_t panels = (columns + CHANNEL_BLOCK - 1) / CHANNEL_BLOCK;
    return panels + (panels + TILE_PANELS - 1) / TILE_PANELS;
}

/* All that can be merged with `p`, none of which is looked at again; false where merging them gains too little. */
static bool group_of(struct merger *m, struct product *p, struct group *group)
{
    int64_t bytes = 0, columns = 0, steps = 0;
    group->n = 0;
    for (;;) {
        if (!p->done && (!group->n || alike(m->g, group->member[0], p)) && group->n < MEMBERS &&
            p->bytes <= WEIGHT_BYTES - bytes) {
            p->done = true;
            bytes += p->bytes;
            columns += p->columns;
            steps += steps_of(p->columns);
            group->member[group->n++] = p;
        }
        if (!p->next)
            return group->n > 1 && 100 * steps_of(columns) <= (100 - GAIN_PERCENT) * steps;
        p = &m->products.data[p->next - 1];
    }
}

/* ---- the merged product ------------------------------------------------------------------------------------------ */

/* The weights side by side. */
static value_id joined_weights(struct builder *b, const struct group *group, const struct node *dot)
{
    value_id part[MEMBERS];
    struct dot_dims d;
    if (!dot_dims(b->g, dot, 1, &d))
        return (value_id){0};
    for (uint32_t i = 0; i < group->n; i++)
        part[i] = graph_node(b->g, group->member[i]->dot)->in[1];
    return b_concat(b, part, group->n, d.free);
}

/* The biases, concatenated, for every row of `like`. */
static value_id joined_biases(struct builder *b, const struct group *group, value_id like)
{
    value_id part[MEMBERS];
    for (uint32_t i = 0; i < group->n; i++) {
        expr_id columns = ex_const(b->g->ctx->exprs, group->member[i]->columns);
        part[i] = b_reshape(b, group->member[i]->bias, &columns, 1);
    }
    return b_broadcast_like(b, b_concat(b, part, group->n, 0), like);
}

/* Columns of the whole in place of what each product of the group computes. All constants are known here: they come
 * first in the top region (ir/graph/pool.c). */
static void merge_group(struct graph *g, const struct group *group)
{
    const struct node dot = *graph_node(g, group->member[0]->dot);
    struct builder b = builder_before(g, group->member[0]->dot);
    value_id in[2] = {dot.in[0], joined_weights(&b, group, &dot)};
    value_id whole = b_op(&b, OP_DOT, in, 2, dot.attr, dot.n_attr);
    int32_t columns = value_type(g, dot.out[0])->rank - 1;
    int64_t at = 0;
    b.src = graph_node(g, group->member[0]->last)->src;
    if (whole.i && group->member[0]->bias.i)
        whole = b_binary(&b, OP_ADD, whole, joined_biases(&b, group, whole));
    for (uint32_t i = 0; whole.i && i < group->n; i++) {
        const struct product *p = group->member[i];
        const struct node last = *graph_node(g, p->last);
        b.src = last.src;
        value_id part = b_slice_axis(&b, whole, columns, ex_const(g->ctx->exprs, at),
                                     ex_const(g->ctx->exprs, p->columns));
        if (!part.i)
            return;
        graph_value_describe(g, part, last.out[0]);
        graph_replace_uses(g, last.out[0], part);
        at += p->columns;
    }
}

static void merge_region(struct merger *m, region_id r)
{
    struct group group;
    m->products.n = 0;
    collect(m, r);
    for (uint32_t i = 0; i < m->products.n; i++) {
        uint32_t x = graph_node(m->g, m->products.data[i].dot)->in[0].i;
        if (x < m->n_values)
            m->first[x] = 0; /* for the next region */
    }
    for (uint32_t i = 0; i < m->products.n; i++)
        if (!m->products.data[i].done && group_of(m, &m->products.data[i], &group))
            merge_group(m->g, &group);
}

bool merge_products(struct module *module)
{
    struct graph *g = module->g;
    struct merger m = {.g = g, .n_values = g->values.n};
    m.first = NEW_ARRAY(&g->arena, uint32_t, m.n_values);
    m.latest = NEW_ARRAY(&g->arena, uint32_t, m.n_values);
    for (uint32_t r = 1; r < g->regions.n; r++)
        merge_region(&m, (region_id){r});
    graph_sweep(g);
    return true;
}

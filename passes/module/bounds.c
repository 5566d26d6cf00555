/* Bounds inference (bounds.h): the access function of an operand at symbols for all that varies, and how far it goes
 * with each of them. */
#include "passes/module/bounds.h"

/* Where operand o of a dot is read. p: the batch dims, those that a keeps, those that b keeps. */
static void dot_point(const struct graph *g, const struct node *n, uint32_t o, const expr_id *p, const expr_id *k,
                      expr_id *at)
{
    uint32_t n_batch, n_contract, n_other;
    const int64_t *batch = node_ints(n, o & 1 ? "batch_b" : "batch_a", &n_batch);
    const int64_t *contract = node_ints(n, o & 1 ? "contract_b" : "contract_a", &n_contract);
    node_ints(n, "contract_a", &n_other);
    uint32_t kept = o & 1 ? (uint32_t)value_type(g, n->in[0])->rank - n_other : n_batch;
    for (int32_t d = 0; d < value_type(g, n->in[o])->rank; d++) {
        at[d] = (expr_id){0};
        for (uint32_t j = 0; j < n_batch; j++)
            if (batch[j] == d)
                at[d] = p[j];
        for (uint32_t j = 0; j < n_contract; j++)
            if (contract[j] == d)
                at[d] = k[j];
        if (!at[d].i)
            at[d] = p[kept++];
    }
}

static void conv_point(const struct graph *g, const struct node *n, uint32_t o, const expr_id *p, const expr_id *k,
                       expr_id *at)
{
    struct exprs *x = g->ctx->exprs;
    const struct type *w = value_type(g, n->in[1]);
    int32_t spatial = w->rank - 2;
    int64_t groups = node_int(n, "groups", 1);
    uint32_t c;
    const int64_t *strides = node_ints(n, "strides", &c), *dilations = node_ints(n, "dilations", &c);
    const expr_id *lo = node_exprs(n, "lo", &c);
    at[0] = p[o ? 1 : 0];
    at[1] = k[spatial];
    if (!o && groups > 1) {
        expr_id per_out = ex_div(x, w->dims[0], ex_const(x, groups));
        at[1] = ex_add(x, ex_mul(x, ex_div(x, p[1], per_out), w->dims[1]), k[spatial]);
    }
    for (int32_t d = 0; d < spatial; d++)
        at[2 + d] = o ? k[d]
                      : ex_sub(x, ex_add(x, ex_mulc(x, p[2 + d], strides[d]), ex_mulc(x, k[d], dilations[d])), lo[d]);
}

void contraction_point(const struct graph *g, const struct node *n, uint32_t o, const expr_id *p, const expr_id *k,
                       expr_id *at)
{
    (n->op == OP_CONV ? conv_point : dot_point)(g, n, o, p, k, at);
}

/* Symbols for all that varies. */
struct ranges {
    struct exprs *x;
    uint32_t n;
    struct {
        sym_id sym;
        int64_t extent;
    } of[2 * RANK_MAX];
};

static expr_id range_add(struct ranges *r, const char *name, int64_t extent)
{
    r->of[r->n].sym = sym_new(r->x, SYM_LOOP, name, 0, extent > 1 ? extent - 1 : 1);
    r->of[r->n].extent = extent;
    return ex_sym(r->x, r->of[r->n++].sym);
}

/* The indices that e has over all ranges: linear ones, with steps that are known. */
static bool range_of(const struct ranges *r, expr_id e, expr_id *first, int64_t *extent)
{
    expr_id coef, rest;
    *extent = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        int64_t step, far;
        if (!ex_uses(r->x, e, r->of[i].sym))
            continue;
        if (!ex_linear(r->x, e, r->of[i].sym, &coef, &rest) || !ex_is_const(r->x, coef, &step) || step < 0 ||
            !mul_i64(step, r->of[i].extent - 1, &far) || !add_i64(*extent, far + !*extent, extent))
            return false;
        e = rest;
    }
    *first = e;
    return true;
}

bool contraction_box(const struct graph *g, const struct node *n, uint32_t o, const struct box *of, struct box *out)
{
    struct ranges r = {.x = g->ctx->exprs};
    const struct type *y = value_type(g, n->out[0]), *w = value_type(g, n->in[1]);
    expr_id p[RANK_MAX], k[RANK_MAX], at[RANK_MAX];
    uint32_t n_reduced = (uint32_t)w->rank - 1, c;
    const int64_t *contract = n->op == OP_CONV ? NULL : node_ints(n, "contract_b", &n_reduced);
    const int64_t *xdil = n->op == OP_CONV ? node_ints(n, "xdil", &c) : NULL;
    for (int32_t d = 0; xdil && !o && d < y->rank - 2; d++)
        if (xdil[d] != 1)
            return false;
    for (int32_t d = 0; d < y->rank; d++)
        p[d] = of->extent[d] ? ex_add(r.x, of->first[d], range_add(&r, "p", of->extent[d])) : of->first[d];
    for (uint32_t j = 0; j < n_reduced; j++) {
        int64_t extent;
        uint32_t d = contract ? (uint32_t)contract[j] : j + 2 < (uint32_t)w->rank ? j + 2 : 1;
        if (!ex_is_const(r.x, w->dims[d], &extent) || extent < 1)
            return false;
        k[j] = range_add(&r, "k", extent);
    }
    contraction_point(g, n, o, p, k, at);
    *out = (struct box){.flat = of->flat};
    int32_t rank = value_type(g, n->in[o])->rank;
    for (int32_t d = 0; d < rank; d++)
        if (!range_of(&r, at[d], &out->first[d], &out->extent[d]))
            return false;
    if (of->flat) { /* as they are numbered in the result */
        bool same = out->extent[rank - 2] <= 1 && out->extent[rank - 1] == of->extent[y->rank - 1];
        out->extent[rank - 2] = 0;
        return same;
    }
    return true;
}

bool conv_rows_box(const struct graph *g, const struct node *n, const expr_id *point, expr_id row, int64_t rows,
                   struct box *out)
{
    struct box of = {.first = {point[0], point[1], row, ex_const(g->ctx->exprs, 0)}, .extent = {0, 0, rows, 0}};
    of.extent[1] = conv_depthwise(g, n) ? CHANNEL_BLOCK : 0;
    return ex_is_const(g->ctx->exprs, value_type(g, n->out[0])->dims[3], &of.extent[3]) && of.extent[3] > 0 &&
           contraction_box(g, n, 0, &of, out);
}

bool box_elements(const struct box *r, int32_t rank, int64_t *n)
{
    *n = 1;
    for (int32_t d = 0; d < rank; d++)
        if (r->extent[d] && !mul_i64(*n, r->extent[d], n))
            return false;
    return true;
}

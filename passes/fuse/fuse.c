/* fuse: decides which values are stored, and so what a kernel is.
 *
 * In: a legal graph. Out: module.fused.stored, kernel_of, kernels (each with its place in the region: where its stored
 * value stood, so everything it reads is defined earlier).
 *
 * One walk over a region's nodes from the last to the first. When a node comes up, all its consumers have a kernel,
 * so the *demand* on its result is known: the one kernel that wants it (or several), the point of that kernel's domain
 * at which it is wanted, and whether the consumer needs memory (an operand of a contraction, a runtime call, a
 * nested region). A result wanted by one kernel at one point moves into it; a reduction moves in as the kernel's
 * anchor when it is wanted at the kernel's own points (so the kernel becomes its epilogue), or as an inner reduction
 * when its index uses only some dims of the domain (softmax, LayerNorm: those dims become the outer loops).
 * Everything else is stored by a kernel of its own.
 *
 * This file is the walk and what each class of operators makes of the demand. demand.c passes demands on to operands,
 * store.c says what is stored, stage.c what a convolution computes of its own operand.
 */
#include "passes/fuse/fuse.h"
#include "passes/module/analysis.h"
#include "ir/target/budget.h"
#include "passes/module/attention.h"
#include "passes/module/choices.h"

static struct kernel *kernel_new(struct fuser *f, enum kernel_kind kind, region_id region, uint32_t order, uint32_t *id)
{
    struct kernel k = {.kind = kind, .region = region, .order = order};
    VEC_PUSH(f->m->arena, &f->m->fused.kernels, k);
    VEC_PUSH(f->m->arena, &f->domain_first, (sym_id){0});
    *id = f->m->fused.kernels.n;
    return &f->m->fused.kernels.data[*id - 1];
}

/* ---- kernels ------------------------------------------------------------------------------------------- */

/* A kernel that stores v, running over the points of `domain`: v itself, or an operand of the concat v. */
static uint32_t kernel_over(struct fuser *f, enum kernel_kind kind, value_id v, value_id domain, region_id region,
                            uint32_t order, struct demand *d)
{
    uint32_t id;
    struct kernel *k = kernel_new(f, kind, region, order, &id);
    VEC_PUSH(f->m->arena, &k->outs, v);
    k->domain = domain;
    f->m->fused.stored[v.i] = true;
    const struct type *t = value_type(f->g, domain);
    expr_id *idx = NEW_ARRAY(f->m->arena, expr_id, t->rank + 1);
    for (int32_t i = 0; i < t->rank; i++) {
        sym_id s = demand_symbol(f, t->dims[i], arena_printf(f->m->arena, "d%u.%d", id, i));
        if (i == 0)
            f->domain_first.data[id - 1] = s;
        idx[i] = ex_sym(f->x, s);
    }
    *d = (struct demand){.kernel = id, .bijective = true, .idx = idx};
    return id;
}

static uint32_t kernel_store(struct fuser *f, enum kernel_kind kind, value_id v, region_id region, uint32_t order,
                             struct demand *d)
{
    return kernel_over(f, kind, v, v, region, order, d);
}

static void kernel_add(struct fuser *f, uint32_t id, node_id n)
{
    struct kernel *k = &f->m->fused.kernels.data[id - 1];
    VEC_PUSH(f->m->arena, &k->nodes, n);
    f->m->fused.kernel_of[n.i] = id;
}

/* The reduction becomes the anchor of the kernel that wants it at its own points. */
static bool adopt_anchor(struct fuser *f, node_id id, const struct demand *d, enum kernel_kind kind)
{
    struct kernel *k = &f->m->fused.kernels.data[d->kernel - 1];
    if (!d->bijective || d->several_points || d->context || k->kind != KERNEL_MAP || k->anchor.i || k->has_rows)
        return false;
    if (f->m->asked.opt_level == 0)
        return false;
    value_id v = graph_node(f->g, id)->out[0];
    for (value_id u = v; u.i != k->domain.i;) {
        node_id via = f->demand[u.i].via;
        if (op_shape(graph_node(f->g, via)->op) == SHAPE_VIEW)
            VEC_PUSH(f->m->arena, &k->path, via);
        u = graph_node(f->g, via)->out[0];
    }
    k->kind = kind;
    k->anchor = id;
    kernel_add(f, d->kernel, id);
    return true;
}

/* A convolution that only the maps of a staged value want, at the points at which its kernel fills scratch. */
static bool adopt_product(struct fuser *f, node_id id, const struct demand *d)
{
    struct kernel *k = &f->m->fused.kernels.data[d->kernel - 1];
    if (!k->form.staged.i || d->context != graph_value(f->g, k->form.staged)->def.i || d->several_points ||
        !stage_adopts(f->m, k, id))
        return false;
    k->form.product = id;
    kernel_add(f, d->kernel, id);
    return true;
}

/* Does a reduction of such rows have a kernel of its own, for threads to share? */
static bool few_rows(const struct fuser *f, const struct kernel *k, uint32_t mask)
{
    const struct type *t = value_type(f->g, k->domain);
    int64_t rows = 1, inner = 1, n;
    for (int32_t i = 0; i < t->rank; i++) {
        int64_t *side = mask >> i & 1 ? &rows : &inner;
        if (!ex_is_const(f->x, t->dims[i], &n) || mul_i64(*side, n, side) == false)
            return false;
    }
    return !f->m->asked.strict && rows_are_split(rows, inner);
}

static bool inline_reduce(struct fuser *f, node_id id, const struct demand *d)
{
    const struct node *n = graph_node(f->g, id);
    struct kernel *k = &f->m->fused.kernels.data[d->kernel - 1];
    uint32_t mask, rank = (uint32_t)value_type(f->g, k->domain)->rank;
    if (f->m->asked.opt_level == 0 || d->several_points || k->kind != KERNEL_MAP || k->anchor.i || !d->idx)
        return false;
    if (!demand_row_mask(f, d, value_type(f->g, n->out[0])->rank, &mask))
        return false;
    if (mask == (rank >= 32 ? UINT32_MAX : (1u << rank) - 1) || (k->has_rows && k->row_mask != mask) ||
        (!k->has_rows && few_rows(f, k, mask)))
        return false;
    k->has_rows = true;
    k->row_mask = mask;
    kernel_add(f, d->kernel, id);
    demand_reduce_operand(f, id, d);
    return true;
}

/* A product of the elements that one L_DOT takes, at each index of a segment: the kernel of the segments computes it.
 */
static bool inline_group(struct fuser *f, node_id id, const struct demand *d)
{
    const struct node *n = graph_node(f->g, id);
    uint32_t n_batch, n_contract;
    const int64_t *contract = node_ints(n, "contract_a", &n_contract);
    int64_t size, along = n_contract == 1 ? contract[0] : -1;
    node_ints(n, "batch_a", &n_batch);
    const struct type *t = value_type(f->g, n->in[0]);
    if (along != n_batch || !d->idx || !d->via.i || graph_node(f->g, d->via)->op != OP_SEGMENTS ||
        !ex_is_const(f->x, t->dims[along], &size) || size != dot_group(f->m, n))
        return false;
    expr_id idx[RANK_MAX];
    for (int32_t i = 0, o = 0; i < t->rank; i++)
        idx[i] = i == along ? ex_sym(f->x, demand_symbol(f, t->dims[i], arena_printf(f->m->arena, "r%u", id.i)))
                            : d->idx[o++];
    kernel_add(f, d->kernel, id);
    demand_at(f, n->in[0], id, d, idx, false, id.i);
    demand_hard(f, n->in[1], d->kernel, 0);
    return true;
}

/* ---- one node --------------------------------------------------------------------------------------------- */

/* What two stages of a row want (the terms of a sum and the quotients, say) is kept in scratch if it is dear. What v is
 * computed from is then wanted by v alone. */
static void local_make(struct fuser *f, node_id id, struct demand *d)
{
    value_id v = graph_node(f->g, id)->out[0];
    struct row_local local;
    if (!store_row(f, v, d, &local))
        return;
    VEC_PUSH(f->m->arena, &f->m->fused.kernels.data[d->kernel - 1].locals, local);
    d->context = id.i;
}

/* A stored concat is written piece by piece: each operand has a kernel of its own that runs over the operand's points,
 * so that whatever computes the operand (a convolution, say) becomes that kernel and writes in place. */
static void fuse_pieces(struct fuser *f, node_id id, region_id region, uint32_t order)
{
    const struct node *n = graph_node(f->g, id);
    for (uint32_t i = 0; i < n->n_in; i++) {
        struct demand own;
        uint32_t k = kernel_over(f, KERNEL_MAP, n->out[0], n->in[i], region, order, &own);
        f->m->fused.kernels.data[k - 1].piece = i + 1;
        kernel_add(f, k, id);
        demand_at(f, n->in[i], id, &own, own.idx, true, 0);
    }
}

/* A point of v of symbols of its own, named after a node. */
static void own_point(struct fuser *f, value_id v, const char *letter, node_id id, expr_id *idx)
{
    const struct type *t = value_type(f->g, v);
    for (int32_t i = 0; i < t->rank; i++) {
        const char *name = arena_printf(f->m->arena, "%s%u.%d", letter, id.i, i);
        idx[i] = ex_sym(f->x, demand_symbol(f, t->dims[i], name));
    }
}

/* A map that only a contraction wants, in memory, may be a stage of its kernel: what it is computed from is wanted at
 * points that have nothing to do with those of the kernel's domain. */
static bool stage_map(struct fuser *f, node_id id, const struct demand *d)
{
    value_id v = graph_node(f->g, id)->out[0];
    struct kernel *k = d->hard && d->kernel != DEMAND_MANY ? &f->m->fused.kernels.data[d->kernel - 1] : NULL;
    if (!k || k->kind != KERNEL_CONTRACT || !stage_wanted(f->m, k, v))
        return false;
    expr_id idx[RANK_MAX];
    own_point(f, v, "s", id, idx);
    kernel_add(f, d->kernel, id);
    struct demand own = {.kernel = d->kernel, .context = id.i, .idx = idx};
    demand_operands(f, id, &own);
    return true;
}

static void fuse_map(struct fuser *f, node_id id, region_id region, uint32_t order, bool required)
{
    const struct node *n = graph_node(f->g, id);
    value_id v = n->out[0];
    struct demand *d = &f->demand[v.i], own;
    bool view = op_shape(n->op) == SHAPE_VIEW, store = store_wanted(f, n, d, required);
    if (view && !store) {
        if (d->kernel == DEMAND_MANY || d->hard) { /* free for every consumer: the base is what has to be in memory */
            if (d->kernel != DEMAND_MANY)
                f->m->fused.kernel_of[id.i] = DEMAND_NONE;
            for (uint32_t k = 0; k < n->n_in; k++)
                demand_hard(f, n->in[k], d->kernel, d->depth + 1);
            return;
        }
        kernel_add(f, d->kernel, id);
        demand_operands(f, id, d);
        return;
    }
    if (store && n->op == OP_CONCAT) {
        fuse_pieces(f, id, region, order);
        return;
    }
    if (store && !view && !required && stage_map(f, id, d))
        return;
    if (store) {
        uint32_t k = kernel_store(f, KERNEL_MAP, v, region, order, &own);
        kernel_add(f, k, id);
        demand_operands(f, id, &own);
        return;
    }
    kernel_add(f, d->kernel, id);
    local_make(f, id, d);
    demand_operands(f, id, d);
}

static enum kernel_kind anchor_kind(const struct node *n)
{
    switch (op_shape(n->op)) {
    case SHAPE_SCAN: return KERNEL_SCAN;
    case SHAPE_SCATTER: return KERNEL_SCATTER;
    case SHAPE_OPAQUE: return KERNEL_OPAQUE;
    case SHAPE_CONTROL: return KERNEL_CONTROL;
    default: return n->op == OP_DOT || n->op == OP_CONV ? KERNEL_CONTRACT : KERNEL_REDUCE;
    }
}

/* v is wanted at idx, once each: in memory when it is dear, or costs nothing there. */
static void demand_cheap(struct fuser *f, value_id v, node_id via, const struct demand *d, const expr_id *idx)
{
    if (store_pays(f, v))
        demand_hard(f, v, d->kernel, 0);
    else
        demand_at(f, v, via, d, idx, false, via.i);
}

/* What the softmax and the scores of an attention read besides each other: the sink, what maps on the way from the
 * scores have for other operands, and the rows' operand of the scores, wanted at the point that a point of p has there.
 */
static void demand_sides(struct fuser *f, const struct attention *a, const struct demand *d)
{
    const struct node *scores = graph_node(f->g, a->scores);
    expr_id idx[RANK_MAX], at[RANK_MAX];
    struct dot_dims rows;
    own_point(f, graph_node(f->g, a->values)->in[0], "a", a->values, idx);
    attention_walk(f->g, &a->to_z, idx);
    if (a->sink.node.i) {
        memcpy(at, idx, sizeof at);
        attention_walk(f->g, &a->to_max, at);
        demand_cheap(f, attention_operand(f->g, a->sink), a->sink.node, d, at);
    }
    for (uint32_t i = 0; i < a->to_scores.n; i++) {
        const struct attention_step s = a->to_scores.data[i];
        const struct node *n = graph_node(f->g, s.node);
        for (uint32_t o = 0; o < n->n_in; o++)
            if (o != s.operand)
                demand_cheap(f, n->in[o], s.node, d, idx);
        attention_walk(f->g, &(attention_steps){.data = &a->to_scores.data[i], .n = 1}, idx);
    }
    if (!attention_dims(f->g, scores, a->rows_of, &rows))
        return;
    for (uint32_t i = 0; i < rows.n_batch; i++)
        at[rows.batch[i]] = idx[i];
    at[rows.free] = idx[value_type(f->g, scores->out[0])->rank - 2 + (int32_t)a->rows_of];
    const char *name = arena_printf(f->m->arena, "a%u.d", a->values.i);
    const struct type *t = value_type(f->g, scores->in[a->rows_of]);
    at[rows.contract] = ex_sym(f->x, demand_symbol(f, t->dims[rows.contract], name));
    demand_cheap(f, scores->in[a->rows_of], a->scores, d, at);
}

/* What v is a view of. */
static value_id viewed(const struct fuser *f, value_id v)
{
    const struct node *n;
    while ((n = value_node(f->g, v)) && op_shape(n->op) == SHAPE_VIEW && n->n_in == 1 && !f->required[v.i])
        v = n->in[0];
    return v;
}

/* Is v in memory whatever the kernels? */
static bool in_memory(const struct fuser *f, value_id v)
{
    return f->required[v.i] || !value_node(f->g, v) || value_is_const(f->g, v);
}

/* Is v a conversion, or views of one, of narrower elements that are in memory, perhaps with a factor (a scale) that is,
 * too? */
static bool widens_memory(const struct fuser *f, value_id v)
{
    v = viewed(f, v);
    const struct node *n = value_node(f->g, v);
    for (uint32_t k = 0; n && n->op == OP_MUL && k < 2; k++)
        if (in_memory(f, viewed(f, n->in[1 - k]))) {
            v = viewed(f, n->in[k]);
            n = value_node(f->g, v);
        }
    if (!n || n->op != OP_CONVERT || value_is_const(f->g, v))
        return false;
    value_id from = viewed(f, n->in[0]);
    return elem_size(value_type(f->g, from)->elem) < elem_size(value_type(f->g, v)->elem) && in_memory(f, from);
}

/* Is v a conversion of floats that the caller gives in a narrower type? A product then reads fewer bytes, and no kernel
 * writes the wide ones first. */
static bool widens_input(const struct fuser *f, value_id v)
{
    const struct node *n = value_node(f->g, v);
    return n && n->op == OP_CONVERT && !value_node(f->g, n->in[0]) && elem_class(value_type(f->g, v)->elem) == 'F' &&
           elem_class(value_type(f->g, n->in[0])->elem) == 'F' && widens_memory(f, v);
}

/* Keys or values of an attention, and what widens_input: in memory, but where their loads can widen them. */
static void demand_keys(struct fuser *f, value_id v, node_id by, const struct demand *d)
{
    expr_id idx[RANK_MAX];
    if (!widens_memory(f, v)) {
        demand_hard(f, v, d->kernel, 0);
        return;
    }
    own_point(f, v, "k", by, idx);
    demand_at(f, v, by, d, idx, false, by.i);
}

/* The kernel of an attention's second contraction computes all that lies between it and the operands of the first, with
 * what masks and biases are computed from, and the rows' operand of the first. */
static void fuse_attention(struct fuser *f, const struct attention *a, const struct demand *d)
{
    const struct node *values = graph_node(f->g, a->values), *scores = graph_node(f->g, a->scores);
    f->m->fused.kernels.data[d->kernel - 1].form.attention = a;
    for (uint32_t i = 0; i < a->nodes.n; i++)
        kernel_add(f, d->kernel, a->nodes.data[i]);
    demand_keys(f, values->in[1], a->values, d);
    demand_keys(f, scores->in[1 - a->rows_of], a->scores, d);
    demand_sides(f, a, d);
}

/* Do sums of segments v lie in the same order in what the kernel stores, row by row? Transposes are faster in a kernel
 * of their own, and so are blocks of channels, which convolutions and windows read. */
static bool stores_rows(const struct fuser *f, value_id v, const struct demand *d)
{
    value_id domain = f->m->fused.kernels.data[d->kernel - 1].domain;
    for (; d->bijective && v.i != domain.i; v = graph_node(f->g, f->demand[v.i].via)->out[0]) {
        enum op op = graph_node(f->g, f->demand[v.i].via)->op;
        if (op_shape(op) == SHAPE_VIEW && op != OP_RESHAPE && op != OP_IDENTITY)
            return false;
    }
    for (const struct graph_user *u = graph_user(f->g, domain, NULL); u; u = graph_user(f->g, domain, u)) {
        enum op op = u->node.i ? graph_node(f->g, u->node)->op : OP_IDENTITY;
        if (op == OP_CONV || op == OP_WINDOW)
            return false;
    }
    return d->bijective;
}

static void fuse_reduce(struct fuser *f, node_id id, region_id region, uint32_t order, bool required)
{
    const struct node *n = graph_node(f->g, id);
    value_id v = n->out[0];
    struct demand *d = &f->demand[v.i], own;
    enum kernel_kind kind = anchor_kind(n);
    bool single = !required && !d->hard && d->kernel != DEMAND_MANY && (n->op != OP_SEGMENTS || stores_rows(f, v, d));
    if (single && n->op == OP_REDUCE && !d->bijective && inline_reduce(f, id, d))
        return;
    if (single && n->op == OP_DOT && inline_group(f, id, d))
        return;
    if (!single || (!adopt_anchor(f, id, d, kind) && !adopt_product(f, id, d))) {
        uint32_t k = kernel_store(f, kind, v, region, order, &own);
        f->m->fused.kernels.data[k - 1].anchor = id;
        kernel_add(f, k, id);
        d = &own;
    }
    if (n->op == OP_REDUCE) {
        struct demand at = *d;
        at.bijective = false;
        if (d != &own) { /* the result's own point: as its consumers want it */
            at = f->demand[v.i];
            at.bijective = false;
        }
        demand_reduce_operand(f, id, &at);
        return;
    }
    if (n->op == OP_SEGMENTS) {
        demand_segments(f, id, d);
        return;
    }
    const struct attention *attention = attention_of_values(f->m, id);
    if (attention) {
        fuse_attention(f, attention, d);
        return;
    }
    bool copies = kind == KERNEL_SCATTER && d == &own; /* its first operand, at each point of the result, once */
    if (copies)
        demand_cheap(f, n->in[0], id, d, d->idx);
    for (uint32_t k = copies; k < n->n_in; k++)
        if (n->op == OP_DOT && k == 1 && widens_input(f, n->in[k]))
            demand_keys(f, n->in[k], id, d);
        else
            demand_hard(f, n->in[k], d->kernel, 0);
}

static void fuse_call(struct fuser *f, node_id id, region_id region, uint32_t order)
{
    const struct node *n = graph_node(f->g, id);
    uint32_t k;
    struct kernel *kernel = kernel_new(f, anchor_kind(n), region, order, &k);
    kernel->anchor = id;
    for (uint32_t r = 0; r < n->n_out; r++) {
        VEC_PUSH(f->m->arena, &f->m->fused.kernels.data[k - 1].outs, n->out[r]);
        f->m->fused.stored[n->out[r].i] = true;
    }
    kernel_add(f, k, id);
    for (uint32_t i = 0; i < n->n_in; i++) {
        demand_hard(f, n->in[i], k, 0);
        value_id v = view_plain(f->g, n->in[i]); /* the call reads it row-major, under stored views too */
        demand_hard(f, v, k, 0);
        if (op_shape(value_op(f->g, v)) == SHAPE_VIEW && !value_is_const(f->g, v))
            f->required[v.i] = true;
    }
}

static bool wanted(const struct fuser *f, const struct node *n)
{
    if (n->op == OP_ASSERT || n->op == OP_LOOP)
        return true;
    for (uint32_t r = 0; r < n->n_out; r++)
        if (f->required[n->out[r].i] || f->demand[n->out[r].i].kernel != DEMAND_NONE)
            return true;
    return false;
}

/* The user wants the result of this node of the file in memory; of its parts only the last one. */
static bool is_chosen_to_store(const struct fuser *f, node_id id)
{
    const struct node *n = graph_node(f->g, id);
    const char *output = source_get(f->m->ctx, n->src)->output, *name = graph_value(f->g, n->out[0])->name;
    return f->m->asked.choices.n && output && name && !strcmp(name, output) && choice_of_node(f->m, id, CHOOSE_STORE);
}

static void fuse_node(struct fuser *f, node_id id, region_id region, uint32_t order)
{
    const struct node *n = graph_node(f->g, id);
    if (n->dead || n->op == OP_CONSTANT || !wanted(f, n))
        return;
    if (n->n_out == 1 && value_is_const(f->g, n->out[0]) && !f->required[n->out[0].i])
        return;
    bool required = n->n_out > 0 && (f->required[n->out[0].i] || is_chosen_to_store(f, id));
    switch (op_shape(n->op)) {
    case SHAPE_MAP:
    case SHAPE_POINT:
    case SHAPE_INDEX:
    case SHAPE_VIEW: fuse_map(f, id, region, order, required); break;
    case SHAPE_OPAQUE:
    case SHAPE_CONTROL: fuse_call(f, id, region, order); break;
    case SHAPE_SCAN:
    case SHAPE_SCATTER:
        required = true;
        fuse_reduce(f, id, region, order, required);
        break;
    default: fuse_reduce(f, id, region, order, required); break;
    }
}

/* ---- regions ------------------------------------------------------------------------------------------------- */

static void fuse_region(struct fuser *f, region_id r)
{
    const struct region *region = graph_get_region(f->g, r);
    for (uint32_t i = region->nodes.n; i > 0; i--) {
        node_id id = region->nodes.data[i - 1];
        fuse_node(f, id, r, i);
    }
}

static void require(struct fuser *f, value_id v)
{
    if (v.i)
        f->required[v.i] = true;
}

/* Was the region left behind by a node that is gone? */
static bool is_orphan(const struct graph *g, region_id r)
{
    node_id owner = graph_get_region(g, r)->owner;
    return r.i != 1 && (!owner.i || graph_node(g, owner)->dead);
}

static void require_roots(struct fuser *f)
{
    struct graph *g = f->g;
    for (uint32_t r = 1; r < g->regions.n; r++) {
        struct region *region = graph_get_region(g, (region_id){r});
        if (is_orphan(g, (region_id){r}))
            continue;
        for (uint32_t i = 0; i < region->params.n; i++)
            f->m->fused.stored[region->params.data[i].i] = true;
        for (uint32_t i = 0; i < region->results.n; i++)
            require(f, region->results.data[i]);
        if (r == 1)
            continue;
        for (uint32_t i = 0; i < region->nodes.n; i++) { /* captures */
            const struct node *n = graph_node(g, region->nodes.data[i]);
            for (uint32_t k = 0; k < n->n_in; k++) {
                const struct node *def = value_node(g, n->in[k]);
                if (def && def->parent.i != r && !value_is_const(g, n->in[k]))
                    require(f, n->in[k]);
            }
        }
    }
    for (uint32_t k = 0; k < g->outputs.n; k++) {
        value_id v = g->outputs.data[k].value, of = {0};
        require(f, v);
        if (value_op(g, v) == OP_IDENTITY)
            of = value_node(g, v)->in[0];
        if (of.i && !value_is_const(g, of)) /* a copy is of something stored */
            require(f, of);
    }
    for (sym_id s = sym_next(f->x, SYM_VALUE, (sym_id){0}); s.i; s = sym_next(f->x, SYM_VALUE, s)) {
        const struct symbol *sym = sym_get(f->x, s);
        if (sym->value && sym->value < f->m->fused.n_values && !value_is_const(g, (value_id){sym->value}))
            require(f, (value_id){sym->value});
    }
}

/* Kernels compute with elements of at most 8 bytes; strings and complex numbers go through calls only. */
static bool kernels_movable(struct module *m)
{
    for (uint32_t i = 0; i < m->fused.kernels.n; i++) {
        const struct kernel *k = &m->fused.kernels.data[i];
        for (uint32_t j = 0; j < k->nodes.n && k->kind != KERNEL_OPAQUE && k->kind != KERNEL_CONTROL; j++) {
            const struct node *n = graph_node(m->g, k->nodes.data[j]);
            const struct type *t = n->n_out ? value_type(m->g, n->out[0]) : NULL;
            if (t && t->kind == TYPE_TENSOR && (elem_class(t->elem) == 'S' || elem_class(t->elem) == 'C'))
                return error_model(m->ctx, n->src, "'%s' of elements of type %s is not supported in compiled code",
                                   op_name(n->op), elem_name(t->elem));
        }
    }
    return true;
}

bool fuse(struct module *m)
{
    struct fuser f = {.m = m, .g = m->g, .x = m->ctx->exprs};
    m->fused.n_values = m->g->values.n;
    m->fused.stored = NEW_ARRAY(m->arena, bool, m->fused.n_values);
    m->fused.kernel_of = NEW_ARRAY(m->arena, uint32_t, m->g->nodes.n);
    f.demand = NEW_ARRAY(m->arena, struct demand, m->fused.n_values);
    f.required = NEW_ARRAY(m->arena, bool, m->fused.n_values);
    require_roots(&f);
    for (uint32_t r = 1; r < m->g->regions.n; r++)
        fuse_region(&f, (region_id){r});
    return m->ctx->fail == FAIL_NONE && kernels_movable(m);
}

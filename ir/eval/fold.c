/* Constant folding on demand: value_fold and what reads small constants.
 *
 * A lazy constant is a value all of whose ancestors are constants; nothing marks it. Folding runs the interpreter over
 * just the nodes that it depends on, in scratch memory, and keeps the result in the graph's arena. Tables over all
 * values are kept from fold to fold, so that many small folds of a large graph cost what they touch. Walks use a
 * list, not the stack: a file may have chains of nodes of any length.
 */
#include "ir/eval/fold.h"

#include "ir/eval/eval.h"
#include "ir/eval/field.h"

enum { RESIDUES_MOST = 1 << 24 /* bytes of constants that become residues for one number */ };

typedef VEC(node_id) node_list;

struct folds *folds_of(struct graph *g)
{
    if (!g->folds)
        g->folds = NEW(&g->arena, struct folds);
    struct folds *f = g->folds;
    if (f->cap < g->values.n) {
        struct folds old = *f;
        f->cap = g->values.n * 2;
        f->read_cost = NEW_ARRAY(&g->arena, uint16_t, f->cap);
        f->data = NEW_ARRAY(&g->arena, const struct tensor_data *, f->cap);
        f->range = NEW_ARRAY(&g->arena, struct known_range, f->cap);
        if (old.cap) {
            memcpy(f->read_cost, old.read_cost, old.cap * sizeof *f->read_cost);
            memcpy(f->data, old.data, old.cap * sizeof *f->data);
            memcpy(f->range, old.range, old.cap * sizeof *f->range);
        }
    }
    return f;
}

void folds_copied(struct graph *g, struct arena *arena)
{
    const struct folds *from = folds_of(g);
    struct folds *f = arena_copy(arena, from, sizeof *from);
    f->read_cost = arena_copy(arena, from->read_cost, from->cap * sizeof *f->read_cost);
    f->data = arena_copy(arena, from->data, from->cap * sizeof *f->data);
    f->range = NEW_ARRAY(arena, struct known_range, f->cap);
    f->eval = NULL;
    f->visited = NULL;
    f->eval_values = f->eval_nodes = 0;
    g->folds = f;
    g->residues = NULL;
}

/* ---- folding ----------------------------------------------------------------------------------------------------- */

static int64_t type_bytes(const struct graph *g, const struct type *t)
{
    int64_t bytes = elem_size(t->elem), d;
    for (int32_t i = 0; i < t->rank; i++)
        if (!ex_is_const(g->ctx->exprs, t->dims[i], &d) || !mul_i64(bytes, d, &bytes))
            return INT64_MAX;
    return bytes;
}

static const struct tensor_data *new_data(struct graph *g, enum elem elem, int32_t rank, const int64_t *dims,
                                          const void *bytes, size_t size)
{
    struct tensor_data *t = NEW(&g->arena, struct tensor_data);
    *t = (struct tensor_data){.elem = elem, .rank = rank, .bytes = {bytes, size}};
    t->dims = arena_copy(&g->arena, dims, (size_t)rank * sizeof *dims);
    return t;
}

static const struct tensor_data *constant_data(struct graph *g, const struct node *n)
{
    uint32_t rank;
    const int64_t *dims = node_ints(n, "dims", &rank);
    const enum elem elem = node_elem(n, "elem");
    struct span data = node_attr(n, "data")->u.data;
    if (g->folds->residues && field_holds(elem)) {
        char *out = arena_alloc(&g->arena, data.size + 1);
        field_of_elements(elem, data.data, out, data.size);
        data.data = out;
    }
    return new_data(g, elem, (int32_t)rank, dims, data.data, data.size);
}

/* The nodes that v needs, operands first; leaves: bytes of the constants among them. */
static void needed_nodes(struct graph *g, value_id v, struct arena *a, node_list *order, int64_t *leaves)
{
    struct folds *f = folds_of(g);
    node_list stack = {0};
    uint8_t *state = f->visited; /* 1: operands pushed, 2: listed */
    VEC_PUSH(a, &stack, graph_value(g, v)->def);
    while (stack.n) {
        node_id id = stack.data[stack.n - 1];
        const struct node *n = graph_node(g, id);
        if (state[id.i] != 0) {
            stack.n--;
            if (state[id.i] == 1)
                VEC_PUSH(a, order, id);
            state[id.i] = 2;
            continue;
        }
        state[id.i] = 1;
        if (n->op == OP_CONSTANT)
            *leaves += type_bytes(g, value_type(g, n->out[0]));
        for (uint32_t i = 0; i < n->n_in; i++) {
            node_id def = graph_value(g, n->in[i])->def;
            if (!f->data[n->in[i].i] && state[def.i] == 0)
                VEC_PUSH(a, &stack, def);
        }
    }
}

/* The interpreter's state and the marks, with room for the graph as it is now. */
static struct eval *fold_state(struct graph *g, struct folds *f)
{
    if (f->eval_values < g->values.n || f->eval_nodes < g->nodes.n) {
        f->eval_values = g->values.n * 2;
        f->eval_nodes = g->nodes.n * 2;
        f->eval = NEW(&g->arena, struct eval);
        f->visited = NEW_ARRAY(&g->arena, uint8_t, f->eval_nodes);
        eval_prepare(f->eval, g, &g->arena, f->eval_values, f->eval_nodes);
    }
    f->eval->text = "";
    return f->eval;
}

/* Leaves no trace of the nodes run. */
static void fold_clear(struct graph *g, struct folds *f, const node_list *order)
{
    for (uint32_t k = 0; k < order->n; k++) {
        const struct node *n = graph_node(g, order->data[k]);
        f->visited[order->data[k].i] = 0;
        for (uint32_t i = 0; i < n->n_out; i++)
            f->eval->set[n->out[i].i] = false;
        for (uint32_t i = 0; i < n->n_in; i++)
            f->eval->set[n->in[i].i] = false;
    }
}

/* Runs the nodes in order; operands that are folded already come from the cache. */
static enum eval_status run_nodes(struct eval *e, const node_list *order)
{
    struct folds *f = e->g->folds;
    for (uint32_t k = 0; k < order->n; k++) {
        const struct node *n = graph_node(e->g, order->data[k]);
        if (n->op == OP_CONSTANT && f->residues) {
            f->data[n->out[0].i] = constant_data(e->g, n);
            continue;
        }
        for (uint32_t i = 0; i < n->n_in; i++) {
            const struct tensor_data *known = f->data[n->in[i].i];
            if (!known || e->set[n->in[i].i])
                continue;
            struct tensor t = {.kind = TYPE_TENSOR,
                               .elem = known->elem,
                               .rank = known->rank,
                               .present = true,
                               .dims = (int64_t *)(uintptr_t)known->dims,
                               .data = (void *)(uintptr_t)known->bytes.data};
            TRY(eval_set(e, n->in[i], &t));
        }
        TRY(eval_node(e, order->data[k]));
    }
    return EVAL_OK;
}

/* Of a value that is not folded yet. *why: what kept it from that, a failure of this kind. */
static const struct tensor_data *fold(struct graph *g, struct folds *f, value_id v, enum fail *fail, const char **why)
{
    const struct limits *limits = &g->ctx->limits;
    node_id def = graph_value(g, v)->def;
    if (graph_node(g, def)->op == OP_CONSTANT)
        return f->data[v.i] = constant_data(g, graph_node(g, def));
    struct arena scratch;
    node_list order = {0};
    int64_t leaves = 0, bytes = type_bytes(g, value_type(g, v));
    const struct tensor_data *result = NULL;
    arena_init(&scratch, g->ctx);
    struct eval *e = fold_state(g, f);
    e->arena = &scratch;
    eval_forget(e);
    needed_nodes(g, v, &scratch, &order, &leaves);
    const bool one = bytes > limits->fold_bytes + leaves || (f->residues && leaves > RESIDUES_MOST);
    if (one || bytes > limits->fold_total - f->total) {
        *fail = FAIL_LIMIT;
        *why = arena_printf(&g->arena,
                            "%s: folding this constant makes %lld bytes of %lld, after %lld of others: more than %lld "
                            "%s",
                            op_name(graph_node(g, def)->op), (long long)bytes, (long long)leaves, (long long)f->total,
                            (long long)(one ? limits->fold_bytes : limits->fold_total),
                            one ? "beyond its inputs (--limit-fold-bytes)" : "in all (--limit-fold-total)");
    } else {
        enum eval_status status = run_nodes(e, &order);
        const struct tensor *t = &e->vals[v.i];
        if (status == EVAL_OK)
            result = f->data[v.i] = new_data(g, t->elem, t->rank, t->dims,
                                             arena_copy(&g->arena, t->data, (size_t)bytes), (size_t)bytes);
        *fail = status == EVAL_NOMEM ? FAIL_LIMIT : FAIL_MODEL;
        *why = result ? NULL : arena_printf(&g->arena, "constant folding: %s", e->text);
        f->total += result ? bytes : 0;
    }
    fold_clear(g, f, &order);
    arena_release(&scratch);
    return result;
}

const struct tensor_data *value_fold(struct graph *g, value_id v)
{
    struct folds *f = folds_of(g);
    enum fail fail = FAIL_NONE;
    const char *why = NULL;
    if (f->data[v.i])
        return f->data[v.i];
    node_id def = graph_value(g, v)->def;
    src_id src = def.i ? graph_node(g, def)->src : (src_id){0};
    if (!value_is_const(g, v)) {
        error_internal(g->ctx, src, "folding of a value that is not constant");
        return NULL;
    }
    const struct tensor_data *result = fold(g, f, v, &fail, &why);
    if (!result)
        error_at(g->ctx, fail, src, NULL, "%s", why);
    return result;
}

const struct tensor_data *value_fold_in_field(struct graph *g, value_id v)
{
    struct folds *floats = g->folds;
    enum fail fail;
    const char *why;
    g->folds = g->residues;
    g->ctx->field = true;
    struct folds *f = g->residues = folds_of(g);
    f->residues = true;
    const struct tensor_data *result = f->data[v.i] ? f->data[v.i] : fold(g, f, v, &fail, &why);
    g->folds = floats;
    g->ctx->field = false;
    return result;
}

/* ---- small constants --------------------------------------------------------------------------------------------- */

static const struct tensor_data *fold_of_length(struct graph *g, value_id v, uint32_t n)
{
    const struct type *t = value_type(g, v);
    int64_t d, count = 1;
    if (t->kind != TYPE_TENSOR || t->rank == RANK_UNKNOWN || !strchr("BIUF", elem_class(t->elem)))
        return NULL;
    for (int32_t i = 0; i < t->rank; i++)
        if (!ex_is_const(g->ctx->exprs, t->dims[i], &d) || !mul_i64(count, d, &count))
            return NULL;
    return count == n && value_is_const(g, v) ? value_fold(g, v) : NULL;
}

bool value_const_i64(struct graph *g, value_id v, int64_t *out, uint32_t n)
{
    const struct tensor_data *t = v.i ? fold_of_length(g, v, n) : NULL;
    for (uint32_t i = 0; t && i < n; i++)
        out[i] = elem_to_i64(t->elem, (const char *)t->bytes.data + i * elem_size(t->elem));
    return t != NULL;
}

bool value_const_f64(struct graph *g, value_id v, double *out, uint32_t n)
{
    const struct tensor_data *t = v.i ? fold_of_length(g, v, n) : NULL;
    for (uint32_t i = 0; t && i < n; i++)
        out[i] = elem_to_f64(t->elem, (const char *)t->bytes.data + i * elem_size(t->elem));
    return t != NULL;
}

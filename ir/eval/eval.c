/* The reference interpreter: runs a legal graph on concrete tensors, one operator at a time, in the most obvious way.
 *
 * Tests compare compiled code with it, and constant folding runs it. Memory comes from the caller's arena; it reuses
 * the blocks of values that no later node reads. It binds symbols at entry from the inputs' shapes, and where values
 * define them, and checks the shape of every result against the declared one. No graph makes it crash: a failure is a
 * status and a text. It recurses into regions, whose depth the graph limits.
 */
#include "ir/eval/eval.h"

#include "ir/eval/shared.h"

static bool within(int64_t value, struct sym_bounds b)
{
    return value >= b.lo && value <= b.hi && value % (b.divisor > 0 ? b.divisor : 1) == 0;
}

static enum eval_status bind(struct eval *e, sym_id s, int64_t value, enum eval_status failure)
{
    const struct symbol *sym = sym_get(e->ex, s);
    const struct sym_bounds b = sym->given;
    if (!within(value, b))
        return eval_fail(e, failure, "%s is %lld, which is not within %lld to %lld by %lld", sym->name,
                         (long long)value, (long long)b.lo, (long long)b.hi, (long long)b.divisor);
    e->sym[s.i] = value;
    e->empty |= value >= sym->least && value < sym->filled;
    return EVAL_OK;
}

/* A symbol that is alone in a dim, or {0}. */
static sym_id dim_symbol(struct eval *e, const struct type *t, int32_t k)
{
    return t->dims[k].i ? ex_as_sym(e->ex, t->dims[k]) : (sym_id){0};
}

static enum eval_status bind_elements(struct eval *e, value_id v, const struct tensor *t)
{
    for (uint32_t s = e->value_sym[v.i]; s; s = e->next_sym[s]) {
        const struct symbol *sym = sym_get(e->ex, (sym_id){s});
        if (sym->elem == UINT32_MAX)
            continue;
        if (t->kind != TYPE_TENSOR || sym->elem >= tensor_count(t))
            return eval_fail(e, EVAL_SHAPE, "%s needs element %u of a smaller tensor", sym->name, sym->elem);
        TRY(bind(e, (sym_id){s}, elem_to_i64(t->elem, (char *)t->data + sym->elem * elem_size(t->elem)), EVAL_VALUE));
    }
    return EVAL_OK;
}

enum eval_status eval_set(struct eval *e, value_id v, const struct tensor *t)
{
    const struct type *type = value_type(e->g, v);
    e->vals[v.i] = *t;
    e->set[v.i] = true;
    if (e->wanted && e->wanted[v.i]) {
        *e->wanted[v.i] = *t;
        if (e->watch)
            e->watch(e->user, v, t);
    }
    if (type->kind != TYPE_TENSOR)
        return EVAL_OK;
    if (t->kind != TYPE_TENSOR || t->elem != type->elem || (type->rank != RANK_UNKNOWN && t->rank != type->rank))
        return eval_fail(e, EVAL_SHAPE, "a value is %s of rank %d where %s of rank %d was declared", elem_name(t->elem),
                         t->rank, elem_name(type->elem), type->rank);
    for (int32_t k = 0; k < type->rank; k++) {
        sym_id s = dim_symbol(e, type, k);
        if (s.i && e->sym_owner[s.i] == v.i)
            TRY(bind(e, s, t->dims[k], EVAL_SHAPE));
    }
    for (int32_t k = 0; k < type->rank; k++) {
        int64_t want;
        if (type->dims[k].i == 0)
            continue;
        TRY(eval_expr(e, type->dims[k], &want));
        if (want != t->dims[k])
            return eval_fail(e, EVAL_SHAPE, "dimension %d of %s is %lld instead of %lld", k,
                             graph_value(e->g, v)->name ? graph_value(e->g, v)->name : "a value", (long long)t->dims[k],
                             (long long)want);
    }
    return bind_elements(e, v, t);
}

/* ---- preparation ------------------------------------------------------------------------------------------------- */

/* The first value, in execution order, that has a symbol alone in a dim binds it. */
static void own_dims(struct eval *e, value_id v)
{
    const struct type *t = value_type(e->g, v);
    for (int32_t k = 0; t->kind == TYPE_TENSOR && k < t->rank; k++) {
        sym_id s = dim_symbol(e, t, k);
        if (!s.i || e->sym_owner[s.i])
            continue;
        const struct symbol *sym = sym_get(e->ex, s);
        if (sym->kind != SYM_VALUE || sym->value == 0 || sym->elem == UINT32_MAX)
            e->sym_owner[s.i] = v.i;
    }
}

/* The node of region `in` within which node n lies; {0} when n lies elsewhere. */
static node_id enclosing(const struct graph *g, node_id n, region_id in)
{
    for (;;) {
        region_id r = graph_node(g, n)->parent;
        if (r.i == in.i || r.i == 0)
            return r.i ? n : (node_id){0};
        n = graph_get_region(g, r)->owner;
        if (n.i == 0)
            return n;
    }
}

/* May the result share its operand's bytes? */
static bool shares_bytes(enum op op)
{
    enum op_shape shape = op_shape(op);
    return shape == SHAPE_OPAQUE || shape == SHAPE_CONTROL || op == OP_IDENTITY || op == OP_WINDOWS;
}

/* What may share its bytes with another value or lives elsewhere is never recycled. */
static void note_use(struct eval *e, value_id v, node_id user)
{
    node_id def = graph_value(e->g, v)->def;
    if (shares_bytes(graph_node(e->g, user)->op) || !def.i)
        e->shared[v.i] = true;
    else
        e->last_node[v.i] = enclosing(e->g, user, graph_node(e->g, def)->parent).i;
}

static void prepare_region(struct eval *e, region_id r)
{
    struct graph *g = e->g;
    const struct region *region = graph_get_region(g, r);
    for (uint32_t i = 0; i < region->params.n; i++)
        own_dims(e, region->params.data[i]);
    for (uint32_t i = 0; i < region->nodes.n; i++) {
        node_id id = region->nodes.data[i];
        const struct node *n = graph_node(g, id);
        if (n->dead)
            continue;
        for (uint32_t k = 0; k < n->n_in; k++)
            if (n->in[k].i)
                note_use(e, n->in[k], id);
        for (uint32_t k = 0; k < n->n_region; k++)
            prepare_region(e, n->region[k]);
        enum op_shape shape = op_shape(n->op);
        for (uint32_t k = 0; k < n->n_out; k++) {
            if (shape == SHAPE_OPAQUE || shape == SHAPE_CONTROL)
                own_dims(e, n->out[k]);
            if (shape == SHAPE_CONST || shares_bytes(n->op))
                e->shared[n->out[k].i] = true;
        }
    }
    for (uint32_t i = 0; i < region->results.n; i++)
        e->shared[region->results.data[i].i] = true;
}

void eval_prepare(struct eval *e, struct graph *g, struct arena *arena, uint32_t n_values, uint32_t n_nodes)
{
    e->g = g;
    e->ex = g->ctx->exprs;
    e->arena = arena;
    e->vals = NEW_ARRAY(arena, struct tensor, n_values);
    e->set = NEW_ARRAY(arena, bool, n_values);
    e->value_sym = NEW_ARRAY(arena, uint32_t, n_values);
    e->dies = NEW_ARRAY(arena, uint32_t, n_nodes);
}

static void prepare_symbols(struct eval *e)
{
    struct arena *arena = e->arena;
    uint32_t n = e->g->values.n;
    e->n_sym = sym_count(e->ex) + 1;
    e->shared = NEW_ARRAY(arena, bool, n);
    e->last_node = NEW_ARRAY(arena, uint32_t, n);
    e->next_dying = NEW_ARRAY(arena, uint32_t, n);
    e->sym = NEW_ARRAY(arena, int64_t, e->n_sym);
    e->sym_owner = NEW_ARRAY(arena, uint32_t, e->n_sym);
    e->next_sym = NEW_ARRAY(arena, uint32_t, e->n_sym);
    for (uint32_t s = 1; s < e->n_sym; s++) {
        const struct symbol *sym = sym_get(e->ex, (sym_id){s});
        if (sym->kind != SYM_VALUE || sym->value == 0 || sym->value >= n)
            continue;
        e->next_sym[s] = e->value_sym[sym->value];
        e->value_sym[sym->value] = s;
    }
}

static void prepare_lifetimes(struct eval *e)
{
    for (uint32_t v = 1; v < e->g->values.n; v++) {
        if (e->shared[v] || !e->last_node[v] || (e->wanted && e->wanted[v]))
            continue;
        e->next_dying[v] = e->dies[e->last_node[v]];
        e->dies[e->last_node[v]] = v;
    }
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static enum eval_status eval_none(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    (void)in;
    (void)out;
    return eval_fail(e, EVAL_UNSUPPORTED, "%s cannot be interpreted", op_name(n->op));
}

static eval_fn *const eval_table[OP_COUNT] = {
    [OP_NONE] = eval_none,
#define OP(id, name, least, most, results, shape, cost, infer, eval, ...) [OP_##id] = eval,
#include "ir/ops/ops.def"
};

enum eval_status eval_node(struct eval *e, node_id id)
{
    const struct node *n = graph_node(e->g, id);
    struct tensor **in = NEW_ARRAY(e->arena, struct tensor *, n->n_in + 1);
    struct tensor *out = NEW_ARRAY(e->arena, struct tensor, n->n_out + 1);
    for (uint32_t i = 0; i < n->n_in; i++) {
        if (!n->in[i].i || !e->set[n->in[i].i])
            return eval_fail(e, EVAL_UNSUPPORTED, "%s: operand %u has no value", op_name(n->op), i + 1);
        in[i] = &e->vals[n->in[i].i];
    }
    bool found = false;
    const bool shared = shared_serves(e, n);
    if (shared)
        TRY(shared_take(e, n, in, out, &found));
    if (!found)
        TRY(eval_table[n->op](e, n, in, out));
    if (shared && !found)
        shared_keep(e, n, in, out);
    for (uint32_t i = 0; i < n->n_out; i++)
        TRY(eval_set(e, n->out[i], &out[i]));
    for (uint32_t v = e->dies[id.i]; v; v = e->next_dying[v]) {
        const struct tensor *t = &e->vals[v];
        if (e->set[v] && t->kind == TYPE_TENSOR && !e->shared[v])
            eval_recycle(e, t);
        e->set[v] = false;
    }
    return EVAL_OK;
}

enum eval_status eval_region(struct eval *e, region_id r)
{
    uint32_t n = graph_get_region(e->g, r)->nodes.n;
    for (uint32_t i = 0; i < n; i++) {
        node_id id = graph_get_region(e->g, r)->nodes.data[i];
        if (!graph_node(e->g, id)->dead && !(e->skip && e->skip[id.i]))
            TRY(eval_node(e, id));
    }
    return EVAL_OK;
}

/* The value of a symbol by the inputs' shapes; -1: they do not have it. */
static int64_t given_size(const struct graph *g, const struct tensor *in, sym_id s)
{
    for (uint32_t i = 0; i < g->inputs.n; i++) {
        const struct type *t = value_type(g, g->inputs.data[i].value);
        for (int32_t d = 0; t->kind == TYPE_TENSOR && in[i].kind == TYPE_TENSOR && in[i].rank == t->rank && d < t->rank;
             d++)
            if (port_symbol(g, &g->inputs.data[i], d).i == s.i)
                return in[i].dims[d];
    }
    return -1;
}

/* Checks the symbols that the graph has replaced by others or by constants; the inputs alone still know them. */
static enum eval_status check_replaced(struct eval *e, const struct tensor *in)
{
    for (uint32_t i = 0; i < e->g->size_checks.n; i++) {
        const struct size_check *c = &e->g->size_checks.data[i];
        int64_t size = given_size(e->g, in, c->sym);
        bool holds = c->same.i ? size == given_size(e->g, in, c->same) : within(size, c->bounds);
        if (size_check_replaces(c) && size >= 0 && !holds)
            return eval_fail(e, (enum eval_status)c->code, "%s", c->text);
    }
    return EVAL_OK;
}

static enum eval_status check_sizes(struct eval *e)
{
    for (uint32_t i = 0; i < e->g->size_checks.n; i++) {
        const struct size_check *c = &e->g->size_checks.data[i];
        if (!size_check_replaces(c) && !within(e->sym[c->sym.i], c->bounds) && !(c->unless_empty && e->empty))
            return eval_fail(e, (enum eval_status)c->code, "%s", c->text);
    }
    return EVAL_OK;
}

/* Makes all outputs without running a node: none has an element. */
static enum eval_status eval_empty(struct eval *e)
{
    for (uint32_t i = 0; i < e->g->outputs.n; i++) {
        value_id v = e->g->outputs.data[i].value;
        const struct type *t = value_type(e->g, v);
        int64_t dims[RANK_MAX];
        struct tensor out;
        for (int32_t k = 0; k < t->rank; k++)
            TRY(eval_expr(e, t->dims[k], &dims[k]));
        TRY(eval_tensor(e, &out, t->elem, t->rank, dims));
        TRY(eval_set(e, v, &out));
    }
    return EVAL_OK;
}

/* Marks the values that a node and its regions read. */
static void mark_read(const struct graph *g, const struct node *n, bool *needed)
{
    for (uint32_t i = 0; i < n->n_in; i++)
        needed[n->in[i].i] = true;
    for (uint32_t k = 0; k < n->n_region; k++) {
        const struct region *r = graph_get_region(g, n->region[k]);
        for (uint32_t i = 0; i < r->results.n; i++)
            needed[r->results.data[i].i] = true;
        for (uint32_t i = 0; i < r->nodes.n; i++)
            mark_read(g, graph_node(g, r->nodes.data[i]), needed);
    }
}

/* Which nodes of the top region no wanted value needs, as some values are given. */
static void prepare_given(struct eval *e, struct tensor *const *given)
{
    const struct graph *g = e->g;
    const struct region *top = graph_get_region(g, (region_id){1});
    bool *needed = NEW_ARRAY(e->arena, bool, g->values.n + 1);
    e->skip = NEW_ARRAY(e->arena, bool, g->nodes.n + 1);
    for (uint32_t v = 1; v < g->values.n; v++) {
        needed[v] = e->wanted[v] != NULL;
        e->shared[v] |= given[v] != NULL; /* whose memory is the caller's */
    }
    for (uint32_t i = top->nodes.n; i-- > 0;) {
        const struct node *n = graph_node(g, top->nodes.data[i]);
        bool skip = true;
        for (uint32_t k = 0; k < n->n_out; k++)
            skip = skip && (given[n->out[k].i] || !needed[n->out[k].i]);
        e->skip[top->nodes.data[i].i] = skip;
        if (!skip)
            mark_read(g, n, needed);
    }
}

static enum eval_status set_given(struct eval *e, struct tensor *const *given)
{
    for (uint32_t v = 1; given && v < e->g->values.n; v++)
        if (given[v] && e->g->values.data[v].def.i && e->skip[e->g->values.data[v].def.i])
            TRY(eval_set(e, (value_id){v}, given[v]));
    return EVAL_OK;
}

static enum eval_status evaluate(struct graph *g, const struct tensor *in, struct tensor *const *given,
                                 struct tensor **wanted, eval_watch *watch, void *user, struct arena *arena,
                                 const char **text)
{
    struct eval e = {.text = "", .watch = watch, .user = user};
    enum eval_status status = EVAL_OK;
    eval_prepare(&e, g, arena, g->values.n, g->nodes.n);
    prepare_symbols(&e);
    e.wanted = wanted;
    if (given)
        prepare_given(&e, given);
    for (uint32_t i = 0; i < g->inputs.n; i++) /* inputs come first: they bind the symbols of shapes */
        own_dims(&e, g->inputs.data[i].value);
    prepare_region(&e, (region_id){1});
    prepare_lifetimes(&e);
    status = check_replaced(&e, in);
    if (status != EVAL_OK)
        goto done;
    /* Twice: a dim like 2*n may stand before the input that has n alone. */
    for (uint32_t pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < g->inputs.n; i++) {
            status = eval_set(&e, g->inputs.data[i].value, &in[i]);
            if (status != EVAL_OK && (pass || status != EVAL_SHAPE))
                goto done;
        }
    status = check_sizes(&e);
    if (status == EVAL_OK && !e.empty)
        status = set_given(&e, given);
    if (status == EVAL_OK)
        status = e.empty ? eval_empty(&e) : eval_region(&e, (region_id){1});
done:
    if (text)
        *text = e.text;
    return status;
}

enum eval_status graph_eval_watched(struct graph *g, const struct tensor *in, struct tensor **wanted, eval_watch *watch,
                                    void *user, struct arena *arena, const char **text)
{
    return evaluate(g, in, NULL, wanted, watch, user, arena, text);
}

enum eval_status graph_eval_from(struct graph *g, const struct tensor *in, struct tensor *const *given,
                                 struct tensor **wanted, eval_watch *watch, void *user, struct arena *arena,
                                 const char **text)
{
    return evaluate(g, in, given, wanted, watch, user, arena, text);
}

enum eval_status graph_eval_values(struct graph *g, const struct tensor *in, struct tensor **wanted,
                                   struct arena *arena, const char **text)
{
    return graph_eval_watched(g, in, wanted, NULL, NULL, arena, text);
}

void graph_states(const struct graph *g, struct tensor *in)
{
    for (uint32_t k = 0; k < g->states.n; k++) {
        const struct tensor_data *t = &g->states.data[k].initial;
        in[g->inputs.n - g->states.n + k] = (struct tensor){.kind = TYPE_TENSOR,
                                                            .elem = t->elem,
                                                            .rank = t->rank,
                                                            .dims = (int64_t *)(uintptr_t)t->dims,
                                                            .data = (void *)(uintptr_t)t->bytes.data};
    }
}

/* Imported graph -> legal graph: the driver.
 *
 * In: a graph whose nodes are all OP_IMPORTED. Out: a new graph of core operators with complete types.
 * Walks the live nodes in order (walk.c) with a map from imported to legal values; each node goes to the rule that
 * legalize/rules.def gives for its (domain, operator, version), each call of a model function is inlined.
 * Operators that cannot be served are collected over all live code and reported together (legalize/operator_table.c);
 * their results are poison, which silences what depends on them. Nodes whose results reach no output are never
 * looked at.
 */

#include "passes/legalize/driver.h"

/* ---- liveness -------------------------------------------------------------------------------------------- */

struct marker {
    struct legalizer *lg;
    VEC(node_id) work;
};

static void mark_value(struct marker *m, value_id v)
{
    if (!v.i)
        return;
    node_id def = graph_value(m->lg->from, v)->def;
    if (!def.i || m->lg->live[def.i])
        return;
    m->lg->live[def.i] = true;
    VEC_PUSH(m->lg->arena, &m->work, def);
}

static void mark_results(struct marker *m, region_id r)
{
    const struct region *region = graph_get_region(m->lg->from, r);
    for (uint32_t i = 0; i < region->results.n; i++)
        mark_value(m, region->results.data[i]);
}

static void mark_live(struct legalizer *lg)
{
    struct marker m = {.lg = lg};
    const struct graph *from = lg->from;
    for (uint32_t i = 0; i < from->outputs.n; i++)
        mark_value(&m, from->outputs.data[i].value);
    for (uint32_t i = 0; i < from->functions.n; i++)
        mark_results(&m, from->functions.data[i].body);
    for (uint32_t i = 1; i < from->nodes.n; i++)
        lg->live[i] |= from->nodes.data[i].op == OP_ASSERT;
    while (m.work.n) {
        const struct node *node = graph_node(from, m.work.data[--m.work.n]);
        for (uint32_t i = 0; i < node->n_in; i++)
            mark_value(&m, node->in[i]);
        for (uint32_t i = 0; i < node->n_region; i++)
            mark_results(&m, node->region[i]);
    }
}

/* ---- one node ---------------------------------------------------------------------------------------------- */

static const struct attr *frame_attr(const struct frame *f, const char *name)
{
    const struct attr *a = node_attr(f->call, name);
    return a ? a : ROW_NAMED(f->function->attr_defaults.data, f->function->attr_defaults.n, name);
}

/* A copy of the node in which references to attributes of the enclosing function are replaced or, where the
 * call gives none, dropped. */
static struct node node_resolve(struct legalizer *lg, const struct node *node)
{
    struct node copy = *node;
    bool refs = false;
    for (uint32_t i = 0; i < node->n_attr; i++)
        refs |= node->attr[i].kind == ATTR_REF;
    if (!refs)
        return copy;
    copy.attr = NEW_ARRAY(lg->arena, struct attr, node->n_attr);
    copy.n_attr = 0;
    for (uint32_t i = 0; i < node->n_attr; i++) {
        struct attr a = node->attr[i];
        if (a.kind == ATTR_REF) {
            const struct attr *given = lg->frame ? frame_attr(lg->frame, a.u.s) : NULL;
            if (!given)
                continue;
            const char *name = a.name;
            a = *given;
            a.name = name;
        }
        copy.attr[copy.n_attr++] = a;
    }
    return copy;
}

static bool domain_equal(const char *a, const char *b)
{
    if (strcmp(a, "ai.onnx") == 0)
        a = "";
    if (strcmp(b, "ai.onnx") == 0)
        b = "";
    return strcmp(a, b) == 0;
}

static const struct model_function *function_find(const struct graph *g, const struct node *node)
{
    for (uint32_t i = 0; i < g->functions.n; i++) {
        const struct model_function *f = &g->functions.data[i];
        const char *want = node->overload ? node->overload : "", *have = f->overload ? f->overload : "";
        if (strcmp(f->name, node->op_type) == 0 && domain_equal(f->domain, node->domain) && strcmp(want, have) == 0)
            return f;
    }
    return NULL;
}

void node_poison(struct legalizer *lg, const struct node *node)
{
    for (uint32_t i = 0; i < node->n_out; i++)
        if (node->out[i].i)
            lg->map[node->out[i].i] = (struct lowered){.kind = LOWERED_POISON};
}

static bool operands_read(struct legalizer *lg, const struct node *node, struct lowered *arg)
{
    bool poisoned = false;
    for (uint32_t i = 0; i < node->n_in; i++) {
        arg[i] = node->in[i].i ? lg->map[node->in[i].i] : (struct lowered){.kind = LOWERED_NONE};
        poisoned |= arg[i].kind == LOWERED_POISON;
    }
    return !poisoned;
}

/* No result may be larger than one tensor may be, for what is known of its dims. */
static bool size_allowed(struct legalizer *lg, const struct node *node, value_id v)
{
    const struct type *t = value_type(lg->to, v);
    int64_t bytes = elem_size(t->elem), most = lg->ctx->limits.tensor_bytes;
    bool fits = true, empty = false;
    for (int32_t i = 0; t->kind == TYPE_TENSOR && i < t->rank; i++) {
        int64_t least = ex_lo(lg->ctx->exprs, t->dims[i]);
        empty = empty || least <= 0;
        fits = fits && (least <= 0 || mul_i64(bytes, least, &bytes));
    }
    if (empty || (fits && bytes <= most))
        return true;
    if (!fits)
        return error_limit(lg->ctx, node->src, "a result of more than 2^63 bytes");
    return error_limit(lg->ctx, node->src,
                       "a result of %lld bytes, the limit for one tensor is %lld (--limit-tensor-bytes)",
                       (long long)bytes, (long long)most);
}

static void results_write(struct legalizer *lg, const struct node *node, const struct lowered *out)
{
    for (uint32_t i = 0; i < node->n_out; i++) {
        if (!node->out[i].i)
            continue;
        struct lowered v = out[i];
        if (v.kind == LOWERED_NONE || (v.kind == LOWERED_VALUE && !v.v.i))
            v = (struct lowered){.kind = LOWERED_POISON};
        else if (v.kind == LOWERED_VALUE &&
                 (!size_allowed(lg, node, v.v) ||
                  (graph_value(lg->from, node->out[i])->n_uses > 0 && !declared_result(lg, node, i, v.v))))
            v = (struct lowered){.kind = LOWERED_POISON};
        const char *name = graph_value(lg->from, node->out[i])->name;
        if (v.kind == LOWERED_VALUE && name && !graph_value(lg->to, v.v)->name)
            graph_value(lg->to, v.v)->name = arena_strdup(lg->arena, name);
        lg->map[node->out[i].i] = v;
    }
}

static void rule_run(struct legalizer *lg, const struct node *node, const struct rule_row *row,
                     const struct lowered *arg)
{
    int32_t version = source_get(lg->ctx, node->src)->version;
    struct lowered *out = NEW_ARRAY(lg->arena, struct lowered, node->n_out + 1);
    struct rule r = {
        .b = &lg->b,
        .lg = lg,
        .node = node,
        .op = node->op_type,
        .version = version,
        .param = row->param,
        .n_in = node->n_in,
        .n_out = node->n_out,
        .arg = arg,
        .out = out,
    };
    uint32_t errors = lg->ctx->n_errors, refusals = lg->refusals.n;
    uint32_t refused = refusals ? lg->refusals.data[refusals - 1].count : 0;
    struct product_form form;
    bool product = product_form(&r, &form), probed = lg->options && lg->options->probe;
    bool ok = !product || probed || product_choose(&r, &form);
    ok = ok && (rule_numbers(&r, row->rule) || lg->fork); /* a rule that has asked for a fork gives up */
    ok = ok && (!probed || lg->fork || node_probed(&r, row->rule, product ? &form : NULL));
    bool reported = errors != lg->ctx->n_errors || refusals != lg->refusals.n ||
                    (refusals && refused != lg->refusals.data[refusals - 1].count);
    for (uint32_t i = 0; ok && i < node->n_out; i++)
        ok = !node->out[i].i || out[i].kind == LOWERED_POISON ||
             (out[i].kind != LOWERED_NONE && (out[i].kind != LOWERED_VALUE || out[i].v.i));
    if (!ok && !reported && !lg->ctx->n_errors && !lg->refusals.n)
        legalize_refuse(lg, node, "this form has no lowering");
    if (!ok)
        node_poison(lg, node);
    else
        results_write(lg, node, out);
}

static void node_lower(struct legalizer *lg, const struct node *imported)
{
    struct node node = node_resolve(lg, imported);
    src_id outer = lg->b.src;
    lg->b.src = lg->ctx->at = node.src;
    const struct model_function *function = function_find(lg->from, &node);
    const struct rule_row *row = function ? NULL
                                          : row_find(node.domain, node.op_type, source_get(lg->ctx, node.src)->version);
    struct lowered *arg = NEW_ARRAY(lg->arena, struct lowered, node.n_in + 1);
    bool fine = operands_read(lg, &node, arg);
    if (function)
        legalize_call(lg, &node, function);
    else if (!row)
        legalize_refuse_unknown(lg, &node,
                                source_get(lg->ctx, node.src)->version ? "no lowering for this operator"
                                                                       : "no such operator in what the model imports"),
            node_poison(lg, &node);
    else if (!fine)
        node_poison(lg, &node);
    else
        rule_run(lg, &node, row, arg);
    lg->b.src = lg->ctx->at = outer;
}

/* ---- regions and functions ------------------------------------------------------------------------------------- */

/* Constant nodes that the frontend made of initializers: the same node in the legal graph. */
static void constant_copy(struct legalizer *lg, const struct node *node)
{
    const struct attr *data = node_attr(node, "data");
    uint32_t rank;
    const int64_t *dims = node_ints(node, "dims", &rank);
    src_id outer = lg->b.src;
    lg->b.src = node->src;
    value_id v = b_const_borrow(&lg->b, node_elem(node, "elem"), dims, (int32_t)rank, data->u.data);
    lg->b.src = outer;
    const struct lowered out = lowered_value(v);
    results_write(lg, node, &out);
}

void node_walk(struct legalizer *lg, const struct node *node)
{
    lg->fork_nodes.n += lg->n_forks > 0;
    if (node->op == OP_CONSTANT)
        constant_copy(lg, node);
    else if (node->op == OP_ASSERT)
        declared_guard(lg, node);
    else
        node_lower(lg, node);
    if (lg->to->nodes.n - 1 > lg->ctx->limits.nodes)
        context_unwind(lg->ctx, FAIL_LIMIT, node->src,
                       "more than %lld nodes after inlining and unrolling (--limit-nodes)",
                       (long long)lg->ctx->limits.nodes);
}

static bool frame_has(const struct frame *f, const struct model_function *function)
{
    for (; f; f = f->caller)
        if (f->function == function)
            return true;
    return false;
}

bool legalize_call(struct legalizer *lg, const struct node *call, const struct model_function *f)
{
    const struct region *body = graph_get_region(lg->from, f->body);
    struct frame frame = {
        .caller = lg->frame, .function = f, .call = call, .depth = lg->frame ? lg->frame->depth + 1 : 1};
    node_poison(lg, call);
    if (frame_has(lg->frame, f))
        return error_model(lg->ctx, call->src, "function %s calls itself", f->name);
    if (frame.depth > (uint32_t)lg->ctx->limits.call_depth)
        return error_limit(lg->ctx, call->src, "function calls are nested more than %d deep (--limit-call-depth)",
                           (int)lg->ctx->limits.call_depth);
    if (call->n_in > body->params.n || call->n_out > body->results.n)
        return error_model(lg->ctx, call->src, "function %s has %u inputs and %u outputs, the call %u and %u", f->name,
                           body->params.n, body->results.n, call->n_in, call->n_out);
    for (uint32_t i = 0; i < body->params.n; i++)
        lg->map[body->params.data[i].i] = i < call->n_in && call->in[i].i ? lg->map[call->in[i].i]
                                                                          : (struct lowered){.kind = LOWERED_NONE};
    struct rule r = {.b = &lg->b,
                     .lg = lg,
                     .node = call,
                     .op = call->op_type,
                     .n_in = call->n_in,
                     .n_out = call->n_out,
                     .out = NEW_ARRAY(lg->arena, struct lowered, call->n_out + 1)};
    lg->frame = &frame;
    bool forks = inlined_walk(&r, f->body);
    lg->frame = frame.caller;
    for (uint32_t i = 0; !forks && i < call->n_out; i++)
        if (call->out[i].i && body->results.data[i].i)
            lg->map[call->out[i].i] = lg->map[body->results.data[i].i];
    return true;
}

/* ---- ports ------------------------------------------------------------------------------------------------------- */

/* Puts what has been learned in the place of symbols; true where that is something. */
static bool type_fix(struct legalizer *lg, struct type *t, const struct learned *learned)
{
    bool any = false;
    if (t->kind != TYPE_TENSOR || t->rank <= 0)
        return false;
    expr_id *dims = arena_copy(lg->arena, t->dims, (size_t)t->rank * sizeof *dims);
    for (int32_t d = 0; d < t->rank; d++) {
        sym_id s = ex_as_sym(lg->ctx->exprs, dims[d]);
        expr_id e = size_replaced(lg->ctx->exprs, learned, s);
        dims[d] = e.i ? e : dims[d];
        any |= e.i != 0;
    }
    t->dims = dims;
    return any;
}

static void inputs_create(struct legalizer *lg, const struct type *types, const struct learned *learned)
{
    for (uint32_t i = 0; i < lg->from->inputs.n; i++) {
        const struct port *p = &lg->from->inputs.data[i];
        struct type type = types[i];
        bool fixed = type_fix(lg, &type, learned);
        value_id v = graph_param(lg->to, lg->b.region, type, p->name);
        struct port port = {.name = arena_strdup(lg->arena, p->name),
                            .value = v,
                            .declared = fixed ? &types[i] : p->declared}; /* which names the symbols */
        VEC_PUSH(lg->arena, &lg->to->inputs, port);
        if (p->value.i)
            lg->map[p->value.i] = lowered_value(v);
    }
}

/* true when poison reached no output. */
static bool outputs_create(struct legalizer *lg)
{
    bool ok = true;
    for (uint32_t i = 0; i < lg->from->outputs.n; i++) {
        const struct port *p = &lg->from->outputs.data[i];
        struct lowered l = p->value.i ? lg->map[p->value.i] : (struct lowered){.kind = LOWERED_POISON};
        value_id v = l.kind == LOWERED_POISON ? (value_id){0} : lowered_force(&lg->b, l);
        const struct type *declared = p->declared;
        bool state = i >= graph_user_outputs(lg->from); /* whose dims declared_states compares when all are known */
        if (!v.i || !(state ? declared_fits(lg, p, v) : declared_settle(lg, p, v, &declared)) ||
            !last_settle(lg, p, &v, &declared)) {
            ok = false;
            continue;
        }
        struct port port = {.name = arena_strdup(lg->arena, p->name), .value = v, .declared = declared};
        VEC_PUSH(lg->arena, &lg->to->outputs, port);
        graph_add_result(lg->to, lg->b.region, v);
    }
    return ok;
}

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

static void model_facts_copy(const struct graph *from, struct graph *to)
{
    to->name = from->name ? arena_strdup(&to->arena, from->name) : NULL;
    to->ir_version = from->ir_version;
    for (uint32_t i = 0; i < from->opsets.n; i++)
        VEC_PUSH(&to->arena, &to->opsets, from->opsets.data[i]);
    for (uint32_t i = 0; i < from->metadata.n; i++)
        VEC_PUSH(&to->arena, &to->metadata, from->metadata.data[i]);
    for (uint32_t i = 0; i < from->states.n; i++)
        VEC_PUSH(&to->arena, &to->states, from->states.data[i]); /* bytes and dims are the session's */
}

struct graph *legalize_once(struct context *ctx, const struct graph *imported, const struct legalize_options *options,
                            const struct type *inputs, const struct learned *learned)
{
    struct legalizer lg = {.ctx = ctx, .from = imported, .options = options};
    lg.to = graph_new(ctx);
    lg.arena = &lg.to->arena;
    lg.b = builder_in(lg.to, (region_id){1});
    lg.b.strict = options && options->strict;
    lg.map = NEW_ARRAY(lg.arena, struct lowered, imported->values.n);
    lg.live = NEW_ARRAY(lg.arena, bool, imported->nodes.n);
    lg.waits = NEW_ARRAY(lg.arena, uint32_t, imported->nodes.n);
    model_facts_copy(imported, lg.to);
    mark_live(&lg);
    inputs_create(&lg, inputs, learned);
    probe_begin(&lg);
    declared_sizes(&lg);
    bool ok = last_possible(&lg) && walk_region(&lg, (region_id){1});
    ok = ok && outputs_create(&lg);
    if (ok)
        probe_end(&lg);
    if (!ok)
        legalize_report(&lg);
    if (!ok && !ctx->n_errors)
        error_internal(ctx, (src_id){0}, "legalize produced no value for an output and gave no reason");
    if (!ok || ctx->n_errors)
        return NULL;
    lg.to->legal = true;
    graph_sweep(lg.to);
    return lg.to;
}

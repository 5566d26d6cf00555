/* What the model declares of an output, and of a node's results, besides what is computed.
 *
 * Of a node's result (.pt2), a type that no run can have is an error: the file or the lowering is wrong. Of an output,
 * an element type or a kind of value that differs is an error. A shape is only a statement about the computation, and
 * files that state a wrong one run elsewhere, so the computed one counts and a warning names both. The exception is a
 * declaration that cannot be of this value at all: see is_of_another.
 */
#include "passes/legalize/driver.h"

#include "ir/graph/infer.h"

/* The element type and the kind of value, and whether dims are worth a look. */
static bool type_check(struct legalizer *lg, const struct port *p, const struct type *have, bool *dims)
{
    const struct type *want = p->declared;
    *dims = false;
    if (!want || want->kind == TYPE_UNKNOWN)
        return true;
    if (have->kind != want->kind)
        return error_at(lg->ctx, FAIL_MODEL, (src_id){0}, p->name,
                        "the output is declared as another kind of value than it has; correct the declaration");
    if (have->kind != TYPE_TENSOR)
        return true;
    if (want->elem != ELEM_NONE && have->elem != want->elem)
        return error_at(lg->ctx, FAIL_MODEL, (src_id){0}, p->name,
                        "the output is declared as %s and computed as %s; correct the declaration",
                        elem_name(want->elem), elem_name(have->elem));
    *dims = want->rank != RANK_UNKNOWN && have->rank != RANK_UNKNOWN;
    return true;
}

/* Dims that nobody declared, and those that some sizes make equal, do not differ. */
static bool shape_differs(struct exprs *ex, const struct type *want, const struct type *have)
{
    bool differs = want->rank != have->rank;
    for (int32_t i = 0; !differs && i < want->rank; i++)
        differs = want->dims[i].i && ex_cmp_eq(ex, want->dims[i], have->dims[i]) == FALSE_;
    return differs;
}

/* Two dims or more, and the declared one larger in each: nothing of the declaration holds, and a host that believed it
 * would read past the result along every axis. */
static bool is_of_another(struct exprs *ex, const struct type *want, const struct type *have)
{
    bool larger = want->rank == have->rank && want->rank >= 2;
    for (int32_t i = 0; larger && i < want->rank; i++)
        larger = want->dims[i].i && ex_cmp_lt(ex, have->dims[i], want->dims[i]) == TRUE_;
    return larger;
}

/* "f32[n, 4]" with "?" for dims that nobody declared. */
static const char *declared_text(struct legalizer *lg, const struct type *t)
{
    struct strbuf s = strbuf_of(lg->arena);
    strbuf_printf(&s, t->rank == RANK_UNKNOWN ? "%s[..." : "%s[", elem_name(t->elem));
    for (int32_t i = 0; i < t->rank; i++) {
        strbuf_printf(&s, "%s%s", i ? ", " : "", t->dims[i].i ? "" : "?");
        if (t->dims[i].i)
            ex_print(lg->ctx->exprs, t->dims[i], &s);
    }
    strbuf_printf(&s, "]");
    return s.data;
}

/* ---- results of nodes -------------------------------------------------------------------------------------------- */

/* Is there a size that the file's symbol may be and the option allows? Exporters trace 0 and 1 apart. */
static bool sizes_meet(struct exprs *ex, sym_id file, expr_id now)
{
    int64_t lo = sym_get(ex, file)->lo, hi = sym_get(ex, file)->hi;
    lo = lo < 2 ? 2 : lo;
    return ex_lo(ex, now) <= hi && ex_hi(ex, now) >= lo;
}

/* What an option puts in the place of the file's symbol keeps to its bounds. */
static void check_bounds(struct legalizer *lg, const char *input, int32_t d, sym_id file, expr_id now)
{
    struct exprs *ex = lg->ctx->exprs;
    const struct sym_bounds b = sym_get(ex, file)->given;
    const char *name = sym_get(ex, file)->name;
    expr_id in = ex_le(ex, ex_const(ex, b.lo), now);
    if (b.hi < INT64_MAX)
        in = ex_and(ex, in, ex_le(ex, now, ex_const(ex, b.hi)));
    expr_id rest = b.divisor > 1 ? ex_mod(ex, now, ex_const(ex, b.divisor)) : ex_const(ex, 0);
    b_assert(&lg->b, in, EVAL_SHAPE,
             "dimension %d of input '%.100s' is '%.60s' in the model, which goes from %lld to %lld", (int)d, input,
             name, (long long)b.lo, (long long)b.hi);
    b_assert(&lg->b, ex_eq(ex, rest, ex_const(ex, 0)), EVAL_SHAPE,
             "dimension %d of input '%.100s' is '%.60s' in the model, which is a multiple of %lld", (int)d, input, name,
             (long long)b.divisor);
}

void declared_sizes(struct legalizer *lg)
{
    struct exprs *ex = lg->ctx->exprs;
    for (uint32_t i = 0; i < lg->from->inputs.n; i++) {
        const struct type *file = lg->from->inputs.data[i].declared;
        const struct type *now = value_type(lg->to, lg->to->inputs.data[i].value);
        bool same = file && file->kind == TYPE_TENSOR && file->rank == now->rank;
        for (int32_t d = 0; same && d < now->rank; d++) {
            if (!file->dims[d].i || file->dims[d].i == now->dims[d].i)
                continue;
            sym_id s = ex_as_sym(ex, file->dims[d]);
            if (s.i)
                check_bounds(lg, lg->from->inputs.data[i].name, d, s, now->dims[d]);
            if (!s.i || !sizes_meet(ex, s, now->dims[d]))
                lg->sizes_unstated = true;
            VEC_PUSH(lg->arena, &lg->stated, s);
            VEC_PUSH(lg->arena, &lg->stated_now, now->dims[d]);
        }
    }
}

/* The file's type in the sizes of this compilation. */
static struct type stated_type(struct legalizer *lg, const struct type *file)
{
    struct type t = *file;
    t.rank = lg->sizes_unstated && file->rank > 0 ? RANK_UNKNOWN : file->rank;
    if (!lg->stated.n || t.rank <= 0)
        return t;
    expr_id *dims = arena_copy(lg->arena, file->dims, (size_t)t.rank * sizeof *dims);
    for (int32_t d = 0; d < t.rank; d++)
        if (dims[d].i)
            dims[d] = ex_subst(lg->ctx->exprs, dims[d], lg->stated.data, lg->stated_now.data, lg->stated.n);
    t.dims = dims;
    return t;
}

/* Is every symbol in e a dim of an input? */
static bool all_bound(const struct legalizer *lg, expr_id e)
{
    struct exprs *ex = lg->ctx->exprs;
    sym_id s = ex_as_sym(ex, e);
    bool bound = !s.i;
    for (uint32_t i = 0; !bound && i < lg->to->inputs.n; i++) {
        const struct type *t = value_type(lg->to, lg->to->inputs.data[i].value);
        for (int32_t d = 0; t->kind == TYPE_TENSOR && d < t->rank; d++)
            bound |= ex_as_sym(ex, t->dims[d]).i == s.i;
    }
    for (uint32_t i = 0; bound && i < ex_n_args(ex, e); i++)
        bound = all_bound(lg, ex_arg(ex, e, i));
    return bound;
}

void declared_guard(struct legalizer *lg, const struct node *node)
{
    expr_id cond = ex_subst(lg->ctx->exprs, node_expr(node, "cond"), lg->stated.data, lg->stated_now.data,
                            lg->stated.n);
    if (cond.i && all_bound(lg, cond))
        b_assert(&lg->b, cond, (int32_t)node_int(node, "code", EVAL_SHAPE), "%s", node_str(node, "text", ""));
}

bool declared_result(struct legalizer *lg, const struct node *node, uint32_t i, value_id v)
{
    const struct type *file = value_type(lg->from, node->out[i]), *have = value_type(lg->to, v);
    if (file->kind != TYPE_TENSOR || node->op != OP_IMPORTED)
        return true;
    const struct type want = stated_type(lg, file);
    bool ranks = want.rank != RANK_UNKNOWN && have->rank != RANK_UNKNOWN;
    if (have->kind == TYPE_TENSOR && (want.elem == ELEM_NONE || want.elem == have->elem) &&
        !(ranks && shape_differs(lg->ctx->exprs, &want, have)))
        return true;
    const char *name = graph_value(lg->from, node->out[i])->name;
    return error_model(lg->ctx, node->src, "the file says that result '%.100s' is %s, and mcc computes %s",
                       name ? name : "", declared_text(lg, &want), type_text(lg->to, have));
}

/* ---- outputs ----------------------------------------------------------------------------------------------------- */

bool declared_fits(struct legalizer *lg, const struct port *p, value_id v)
{
    bool dims;
    return type_check(lg, p, value_type(lg->to, v), &dims);
}

/* Maps that ZipMap has made a tensor: the only place where the kind may change. */
static bool is_zipped(struct legalizer *lg, const struct port *p, const struct type *have)
{
    const struct type *want = p->declared;
    if (!want || want->kind != TYPE_SEQUENCE || !want->inner || want->inner->kind != TYPE_MAP ||
        have->kind != TYPE_TENSOR)
        return false;
    const char *key = ml_labels_key(lg->arena, p->name);
    bool found = false;
    for (uint32_t i = 0; i < lg->to->metadata.n; i++)
        found |= !strcmp(lg->to->metadata.data[i].key, key);
    return found;
}

bool declared_settle(struct legalizer *lg, const struct port *p, value_id v, const struct type **out)
{
    const struct type *have = value_type(lg->to, v);
    bool dims;
    *out = p->declared;
    if (is_zipped(lg, p, have)) {
        *out = arena_copy(lg->arena, have, sizeof *have);
        return true;
    }
    if (!type_check(lg, p, have, &dims))
        return false;
    if (have->kind == TYPE_TENSOR && have->rank == RANK_UNKNOWN) {
        *out = arena_copy(lg->arena, have, sizeof *have);
        return true;
    }
    if (!dims || !shape_differs(lg->ctx->exprs, p->declared, have))
        return true;
    if (is_of_another(lg->ctx->exprs, p->declared, have))
        return error_at(lg->ctx, FAIL_MODEL, (src_id){0}, p->name,
                        "the output is declared as %s and computed as %s; correct the declaration",
                        declared_text(lg, p->declared), type_text(lg->to, have));
    *out = arena_copy(lg->arena, have, sizeof *have);
    warn_at(lg->ctx, (src_id){0}, "declared-shape",
            "output '%.200s' is declared as %s and computed as %s, which counts", p->name,
            declared_text(lg, p->declared), type_text(lg->to, have));
    return true;
}

/* Hosts save and restore states by their names. */
static void states_named(struct context *ctx, const struct graph *g)
{
    const char **names = NEW_ARRAY(&ctx->session, const char *, g->states.n + 1);
    for (uint32_t k = 0; k < g->states.n; k++)
        names[k] = g->inputs.data[graph_user_inputs(g) + k].name;
    qsort(names, g->states.n, sizeof *names, by_text);
    for (uint32_t k = 1; k < g->states.n; k++)
        if (strcmp(names[k - 1], names[k]) == 0)
            error_at(ctx, FAIL_MODEL, (src_id){0}, names[k], "two states have this name");
}

bool declared_states(struct context *ctx, struct graph *legal)
{
    for (uint32_t k = 0; k < legal->states.n; k++) {
        const struct port *in = &legal->inputs.data[graph_user_inputs(legal) + k];
        value_id v = legal->outputs.data[graph_user_outputs(legal) + k].value;
        if (!graph_state_fits(legal, k, v))
            error_at(ctx, FAIL_MODEL, (src_id){0}, in->name,
                     "a state of %s becomes %s; its type and shape have to stay",
                     type_text(legal, value_type(legal, in->value)), type_text(legal, value_type(legal, v)));
    }
    states_named(ctx, legal);
    return !ctx->n_errors;
}

/* ---- the last position alone ----------------------------------------------------------------------------------- */

bool last_possible(const struct legalizer *lg)
{
    bool found = !lg->options || !lg->options->last_logits;
    for (uint32_t i = 0; !found && i < lg->from->outputs.n; i++)
        found = !strcmp(lg->from->outputs.data[i].name, LOGITS);
    return found || error_at(lg->ctx, FAIL_USAGE, (src_id){0}, NULL,
                             "'last-logits': the model has no output that is called " LOGITS);
}

bool last_settle(struct legalizer *lg, const struct port *p, value_id *v, const struct type **out)
{
    struct exprs *x = lg->ctx->exprs;
    const struct type *t = value_type(lg->to, *v);
    if (!lg->options || !lg->options->last_logits || strcmp(p->name, LOGITS) != 0)
        return true;
    if (t->kind != TYPE_TENSOR || t->rank != 3)
        return error_at(lg->ctx, FAIL_USAGE, (src_id){0}, p->name,
                        "'last-logits' takes " LOGITS " [batch, positions, words], not %s", type_text(lg->to, t));
    expr_id n = t->dims[1], one = ex_const(x, 1);
    b_assert(&lg->b, ex_le(x, one, n), EVAL_SHAPE, "there is no last position");
    *v = b_slice_axis(&lg->b, *v, 1, ex_addc(x, n, -1), one);
    *out = v->i ? arena_copy(lg->arena, value_type(lg->to, *v), sizeof **out) : NULL;
    return v->i;
}

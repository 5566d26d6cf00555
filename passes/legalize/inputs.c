/* The types of the inputs: what the file declares, and what --input states in its place. */

#include "passes/legalize/driver.h"

/* A name for an unknown dim that no symbol of the context has yet. */
static expr_id dim_fresh(struct legalizer *lg, const char *port, int32_t axis)
{
    const char *name = arena_printf(lg->arena, "%s_d%d", port, (int)axis);
    return ex_sym(lg->ctx->exprs, sym_new(lg->ctx->exprs, SYM_SHAPE, name, 0, INT64_MAX));
}

static int by_name(const void *a, const void *b)
{
    const struct input_spec *x = *(const struct input_spec *const *)a, *y = *(const struct input_spec *const *)b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x > y) - (x < y);
}

/* Enters what a specification puts in the place of the dims that the file calls by the same symbol: a name says that
 * dims are equal, also of inputs that no specification is given for. The first input wins. */
static void enter_dims(struct legalizer *lg, const struct port *p, const struct input_spec *spec)
{
    if (!p->declared || p->declared->kind != TYPE_TENSOR || spec->rank == RANK_UNKNOWN ||
        spec->rank != p->declared->rank)
        return;
    for (int32_t d = 0; d < spec->rank; d++) {
        expr_id file = p->declared->dims[d];
        if (file.i < lg->n_dim_specs && !lg->dim_specs[file.i].by && spec->dims[d].i &&
            !ex_is_const(lg->ctx->exprs, file, NULL))
            lg->dim_specs[file.i] = (struct dim_spec){spec->dims[d], p->name};
    }
}

/* Finds the input of each specification. False: one names no input. */
static bool enter_specs(struct legalizer *lg)
{
    uint32_t n = lg->options ? lg->options->n_inputs : 0;
    const struct input_spec **sorted = NEW_ARRAY(lg->arena, const struct input_spec *, n + 1);
    bool *known = NEW_ARRAY(lg->arena, bool, n + 1), ok = true;
    lg->spec = NEW_ARRAY(lg->arena, const struct input_spec *, lg->from->inputs.n + 1);
    lg->n_dim_specs = n ? ex_count(lg->ctx->exprs) : 0;
    lg->dim_specs = NEW_ARRAY(lg->arena, struct dim_spec, lg->n_dim_specs + 1);
    for (uint32_t i = 0; i < n; i++)
        sorted[i] = &lg->options->inputs[i];
    qsort(sorted, n, sizeof *sorted, by_name);
    for (uint32_t i = 0; n && i < graph_user_inputs(lg->from); i++) {
        const struct port *p = &lg->from->inputs.data[i];
        uint32_t lo = 0, hi = n; /* the first of its name */
        while (lo < hi) {
            uint32_t mid = lo + (hi - lo) / 2;
            if (strcmp(sorted[mid]->name, p->name) < 0)
                lo = mid + 1;
            else
                hi = mid;
        }
        if (lo == n || strcmp(sorted[lo]->name, p->name) != 0)
            continue;
        lg->spec[i] = sorted[lo];
        enter_dims(lg, p, sorted[lo]);
        for (; lo < n && strcmp(sorted[lo]->name, p->name) == 0; lo++)
            known[sorted[lo] - lg->options->inputs] = true;
    }
    for (uint32_t i = 0; i < n; i++)
        if (!known[i])
            ok = error_at(lg->ctx, FAIL_USAGE, (src_id){0}, lg->options->inputs[i].name,
                          "--input names no input of the model (mcc inspect lists them)");
    return ok;
}

static bool dim_merge(struct legalizer *lg, const char *name, int32_t axis, expr_id file, expr_id user, expr_id *out)
{
    int64_t a, b;
    struct exprs *ex = lg->ctx->exprs;
    const struct dim_spec *same = file.i && file.i < lg->n_dim_specs ? &lg->dim_specs[file.i] : NULL;
    const char *by = same && same->by ? same->by : name;
    expr_id first = same && same->by ? same->dim : file;
    *out = user.i ? user : file.i ? first : dim_fresh(lg, name, axis);
    if (user.i && ex_is_const(ex, first, &a) && ex_is_const(ex, user, &b) && a != b && first.i != file.i)
        return error_at(lg->ctx, FAIL_USAGE, (src_id){0}, name,
                        "dimension %d is called as one of '%s' in the model: it is %lld there and "
                        "%lld here",
                        (int)axis, by, (long long)a, (long long)b);
    if (user.i && file.i && ex_is_const(ex, file, &a) && ex_is_const(ex, user, &b) && a != b)
        return error_at(lg->ctx, FAIL_USAGE, (src_id){0}, name, "dimension %d is %lld in the model and %lld in --input",
                        (int)axis, (long long)a, (long long)b);
    return true;
}

/* Elements of one sequence may differ in the dims that a symbol stands for. */
static const struct type *inner_loosen(struct legalizer *lg, const struct type *from)
{
    struct type *t = arena_copy(lg->arena, from, sizeof *t);
    if (t->kind != TYPE_TENSOR || t->rank <= 0)
        return t;
    expr_id *dims = arena_copy(lg->arena, t->dims, (size_t)t->rank * sizeof *dims);
    for (int32_t i = 0; i < t->rank; i++)
        if (dims[i].i && !ex_is_const(lg->ctx->exprs, dims[i], NULL))
            dims[i] = (expr_id){0};
    t->dims = dims;
    return t;
}

static bool input_type(struct legalizer *lg, const struct port *p, const struct input_spec *spec, struct type *out)
{
    if (!p->declared)
        return error_at(lg->ctx, FAIL_MODEL, (src_id){0}, p->name, "the graph's input has no type");
    *out = *p->declared;
    if (out->kind != TYPE_TENSOR) {
        if (out->inner)
            out->inner = inner_loosen(lg, out->inner);
        return true;
    }
    if (spec && spec->elem != ELEM_NONE && spec->elem != out->elem)
        return error_at(lg->ctx, FAIL_USAGE, (src_id){0}, p->name,
                        "the element type is %s in the model and %s in --input", elem_name(out->elem),
                        elem_name(spec->elem));
    bool spec_rank = spec && spec->rank != RANK_UNKNOWN;
    if (out->rank == RANK_UNKNOWN && !spec_rank)
        return error_at(lg->ctx, FAIL_MODEL, (src_id){0}, p->name,
                        "the rank of this input is unknown; state its shape with --input");
    if (spec_rank && out->rank != RANK_UNKNOWN && out->rank != spec->rank)
        return error_at(lg->ctx, FAIL_USAGE, (src_id){0}, p->name, "the rank is %d in the model and %d in --input",
                        (int)out->rank, (int)spec->rank);
    int32_t rank = spec_rank ? spec->rank : out->rank;
    expr_id *dims = NEW_ARRAY(lg->arena, expr_id, rank);
    for (int32_t i = 0; i < rank; i++) {
        expr_id file = p->declared->rank == rank ? p->declared->dims[i] : (expr_id){0};
        if (!dim_merge(lg, p->name, i, file, spec_rank ? spec->dims[i] : (expr_id){0}, &dims[i]))
            return false;
    }
    out->rank = rank;
    out->dims = dims;
    return true;
}

/* A run learns the size that a name stands for from a dimension that is the name alone. */
static bool names_known(struct legalizer *lg, const struct type *types)
{
    struct exprs *x = lg->ctx->exprs;
    bool *known = NEW_ARRAY(lg->arena, bool, sym_count(x) + 1), ok = true;
    for (uint32_t i = 0; i < lg->from->inputs.n; i++)
        for (int32_t d = 0; types[i].kind == TYPE_TENSOR && d < types[i].rank; d++)
            known[ex_as_sym(x, types[i].dims[d]).i] = true;
    for (uint32_t i = 0; i < lg->from->inputs.n; i++)
        for (int32_t d = 0; lg->spec[i] && types[i].kind == TYPE_TENSOR && d < lg->spec[i]->rank; d++) {
            expr_id e = lg->spec[i]->dims[d];
            sym_id s = e.i && !ex_as_sym(x, e).i ? sym_next(x, SYM_SHAPE, (sym_id){0}) : (sym_id){0};
            while (s.i && (known[s.i] || !ex_uses(x, e, s)))
                s = sym_next(x, SYM_SHAPE, s);
            if (!s.i)
                continue;
            struct strbuf text = strbuf_of(lg->arena);
            ex_print(x, e, &text);
            ok = error_at(
                lg->ctx, FAIL_USAGE, (src_id){0}, lg->from->inputs.data[i].name,
                "dimension %d is %s, and no dimension of an input is '%s' alone, so a run cannot know it; give "
                "this dimension a name of its own, with a range and divisor if it has them (m=2..64%%2)",
                (int)d, text.data, sym_get(x, s)->name);
        }
    return ok;
}

struct type *inputs_settle(struct context *ctx, const struct graph *from, const struct legalize_options *options)
{
    struct legalizer lg = {.ctx = ctx, .from = from, .options = options, .arena = &ctx->session};
    struct type *types = NEW_ARRAY(lg.arena, struct type, from->inputs.n + 1);
    bool ok = enter_specs(&lg);
    for (uint32_t i = 0; i < from->inputs.n; i++)
        ok &= input_type(&lg, &from->inputs.data[i], lg.spec[i], &types[i]);
    return ok && names_known(&lg, types) ? types : NULL;
}

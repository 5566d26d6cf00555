/* op_infer: result types of the core operators from operands and attributes, or the reason why there are none.
 *
 * One function per entry of the column "infer" of ops.def; this file has the entry point, helpers, and constants
 * and elementwise operators; infer_view.c, infer_reduce.c and infer_opaque.c have the others. Dims that are not
 * provably equal but may be are accepted where an assert node can decide at run time (the builder appends it);
 * elementwise operators demand provable equality, since `broadcast` makes it so.
 */
#include "ir/graph/infer.h"

#include <stdio.h>

const char *expr_text(struct graph *g, expr_id e)
{
    struct strbuf s = strbuf_of(&g->arena);
    if (e.i == 0)
        strbuf_append(&s, "?", 1);
    else
        ex_print(g->ctx->exprs, e, &s);
    return s.data;
}

const char *type_text(struct graph *g, const struct type *t)
{
    static const char *const kinds[] = {"unknown type", "tensor", "sequence", "optional", "map"};
    if (t->kind != TYPE_TENSOR && t->inner && t->inner->kind == TYPE_TENSOR)
        return arena_printf(&g->arena, "%s of %s", kinds[t->kind], type_text(g, t->inner));
    if (t->kind != TYPE_TENSOR)
        return kinds[t->kind];
    if (t->rank < 0)
        return arena_printf(&g->arena, "%s of unknown rank", elem_name(t->elem));
    struct strbuf s = strbuf_of(&g->arena);
    strbuf_printf(&s, "%s[", elem_name(t->elem));
    for (int32_t i = 0; i < t->rank; i++)
        strbuf_printf(&s, "%s%s", i ? ", " : "", expr_text(g, t->dims[i]));
    strbuf_append(&s, "]", 1);
    return s.data;
}

bool infer_error(struct infer *f, const char *fmt, ...)
{
    TEXT_OF_ARGUMENTS(text, 600, fmt);
    return error_model(f->g->ctx, f->src, "%s: %s", op_name(f->op), text);
}

const struct type *infer_in(struct infer *f, uint32_t i)
{
    return value_type(f->g, f->in[i]);
}

const struct type *infer_tensor(struct infer *f, uint32_t i)
{
    const struct type *t = infer_in(f, i);
    if (t->kind == TYPE_TENSOR && t->rank != RANK_UNKNOWN)
        return t;
    infer_error(f, "operand %u must be a tensor of known rank, is %s", i + 1, type_text(f->g, t));
    return NULL;
}

bool infer_set(struct infer *f, uint32_t i, enum elem elem, int32_t rank, const expr_id *dims)
{
    f->out[i] = (struct type){.kind = TYPE_TENSOR, .elem = elem, .rank = rank, .dims = dims};
    return true;
}

expr_id *infer_dims(struct infer *f, int32_t rank)
{
    return NEW_ARRAY(&f->g->arena, expr_id, rank > 0 ? rank : 1);
}

bool infer_axis(struct infer *f, int32_t rank, int64_t *axis)
{
    *axis = node_int(&f->attrs, "axis", 0);
    if (*axis >= 0 && *axis < rank)
        return true;
    return infer_error(f, "axis %lld is outside of rank %d", (long long)*axis, rank);
}

bool infer_agree(struct infer *f, expr_id a, expr_id b, const char *what)
{
    return ex_cmp_eq(f->ex, a, b) != FALSE_ ||
           infer_error(f, "%s: %s against %s in %s and %s", what, expr_text(f->g, a), expr_text(f->g, b),
                       type_text(f->g, infer_in(f, 0)), type_text(f->g, infer_in(f, f->n_in > 1 ? 1 : 0)));
}

bool infer_elem_in(struct infer *f, uint32_t i, const char *classes)
{
    enum elem e = infer_in(f, i)->elem;
    return strchr(classes, elem_class(e)) || infer_error(f, "not defined for elements of type %s (operand %u is %s)",
                                                         elem_name(e), i + 1, type_text(f->g, infer_in(f, i)));
}

bool infer_monoid(struct infer *f, const char *more, enum elem elem)
{
    static const struct {
        const char *name, *classes;
    } monoids[] = {
#define MONOID(name, op, statement, of_bool, classes) {name, classes},
#include "ir/ops/monoids.def"
        {"set", "BIUFCS"}, /* of scatters */
    };
    const char *m = node_str(&f->attrs, "monoid", "");
    for (size_t i = 0; i < COUNT_OF(monoids); i++) {
        if (strcmp(m, monoids[i].name) != 0 || (i == COUNT_OF(monoids) - 1 && strcmp(more, "set") != 0))
            continue;
        if (strchr(monoids[i].classes, elem_class(elem)))
            return true;
        return infer_error(f, "monoid %s is not defined for elements of type %s", m, elem_name(elem));
    }
    return infer_error(f, "no monoid is called \"%s\"", m);
}

/* ---- constants ------------------------------------------------------------------------------------------------ */

static bool static_dims(struct infer *f, expr_id **dims, uint32_t *rank, int64_t *count)
{
    const int64_t *d = node_ints(&f->attrs, "dims", rank);
    if (*rank > RANK_MAX)
        return infer_error(f, "rank %u is above %d", *rank, RANK_MAX);
    *count = 1;
    *dims = infer_dims(f, (int32_t)*rank);
    for (uint32_t i = 0; i < *rank; i++) {
        if (d[i] < 0)
            return infer_error(f, "dimension %u is %lld", i, (long long)d[i]);
        (*dims)[i] = ex_const(f->ex, d[i]);
    }
    for (uint32_t i = 0; i < *rank; i++)    /* an empty tensor may have any other dims */
        if (d[i] == 0)
            return *count = 0, true;
    for (uint32_t i = 0; i < *rank; i++)
        if (!mul_i64(*count, d[i], count))
            return infer_error(f, "the number of elements exceeds 2^63");
    return true;
}

bool infer_attr_type(struct infer *f)
{
    expr_id *dims;
    uint32_t rank;
    int64_t count, bytes;
    enum elem elem = node_elem(&f->attrs, "elem");
    if (elem == ELEM_NONE)
        return infer_error(f, "no element type");
    if (!static_dims(f, &dims, &rank, &count))
        return false;
    const struct attr *data = node_attr(&f->attrs, "data");
    if (!mul_i64(count, elem_size(elem), &bytes) || !data || data->u.data.size != (size_t)bytes)
        return infer_error(f, "%zu bytes of data for %lld elements of type %s", data ? data->u.data.size : (size_t)0,
                           (long long)count, elem_name(elem));
    return infer_set(f, 0, elem, (int32_t)rank, dims);
}

bool infer_from_exprs(struct infer *f)
{
    expr_id *dims;
    uint32_t rank, n;
    int64_t count;
    enum elem elem = node_elem(&f->attrs, "elem");
    if (elem == ELEM_NONE || !strchr("BIU", elem_class(elem)))
        return infer_error(f, "elements must be integers or bool");
    if (!static_dims(f, &dims, &rank, &count))
        return false;
    node_exprs(&f->attrs, "exprs", &n);
    if (count != n)
        return infer_error(f, "%u expressions for %lld elements", n, (long long)count);
    return infer_set(f, 0, elem, (int32_t)rank, dims);
}

/* A tensor of elem and dims as the attributes say. */
static bool from_attributes(struct infer *f, const char *elem_classes)
{
    uint32_t rank;
    const expr_id *dims = node_exprs(&f->attrs, "dims", &rank);
    enum elem elem = node_elem(&f->attrs, "elem");
    if (elem == ELEM_NONE || !strchr(elem_classes, elem_class(elem)))
        return infer_error(f, "not defined for elements of type %s", elem ? elem_name(elem) : "none");
    if (rank > RANK_MAX)
        return infer_error(f, "rank %u is above %d", rank, RANK_MAX);
    for (uint32_t i = 0; i < rank; i++)
        if (ex_hi(f->ex, dims[i]) < 0)
            return infer_error(f, "dimension %u is %s", i, expr_text(f->g, dims[i]));
    return infer_set(f, 0, elem, (int32_t)rank, dims);
}

bool infer_iota(struct infer *f)
{
    int64_t axis;
    return from_attributes(f, "IUF") && infer_axis(f, f->out[0].rank, &axis);
}

bool infer_rng(struct infer *f)
{
    return from_attributes(f, "F");
}

/* ---- elementwise ------------------------------------------------------------------------------------------------ */

static const char *const classes[OP_COUNT] = {
#define SCALAR(id, name, operands, cost, infer, classes, ...) [OP_##id] = classes,
#include "ir/ops/ops.def"
};

/* Operands first .. n_in - 1 have one element type and provably one shape. */
static bool same_operands(struct infer *f, uint32_t first)
{
    const struct type *a = infer_tensor(f, first);
    if (!a)
        return false;
    for (uint32_t i = first + 1; i < f->n_in; i++) {
        const struct type *b = infer_tensor(f, i);
        if (!b)
            return false;
        if (a->elem != b->elem)
            return infer_error(f, "operands have different element types: %s and %s", type_text(f->g, a),
                               type_text(f->g, b));
    }
    for (uint32_t i = 0; i < f->n_in; i++) {
        const struct type *b = infer_tensor(f, i);
        bool same = b && b->rank == a->rank;
        for (int32_t k = 0; same && k < a->rank; k++)
            same = ex_cmp_eq(f->ex, a->dims[k], b->dims[k]) == TRUE_;
        if (!same)
            return infer_error(f, "operands must have one shape: %s and %s", type_text(f->g, a),
                               b ? type_text(f->g, b) : "?");
    }
    return true;
}

bool infer_same(struct infer *f)
{
    if (!same_operands(f, 0) || !infer_elem_in(f, 0, classes[f->op]))
        return false;
    f->out[0] = *infer_in(f, 0);
    return true;
}

bool infer_identity(struct infer *f)
{
    f->out[0] = *infer_in(f, 0);
    return true;
}

bool infer_cumulate(struct infer *f)
{
    int64_t axis;
    if (!infer_tensor(f, 0) || !infer_elem_in(f, 0, "IUF"))
        return false;
    f->out[0] = *infer_in(f, 0);
    return infer_axis(f, f->out[0].rank, &axis) && infer_monoid(f, "", f->out[0].elem);
}

bool infer_pred(struct infer *f)
{
    if (!same_operands(f, 0) || !infer_elem_in(f, 0, classes[f->op]))
        return false;
    const struct type *t = infer_in(f, 0);
    return infer_set(f, 0, ELEM_BOOL, t->rank, t->dims);
}

bool infer_select(struct infer *f)
{
    if (!infer_tensor(f, 0) || !infer_elem_in(f, 0, "B") || !same_operands(f, 1))
        return false;
    f->out[0] = *infer_in(f, 1);
    return true;
}

bool infer_convert(struct infer *f)
{
    const struct type *t = infer_tensor(f, 0);
    enum elem elem = node_elem(&f->attrs, "elem");
    if (!t)
        return false;
    if (elem == ELEM_NONE || elem_class(elem) == 'S' || elem_class(t->elem) == 'S' ||
        (f->op == OP_CONVERT && (elem_class(elem) == 'C') != (elem_class(t->elem) == 'C')))
        return infer_error(f, "no conversion from %s to %s", elem_name(t->elem), elem ? elem_name(elem) : "none");
    if (f->op == OP_BITCAST && elem_size(elem) != elem_size(t->elem))
        return infer_error(f, "%s and %s have different widths", elem_name(t->elem), elem_name(elem));
    return infer_set(f, 0, elem, t->rank, t->dims);
}

bool infer_none(struct infer *f)
{
    (void)f;
    return true;
}

/* ---- entry ------------------------------------------------------------------------------------------------------ */

static const struct {
    infer_fn *fn;
    int32_t in_min, in_max, n_out;
} infer_table[OP_COUNT] = {
#define OP(id, name, least, most, results, shape, cost, infer, ...) [OP_##id] = {infer, least, most, results},
#include "ir/ops/ops.def"
};

bool op_infer(struct graph *g, enum op op, src_id src, const value_id *in, uint32_t n_in, const struct attr *attr,
              uint32_t n_attr, struct type *out, uint32_t n_out)
{
    struct infer f = {
        .g = g, .ex = g->ctx->exprs, .src = src, .op = op, .in = in, .n_in = n_in, .out = out, .n_out = n_out};
    f.attrs.op = op;
    f.attrs.attr = (struct attr *)(uintptr_t)attr;   /* only read */
    f.attrs.n_attr = n_attr;
    int32_t lo = infer_table[op].in_min, hi = infer_table[op].in_max, results = infer_table[op].n_out;
    if (!infer_table[op].fn || n_in < (uint32_t)lo || (hi >= 0 && n_in > (uint32_t)hi))
        return infer_error(&f, "%u operands", n_in);
    if (results >= 0 && n_out != (uint32_t)results)
        return infer_error(&f, "%u results instead of %d", n_out, results);
    return infer_table[op].fn(&f);
}

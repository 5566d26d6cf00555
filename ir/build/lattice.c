/* The value lattice: what is known of the elements of small integer and bool tensors (shapes, axes, sizes, pads,
 * conditions), carried through the operators that shape arithmetic is made of.
 *
 * An element is an expression or unknown. Two constants combine with the operator's own wrapping arithmetic; with
 * symbols, a result is kept only where exact and wrapping arithmetic agree. For i64 and i32 that is taken for
 * granted (sizes past 2^31 in an int32 tensor are nobody's network); narrower types need it proved by intervals.
 *
 * What a chain of operators makes too long to be worth knowing is unknown from there on: the run computes it, and who
 * needs it as a size gets a symbol for the computed element.
 */
#include "ir/eval/constants.h"
#include "ir/build/lattice.h"

#include "ir/graph/view_map.h"
#include "ir/ops/scalar.h"

struct lat {
    struct graph *g;
    struct exprs *ex;
    const struct node *node;
    const struct type *out;
    enum elem elem;              /* of the result */
    int64_t dims[RANK_MAX];      /* of the result */
    const expr_id *in[4];        /* elements of the first operands; NULL: unknown */
    uint32_t n;
    expr_id *elems;              /* of the result, to be filled in; zeroed */
};
typedef bool lattice_fn(struct lat *);

enum { LATTICE_PARTS = 400 };    /* of an element's expression (ex_size) */

bool lattice_applies(const struct graph *g, const struct type *t, uint32_t *n)
{
    int64_t d, count = 1;
    if (t->kind != TYPE_TENSOR || t->rank == RANK_UNKNOWN || !strchr("BIU", elem_class(t->elem)))
        return false;
    for (int32_t i = 0; i < t->rank; i++)
        if (!ex_is_const(g->ctx->exprs, t->dims[i], &d) || d < 0 || d > LATTICE_MAX || (count *= d) > LATTICE_MAX)
            return false;
    *n = (uint32_t)count;
    return true;
}

static expr_id from_data(struct lat *l, enum elem elem, const void *p)
{
    int64_t v = elem_to_i64(elem, p);
    return elem == ELEM_U64 && v < 0 ? (expr_id){0} : ex_const(l->ex, v);
}

/* ---- one element ---------------------------------------------------------------------------------------------- */

static expr_id brief(struct lat *l, expr_id e)
{
    return e.i && ex_size(l->ex, e) <= LATTICE_PARTS ? e : (expr_id){0};
}

/* Does every value of e fit the element type? */
static bool fits(struct lat *l, expr_id e)
{
    if (l->elem == ELEM_I64 || l->elem == ELEM_I32)
        return true;
    if (l->elem == ELEM_BOOL || l->elem == ELEM_U64)
        return ex_lo(l->ex, e) >= 0 && (l->elem == ELEM_U64 || ex_hi(l->ex, e) <= 1);
    bool is_signed = elem_class(l->elem) == 'I';
    int64_t top = (int64_t)1 << (elem_bits(l->elem) - (is_signed ? 1 : 0));
    return ex_lo(l->ex, e) >= (is_signed ? -top : 0) && ex_hi(l->ex, e) < top;
}

/* Can two such expressions be multiplied without coefficients that overflow? */
static bool tame(struct lat *l, expr_id e)
{
    const int64_t limit = (int64_t)1 << 30;
    int64_t c;
    if (ex_is_const(l->ex, e, &c))
        return c > -limit && c < limit;
    if (ex_kind(l->ex, e) != EX_SUM)
        return true;
    c = ex_addend(l->ex, e);
    bool ok = c > -limit && c < limit;
    for (uint32_t i = 0; ok && i < ex_n_args(l->ex, e); i++) {
        c = ex_coef(l->ex, e, i);
        ok = c > -limit && c < limit;
    }
    return ok;
}

static bool tame_sum(struct lat *l, expr_id e)
{
    const int64_t limit = (int64_t)1 << 61;
    int64_t c;
    if (!ex_is_const(l->ex, e, &c))
        c = ex_kind(l->ex, e) == EX_SUM ? ex_addend(l->ex, e) : 0;
    return c > -limit && c < limit;
}

/* The symbolic form of an operator: a and, of two operands, b. {0}: not known. */
typedef expr_id symbol_fn(struct lat *, expr_id a, expr_id b);
static const expr_id unknown = {0};

/* A form that is one expression. */
#define SYMBOL(name, value)                                  \
    static expr_id name(struct lat *l, expr_id a, expr_id b) \
    {                                                        \
        (void)a, (void)b;                                    \
        return value;                                        \
    }

/* Is a natural and b positive: where division by truncation and by flooring are one? */
static bool whole(struct lat *l, expr_id a, expr_id b)
{
    return ex_lo(l->ex, a) >= 0 && ex_lo(l->ex, b) >= 1;
}

SYMBOL(sym_neg, tame_sum(l, a) ? ex_mulc(l->ex, a, -1) : unknown)
SYMBOL(sym_abs, ex_lo(l->ex, a) >= 0 ? a : tame_sum(l, a) ? ex_max(l->ex, a, ex_mulc(l->ex, a, -1)) : unknown)
SYMBOL(sym_not, l->elem == ELEM_BOOL ? ex_not(l->ex, a) : unknown)
SYMBOL(sym_add, tame_sum(l, a) && tame_sum(l, b) ? ex_add(l->ex, a, b) : unknown)
SYMBOL(sym_sub, tame_sum(l, a) && tame_sum(l, b) ? ex_sub(l->ex, a, b) : unknown)

static expr_id sym_mul(struct lat *l, expr_id a, expr_id b)
{
    bool brief = tame(l, a) && tame(l, b) && ex_size(l->ex, a) <= LATTICE_PARTS / ex_size(l->ex, b);
    return brief ? ex_mul(l->ex, a, b) : unknown;
}

static expr_id sym_div(struct lat *l, expr_id a, expr_id b)
{
    if (whole(l, a, b))
        return ex_div(l->ex, a, b);
    if (ex_lo(l->ex, b) < 1 || !tame_sum(l, a) || ex_size(l->ex, a) > LATTICE_PARTS / 4)
        return unknown;
    expr_id zero = ex_const(l->ex, 0);   /* towards zero */
    if (ex_lo(l->ex, a) > -ex_lo(l->ex, b))
        return ex_div(l->ex, ex_max(l->ex, a, zero), b);
    return ex_select(l->ex, ex_lt(l->ex, a, zero), ex_mulc(l->ex, ex_div(l->ex, ex_mulc(l->ex, a, -1), b), -1),
                     ex_div(l->ex, a, b));
}

SYMBOL(sym_mod, ex_lo(l->ex, b) >= 1 ? ex_mod(l->ex, a, b) : unknown)
SYMBOL(sym_rem, whole(l, a, b) ? ex_mod(l->ex, a, b) : unknown)
SYMBOL(sym_min, ex_min(l->ex, a, b))
SYMBOL(sym_max, ex_max(l->ex, a, b))
SYMBOL(sym_eq, ex_eq(l->ex, a, b))
SYMBOL(sym_ne, ex_not(l->ex, ex_eq(l->ex, a, b)))
SYMBOL(sym_lt, ex_lt(l->ex, a, b))
SYMBOL(sym_le, ex_le(l->ex, a, b))
SYMBOL(sym_and, l->elem == ELEM_BOOL ? ex_and(l->ex, a, b) : unknown)
SYMBOL(sym_or, l->elem == ELEM_BOOL ? ex_or(l->ex, a, b) : unknown)
SYMBOL(sym_xor, l->elem == ELEM_BOOL ? sym_ne(l, a, b) : unknown)

static symbol_fn *const symbols[OP_COUNT] = {
#define SCALAR(id, name, operands, cost, infer, classes, real, integer, symbol, ...) [OP_##id] = symbol,
#include "ir/ops/ops.def"
};

/* Constants combine exactly as at run time; {0} where that fails (zero divisor) or is not a number we keep. */
static expr_id constant_result(struct lat *l, enum op op, enum elem elem, const int64_t *v, uint32_t n)
{
    int64_t raw[3], out = 0;
    const void *in[3] = {&raw[0], &raw[1], &raw[2]};
    for (uint32_t i = 0; i < n; i++)
        elem_from_i64(elem, v[i], &raw[i]);
    return scalar_eval(op, elem, in, &out) != EVAL_OK ? (expr_id){0} : from_data(l, l->elem, &out);
}

static expr_id scalar_expr(struct lat *l, enum op op, enum elem elem, const expr_id *a, uint32_t n)
{
    int64_t v[3];
    uint32_t n_const = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!brief(l, a[i]).i)
            return (expr_id){0};
        n_const += ex_is_const(l->ex, a[i], &v[i]);
    }
    if (n_const == n)
        return constant_result(l, op, elem, v, n);
    expr_id e = symbols[op] ? symbols[op](l, a[0], n > 1 ? a[1] : unknown) : unknown;
    return e.i && fits(l, e) ? brief(l, e) : (expr_id){0};
}

/* ---- elementwise --------------------------------------------------------------------------------------------- */

static bool lat_map(struct lat *l)
{
    enum elem elem = value_type(l->g, l->node->in[0])->elem;
    for (uint32_t i = 0; i < l->node->n_in; i++)
        if (!l->in[i])
            return false;
    for (uint32_t k = 0; k < l->n; k++) {
        expr_id a[3];
        for (uint32_t i = 0; i < l->node->n_in; i++)
            a[i] = l->in[i][k];
        l->elems[k] = scalar_expr(l, l->node->op, elem, a, l->node->n_in);
    }
    return true;
}

static bool lat_select(struct lat *l)
{
    if (!l->in[0])
        return false;
    for (uint32_t k = 0; k < l->n; k++) {
        expr_id t = l->in[1] ? l->in[1][k] : (expr_id){0}, f = l->in[2] ? l->in[2][k] : (expr_id){0};
        enum truth c = l->in[0][k].i ? ex_truth(l->ex, l->in[0][k]) : UNKNOWN_;
        if (c != UNKNOWN_)
            l->elems[k] = c == TRUE_ ? t : f;
        else if (brief(l, l->in[0][k]).i && brief(l, t).i && brief(l, f).i)
            l->elems[k] = brief(l, ex_select(l->ex, l->in[0][k], t, f));
    }
    return true;
}

/* Floats are not tracked, but where they are constants their conversion is known: sizes that exporters scale as
 * floats. */
static bool convert_floats(struct lat *l, enum elem from)
{
    const struct tensor_data *data = value_is_const(l->g, l->node->in[0]) ? value_fold(l->g, l->node->in[0]) : NULL;
    const struct attr *round = node_attr(l->node, "round");
    for (uint32_t k = 0; data && k < l->n; k++) {
        int64_t out = 0;
        elems_convert(from, (const char *)data->bytes.data + k * elem_size(from), l->elem, &out, 1,
                      node_int(l->node, "saturate", 1) != 0, round ? round->u.s : "even");
        l->elems[k] = from_data(l, l->elem, &out);
    }
    return data != NULL;
}

static bool lat_convert(struct lat *l)
{
    enum elem from = value_type(l->g, l->node->in[0])->elem;
    if (elem_class(from) == 'F')
        return convert_floats(l, from);
    for (uint32_t k = 0; l->in[0] && k < l->n; k++) {
        expr_id a = l->in[0][k];
        int64_t v;
        if (a.i == 0)
            continue;
        if (l->elem == ELEM_BOOL) {
            l->elems[k] = ex_not(l->ex, ex_eq(l->ex, a, ex_const(l->ex, 0)));
        } else if (ex_is_const(l->ex, a, &v)) {
            int64_t raw = 0, out = 0;
            elem_from_i64(from, v, &raw);
            elems_convert(from, &raw, l->elem, &out, 1, true, "even");
            l->elems[k] = from_data(l, l->elem, &out);
        } else if (fits(l, a)) {
            l->elems[k] = a;
        }
    }
    return l->in[0] != NULL;
}

static bool lat_iota(struct lat *l)
{
    int64_t inner = 1, axis = node_int(l->node, "axis", 0);
    for (int32_t i = l->out->rank - 1; i > axis; i--)
        inner *= l->dims[i];
    for (uint32_t k = 0; k < l->n; k++) {
        expr_id e = ex_const(l->ex, k / inner % l->dims[axis]);
        l->elems[k] = fits(l, e) ? e : (expr_id){0};
    }
    return true;
}

static bool lat_from_exprs(struct lat *l)
{
    uint32_t n;
    const expr_id *e = node_exprs(l->node, "exprs", &n);
    for (uint32_t k = 0; k < n && k < l->n; k++)
        if (fits(l, e[k]))
            l->elems[k] = e[k];
    return true;
}

/* ---- views: each element of the result is an element of the operand -------------------------------------------- */

/* Coordinates of flat position k of the result. */
static void coords(const struct lat *l, uint32_t k, int64_t *at)
{
    int64_t rest = k;
    for (int32_t i = l->out->rank - 1; i >= 0; i--) {
        at[i] = rest % l->dims[i];
        rest /= l->dims[i];
    }
}

/* Dims of operand i when all static. */
static bool operand_dims(const struct lat *l, uint32_t i, int64_t *dims, int32_t *rank)
{
    const struct type *t = value_type(l->g, l->node->in[i]);
    *rank = t->rank;
    for (int32_t k = 0; k < t->rank; k++)
        if (!ex_is_const(l->ex, t->dims[k], &dims[k]))
            return false;
    return true;
}

static int64_t flatten(const int64_t *at, const int64_t *dims, int32_t rank)
{
    int64_t p = 0;
    for (int32_t i = 0; i < rank; i++) {
        if (at[i] < 0 || at[i] >= dims[i])
            return -1;
        p = p * dims[i] + at[i];
    }
    return p;
}

static bool lat_same(struct lat *l)
{
    if (l->in[0])
        memcpy(l->elems, l->in[0], l->n * sizeof *l->elems);
    return l->in[0] != NULL;
}

/* Position in operand i of what coordinates `at` of the result show; -1: something else. */
static int64_t shown_at(const struct view_map *map, const int64_t *start, const int64_t *dims, const int64_t *at)
{
    int64_t from[RANK_MAX];
    for (int32_t i = 0; i < map->rank; i++)
        from[i] = map->dim[i].step ? start[i] + map->dim[i].step * at[map->dim[i].of] : start[i];
    return flatten(from, dims, map->rank);
}

/* What a pad or a concat does not show of one operand is another one's. */
static bool lat_view(struct lat *l)
{
    int64_t dims[RANK_MAX], start[RANK_MAX], at[RANK_MAX];
    uint32_t shown = l->node->op == OP_PAD ? 1 : l->node->n_in;
    bool any = false;
    expr_id fill = l->node->op == OP_PAD && l->node->n_in == 1 ? ex_const(l->ex, 0) : (expr_id){0};
    if (l->node->op == OP_PAD && l->node->n_in > 1 && l->in[1])
        fill = l->in[1][0];
    for (uint32_t k = 0; k < l->n; k++)
        l->elems[k] = fill;
    for (uint32_t i = 0; i < shown; i++) {
        const expr_id *in = lattice_elems(l->g, l->node->in[i]);
        struct view_map map;
        int32_t rank;
        if (!operand_dims(l, i, dims, &rank) || !view_map(l->g, l->node, i, &map))
            return false;
        for (int32_t d = 0; d < rank; d++)
            if (!ex_is_const(l->ex, map.dim[d].start, &start[d]))
                return false;
        for (uint32_t k = 0; in && k < l->n; k++) {
            coords(l, k, at);
            int64_t p = shown_at(&map, start, dims, at);
            if (p >= 0)
                l->elems[k] = in[p];
        }
        any |= in != NULL;
    }
    return any;
}

/* Position along an axis that an index element means; -1: unknown or outside. */
static int64_t index_at(struct lat *l, expr_id e, int64_t dim)
{
    int64_t v;
    if (e.i == 0 || !ex_is_const(l->ex, e, &v))
        return -1;
    v = v < 0 ? v + dim : v;
    return v >= 0 && v < dim ? v : -1;
}

static bool lat_gather(struct lat *l)
{
    int64_t dims[RANK_MAX], idims[RANK_MAX], at[RANK_MAX], from[RANK_MAX], axis = node_int(l->node, "axis", 0);
    int32_t rank, irank;
    if (!l->in[0] || !l->in[1] || !operand_dims(l, 0, dims, &rank) || !operand_dims(l, 1, idims, &irank))
        return false;
    for (uint32_t k = 0; k < l->n; k++) {
        coords(l, k, at);
        memcpy(from, at, (size_t)axis * sizeof *from);
        from[axis] = index_at(l, l->in[1][flatten(at + axis, idims, irank)], dims[axis]);
        memcpy(from + axis + 1, at + axis + irank, (size_t)(rank - 1 - axis) * sizeof *from);
        int64_t p = flatten(from, dims, rank);
        if (p >= 0)
            l->elems[k] = l->in[0][p];
    }
    return true;
}

/* ---- reductions ------------------------------------------------------------------------------------------------ */

static bool lat_reduce(struct lat *l)
{
    int64_t dims[RANK_MAX], count = 1;
    int32_t rank;
    uint32_t n_axes;
    const int64_t *axes = node_ints(l->node, "axes", &n_axes);
    enum op op = monoid_op(node_str(l->node, "monoid", ""));
    if (!l->in[0] || !operand_dims(l, 0, dims, &rank) || op == OP_NONE)
        return false;
    bool reduced[RANK_MAX] = {false}, seen[LATTICE_MAX] = {false};
    for (uint32_t i = 0; i < n_axes; i++)
        reduced[axes[i]] = true;
    for (int32_t i = 0; i < rank; i++)
        count *= dims[i];
    if (count == 0) /* identities are left to the run */
        return false;
    for (int64_t k = 0; k < count; k++) {
        int64_t rest = k, to = 0, weight = 1;
        for (int32_t i = rank - 1; i >= 0; rest /= dims[i], i--) {
            if (reduced[i])
                continue;
            to += rest % dims[i] * weight;
            weight *= dims[i];
        }
        expr_id pair[2] = {l->elems[to], l->in[0][k]};
        l->elems[to] = seen[to] ? scalar_expr(l, op, l->elem, pair, 2) : pair[1];
        seen[to] = true;
    }
    return true;
}

static bool lat_constant(struct lat *l)
{
    const struct attr *data = node_attr(l->node, "data");
    for (uint32_t k = 0; k < l->n; k++)
        l->elems[k] = from_data(l, l->elem, (const char *)data->u.data.data + k * elem_size(l->elem));
    return true;
}

static lattice_fn *const lattice_table[OP_COUNT] = {
#define OP(id, name, least, most, results, shape, cost, infer, eval, lattice, ...) [OP_##id] = lattice,
#include "ir/ops/ops.def"
};

const expr_id *lattice_node(struct graph *g, const struct node *node, const struct type *out, uint32_t *n)
{
    struct lat l = {.g = g, .ex = g->ctx->exprs, .node = node, .out = out, .elem = out->elem};
    bool any = false;
    if (!lattice_table[node->op] || !lattice_applies(g, out, n))
        return NULL;
    for (int32_t i = 0; i < out->rank; i++)
        ex_is_const(l.ex, out->dims[i], &l.dims[i]);
    for (uint32_t i = 0; i < node->n_in && i < COUNT_OF(l.in); i++)
        l.in[i] = lattice_elems(g, node->in[i]);
    l.n = *n;
    l.elems = NEW_ARRAY(&g->arena, expr_id, *n + 1);
    if (!lattice_table[node->op](&l))
        return NULL;
    for (uint32_t k = 0; k < *n; k++)
        any |= l.elems[k].i != 0;
    return any || *n == 0 ? l.elems : NULL;
}

const expr_id *lattice_elems(struct graph *g, value_id v)
{
    struct value *value = graph_value(g, v);
    if (!value->elems && value_op(g, v) == OP_CONSTANT) {
        uint32_t n = 0;
        value->elems = lattice_node(g, graph_node(g, value->def), &value->type, &n);
        value->n_elems = n;
    }
    return value->elems;
}

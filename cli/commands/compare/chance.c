/* Choices among elements: see chance.h. */
#include "cli/commands/compare/chance.h"

#include <math.h>

#include "ir/eval/eval.h"
#include "ir/expr/expr.h"
#include "ir/ops/field.h"

/* Is it the constant infinity, of either sign, repeated? Constants are residues here. */
static bool is_infinity(const struct graph *g, value_id v)
{
    while (v.i && value_op(g, v) == OP_BROADCAST)
        v = value_node(g, v)->in[0];
    const enum elem elem = v.i && value_op(g, v) == OP_CONSTANT ? value_type(g, v)->elem : ELEM_NONE;
    const struct attr *data = field_form(elem) ? node_attr(value_node(g, v), "data") : NULL;
    const uint32_t x = data && data->u.data.size >= elem_size(elem) ? field_load(elem, data->u.data.data) : 0;
    return x == FIELD_PLUS_INF || x == FIELD_MINUS_INF;
}

static bool is_single(const struct graph *g, const struct type *t)
{
    for (int32_t k = 0; t->kind == TYPE_TENSOR && k < t->rank; k++)
        if (!ex_is(g->ctx->exprs, t->dims[k], 1))
            return false;
    return true;
}

bool chance_is_single(const struct node *n)
{
    uint32_t dims;
    const int64_t *kernel = node_ints(n, "kernel", &dims);
    return n->op == OP_ARGWINDOW && dims_count(kernel, (int32_t)dims) == 1;
}

const char *chance_tells(const struct graph *g, const struct node *n)
{
    bool tells = n->op == OP_EQ || n->op == OP_NE || n->op == OP_ISNAN || n->op == OP_ISINF;
    if (n->op == OP_ARGREDUCE || (n->op == OP_ARGWINDOW && !chance_is_single(n)) || n->op == OP_SORT)
        return "it says which one of equal elements is chosen, and few drawn ones were equal";
    if ((n->op == OP_UNIQUE && !is_single(g, value_type(g, n->out[2]))) || n->op == OP_NONZERO ||
        (n->op == OP_NMS && !is_single(g, value_type(g, n->in[1]))))
        return "it chooses among elements, and few of its choices were others from draw to draw";
    if (n->op == OP_CONVERT && elem_class(value_type(g, n->in[0])->elem) == 'F' &&
        value_type(g, n->out[0])->elem == ELEM_BOOL)
        return "it tells whether floats are 0, which few drawn ones were";
    if ((n->op == OP_LT || n->op == OP_LE) && (is_infinity(g, n->in[0]) || is_infinity(g, n->in[1])))
        return "it compares with infinity, which few drawn numbers were";
    if (tells && elem_class(value_type(g, n->in[0])->elem) == 'F')
        return n->op == OP_EQ || n->op == OP_NE ? "it tells whether floats are equal, which few drawn ones were"
                                                : "it looks for NaN or infinity, which few drawn numbers were";
    return NULL;
}

value_id chance_told(const struct node *n)
{
    return n->op == OP_SORT ? n->out[1] : n->op == OP_UNIQUE ? n->out[2] : n->out[0];
}

/* Of windows: found are positions in the last dims of x. */
static int64_t window_ties(const struct graph *g, const struct node *n, const struct tensor *x,
                           const struct tensor *found)
{
    uint32_t dims;
    const int64_t *kernel = node_ints(n, "kernel", &dims), *strides = node_ints(n, "strides", &dims),
                  *dilations = node_ints(n, "dilations", &dims);
    const expr_id *lo = node_exprs(n, "lo", &dims);
    const size_t size = elem_size(x->elem);
    const int32_t lead = x->rank - (int32_t)dims;
    const int64_t *extent = x->dims + lead, plane = dims_count(extent, (int32_t)dims),
                  each = dims_count(found->dims + lead, (int32_t)dims);
    int64_t at[RANK_MAX] = {0}, ties = 0, before[RANK_MAX];
    for (uint32_t d = 0; d < dims; d++)
        if (!ex_is_const(g->ctx->exprs, lo[d], &before[d]))
            return 0;
    for (int64_t i = 0, all = tensor_count(found); i < all; i++, dims_next(found->dims, found->rank, at)) {
        const char *first = (const char *)x->data + (size_t)(i / each * plane) * size;
        const char *chosen = first + (size_t)((const int64_t *)found->data)[i] * size;
        int64_t k[RANK_MAX] = {0}, equal = 0;
        do {
            int64_t p = 0;
            bool inside = true;
            for (uint32_t d = 0; d < dims; d++) {
                const int64_t to = at[lead + (int32_t)d] * strides[d] + k[d] * dilations[d] - before[d];
                inside &= to >= 0 && to < extent[d];
                p = p * extent[d] + to;
            }
            equal += inside && memcmp(first + (size_t)p * size, chosen, size) == 0;
        } while (dims_next(kernel, (int32_t)dims, k));
        ties += equal > 1;
    }
    return ties;
}

int64_t chance_ties(const struct graph *g, const struct node *n, const struct tensor *x, const struct tensor *found)
{
    if (n->op == OP_ARGWINDOW)
        return window_ties(g, n, x, found);
    const int32_t axis = (int32_t)node_int(n, "axis", 0);
    const size_t size = elem_size(x->elem);
    int64_t inner = 1, ties = 0, each = n->op == OP_SORT ? found->dims[axis] : 1; /* found in each line */
    for (int32_t d = axis + 1; d < x->rank; d++)
        inner *= x->dims[d];
    for (int64_t i = 0, all = tensor_count(found); i < all; i++) {
        const int64_t line = i / inner / each * x->dims[axis] * inner + i % inner;
        const char *first = (const char *)x->data + (size_t)line * size;
        const size_t step = (size_t)inner * size;
        const char *at = first + (size_t)((const int64_t *)found->data)[i] * step;
        int64_t equal = 0;
        for (int64_t k = 0; k < x->dims[axis]; k++)
            equal += memcmp(first + (size_t)k * step, at, size) == 0;
        ties += equal > 1;
    }
    return ties;
}

void chance_infinite(const struct tensor *x, double found[2])
{
    for (int64_t i = 0, n = tensor_count(x); i < n; i++) {
        const uint32_t r = field_load(x->elem, (const char *)x->data + (size_t)i * elem_size(x->elem));
        found[0] += r == FIELD_PLUS_INF;
        found[1] += r == FIELD_MINUS_INF;
    }
}

/* Is v read, except for views, by differences only, and these by exp, by others of them and by limits of exp's range?
 * Then what it is does not matter for real numbers (softmax). */
static bool is_shift(const struct graph *g, value_id v, bool within, int depth)
{
    bool any = false;
    for (const struct graph_user *u = graph_user(g, v, NULL); u; u = graph_user(g, v, u)) {
        const struct node *n = u->node.i ? graph_node(g, u->node) : NULL;
        if (n && (n->dead || u->at >= n->n_in || n->in[u->at].i != v.i))
            continue;
        bool view = n && (op_shape(n->op) == SHAPE_VIEW || (within && n->op == OP_SELECT)),
             minus = n && n->op == OP_SUB;
        if (n && within && n->op == OP_LT)
            continue;
        if (!n || depth > 8 || !(view || minus || (within && n->op == OP_EXP)) || (minus && !within && u->at != 1))
            return false;
        if (n->op == OP_EXP)
            any = true;
        else if (is_shift(g, n->out[0], within || minus, depth + 1))
            any = true;
        else if (!(minus && within))
            return false;
    }
    return any;
}

static bool has_none(const struct graph *g, const struct type *t)
{
    bool none = false;
    for (int32_t k = 0; t->kind == TYPE_TENSOR && k < t->rank; k++)
        none |= ex_is(g->ctx->exprs, t->dims[k], 0);
    return none;
}

bool chance_empty(const struct graph *g, value_id v)
{
    while ((value_op(g, v) == OP_RESHAPE || value_op(g, v) == OP_SLICE) && !has_none(g, value_type(g, v)))
        v = value_node(g, v)->in[0];
    return has_none(g, value_type(g, v));
}

static bool is_extreme(const char *monoid)
{
    return strcmp(monoid, "max") == 0 || strcmp(monoid, "min") == 0;
}

static bool is_logical(const char *monoid)
{
    return strcmp(monoid, "and") == 0 || strcmp(monoid, "or") == 0;
}

double chance_shows(const struct capture *d, const struct node *n)
{
    const struct graph *g = d->c.graph;
    const char *monoid = node_str(n, "monoid", "");
    const bool extreme = is_extreme(monoid), choice = extreme || is_logical(monoid);
    const bool arg = n->op == OP_ARGREDUCE || n->op == OP_ARGWINDOW;
    if (!arg && (!choice || (n->op != OP_REDUCE && n->op != OP_WINDOW && n->op != OP_CUMULATE)))
        return INFINITY;
    if ((extreme && n->op == OP_REDUCE && is_shift(g, n->out[0], false, 0)) || chance_empty(g, n->in[0]))
        return INFINITY;
    double in = capture_count(d, value_type(g, n->in[0])), out = capture_count(d, value_type(g, n->out[0])), each = 1;
    uint32_t n_kernel;
    const int64_t *kernel = node_ints(n, "kernel", &n_kernel);
    for (uint32_t k = 0; (n->op == OP_WINDOW || n->op == OP_ARGWINDOW) && k < n_kernel; k++)
        each *= (double)kernel[k];
    if (n->op == OP_REDUCE || n->op == OP_ARGREDUCE)
        each = out > 0 ? in / out : 0;
    else if (n->op == OP_CUMULATE)
        each = in; /* the earliest ones decide all, the last ones little */
    return each > 0 ? out / each : 0;
}

static bool is_choice(const struct graph *g, const struct node *n)
{
    switch (n->op) {
    case OP_MAX:
    case OP_MIN:
    case OP_SELECT:
    case OP_LT:
    case OP_LE:
    case OP_ABS:
    case OP_SIGN: return true;
    case OP_AND:
    case OP_OR:
    case OP_XOR:
    case OP_CONVERT: return value_type(g, n->out[0])->elem == ELEM_BOOL;
    default: return false;
    }
}

bool chance_hides(const struct graph *g, const struct node *n)
{
    const char *monoid = node_str(n, "monoid", "");
    return is_choice(g, n) || chance_tells(g, n) || is_extreme(monoid) || is_logical(monoid);
}

double chance_choices(const struct capture *d, const struct node *n, int64_t least)
{
    const struct graph *g = d->c.graph;
    if (!is_choice(g, n) || value_is_const(g, n->out[0]) || chance_empty(g, n->out[0]))
        return INFINITY;
    return fmax(capture_count(d, value_type(g, n->out[0])), (double)least);
}

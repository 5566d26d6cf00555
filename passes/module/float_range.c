/* Ranges of floats, by the operators right before a value: what functions need no clamps for. */
#include "passes/module/analysis.h"

#include <math.h>

enum { DEPTH = 6 };

static const struct float_range all = {-INFINITY, INFINITY};

/* Is v the maximum of each line of x, which has one element in v, or larger? */
static bool tops_line(const struct graph *g, value_id v, value_id x, int depth)
{
    const struct node *n = value_node(g, v);
    const struct type *t = value_type(g, v), *of = value_type(g, x);
    if (!n || depth == DEPTH || t->rank != of->rank || t->rank > 32)
        return false;
    if (n->op == OP_MAX)
        return tops_line(g, n->in[0], x, depth + 1) || tops_line(g, n->in[1], x, depth + 1);
    const struct node *max = n->op == OP_RESHAPE ? value_node(g, n->in[0]) : NULL;
    if (!max || max->op != OP_REDUCE || max->in[0].i != x.i || strcmp(node_str(max, "monoid", ""), "max"))
        return false;
    uint32_t n_axes, reduced = 0;
    const int64_t *axes = node_ints(max, "axes", &n_axes);
    for (uint32_t i = 0; i < n_axes; i++)
        reduced |= axes[i] < 32 ? 1u << axes[i] : 0;
    for (int32_t d = 0; d < t->rank; d++)
        if (reduced >> d & 1 ? !ex_is(g->ctx->exprs, t->dims[d], 1) : t->dims[d].i != of->dims[d].i)
            return false;
    return true;
}

/* Is each element of v that of x at the same point, or larger? */
static bool tops(const struct graph *g, value_id v, value_id x, int depth)
{
    const struct node *n = value_node(g, v);
    if (v.i == x.i || !n || depth == DEPTH)
        return v.i == x.i;
    if (n->op == OP_MAX)
        return tops(g, n->in[0], x, depth + 1) || tops(g, n->in[1], x, depth + 1);
    return n->op == OP_BROADCAST && tops_line(g, n->in[0], x, depth + 1);
}

static struct float_range joined(struct float_range a, struct float_range b)
{
    return (struct float_range){fmin(a.lo, b.lo), fmax(a.hi, b.hi)};
}

static struct float_range range_at(struct graph *, value_id, int depth);

/* v where the condition holds, or does not. */
static struct float_range range_where(struct graph *g, value_id cond, bool holds, value_id v, int depth)
{
    struct float_range r = range_at(g, v, depth);
    const struct node *n = value_node(g, cond);
    double than;
    if (!n || (n->op != OP_LT && n->op != OP_LE))
        return r;
    if (n->in[0].i == v.i && value_is_splat(g, n->in[1], &than, &(int64_t){0}))
        *(holds ? &r.hi : &r.lo) = holds ? fmin(r.hi, than) : fmax(r.lo, than);
    if (n->in[1].i == v.i && value_is_splat(g, n->in[0], &than, &(int64_t){0}))
        *(holds ? &r.lo : &r.hi) = holds ? fmax(r.lo, than) : fmin(r.hi, than);
    return r;
}

static struct float_range range_at(struct graph *g, value_id v, int depth)
{
    const struct node *n = value_node(g, v);
    struct float_range a, b;
    double number;
    if (elem_class(value_type(g, v)->elem) != 'F' || depth == DEPTH)
        return all;
    if (value_is_splat(g, v, &number, &(int64_t){0}) && !isnan(number))
        return (struct float_range){number, number};
    switch (n ? n->op : OP_NONE) {
    case OP_SELECT:
        return joined(range_where(g, n->in[0], true, n->in[1], depth + 1),
                      range_where(g, n->in[0], false, n->in[2], depth + 1));
    case OP_MIN:
    case OP_MAX:
        a = range_at(g, n->in[0], depth + 1);
        b = range_at(g, n->in[1], depth + 1);
        return n->op == OP_MIN ? (struct float_range){fmin(a.lo, b.lo), fmin(a.hi, b.hi)}
                               : (struct float_range){fmax(a.lo, b.lo), fmax(a.hi, b.hi)};
    case OP_NEG: a = range_at(g, n->in[0], depth + 1); return (struct float_range){-a.hi, -a.lo};
    case OP_ABS: return (struct float_range){0, INFINITY};
    case OP_SUB: return (struct float_range){-INFINITY, tops(g, n->in[1], n->in[0], 0) ? 0 : INFINITY};
    case OP_BROADCAST:
    case OP_RESHAPE:
    case OP_TRANSPOSE: return range_at(g, n->in[0], depth + 1);
    default: return all;
    }
}

struct float_range float_range(struct graph *g, value_id v)
{
    return range_at(g, v, 0);
}

/* Between which numbers the elements of an integer tensor lie, as far as the graph says: a table's smallest and largest
 * element, the extent that an iota counts to, and what selections, views, reads by index and simple arithmetic make of
 * those. Emitters leave out checks of indices that lie inside of what they index. */
#include "ir/eval/fold.h"

enum { RANGE_DEPTH = 24, RANGE_PIECE = 4096, RANGE_ELEMENTS = 1 << 24 };

/* The range of the type; all of int64_t for i64, and for u64, whose upper half is not in int64_t. */
static struct value_range range_of_elem(enum elem e)
{
    uint32_t bits = elem_bits(e);
    if (elem_class(e) == 'B')
        return (struct value_range){0, 1};
    if (bits >= 64 || (elem_class(e) != 'I' && elem_class(e) != 'U'))
        return (struct value_range){INT64_MIN, INT64_MAX};
    if (elem_class(e) == 'U')
        return (struct value_range){0, ((int64_t)1 << bits) - 1};
    return (struct value_range){-((int64_t)1 << (bits - 1)), ((int64_t)1 << (bits - 1)) - 1};
}

static struct value_range both(struct value_range a, struct value_range b)
{
    return (struct value_range){a.lo < b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi};
}

/* Of an expression's value, dims included: the ends where nothing bounds it. */
static struct value_range range_of_expr(const struct exprs *x, expr_id e)
{
    return (struct value_range){ex_lo(x, e), ex_hi(x, e)};
}

static struct value_range range_of_constant(struct graph *g, value_id v, struct value_range all)
{
    const struct type *t = value_type(g, v);
    int64_t n = 1, d;
    uint32_t size = elem_size(t->elem);
    char buffer[RANGE_PIECE * sizeof(int64_t)];
    for (int32_t i = 0; i < t->rank; i++)
        if (!ex_is_const(g->ctx->exprs, t->dims[i], &d) || !mul_i64(n, d, &n) || n > RANGE_ELEMENTS)
            return all;
    if (!n)
        return all;
    struct value_range r = {INT64_MAX, INT64_MIN};
    for (int64_t at = 0; at < n; at += RANGE_PIECE) {
        int64_t count = n - at < RANGE_PIECE ? n - at : RANGE_PIECE;
        if (!const_read(g, v, at, count, buffer))
            return all;
        for (int64_t i = 0; i < count; i++) {
            int64_t x = elem_to_i64(t->elem, buffer + (size_t)i * size);
            r = both(r, (struct value_range){x, x});
        }
    }
    return r;
}

static struct value_range range_at(struct graph *, value_id, int depth);

/* a + b, a - b; false: the type's range is left, so that results wrap. */
static bool range_sum(struct value_range a, struct value_range b, bool minus, struct value_range *out)
{
    if (minus && (b.lo == INT64_MIN || b.hi == INT64_MIN))
        return false;
    return add_i64(a.lo, minus ? -b.hi : b.lo, &out->lo) && add_i64(a.hi, minus ? -b.lo : b.hi, &out->hi);
}

static bool range_product(struct value_range a, struct value_range b, struct value_range *out)
{
    int64_t p[4];
    if (!mul_i64(a.lo, b.lo, &p[0]) || !mul_i64(a.lo, b.hi, &p[1]) || !mul_i64(a.hi, b.lo, &p[2]) ||
        !mul_i64(a.hi, b.hi, &p[3]))
        return false;
    *out = (struct value_range){p[0], p[0]};
    for (int k = 1; k < 4; k++)
        *out = both(*out, (struct value_range){p[k], p[k]});
    return true;
}

/* By the node's operator; false: nothing is known but the type. */
static bool range_of_node(struct graph *g, const struct node *n, int depth, struct value_range *out)
{
    struct exprs *x = g->ctx->exprs;
    struct value_range a, b;
    switch (n->op) {
    case OP_IOTA:
        *out = range_of_expr(x, value_type(g, n->out[0])->dims[node_int(n, "axis", 0)]);
        *out = (struct value_range){0, out->hi == INT64_MAX ? INT64_MAX : out->hi - 1};
        return out->hi >= 0;
    case OP_ARGREDUCE:
        *out = range_of_expr(x, value_type(g, n->in[0])->dims[node_int(n, "axis", 0)]);
        *out = (struct value_range){0, out->hi == INT64_MAX ? INT64_MAX : out->hi - 1};
        return out->hi >= 0;
    case OP_REDUCE: /* a sum of no elements */
        *out = (struct value_range){0, 0};
        for (int32_t k = 0; k < value_type(g, n->in[0])->rank; k++)
            if (ex_is(x, value_type(g, n->in[0])->dims[k], 0) && strcmp(node_str(n, "monoid", ""), "sum") == 0)
                return true;
        return false;
    case OP_WALK:
        *out = (struct value_range){0, range_of_expr(x, value_type(g, n->in[1])->dims[0]).hi - 1};
        return true;
    case OP_SELECT: *out = both(range_at(g, n->in[1], depth), range_at(g, n->in[2], depth)); return true;
    case OP_CONVERT:
        if (elem_class(value_type(g, n->in[0])->elem) == 'F')
            return false;
        *out = range_at(g, n->in[0], depth);
        return true;
    case OP_ADD:
    case OP_SUB:
        if (n->op == OP_SUB && n->in[0].i == n->in[1].i) {
            *out = (struct value_range){0, 0};
            return true;
        }
        return range_sum(range_at(g, n->in[0], depth), range_at(g, n->in[1], depth), n->op == OP_SUB, out);
    case OP_MUL: return range_product(range_at(g, n->in[0], depth), range_at(g, n->in[1], depth), out);
    case OP_MIN:
    case OP_MAX:
        a = range_at(g, n->in[0], depth);
        b = range_at(g, n->in[1], depth);
        *out = n->op == OP_MIN ? (struct value_range){a.lo < b.lo ? a.lo : b.lo, a.hi < b.hi ? a.hi : b.hi}
                               : (struct value_range){a.lo > b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi};
        return true;
    default: break;
    }
    if (op_shape(n->op) == SHAPE_INDEX) {
        *out = range_at(g, n->in[0], depth);
        return true;
    }
    if (op_shape(n->op) != SHAPE_VIEW || !n->n_in)
        return false;
    *out = range_at(g, n->in[0], depth);
    for (uint32_t i = 1; i < n->n_in && (n->op == OP_CONCAT || n->op == OP_PAD); i++)
        *out = both(*out, range_at(g, n->in[i], depth));
    if (n->op == OP_PAD && n->n_in == 1)
        *out = both(*out, (struct value_range){0, 0});
    return true;
}

static struct value_range range_at(struct graph *g, value_id v, int depth)
{
    const struct value *value = graph_value(g, v);
    struct value_range all = range_of_elem(value->type.elem), r = all;
    struct folds *f = folds_of(g);
    if (f->range[v.i].known)
        return f->range[v.i].of;
    if (!strchr("BIU", elem_class(value->type.elem)) || value->type.elem == ELEM_U64 || depth >= RANGE_DEPTH)
        return all;
    if (value_is_const(g, v)) {
        r = range_of_constant(g, v, all);
    } else if (value->elems && value->n_elems) {
        r = (struct value_range){INT64_MAX, INT64_MIN};
        for (uint32_t i = 0; i < value->n_elems; i++)
            r = both(r, value->elems[i].i ? range_of_expr(g->ctx->exprs, value->elems[i]) : all);
    } else if (value->def.i && !range_of_node(g, graph_node(g, value->def), depth + 1, &r)) {
        r = all;
    }
    if (r.lo < all.lo || r.hi > all.hi) /* it wraps around */
        r = all;
    f = folds_of(g);
    f->range[v.i] = (struct known_range){true, r};
    return r;
}

struct value_range value_range(struct graph *g, value_id v)
{
    return range_at(g, v, 0);
}

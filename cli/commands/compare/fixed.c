/* mcc prove: integers and bools that have one value in all runs, by ranges of the floats that they are computed of: a
 * position in a dim of one element, or one that a clamp leaves. value_range knows those of integers.
 */
#include <math.h>
#include <string.h>

#include "cli/commands/compare/integers.h"
#include "ir/eval/constants.h"
#include "ir/eval/eval.h"
#include "ir/ops/field.h"

enum { RANGE_NODES = 512, RANGE_DEPTH = 64, DOUBLE_DIGITS = 53 };

struct interval {
    double lo, hi; /* infinite: not bounded */
};
struct ranges {
    struct graph *g;
    uint32_t left; /* nodes that may still be asked */
};

static const struct interval any = {(double)-INFINITY, (double)INFINITY};

/* A constant of one element, which is a residue: a small whole number, or not known. */
static struct interval constant_range(const struct node *n, enum elem elem)
{
    const struct span data = node_attr(n, "data")->u.data;
    if (!field_holds(elem) || data.size != elem_size(elem))
        return any;
    const uint32_t residue = field_load(elem, data.data);
    int64_t x = field_reduced(residue);
    x -= x > FIELD_N / 2 ? (int64_t)FIELD_N : 0;
    const bool whole = x == (int16_t)x && field_of_integer(x) == residue;
    return whole ? (struct interval){(double)x, (double)x} : any;
}

/* 0 times anything is 0, as in the field. */
static double product(double x, double y)
{
    return x == 0 || y == 0 ? 0 : x * y;
}

static struct interval product_range(struct interval a, struct interval b)
{
    const double p[4] = {product(a.lo, b.lo), product(a.lo, b.hi), product(a.hi, b.lo), product(a.hi, b.hi)};
    return (struct interval){fmin(fmin(p[0], p[1]), fmin(p[2], p[3])), fmax(fmax(p[0], p[1]), fmax(p[2], p[3]))};
}

static struct interval range_at(struct ranges *, value_id, uint32_t depth);

/* Of a sum, difference, product or conversion of integers, which wraps where the type ends. */
static struct interval unless_wrapped(enum elem elem, struct interval of)
{
    const bool is_signed = elem_class(elem) == 'I';
    const int bits = (int)elem_bits(elem) - is_signed;
    const double limit = ldexp(1, bits < DOUBLE_DIGITS ? bits : DOUBLE_DIGITS);
    return of.lo >= (is_signed ? -limit : 0) && of.hi < limit ? of : any;
}

/* Of floats as integers, which are saturated. */
static struct interval saturated(enum elem elem, struct interval of)
{
    const bool is_signed = elem_class(elem) == 'I';
    const double limit = ldexp(1, (int)elem_bits(elem) - is_signed), least = is_signed ? -limit : 0;
    return (struct interval){fmin(fmax(trunc(of.lo), least), limit - 1), fmin(fmax(trunc(of.hi), least), limit - 1)};
}

static struct interval truth(bool always, bool never)
{
    return (struct interval){always, !never};
}

static struct interval pair_range(struct ranges *r, const struct node *n, uint32_t depth)
{
    const uint32_t first = n->op == OP_SELECT;
    const struct interval a = range_at(r, n->in[first], depth), b = range_at(r, n->in[first + 1], depth);
    switch (n->op) {
    case OP_ADD: return (struct interval){a.lo + b.lo, a.hi + b.hi};
    case OP_SUB: return (struct interval){a.lo - b.hi, a.hi - b.lo};
    case OP_AND:
    case OP_MUL: return product_range(a, b);
    case OP_LE: return truth(a.hi <= b.lo, a.lo > b.hi);
    case OP_LT: return truth(a.hi < b.lo, a.lo >= b.hi);
    case OP_EQ: return truth(a.lo == a.hi && b.lo == a.lo && b.hi == a.lo, a.hi < b.lo || b.hi < a.lo);
    case OP_DIV: return a.lo == 0 && a.hi == 0 ? a : any;
    case OP_MIN: return (struct interval){fmin(a.lo, b.lo), fmin(a.hi, b.hi)};
    case OP_MAX: return (struct interval){fmax(a.lo, b.lo), fmax(a.hi, b.hi)};
    case OP_SELECT: return (struct interval){fmin(a.lo, b.lo), fmax(a.hi, b.hi)};
    default: return any;
    }
}

static struct interval integer_range(struct graph *g, value_id v)
{
    const struct value_range r = value_range(g, v);
    return (struct interval){r.lo > -FIELD_EXACT ? (double)r.lo : any.lo, r.hi < FIELD_EXACT ? (double)r.hi : any.hi};
}

static struct interval node_range(struct ranges *r, const struct node *n, enum elem elem, uint32_t depth)
{
    const bool from_float = n->n_in > 0 && field_form(value_type(r->g, n->in[0])->elem),
               whole = strchr("IU", elem_class(elem));
    struct interval of;
    switch (n->op) {
    case OP_CONSTANT: return constant_range(n, elem);
    case OP_BROADCAST:
    case OP_RESHAPE:
    case OP_TRANSPOSE:
    case OP_SLICE:
    case OP_IDENTITY: return range_at(r, n->in[0], depth);
    case OP_FLOOR: of = range_at(r, n->in[0], depth); return (struct interval){floor(of.lo), floor(of.hi)};
    case OP_CEIL: of = range_at(r, n->in[0], depth); return (struct interval){ceil(of.lo), ceil(of.hi)};
    case OP_TRUNC: of = range_at(r, n->in[0], depth); return (struct interval){trunc(of.lo), trunc(of.hi)};
    case OP_CONVERT: /* to an integer: of what it holds */
        of = elem_bits(elem) >= 32 ? range_at(r, n->in[0], depth) : any;
        return field_form(elem) ? of : from_float ? saturated(elem, of) : unless_wrapped(elem, of);
    case OP_ADD:
    case OP_SUB:
    case OP_MUL: of = pair_range(r, n, depth); return whole ? unless_wrapped(elem, of) : of;
    default: return n->n_in == 2 || n->op == OP_SELECT ? pair_range(r, n, depth) : any;
    }
}

static struct interval range_at(struct ranges *r, value_id v, uint32_t depth)
{
    const struct type *t = value_type(r->g, v);
    const struct node *n = value_node(r->g, v);
    const bool is_bool = t->elem == ELEM_BOOL;
    if (t->kind != TYPE_TENSOR || !strchr("BIUF", elem_class(t->elem)) || depth == RANGE_DEPTH || !r->left)
        return any;
    r->left--;
    if (n && (n->op == OP_AND || n->op == OP_OR) && !is_bool)
        return any;
    const struct interval own = is_bool                      ? (struct interval){0, 1}
                                : elem_class(t->elem) == 'F' ? any
                                                             : integer_range(r->g, v);
    const struct interval of = n && own.lo < own.hi ? node_range(r, n, t->elem, depth + 1) : any;
    const struct interval both = {fmax(own.lo, of.lo), fmin(own.hi, of.hi)};
    return both.lo <= both.hi ? both : any; /* neither, if one is NaN */
}

bool integer_is_fixed(struct graph *g, value_id v)
{
    struct ranges r = {.g = g, .left = RANGE_NODES};
    const struct interval of = range_at(&r, v, 0);
    return of.lo == of.hi;
}

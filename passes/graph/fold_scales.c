/* fold_scales: what lies between integers and a rounding to bytes becomes one multiply-add for each integer.
 *
 * A quantizer rounds a number of type f32 that is mostly linear in a few integers: the sum of a contraction times two
 * scales, plus a bias, plus the bytes of another value less their zero point, times their scale, all of it over the
 * scale of the result. Whatever operators said so, through maximum and minimum too, it becomes a * x + b * y + ... + c
 * with constants a, b, c: no division, no subtraction of zero points, one conversion for each integer. The constants
 * are computed in f32, so that a number next to a tie may round to the other side (docs/numerics.md). What is one
 * product already, as the QLinear operators ask for, stays as it is, to the bit; only the constants that are added to
 * its integers become one.
 *
 * A maximum or minimum beyond the range of the bytes goes: the conversion saturates. A zero point of zero goes. Bytes
 * that are widened and rounded back to the same ones, as before a concat whose scale is its operand's, stay bytes.
 *
 * For quantized networks: it changes 14 of the 554 networks of ../shared/models that compile, and bytes stay bytes in
 * one of them.
 *
 * A sum of dequantized bytes, as a mean begins with, adds the bytes as they are, in i32, and multiplies once:
 *
 *   sum(s * (x - z))     ->     s * (sum(x) - n * z)
 *
 * It is the exact sum, rounded once, of which a sum of f32 is as far off as its order makes it. What follows, such as
 * the division of a mean, stays as it is: there is little of it, and a factor for all of it would move ties.
 */
#include "passes/module/analysis.h"

#include <math.h>

enum { TERMS = 6, DEPTH = 16, ELEMS_MOST = 1 << 16 };
/* Scales and offsets beyond that might overflow where the operators as they stand do not. */
#define SCALE_MOST 1e25
/* Steps of the result that a constant added to a sum of products may change if it is added after the conversion:
 * the sum has 24 bits there. */
#define STEPS_MOST 8192.0

struct term {
    value_id leaf, scale; /* f32; scale {0}: 1 */
};
struct form {
    struct term term[TERMS];
    uint32_t n, ops, real; /* ops: statements that it stands for; real: those of f32 */
    value_id offset; /* {0}: none */
    bool integers, divides;
};
struct folder {
    struct graph *g;
    struct builder b;
    double least, most; /* what the bytes hold, less the zero point */
    bool limited; /* the form of the quantizer at hand has a limit elsewhere than the operators, or lacks it */
    bool strict; /* what CPUs move zero points by is taken from the sums before these are rounded */
};

/* ---- constants --------------------------------------------------------------------------------------------------- */

/* Few known elements of a constant? */
static bool is_small(struct folder *f, value_id v)
{
    int64_t n;
    v = value_unspread(f->g, v);
    return value_is_const(f->g, v) && ex_is_const(f->b.x, b_count(&f->b, v), &n) && n > 0 && n <= ELEMS_MOST;
}

/* The least and the largest element; false where one is not a number, or far from one that scales are. */
static bool range_of(struct folder *f, value_id v, double *least, double *most)
{
    int64_t n;
    *least = *most = 1;
    if (!v.i)
        return true;
    if (!is_small(f, v) || !ex_is_const(f->b.x, b_count(&f->b, v), &n))
        return false;
    double *x = NEW_ARRAY(&f->g->arena, double, n);
    if (!value_const_f64(f->g, v, x, (uint32_t)n))
        return false;
    *least = *most = x[0];
    for (int64_t i = 0; i < n; i++) {
        if (!(fabs(x[i]) < SCALE_MOST))
            return false;
        *least = x[i] < *least ? x[i] : *least;
        *most = x[i] > *most ? x[i] : *most;
    }
    return true;
}

static value_id product(struct folder *f, value_id a, value_id c)
{
    return !a.i ? c : !c.i ? a : b_binary(&f->b, OP_MUL, a, c);
}

static value_id sum(struct folder *f, value_id a, value_id c)
{
    return !a.i ? c : !c.i ? a : b_binary(&f->b, OP_ADD, a, c);
}

/* ---- the linear form of a value ---------------------------------------------------------------------------------- */

static bool add_term(struct form *form, value_id leaf)
{
    if (form->n == TERMS)
        return false;
    form->term[form->n++] = (struct term){leaf, {0}};
    return true;
}

static void scale_form(struct folder *f, struct form *form, value_id by)
{
    for (uint32_t i = 0; i < form->n; i++)
        form->term[i].scale = product(f, form->term[i].scale, by);
    if (form->offset.i)
        form->offset = product(f, form->offset, by);
}

/* An i32 as another one plus a constant, which wraps as the operators do. */
static value_id without_constants(struct folder *f, value_id v, value_id *more, uint32_t *ops)
{
    *more = (value_id){0};
    for (int depth = 0; depth < DEPTH; depth++) {
        struct node n;
        const struct node *def = value_node(f->g, v);
        if (!def || (def->op != OP_ADD && def->op != OP_SUB))
            break;
        n = *def;
        uint32_t k = n.op == OP_ADD && is_small(f, n.in[0]) ? 0 : 1;
        if (!is_small(f, n.in[k]))
            break;
        value_id c = value_unspread(f->g, n.in[k]);
        *more = sum(f, *more, n.op == OP_SUB ? b_unary(&f->b, OP_NEG, c) : c);
        v = n.in[1 - k];
        ++*ops;
    }
    return v;
}

/* A byte that was widened to an integer, or {0}. */
static value_id narrow_source(const struct folder *f, value_id v)
{
    const struct node *n = value_node(f->g, v);
    enum elem e = n && n->op == OP_CONVERT ? value_type(f->g, n->in[0])->elem : ELEM_NONE;
    return e == ELEM_U8 || e == ELEM_I8 ? n->in[0] : (value_id){0};
}

/* The integer v as f32. */
static bool integer_form(struct folder *f, value_id converted, value_id v, struct form *form)
{
    value_id more, x = v;
    enum elem e = value_type(f->g, v)->elem;
    if (e != ELEM_I32)
        return (e == ELEM_U8 || e == ELEM_I8) && (form->integers = true) && add_term(form, converted);
    x = without_constants(f, v, &more, &form->ops);
    value_id byte = narrow_source(f, x);
    form->integers = true;
    form->ops += byte.i != 0;
    if (!byte.i) {
        if (x.i == v.i)
            return add_term(form, converted);
        return add_term(form, b_convert(&f->b, b_binary(&f->b, OP_ADD, x, more), ELEM_F32));
    }
    form->offset = more.i ? sum(f, form->offset, b_convert(&f->b, more, ELEM_F32)) : form->offset;
    return add_term(form, b_convert(&f->b, byte, ELEM_F32));
}

/* Does v come from integers by maps alone? A few are looked at. */
static bool from_integers(const struct folder *f, value_id v, uint32_t *left)
{
    const struct node *n = value_node(f->g, v);
    if (!n || *left == 0 || op_shape(n->op) != SHAPE_MAP)
        return false;
    --*left;
    if (n->op == OP_CONVERT && elem_class(value_type(f->g, n->in[0])->elem) != 'F')
        return true;
    for (uint32_t k = 0; k < n->n_in; k++)
        if (!value_is_const(f->g, n->in[k]) && from_integers(f, n->in[k], left))
            return true;
    return false;
}

static bool linear(struct folder *f, value_id v, struct form *form, int depth);

/* form += other */
static bool join(struct folder *f, struct form *form, const struct form *other)
{
    for (uint32_t i = 0; i < other->n; i++) {
        if (form->n == TERMS)
            return false;
        form->term[form->n++] = other->term[i];
    }
    form->offset = sum(f, form->offset, other->offset);
    form->ops += other->ops;
    form->real += other->real;
    form->integers |= other->integers;
    form->divides |= other->divides;
    return true;
}

static bool linear_sum(struct folder *f, const struct node *n, struct form *form, int depth)
{
    struct form second = {0};
    if (!linear(f, n->in[0], form, depth + 1) || !linear(f, n->in[1], &second, depth + 1))
        return false;
    if (n->op == OP_SUB)
        scale_form(f, &second, b_scalar_f64(&f->b, ELEM_F32, -1));
    form->ops++;
    form->real++;
    return join(f, form, &second);
}

static bool linear_product(struct folder *f, const struct node *n, struct form *form, int depth)
{
    uint32_t k = n->op == OP_MUL && is_small(f, n->in[0]) ? 0 : 1;
    if (!is_small(f, n->in[k]))
        return false;
    value_id by = value_unspread(f->g, n->in[k]);
    if (n->op == OP_DIV)
        by = b_binary(&f->b, OP_DIV, b_scalar_f64(&f->b, ELEM_F32, 1), by);
    if (!linear(f, n->in[1 - k], form, depth + 1))
        return false;
    scale_form(f, form, by);
    form->ops++;
    form->real++;
    form->divides |= n->op == OP_DIV;
    return true;
}

static bool linear(struct folder *f, value_id v, struct form *form, int depth)
{
    const struct node *def = value_node(f->g, v);
    *form = (struct form){0};
    if (is_small(f, v)) {
        form->offset = value_unspread(f->g, v);
        return true;
    }
    if (!def || value_is_const(f->g, v) || depth > DEPTH)
        return def && add_term(form, v);
    struct node n = *def;
    if (n.op == OP_CONVERT && elem_class(value_type(f->g, n.in[0])->elem) != 'F' &&
        value_type(f->g, n.in[0])->elem != ELEM_BOOL && integer_form(f, v, n.in[0], form))
        return true;
    *form = (struct form){0};
    if ((n.op == OP_ADD || n.op == OP_SUB) && linear_sum(f, &n, form, depth))
        return true;
    if ((n.op == OP_MUL || n.op == OP_DIV) && linear_product(f, &n, form, depth))
        return true;
    *form = (struct form){.integers = from_integers(f, v, &(uint32_t){DEPTH})};
    return add_term(form, v);
}

/* ---- the form as operators --------------------------------------------------------------------------------------- */

/* A constant added to a sum of products goes after the conversion where that costs no more than a small part of a
 * step. */
static void unwrap_constant(struct folder *f, struct form *form, struct term *t)
{
    const struct node *convert = value_node(f->g, t->leaf);
    double least, most;
    value_id more;
    if (!convert || convert->op != OP_CONVERT || value_type(f->g, convert->in[0])->elem != ELEM_I32)
        return;
    value_id x = without_constants(f, convert->in[0], &more, &(uint32_t){0});
    if (!more.i)
        return;
    value_id steps = product(f, b_convert(&f->b, more, ELEM_F32), t->scale);
    if (!range_of(f, steps, &least, &most) || fabs(least) > STEPS_MOST || fabs(most) > STEPS_MOST)
        return;
    t->leaf = b_convert(&f->b, x, ELEM_F32);
    form->offset = sum(f, form->offset, steps);
}

static value_id built(struct folder *f, struct form *form)
{
    value_id y = {0};
    for (uint32_t i = 0; i < form->n && (form->real > 1 || form->divides) && !f->strict; i++)
        unwrap_constant(f, form, &form->term[i]);
    for (uint32_t i = 0; i < form->n; i++) {
        struct term t = form->term[i];
        value_id last = i == 0 ? form->offset : y;
        if (last.i)
            last = b_broadcast_like(&f->b, last, t.leaf);
        if (!t.scale.i) {
            y = sum(f, t.leaf, last);
            continue;
        }
        value_id in[3] = {t.leaf, b_broadcast_like(&f->b, t.scale, t.leaf), last};
        y = b_op(&f->b, last.i ? OP_FMA : OP_MUL, in, last.i ? 3 : 2, NULL, 0);
    }
    return y;
}

static bool is_known(struct folder *f, const struct form *form)
{
    double least, most;
    for (uint32_t i = 0; i < form->n; i++)
        if (!form->term[i].leaf.i || !range_of(f, form->term[i].scale, &least, &most))
            return false;
    return form->n > 0 && range_of(f, form->offset, &least, &most);
}

/* One term that is a maximum or minimum with a constant, times positive scales: its operator, the constant as it comes
 * out. */
static enum op limit_of(struct folder *f, const struct form *form, value_id *inner, value_id *limit)
{
    const struct node *def = form->n == 1 ? value_node(f->g, form->term[0].leaf) : NULL;
    double least, most;
    if (!def || (def->op != OP_MAX && def->op != OP_MIN) || !range_of(f, form->term[0].scale, &least, &most) ||
        least <= 0)
        return OP_NONE;
    struct node n = *def;
    uint32_t k = is_small(f, n.in[0]) ? 0 : 1;
    if (!is_small(f, n.in[k]))
        return OP_NONE;
    *inner = n.in[1 - k];
    *limit = sum(f, product(f, value_unspread(f->g, n.in[k]), form->term[0].scale), form->offset);
    return n.op;
}

/* Is the limit beyond what the bytes hold? */
static bool is_idle(struct folder *f, enum op op, value_id limit)
{
    double least, most;
    return range_of(f, limit, &least, &most) && (op == OP_MAX ? most <= f->least : least >= f->most);
}

/* The value of the form, or {0}: nothing is gained. The form becomes that of the value, without what is idle; n = 0: it
 * has a limit. */
static value_id folded(struct folder *f, struct form *form, int depth)
{
    value_id inner, limit;
    struct form below;
    if (depth > DEPTH || !is_known(f, form))
        return (value_id){0};
    enum op op = limit_of(f, form, &inner, &limit);
    if (op != OP_NONE && linear(f, inner, &below, 0)) {
        struct form whole = below;
        scale_form(f, &whole, form->term[0].scale);
        whole.offset = sum(f, whole.offset, form->offset);
        whole.ops += form->ops + 1;
        whole.real += form->real + 1;
        whole.divides |= form->divides;
        value_id x = folded(f, &whole, depth + 1);
        bool idle = x.i && is_idle(f, op, limit);
        f->limited |= x.i != 0;
        *form = idle ? whole : (struct form){0};
        return x.i && !idle ? b_binary(&f->b, op, x, b_broadcast_like(&f->b, limit, x)) : x;
    }
    return form->integers && (form->divides || form->ops > form->n) ? built(f, form) : (value_id){0};
}

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

/* The rounding of a conversion to bytes, and the range that is not cut off; {0}: it is not a quantizer. */
static node_id rounding_of(struct folder *f, const struct node *n)
{
    enum elem e = n->op == OP_CONVERT ? value_type(f->g, n->out[0])->elem : ELEM_NONE;
    if ((e != ELEM_U8 && e != ELEM_I8) || value_type(f->g, n->in[0])->elem != ELEM_F32)
        return (node_id){0};
    double zero = 0, least, most;
    value_id v = n->in[0];
    const struct node *def = value_node(f->g, v);
    if (def && def->op == OP_ADD && range_of(f, value_unspread(f->g, def->in[1]), &least, &most)) {
        zero = least == most ? least : NAN; /* with several, nothing is known to be idle */
        v = def->in[0];
        def = value_node(f->g, v);
    }
    f->least = (e == ELEM_U8 ? 0 : -128) - zero;
    f->most = (e == ELEM_U8 ? 255 : 127) - zero;
    return def && def->op == OP_ROUND && !value_is_const(f->g, v) ? graph_value(f->g, v)->def : (node_id){0};
}

/* A zero point of zero says nothing to an integer. */
static void drop_zero_point(struct folder *f, node_id quantizer)
{
    const struct node *add = value_node(f->g, graph_node(f->g, quantizer)->in[0]);
    double least, most;
    if (add && add->op == OP_ADD && range_of(f, value_unspread(f->g, add->in[1]), &least, &most) && least == 0 &&
        most == 0)
        graph_set_operand(f->g, quantizer, 0, add->in[0]);
}

/* The bytes that a quantizer gives back as they are: scale and offset are less than half a step off over their whole
 * range. {0}: it does not. */
static value_id repeated(struct folder *f, const struct node *quantizer, const struct form *form)
{
    const struct node *widened = form->n == 1 ? value_node(f->g, form->term[0].leaf) : NULL;
    const struct type *to = value_type(f->g, quantizer->out[0]);
    double least, most, from = 0, till = 0, lowest = to->elem == ELEM_U8 ? 0 : -128, zero = lowest - f->least;
    if (!widened || widened->op != OP_CONVERT || !type_equal(value_type(f->g, widened->in[0]), to) ||
        !range_of(f, form->term[0].scale, &least, &most) ||
        (form->offset.i && !range_of(f, form->offset, &from, &till)))
        return (value_id){0};
    double off = 255 * fmax(fabs(least - 1), fabs(most - 1)) + fmax(fabs(from + zero), fabs(till + zero));
    return off < 0.25 ? widened->in[0] : (value_id){0};
}

/* Does nothing but the quantizer read what it rounds? Else the rounding has to stay what it is. */
static bool is_alone(const struct folder *f, node_id quantizer, node_id rounding)
{
    const value_id last = graph_node(f->g, rounding)->out[0];
    value_id v = graph_node(f->g, quantizer)->in[0];
    while (v.i != last.i && graph_value(f->g, v)->n_uses == 1)
        v = value_node(f->g, v)->in[0];
    return graph_value(f->g, v)->n_uses == 1;
}

static void fold_quantizer(struct module *m, struct folder *f, node_id quantizer, node_id rounding)
{
    struct node n = *graph_node(f->g, rounding);
    struct form form;
    f->b = builder_before(f->g, rounding);
    f->limited = false;
    if (!linear(f, n.in[0], &form, 0))
        return;
    value_id y = folded(f, &form, 0);
    if (y.i && type_equal(value_type(f->g, y), value_type(f->g, n.in[0])) && is_alone(f, quantizer, rounding)) {
        graph_set_operand(f->g, rounding, 0, y);
        if (f->limited)
            VEC_PUSH(m->arena, &m->known.limited, quantizer);
    }
    value_id same = repeated(f, graph_node(f->g, quantizer), &form);
    if (same.i)
        graph_replace_uses(f->g, graph_node(f->g, quantizer)->out[0], same);
}

/* The integer that v holds for each byte: the byte plus a known `*more` of one element, {0}: nothing. {0}: v is no such
 * integer. */
static value_id plain_byte(struct folder *f, value_id v, value_id *more)
{
    const struct node *n = value_node(f->g, v);
    *more = (value_id){0};
    if (!n || n->op != OP_CONVERT || value_type(f->g, v)->elem != ELEM_F32)
        return (value_id){0};
    value_id byte = narrow_source(f, v);
    if (byte.i || value_type(f->g, n->in[0])->elem != ELEM_I32)
        return byte;
    return narrow_source(f, without_constants(f, n->in[0], more, &(uint32_t){0}));
}

/* The number of elements that a reduction of known dims takes for one of its result, 0: more than `most`, or not
 * known. */
static int64_t reduced_count(struct folder *f, const struct node *n, int64_t most)
{
    uint32_t n_axes;
    const int64_t *axes = node_ints(n, "axes", &n_axes);
    int64_t count = 1, dim;
    for (uint32_t i = 0; i < n_axes; i++)
        if (!ex_is_const(f->b.x, value_type(f->g, n->in[0])->dims[axes[i]], &dim) || !mul_i64(count, dim, &count) ||
            count > most)
            return 0;
    return count;
}

static bool is_one(struct folder *f, value_id v)
{
    int64_t n;
    return ex_is_const(f->b.x, b_count(&f->b, v), &n) && n == 1;
}

static void fold_sum(struct folder *f, node_id id)
{
    const struct node n = *graph_node(f->g, id);
    const struct node *def = value_node(f->g, n.in[0]);
    value_id scale = {0}, more, x = n.in[0];
    double least, most;
    f->b = builder_before(f->g, id);
    if (def && def->op == OP_MUL) {
        uint32_t k = is_small(f, def->in[0]) ? 0 : 1;
        scale = value_unspread(f->g, def->in[k]);
        x = def->in[1 - k];
        if (!is_small(f, scale) || !is_one(f, scale))
            return;
    }
    value_id byte = plain_byte(f, x, &more);
    if (!byte.i || (more.i && (!is_one(f, more) || !range_of(f, more, &least, &most))))
        return;
    double step = 255 + (more.i ? fabs(most) : 0);
    int64_t count = reduced_count(f, &n, (int64_t)(INT32_MAX / step));
    if (!count)
        return;
    value_id wide = b_convert(&f->b, byte, ELEM_I32), y = b_op(&f->b, OP_REDUCE, &wide, 1, n.attr, n.n_attr);
    if (more.i) {
        more = b_reshape(&f->b, more, NULL, 0);
        more = b_binary(&f->b, OP_MUL, more, b_scalar_i64(&f->b, ELEM_I32, count));
        y = b_binary(&f->b, OP_ADD, y, b_broadcast_like(&f->b, more, y));
    }
    y = b_convert(&f->b, y, ELEM_F32);
    if (scale.i)
        y = b_binary(&f->b, OP_MUL, y, b_broadcast_like(&f->b, b_reshape(&f->b, scale, NULL, 0), y));
    graph_replace(f->g, id, y);
}

bool fold_scales(struct module *m)
{
    struct folder f = {.g = m->g, .b = builder_in(m->g, (region_id){1}), .strict = m->asked.strict};
    uint32_t n_nodes = m->g->nodes.n;
    for (uint32_t i = 1; i < n_nodes; i++) {
        const struct node *n = graph_node(m->g, (node_id){i});
        node_id rounding = n->dead || n->op != OP_CONVERT ? (node_id){0} : rounding_of(&f, n);
        if (rounding.i)
            fold_quantizer(m, &f, (node_id){i}, rounding);
        if (rounding.i)
            drop_zero_point(&f, (node_id){i});
    }
    for (uint32_t i = 1; i < n_nodes; i++) { /* quantizers have been looked at: they leave the sums apart */
        const struct node *n = graph_node(m->g, (node_id){i});
        if (!n->dead && n->op == OP_REDUCE && value_type(m->g, n->out[0])->elem == ELEM_F32 &&
            !strcmp(node_str(n, "monoid", ""), "sum"))
            fold_sum(&f, (node_id){i});
    }
    graph_sweep(m->g);
    return m->ctx->fail == FAIL_NONE;
}

/* Random branches and loops (draw.h). What is drawn inside a region is forgotten behind it: only results leave.
 * Branches and carried values keep the shape of a value outside, which whatever the region computes is folded into.
 */
#include "tests/fuzz/draw.h"

#include <math.h>
#include <string.h>

enum { MOST_NESTING = 2 };

struct scope {
    region_id outer, inner;
    uint32_t n;
};

static void scope_open(struct draw *d, struct scope *s)
{
    s->outer = d->b.region;
    s->inner = graph_region(d->g, s->outer, (node_id){0});
    s->n = d->n;
    d->b.region = s->inner;
    d->nesting++;
}

static void scope_close(struct draw *d, const struct scope *s)
{
    d->b.region = s->outer;
    d->n = s->n;
    d->nesting--;
}

/* x combined with what some random steps of this region give: same shape and element type as x. */
static struct drawn body_value(struct draw *d, struct drawn x)
{
    const struct type t = *drawn_type(d, &x);
    int64_t axes[RANK_MAX];
    for (int64_t k = draw_int(d, 0, 3); k > 0; k--)
        draw_op(d);
    struct drawn z = d->value[d->n - 1];
    const struct type u = *drawn_type(d, &z);
    bool may = u.elem == t.elem && elem_class(t.elem) != 'B';
    for (int32_t i = 0; i < u.rank; i++) {
        axes[i] = i;
        may &= ex_lo(d->x, u.dims[i]) > 0; /* an empty set has no finite maximum */
    }
    if (may) {
        z.v = b_reduce(&d->b, z.v, axes, (uint32_t)u.rank, "max", false);
        return draw_binary(d, OP_ADD, x, drawn_make(d, z.v, z.mag, z.err, z.places));
    }
    if (elem_class(t.elem) == 'B')
        return drawn_like(d, b_unary(&d->b, OP_NOT, x.v), &x);
    return draw_binary(d, draw_chance(d, 50) ? OP_MIN : OP_ADD, x, draw_const(d, &x, 2));
}

static struct drawn predicate(struct draw *d)
{
    return draw_indices(d, ELEM_BOOL, NULL, 0, 0, 1);
}

static void branch(struct draw *d)
{
    struct drawn x = draw_value(d, "FIUB", 0), cond = predicate(d), y[2];
    struct scope s[2];
    if (!x.v.i || !cond.v.i)
        return;
    const struct type t = *drawn_type(d, &x);
    for (int k = 0; k < 2; k++) {
        scope_open(d, &s[k]);
        y[k] = draw_chance(d, 15) ? x : body_value(d, x);
        scope_close(d, &s[k]);
    }
    if (!y[0].v.i || !y[1].v.i)
        return;
    node_id id = graph_append(d->g, d->b.region, OP_IF, (src_id){0}, &cond.v, 1, NULL, 0, &t, 1);
    for (int k = 0; k < 2; k++) {
        graph_adopt_region(d->g, id, s[k].inner);
        graph_add_result(d->g, s[k].inner, y[k].v);
    }
    draw_keep(d, drawn_make(d, graph_node(d->g, id)->out[0], fmax(y[0].mag, y[1].mag), fmax(y[0].err, y[1].err),
                            y[0].places > y[1].places ? y[0].places : y[1].places));
}

/* Into the range and the places that carried values keep, from exact ones. */
static struct drawn settle(struct draw *d, struct drawn x)
{
    if (!x.v.i || elem_class(drawn_type(d, &x)->elem) != 'F')
        return x;
    value_id v = b_unary(&d->b, OP_FLOOR, b_binary_f64(&d->b, OP_MUL, b_clamp(&d->b, x.v, -4, 4), 4));
    return drawn_make(d, b_binary_f64(&d->b, OP_MUL, v, 0.25), 4, 0, 2);
}

struct turn {
    value_id cond, next, scan;
};

/* The body: the next value is exact, or the loop is not kept. */
static bool transpose_draw(struct draw *d, struct drawn carried, bool early, struct turn *t)
{
    struct drawn next = body_value(d, carried);
    int64_t axes[RANK_MAX];
    const struct type type = *drawn_type(d, &carried);
    if (!next.v.i || !drawn_exact(&next))
        return false;
    next = settle(d, next);
    t->next = next.v;
    t->scan = draw_chance(d, 50) ? next.v : b_unary(&d->b, elem_class(type.elem) == 'B' ? OP_NOT : OP_NEG, carried.v);
    t->cond = b_scalar_i64(&d->b, ELEM_BOOL, 1);
    for (int32_t i = 0; i < type.rank; i++)
        axes[i] = i;
    if (early && elem_class(type.elem) == 'F') {
        value_id most = b_reduce(&d->b, next.v, axes, (uint32_t)type.rank, "max", false);
        t->cond = b_binary_f64(&d->b, OP_LT, most, 3.5);
    }
    return t->next.i && t->cond.i && t->scan.i;
}

static void loop(struct draw *d)
{
    struct drawn x = draw_value(d, "FIU", 0);
    int64_t trips = draw_int(d, 0, 4);
    bool early = draw_chance(d, 30), fixed = !early && draw_chance(d, 60);
    if (!x.v.i || !drawn_exact(&x) || drawn_type(d, &x)->rank > 5)
        return;
    x = settle(d, x);
    if (!x.v.i)
        return;
    struct drawn limit = fixed ? drawn_make(d, b_scalar_i64(&d->b, ELEM_I64, trips), 4, 0, 0)
                               : draw_indices(d, ELEM_I64, NULL, 0, 0, 4);
    const struct type type = *drawn_type(d, &x), i64 = {.kind = TYPE_TENSOR, .elem = ELEM_I64},
                      flag = {.kind = TYPE_TENSOR, .elem = ELEM_BOOL};
    struct scope s;
    struct turn t;
    if (!limit.v.i)
        return;
    scope_open(d, &s);
    struct drawn iter = {graph_param(d->g, s.inner, i64, "iteration"), 4, 0, 0};
    graph_param(d->g, s.inner, flag, "condition");
    struct drawn carried = {graph_param(d->g, s.inner, type, NULL), x.mag, 0, x.places};
    draw_keep(d, iter);
    draw_keep(d, carried);
    bool ok = transpose_draw(d, carried, early, &t);
    scope_close(d, &s);
    if (!ok)
        return;
    expr_id count = fixed ? ex_const(d->x, trips)
                          : ex_sym(d->x,
                                   sym_new(d->x, SYM_VALUE, arena_printf(&d->g->arena, "trips%u", s.inner.i), 0, 4));
    expr_id dims[RANK_MAX] = {count};
    for (int32_t i = 0; i < type.rank; i++)
        dims[i + 1] = type.dims[i];
    struct type types[2] = {type, type};
    types[1].dims = arena_copy(&d->g->arena, dims, sizeof dims);
    types[1].rank++;
    struct attr attrs[3] = {attr_int("n_carried", 1), attr_expr("trips", count), attr_int("forever", 0)};
    value_id in[3] = {limit.v, b_scalar_i64(&d->b, ELEM_BOOL, 1), x.v};
    node_id id = graph_append(d->g, d->b.region, OP_LOOP, (src_id){0}, in, 3, attrs, 3, types, fixed ? 2 : 1);
    graph_adopt_region(d->g, id, s.inner);
    graph_add_result(d->g, s.inner, t.cond);
    graph_add_result(d->g, s.inner, t.next);
    if (fixed)
        graph_add_result(d->g, s.inner, t.scan);
    draw_keep(d, drawn_like(d, graph_node(d->g, id)->out[0], &x));
    if (fixed && trips)
        draw_keep(d, drawn_like(d, graph_node(d->g, id)->out[1], &x));
}

void draw_control(struct draw *d)
{
    if (d->nesting >= MOST_NESTING || !d->n)
        return;
    if (draw_chance(d, 50))
        branch(d);
    else
        loop(d);
}

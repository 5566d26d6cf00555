/* A graph whose floats are GF(q) x GF(p) from here on (ir/ops/field.h): its constants become residues, and what was
 * folded of them in floats is forgotten. */
#include "ir/eval/field.h"

#include <math.h>

#include "ir/eval/constants.h"
#include "ir/eval/eval.h"
#include "ir/expr/expr.h"
#include "ir/ops/scalar.h"

enum { LARGE = 1 << 14 /* bytes */ };

/* What equal floats became before; data NULL: there were none. */
static struct span known(const struct field_constants *constants, enum elem elem, struct span floats)
{
    for (uint32_t i = 0; i < constants->of.n; i++) {
        const struct field_constant *c = &constants->of.data[i];
        if (c->elem == elem && c->floats.size == floats.size && memcmp(c->floats.data, floats.data, floats.size) == 0)
            return c->residues;
    }
    return (struct span){0};
}

static struct span residues(struct arena *arena, struct field_constants *constants, enum elem elem, struct span floats)
{
    const size_t size = elem_size(elem);
    const bool large = floats.size >= LARGE;
    struct span found = large ? known(constants, elem, floats) : (struct span){0};
    if (found.data)
        return found;
    char *out = arena_alloc(arena, floats.size + 1);
    if (large && !constants->sieve) {
        constants->sieve = arena_alloc(arena, FIELD_SIEVE);
        field_sieve(constants->sieve);
    }
    if (large && elem == ELEM_F32)
        field_of_floats(constants->sieve, floats.data, (uint32_t *)(void *)out, floats.size / size);
    else
        for (size_t at = 0; at + size <= floats.size; at += size)
            field_store(elem, field_of(elem_to_f64(elem, (const char *)floats.data + at)), false, out + at);
    found = (struct span){out, floats.size};
    if (large)
        VEC_PUSH(arena, &constants->of, ((struct field_constant){elem, floats, found}));
    return found;
}

void graph_enter_field(struct graph *g, struct field_constants *constants)
{
    for (uint32_t i = 1; i < g->nodes.n; i++) {
        struct node *n = &g->nodes.data[i];
        if (n->dead || n->op != OP_CONSTANT || !field_holds(node_elem(n, "elem")))
            continue;
        struct attr *data = (struct attr *)(uintptr_t)node_attr(n, "data");
        data->u.data = residues(&g->arena, constants, node_elem(n, "elem"), data->u.data);
    }
    g->folds = NULL;
    g->ctx->field = true;
}

void eval_put_i64(const struct context *ctx, enum elem elem, int64_t x, void *to)
{
    if (ctx->field && field_form(elem))
        field_store(elem, field_of_integer(x), false, to);
    else
        elem_from_i64(elem, x, to);
}

/* ---- one number -------------------------------------------------------------------------------------------------- */

enum { NUMBER_NODES = 64 };

static bool is_one(const struct graph *g, value_id v)
{
    const struct type *t = value_type(g, v);
    for (int32_t d = 0; t->kind == TYPE_TENSOR && d < t->rank; d++)
        if (!ex_is(g->ctx->exprs, t->dims[d], 1))
            return false;
    return t->kind == TYPE_TENSOR;
}

/* As an element of the type, which may be narrow, and in a register again. */
static void number_as(enum elem elem, bool saturate, uint32_t *residue, double *real)
{
    const uint32_t x = *residue;
    const double y = *real;
    char element[8] = {0};
    if (!field_holds(elem)) {
        field_store(elem, x, saturate, element);
        *residue = field_load(elem, element);
        elems_convert(ELEM_F64, &y, elem, element, 1, saturate, "even");
        *real = elem_to_f64(elem, element);
    }
}

/* real: the same of real numbers, near enough to tell whether another number is this one rounded. */
static bool number(struct graph *g, value_id v, uint32_t *left, uint32_t *out, double *real)
{
    const struct node *n = value_node(g, v);
    const enum elem elem = value_type(g, v)->elem;
    uint32_t x[3] = {0};
    double y[3] = {0};
    int64_t whole;
    if (!n || !is_one(g, v) || !field_form(elem) || *left == 0)
        return false;
    --*left;
    if (n->op == OP_CONSTANT) {
        *real = elem_to_f64(elem, node_attr(n, "data")->u.data.data);
        *out = field_of(*real);
        return true;
    }
    if (!n->n_in)
        return false;
    const enum elem from = value_type(g, n->in[0])->elem;
    if (n->op == OP_CONVERT && strchr("IU", elem_class(from)) && from != ELEM_U64) {
        if (!value_const_i64(g, n->in[0], &whole, 1))
            return false;
        *out = field_of_integer(whole);
        *real = (double)whole;
        number_as(elem, node_int(n, "saturate", 1), out, real);
        return true;
    }
    if (n->op == OP_SELECT)
        return value_const_i64(g, n->in[0], &whole, 1) && number(g, n->in[whole ? 1 : 2], left, out, real);
    const bool view = n->op == OP_BROADCAST || n->op == OP_RESHAPE || n->op == OP_TRANSPOSE || n->op == OP_IDENTITY ||
                      (n->op == OP_CONVERT && field_form(from));
    if (!view && (op_shape(n->op) != SHAPE_MAP || n->n_in > COUNT_OF(x)))
        return false;
    for (uint32_t i = 0; i < n->n_in; i++)
        if (!number(g, n->in[i], left, &x[i], &y[i]))
            return false;
    *out = x[0];
    *real = y[0];
    if (!view && (field_map(n->op, ELEM_F32, 1, (const void *const[]){&x[0], &x[1], &x[2]}, out) != EVAL_OK ||
                  map_eval(n->op, ELEM_F64, 1, (const void *const[]){&y[0], &y[1], &y[2]}, real) != EVAL_OK))
        return false;
    number_as(elem, n->op == OP_CONVERT && node_int(n, "saturate", 1), out, real);
    return true;
}

bool field_number(struct graph *g, value_id v, double folded, uint32_t *residue)
{
    uint32_t left = NUMBER_NODES;
    double real;
    while (value_op(g, v) == OP_BROADCAST)
        v = value_node(g, v)->in[0];
    return value_is_const(g, v) && number(g, v, &left, residue, &real) && fabs(folded - real) <= 0x1p-16 * fabs(real);
}

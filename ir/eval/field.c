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

void field_of_elements(enum elem elem, const char *floats, char *out, size_t bytes)
{
    const size_t size = elem_size(elem);
    for (size_t at = 0; at + size <= bytes; at += size)
        field_store(elem, field_of(elem_to_f64(elem, floats + at)), false, out + at);
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
        field_of_elements(elem, floats.data, out, floats.size);
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

bool field_number(struct graph *g, value_id v, double folded, uint32_t *residue)
{
    double real;
    while (value_op(g, v) == OP_BROADCAST)
        v = value_node(g, v)->in[0];
    if (!value_const_f64(g, v, &real, 1) || real != folded)
        return false;
    const struct tensor_data *t = value_fold_in_field(g, v);
    if (t)
        *residue = field_load(t->elem, t->bytes.data);
    return t;
}

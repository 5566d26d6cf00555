/* Tensor types: when are two the same? */
#include "ir/graph/graph.h"

bool type_same_shape(const struct type *a, const struct type *b)
{
    if (a->kind != TYPE_TENSOR || b->kind != TYPE_TENSOR || a->rank != b->rank || a->rank < 0)
        return false;
    for (int32_t i = 0; i < a->rank; i++)
        if (a->dims[i].i != b->dims[i].i || a->dims[i].i == 0)
            return false;
    return true;
}

bool type_equal(const struct type *a, const struct type *b)
{
    for (; a && b; a = a->inner, b = b->inner) {
        if (a->kind != b->kind)
            return false;
        if (a->kind == TYPE_UNKNOWN)
            return true;
        if (a->kind == TYPE_MAP && a->elem != b->elem)
            return false;
        if (a->kind != TYPE_TENSOR)
            continue;
        if (a->elem != b->elem || a->rank != b->rank)
            return false;
        for (int32_t i = 0; i < a->rank; i++)
            if (a->dims[i].i != b->dims[i].i)
                return false;
        return true;
    }
    return !a && !b;
}

sym_id port_symbol(const struct graph *g, const struct port *p, int32_t d)
{
    const struct exprs *x = g->ctx->exprs;
    const struct type *t = value_type(g, p->value), *declared = p->declared;
    bool named = declared && declared->kind == TYPE_TENSOR && declared->rank == t->rank;
    sym_id name = named ? ex_as_sym(x, declared->dims[d]) : (sym_id){0};
    for (uint32_t i = 0; name.i && i < g->size_checks.n; i++)
        if (g->size_checks.data[i].sym.i == name.i && size_check_replaces(&g->size_checks.data[i]))
            return name;
    return ex_as_sym(x, t->dims[d]);
}

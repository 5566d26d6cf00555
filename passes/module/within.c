/* A module as it is where one size lies within a range: what a version of a kernel is scheduled and emitted from.
 *
 * In: a module with storages, a shape symbol, a range. Out: a copy of the module, whose types, attributes, known
 * elements and storages have another symbol, of that range, or a number, in the place of the symbol. Expressions
 * simplify when they are made, so they are made anew with the narrower bounds. Ids of nodes, values and kernels stay,
 * and so does which values are constants: whose memory was laid out is decided.
 */
#include "passes/module/module.h"

#include "ir/eval/constants.h"

struct narrowing {
    struct exprs *x;
    struct arena *arena; /* of what is made */
    sym_id from;
    expr_id to, *made; /* made: by expression that was there before */
};

static expr_id narrowed(const struct narrowing *n, expr_id e)
{
    if (e.i && !n->made[e.i].i)
        n->made[e.i] = ex_subst(n->x, e, &n->from, &n->to, 1);
    return n->made[e.i];
}

/* The same ones where none changes. */
static const expr_id *narrowed_all(const struct narrowing *n, const expr_id *e, uint32_t count)
{
    uint32_t same = 0;
    while (same < count && narrowed(n, e[same]).i == e[same].i)
        same++;
    if (same == count)
        return e;
    expr_id *made = NEW_ARRAY(n->arena, expr_id, count);
    for (uint32_t i = 0; i < count; i++)
        made[i] = narrowed(n, e[i]);
    return made;
}

static void values_narrow(const struct narrowing *n, const struct graph *from, struct graph *g)
{
    g->values.data = NEW_ARRAY(n->arena, struct value, from->values.n + 1);
    memcpy(g->values.data, from->values.data, from->values.n * sizeof *g->values.data);
    g->values.cap = from->values.n;
    for (uint32_t i = 1; i < g->values.n; i++) {
        struct value *v = &g->values.data[i];
        if (v->type.kind == TYPE_TENSOR && v->type.rank > 0)
            v->type.dims = narrowed_all(n, v->type.dims, (uint32_t)v->type.rank);
        if (v->elems)
            v->elems = narrowed_all(n, v->elems, v->n_elems);
    }
}

static void attributes_narrow(const struct narrowing *n, struct node *node)
{
    bool changes = false;
    for (uint32_t i = 0; i < node->n_attr; i++)
        changes |= (node->attr[i].kind == ATTR_EXPR && narrowed(n, node->attr[i].u.e).i != node->attr[i].u.e.i) ||
                   (node->attr[i].kind == ATTR_EXPRS &&
                    narrowed_all(n, node->attr[i].u.exprs, node->attr[i].n) != node->attr[i].u.exprs);
    if (!changes)
        return;
    node->attr = arena_copy(n->arena, node->attr, node->n_attr * sizeof *node->attr);
    for (uint32_t i = 0; i < node->n_attr; i++)
        if (node->attr[i].kind == ATTR_EXPR)
            node->attr[i].u.e = narrowed(n, node->attr[i].u.e);
        else if (node->attr[i].kind == ATTR_EXPRS)
            node->attr[i].u.exprs = narrowed_all(n, node->attr[i].u.exprs, node->attr[i].n);
}

static struct graph *graph_narrow(const struct narrowing *n, struct graph *from)
{
    struct graph *g = NEW(n->arena, struct graph);
    for (uint32_t i = 1; i < from->values.n; i++)
        (void)value_is_const(from, (value_id){i}); /* is in the cache now, which the copy begins with */
    *g = *from;
    arena_init(&g->arena, from->ctx);
    g->constness = arena_copy(n->arena, from->constness, from->constness_cap);
    g->begins.data = NULL;
    g->begins.n = g->begins.cap = 0;
    folds_copied(g, n->arena);
    values_narrow(n, from, g);
    g->nodes.data = NEW_ARRAY(n->arena, struct node, from->nodes.n + 1);
    memcpy(g->nodes.data, from->nodes.data, from->nodes.n * sizeof *g->nodes.data);
    g->nodes.cap = from->nodes.n;
    for (uint32_t i = 1; i < g->nodes.n; i++)
        attributes_narrow(n, &g->nodes.data[i]);
    return g;
}

static struct storage *storages_narrow(const struct narrowing *n, const struct module *from)
{
    struct storage *all = NEW_ARRAY(n->arena, struct storage, from->fused.n_values + 1);
    memcpy(all, from->fused.storage, from->fused.n_values * sizeof *all);
    for (uint32_t i = 0; i < from->fused.n_values; i++) {
        struct storage *s = &all[i];
        bool changes = false;
        for (int32_t d = 0; s->dim && d < s->rank; d++)
            changes |= narrowed(n, s->dim[d].outer).i != s->dim[d].outer.i;
        if (changes)
            s->dim = arena_copy(n->arena, s->dim, (size_t)s->rank * sizeof *s->dim);
        for (int32_t d = 0; changes && d < s->rank; d++)
            s->dim[d].outer = narrowed(n, s->dim[d].outer);
        s->origin = narrowed(n, s->origin);
        s->size = narrowed(n, s->size);
    }
    return all;
}

struct module *module_within(struct module *m, const struct size_range *r)
{
    struct arena scratch;
    for (uint32_t i = 0; i < m->known.within.n; i++) {
        const struct module_range *w = &m->known.within.data[i];
        if (w->range.size.i == r->size.i && w->range.least == r->least && w->range.most == r->most)
            return w->module;
    }
    struct exprs *x = m->ctx->exprs;
    struct module *made = NEW(m->arena, struct module);
    sym_id as = r->least < r->most ? sym_within(x, r->size, r->least, r->most) : (sym_id){0};
    arena_init(&scratch, m->ctx);
    const struct narrowing n = {x, m->arena, r->size, as.i ? ex_sym(x, as) : ex_const(x, r->least),
                                NEW_ARRAY(&scratch, expr_id, ex_count(x))};
    *made = *m;
    memset(&made->known.least, 0, sizeof made->known.least);
    memset(&made->known.counted, 0, sizeof made->known.counted);
    memset(&made->known.image, 0, sizeof made->known.image);
    memset(&made->known.within, 0, sizeof made->known.within);
    made->g = graph_narrow(&n, m->g);
    made->fused.storage = storages_narrow(&n, m);
    made->whole = m;
    made->within = as;
    arena_release(&scratch);
    VEC_PUSH(m->arena, &m->known.within, ((struct module_range){*r, made}));
    return made;
}

/* Which values are computed from constants alone (lazy constants). Kept from question to question. */
#include "ir/graph/graph.h"

enum { IS_UNKNOWN, IS_NOT, IS_CONST };
typedef VEC(value_id) value_list;

/* By value id, with room for all values: an operand may be younger than the node that reads it. */
static uint8_t *constness_of(struct graph *g)
{
    if (g->constness_cap < g->values.n) {
        const uint8_t *old = g->constness;
        uint32_t had = g->constness_cap;
        g->constness_cap = g->values.n * 2;
        g->constness = NEW_ARRAY(&g->arena, uint8_t, g->constness_cap);
        if (had)
            memcpy(g->constness, old, had);
    }
    return g->constness;
}

static const bool call_folds[OP_COUNT] = {
#define CALL(id, name, least, most, results, infer, eval, check, call, memory, fold, ...) [OP_##id] = fold,
#include "ir/ops/ops.def"
};

/* Can this node's result be a constant, its operands aside: pure, with nothing known only at run time? */
static bool node_may_be_const(const struct graph *g, const struct node *n)
{
    const struct exprs *ex = g->ctx->exprs;
    enum op_shape shape = op_shape(n->op);
    int64_t c;
    if (shape == SHAPE_CONTROL || (shape == SHAPE_OPAQUE && !call_folds[n->op]) || n->op == OP_NONE)
        return false;
    for (uint32_t i = 0; i < n->n_attr; i++) {
        const struct attr *a = &n->attr[i];
        if (a->kind == ATTR_EXPR && !ex_is_const(ex, a->u.e, &c))
            return false;
        for (uint32_t k = 0; a->kind == ATTR_EXPRS && k < a->n; k++)
            if (!ex_is_const(ex, a->u.exprs[k], &c))
                return false;
    }
    for (uint32_t i = 0; i < n->n_out; i++) {
        const struct type *t = value_type(g, n->out[i]);
        if (t->kind != TYPE_TENSOR || t->rank == RANK_UNKNOWN)
            return false;
        for (int32_t k = 0; k < t->rank; k++)
            if (!ex_is_const(ex, t->dims[k], &c))
                return false;
    }
    return true;
}

/* Decides v when all its operands are decided; else pushes those that are not and says so. */
static bool decide(const struct graph *g, uint8_t *constness, value_id v, struct arena *a, value_list *todo)
{
    node_id def = graph_value(g, v)->def;
    constness[v.i] = IS_NOT;
    if (!def.i || !node_may_be_const(g, graph_node(g, def)))
        return true;
    const struct node *n = graph_node(g, def);
    uint32_t before = todo->n;
    for (uint32_t i = 0; i < n->n_in; i++) {
        if (constness[n->in[i].i] == IS_NOT)
            return todo->n = before, true;
        if (constness[n->in[i].i] == IS_UNKNOWN)
            VEC_PUSH(a, todo, n->in[i]);
    }
    constness[v.i] = todo->n == before ? IS_CONST : IS_UNKNOWN;
    return todo->n == before;
}

bool value_is_const(const struct graph *graph, value_id v)
{
    struct graph *g = (struct graph *)(uintptr_t)graph;    /* only its cache changes */
    uint8_t *constness = constness_of(g);
    if (constness[v.i] != IS_UNKNOWN)
        return constness[v.i] == IS_CONST;
    if (value_op(g, v) == OP_CONSTANT)
        return constness[v.i] = IS_CONST, true;
    struct arena scratch;
    value_list todo = {0};
    arena_init(&scratch, g->ctx);
    VEC_PUSH(&scratch, &todo, v);
    while (todo.n) {
        value_id top = todo.data[todo.n - 1];
        uint32_t at = todo.n - 1;
        if (constness[top.i] != IS_UNKNOWN || decide(g, constness, top, &scratch, &todo))
            todo.n = at;
    }
    arena_release(&scratch);
    return constness[v.i] == IS_CONST;
}

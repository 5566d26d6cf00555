/* A graph whose f32 is f64 from here on: a reference that rounds 2^29 times less than what is compared with it. */

#include "ir/eval/interpreter.h"
#include "ir/ops/ops.h"
#include "ir/ops/scalar.h"

static bool is_narrow(const struct graph *g, value_id v)
{
    return v.i && value_type(g, v)->kind == TYPE_TENSOR && value_type(g, v)->elem == ELEM_F32;
}

/* Does the interpreter compute the operator with other bits than those of an f32? */
static bool is_of_numbers(const struct graph *g, const struct node *n)
{
    const bool bits = n->op == OP_BITCAST && (is_narrow(g, n->in[0]) || is_narrow(g, n->out[0]));
    return !bits && n->op != OP_RNG && !(n->op == OP_DOT && n->n_in > 2);
}

bool graph_widen(struct graph *g, const char **why)
{
    for (uint32_t i = 1; i < g->nodes.n; i++)
        if (!g->nodes.data[i].dead && !is_of_numbers(g, &g->nodes.data[i])) {
            *why = op_name(g->nodes.data[i].op);
            return false;
        }
    for (uint32_t v = 1; v < g->values.n; v++)
        if (value_type(g, (value_id){v})->kind != TYPE_TENSOR) {
            *why = "a value that is not a tensor";
            return false;
        }
    for (uint32_t i = 1; i < g->nodes.n; i++) {
        struct node *n = &g->nodes.data[i];
        bool narrow = false;
        for (uint32_t k = 0; k < n->n_attr && !n->dead; k++)
            if (n->attr[k].kind == ATTR_ELEM && n->attr[k].u.elem == ELEM_F32) {
                n->attr[k].u.elem = ELEM_F64;
                narrow = true;
            }
        for (uint32_t k = 0; k < n->n_attr && narrow && n->op == OP_CONSTANT; k++) {
            struct span *data = &n->attr[k].u.data;
            if (n->attr[k].kind != ATTR_DATA)
                continue;
            const size_t count = data->size / sizeof(float);
            double *wide = NEW_ARRAY(&g->arena, double, count + 1);
            elems_to_f64(ELEM_F32, data->data, wide, count);
            *data = (struct span){wide, count * sizeof *wide};
        }
    }
    for (uint32_t v = 1; v < g->values.n; v++)
        if (is_narrow(g, (value_id){v}))
            g->values.data[v].type.elem = ELEM_F64;
    g->folds = NULL;
    return true;
}

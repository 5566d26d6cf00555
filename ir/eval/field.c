/* A graph whose f32 is GF(q) x GF(p) from here on (ir/ops/field.h): its constants become residues, and what was folded
 * of them in floats is forgotten. */
#include "ir/eval/field.h"

#include <math.h>
#include <string.h>

#include "ir/eval/constants.h"
#include "ir/eval/eval.h"
#include "ir/expr/expr.h"
#include "ir/ops/field.h"
#include "ir/ops/scalar.h"

static struct span residues(struct arena *arena, struct span floats)
{
    size_t n = floats.size / sizeof(float);
    uint32_t *out = NEW_ARRAY(arena, uint32_t, n + 1);
    for (size_t i = 0; i < n; i++) {
        float x;
        memcpy(&x, (const char *)floats.data + i * sizeof x, sizeof x);
        out[i] = field_of((double)x);
    }
    return (struct span){out, floats.size};
}

void graph_enter_field(struct graph *g)
{
    for (uint32_t i = 1; i < g->nodes.n; i++) {
        struct node *n = &g->nodes.data[i];
        if (n->dead || n->op != OP_CONSTANT || node_elem(n, "elem") != ELEM_F32)
            continue;
        struct attr *data = (struct attr *)(uintptr_t)node_attr(n, "data");
        data->u.data = residues(&g->arena, data->u.data);
    }
    g->folds = NULL;
    g->ctx->field = true;
}

void eval_put_i64(const struct context *ctx, enum elem elem, int64_t x, void *to)
{
    uint32_t residue = 0;
    if (elem != ELEM_F32 || !ctx->field) {
        elem_from_i64(elem, x, to);
        return;
    }
    residue = field_of_integer(x);
    memcpy(to, &residue, sizeof residue);
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

/* real: the same of real numbers, near enough to tell whether another number is this one rounded. */
static bool number(struct graph *g, value_id v, uint32_t *left, uint32_t *out, double *real)
{
    const struct node *n = value_node(g, v);
    uint32_t x[3] = {0};
    double y[3] = {0};
    int64_t whole;
    float f;
    if (!n || !is_one(g, v) || value_type(g, v)->elem != ELEM_F32 || *left == 0)
        return false;
    --*left;
    if (n->op == OP_CONSTANT) {
        const struct span data = node_attr(n, "data")->u.data;
        memcpy(&f, data.data, sizeof f);
        *out = field_of((double)f);
        *real = (double)f;
        return true;
    }
    if (n->op == OP_CONVERT && strchr("IU", elem_class(value_type(g, n->in[0])->elem)) &&
        value_type(g, n->in[0])->elem != ELEM_U64) {
        if (!value_const_i64(g, n->in[0], &whole, 1))
            return false;
        *out = field_of_integer(whole);
        *real = (double)whole;
        return true;
    }
    const bool view = n->op == OP_BROADCAST || n->op == OP_RESHAPE || n->op == OP_TRANSPOSE || n->op == OP_IDENTITY;
    if (!view && (op_shape(n->op) != SHAPE_MAP || n->op == OP_SELECT || n->n_in > COUNT_OF(x)))
        return false;
    for (uint32_t i = 0; i < n->n_in; i++)
        if (!number(g, n->in[i], left, &x[i], &y[i]))
            return false;
    *out = x[0];
    *real = y[0];
    return view || (field_map(n->op, 1, (const void *const[]){&x[0], &x[1], &x[2]}, out) == EVAL_OK &&
                    map_eval(n->op, ELEM_F64, 1, (const void *const[]){&y[0], &y[1], &y[2]}, real) == EVAL_OK);
}

bool field_number(struct graph *g, value_id v, double folded, uint32_t *residue)
{
    uint32_t left = NUMBER_NODES;
    double real;
    while (value_op(g, v) == OP_BROADCAST)
        v = value_node(g, v)->in[0];
    return value_is_const(g, v) && number(g, v, &left, residue, &real) && fabs(folded - real) <= 0x1p-16 * fabs(real);
}

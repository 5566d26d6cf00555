/* A graph whose f32 is GF(q) x GF(p) from here on (ir/ops/field.h): its constants become residues, and what was folded
 * of them in floats is forgotten. */
#include "ir/eval/field.h"

#include <string.h>

#include "ir/ops/field.h"

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

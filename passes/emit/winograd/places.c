/* Where in the buffers of winograd.h elements of V, of the products and of plain weights lie. */
#include "passes/emit/winograd/winograd.h"

/* Whole lines, an odd number of them; known ones are part of the code. */
static expr_id stride_of(const struct wino *w, expr_id blocks, int64_t vectors)
{
    struct exprs *x = w->em->x;
    expr_id pairs = ex_div(x, ex_mulc(x, blocks, w->s->mr * vectors), ex_const(x, 2));
    expr_id stride = ex_mulc(x, ex_addc(x, ex_mulc(x, pairs, 2), 1), w->lanes);
    return ex_is_const(x, stride, NULL) ? stride : em_pin(w->em, stride, ex_lo(x, stride), ex_hi(x, stride));
}

expr_id wino_v_stride(const struct wino *w, expr_id blocks)
{
    return stride_of(w, blocks, w->s->slice);
}

expr_id wino_m_stride(const struct wino *w, expr_id blocks)
{
    return stride_of(w, blocks, w->s->nr);
}

expr_id wino_v_at(const struct wino *w, expr_id slice, expr_id point, expr_id block, expr_id vector, expr_id tile)
{
    struct exprs *x = w->em->x;
    expr_id at = ex_mul(x, ex_add(x, ex_mulc(x, slice, w->points), point), w->v_stride);
    expr_id line = ex_add(x, ex_mulc(x, ex_add(x, ex_mulc(x, block, w->s->slice), vector), w->s->mr), tile);
    return ex_add(x, at, ex_mulc(x, line, w->lanes));
}

expr_id wino_m_at(const struct wino *w, expr_id block, expr_id point, expr_id vector, expr_id tile)
{
    struct exprs *x = w->em->x;
    expr_id line = ex_add(x, ex_mulc(x, ex_add(x, ex_mulc(x, block, w->s->mr), tile), w->s->nr), vector);
    return ex_add(x, ex_mul(x, point, w->m_stride), ex_mulc(x, line, w->lanes));
}

expr_id wino_plain_at(const struct wino *w, expr_id vector, expr_id channel)
{
    struct exprs *x = w->em->x;
    expr_id panel = ex_const(x, CHANNEL_BLOCK), oc = ex_mulc(x, vector, w->lanes);
    expr_id at = ex_add(x, ex_mulc(x, ex_div(x, oc, panel), w->stride[0]), ex_mod(x, oc, panel));
    return ex_add(x, at, ex_mulc(x, channel, w->stride[3]));
}

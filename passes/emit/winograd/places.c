/* Where in the buffers of winograd.h elements of V, of the products and of plain weights lie. */
#include "passes/emit/winograd/winograd.h"

expr_id wino_v_at(const struct wino *w, expr_id slice, expr_id point, expr_id block, expr_id vector, expr_id tile)
{
    struct exprs *x = w->em->x;
    expr_id at = ex_mulc(x, ex_add(x, ex_mulc(x, slice, w->points), point), wino_v_stride(w));
    expr_id line = ex_add(x, ex_mulc(x, ex_add(x, ex_mulc(x, block, w->s->slice), vector), w->s->mr), tile);
    return ex_add(x, at, ex_mulc(x, line, w->lanes));
}

expr_id wino_m_at(const struct wino *w, expr_id block, expr_id point, expr_id vector, expr_id tile)
{
    struct exprs *x = w->em->x;
    expr_id line = ex_add(x, ex_mulc(x, ex_add(x, ex_mulc(x, block, w->s->mr), tile), w->s->nr), vector);
    return ex_add(x, ex_mulc(x, point, wino_m_stride(w)), ex_mulc(x, line, w->lanes));
}

expr_id wino_plain_at(const struct wino *w, expr_id vector, expr_id channel)
{
    struct exprs *x = w->em->x;
    expr_id panel = ex_const(x, CHANNEL_BLOCK), oc = ex_mulc(x, vector, w->lanes);
    expr_id at = ex_add(x, ex_mulc(x, ex_div(x, oc, panel), w->stride[0]), ex_mod(x, oc, panel));
    return ex_add(x, at, ex_mulc(x, channel, w->stride[3]));
}

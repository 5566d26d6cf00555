/* mcc prove: functions of the runtime that compute with floats. Residues mean nothing to them, so they get a copy of
 * the operand with the numbers that these stand for, and what they store becomes residues again.
 */
#include "ir/ops/field.h"
#include "passes/program/program.h"

typedef lreg field_fn(struct lfunc *, lblock, lreg);

/* Each of the value's elements from one buffer, as other bits, to the other. */
static void each_element(struct prog *p, const struct type *t, lreg from, lreg to, field_fn *as)
{
    const struct ltype one = {t->elem, 1};
    const lreg at = lf_value(p->f, prog_i64),
               bounds[2] = {prog_const(p, 0), prog_index(p, dims_product(p->x, t->dims, t->rank))};
    const lblock body = lf_block(p->f);
    VEC_PUSH(p->f->arena, &p->f->blocks.data[body.i].params, at);
    lreg x = lf_op(p->f, body, L_LOAD, one, ARRAY(lreg, from, at));
    x = as(p->f, body, x);
    lf_op(p->f, body, L_STORE, one, ARRAY(lreg, to, at, x));
    struct lstmt *s = lf_stmt(p->f, p->block, L_FOR, bounds, 2);
    s->imm = 1;
    s->block[0] = body;
}

lreg prog_numbers(struct prog *p, value_id v)
{
    const struct type *t = value_type(p->g, v);
    lreg from = prog_buffer(p, v, t->elem);
    if (!p->m->ctx->field_code || !field_holds(t->elem))
        return from;
    expr_id bytes = ex_mulc(p->x, dims_product(p->x, t->dims, t->rank), elem_size(t->elem));
    lreg to = prog_offset(p, prog_memory(p, prog_index(p, bytes)), ex_const(p->x, 0), t->elem);
    each_element(p, t, from, to, lf_field_to_real);
    return to;
}

void prog_residues(struct prog *p, value_id v)
{
    const struct type *t = value_type(p->g, v);
    if (!p->m->ctx->field_code || !field_holds(t->elem) || (!graph_value(p->g, v)->n_uses && !p->pointer[v.i].i))
        return;
    lreg at = prog_buffer(p, v, t->elem);
    each_element(p, t, at, at, lf_field_from_real);
}

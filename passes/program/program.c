/* emit_program: the run function of an artifact; the plan function is in plan_function.c.
 *
 * The program's arguments are those of runtime/rt.h: input and output pointers, arena, weights, symbols. Kernels run in
 * the order of the graph; what is known only at run time (an element that names a size, the number of results) is
 * read back and bound to its symbol as soon as it is stored.
 */
#include "passes/program/program.h"

/* ---- kernels ------------------------------------------------------------------------------------------------- */

/* The symbols that elements of a value define, in order of their numbers. */
struct symbol_list {
    sym_id first, last;
};
struct prog_elements {
    VEC(struct symbol_list) of;   /* by value */
    VEC(sym_id) next;             /* by symbol */
    sym_id entered;               /* the last one that was entered */
};

static void enter_symbols(struct prog *p)
{
    if (!p->elements)
        p->elements = NEW(p->arena, struct prog_elements);
    struct prog_elements *all = p->elements;
    for (sym_id id; (id = sym_next(p->x, SYM_VALUE, all->entered)).i; all->entered = id) {
        const struct symbol *s = sym_get(p->x, id);
        while (all->next.n <= id.i)
            VEC_PUSH(p->arena, &all->next, (sym_id){0});
        while (all->of.n <= s->value)
            VEC_PUSH(p->arena, &all->of, ((struct symbol_list){{0}, {0}}));
        if (s->elem == UINT32_MAX)   /* a dim: whoever computes the value binds it */
            continue;
        *(all->of.data[s->value].first.i ? &all->next.data[all->of.data[s->value].last.i]
                                         : &all->of.data[s->value].first) = id;
        all->of.data[s->value].last = id;
    }
}

void prog_bind_elements(struct prog *p, value_id v)
{
    const struct value *value = graph_value(p->g, v);
    uint32_t node = value->def.i ? graph_node(p->g, value->def)->src.i : 0;
    enter_symbols(p);
    for (sym_id id = v.i < p->elements->of.n ? p->elements->of.data[v.i].first : (sym_id){0}; id.i;
         id = p->elements->next.data[id.i]) {
        const struct symbol *s = sym_get(p->x, id);
        lreg e = prog_load(p, v, s->elem);
        const char *text = arena_printf(p->arena, "size '%s' is outside %lld..%lld", s->name, (long long)s->lo,
                                        (long long)s->hi);
        if (s->lo != INT64_MIN)
            prog_check(p, prog_op2(p, L_LE, prog_const(p, s->lo), e), -9, node, text);
        if (s->hi != INT64_MAX)
            prog_check(p, prog_op2(p, L_LE, e, prog_const(p, s->hi)), -9, node, text);
        prog_bind(p, id, e);
    }
}

/* Row `trip` of what a loop collects. */
static lreg grow_row(struct prog *p, struct prog_grow g, lreg bytes)
{
    lreg before[2] = {bytes, g.trip}, at[2];
    before[0] = prog_op(p, L_MUL, prog_i64, before, 2);
    before[1] = bytes;
    at[0] = prog_grow(p, g.slot, prog_op(p, L_ADD, prog_i64, before, 2), before[0]);
    at[1] = before[0];
    return prog_op(p, L_OFFSET, (struct ltype){ELEM_U8, 0}, at, 2);
}

void prog_place(struct prog *p, value_id v)
{
    const struct storage *s = &p->m->fused.storage[v.i];
    struct prog_grow g = p->grow[v.i];
    if (p->pointer[v.i].i || (s->place != PLACE_SEGMENT && !g.slot.i))
        return;
    lreg bytes = prog_index(p, p->m->plan.buffers.data[s->buffer].bytes);
    p->pointer[v.i] = g.trip.i   ? grow_row(p, g, bytes)
                      : g.slot.i ? prog_grow(p, g.slot, bytes, prog_const(p, 0))
                                 : prog_memory(p, bytes);
}

/* An output whose extents the data decides: tell the runtime where it is and how large. */
static void declare_output(struct prog *p, value_id v)
{
    const struct storage *s = &p->m->fused.storage[v.i];
    const struct type *t = value_type(p->g, v);
    uint32_t k = value_output(p->g, v);
    if (k == UINT32_MAX || s->place == PLACE_OUTPUT || prog_is_handle(t))
        return;
    PROG_CALL(p, "mcc_rt_output", true, prog_const(p, k), prog_const(p, t->rank), prog_dims(p, t),
              prog_buffer(p, v, t->elem));
}

static void run_kernel(struct prog *p, struct kernel *k)
{
    if (k->kind == KERNEL_CONTROL)
        prog_control(p, (uint32_t)(k - p->m->fused.kernels.data));
    else if (k->kind == KERNEL_OPAQUE)
        prog_opaque(p, k);
    else
        prog_launch(p, (uint32_t)(k - p->m->fused.kernels.data));
    bool whole = !k->piece || k->piece == value_node(p->g, k->outs.data[0])->n_in;
    for (uint32_t o = 0; whole && o < k->outs.n && !p->failed; o++) {
        prog_bind_elements(p, k->outs.data[o]);
        declare_output(p, k->outs.data[o]);
    }
}

void prog_region(struct prog *p, region_id r)
{
    struct module *m = p->m;
    uint32_t first = 0, end = m->fused.kernels.n;
    while (first < end) {
        uint32_t mid = first + (end - first) / 2;
        if (p->place[mid].region < r.i)
            first = mid + 1;
        else
            end = mid;
    }
    for (uint32_t i = first; i < m->fused.kernels.n && p->place[i].region == r.i && !p->failed; i++)
        run_kernel(p, &m->fused.kernels.data[p->place[i].kernel]);
}

/* ---- frames ------------------------------------------------------------------------------------------------------ */

static void bind_shape_symbols(struct prog *p)
{
    for (sym_id s = sym_next(p->x, SYM_SHAPE, (sym_id){0}); s.i; s = sym_next(p->x, SYM_SHAPE, s))
        prog_bind(p, s, lf_arg(p->f, prog_i64, 0, 0, sym_get(p->x, s)->name));
}

/* Elements narrower than a byte are packed at the ports and a byte each inside. */
static bool is_packed(const struct prog *p, value_id v)
{
    const struct type *t = value_type(p->g, v);
    return t->kind == TYPE_TENSOR && elem_bits(t->elem) > 0 && elem_bits(t->elem) < 8;
}

static void ports_unpack(struct prog *p, lreg *packed)
{
    for (uint32_t k = 0; k < p->g->inputs.n; k++) {
        const struct type *t = value_type(p->g, p->g->inputs.data[k].value);
        if (!is_packed(p, p->g->inputs.data[k].value))
            continue;
        lreg n = prog_index(p, dims_product(p->x, t->dims, t->rank)), bytes = prog_memory(p, n);
        PROG_CALL(p, "mcc_rt_unpack", false, p->in[k], bytes, n, prog_const(p, elem_bits(t->elem)),
                  prog_const(p, elem_class(t->elem) == 'I'));
        p->in[k] = bytes;
    }
    for (uint32_t k = 0; k < p->g->outputs.n; k++) {
        const struct type *t = value_type(p->g, p->g->outputs.data[k].value);
        if (!is_packed(p, p->g->outputs.data[k].value) ||
            p->m->fused.storage[p->g->outputs.data[k].value.i].place != PLACE_OUTPUT)
            continue;
        packed[k] = p->out[k];
        p->out[k] = prog_memory(p, prog_index(p, dims_product(p->x, t->dims, t->rank)));
    }
}

static void ports_pack(struct prog *p, const lreg *packed)
{
    for (uint32_t k = 0; k < p->g->outputs.n; k++) {
        const struct type *t = value_type(p->g, p->g->outputs.data[k].value);
        if (!packed[k].i)
            continue;
        PROG_CALL(p, "mcc_rt_pack", false, p->out[k], packed[k], prog_index(p, dims_product(p->x, t->dims, t->rank)),
                  prog_const(p, elem_bits(t->elem)));
    }
}

lreg prog_empty(struct prog *p)
{
    lreg any = {0};
    for (sym_id id = sym_next(p->x, SYM_SHAPE, (sym_id){0}); id.i; id = sym_next(p->x, SYM_SHAPE, id)) {
        const struct symbol *s = sym_get(p->x, id);
        if (s->least == s->filled)
            continue;
        lreg below = prog_op2(p, L_LT, prog_symbol(p, id), prog_const(p, s->filled));
        any = any.i ? prog_op2(p, L_OR, any, below) : below;
    }
    return any;
}

/* All that a run does. Where outputs are empty that is nothing. */
static void program_body(struct prog *p)
{
    lreg *packed = NEW_ARRAY(p->arena, lreg, p->g->outputs.n + 1);
    p->empty = prog_empty(p);
    lblock outer = p->block, body = p->empty.i ? lf_block(p->f) : outer;
    p->block = body;
    ports_unpack(p, packed);
    for (uint32_t k = 0; k < p->g->inputs.n; k++)
        prog_bind_elements(p, p->g->inputs.data[k].value);
    prog_region(p, (region_id){1});
    ports_pack(p, packed);
    prog_output_handles(p);
    p->block = outer;
    if (p->empty.i)
        prog_if_empty(p, outer)->block[1] = body;
}

static bool program(struct module *m, struct kernel *const *levels, const char *const *suffixes, uint32_t n_levels)
{
    struct prog p = {.m = m, .g = m->g, .x = m->ctx->exprs, .arena = m->arena, .block = {1}};
    p.levels = levels;
    p.suffixes = suffixes;
    p.n_levels = n_levels;
    p.is_level = NEW_ARRAY(m->arena, lreg, n_levels);
    struct ltype bytes = {ELEM_U8, 0};
    p.place = kernels_in_order(m, m->arena);
    p.f = lf_new(m->ctx, m->arena, LROLE_PROGRAM, arena_printf(m->arena, "program%s", n_levels > 1 ? "" : suffixes[0]));
    p.in = NEW_ARRAY(m->arena, lreg, m->g->inputs.n + 1);
    p.out = NEW_ARRAY(m->arena, lreg, m->g->outputs.n + 1);
    p.pointer = NEW_ARRAY(m->arena, lreg, m->fused.n_values);
    p.handle = NEW_ARRAY(m->arena, lreg, m->fused.n_values);
    p.grow = NEW_ARRAY(m->arena, struct prog_grow, m->fused.n_values);
    for (uint32_t k = 0; k < m->g->inputs.n; k++) {
        value_id v = m->g->inputs.data[k].value;
        if (prog_is_handle(value_type(m->g, v)))
            p.handle[v.i] = lf_arg(p.f, prog_i64, 0, 0, m->g->inputs.data[k].name);
        else
            p.in[k] = lf_arg(p.f, bytes, LARG_IN, 0, m->g->inputs.data[k].name);
    }
    for (uint32_t k = 0; k < m->g->outputs.n; k++)
        p.out[k] = lf_arg(p.f, bytes, LARG_IN | LARG_OUT, 0, m->g->outputs.data[k].name);
    p.arena_base = lf_arg(p.f, bytes, LARG_IN | LARG_OUT, 64, "arena");
    p.weights_base = lf_arg(p.f, bytes, LARG_IN, 64, "weights");
    bind_shape_symbols(&p);
    program_body(&p);
    m->plan.program = p.f;
    lf_tidy(p.f);
    return !p.failed && lf_finish(p.f);
}

/* What indices of a launch share lies after the buffers of the workspace, one piece of memory for all kernels. */
static void count_shared(struct module *m, const struct kernel *kernels)
{
    for (uint32_t i = 0; i < m->fused.kernels.n; i++)
        for (const struct kernel *k = &kernels[i]; k; k = k->version.of)
            if (k->shared_bytes > m->plan.shared_bytes)
                m->plan.shared_bytes = k->shared_bytes;
}

bool emit_program(struct module *m, struct kernel *const *levels, const char *const *suffixes, uint32_t n_levels)
{
    for (uint32_t i = 0; i < n_levels; i++)
        count_shared(m, levels[i]);
    return program(m, levels, suffixes, n_levels) && prog_plan(m);
}

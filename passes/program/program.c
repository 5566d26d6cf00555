/* emit_program: the run function and the plan function of an artifact.
 *
 * The program's arguments are those of runtime/rt.h: input and output pointers, arena, weights, symbols. Kernels run in
 * the order of the graph; what is known only at run time (an element that names a size, the number of results) is
 * read back and bound to its symbol as soon as it is stored.
 */
#include "passes/program/program.h"

#include <string.h>

static const struct ltype INDEX = {ELEM_I64, 1};

lreg prog_op(struct prog *p, enum lop op, struct ltype t, const lreg *in, uint32_t n)
{
    return lf_op(p->f, p->block, op, t, in, n);
}

lreg prog_const(struct prog *p, int64_t c)
{
    lreg v = lf_op(p->f, p->block, L_CONST, INDEX, NULL, 0);
    lf_last(p->f, p->block)->imm = c;
    return v;
}

static lreg op2(struct prog *p, enum lop op, lreg a, lreg b)
{
    lreg in[2] = {a, b};
    struct ltype t = lf_type(p->f, a);
    if (op == L_LT || op == L_LE || op == L_EQ || op == L_NE)
        t.elem = ELEM_BOOL;
    return prog_op(p, op, t, in, 2);
}

/* ---- index expressions ------------------------------------------------------------------------------------ */

static void bind_key(struct prog *p, uint32_t key, lreg v)
{
    while (p->binding.n <= key)
        VEC_PUSH(p->arena, &p->binding, 0);
    VEC_PUSH(p->arena, &p->syms, ((struct prog_sym){key, v, p->binding.data[key]}));
    p->binding.data[key] = p->syms.n;
}

static lreg bound_key(const struct prog *p, uint32_t key)
{
    uint32_t i = key < p->binding.n ? p->binding.data[key] : 0;
    return i ? p->syms.data[i - 1].v : (lreg){0};
}

void prog_bind(struct prog *p, sym_id s, lreg v)
{
    bind_key(p, 2 * s.i, v);
}

bool prog_is_bound(const struct prog *p, sym_id s)
{
    return bound_key(p, 2 * s.i).i;
}

void prog_unbind(struct prog *p, uint32_t n)
{
    while (p->syms.n > n) {
        const struct prog_sym *last = &p->syms.data[--p->syms.n];
        p->binding.data[last->key] = last->outer;
    }
}

static lreg sym_lreg(struct prog *p, sym_id s)
{
    lreg v = bound_key(p, 2 * s.i);
    if (v.i)
        return v;
    p->failed = true;
    error_internal(p->m->ctx, (src_id){0}, "symbol '%s' is used before anything binds it", sym_get(p->x, s)->name);
    return prog_const(p, 0);
}

lreg prog_cond(struct prog *p, expr_id e)
{
    enum expr_kind kind = ex_kind(p->x, e);
    if (kind == EX_LT || kind == EX_EQ)
        return op2(p, kind == EX_LT ? L_LT : L_EQ, prog_index(p, ex_arg(p->x, e, 0)),
                   prog_index(p, ex_arg(p->x, e, 1)));
    return op2(p, L_NE, prog_index(p, e), prog_const(p, 0));
}

/* A quotient or remainder by 2^n rounds down as a shift does: one instruction where a division takes ten, and LLVM
 * leaves programs as they are. {0}: another divisor. */
static lreg by_power_of_two(struct prog *p, enum expr_kind kind, lreg a, expr_id by)
{
    int64_t c;
    if (!ex_is_const(p->x, by, &c) || c < 2 || (c & (c - 1)) != 0)
        return (lreg){0};
    return kind == EX_DIV ? op2(p, L_SHR, a, prog_const(p, __builtin_ctzll((uint64_t)c)))
                          : op2(p, L_AND, a, prog_const(p, c - 1));
}

static lreg index_value(struct prog *p, expr_id e)
{
    enum expr_kind kind = ex_kind(p->x, e);
    uint32_t n = ex_n_args(p->x, e);
    static const enum lop binary[] = {
        [EX_PROD] = L_MUL, [EX_DIV] = L_FLOORDIV, [EX_MOD] = L_FLOORMOD, [EX_MIN] = L_MIN,
        [EX_MAX] = L_MAX,  [EX_LT] = L_LT,        [EX_EQ] = L_EQ,        [EX_AND] = L_MUL};
    if (kind == EX_SUM) {
        lreg sum = prog_const(p, ex_addend(p->x, e));
        for (uint32_t i = 0; i < n; i++)
            sum = op2(p, L_ADD, sum,
                      op2(p, L_MUL, prog_index(p, ex_arg(p->x, e, i)), prog_const(p, ex_coef(p->x, e, i))));
        return sum;
    }
    if (kind == EX_NOT)
        return op2(p, L_SUB, prog_const(p, 1), prog_index(p, ex_arg(p->x, e, 0)));
    if (kind == EX_SELECT) {
        lreg in[3] = {prog_cond(p, ex_arg(p->x, e, 0)), prog_index(p, ex_arg(p->x, e, 1)),
                      prog_index(p, ex_arg(p->x, e, 2))};
        return prog_op(p, L_SELECT, INDEX, in, 3);
    }
    lreg v = prog_index(p, ex_arg(p->x, e, 0)), shifted = {0};
    if (kind == EX_DIV || kind == EX_MOD)
        shifted = by_power_of_two(p, kind, v, ex_arg(p->x, e, 1));
    if (shifted.i)
        return shifted;
    for (uint32_t i = 1; i < n; i++)
        v = op2(p, binary[kind], v, prog_index(p, ex_arg(p->x, e, i)));
    if (kind == EX_LT || kind == EX_EQ)
        v = prog_op(p, L_CONVERT, INDEX, &v, 1);
    return v;
}

/* Each expression is computed once in a block and those inside of it. */
lreg prog_index(struct prog *p, expr_id e)
{
    int64_t c;
    if (ex_is_const(p->x, e, &c))
        return prog_const(p, c);
    if (ex_kind(p->x, e) == EX_SYM)
        return sym_lreg(p, ex_as_sym(p->x, e));
    if (p->at_start)   /* what the open block has computed is not there yet */
        return index_value(p, e);
    lreg v = bound_key(p, 2 * e.i + 1);
    if (!v.i) {
        v = index_value(p, e);
        bind_key(p, 2 * e.i + 1, v);
    }
    return v;
}

/* ---- memory ------------------------------------------------------------------------------------------------- */

lreg prog_call(struct prog *p, const char *name, const lreg *in, uint32_t n, bool may_fail)
{
    lreg r = lf_value(p->f, INDEX);
    struct lstmt *s = lf_stmt(p->f, p->block, L_CALL, in, n);
    s->type = INDEX;
    s->name = name;
    s->out = lf_lregs(p->f, &r, 1);
    s->n_out = 1;
    s->flags = may_fail ? L_FLAG_MAYFAIL : 0;
    return r;
}

/* The statement that runs one of its blocks, [0] where outputs are empty. */
static struct lstmt *if_empty(struct prog *p, lblock in)
{
    struct lstmt *s = lf_stmt(p->f, in, L_IF, &p->empty, 1);
    s->type = INDEX;
    s->block[0] = lf_block(p->f);
    return s;
}

/* The first words of the buffer, when the program starts. used: only by runs whose outputs are not empty. */
static lreg zeroed(struct prog *p, lreg buffer, int64_t words, bool used)
{
    lblock here = p->block;
    p->block = (lblock){1};   /* what is under construction here comes after it */
    if (used && p->empty.i)
        p->block = if_empty(p, p->block)->block[1] = lf_block(p->f);
    for (int64_t i = 0; i < words; i++) {
        lreg in[3] = {buffer, prog_const(p, i), prog_const(p, 0)};
        lf_op(p->f, p->block, L_STORE, INDEX, in, 3);
    }
    p->block = here;
    return buffer;
}

lreg prog_slot(struct prog *p)
{
    return zeroed(p, prog_local(p, 2), 2, false);
}

lreg prog_grow(struct prog *p, lreg slot, lreg bytes, lreg keep)
{
    lreg in[3] = {slot, bytes, keep}, at = prog_call(p, "mcc_rt_grow", in, 3, true);
    return prog_op(p, L_ADDRESS, (struct ltype){ELEM_U8, 0}, &at, 1);
}

lreg prog_memory(struct prog *p, lreg bytes)
{
    if (p->loops)
        return prog_grow(p, prog_slot(p), bytes, prog_const(p, 0));
    lreg at = prog_call(p, "mcc_rt_segment", &bytes, 1, true);
    return prog_op(p, L_ADDRESS, (struct ltype){ELEM_U8, 0}, &at, 1);
}

static lreg offset(struct prog *p, lreg base, expr_id bytes, enum elem e)
{
    lreg in[2] = {base, prog_index(p, bytes)};
    if (elem_size(e) > 8)   /* strings: only passed on */
        e = ELEM_U8;
    return prog_op(p, L_OFFSET, (struct ltype){e, 0}, in, 2);
}

/* What indices of a launch share lies behind the buffers of the workspace, one piece of memory for all kernels. */
static void count_shared(struct module *m)
{
    for (uint32_t i = 0; i < m->fused.kernels.n; i++)
        if (m->fused.kernels.data[i].shared_bytes > m->plan.shared_bytes)
            m->plan.shared_bytes = m->fused.kernels.data[i].shared_bytes;
}

static lreg shared(struct prog *p)
{
    if (!p->shared.i) {
        lblock here = p->block;
        p->block = (lblock){1};
        p->at_start = true;
        p->shared = offset(p, p->arena_base, p->m->plan.arena_bytes, ELEM_I64);
        p->at_start = false;
        p->block = here;
        zeroed(p, p->shared, SHARED_COUNTERS, true); /* the workspace of other runs has no bytes */
    }
    return offset(p, p->shared, ex_const(p->x, 0), ELEM_F32);
}

lreg prog_buffer(struct prog *p, value_id v, enum elem e)
{
    if (p->m->fused.storage[v.i].place == PLACE_NONE && !p->pointer[v.i].i)
        v = view_plain(p->g, v);
    const struct storage *s = &p->m->fused.storage[v.i];
    expr_id zero = ex_const(p->x, 0);
    if (p->pointer[v.i].i)
        return offset(p, p->pointer[v.i], zero, e);
    switch (s->place) {
    case PLACE_INPUT: return offset(p, p->in[s->port], zero, e);
    case PLACE_OUTPUT: return offset(p, p->out[s->port], zero, e);
    case PLACE_WEIGHTS:
        return offset(p, p->weights_base, ex_const(p->x, (int64_t)p->m->plan.weights.data[s->buffer].offset), e);
    case PLACE_ARENA: return offset(p, p->arena_base, p->m->plan.buffers.data[s->buffer].offset, e);
    default: break;
    }
    p->failed = true;
    error_internal(p->m->ctx, (src_id){0}, "value %u has no memory", v.i);
    return p->arena_base;
}

lreg prog_load(struct prog *p, value_id v, int64_t element)
{
    enum elem e = value_type(p->g, v)->elem;
    lreg in[2] = {prog_buffer(p, v, e), prog_const(p, element)};
    lreg r = prog_op(p, L_LOAD, (struct ltype){e, 1}, in, 2);
    return e == ELEM_I64 ? r : prog_op(p, L_CONVERT, INDEX, &r, 1);
}

void prog_check(struct prog *p, lreg cond, int32_t code, uint32_t node, const char *text)
{
    struct lstmt *s = lf_stmt(p->f, p->block, L_CHECK, &cond, 1);
    s->imm = code;
    s->node = node;
    s->name = text;
}

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
            prog_check(p, op2(p, L_LE, prog_const(p, s->lo), e), -9, node, text);
        if (s->hi != INT64_MAX)
            prog_check(p, op2(p, L_LE, e, prog_const(p, s->hi)), -9, node, text);
        prog_bind(p, id, e);
    }
}

/* Row `trip` of what a loop collects. */
static lreg grow_row(struct prog *p, struct prog_grow g, lreg bytes)
{
    lreg before[2] = {bytes, g.trip}, at[2];
    before[0] = prog_op(p, L_MUL, INDEX, before, 2);
    before[1] = bytes;
    at[0] = prog_grow(p, g.slot, prog_op(p, L_ADD, INDEX, before, 2), before[0]);
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

/* Parallel indices of the kernel: none for the first piece of a concat that lies there already. */
static lreg launch_count(struct prog *p, const struct kernel *k)
{
    lreg count = prog_index(p, k->count);
    if (!k->shares || !k->piece)
        return count;
    enum elem e = value_type(p->g, k->domain)->elem;
    lreg at[2] = {prog_buffer(p, k->domain, e), prog_buffer(p, k->outs.data[0], e)};
    lreg in[3] = {prog_op(p, L_SHARED, (struct ltype){ELEM_BOOL, 1}, at, 2), prog_const(p, 0), count};
    return prog_op(p, L_SELECT, INDEX, in, 3);
}

static void launch(struct prog *p, struct kernel *k)
{
    lreg args[256];
    uint32_t n = 0;
    for (uint32_t i = 0; i < k->outs.n; i++)
        prog_place(p, k->outs.data[i]);
    if (k->args.n + 1 > COUNT_OF(args)) {
        p->failed = true;
        error_limit(p->m->ctx, k->nodes.n ? graph_node(p->g, k->nodes.data[0])->src : (src_id){0},
                    "a kernel reads more than %u values", (unsigned)COUNT_OF(args) - 1);
        return;
    }
    for (uint32_t i = 0; i < k->args.n; i++) {
        struct karg a = k->args.data[i];
        enum elem e = a.value.i ? value_type(p->g, a.value)->elem : ELEM_F32;
        args[n++] = a.start.i   ? offset(p, prog_buffer(p, a.value, e), ex_mulc(p->x, a.start, elem_size(e)), e)
                    : a.value.i ? prog_buffer(p, a.value, e)
                    : a.shared  ? shared(p)
                                : prog_index(p, a.size);
    }
    args[n++] = launch_count(p, k);
    struct lstmt *s = lf_stmt(p->f, p->block, L_LAUNCH, args, n);
    s->name = k->name;
    s->imm = p->m->asked.grain_ns ? p->m->asked.grain_ns : k->ns;
    s->node = k->nodes.n ? graph_node(p->g, k->nodes.data[0])->src.i : 0;
}

/* An output whose extents the data decides: tell the runtime where it is and how large. */
static void declare_output(struct prog *p, value_id v)
{
    const struct storage *s = &p->m->fused.storage[v.i];
    const struct type *t = value_type(p->g, v);
    uint32_t k = value_output(p->g, v);
    if (k == UINT32_MAX || s->place == PLACE_OUTPUT || prog_is_handle(t))
        return;
    lreg in[4] = {prog_const(p, k), prog_const(p, t->rank), prog_dims(p, t), prog_buffer(p, v, t->elem)};
    prog_call(p, "mcc_rt_output", in, 4, true);
}

static void run_kernel(struct prog *p, struct kernel *k)
{
    if (k->kind == KERNEL_CONTROL)
        prog_control(p, k);
    else if (k->kind == KERNEL_OPAQUE)
        prog_opaque(p, k);
    else
        launch(p, k);
    bool whole = !k->piece || k->piece == graph_node(p->g, graph_value(p->g, k->outs.data[0])->def)->n_in;
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
        prog_bind(p, s, lf_arg(p->f, INDEX, 0, 0, sym_get(p->x, s)->name));
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
        lreg n = prog_index(p, shape_count(p->x, t->dims, t->rank)), bytes = prog_memory(p, n);
        lreg in[5] = {p->in[k], bytes, n, prog_const(p, elem_bits(t->elem)), prog_const(p, elem_class(t->elem) == 'I')};
        prog_call(p, "mcc_rt_unpack", in, 5, false);
        p->in[k] = bytes;
    }
    for (uint32_t k = 0; k < p->g->outputs.n; k++) {
        const struct type *t = value_type(p->g, p->g->outputs.data[k].value);
        if (!is_packed(p, p->g->outputs.data[k].value) ||
            p->m->fused.storage[p->g->outputs.data[k].value.i].place != PLACE_OUTPUT)
            continue;
        packed[k] = p->out[k];
        p->out[k] = prog_memory(p, prog_index(p, shape_count(p->x, t->dims, t->rank)));
    }
}

static void ports_pack(struct prog *p, const lreg *packed)
{
    for (uint32_t k = 0; k < p->g->outputs.n; k++) {
        const struct type *t = value_type(p->g, p->g->outputs.data[k].value);
        if (!packed[k].i)
            continue;
        lreg in[4] = {p->out[k], packed[k], prog_index(p, shape_count(p->x, t->dims, t->rank)),
                      prog_const(p, elem_bits(t->elem))};
        prog_call(p, "mcc_rt_pack", in, 4, false);
    }
}

/* Is a symbol so small that all outputs are empty? {0}: no run has that. */
static lreg outputs_empty(struct prog *p)
{
    lreg any = {0};
    for (sym_id id = sym_next(p->x, SYM_SHAPE, (sym_id){0}); id.i; id = sym_next(p->x, SYM_SHAPE, id)) {
        const struct symbol *s = sym_get(p->x, id);
        if (s->least == s->filled)
            continue;
        lreg below = op2(p, L_LT, sym_lreg(p, id), prog_const(p, s->filled));
        any = any.i ? op2(p, L_OR, any, below) : below;
    }
    return any;
}

/* All that a run does. Where outputs are empty that is nothing. */
static void program_body(struct prog *p)
{
    lreg *packed = NEW_ARRAY(p->arena, lreg, p->g->outputs.n + 1);
    p->empty = outputs_empty(p);
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
        if_empty(p, outer)->block[1] = body;
}

static bool program(struct module *m, const char *suffix)
{
    struct prog p = {.m = m, .g = m->g, .x = m->ctx->exprs, .arena = m->arena, .suffix = suffix, .block = {1}};
    struct ltype bytes = {ELEM_U8, 0};
    p.place = kernels_in_order(m, m->arena);
    p.f = lf_new(m->ctx, m->arena, LROLE_PROGRAM, arena_printf(m->arena, "program%s", suffix));
    p.in = NEW_ARRAY(m->arena, lreg, m->g->inputs.n + 1);
    p.out = NEW_ARRAY(m->arena, lreg, m->g->outputs.n + 1);
    p.pointer = NEW_ARRAY(m->arena, lreg, m->fused.n_values);
    p.handle = NEW_ARRAY(m->arena, lreg, m->fused.n_values);
    p.grow = NEW_ARRAY(m->arena, struct prog_grow, m->fused.n_values);
    for (uint32_t k = 0; k < m->g->inputs.n; k++) {
        value_id v = m->g->inputs.data[k].value;
        if (prog_is_handle(value_type(m->g, v)))
            p.handle[v.i] = lf_arg(p.f, INDEX, 0, 0, m->g->inputs.data[k].name);
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

/* ---- the plan ---------------------------------------------------------------------------------------------------- */

static void plan_bind(struct prog *p, lreg dims)
{
    uint32_t at = 0;
    for (uint32_t k = 0; k < p->g->inputs.n; k++) {
        const struct port *port = &p->g->inputs.data[k];
        const struct type *t = value_type(p->g, port->value);
        for (int32_t d = 0; d < (t->kind == TYPE_TENSOR ? t->rank : 0); d++, at++) {
            sym_id s = port_symbol(p->g, port, d);
            if (!s.i || prog_is_bound(p, s))
                continue;
            lreg in[2] = {dims, prog_const(p, at)};
            prog_bind(p, s, prog_op(p, L_LOAD, INDEX, in, 2));
        }
    }
}

static void plan_check(struct prog *p, lreg dims)
{
    uint32_t at = 0;
    for (uint32_t k = 0; k < p->g->inputs.n; k++) {
        const struct port *port = &p->g->inputs.data[k];
        const struct type *t = value_type(p->g, port->value);
        for (int32_t d = 0; d < (t->kind == TYPE_TENSOR ? t->rank : 0); d++, at++) {
            int64_t c;
            if (ex_is_const(p->x, t->dims[d], &c) || ex_as_sym(p->x, t->dims[d]).i)
                continue;
            struct strbuf text;
            strbuf_init(&text, p->arena);
            strbuf_printf(&text, "input '%.64s': dim %d is not ", port->name, d);
            ex_print(p->x, t->dims[d], &text);
            lreg in[2] = {dims, prog_const(p, at)};
            lreg have = prog_op(p, L_LOAD, INDEX, in, 2);
            prog_check(p, op2(p, L_EQ, have, prog_index(p, t->dims[d])), -2, 0, text.data);
        }
    }
}

static void plan_check_size(struct prog *p, const struct size_check *c, lreg holds, lreg empty)
{
    holds = c->unless_empty && empty.i ? op2(p, L_OR, empty, holds) : holds;
    prog_check(p, holds, (int32_t)c->code, c->src.i, c->text);
}

/* What the symbols' bounds hold beyond those that the artifact gives: the reasons are the model's. */
static void plan_check_sizes(struct prog *p, lreg empty)
{
    for (uint32_t i = 0; i < p->g->size_checks.n; i++) {
        const struct size_check *c = &p->g->size_checks.data[i];
        const struct sym_bounds given = sym_get(p->x, c->sym)->given, b = c->bounds;
        lreg v = sym_lreg(p, c->sym);
        if (c->same.i) {
            plan_check_size(p, c, op2(p, L_EQ, v, sym_lreg(p, c->same)), empty);
            continue;
        }
        if (b.lo > given.lo)
            plan_check_size(p, c, op2(p, L_LE, prog_const(p, b.lo), v), empty);
        if (b.hi < given.hi)
            plan_check_size(p, c, op2(p, L_LE, v, prog_const(p, b.hi)), empty);
        if (b.divisor > given.divisor)
            plan_check_size(p, c, op2(p, L_EQ, op2(p, L_FLOORMOD, v, prog_const(p, b.divisor)), prog_const(p, 0)),
                            empty);
    }
}

static void plan_store(struct prog *p, lreg out, uint32_t *at, lreg v)
{
    lreg in[3] = {out, prog_const(p, (*at)++), v};
    lf_op(p->f, p->block, L_STORE, INDEX, in, 3);
}

/* Bytes of the arena: for sizes within the bounds of the symbols, which alone it is for. */
static lreg plan_arena(struct prog *p, lreg empty)
{
    expr_id bytes = ex_addc(p->x, p->m->plan.arena_bytes, p->m->plan.shared_bytes);
    uint32_t bound = p->syms.n;
    if (!empty.i)
        return prog_index(p, bytes);
    for (sym_id s = sym_next(p->x, SYM_SHAPE, (sym_id){0}); s.i; s = sym_next(p->x, SYM_SHAPE, s))
        if (sym_get(p->x, s)->given.lo < sym_get(p->x, s)->lo)
            prog_bind(p, s, op2(p, L_MAX, sym_lreg(p, s), prog_const(p, sym_get(p->x, s)->lo)));
    lreg in[3] = {empty, prog_const(p, 0), prog_index(p, bytes)};
    lreg arena = prog_op(p, L_SELECT, INDEX, in, 3);
    prog_unbind(p, bound);
    return arena;
}

static bool plan(struct module *m, const char *name)
{
    struct prog p = {.m = m, .g = m->g, .x = m->ctx->exprs, .arena = m->arena, .block = {1}};
    uint32_t at = 0;
    p.f = lf_new(m->ctx, m->arena, LROLE_PLAN, name);
    lreg dims = lf_arg(p.f, (struct ltype){ELEM_I64, 0}, LARG_IN, 0, "dims");
    lreg out = lf_arg(p.f, (struct ltype){ELEM_I64, 0}, LARG_OUT, 0, "out");
    plan_bind(&p, dims);
    plan_check(&p, dims);
    lreg empty = outputs_empty(&p);
    plan_check_sizes(&p, empty);
    for (sym_id s = sym_next(p.x, SYM_SHAPE, (sym_id){0}); s.i; s = sym_next(p.x, SYM_SHAPE, s)) {
        if (!prog_is_bound(&p, s))
            prog_bind(&p, s, prog_const(&p, 0));
        plan_store(&p, out, &at, sym_lreg(&p, s));
    }
    plan_store(&p, out, &at, plan_arena(&p, empty));
    for (uint32_t k = 0; k < m->g->outputs.n; k++) {
        const struct type *t = value_type(m->g, m->g->outputs.data[k].value);
        for (int32_t d = 0; d < (t->kind == TYPE_TENSOR ? t->rank : 0); d++)
            plan_store(&p, out, &at, late_expr(p.x, t->dims[d]) ? prog_const(&p, -1) : prog_index(&p, t->dims[d]));
    }
    m->plan.plan_function = p.f;
    lf_tidy(p.f);
    return !p.failed && lf_finish(p.f);
}

bool emit_program(struct module *m, const char *suffix)
{
    count_shared(m);
    return program(m, suffix) && plan(m, "plan");
}

/* lf_field: a kernel of floats that computes in GF(q) x GF(p) instead (ir/ops/field.h), statement by statement.
 * Everything else, indices, memory, control and masks, stays as it is, and so does the size of elements: registers hold
 * residues in 32 bits, memory of f64 in 64. Narrow floats stay what they are, and conversions from and to them are
 * those of field_load and field_store.
 */
#include <math.h>

#include "ir/loop/field_lower.h"

/* ---- statement by statement ------------------------------------------------------------------------------------ */

static lreg reduced(struct lowering *l, const struct lstmt *s, lreg x)
{
    uint32_t n = lf_type(l->f, x).lanes;
    uint8_t lanes[LOOP_LANES_MAX];
    for (; n > 1; n /= 2) {
        lreg half[2];
        for (uint32_t k = 0; k < 2; k++) {
            for (uint32_t i = 0; i < n / 2; i++)
                lanes[i] = (uint8_t)(k * (n / 2) + i);
            half[k] = fl_lanes_of(l, x, lanes, n / 2);
        }
        x = fl_combine(l, (enum lop)s->imm, fl_words(n / 2), half[0], half[1]);
    }
    return x;
}

static enum op function_of(enum lop op)
{
    return op == L_SQRT    ? OP_SQRT
           : op == L_FLOOR ? OP_FLOOR
           : op == L_CEIL  ? OP_CEIL
           : op == L_RINT  ? OP_ROUND
           : op == L_TRUNC ? OP_TRUNC
                           : OP_NONE;
}

/* Of f32 operands; {0}: the statement stays as it is. */
static lreg arithmetic(struct lowering *l, const struct lstmt *s, const lreg *in, uint32_t lanes)
{
    struct ltype t = fl_words(lanes), pred = {ELEM_BOOL, lanes};
    switch (s->op) {
    case L_NEG: return fl_negated(l, t, in[0]);
    case L_ABS: return fl_greatest(l, t, in[0], fl_negated(l, t, in[0]), false);
    case L_FMA: /* a product is never -inf */
        return fl_absorb(l, t, in[2], fl_reduce(l, t, fl_op2(l, L_ADD, t, fl_times(l, t, in[0], in[1]), in[2])));
    case L_ADD:
    case L_SUB:
    case L_MUL:
    case L_DIV:
    case L_REM:
    case L_MIN:
    case L_MAX:
    case L_MINNUM:
    case L_MAXNUM: return fl_combine(l, s->op, t, in[0], in[1]);
    case L_LT:
    case L_LE: return fl_compared(l, t, in[0], in[1], s->op);
    case L_EQ:
    case L_NE: /* of a number and itself: is it NaN? */
        if (in[0].i == in[1].i)
            return fl_op2(l, s->op == L_EQ ? L_NE : L_EQ, pred, in[0], fl_constant(l, t, FIELD_NAN));
        return fl_op2(l, s->op, pred, in[0], in[1]);
    case L_HREDUCE: return reduced(l, s, in[0]);
    default: return function_of(s->op) ? fl_function(l, t, function_of(s->op), in[0], (lreg){0}) : (lreg){0};
    }
}

struct lowered {
    const struct lstmt *s;
    struct ltype first, result; /* as they were: of its first operand */
};

static lreg body_lowered(struct lowering *l, const void *self, const lreg *in)
{
    const struct lowered *of = self;
    switch (of->s->op) {
    case L_CONVERT: return fl_conversion(l, of->s, of->first, of->result, in[0]);
    case L_DOT:
    case L_MATDOT: return fl_dot(l, of->s, of->first, of->result, in);
    default: return arithmetic(l, of->s, in, of->first.lanes);
    }
}

/* {0}: it has no meaning in the field. */
static lreg outlined(struct lowering *l, const struct lstmt *s, const lreg *in, struct ltype first, struct ltype t)
{
    const char *name = arena_printf(l->f->arena, "%s.%s.%u.%s.%lld%s", lop_name(s->op), elem_name(first.elem),
                                    first.lanes, elem_name(t.elem), (long long)s->imm, s->name ? s->name : "");
    return fl_applied(l, name, body_lowered, &(struct lowered){s, first, t}, in, s->n_in);
}

/* Statements that move elements, whatever they are, or do not look at them. */
static bool moves(enum lop op)
{
    switch (op) {
    case L_SELECT:
    case L_BITCAST:
    case L_SPLAT:
    case L_EXTRACT:
    case L_INSERT:
    case L_SHUFFLE:
    case L_LOAD:
    case L_LOADS:
    case L_GATHER:
    case L_STORE:
    case L_STORES:
    case L_SCATTER:
    case L_LOCAL:
    case L_OFFSET:
    case L_PREFETCH:
    case L_PREFETCH2:
    case L_SHARED:
    case L_FOR:
    case L_PARALLEL:
    case L_IF:
    case L_YIELD:
    case L_CHECK:
    case L_CALL: return true;
    default: return false;
    }
}

/* The float type of its operands, or of the rows that it multiplies; types: as they were. */
static enum elem operand_elem(const struct ltype *types, const struct lstmt *s)
{
    for (uint32_t i = 0; i < s->n_in; i++)
        if ((types[s->in[i].i].lanes || (s->op == L_MATMUL && i == 1)) && elem_class(types[s->in[i].i].elem) == 'F')
            return types[s->in[i].i].elem;
    return ELEM_NONE;
}

/* Of residues: in registers, and in memory. */
static enum elem held(struct ltype t)
{
    return !field_holds(t.elem) ? t.elem : t.elem == ELEM_F64 && !t.lanes ? ELEM_U64 : ELEM_U32;
}

static void lower_block(struct lowering *, const struct ltype *types, lblock b, bool parallel);

/* Appends the statement as it is, with what stands in its operands' places. */
static void keep(struct lowering *l, const struct ltype *types, struct lstmt s)
{
    const bool loads = s.op == L_LOAD || s.op == L_LOADS || s.op == L_GATHER,
               stores = s.op == L_STORE || s.op == L_STORES || s.op == L_SCATTER;
    for (uint32_t k = 0; k < COUNT_OF(s.block); k++)
        if (s.block[k].i)
            lower_block(l, types, s.block[k], s.op == L_PARALLEL);
    for (uint32_t k = 0; stores && k < s.n_in; k++) {
        const struct ltype t = lf_type(l->f, s.in[k]);
        if (types[s.in[0].i].elem == ELEM_F64 && t.elem == ELEM_U32)
            s.in[k] = fl_op1(l, L_CONVERT, (struct ltype){ELEM_U64, t.lanes}, s.in[k]);
    }
    if (loads && s.type.elem == ELEM_F64) {
        const struct ltype wide = {ELEM_U64, s.type.lanes};
        lreg x = lf_op(l->f, l->b, s.op, wide, s.in, s.n_in);
        struct lstmt *load = lf_last(l->f, l->b);
        s.type = wide;
        const lreg was = s.out[0];
        s.out = load->out;
        *load = s;
        l->now[was.i] = fl_op1(l, L_CONVERT, fl_words(wide.lanes), x);
        return;
    }
    s.type.elem = held(s.type);
    VEC_PUSH(l->f->arena, &l->f->blocks.data[l->b.i].stmts, s);
}

/* ---- sums of products -------------------------------------------------------------------------------------------- */

/* Values that loops carry and that their bodies only add products to are held as the sums of the products themselves,
 * below 2^32 N, and reduced after the loop: networks spend most of their time in such loops. */
#define SUM_LIMIT ((uint64_t)FIELD_N << FL_HALF)

static struct ltype wider(struct ltype t)
{
    return (struct ltype){ELEM_U64, t.lanes};
}

static lreg carried(const struct lowering *l, const struct lstmt *loop, uint32_t k)
{
    return l->f->blocks.data[loop->block[0].i].params.data[1 + k];
}

/* Is value k that the loop carries such a sum? Each value on the way to its yield is read once: as the addend of a
 * product, or as what a loop inside begins with. marks: these become sums. */
static bool is_sum(struct lowering *l, const struct ltype *types, const struct lstmt *loop, uint32_t k, bool marks)
{
    lreg x = carried(l, loop, k);
    bool any = false;
    if (loop->flags & L_FLAG_WHILE || !field_holds(types[x.i].elem))
        return false;
    for (;;) {
        const struct use *use = &l->uses[x.i];
        const struct lstmt *by = use->by;
        l->sums[x.i] |= marks;
        if (use->n != 1 || use->b.i != loop->block[0].i)
            return false;
        if (by->op == L_YIELD)
            return any && use->at == k;
        if (by->op == L_FMA && use->at == 2)
            x = by->out[0];
        else if (by->op == L_FOR && use->at >= 2 && is_sum(l, types, by, use->at - 2, marks))
            x = by->out[use->at - 2];
        else
            return false;
        any = true;
    }
}

/* Below SUM_LIMIT, as c is. */
static lreg sum_more(struct lowering *l, struct ltype t, lreg x, lreg y, lreg c)
{
    const struct ltype wide = wider(t);
    lreg sum = fl_op2(l, L_ADD, wide, c, fl_times_wide(l, t, x, y));
    return fl_op2(l, L_MIN, wide, sum, fl_op2(l, L_SUB, wide, sum, fl_constant(l, wide, SUM_LIMIT)));
}

/* What the loop began with, and the sum. */
static lreg body_sum(struct lowering *l, const void *self, const lreg *in)
{
    const struct ltype t = lf_type(l->f, in[0]);
    (void)self;
    return fl_plus(l, t, in[0], fl_reduced_wide(l, t, in[1]));
}

static void lower_for(struct lowering *l, const struct ltype *types, struct lstmt s)
{
    lreg *in = lf_lregs(l->f, s.in, s.n_in);
    bool *begins = NEW_ARRAY(l->f->arena, bool, s.n_out + 1);
    for (uint32_t i = 0; i < s.n_in; i++)
        in[i] = l->now[s.in[i].i];
    for (uint32_t k = 0; k < s.n_out; k++) {
        const lreg x = carried(l, &s, k);
        begins[k] = !l->sums[x.i] && is_sum(l, types, &s, k, false) && is_sum(l, types, &s, k, true);
        if (!l->sums[x.i])
            continue;
        l->f->types.data[x.i] = l->f->types.data[s.out[k].i] = wider(types[x.i]);
        if (begins[k])
            in[2 + k] = fl_constant(l, wider(types[x.i]), 0);
    }
    const lreg *first = s.in;
    s.in = in;
    keep(l, types, s);
    for (uint32_t k = 0; k < s.n_out; k++) {
        const struct ltype t = fl_words(types[s.out[k].i].lanes);
        if (!begins[k])
            continue;
        const lreg of[2] = {l->now[first[2 + k].i], s.out[k]};
        const char *name = arena_printf(l->f->arena, "sum.%u", t.lanes);
        l->now[s.out[k].i] = fl_applied(l, name, body_sum, NULL, of, 2);
    }
}

static void lower(struct lowering *l, const struct ltype *types, struct lstmt s)
{
    if (s.op == L_FOR) {
        lower_for(l, types, s);
        return;
    }
    struct ltype t = s.n_out ? types[s.out[0].i] : (struct ltype){0};
    enum elem from = operand_elem(types, &s);
    uint32_t lanes = s.n_in ? types[s.in[0].i].lanes : 0;
    lreg *in = lf_lregs(l->f, s.in, s.n_in), r = {0};
    struct ltype first = s.n_in ? types[s.in[0].i] : (struct ltype){0};
    for (uint32_t i = 0; i < s.n_in; i++)
        in[i] = l->now[in[i].i];
    s.in = in;
    if (s.op == L_FMA && l->sums[s.out[0].i]) {
        l->now[s.out[0].i] = sum_more(l, fl_words(t.lanes), in[0], in[1], in[2]);
        return;
    }
    const bool narrow = (elem_class(t.elem) == 'F' && t.lanes && !field_holds(t.elem)) || (from && !field_holds(from));
    if (s.op == L_CONST && field_holds(t.elem)) {
        l->facts->fractions |= field_is_fraction(s.fimm) || s.flags & L_FLAG_RESIDUE;
        l->facts->underflow |= s.fimm == -87;
        r = fl_constant(l, fl_words(t.lanes), s.flags & L_FLAG_RESIDUE ? (uint64_t)s.imm : field_of(s.fimm));
    } else if (s.op == L_CONVERT && (field_form(first.elem) || field_form(t.elem))) {
        r = outlined(l, &s, in, first, t);
        if (!r.i)
            fl_refuse(l, &s, elem_name(t.elem));
    } else if (s.op == L_BITCAST && first.elem == ELEM_F64 &&
               (t.elem == ELEM_U64 || t.elem == ELEM_I64)) { /* the bits of residues */
        r = fl_op1(l, L_BITCAST, t, fl_op1(l, L_CONVERT, (struct ltype){ELEM_U64, lanes}, in[0]));
    } else if (s.op == L_BITCAST && t.elem == ELEM_F64 && first.elem == ELEM_U64) {
        r = fl_op1(l, L_CONVERT, fl_words(lanes), fl_op1(l, L_BITCAST, (struct ltype){ELEM_U64, lanes}, in[0]));
    } else if (s.op == L_BITCAST && (first.elem == ELEM_F64 || t.elem == ELEM_F64)) {
        fl_refuse(l, &s, "f64");
    } else if ((s.op == L_DOT || s.op == L_MATDOT) && field_form(first.elem)) {
        r = outlined(l, &s, in, first, t);
    } else if (field_holds(from) && !moves(s.op)) {
        r = s.op == L_EQ || s.op == L_NE ? arithmetic(l, &s, in, lanes) : outlined(l, &s, in, first, t);
        if (!r.i)
            fl_refuse(l, &s, elem_name(from));
    } else if (narrow && !moves(s.op) && s.op != L_CONST) {
        fl_refuse(l, &s, elem_name(field_holds(from) || !from ? t.elem : from));
    }
    if (r.i)
        l->now[s.out[0].i] = r;
    else
        keep(l, types, s);
}

/* Writes 1 to the byte of this block; the body of the parallel loop has two, of the first index and of all others. */
static void mark(struct lowering *l, lblock b, bool parallel)
{
    struct ltype bytes = {ELEM_U8, 1}, index = {ELEM_I64, 1};
    const lreg at = fl_constant(l, index, (uint64_t)(FIELD_MARKS + l->facts->first + l->facts->blocks++));
    lreg place = fl_constant(l, index, 0);
    if (parallel) {
        const lreg n = l->f->blocks.data[b.i].params.data[0];
        l->facts->later = l->facts->blocks++;
        place = fl_chosen(l, index, fl_op2(l, L_NE, (struct ltype){ELEM_BOOL, 1}, n, place), fl_constant(l, index, 1),
                          place);
    }
    const lreg in[3] = {fl_op1(l, L_ADDRESS, (struct ltype){ELEM_U8, 0}, at), place, fl_constant(l, bytes, 1)};
    lf_stmt(l->f, l->b, L_STORE, in, 3);
}

/* Counts the statement at hand, a question whether the run is cancelled, and ends the run if there were too many. */
static void count_poll(struct lowering *l)
{
    struct ltype index = {ELEM_I64, 1};
    const lreg zero = fl_constant(l, index, 0), page = fl_constant(l, index, (uint64_t)FIELD_MARKS - FIELD_POLLS),
               at = fl_op1(l, L_ADDRESS, (struct ltype){ELEM_I64, 0}, page), last = fl_op2(l, L_LOAD, index, at, zero),
               now = fl_op2(l, L_ADD, index, last, fl_constant(l, index, 1)), in[3] = {at, zero, now};
    lf_stmt(l->f, l->b, L_STORE, in, 3);
    const lreg few = fl_op2(l, L_LT, (struct ltype){ELEM_BOOL, 1}, now, fl_constant(l, index, FIELD_POLLS_MOST));
    struct lstmt *check = lf_stmt(l->f, l->b, L_CHECK, &few, 1);
    check->imm = -7; /* MCC_E_CANCELLED */
    check->name = "a loop runs too long";
}

/* The body of a parallel loop is that of a branch that is not taken if the function is to be skipped. */
static lblock unless_skipped(struct lowering *l)
{
    const struct ltype index = {ELEM_I64, 1}, bytes = {ELEM_U8, 1};
    const lreg at = fl_constant(l, index, (uint64_t)FIELD_MARKS + FIELD_SKIPS + l->facts->first),
               skips = fl_op2(l, L_LOAD, bytes, fl_op1(l, L_ADDRESS, (struct ltype){ELEM_U8, 0}, at),
                              fl_constant(l, index, 0)),
               runs = fl_op2(l, L_EQ, (struct ltype){ELEM_BOOL, 1}, skips, fl_constant(l, bytes, 0));
    const lblock body = lf_block(l->f);
    lf_stmt(l->f, l->b, L_IF, &runs, 1)->block[0] = body;
    return body;
}

static void lower_block(struct lowering *l, const struct ltype *types, lblock b, bool parallel)
{
    struct lblk *blk = &l->f->blocks.data[b.i];
    const struct lstmt *old = blk->stmts.data;
    uint32_t n = blk->stmts.n;
    lblock outer = l->b;
    blk->stmts.data = NULL;
    blk->stmts.n = blk->stmts.cap = 0;
    l->b = b;
    if (parallel && l->facts->marked)
        l->b = unless_skipped(l);
    if (b.i != 1 && l->facts->marked)
        mark(l, b, parallel);
    for (uint32_t i = 0; i < n && !l->facts->why; i++) {
        if (l->facts->marked && old[i].op == L_CALL && strcmp(old[i].name, "mcc_rt_poll") == 0)
            count_poll(l);
        lower(l, types, old[i]);
    }
    l->b = outer;
}

static void count_uses(const struct lfunc *f, lblock b, struct use *uses)
{
    const struct lblk *block = &f->blocks.data[b.i];
    for (uint32_t i = 0; i < block->stmts.n; i++) {
        const struct lstmt *s = &block->stmts.data[i];
        for (uint32_t k = 0; k < s->n_in; k++)
            uses[s->in[k].i] = (struct use){uses[s->in[k].i].n + 1, b, s, k};
        for (uint32_t k = 0; k < COUNT_OF(s->block); k++)
            if (s->block[k].i)
                count_uses(f, s->block[k], uses);
    }
}

bool lf_field(struct lfunc *f, struct field_facts *facts)
{
    struct lowering l = {.f = f, .facts = facts};
    struct ltype *types = arena_copy(f->arena, f->types.data, f->types.n * sizeof *types);
    struct use *uses = NEW_ARRAY(f->arena, struct use, f->types.n);
    count_uses(f, (lblock){1}, uses);
    l.uses = uses;
    l.sums = NEW_ARRAY(f->arena, bool, f->types.n);
    l.now = NEW_ARRAY(f->arena, lreg, f->types.n);
    for (uint32_t i = 0; i < f->types.n; i++) {
        l.now[i] = (lreg){i};
        f->types.data[i].elem = held(types[i]);
    }
    for (uint32_t i = 0; i < f->args.n; i++)
        f->args.data[i].type.elem = held(f->args.data[i].type);
    lower_block(&l, types, (lblock){1}, false);
    if (!facts->why)
        lf_tidy(f);
    return !facts->why;
}

/* Registers of floats that passes still have: the residues that their bits are, and back. */
static lreg residue_in(struct lowering *l, lreg x)
{
    const struct ltype t = lf_type(l->f, x), bits = {ELEM_U64, t.lanes};
    return t.elem != ELEM_F64 ? fl_op1(l, L_BITCAST, fl_words(t.lanes), x)
                              : fl_op1(l, L_CONVERT, fl_words(t.lanes), fl_op1(l, L_BITCAST, bits, x));
}

static lreg with_residue(struct lowering *l, struct ltype t, lreg r)
{
    return fl_op1(l, L_BITCAST, t, t.elem != ELEM_F64 ? r : fl_op1(l, L_CONVERT, (struct ltype){ELEM_U64, t.lanes}, r));
}

lreg lf_field_function(struct lfunc *f, lblock b, enum op op, struct ltype t, const lreg *in, uint32_t n_in)
{
    struct lowering l = {.f = f, .b = b};
    lreg x[2] = {{0}};
    for (uint32_t k = 0; k < n_in && k < COUNT_OF(x); k++)
        x[k] = residue_in(&l, in[k]);
    return with_residue(&l, t, fl_function(&l, fl_words(t.lanes), op, x[0], x[1]));
}

lreg lf_field_to_real(struct lfunc *f, lblock b, lreg x)
{
    static const struct field_form form = {.values = FIELD_REAL_VALUES, .step = FIELD_REAL_STEP};
    struct lowering l = {.f = f, .b = b};
    const struct ltype t = lf_type(f, x);
    lreg r = fl_number_of(&l, &form, (struct ltype){ELEM_NONE, t.lanes}, FIELD_REAL_KEY, residue_in(&l, x));
    return t.elem == ELEM_F64 ? fl_op1(&l, L_CONVERT, t, r) : r;
}

lreg lf_field_from_real(struct lfunc *f, lblock b, lreg x)
{
    struct lowering l = {.f = f, .b = b};
    const struct ltype t = lf_type(f, x), single = {ELEM_F32, t.lanes};
    lreg r = t.elem == ELEM_F64 ? fl_op1(&l, L_CONVERT, single, x) : x;
    r = fl_op2(&l, L_MUL, single, r, fl_real(&l, t.lanes, 1 << FIELD_REAL_STEP));
    r = fl_op1(&l, L_RINT, single, fl_op2(&l, L_ADD, single, r, fl_real(&l, t.lanes, (double)FIELD_REAL_TIE)));
    r = fl_op2(&l, L_MUL, single, r, fl_real(&l, t.lanes, ldexp(1, -FIELD_REAL_STEP)));
    return with_residue(&l, t, fl_widened(&l, r));
}

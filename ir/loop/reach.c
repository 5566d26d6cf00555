/* lf_never: which loops and branches of a kernel its arguments rule out, by intervals of its indices. */
#include "ir/loop/internal.h"

struct reach {
    const struct lfunc *f;
    struct loop_range *of; /* by value: of scalars */
    bool *never;
    uint32_t blocks, room;
    lreg parallel;         /* the index of the parallel loop */
    int64_t modulus, remainder; /* of that index: modulus 0: it is not divided; remainder < 0: any */
    bool more; /* never has what other remainders say */
};

/* The largest modulus of which each remainder is tried. */
enum { MODULUS_MOST = 64 };

static const struct loop_range all = {INT64_MIN, INT64_MAX};

static struct loop_range truth(bool may_fail, bool may_hold)
{
    return (struct loop_range){!may_fail, may_hold};
}

/* Of the four results of an operation at the ends. */
static struct loop_range product(struct loop_range a, struct loop_range b)
{
    int64_t p[4];
    if (!mul_i64(a.lo, b.lo, &p[0]) || !mul_i64(a.lo, b.hi, &p[1]) || !mul_i64(a.hi, b.lo, &p[2]) ||
        !mul_i64(a.hi, b.hi, &p[3]))
        return all;
    struct loop_range r = {p[0], p[0]};
    for (int k = 1; k < 4; k++) {
        r.lo = p[k] < r.lo ? p[k] : r.lo;
        r.hi = p[k] > r.hi ? p[k] : r.hi;
    }
    return r;
}

static int64_t floor_quotient(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

static int64_t floor_remainder(int64_t a, int64_t b)
{
    return a % b + (a % b < 0 ? b : 0);
}

/* By a divisor of at least 1. */
static struct loop_range quotient(struct loop_range a, struct loop_range b)
{
    return (struct loop_range){floor_quotient(a.lo, a.lo < 0 ? b.lo : b.hi),
                               floor_quotient(a.hi, a.hi < 0 ? b.hi : b.lo)};
}

static struct loop_range sum(struct loop_range a, struct loop_range b, bool minus)
{
    struct loop_range r;
    if (minus && (b.lo == INT64_MIN || b.hi == INT64_MIN))
        return all;
    return add_i64(a.lo, minus ? -b.hi : b.lo, &r.lo) && add_i64(a.hi, minus ? -b.lo : b.hi, &r.hi) ? r : all;
}

static struct loop_range of_type(struct ltype t)
{
    return t.elem == ELEM_BOOL && t.lanes == 1 ? (struct loop_range){0, 1} : all;
}

/* Is it the parallel index modulo a constant, of which each remainder is tried? */
static bool is_remainder(struct reach *r, const struct lstmt *s)
{
    const struct loop_range by = s->op == L_FLOORMOD ? r->of[s->in[1].i] : all;
    if (s->op != L_FLOORMOD || s->in[0].i != r->parallel.i || by.lo != by.hi || by.lo < 2 || by.lo > MODULUS_MOST)
        return false;
    r->modulus = r->modulus ? r->modulus : by.lo;
    return r->modulus == by.lo && r->remainder >= 0;
}

/* Of a scalar result, index or bool. */
static struct loop_range computed(struct reach *r, const struct lstmt *s)
{
    if (is_remainder(r, s))
        return (struct loop_range){r->remainder, r->remainder};
    struct loop_range in[3] = {all, all, all}, a, b;
    for (uint32_t k = 0; k < s->n_in && k < COUNT_OF(in); k++)
        in[k] = r->of[s->in[k].i];
    a = in[0];
    b = in[1];
    const bool flag = s->type.elem == ELEM_BOOL, natural = a.lo >= 0 && b.lo >= 0;
    switch (s->op) {
    case L_CONST: return s->flags & L_FLAG_DATA ? of_type(s->type) : (struct loop_range){s->imm, s->imm};
    case L_ADD: return sum(a, b, false);
    case L_SUB: return sum(a, b, true);
    case L_MUL: return product(a, b);
    case L_FLOORDIV: return b.lo >= 1 ? quotient(a, b) : all;
    case L_FLOORMOD:
        if (b.lo < 1 || (a.lo >= 0 && a.hi < b.lo))
            return b.lo < 1 ? all : a;
        if (b.lo == b.hi && floor_quotient(a.lo, b.lo) == floor_quotient(a.hi, b.lo))
            return (struct loop_range){floor_remainder(a.lo, b.lo), floor_remainder(a.hi, b.lo)};
        return (struct loop_range){0, a.lo >= 0 && a.hi < b.hi ? a.hi : b.hi - 1};
    case L_SHR:
        if (b.lo != b.hi || b.lo < 0 || b.lo > 62)
            return all;
        return quotient(a, (struct loop_range){(int64_t)1 << b.lo, (int64_t)1 << b.lo});
    case L_MIN: return (struct loop_range){a.lo < b.lo ? a.lo : b.lo, a.hi < b.hi ? a.hi : b.hi};
    case L_MAX: return (struct loop_range){a.lo > b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi};
    case L_AND:
        if (flag)
            return truth(!a.lo || !b.lo, a.hi && b.hi);
        return natural ? (struct loop_range){0, a.hi < b.hi ? a.hi : b.hi} : all;
    case L_OR: return flag ? truth(!a.lo && !b.lo, a.hi || b.hi) : all;
    case L_NOT: return flag ? truth(a.hi, !a.lo) : all;
    case L_CONVERT: /* of an index or bool: others are not known */
        return flag ? truth(a.lo <= 0 && a.hi >= 0, a.lo || a.hi) : a;
    case L_LT: return truth(a.hi >= b.lo, a.lo < b.hi);
    case L_LE: return truth(a.hi > b.lo, a.lo <= b.hi);
    case L_EQ: return truth(a.lo != a.hi || b.lo != b.hi || a.lo != b.lo, a.lo <= b.hi && b.lo <= a.hi);
    case L_NE: return truth(a.lo <= b.hi && b.lo <= a.hi, a.lo != a.hi || b.lo != b.hi || a.lo != b.lo);
    case L_SELECT:
        return (struct loop_range){in[1].lo < in[2].lo ? in[1].lo : in[2].lo,
                                   in[1].hi > in[2].hi ? in[1].hi : in[2].hi};
    default: return of_type(s->type);
    }
}

/* In the order in which lf_field marks them. */
static void note(struct reach *r, bool reached)
{
    if (r->blocks < r->room)
        r->never[r->blocks] = !reached && (!r->more || r->never[r->blocks]);
    r->blocks++;
}

static void enter(struct reach *, lblock, bool reached);

static void walk(struct reach *r, lblock b, bool reached)
{
    const struct lblk *blk = &r->f->blocks.data[b.i];
    for (uint32_t i = 0; i < blk->stmts.n; i++) {
        const struct lstmt *s = &blk->stmts.data[i];
        const bool loop = s->op == L_FOR || s->op == L_PARALLEL;
        for (uint32_t k = 0; k < s->n_out; k++)
            r->of[s->out[k].i] = of_type(lf_type(r->f, s->out[k]));
        if (loop) {
            const struct loop_range lo = r->of[s->in[0].i], hi = r->of[s->in[1].i];
            const struct lblk *body = &r->f->blocks.data[s->block[0].i];
            for (uint32_t k = 0; k < body->params.n; k++)
                r->of[body->params.data[k].i] = of_type(lf_type(r->f, body->params.data[k]));
            if (body->params.n)
                r->of[body->params.data[0].i] = (struct loop_range){lo.lo, hi.hi == INT64_MIN ? hi.hi : hi.hi - 1};
            const bool runs = reached && lo.lo < hi.hi;
            if (s->op == L_PARALLEL) { /* the first index, all others */
                r->parallel = body->params.data[0];
                note(r, runs);
                note(r, runs && lo.lo < hi.hi - 1);
                walk(r, s->block[0], runs);
            } else {
                enter(r, s->block[0], runs);
            }
        } else if (s->op == L_IF) {
            const struct loop_range on = r->of[s->in[0].i];
            enter(r, s->block[0], reached && on.hi);
            enter(r, s->block[1], reached && !on.lo);
        } else if (s->n_out == 1 && s->type.lanes == 1 && (s->type.elem == ELEM_I64 || s->type.elem == ELEM_BOOL)) {
            r->of[s->out[0].i] = computed(r, s);
        }
    }
}

static void enter(struct reach *r, lblock b, bool reached)
{
    if (!b.i)
        return;
    note(r, reached);
    walk(r, b, reached);
}

static void walk_all(struct reach *r, const struct loop_range *args)
{
    const struct lfunc *f = r->f;
    r->blocks = 0;
    for (uint32_t i = 0; i < f->types.n; i++)
        r->of[i] = all;
    for (uint32_t i = 0; i < f->args.n; i++)
        if (f->args.data[i].type.lanes == 1)
            r->of[i + 1] = args[i];
    walk(r, (lblock){1}, true);
}

uint32_t lf_never(const struct lfunc *f, const struct loop_range *args, struct loop_range *scratch, bool *never,
                  uint32_t room)
{
    struct reach r = {.f = f, .of = scratch, .never = never, .room = room, .remainder = -1};
    walk_all(&r, args);
    for (r.remainder = 0; r.remainder < r.modulus; r.remainder++) {
        r.more = r.remainder > 0;
        walk_all(&r, args);
    }
    return r.blocks;
}

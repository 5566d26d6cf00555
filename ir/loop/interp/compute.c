/* The interpreter's statements that compute: lanes of values from lanes of values, and which of them are undefined. */
#include "ir/loop/interp/internal.h"

#include <math.h>

static void copy_lane(struct slot *to, uint32_t i, const struct slot *from, uint32_t k)
{
    uint32_t size = elem_size(to->elem);
    memcpy(to->data + (size_t)i * size, from->data + (size_t)k * size, size);
    to->undef[i] = from->undef[k];
    to->any_undef |= from->undef[k];
}

/* A lane of the result is undefined where a lane of any operand is. */
static void merge_undef(struct interp *in, const struct lstmt *s)
{
    struct slot *r = slot_out(in, s);
    slot_define(r);
    for (uint32_t i = 0; i < s->n_in; i++) {
        const struct slot *x = slot_in(in, s, i);
        for (uint32_t k = 0; x->any_undef && k < r->lanes; k++)
            r->undef[k] |= x->undef[k];
        r->any_undef |= x->any_undef;
    }
}

void exec_const(struct interp *in, const struct lstmt *s)
{
    struct slot *r = slot_out(in, s);
    uint32_t size = elem_size(r->elem);
    if (elem_class(r->elem) == 'F')
        elem_from_f64(r->elem, s->fimm, r->data);
    else
        memcpy(r->data, &s->imm, size);
    for (uint32_t i = 1; i < r->lanes; i++)
        memcpy(r->data + (size_t)i * size, r->data, size);
    slot_define(r);
}

static void check_divisor(struct interp *in, const struct lstmt *s)
{
    const struct slot *d = slot_in(in, s, 1);
    bool floors = s->op == L_FLOORDIV || s->op == L_FLOORMOD;
    if (elem_class(d->elem) == 'F')
        return;
    for (uint32_t i = 0; i < d->lanes; i++) {
        int64_t x = loop_int_lane(d->elem, d->data, i);
        if (!d->undef[i] && (x == 0 || (floors && x < 0 && elem_class(d->elem) == 'I')))
            interp_broken(in, s, "divisor is zero, or not positive");
    }
}

/* Lanes of L_LDEXP that it has no meaning for are undefined: targets compute it in several ways. */
static void limit_ldexp(struct interp *in, const struct lstmt *s)
{
    struct slot *r = slot_out(in, s);
    const uint32_t size = elem_size(r->elem);
    const double most = r->elem == ELEM_F64 ? 2044 : 252;
    for (uint32_t i = 0; i < r->lanes; i++) {
        const double a = fabs(elem_to_f64(r->elem, slot_in(in, s, 0)->data + (size_t)i * size)),
                     b = elem_to_f64(r->elem, slot_in(in, s, 1)->data + (size_t)i * size);
        const bool has = isnan(b) || ((isnan(a) || (a >= 0.25 && a <= 4)) && fabs(b) <= most && b == rint(b));
        r->undef[i] |= !has;
        r->any_undef |= !has;
    }
}

void exec_same(struct interp *in, const struct lstmt *s)
{
    struct slot *r = slot_out(in, s);
    if (s->op == L_IOTA) {
        uint32_t size = elem_size(r->elem);
        for (uint64_t i = 0; i < r->lanes; i++)
            memcpy(r->data + i * size, &i, size);
        return;
    }
    if (s->op == L_DIV || s->op == L_REM || s->op == L_FLOORDIV || s->op == L_FLOORMOD)
        check_divisor(in, s);
    if (s->op == L_FMA && in->host->unfused && (r->elem == ELEM_F32 || r->elem == ELEM_F64)) {
        loop_compute(L_MUL, r->elem, r->lanes, slot_in(in, s, 0)->data, slot_in(in, s, 1)->data, NULL, r->data);
        loop_compute(L_ADD, r->elem, r->lanes, r->data, slot_in(in, s, 2)->data, NULL, r->data);
        merge_undef(in, s);
        return;
    }
    loop_compute(s->op, r->elem, r->lanes, slot_in(in, s, 0)->data, s->n_in > 1 ? slot_in(in, s, 1)->data : NULL,
                 s->n_in > 2 ? slot_in(in, s, 2)->data : NULL, r->data);
    merge_undef(in, s);
    if (s->op == L_LDEXP)
        limit_ldexp(in, s);
}

/* A lane of the result is undefined where a lane that it sums is. */
void exec_dot(struct interp *in, const struct lstmt *s)
{
    const struct slot *a = slot_in(in, s, 0), *b = slot_in(in, s, 1), *c = slot_in(in, s, 2);
    struct slot *r = slot_out(in, s);
    uint32_t group = a->lanes / r->lanes;
    loop_dot(r->elem, a->elem, r->lanes, group, a->data, b->data, c->data, r->data);
    slot_define(r);
    for (uint32_t i = 0; i < a->lanes && (a->any_undef || b->any_undef || c->any_undef); i++) {
        r->undef[i / group] |= a->undef[i] | b->undef[i] | c->undef[i / group];
        r->any_undef |= r->undef[i / group];
    }
}

static bool word_undef(const struct slot *x, uint32_t group, uint32_t word)
{
    for (uint32_t i = group * word; x->any_undef && i < group * (word + 1); i++)
        if (x->undef[i])
            return true;
    return false;
}

void exec_matdot(struct interp *in, const struct lstmt *s)
{
    const struct slot *a = slot_in(in, s, 0), *b = slot_in(in, s, 1), *c = slot_in(in, s, 2);
    struct slot *r = slot_out(in, s);
    uint32_t group = a->lanes / r->lanes;
    loop_matdot(r->elem, a->elem, r->lanes, a->data, b->data, c->data, r->data);
    slot_define(r);
    for (uint32_t i = 0; i < r->lanes; i++) {
        bool undef = c->any_undef && c->undef[i];
        for (uint32_t step = 0; step < 2; step++)
            undef |= word_undef(a, group, matdot_row(i, step)) || word_undef(b, group, matdot_column(i, step));
        r->undef[i] = undef;
        r->any_undef |= undef;
    }
}

void exec_compare(struct interp *in, const struct lstmt *s)
{
    const struct slot *a = slot_in(in, s, 0);
    loop_compare(s->op, a->elem, a->lanes, a->data, slot_in(in, s, 1)->data, slot_out(in, s)->data);
    merge_undef(in, s);
}

void exec_select(struct interp *in, const struct lstmt *s)
{
    const struct slot *c = slot_in(in, s, 0);
    struct slot *r = slot_out(in, s);
    if (r->lanes == 0) {
        if (interp_defined(in, s, c, "condition"))
            r->mem = slot_in(in, s, c->data[0] ? 1 : 2)->mem;
        return;
    }
    slot_define(r);
    for (uint32_t i = 0; i < r->lanes; i++) {
        uint32_t k = c->lanes == 1 ? 0 : i;
        copy_lane(r, i, slot_in(in, s, c->data[k] ? 1 : 2), i);
        r->undef[i] |= c->undef[k];
    }
    r->any_undef |= c->any_undef;
}

void exec_convert(struct interp *in, const struct lstmt *s)
{
    const struct slot *a = slot_in(in, s, 0);
    struct slot *r = slot_out(in, s);
    elems_convert(a->elem, a->data, r->elem, r->data, r->lanes, s->imm != 0, s->name ? s->name : "even");
    merge_undef(in, s);
}

void exec_bitcast(struct interp *in, const struct lstmt *s)
{
    const struct slot *a = slot_in(in, s, 0);
    struct slot *r = slot_out(in, s);
    memcpy(r->data, a->data, (size_t)r->lanes * elem_size(r->elem));
    if (a->lanes == r->lanes) {
        merge_undef(in, s);
        return;
    }
    memset(r->undef, a->any_undef, r->lanes); /* lanes straddle: one undefined lane spoils all */
    r->any_undef = a->any_undef;
}

void exec_splat(struct interp *in, const struct lstmt *s)
{
    struct slot *r = slot_out(in, s);
    slot_define(r);
    for (uint32_t i = 0; i < r->lanes; i++)
        copy_lane(r, i, slot_in(in, s, 0), 0);
}

void exec_extract(struct interp *in, const struct lstmt *s)
{
    struct slot *r = slot_out(in, s);
    slot_define(r);
    copy_lane(r, 0, slot_in(in, s, 0), (uint32_t)s->imm);
}

void exec_insert(struct interp *in, const struct lstmt *s)
{
    struct slot *r = slot_out(in, s);
    const struct slot *v = slot_in(in, s, 0);
    slot_define(r);
    for (uint32_t i = 0; i < r->lanes; i++) {
        bool here = i == (uint32_t)s->imm;
        copy_lane(r, i, here ? slot_in(in, s, 1) : v, here ? 0 : i);
    }
}

void exec_shuffle(struct interp *in, const struct lstmt *s)
{
    const struct slot *a = slot_in(in, s, 0);
    struct slot *r = slot_out(in, s);
    slot_define(r);
    for (uint32_t i = 0; i < r->lanes; i++) {
        bool second = s->aux[i] >= a->lanes;
        copy_lane(r, i, slot_in(in, s, second), second ? s->aux[i] - a->lanes : s->aux[i]);
    }
}

void exec_hreduce(struct interp *in, const struct lstmt *s)
{
    const struct slot *a = slot_in(in, s, 0);
    struct slot *r = slot_out(in, s);
    uint32_t size = elem_size(a->elem);
    _Alignas(8) uint8_t lanes[LOOP_LANES_MAX * 8];
    memcpy(lanes, a->data, (size_t)a->lanes * size);
    for (uint32_t n = a->lanes / 2; n > 0; n /= 2)
        loop_compute((enum lop)s->imm, a->elem, n, lanes, lanes + (size_t)n * size, NULL, lanes);
    memcpy(r->data, lanes, size);
    r->undef[0] = r->any_undef = a->any_undef;
}

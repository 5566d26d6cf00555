/* Runs verified loop-IR functions with everything checked that the verifier cannot see: bounds and promised alignment
 * of every access, divisors, and use of undefined memory. A broken rule ends the run with code -100.
 *
 * Undefinedness is a flag on each lane: reading an unwritten part of a local sets it, arithmetic hands it on, select
 * and shuffles move it. Storing such a lane into an argument, or using it as index, mask, condition, bound or argument
 * of a call, breaks a rule; storing it into a local is fine. Slow on purpose where that keeps it simple: for shrunk
 * shapes.
 */
#include "ir/loop/internal.h"

#include <inttypes.h>
#include <string.h>

enum { BROKEN = -100 };

/* Bytes of a buffer; init: one flag per byte of a local, NULL elsewhere (everything defined). */
struct memory {
    uint8_t *data, *init;
    int64_t bytes;
};

struct slot { /* one value */
    uint8_t *data, *undef; /* lanes * element size, lanes */
    uint8_t *spare, *spare_undef; /* block parameters: what the next trip carries */
    bool any_undef, spare_any;
    struct memory mem, spare_mem; /* buffers */
    enum elem elem;
    uint32_t lanes;
};

struct segment {
    int64_t address, bytes;
};

struct interp {
    const struct lfunc *f;
    struct arena arena;
    struct slot *slots;
    const struct linterp_host *host;
    struct linterp_result result;
    int64_t begin, end;
    bool stopped;
    VEC(uint32_t) locals; /* values that are locals: forgotten at each parallel index */
    VEC(struct segment) segments; /* memory handed out by mcc_rt_segment */
    VEC(struct linterp_arg) call_args;
};

typedef void exec_fn(struct interp *, const struct lstmt *);

static void broken(struct interp *in, const struct lstmt *s, const char *what)
{
    if (in->stopped)
        return;
    in->stopped = true;
    const char *result = "";
    if (s->n_out) {
        uint32_t *number = loop_numbers(in->f, &in->arena);
        result = arena_printf(&in->arena, "%%%u = ", number[s->out[0].i]);
    }
    in->result = (struct linterp_result){
        BROKEN, s->node, arena_printf(in->f->arena, "@%s: %s%s: %s", in->f->name, result, lop_name(s->op), what)};
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static struct slot *slot_in(struct interp *in, const struct lstmt *s, uint32_t operand)
{
    return &in->slots[s->in[operand].i];
}

static struct slot *slot_out(struct interp *in, const struct lstmt *s)
{
    return &in->slots[s->out[0].i];
}

static void slot_init(struct interp *in, uint32_t value)
{
    struct slot *x = &in->slots[value];
    struct ltype t = in->f->types.data[value];
    size_t bytes = t.elem ? (size_t)t.lanes * elem_size(t.elem) : 0;
    *x = (struct slot){.elem = t.elem, .lanes = t.lanes};
    if (bytes == 0)
        return;
    x->data = arena_alloc(&in->arena, 2 * (bytes + t.lanes));
    x->spare = x->data + bytes; /* aligned as the elements want it */
    x->undef = x->spare + bytes;
    x->spare_undef = x->undef + t.lanes;
}

static void all_defined(struct slot *x)
{
    if (x->any_undef)
        memset(x->undef, 0, x->lanes);
    x->any_undef = false;
}

static bool need_defined(struct interp *in, const struct lstmt *s, const struct slot *x, const char *as)
{
    if (x->any_undef)
        broken(in, s, arena_printf(&in->arena, "undefined value used as %s", as));
    return !x->any_undef;
}

static int64_t index_of(const struct slot *x)
{
    return loop_int_lane(ELEM_I64, x->data, 0);
}

static void set_index(struct slot *x, int64_t value)
{
    memcpy(x->data, &value, sizeof value);
    all_defined(x);
}

static void copy_lane(struct slot *to, uint32_t i, const struct slot *from, uint32_t k)
{
    uint32_t size = elem_size(to->elem);
    memcpy(to->data + (size_t)i * size, from->data + (size_t)k * size, size);
    to->undef[i] = from->undef[k];
    to->any_undef |= from->undef[k];
}

static void copy_slot(struct slot *to, const struct slot *from)
{
    if (to->lanes == 0) {
        to->mem = from->mem;
        return;
    }
    memcpy(to->data, from->data, (size_t)to->lanes * elem_size(to->elem));
    memcpy(to->undef, from->undef, to->lanes);
    to->any_undef = from->any_undef;
}

/* A lane of the result is undefined where a lane of any operand is. */
static void merge_undef(struct interp *in, const struct lstmt *s)
{
    struct slot *r = slot_out(in, s);
    all_defined(r);
    for (uint32_t i = 0; i < s->n_in; i++) {
        const struct slot *x = slot_in(in, s, i);
        for (uint32_t k = 0; x->any_undef && k < r->lanes; k++)
            r->undef[k] |= x->undef[k];
        r->any_undef |= x->any_undef;
    }
}

/* ---- arithmetic -------------------------------------------------------------------------------------------------- */

static void exec_const(struct interp *in, const struct lstmt *s)
{
    struct slot *r = slot_out(in, s);
    uint32_t size = elem_size(r->elem);
    if (elem_class(r->elem) == 'F')
        elem_from_f64(r->elem, s->fimm, r->data);
    else
        memcpy(r->data, &s->imm, size);
    for (uint32_t i = 1; i < r->lanes; i++)
        memcpy(r->data + (size_t)i * size, r->data, size);
    all_defined(r);
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
            broken(in, s, "divisor is zero, or not positive");
    }
}

static void exec_same(struct interp *in, const struct lstmt *s)
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
    loop_compute(s->op, r->elem, r->lanes, slot_in(in, s, 0)->data, s->n_in > 1 ? slot_in(in, s, 1)->data : NULL,
                 s->n_in > 2 ? slot_in(in, s, 2)->data : NULL, r->data);
    merge_undef(in, s);
}

/* A lane of the result is undefined where a lane that it sums is. */
static void exec_dot(struct interp *in, const struct lstmt *s)
{
    const struct slot *a = slot_in(in, s, 0), *b = slot_in(in, s, 1), *c = slot_in(in, s, 2);
    struct slot *r = slot_out(in, s);
    uint32_t group = a->lanes / r->lanes;
    loop_dot(r->elem, a->elem, r->lanes, a->data, b->data, c->data, r->data);
    all_defined(r);
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

static void exec_matdot(struct interp *in, const struct lstmt *s)
{
    const struct slot *a = slot_in(in, s, 0), *b = slot_in(in, s, 1), *c = slot_in(in, s, 2);
    struct slot *r = slot_out(in, s);
    uint32_t group = a->lanes / r->lanes;
    loop_matdot(r->elem, a->elem, r->lanes, a->data, b->data, c->data, r->data);
    all_defined(r);
    for (uint32_t i = 0; i < r->lanes; i++) {
        bool undef = c->any_undef && c->undef[i];
        for (uint32_t step = 0; step < 2; step++)
            undef |= word_undef(a, group, matdot_row(i, step)) || word_undef(b, group, matdot_column(i, step));
        r->undef[i] = undef;
        r->any_undef |= undef;
    }
}

static void exec_compare(struct interp *in, const struct lstmt *s)
{
    const struct slot *a = slot_in(in, s, 0);
    loop_compare(s->op, a->elem, a->lanes, a->data, slot_in(in, s, 1)->data, slot_out(in, s)->data);
    merge_undef(in, s);
}

static void exec_select(struct interp *in, const struct lstmt *s)
{
    const struct slot *c = slot_in(in, s, 0);
    struct slot *r = slot_out(in, s);
    if (r->lanes == 0) {
        if (need_defined(in, s, c, "condition"))
            r->mem = slot_in(in, s, c->data[0] ? 1 : 2)->mem;
        return;
    }
    all_defined(r);
    for (uint32_t i = 0; i < r->lanes; i++) {
        uint32_t k = c->lanes == 1 ? 0 : i;
        copy_lane(r, i, slot_in(in, s, c->data[k] ? 1 : 2), i);
        r->undef[i] |= c->undef[k];
    }
    r->any_undef |= c->any_undef;
}

static void exec_convert(struct interp *in, const struct lstmt *s)
{
    const struct slot *a = slot_in(in, s, 0);
    struct slot *r = slot_out(in, s);
    elems_convert(a->elem, a->data, r->elem, r->data, r->lanes, s->imm != 0, s->name ? s->name : "even");
    merge_undef(in, s);
}

static void exec_bitcast(struct interp *in, const struct lstmt *s)
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

static void exec_splat(struct interp *in, const struct lstmt *s)
{
    struct slot *r = slot_out(in, s);
    all_defined(r);
    for (uint32_t i = 0; i < r->lanes; i++)
        copy_lane(r, i, slot_in(in, s, 0), 0);
}

static void exec_extract(struct interp *in, const struct lstmt *s)
{
    struct slot *r = slot_out(in, s);
    all_defined(r);
    copy_lane(r, 0, slot_in(in, s, 0), (uint32_t)s->imm);
}

static void exec_insert(struct interp *in, const struct lstmt *s)
{
    struct slot *r = slot_out(in, s);
    const struct slot *v = slot_in(in, s, 0);
    all_defined(r);
    for (uint32_t i = 0; i < r->lanes; i++) {
        bool here = i == (uint32_t)s->imm;
        copy_lane(r, i, here ? slot_in(in, s, 1) : v, here ? 0 : i);
    }
}

static void exec_shuffle(struct interp *in, const struct lstmt *s)
{
    const struct slot *a = slot_in(in, s, 0);
    struct slot *r = slot_out(in, s);
    all_defined(r);
    for (uint32_t i = 0; i < r->lanes; i++) {
        bool second = s->aux[i] >= a->lanes;
        copy_lane(r, i, slot_in(in, s, second), second ? s->aux[i] - a->lanes : s->aux[i]);
    }
}

static void exec_hreduce(struct interp *in, const struct lstmt *s)
{
    const struct slot *a = slot_in(in, s, 0);
    struct slot *r = slot_out(in, s);
    uint32_t size = elem_size(a->elem);
    _Alignas(8) uint8_t lanes[LANES_MAX * 8];
    memcpy(lanes, a->data, (size_t)a->lanes * size);
    for (uint32_t n = a->lanes / 2; n > 0; n /= 2)
        loop_compute((enum lop)s->imm, a->elem, n, lanes, lanes + (size_t)n * size, NULL, lanes);
    memcpy(r->data, lanes, size);
    r->undef[0] = r->any_undef = a->any_undef;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Address of lane i's element, checked; NULL after a broken rule. */
static uint8_t *lane_address(struct interp *in, const struct lstmt *s, struct lmem m, uint32_t size, uint32_t i)
{
    const struct memory *mem = &slot_in(in, s, 0)->mem;
    const struct slot *index = slot_in(in, s, 1);
    int64_t at = loop_int_lane(ELEM_I64, index->data, index->lanes > 1 ? i : 0), step = 0;
    bool indirect = s->op == L_GATHER || s->op == L_SCATTER;
    if (!indirect && m.stride < 0)
        step = i;
    else if (!indirect && !mul_i64(index_of(slot_in(in, s, (uint32_t)m.stride)), i, &step))
        at = -1;
    if (!add_i64(at, step, &at) || at < 0 || at >= mem->bytes / size) {
        broken(in, s,
               arena_printf(&in->arena, "element %" PRId64 " (lane %u) of a buffer of %" PRId64, at, i,
                            mem->bytes / size));
        return NULL;
    }
    uint8_t *p = mem->data + at * size;
    uint32_t align = i == 0 && s->align > size ? s->align : s->align && s->align < size ? s->align : size;
    if ((uintptr_t)p % align != 0)
        broken(in, s, arena_printf(&in->arena, "element %" PRId64 " is not aligned to %u bytes", at, align));
    return in->stopped ? NULL : p;
}

static bool access_defined(struct interp *in, const struct lstmt *s, struct lmem m)
{
    return need_defined(in, s, slot_in(in, s, 1), "index") &&
           (m.stride < 0 || need_defined(in, s, slot_in(in, s, (uint32_t)m.stride), "stride")) &&
           (m.mask < 0 || need_defined(in, s, slot_in(in, s, (uint32_t)m.mask), "mask"));
}

static void exec_load(struct interp *in, const struct lstmt *s)
{
    struct lmem m = lstmt_mem(s);
    struct slot *r = slot_out(in, s);
    const struct memory *mem = &slot_in(in, s, 0)->mem;
    uint32_t size = elem_size(r->elem);
    if (!access_defined(in, s, m))
        return;
    all_defined(r);
    for (uint32_t i = 0; i < r->lanes; i++) {
        uint8_t *to = r->data + (size_t)i * size;
        if (m.mask > 0 && !slot_in(in, s, (uint32_t)m.mask)->data[i]) {
            memset(to, 0, size);
            continue;
        }
        const uint8_t *p = lane_address(in, s, m, size, i);
        if (!p)
            return;
        memcpy(to, p, size);
        if (r->elem == ELEM_BOOL)
            *to = *to != 0;
        for (uint32_t b = 0; mem->init && b < size; b++)
            r->undef[i] |= !mem->init[p - mem->data + b];
        r->any_undef |= r->undef[i];
    }
}

static void exec_store(struct interp *in, const struct lstmt *s)
{
    struct lmem m = lstmt_mem(s);
    const struct slot *v = slot_in(in, s, (uint32_t)m.value);
    const struct memory *mem = &slot_in(in, s, 0)->mem;
    uint32_t size = elem_size(v->elem);
    if (!access_defined(in, s, m))
        return;
    for (uint32_t i = 0; i < v->lanes; i++) {
        if (m.mask > 0 && !slot_in(in, s, (uint32_t)m.mask)->data[i])
            continue;
        uint8_t *p = lane_address(in, s, m, size, i);
        if (!p)
            return;
        if (v->undef[i] && !mem->init) {
            broken(in, s, arena_printf(&in->arena, "lane %u of the stored value is undefined", i));
            return;
        }
        memcpy(p, v->data + (size_t)i * size, size);
        if (mem->init)
            memset(mem->init + (p - mem->data), !v->undef[i], size);
    }
}

static void exec_local(struct interp *in, const struct lstmt *s)
{
    struct slot *r = slot_out(in, s);
    int64_t bytes = s->imm * elem_size(r->elem);
    if (!r->mem.data) {
        uint8_t *raw = arena_alloc(&in->arena, (size_t)bytes + 64);
        r->mem = (struct memory){raw + (64 - (uintptr_t)raw % 64) % 64, arena_alloc(&in->arena, (size_t)bytes), bytes};
        VEC_PUSH(&in->arena, &in->locals, s->out[0].i);
    }
    memset(r->mem.init, 0, (size_t)bytes);
}

static void exec_offset(struct interp *in, const struct lstmt *s)
{
    const struct memory *mem = &slot_in(in, s, 0)->mem;
    int64_t by = index_of(slot_in(in, s, 1));
    if (!need_defined(in, s, slot_in(in, s, 1), "offset"))
        return;
    if (by < 0 || by > mem->bytes) {
        broken(in, s, arena_printf(&in->arena, "byte %" PRId64 " of a buffer of %" PRId64, by, mem->bytes));
        return;
    }
    slot_out(in, s)->mem = (struct memory){mem->data + by, mem->init ? mem->init + by : NULL, mem->bytes - by};
}

/* Segments have their size; of other addresses only the caller knows how far they reach. */
static void exec_address(struct interp *in, const struct lstmt *s)
{
    int64_t address = index_of(slot_in(in, s, 0)), bytes = INT64_MAX;
    if (!need_defined(in, s, slot_in(in, s, 0), "address"))
        return;
    for (uint32_t i = 0; i < in->segments.n; i++)
        if (in->segments.data[i].address == address)
            bytes = in->segments.data[i].bytes;
    slot_out(in, s)->mem = (struct memory){(uint8_t *)(uintptr_t)address, NULL, bytes};
}

static void exec_shared(struct interp *in, const struct lstmt *s)
{
    struct slot *r = slot_out(in, s);
    r->data[0] = slot_in(in, s, 0)->mem.data == slot_in(in, s, 1)->mem.data;
    all_defined(r);
}

/* ---- control ----------------------------------------------------------------------------------------------------- */

static void exec_block(struct interp *, lblock);

static void exec_control(struct interp *in, const struct lstmt *s)
{
    (void)in, (void)s; /* a yield: its owner fetches the operands; a prefetch: nothing to see */
}

static const struct lstmt *yield_of(const struct interp *in, lblock b)
{
    const struct lblk *blk = &in->f->blocks.data[b.i];
    return &blk->stmts.data[blk->stmts.n - 1];
}

/* Parameters take what the body yields, all at once: a yield may name a parameter. */
static void carry_over(struct interp *in, const struct lblk *body, const struct lstmt *yield)
{
    for (uint32_t i = 0; i < yield->n_in; i++) {
        struct slot *p = &in->slots[body->params.data[i + 1].i];
        const struct slot *y = &in->slots[yield->in[i].i];
        p->spare_mem = y->mem;
        p->spare_any = y->any_undef;
        if (p->lanes) {
            memcpy(p->spare, y->data, (size_t)p->lanes * elem_size(p->elem));
            memcpy(p->spare_undef, y->undef, p->lanes);
        }
    }
    for (uint32_t i = 0; i < yield->n_in; i++) {
        struct slot *p = &in->slots[body->params.data[i + 1].i];
        uint8_t *data = p->data, *undef = p->undef;
        p->data = p->spare;
        p->undef = p->spare_undef;
        p->spare = data;
        p->spare_undef = undef;
        p->mem = p->spare_mem;
        p->any_undef = p->spare_any;
    }
}

static void exec_for(struct interp *in, const struct lstmt *s)
{
    const struct lblk *body = &in->f->blocks.data[s->block[0].i];
    int64_t hi = index_of(slot_in(in, s, 1));
    if (!need_defined(in, s, slot_in(in, s, 0), "bound") || !need_defined(in, s, slot_in(in, s, 1), "bound"))
        return;
    for (uint32_t i = 2; i < s->n_in; i++)
        copy_slot(&in->slots[body->params.data[i - 1].i], slot_in(in, s, i));
    for (int64_t v = index_of(slot_in(in, s, 0)); v < hi && !in->stopped;) {
        if (s->flags & L_FLAG_WHILE) {
            const struct slot *go = &in->slots[body->params.data[1].i];
            if (!need_defined(in, s, go, "condition") || !go->data[0])
                break;
        }
        set_index(&in->slots[body->params.data[0].i], v);
        exec_block(in, s->block[0]);
        if (s->n_out && !in->stopped)
            carry_over(in, body, yield_of(in, s->block[0]));
        if (!add_i64(v, s->imm, &v))
            break;
    }
    for (uint32_t i = 0; i < s->n_out; i++)
        copy_slot(&in->slots[s->out[i].i], &in->slots[body->params.data[i + 1].i]);
}

static void exec_parallel(struct interp *in, const struct lstmt *s)
{
    struct slot *index = &in->slots[in->f->blocks.data[s->block[0].i].params.data[0].i];
    if (!need_defined(in, s, slot_in(in, s, 0), "bound") || !need_defined(in, s, slot_in(in, s, 1), "bound"))
        return;
    int64_t lo = index_of(slot_in(in, s, 0)), hi = index_of(slot_in(in, s, 1));
    lo = lo > in->begin ? lo : in->begin;
    hi = hi < in->end ? hi : in->end;
    for (int64_t v = lo; v < hi && !in->stopped; v++) {
        for (uint32_t i = 0; i < in->locals.n; i++) {
            const struct memory *mem = &in->slots[in->locals.data[i]].mem;
            memset(mem->init, 0, (size_t)mem->bytes);
        }
        set_index(index, v);
        exec_block(in, s->block[0]);
    }
}

static void exec_if(struct interp *in, const struct lstmt *s)
{
    const struct slot *c = slot_in(in, s, 0);
    if (!need_defined(in, s, c, "condition"))
        return;
    lblock b = s->block[c->data[0] ? 0 : 1];
    if (b.i)
        exec_block(in, b);
    for (uint32_t i = 0; i < s->n_out && !in->stopped; i++)
        copy_slot(&in->slots[s->out[i].i], &in->slots[yield_of(in, b)->in[i].i]);
}

static void exec_check(struct interp *in, const struct lstmt *s)
{
    const struct slot *c = slot_in(in, s, 0);
    bool holds = need_defined(in, s, c, "condition");
    for (uint32_t i = 0; holds && i < c->lanes; i++)
        holds = c->data[i];
    if (!holds && !in->stopped) {
        in->stopped = true;
        in->result = (struct linterp_result){(int)s->imm, s->node, s->name};
    }
}

static bool collect_args(struct interp *in, const struct lstmt *s, uint32_t n)
{
    in->call_args.n = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct slot *x = slot_in(in, s, i);
        struct linterp_arg a = {0};
        if (x->lanes && !need_defined(in, s, x, "argument"))
            return false;
        if (x->lanes)
            a.index = index_of(x);
        else
            a.buffer = (struct lbuffer){x->mem.data, x->mem.bytes};
        if (x->mem.init) /* what the callee writes is not seen: take it all as written */
            memset(x->mem.init, 1, (size_t)x->mem.bytes);
        VEC_PUSH(&in->arena, &in->call_args, a);
    }
    return true;
}

static void exec_call(struct interp *in, const struct lstmt *s)
{
    if (!collect_args(in, s, s->n_in))
        return;
    if (!in->host || !in->host->call) {
        broken(in, s, "nobody to call");
        return;
    }
    bool failed = false;
    int64_t r = in->host->call(in->host->user, s->name, in->call_args.data, s->n_in, &failed);
    if (failed || ((s->flags & L_FLAG_MAYFAIL) && r < 0)) {
        in->stopped = true;
        in->result = (struct linterp_result){r < 0 && r > INT32_MIN ? (int)r : BROKEN, s->node, s->name};
        return;
    }
    if (strcmp(s->name, "mcc_rt_segment") == 0 && s->n_in == 1 && r > 0)
        VEC_PUSH(&in->arena, &in->segments, ((struct segment){r, in->call_args.data[0].index}));
    if (strcmp(s->name, "mcc_rt_grow") == 0 && s->n_in == 3 && r > 0) /* the slot holds address and size */
        VEC_PUSH(&in->arena, &in->segments,
                 ((struct segment){r, ((const int64_t *)in->call_args.data[0].buffer.data)[1]}));
    if (s->n_out)
        set_index(slot_out(in, s), r);
}

static void exec_launch(struct interp *in, const struct lstmt *s)
{
    const struct slot *count = slot_in(in, s, s->n_in - 1);
    if (!collect_args(in, s, s->n_in - 1) || !need_defined(in, s, count, "count"))
        return;
    if (!in->host || !in->host->launch) {
        broken(in, s, "nobody to launch");
        return;
    }
    int code = in->host->launch(in->host->user, s->name, in->call_args.data, s->n_in - 1, index_of(count));
    if (code != 0) {
        in->stopped = true;
        in->result = (struct linterp_result){code, s->node, s->name};
    }
}

static exec_fn *const exec[LRULE_COUNT] = {
    [LRULE_CONST] = exec_const,     [LRULE_SAME] = exec_same,       [LRULE_COMPARE] = exec_compare,
    [LRULE_MATDOT] = exec_matdot,   [LRULE_DOT] = exec_dot,         [LRULE_SELECT] = exec_select,
    [LRULE_CONVERT] = exec_convert, [LRULE_BITCAST] = exec_bitcast, [LRULE_SPLAT] = exec_splat,
    [LRULE_EXTRACT] = exec_extract, [LRULE_INSERT] = exec_insert,   [LRULE_SHUFFLE] = exec_shuffle,
    [LRULE_HREDUCE] = exec_hreduce, [LRULE_LOAD] = exec_load,       [LRULE_STORE] = exec_store,
    [LRULE_LOCAL] = exec_local,     [LRULE_OFFSET] = exec_offset,   [LRULE_PREFETCH] = exec_control,
    [LRULE_ADDRESS] = exec_address, [LRULE_FOR] = exec_for,         [LRULE_PARALLEL] = exec_parallel,
    [LRULE_IF] = exec_if,           [LRULE_YIELD] = exec_control,   [LRULE_CHECK] = exec_check,
    [LRULE_CALL] = exec_call,       [LRULE_LAUNCH] = exec_launch,   [LRULE_SHARED] = exec_shared,
};

static void exec_block(struct interp *in, lblock b)
{
    const struct lblk *blk = &in->f->blocks.data[b.i];
    for (uint32_t i = 0; i < blk->stmts.n && !in->stopped; i++)
        exec[lop_table[blk->stmts.data[i].op].rule](in, &blk->stmts.data[i]);
}

static void bind_args(struct interp *in, const struct linterp_arg *args)
{
    for (uint32_t i = 0; i < in->f->args.n; i++) {
        struct slot *x = &in->slots[i + 1];
        uint32_t align = in->f->args.data[i].align;
        if (x->lanes) {
            set_index(x, args[i].index);
            continue;
        }
        x->mem = (struct memory){args[i].buffer.data, NULL, args[i].buffer.bytes};
        if (align && (uintptr_t)x->mem.data % align != 0) {
            in->stopped = true;
            in->result = (struct linterp_result){
                BROKEN, 0, arena_printf(in->f->arena, "@%s: argument %u is not aligned to %u", in->f->name, i, align)};
        }
    }
}

struct linterp_result lf_interpret(const struct lfunc *f, const struct linterp_arg *args, int64_t begin, int64_t end,
                                   const struct linterp_host *host)
{
    struct interp in = {.f = f, .host = host, .begin = begin, .end = end};
    arena_init(&in.arena, f->ctx);
    in.slots = NEW_ARRAY(&in.arena, struct slot, f->types.n);
    for (uint32_t i = 1; i < f->types.n; i++)
        slot_init(&in, i);
    bind_args(&in, args);
    if (!in.stopped)
        exec_block(&in, (lblock){1});
    arena_release(&in.arena);
    return in.result;
}

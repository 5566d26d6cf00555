/* Runs verified loop-IR functions with everything checked that the verifier cannot see: bounds and promised alignment
 * of every access, divisors, and use of undefined memory. A broken rule ends the run with code -100.
 *
 * Undefinedness is a flag on each lane: reading an unwritten part of a local sets it, arithmetic hands it on, select
 * and shuffles move it. Storing such a lane into an argument, or using it as index, mask, condition, bound or argument
 * of a call, breaks a rule; storing it into a local is fine. Slow on purpose where that keeps it simple: for shrunk
 * shapes.
 *
 * Here are values, control and calls; compute.c has the statements that compute, memory.c those that
 * touch memory; error.c has bounds of what was rounded.
 */
#include "ir/loop/interp/internal.h"

void interp_broken(struct interp *in, const struct lstmt *s, const char *what)
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
        .code = LINTERP_BROKEN,
        .node = s->node,
        .text = arena_printf(in->f->arena, "@%s: %s%s: %s", in->f->name, result, lop_name(s->op), what)};
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

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
    if (in->host->read_error) {
        x->error = NEW_ARRAY(&in->arena, double, 2 * t.lanes);
        x->spare_error = x->error + t.lanes;
    }
}

void slot_define(struct slot *x)
{
    if (x->any_undef)
        memset(x->undef, 0, x->lanes);
    x->any_undef = x->any_error = false;
}

bool interp_defined(struct interp *in, const struct lstmt *s, const struct slot *x, const char *as)
{
    if (x->any_undef)
        interp_broken(in, s, arena_printf(&in->arena, "undefined value used as %s", as));
    in->vague |= x->any_error;
    return !x->any_undef;
}

int64_t slot_index(const struct slot *x)
{
    return loop_int_lane(ELEM_I64, x->data, 0);
}

static void slot_set_index(struct slot *x, int64_t value)
{
    memcpy(x->data, &value, sizeof value);
    slot_define(x);
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
    to->any_error = from->any_error;
    if (from->any_error)
        memcpy(to->error, from->error, to->lanes * sizeof *to->error);
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
        p->spare_any_error = y->any_error;
        if (y->any_error)
            memcpy(p->spare_error, y->error, p->lanes * sizeof *p->error);
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
        double *error = p->error;
        p->error = p->spare_error;
        p->spare_error = error;
        p->any_error = p->spare_any_error;
    }
}

static void exec_for(struct interp *in, const struct lstmt *s)
{
    const struct lblk *body = &in->f->blocks.data[s->block[0].i];
    int64_t hi = slot_index(slot_in(in, s, 1));
    if (!interp_defined(in, s, slot_in(in, s, 0), "bound") || !interp_defined(in, s, slot_in(in, s, 1), "bound"))
        return;
    for (uint32_t i = 2; i < s->n_in; i++)
        copy_slot(&in->slots[body->params.data[i - 1].i], slot_in(in, s, i));
    for (int64_t v = slot_index(slot_in(in, s, 0)); v < hi && !in->stopped;) {
        if (s->flags & L_FLAG_WHILE) {
            const struct slot *go = &in->slots[body->params.data[1].i];
            if (!interp_defined(in, s, go, "condition") || !go->data[0])
                break;
        }
        slot_set_index(&in->slots[body->params.data[0].i], v);
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
    if (!interp_defined(in, s, slot_in(in, s, 0), "bound") || !interp_defined(in, s, slot_in(in, s, 1), "bound"))
        return;
    int64_t lo = slot_index(slot_in(in, s, 0)), hi = slot_index(slot_in(in, s, 1));
    lo = lo > in->begin ? lo : in->begin;
    hi = hi < in->end ? hi : in->end;
    for (int64_t v = lo; v < hi && !in->stopped; v++) {
        for (uint32_t i = 0; i < in->locals.n; i++) {
            const struct memory *mem = &in->slots[in->locals.data[i]].mem;
            memset(mem->init, 0, (size_t)mem->bytes);
        }
        slot_set_index(index, v);
        exec_block(in, s->block[0]);
    }
}

static void exec_if(struct interp *in, const struct lstmt *s)
{
    const struct slot *c = slot_in(in, s, 0);
    if (!interp_defined(in, s, c, "condition"))
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
    bool holds = interp_defined(in, s, c, "condition");
    for (uint32_t i = 0; holds && i < c->lanes; i++)
        holds = c->data[i];
    if (!holds && !in->stopped) {
        in->stopped = true;
        in->result = (struct linterp_result){.code = (int)s->imm, .node = s->node, .text = s->name};
    }
}

static bool collect_args(struct interp *in, const struct lstmt *s, uint32_t n)
{
    in->call_args.n = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct slot *x = slot_in(in, s, i);
        struct linterp_arg a = {0};
        if (x->lanes && !interp_defined(in, s, x, "argument"))
            return false;
        if (x->lanes)
            a.index = slot_index(x);
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
    if (!in->host->call) {
        interp_broken(in, s, "nobody to call");
        return;
    }
    bool failed = false;
    int64_t r = in->host->call(in->host->user, s->name, in->call_args.data, s->n_in, &failed);
    if (failed || ((s->flags & L_FLAG_MAYFAIL) && r < 0)) {
        in->stopped = true;
        in->result = (struct linterp_result){
            .code = r < 0 && r > INT32_MIN ? (int)r : LINTERP_BROKEN, .node = s->node, .text = s->name};
        return;
    }
    if (strcmp(s->name, "mcc_rt_segment") == 0 && s->n_in == 1 && r > 0)
        VEC_PUSH(&in->arena, &in->segments, ((struct segment){r, in->call_args.data[0].index}));
    if (strcmp(s->name, "mcc_rt_grow") == 0 && s->n_in == 3 && r > 0) /* the slot holds address and size */
        VEC_PUSH(&in->arena, &in->segments,
                 ((struct segment){r, ((const int64_t *)in->call_args.data[0].buffer.data)[1]}));
    if (s->n_out)
        slot_set_index(slot_out(in, s), r);
}

static void exec_launch(struct interp *in, const struct lstmt *s)
{
    const struct slot *count = slot_in(in, s, s->n_in - 1);
    if (!collect_args(in, s, s->n_in - 1) || !interp_defined(in, s, count, "count"))
        return;
    if (!in->host->launch) {
        interp_broken(in, s, "nobody to launch");
        return;
    }
    int code = in->host->launch(in->host->user, s, in->call_args.data, s->n_in - 1, slot_index(count));
    if (code != 0) {
        in->stopped = true;
        in->result = (struct linterp_result){.code = code, .node = s->node, .text = s->name};
    }
}

static void exec_apply(struct interp *in, const struct lstmt *s)
{
    interp_broken(in, s, "only code of the field has parts, and it is not interpreted");
}

static exec_fn *const execs[L_COUNT] = {
#define LOP(id, name, least, most, results, class, form, rule, exec, ...) [L_##id] = exec,
#include "ir/loop/loop.def"
};

enum { STATEMENT = 4 }; /* work of one besides its lanes */

static void exec_block(struct interp *in, lblock b)
{
    const struct lblk *blk = &in->f->blocks.data[b.i];
    for (uint32_t i = 0; i < blk->stmts.n && !in->stopped; i++) {
        const struct lstmt *s = &blk->stmts.data[i];
        in->work += STATEMENT + s->type.lanes;
        if (in->work > in->most) {
            in->stopped = true;
            in->result.code = LINTERP_ENDED;
            return;
        }
        execs[s->op](in, s);
        if (in->host->read_error && s->n_out == 1 && !in->stopped)
            loop_error(in, s);
    }
}

static void bind_args(struct interp *in, const struct linterp_arg *args)
{
    for (uint32_t i = 0; i < in->f->args.n; i++) {
        struct slot *x = &in->slots[i + 1];
        uint32_t align = in->f->args.data[i].align;
        if (x->lanes) {
            slot_set_index(x, args[i].index);
            continue;
        }
        x->mem = (struct memory){args[i].buffer.data, NULL, args[i].buffer.bytes, NULL};
        if (align && (uintptr_t)x->mem.data % align != 0) {
            in->stopped = true;
            in->result = (struct linterp_result){
                .code = LINTERP_BROKEN,
                .node = 0,
                .text = arena_printf(in->f->arena, "@%s: argument %u is not aligned to %u", in->f->name, i, align)};
        }
    }
}

struct linterp_result lf_interpret(const struct lfunc *f, const struct linterp_arg *args, int64_t begin, int64_t end,
                                   const struct linterp_host *host)
{
    static const struct linterp_host nobody;
    struct interp in = {.f = f, .host = host ? host : &nobody, .begin = begin, .end = end};
    in.most = in.host->work ? in.host->work : INT64_MAX;
    arena_init(&in.arena, f->ctx);
    in.slots = NEW_ARRAY(&in.arena, struct slot, f->types.n);
    for (uint32_t i = 1; i < f->types.n; i++)
        slot_init(&in, i);
    bind_args(&in, args);
    if (!in.stopped)
        exec_block(&in, (lblock){1});
    arena_release(&in.arena);
    in.result.work = in.work;
    return in.result;
}

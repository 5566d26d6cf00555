/* If, Loop and Assert in the program.
 *
 * A branch writes its results straight into the buffers of the If's results. A loop-carried value lives in three places
 * that take turns: what the trip reads, what it writes, and what the next trip will write; so the first value is never
 * overwritten and nothing is copied. The last two are the places that the plan gives to the body's parameter and
 * result. Scan outputs of known length are written where they stay. Where a size differs between branches or from trip
 * to trip, memory that grows by doubling takes the place of buffers, and the dims travel with it; scan outputs whose
 * length the run decides grow so, too.
 */
#include "passes/program/program.h"

static lblock enter(struct prog *p, lblock b)
{
    lblock old = p->block;
    p->block = b;
    return old;
}

static lreg value_bytes(struct prog *p, value_id v)
{
    const struct type *t = value_type(p->g, v);
    return prog_index(p, ex_mulc(p->x, dims_product(p->x, t->dims, t->rank), elem_size(t->elem)));
}

static lreg to_bool(struct prog *p, lreg v)
{
    return prog_op2(p, L_NE, v, prog_const(p, 0));
}

/* ---- if -------------------------------------------------------------------------------------------------------- */

/* A result is written into the If's own buffer (FIXED), into memory that grows to what the branch computes (SLOT), or
 * is an address (HANDLE). A branch yields the addresses, and the dims of what is in slots. */
enum travel { FIXED, SLOT, HANDLE };
struct if_result {
    enum travel how;
    lreg slot;
};

static enum travel if_travel(const struct prog *p, value_id v)
{
    return prog_is_handle(value_type(p->g, v))               ? HANDLE
           : p->m->fused.storage[v.i].place == PLACE_SEGMENT ? SLOT
                                                             : FIXED;
}

static lblock if_branch(struct prog *p, const struct node *n, int b, const struct if_result *result)
{
    const struct region *region = graph_get_region(p->g, n->region[b]);
    uint32_t bound = p->syms.n;
    lblock block = lf_block(p->f), old = enter(p, block);
    VEC(lreg) yield = {0};
    for (uint32_t r = 0; r < n->n_out; r++) {
        value_id v = region->results.data[r];
        if (result[r].how == FIXED)
            p->pointer[v.i] = prog_buffer(p, n->out[r], ELEM_U8);
        else if (result[r].how == SLOT)
            p->grow[v.i] = (struct prog_grow){.slot = result[r].slot};
    }
    prog_region(p, n->region[b]);
    for (uint32_t r = 0; r < n->n_out && !p->failed; r++) {
        value_id v = region->results.data[r];
        const struct type *t = value_type(p->g, v);
        if (result[r].how == HANDLE)
            VEC_PUSH(p->arena, &yield, prog_handle(p, v));
        for (int32_t d = 0; result[r].how == SLOT && d < t->rank; d++)
            VEC_PUSH(p->arena, &yield, prog_index(p, t->dims[d]));
    }
    if (yield.n)
        lf_stmt(p->f, block, L_YIELD, yield.data, yield.n);
    prog_unbind(p, bound);
    p->block = old;
    return block;
}

static void if_receive(struct prog *p, const struct node *n, const struct if_result *result, const lreg *yielded)
{
    for (uint32_t r = 0; r < n->n_out; r++) {
        const struct type *t = value_type(p->g, n->out[r]);
        if (result[r].how == HANDLE)
            p->handle[n->out[r].i] = *yielded++;
        if (result[r].how != SLOT)
            continue;
        for (int32_t d = 0; d < t->rank; d++)
            prog_bind_dim(p, t->dims[d], *yielded++, n->src.i);
        p->pointer[n->out[r].i] = prog_grow(p, result[r].slot, prog_const(p, 0), prog_const(p, 0));
    }
}

static void control_if(struct prog *p, uint32_t number)
{
    const struct node *n = graph_node(p->g, p->m->fused.kernels.data[number].anchor);
    lreg cond = to_bool(p, prog_load(p, n->in[0], 0));
    struct if_result *result = NEW_ARRAY(p->arena, struct if_result, n->n_out + 1);
    uint32_t n_yield = 0;
    for (uint32_t r = 0; r < n->n_out; r++) {
        result[r].how = if_travel(p, n->out[r]);
        if (result[r].how == SLOT)
            result[r].slot = prog_slot(p);
        n_yield += result[r].how == HANDLE ? 1
                   : result[r].how == SLOT ? (uint32_t)value_type(p->g, n->out[r])->rank
                                           : 0;
    }
    lblock block[2] = {if_branch(p, n, 0, result), if_branch(p, n, 1, result)};
    lreg *yielded = NEW_ARRAY(p->arena, lreg, n_yield + 1);
    for (uint32_t i = 0; i < n_yield; i++)
        yielded[i] = lf_value(p->f, prog_i64);
    struct lstmt *s = lf_stmt(p->f, p->block, L_IF, &cond, 1);
    s->type = prog_i64;
    s->out = yielded;
    s->n_out = n_yield;
    s->block[0] = block[0];
    s->block[1] = block[1];
    if (!p->failed)
        if_receive(p, n, result, yielded);
}

/* ---- loop ------------------------------------------------------------------------------------------------------ */

/* What the loop statement carries. [go, trips], then per carried value
 *   FIXED   read, write, next: three buffers that take turns
 *   SLOT    read, the slot to write, the slot after, and the dims of what is read
 *   HANDLE  the address
 * and per scan output whose rows' dims only the body knows: the dims of a row. */
struct frame {
    VEC(lreg) init;
    lreg *param, *yield, *out;
};
struct carried {
    enum travel how;
    uint32_t at;
    value_id init, param, next, out;
};
struct scan {
    bool late, known;
    uint32_t at;
    lreg slot;
    value_id row, out;
};
struct looper {
    const struct node *n;
    const struct region *body;
    struct frame f;
    uint32_t n_carried, n_scan;
    struct carried *carried;
    struct scan *scan;
};

static void carry(struct prog *p, struct looper *l, lreg v)
{
    VEC_PUSH(p->arena, &l->f.init, v);
}

/* v's place in the workspace; {0}: it has none there. */
static lreg own_place(struct prog *p, value_id v)
{
    return p->m->fused.storage[v.i].place == PLACE_ARENA && !p->pointer[v.i].i ? prog_buffer(p, v, ELEM_U8) : (lreg){0};
}

static void carried_init(struct prog *p, struct looper *l, uint32_t c)
{
    struct carried *v = &l->carried[c];
    *v = (struct carried){.at = l->f.init.n,
                          .init = l->n->in[2 + c],
                          .param = l->body->params.data[2 + c],
                          .next = l->body->results.data[1 + c],
                          .out = l->n->out[c]};
    const struct type *t = value_type(p->g, v->init), *param = value_type(p->g, v->param);
    if (prog_is_handle(param)) {
        v->how = HANDLE;
        carry(p, l, prog_handle(p, v->init));
        return;
    }
    bool same = type_same_shape(t, param) && type_same_shape(param, value_type(p->g, v->next));
    lreg bytes = value_bytes(p, v->init);
    v->how = same ? FIXED : SLOT;
    carry(p, l, prog_buffer(p, v->init, ELEM_U8));
    for (int i = 0; i < 2; i++) {
        lreg own = same ? own_place(p, i ? v->next : v->param) : (lreg){0};
        carry(p, l, own.i ? own : same ? prog_memory(p, bytes) : prog_slot(p));
    }
    for (int32_t d = 0; !same && d < t->rank; d++)
        carry(p, l, prog_index(p, t->dims[d]));
}

/* Is this a symbol that the result itself, v, gives a value? */
static bool is_bound_by(const struct prog *p, expr_id e, value_id v)
{
    sym_id s = ex_as_sym(p->x, e);
    return s.i && sym_get(p->x, s)->kind == SYM_VALUE && sym_get(p->x, s)->value == v.i;
}

static void scan_init(struct prog *p, struct looper *l, uint32_t i)
{
    struct scan *s = &l->scan[i];
    *s = (struct scan){
        .at = l->f.init.n, .row = l->body->results.data[1 + l->n_carried + i], .out = l->n->out[l->n_carried + i]};
    const struct type *row = value_type(p->g, s->row), *out = value_type(p->g, s->out);
    for (int32_t d = 0; d < row->rank; d++)
        s->late |= row->dims[d].i != out->dims[d + 1].i;
    s->known = !s->late && p->m->fused.storage[s->out.i].place == PLACE_ARENA && !p->pointer[s->out.i].i;
    if (!s->known)
        s->slot = prog_slot(p);
    for (int32_t d = 0; s->late && d < row->rank; d++) /* of no rows: what is known without them */
        carry(p, l, is_bound_by(p, out->dims[d + 1], s->out) ? prog_const(p, 0) : prog_index(p, out->dims[d + 1]));
}

/* Parameters and results are wired to this trip's places. */
static void loop_enter(struct prog *p, struct looper *l, lreg iter)
{
    const lreg *param = l->f.param;
    prog_store_scalar(p, l->body->params.data[0], iter);
    prog_store_scalar(p, l->body->params.data[1], param[0]);
    for (uint32_t c = 0; c < l->n_carried; c++) {
        const struct carried *v = &l->carried[c];
        const struct type *t = value_type(p->g, v->param);
        if (v->how == HANDLE) {
            p->handle[v->param.i] = param[v->at];
            continue;
        }
        p->pointer[v->param.i] = param[v->at];
        if (v->how == FIXED)
            p->pointer[v->next.i] = param[v->at + 1];
        else
            p->grow[v->next.i] = (struct prog_grow){.slot = param[v->at + 1]};
        for (int32_t d = 0; v->how == SLOT && d < t->rank; d++)
            prog_bind_dim(p, t->dims[d], param[v->at + 3 + (uint32_t)d], l->n->src.i);
    }
    for (uint32_t i = 0; i < l->n_scan; i++) {
        const struct scan *s = &l->scan[i];
        lreg at[2] = {iter, {0}}, row[2];
        if (!s->known) {
            p->grow[s->row.i] = (struct prog_grow){.slot = s->slot, .trip = iter};
            continue;
        }
        at[1] = value_bytes(p, s->row);
        row[0] = prog_buffer(p, s->out, ELEM_U8);
        row[1] = prog_op(p, L_MUL, prog_i64, at, 2);
        p->pointer[s->row.i] = prog_op(p, L_OFFSET, (struct ltype){ELEM_U8, 0}, row, 2);
    }
    for (uint32_t i = 0; i < l->body->params.n; i++)
        prog_bind_elements(p, l->body->params.data[i]);
}

static void carried_yield(struct prog *p, struct looper *l, const struct carried *v)
{
    const lreg *q = &l->f.param[v->at];
    lreg *y = &l->f.yield[v->at];
    const struct type *t = value_type(p->g, v->next);
    if (v->how == HANDLE) {
        y[0] = prog_handle(p, v->next);
        return;
    }
    y[0] = v->how == FIXED ? q[1] : p->pointer[v->next.i]; /* what this trip wrote is read next, */
    y[1] = q[2]; /* and written again the trip after */
    y[2] = q[1];
    for (int32_t d = 0; v->how == SLOT && d < t->rank; d++)
        y[3 + d] = prog_index(p, t->dims[d]);
}

/* Every trip's row has the dims of the first. */
static void scan_yield(struct prog *p, struct looper *l, const struct scan *s, lreg iter)
{
    const struct type *t = value_type(p->g, s->row);
    struct ltype flag = {ELEM_BOOL, 1};
    for (int32_t d = 0; s->late && d < t->rank; d++) {
        lreg dim = prog_index(p, t->dims[d]), first[2] = {iter, prog_const(p, 0)},
             same[2] = {dim, l->f.param[s->at + (uint32_t)d]};
        lreg either[2] = {prog_op(p, L_EQ, flag, first, 2), prog_op(p, L_EQ, flag, same, 2)};
        prog_check(p, prog_op(p, L_OR, flag, either, 2), -2, l->n->src.i,
                   "a scan output changes its shape from trip to trip");
        l->f.yield[s->at + (uint32_t)d] = dim;
    }
}

static lblock loop_body(struct prog *p, struct looper *l)
{
    lblock body = lf_block(p->f);
    lreg iter = lf_value(p->f, prog_i64);
    uint32_t bound = p->syms.n, n = l->f.init.n;
    VEC_PUSH(p->f->arena, &p->f->blocks.data[body.i].params, iter);
    for (uint32_t i = 0; i < n; i++) {
        l->f.param[i] = lf_value(p->f, lf_type(p->f, l->f.init.data[i]));
        VEC_PUSH(p->f->arena, &p->f->blocks.data[body.i].params, l->f.param[i]);
    }
    lblock old = enter(p, body);
    p->loops++;
    loop_enter(p, l, iter);
    prog_region(p, l->n->region[0]);
    if (!p->failed) {
        l->f.yield[0] = to_bool(p, prog_load(p, l->body->results.data[0], 0));
        l->f.yield[1] = prog_op(p, L_ADD, prog_i64, ARRAY(lreg, l->f.param[1], prog_const(p, 1)));
        for (uint32_t c = 0; c < l->n_carried; c++)
            carried_yield(p, l, &l->carried[c]);
        for (uint32_t i = 0; i < l->n_scan; i++)
            scan_yield(p, l, &l->scan[i], iter);
        prog_call(p, "mcc_rt_poll", NULL, 0, true);
        lf_stmt(p->f, p->block, L_YIELD, l->f.yield, n);
    }
    p->loops--;
    p->block = old;
    prog_unbind(p, bound);
    return body;
}

static void loop_receive(struct prog *p, struct looper *l)
{
    const lreg *out = l->f.out;
    expr_id trips = node_expr(l->n, "trips");
    if (trips.i)
        prog_bind_dim(p, trips, out[1], l->n->src.i);
    for (uint32_t c = 0; c < l->n_carried; c++) {
        const struct carried *v = &l->carried[c];
        const struct type *t = value_type(p->g, v->out);
        if (v->how == HANDLE) {
            p->handle[v->out.i] = out[v->at];
            continue;
        }
        p->pointer[v->out.i] = out[v->at];
        for (int32_t d = 0; v->how == SLOT && d < t->rank; d++)
            prog_bind_dim(p, t->dims[d], out[v->at + 3 + (uint32_t)d], l->n->src.i);
    }
    for (uint32_t i = 0; i < l->n_scan; i++) {
        const struct scan *s = &l->scan[i];
        const struct type *t = value_type(p->g, s->out);
        for (int32_t d = 0; s->late && d + 1 < t->rank; d++)
            prog_bind_dim(p, t->dims[d + 1], out[s->at + (uint32_t)d], l->n->src.i);
        if (!s->known)
            p->pointer[s->out.i] = prog_grow(p, s->slot, prog_const(p, 0), prog_const(p, 0));
    }
}

/* After a loop that ran elsewhere: which of the three places holds the last of each carried value. */
static void loop_results(struct prog *p, struct looper *l, lreg trips)
{
    struct ltype flag = {ELEM_BOOL, 1};
    lreg one = prog_const(p, 1), zero = prog_const(p, 0), and[2] = {trips, one}, some[2] = {zero, trips};
    lreg odd = to_bool(p, prog_op(p, L_AND, prog_i64, and, 2)), any = prog_op(p, L_LT, flag, some, 2);
    l->f.out[1] = trips;
    for (uint32_t c = 0; c < l->n_carried; c++) {
        const struct carried *v = &l->carried[c];
        const lreg *place = &l->f.init.data[v->at];
        lreg last[3] = {odd, place[1], place[2]}, in[3] = {any, {0}, place[0]};
        in[1] = prog_op(p, L_SELECT, lf_type(p->f, place[1]), last, 3);
        l->f.out[v->at] = prog_op(p, L_SELECT, lf_type(p->f, place[0]), in, 3);
    }
}

/* Nothing travels but addresses of fixed size. */
static bool loop_is_fixed(const struct looper *l)
{
    bool fixed = true;
    for (uint32_t c = 0; c < l->n_carried; c++)
        fixed &= l->carried[c].how == FIXED;
    for (uint32_t i = 0; i < l->n_scan; i++)
        fixed &= l->scan[i].known;
    return fixed;
}

static void loop_begin(struct prog *p, struct looper *l)
{
    carry(p, l, to_bool(p, prog_load(p, l->n->in[1], 0)));
    carry(p, l, prog_const(p, 0));
    for (uint32_t c = 0; c < l->n_carried; c++)
        carried_init(p, l, c);
    for (uint32_t i = 0; i < l->n_scan; i++)
        scan_init(p, l, i);
    l->f.param = NEW_ARRAY(p->arena, lreg, l->f.init.n);
    l->f.yield = NEW_ARRAY(p->arena, lreg, l->f.init.n);
    l->f.out = NEW_ARRAY(p->arena, lreg, l->f.init.n);
}

static void control_loop(struct prog *p, uint32_t number)
{
    const struct node *n = graph_node(p->g, p->m->fused.kernels.data[number].anchor);
    struct looper *l = NEW(p->arena, struct looper);
    for (uint32_t i = 0; i < p->n_levels; i++)
        p->levels[i][number].text = NULL;
    l->n = n;
    l->body = graph_get_region(p->g, n->region[0]);
    l->n_carried = (uint32_t)node_int(n, "n_carried", 0);
    l->n_scan = n->n_out - l->n_carried;
    l->carried = NEW_ARRAY(p->arena, struct carried, l->n_carried + 1);
    l->scan = NEW_ARRAY(p->arena, struct scan, l->n_scan + 1);
    lreg trips = node_int(n, "forever", 0) ? prog_const(p, INT64_MAX) : prog_load(p, n->in[0], 0);
    trips = prog_op(p, L_MAX, prog_i64, ARRAY(lreg, trips, prog_const(p, 0)));
    loop_begin(p, l);
    lblock body = p->failed ? (lblock){0} : loop_body(p, l);
    if (p->failed)
        return;
    uint32_t n_carry = l->f.init.n;
    lreg *in = NEW_ARRAY(p->arena, lreg, n_carry + 2);
    in[0] = prog_const(p, 0);
    in[1] = trips;
    for (uint32_t i = 0; i < n_carry; i++) {
        in[2 + i] = l->f.init.data[i];
        l->f.out[i] = lf_value(p->f, lf_type(p->f, in[2 + i]));
    }
    struct lstmt s = {.op = L_FOR,
                      .in = in,
                      .n_in = n_carry + 2,
                      .out = lf_lregs(p->f, l->f.out, n_carry),
                      .n_out = n_carry,
                      .imm = 1,
                      .flags = L_FLAG_WHILE,
                      .block = {body}};
    lreg ran = loop_is_fixed(l) ? prog_loop_kernel(p, number, &s) : (lreg){0};
    if (ran.i)
        loop_results(p, l, ran);
    else
        *lf_stmt(p->f, p->block, L_FOR, NULL, 0) = s;
    loop_receive(p, l);
}

/* ---- assert ---------------------------------------------------------------------------------------------------- */

static void control_assert(struct prog *p, uint32_t number)
{
    const struct node *n = graph_node(p->g, p->m->fused.kernels.data[number].anchor);
    prog_check(p, prog_cond(p, node_expr(n, "cond")), (int32_t)node_int(n, "code", -2), n->src.i,
               node_str(n, "text", "assertion failed"));
}

typedef void control_fn(struct prog *, uint32_t number);
static control_fn *const controls[OP_COUNT] = {
#define CONTROL(id, name, least, most, results, infer, eval, emit, attrs) [OP_##id] = emit,
#include "ir/ops/ops.def"
};

void prog_control(struct prog *p, uint32_t number)
{
    controls[graph_node(p->g, p->m->fused.kernels.data[number].anchor)->op](p, number);
}

/* If, Loop and Assert in the program.
 *
 * A branch writes its results straight into the buffers of the If's results. A loop-carried value lives in three places
 * that take turns: what the trip reads, what it writes, and what the next trip will write; so the first value is never
 * overwritten and nothing is copied. Scan outputs grow in a buffer of the trip count's length.
 */
#include "passes/program.h"

static const struct ltype INDEX = {ELEM_I64, 1};
enum { MAX_CARRIED = 60 };

static lblock enter(struct prog *p, lblock b)
{
    lblock old = p->block;
    p->block = b;
    return old;
}

static lval value_bytes(struct prog *p, value_id v)
{
    const struct type *t = value_type(p->g, v);
    return prog_index(p, ex_mulc(p->x, shape_count(p->x, t->dims, t->rank), elem_size(t->elem)));
}

static lval to_bool(struct prog *p, lval v)
{
    lval in[2] = {v, prog_const(p, 0)};
    return prog_op(p, L_NE, (struct ltype){ELEM_BOOL, 1}, in, 2);
}

static void control_if(struct prog *p, struct kernel *k)
{
    const struct node *n = graph_node(p->g, k->anchor);
    lval cond = to_bool(p, prog_load(p, n->in[0], 0));
    for (uint32_t r = 0; r < n->n_out; r++)
        if (p->m->storage[n->out[r].i].place == PLACE_SEGMENT) {
            prog_refuse(p, k->anchor, "the size of an If's result depends on the data; only equal static or input-derived "
                                      "sizes are supported");
            return;
        }
    lblock block[2];
    for (int b = 0; b < 2; b++) {
        const struct region *region = graph_get_region(p->g, n->region[b]);
        uint32_t bound = p->syms.n;
        block[b] = lf_block(p->f);
        lblock old = enter(p, block[b]);
        for (uint32_t r = 0; r < n->n_out; r++)
            p->pointer[region->results.data[r].i] = prog_buffer(p, n->out[r], ELEM_U8);
        prog_region(p, n->region[b]);
        p->syms.n = bound;
        p->block = old;
    }
    struct lstmt *s = lf_stmt(p->f, p->block, L_IF);
    s->in = lf_lvals(p->f, &cond, 1);
    s->n_in = 1;
    s->block[0] = block[0];
    s->block[1] = block[1];
}

/* What a loop carries: [go, trips, then per carried value: read, write, next]. */
enum { FRAME = 3 * MAX_CARRIED + 2 };
struct loop_frame {
    uint32_t n;
    lval init[FRAME], param[FRAME], yield[FRAME], out[FRAME];
};

static void carry(struct loop_frame *f, lval v) { f->init[f->n++] = v; }

static void store_scalar(struct prog *p, value_id v, lval x)
{
    enum elem e = value_type(p->g, v)->elem;
    lval in[3] = {prog_buffer(p, v, e), prog_const(p, 0), x};
    if (e != ELEM_I64 && lf_type(p->f, x).elem != e)
        in[2] = prog_op(p, L_CONVERT, (struct ltype){e, 1}, &x, 1);
    lf_op(p->f, p->block, L_STORE, INDEX, in, 3);
}

/* The body: parameters and results are wired to this trip's buffers, then the region runs. */
static void loop_body(struct prog *p, const struct node *n, struct loop_frame *f, lval iter, uint32_t n_carried,
                      const lval *scan, const lval *scan_bytes)
{
    const struct region *body = graph_get_region(p->g, n->region[0]);
    uint32_t n_scan = n->n_out - n_carried;
    store_scalar(p, body->params.data[0], iter);
    store_scalar(p, body->params.data[1], f->param[0]);
    for (uint32_t c = 0; c < n_carried; c++) {
        p->pointer[body->params.data[2 + c].i] = f->param[2 + 3 * c];
        p->pointer[body->results.data[1 + c].i] = f->param[3 + 3 * c];
    }
    for (uint32_t s = 0; s < n_scan; s++) {
        lval mul[2] = {iter, scan_bytes[s]};
        lval at[2] = {scan[s], prog_op(p, L_MUL, INDEX, mul, 2)};
        p->pointer[body->results.data[1 + n_carried + s].i] = prog_op(p, L_OFFSET, (struct ltype){ELEM_U8, 0}, at, 2);
    }
    for (uint32_t i = 0; i < body->params.n; i++)
        prog_bind_elements(p, body->params.data[i]);
    prog_region(p, n->region[0]);
    f->yield[0] = to_bool(p, prog_load(p, body->results.data[0], 0));
    lval add[2] = {f->param[1], prog_const(p, 1)};
    f->yield[1] = prog_op(p, L_ADD, INDEX, add, 2);
    for (uint32_t c = 0; c < n_carried; c++) {
        const lval *q = &f->param[2 + 3 * c];
        lval *y = &f->yield[2 + 3 * c];
        y[0] = q[1];   /* what this trip wrote is read next, and written again the trip after */
        y[1] = q[2];
        y[2] = q[1];
    }
    prog_call(p, "mcc_rt_poll", NULL, 0, true);
}

static bool loop_supported(struct prog *p, struct kernel *k, uint32_t n_carried)
{
    const struct node *n = graph_node(p->g, k->anchor);
    const struct region *body = graph_get_region(p->g, n->region[0]);
    if (n_carried > MAX_CARRIED)
        return prog_refuse(p, k->anchor, "a Loop that carries more than 60 values is not supported");
    for (uint32_t c = 0; c < n_carried; c++) {
        const struct type *a = value_type(p->g, body->params.data[2 + c]), *b = value_type(p->g, body->results.data[1 + c]);
        if (a->kind != TYPE_TENSOR || b->kind != TYPE_TENSOR || !type_same_shape(a, b))
            return prog_refuse(p, k->anchor, "a Loop whose carried value changes its shape from trip to trip is not supported");
    }
    if (node_int(n, "forever", 0) && n->n_out > n_carried)
        return prog_refuse(p, k->anchor, "a Loop without a trip count cannot collect scan outputs yet");
    return true;
}

static void control_loop(struct prog *p, struct kernel *k)
{
    const struct node *n = graph_node(p->g, k->anchor);
    uint32_t n_carried = (uint32_t)node_int(n, "n_carried", 0), n_scan = n->n_out - n_carried, bound = p->syms.n;
    struct loop_frame *f = NEW(p->arena, struct loop_frame);
    lval scan[MAX_CARRIED], scan_bytes[MAX_CARRIED];
    if (!loop_supported(p, k, n_carried) || n_scan > MAX_CARRIED)
        return;
    lval trips = node_int(n, "forever", 0) ? prog_const(p, INT64_MAX) : prog_load(p, n->in[0], 0);
    lval clamp[2] = {trips, prog_const(p, 0)};
    trips = prog_op(p, L_MAX, INDEX, clamp, 2);
    carry(f, to_bool(p, prog_load(p, n->in[1], 0)));
    carry(f, prog_const(p, 0));
    for (uint32_t c = 0; c < n_carried; c++) {
        lval bytes = value_bytes(p, n->in[2 + c]);
        carry(f, prog_buffer(p, n->in[2 + c], ELEM_U8));
        carry(f, prog_memory(p, bytes));
        carry(f, prog_memory(p, bytes));
    }
    for (uint32_t s = 0; s < n_scan; s++) {
        scan_bytes[s] = value_bytes(p, graph_get_region(p->g, n->region[0])->results.data[1 + n_carried + s]);
        lval in[2] = {scan_bytes[s], trips};
        scan[s] = prog_memory(p, prog_op(p, L_MUL, INDEX, in, 2));
    }
    lblock body = lf_block(p->f);
    lval iter = lf_value(p->f, INDEX);
    VEC_PUSH(p->f->arena, &p->f->blocks.data[body.i].params, iter);
    for (uint32_t i = 0; i < f->n; i++) {
        f->param[i] = lf_value(p->f, lf_type(p->f, f->init[i]));
        VEC_PUSH(p->f->arena, &p->f->blocks.data[body.i].params, f->param[i]);
    }
    lblock old = enter(p, body);
    loop_body(p, n, f, iter, n_carried, scan, scan_bytes);
    struct lstmt *y = lf_stmt(p->f, p->block, L_YIELD);
    y->in = lf_lvals(p->f, f->yield, f->n);
    y->n_in = f->n;
    p->block = old;
    p->syms.n = bound;
    lval in[3 * MAX_CARRIED + 4] = {prog_const(p, 0), trips};
    for (uint32_t i = 0; i < f->n; i++) {
        in[2 + i] = f->init[i];
        f->out[i] = lf_value(p->f, lf_type(p->f, f->init[i]));
    }
    struct lstmt *s = lf_stmt(p->f, p->block, L_FOR);
    s->in = lf_lvals(p->f, in, f->n + 2);
    s->n_in = f->n + 2;
    s->out = lf_lvals(p->f, f->out, f->n);
    s->n_out = f->n;
    s->imm = 1;
    s->flags = L_FLAG_WHILE;
    s->block[0] = body;
    for (uint32_t c = 0; c < n_carried; c++)
        p->pointer[n->out[c].i] = f->out[2 + 3 * c];
    for (uint32_t r = 0; r < n_scan; r++)
        p->pointer[n->out[n_carried + r].i] = scan[r];
    expr_id t = node_expr(n, "trips");
    if (t.i && ex_as_sym(p->x, t).i)
        prog_bind(p, ex_as_sym(p->x, t), f->out[1]);
}

static void control_assert(struct prog *p, struct kernel *k)
{
    const struct node *n = graph_node(p->g, k->anchor);
    lval in[2] = {prog_index(p, node_expr(n, "cond")), prog_const(p, 0)};
    lval ok = prog_op(p, L_NE, (struct ltype){ELEM_BOOL, 1}, in, 2);
    prog_check(p, ok, (int32_t)node_int(n, "code", -2), n->src.i, node_str(n, "text", "assertion failed"));
}

void prog_control(struct prog *p, struct kernel *k)
{
    switch (graph_node(p->g, k->anchor)->op) {
    case OP_IF: control_if(p, k); break;
    case OP_LOOP: control_loop(p, k); break;
    case OP_ASSERT: control_assert(p, k); break;
    default: prog_refuse(p, k->anchor, "this control flow is not supported"); break;
    }
}

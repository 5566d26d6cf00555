/* Values that are not plain tensors, in the program: sequences, optionals, tensors of unknown rank. They have no
 * storage; the program carries the address of the runtime's value (runtime/ops/rt_ops.h) as an index.
 *
 * Where a tensor goes into one it is copied by the runtime; where one comes out its bytes are read in place, its dims
 * are checked against those that the graph knows, and bind the others.
 */
#include "passes/program/program.h"

bool prog_is_handle(const struct type *t)
{
    return t->kind != TYPE_TENSOR || t->rank < 0;
}

/* ---- dims ------------------------------------------------------------------------------------------------------ */

enum { LOCAL_MAX = 48 << 10 }; /* of the program's scratch; past it, memory of the run */

static lreg local_far(struct prog *p, int64_t words)
{
    lblock here = p->block;
    p->block = (lblock){1};
    lreg bytes = prog_const(p, 8 * words), at = PROG_CALL(p, "mcc_rt_segment", true, bytes);
    lreg buffer = prog_op(p, L_ADDRESS, (struct ltype){ELEM_I64, 0}, &at, 1);
    p->block = here;
    return buffer;
}

lreg prog_local(struct prog *p, int64_t words)
{
    p->local_bytes += (8 * words + 63) / 64 * 64 + 64;
    if (p->local_bytes > LOCAL_MAX)
        return local_far(p, words ? words : 1);
    lreg buffer = lf_value(p->f, (struct ltype){ELEM_I64, 0});
    struct lstmt *local = lf_stmt(p->f, (lblock){1}, L_LOCAL, NULL, 0);
    local->type = (struct ltype){ELEM_I64, 0};
    local->imm = words ? words : 1;
    local->out = lf_lregs(p->f, &buffer, 1);
    local->n_out = 1;
    return buffer;
}

lreg prog_dims(struct prog *p, const struct type *t)
{
    lreg dims = prog_local(p, t->rank);
    for (int32_t d = 0; d < t->rank; d++) {
        lf_op(p->f, p->block, L_STORE, prog_i64, ARRAY(lreg, dims, prog_const(p, d), prog_index(p, t->dims[d])));
    }
    return dims;
}

void prog_bind_dim(struct prog *p, expr_id e, lreg have, uint32_t node)
{
    sym_id s = ex_as_sym(p->x, e);
    if (!s.i || sym_get(p->x, s)->kind != SYM_VALUE || prog_is_bound(p, s)) {
        prog_check(p, prog_op2(p, L_EQ, have, prog_index(p, e)), -2, node,
                   "a tensor has another shape than the graph says");
        return;
    }
    if (sym_get(p->x, s)->hi != INT64_MAX)
        prog_check(p, prog_op2(p, L_LE, have, prog_const(p, sym_get(p->x, s)->hi)), -2, node,
                   "a tensor's dim is too large");
    prog_bind(p, s, have);
}

/* ---- tensors out and in ------------------------------------------------------------------------------------------ */

lreg prog_handle(struct prog *p, value_id v)
{
    const struct type *t = value_type(p->g, v);
    while (prog_is_handle(t) && !p->handle[v.i].i && value_op(p->g, v) == OP_IDENTITY)
        v = value_node(p->g, v)->in[0];
    if (p->handle[v.i].i)
        return p->handle[v.i];
    if (prog_is_handle(t)) {
        p->failed = true;
        error_internal(p->m->ctx, (src_id){0}, "value %u has no address", v.i);
        return prog_const(p, 0);
    }
    return PROG_CALL(p, "mcc_rt_tensor", true, prog_const(p, (int64_t)t->elem), prog_const(p, t->rank), prog_dims(p, t),
                     prog_buffer(p, v, t->elem));
}

/* The result of n is the runtime's value at this address. */
static void receive(struct prog *p, const struct node *n, lreg address)
{
    const struct type *t = value_type(p->g, n->out[0]);
    if (prog_is_handle(t)) {
        p->handle[n->out[0].i] = address;
        return;
    }
    lreg rank[2] = {PROG_CALL(p, "mcc_rt_value_rank", false, address), prog_const(p, t->rank)};
    prog_check(p, prog_op(p, L_EQ, (struct ltype){ELEM_BOOL, 1}, rank, 2), -2, n->src.i,
               "a tensor has another rank than the graph says");
    for (int32_t d = 0; d < t->rank; d++) {
        prog_bind_dim(p, t->dims[d], PROG_CALL(p, "mcc_rt_value_dim", false, address, prog_const(p, d)), n->src.i);
    }
    lreg data = PROG_CALL(p, "mcc_rt_value_data", false, address);
    p->pointer[n->out[0].i] = prog_op(p, L_ADDRESS, (struct ltype){ELEM_U8, 0}, &data, 1);
}

void prog_store_scalar(struct prog *p, value_id v, lreg x)
{
    enum elem e = value_type(p->g, v)->elem;
    lreg in[3] = {prog_buffer(p, v, e), prog_const(p, 0), x};
    if (e == ELEM_BOOL && lf_type(p->f, x).elem != e) {
        in[2] = prog_op(p, L_NE, (struct ltype){ELEM_BOOL, 1}, ARRAY(lreg, x, prog_const(p, 0)));
    } else if (lf_type(p->f, x).elem != e) {
        in[2] = prog_op(p, L_CONVERT, (struct ltype){e, 1}, &x, 1);
    }
    lf_op(p->f, p->block, L_STORE, prog_i64, in, 3);
}

/* ---- operators --------------------------------------------------------------------------------------------------- */

static lreg node_const(struct prog *p, const struct node *n)
{
    return prog_const(p, n->src.i);
}

void call_seq_make(struct prog *p, const struct node *n)
{
    lreg elem = prog_const(p, (int64_t)node_elem(n, "elem"));
    lreg seq = PROG_CALL(p, "mcc_rt_seq_new", true, elem);
    for (uint32_t k = 0; k < n->n_in; k++) {
        seq = PROG_CALL(p, "mcc_rt_seq_append", true, seq, prog_handle(p, n->in[k]));
    }
    receive(p, n, seq);
}

void call_seq_insert(struct prog *p, const struct node *n)
{
    lreg in[4] = {node_const(p, n), prog_handle(p, n->in[0]), prog_handle(p, n->in[1])};
    if (n->n_in < 3) {
        receive(p, n, prog_call(p, "mcc_rt_seq_append", in + 1, 2, true));
        return;
    }
    in[3] = prog_load(p, n->in[2], 0);
    receive(p, n, prog_call(p, "mcc_rt_seq_insert", in, 4, true));
}

void call_seq_erase(struct prog *p, const struct node *n)
{
    receive(p, n,
            PROG_CALL(p, "mcc_rt_seq_erase", true, node_const(p, n), prog_handle(p, n->in[0]),
                      n->n_in > 1 ? prog_load(p, n->in[1], 0) : prog_const(p, -1)));
}

void call_seq_at(struct prog *p, const struct node *n)
{
    receive(p, n,
            PROG_CALL(p, "mcc_rt_seq_at", true, node_const(p, n), prog_handle(p, n->in[0]), prog_load(p, n->in[1], 0)));
}

void call_seq_length(struct prog *p, const struct node *n)
{
    lreg in = prog_handle(p, n->in[0]);
    prog_store_scalar(p, n->out[0], PROG_CALL(p, "mcc_rt_seq_length", false, in));
}

void call_seq_concat(struct prog *p, const struct node *n)
{
    receive(p, n,
            PROG_CALL(p, "mcc_rt_seq_concat", true, node_const(p, n), prog_handle(p, n->in[0]),
                      prog_const(p, node_int(n, "axis", 0)), prog_const(p, node_int(n, "new_axis", 0))));
}

void call_seq_split(struct prog *p, const struct node *n)
{
    lreg in[6] = {node_const(p, n),
                  prog_handle(p, n->in[0]),
                  prog_const(p, 0),
                  prog_const(p, -1),
                  prog_const(p, node_int(n, "axis", 0)),
                  prog_const(p, node_int(n, "keepdims", 1))};
    if (n->n_in > 1) {
        const struct type *t = value_type(p->g, n->in[1]);
        if (t->elem != ELEM_I64 || t->rank > 1) {
            p->failed = true;
            error_model(p->m->ctx, n->src, "the sizes of the pieces must be int64 here");
            return;
        }
        in[2] = prog_buffer(p, n->in[1], ELEM_I64);
        in[3] = t->rank ? prog_index(p, t->dims[0]) : prog_const(p, 0);
    }
    receive(p, n, prog_call(p, "mcc_rt_seq_split", in, 6, true));
}

void call_opt_make(struct prog *p, const struct node *n)
{
    const struct type *t = value_type(p->g, n->out[0]);
    while (t->kind != TYPE_TENSOR && t->inner)
        t = t->inner;
    receive(p, n,
            PROG_CALL(p, "mcc_rt_opt_new", true, prog_const(p, (int64_t)t->elem),
                      n->n_in ? prog_handle(p, n->in[0]) : prog_const(p, 0)));
}

void call_opt_get(struct prog *p, const struct node *n)
{
    receive(p, n, PROG_CALL(p, "mcc_rt_opt_get", true, node_const(p, n), prog_handle(p, n->in[0])));
}

void call_opt_has(struct prog *p, const struct node *n)
{
    lreg in = prog_handle(p, n->in[0]);
    prog_store_scalar(p, n->out[0], PROG_CALL(p, "mcc_rt_opt_has", false, in));
}

/* ---- ports ------------------------------------------------------------------------------------------------------- */

void prog_output_handles(struct prog *p)
{
    for (uint32_t k = 0; k < p->g->outputs.n && !p->failed; k++) {
        value_id v = p->g->outputs.data[k].value;
        const struct type *t = value_type(p->g, v);
        if (!prog_is_handle(t))
            continue;
        while (t->kind != TYPE_TENSOR && t->inner)
            t = t->inner;
        if (t->kind == TYPE_TENSOR && elem_bits(t->elem) > 0 && elem_bits(t->elem) < 8) {
            p->failed = true;
            error_at(p->m->ctx, FAIL_MODEL, (src_id){0}, p->g->outputs.data[k].name,
                     "a sequence of elements narrower than a byte is not supported as an output");
            return;
        }
        PROG_CALL(p, "mcc_rt_output_value", true, prog_const(p, k), prog_handle(p, v));
    }
}

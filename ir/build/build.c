/* The builder's core: appending a node with inference, folding of identities, propagation of known elements, and
 * asserts for the equalities that inference accepted without proof. What rules call by name is in ir/build/ops.c and
 * ir/build/dims.c. */
#include "ir/build/build.h"

#include <stdio.h>

#include "ir/build/lattice.h"

/* Above this, a tensor of known elements stays computed rather than becoming a constant or from_exprs. */
enum { FOLD_ELEMS = 64 };

/* A node where the builder stands. */
static node_id add(struct builder *b, const struct node *n, const struct type *out, uint32_t n_out)
{
    return b->before.i
               ? graph_insert_before(b->g, b->before, n->op, b->src, n->in, n->n_in, n->attr, n->n_attr, out, n_out)
               : graph_append(b->g, b->region, n->op, b->src, n->in, n->n_in, n->attr, n->n_attr, out, n_out);
}

struct builder builder_in(struct graph *g, region_id region)
{
    return (struct builder){.g = g, .x = g->ctx->exprs, .region = region};
}

struct builder builder_before(struct graph *g, node_id id)
{
    const struct node *n = graph_node(g, id);
    return (struct builder){.g = g, .x = g->ctx->exprs, .region = n->parent, .src = n->src, .before = id};
}

static bool poisoned(const value_id *in, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (in[i].i == 0)
            return true;
    return false;
}

/* Does the region already check this, not long ago? */
static bool asserted(struct builder *b, expr_id cond)
{
    enum { LOOK_BACK = 256 };
    const struct region *r = graph_get_region(b->g, b->region);
    for (uint32_t i = r->nodes.n; i > 0 && i + LOOK_BACK > r->nodes.n; i--) {
        const struct node *n = graph_node(b->g, r->nodes.data[i - 1]);
        if (n->op == OP_ASSERT && node_expr(n, "cond").i == cond.i)
            return true;
    }
    return false;
}

void b_assert(struct builder *b, expr_id cond, int32_t code, const char *fmt, ...)
{
    struct graph *g = b->g;
    enum truth truth = ex_truth(g->ctx->exprs, cond);
    if (truth == TRUE_ || asserted(b, cond))
        return;
    TEXT_OF_ARGUMENTS(text, 300, fmt);
    if (truth == FALSE_ && (graph_get_region(g, b->region)->depth == 0 || b->region.i == b->whole.i)) {
        error_model(g->ctx, b->src, "%s", text);
        return;
    }
    struct attr attrs[] = {attr_expr("cond", cond), attr_int("code", code), attr_str("text", text)};
    add(b, &(struct node){.op = OP_ASSERT, .attr = attrs, .n_attr = 3}, NULL, 0);
}

/* ---- what inference could not decide ---------------------------------------------------------------------------- */

static void assert_equal(struct builder *b, expr_id x, expr_id y, const char *what)
{
    if (x.i != y.i)
        b_assert(b, ex_eq(b->x, x, y), EVAL_SHAPE, "%s", what);
}

static void check_broadcast(struct builder *b, const struct node *node, const struct type *out)
{
    struct type t = *value_type(b->g, node->in[0]);
    for (int32_t i = 0; i < t.rank; i++) {
        expr_id from = t.dims[i], to = out->dims[out->rank - t.rank + i], one = ex_const(b->x, 1);
        if (from.i == to.i || ex_is(b->x, from, 1))
            continue;
        /* the shape that b_broadcast_dims chose for this very dim has its assert already */
        if (ex_kind(b->x, to) == EX_SELECT && (ex_arg(b->x, to, 1).i == from.i || ex_arg(b->x, to, 2).i == from.i))
            continue;
        b_assert(b, ex_or(b->x, ex_eq(b->x, from, to), ex_eq(b->x, from, one)), EVAL_SHAPE,
                 "a dimension does not broadcast to the result's");
    }
}

static void check_reshape(struct builder *b, const struct node *node, const struct type *out)
{
    struct type t = *value_type(b->g, node->in[0]);
    assert_equal(b, dims_product(b->x, t.dims, t.rank), dims_product(b->x, out->dims, out->rank),
                 "reshape changes the number of elements");
    for (int32_t i = 0; i < out->rank; i++)
        if (ex_lo(b->x, out->dims[i]) < 0)
            b_assert(b, ex_le(b->x, ex_const(b->x, 0), out->dims[i]), EVAL_SHAPE, "a dimension is negative");
}

static void check_concat(struct builder *b, const struct node *node, const struct type *out)
{
    int64_t axis = node_int(node, "axis", 0);
    for (uint32_t k = 0; k < node->n_in; k++) {
        struct type t = *value_type(b->g, node->in[k]);
        for (int32_t i = 0; i < t.rank; i++)
            if (i != axis)
                assert_equal(b, t.dims[i], out->dims[i], "shapes to concatenate differ off the axis");
    }
}

static void check_pad(struct builder *b, const struct node *node, const struct type *out)
{
    struct type t = *value_type(b->g, node->in[0]);
    uint32_t n;
    const expr_id *lo = node_exprs(node, "lo", &n), *hi = node_exprs(node, "hi", &n), zero = ex_const(b->x, 0);
    (void)out;
    for (int32_t i = 0; i < t.rank && strcmp(node_str(node, "mode", "constant"), "constant") != 0; i++)
        if (ex_lo(b->x, t.dims[i]) < 1)
            b_assert(b, ex_or(b->x, ex_lt(b->x, zero, t.dims[i]), ex_eq(b->x, ex_add(b->x, lo[i], hi[i]), zero)),
                     EVAL_SHAPE, "axis %d is empty: nothing to pad with", (int)i);
}

/* The least and the largest position of `size` elements, at least one, from start on. */
static void positions(struct exprs *x, expr_id start, expr_id size, int64_t step, expr_id *least, expr_id *most)
{
    expr_id end = ex_add(x, start, ex_mulc(x, ex_addc(x, size, -1), step));
    *least = step > 0 ? start : end;
    *most = step > 0 ? end : start;
}

/* Is e min(a, b) + c or, by kind, max(a, b) + c? Then a + c and b + c. */
static bool parts_of(struct exprs *x, expr_id e, enum expr_kind kind, expr_id part[2])
{
    bool sum = ex_kind(x, e) == EX_SUM && ex_n_args(x, e) == 1 && ex_coef(x, e, 0) == 1;
    expr_id of = sum ? ex_arg(x, e, 0) : e;
    for (uint32_t i = 0; i < 2 && ex_kind(x, of) == kind; i++)
        part[i] = ex_addc(x, ex_arg(x, of, i), sum ? ex_addend(x, e) : 0);
    return ex_kind(x, of) == kind;
}

static bool is_below(struct exprs *x, expr_id e, expr_id dim, int depth)
{
    expr_id part[2];
    return ex_cmp_lt(x, e, dim) == TRUE_ ||
           (depth > 0 && parts_of(x, e, EX_MAX, part) && is_below(x, part[0], dim, depth - 1) &&
            is_below(x, part[1], dim, depth - 1));
}

/* Proves that a slice of at least one element lies in [0, dim). It does so if a longer slice does: a minimum is no more
 * than one part (and the other, which may be dim, is at least 1); a maximum is one part if the other is at most 0. */
static bool lies_inside(struct exprs *x, expr_id start, expr_id size, int64_t step, expr_id dim, int depth)
{
    expr_id least, most, part[2];
    positions(x, start, size, step, &least, &most);
    if (ex_cmp_le(x, ex_const(x, 0), least) == TRUE_ && is_below(x, most, dim, depth))
        return true;
    bool min = depth > 0 && parts_of(x, size, EX_MIN, part), max = depth > 0 && !min && parts_of(x, size, EX_MAX, part);
    for (uint32_t i = 0; i < 2 && (min || max); i++) {
        expr_id other = part[1 - i], end = min && other.i == dim.i ? ex_max(x, dim, ex_const(x, 1)) : dim;
        if ((min || ex_hi(x, other) <= 0) && lies_inside(x, start, part[i], step, end, depth - 1))
            return true;
    }
    return false;
}

/* A slice has no negative number of elements, and all of them lie in its operand. */
static void check_slice(struct builder *b, const struct node *node, const struct type *out)
{
    struct type t = *value_type(b->g, node->in[0]);
    struct exprs *x = b->x;
    uint32_t n;
    const expr_id *starts = node_exprs(node, "starts", &n), *sizes = out->dims, zero = ex_const(x, 0);
    const int64_t *steps = node_ints(node, "steps", &n);
    for (int32_t i = 0; i < t.rank; i++) {
        expr_id least, most, holds = ex_le(x, zero, sizes[i]);
        if (sizes[i].i == t.dims[i].i && ex_is(x, starts[i], 0) && steps[i] == 1)
            continue;
        const int depth = steps[i] >= -INT32_MAX && steps[i] <= INT32_MAX ? 3 : 0; /* else products may overflow */
        if (!lies_inside(x, starts[i], sizes[i], steps[i], t.dims[i], depth)) {
            positions(x, starts[i], sizes[i], steps[i], &least, &most);
            expr_id inside = ex_and(x, ex_le(x, zero, least), ex_lt(x, most, t.dims[i]));
            holds = ex_and(x, holds, ex_or(x, ex_eq(x, sizes[i], zero), inside));
        }
        b_assert(b, holds, EVAL_SHAPE, "a slice leaves axis %d of its operand", (int)i);
    }
}

static void check_dot(struct builder *b, const struct node *node, const struct type *out)
{
    static const char *const lists[][2] = {{"batch_a", "batch_b"}, {"contract_a", "contract_b"}};
    struct type a = *value_type(b->g, node->in[0]), c = *value_type(b->g, node->in[1]);
    uint32_t n;
    (void)out;
    for (size_t k = 0; k < COUNT_OF(lists); k++) {
        const int64_t *x = node_ints(node, lists[k][0], &n), *y = node_ints(node, lists[k][1], &n);
        for (uint32_t i = 0; i < n; i++)
            assert_equal(b, a.dims[x[i]], c.dims[y[i]], "dimensions of a product differ");
    }
}

static void check_window(struct builder *b, const struct node *node, const struct type *out)
{
    if (node->op == OP_CONV) {
        struct type x = *value_type(b->g, node->in[0]), w = *value_type(b->g, node->in[1]);
        assert_equal(b, x.dims[1], ex_mulc(b->x, w.dims[1], node_int(node, "groups", 1)),
                     "channels of input and weights differ");
    }
    for (int32_t i = 0; i < out->rank; i++)
        if (ex_lo(b->x, out->dims[i]) < 0)
            b_assert(b, ex_le(b->x, ex_const(b->x, 0), out->dims[i]), EVAL_SHAPE,
                     "the window is larger than the padded input");
}

/* The dims of indices other than axis reach no further than those of x. */
static void check_within(struct builder *b, struct type x, struct type idx, int64_t axis)
{
    for (int32_t i = 0; i < x.rank; i++)
        if (i != axis && x.dims[i].i != idx.dims[i].i)
            b_assert(b, ex_le(b->x, idx.dims[i], x.dims[i]), EVAL_SHAPE, "indices do not fit to what they address");
}

static void check_gather(struct builder *b, const struct node *node, const struct type *out)
{
    struct type x = *value_type(b->g, node->in[0]), idx = *value_type(b->g, node->in[1]);
    (void)out;
    if (node->op == OP_GATHER_ELEMENTS)
        check_within(b, x, idx, node_int(node, "axis", 0));
    else
        for (int64_t i = 0, batch = node_int(node, "batch", 0); i < batch; i++)
            assert_equal(b, x.dims[i], idx.dims[i], "batch dimensions of data and indices differ");
}

static void check_scatter(struct builder *b, const struct node *node, const struct type *out)
{
    struct type x = *value_type(b->g, node->in[0]), idx = *value_type(b->g, node->in[1]),
                u = *value_type(b->g, node->in[2]);
    int32_t head = idx.rank - (node->op == OP_SCATTER_ND), skip = x.rank - u.rank;
    (void)out;
    if (node->op == OP_SCATTER_ELEMENTS)
        check_within(b, x, idx, node_int(node, "axis", 0));
    for (int32_t i = 0; i < u.rank; i++)
        assert_equal(b, u.dims[i], i < head ? idx.dims[i] : x.dims[i + skip], "updates do not fit to the indices");
}

static void check_det(struct builder *b, const struct node *node, const struct type *out)
{
    struct type x = *value_type(b->g, node->in[0]);
    (void)out;
    assert_equal(b, x.dims[x.rank - 2], x.dims[x.rank - 1], "matrices must be square");
}

static void check_nms(struct builder *b, const struct node *node, const struct type *out)
{
    struct type x = *value_type(b->g, node->in[0]), scores = *value_type(b->g, node->in[1]);
    (void)out;
    assert_equal(b, x.dims[0], scores.dims[0], "batches of boxes and scores differ");
    assert_equal(b, x.dims[1], scores.dims[2], "numbers of boxes differ");
    assert_equal(b, x.dims[2], ex_const(b->x, 4), "boxes have four coordinates");
}

typedef void check_fn(struct builder *, const struct node *, const struct type *out);
static check_fn *const check_table[OP_COUNT] = {
#define OP(id, name, least, most, results, shape, cost, infer, eval, lattice, read, check, ...) [OP_##id] = check,
#include "ir/ops/ops.def"
};

/* ---- identities -------------------------------------------------------------------------------------------------- */

static bool all_exprs(struct exprs *ex, const struct node *node, const char *name)
{
    uint32_t n;
    const expr_id *e = node_exprs(node, name, &n);
    for (uint32_t i = 0; i < n; i++)
        if (!ex_is(ex, e[i], 0))
            return false;
    return true;
}

/* The type is unchanged: does the operator then change nothing else either? */
typedef bool idle_fn(struct exprs *, const struct node *);

static bool idle_always(struct exprs *ex, const struct node *node)
{
    (void)ex;
    (void)node;
    return true;
}

static bool idle_concat(struct exprs *ex, const struct node *node)
{
    (void)ex;
    return node->n_in == 1;
}

static bool idle_transpose(struct exprs *ex, const struct node *node)
{
    uint32_t n;
    const int64_t *perm = node_ints(node, "perm", &n);
    (void)ex;
    for (uint32_t i = 0; i < n; i++)
        if (perm[i] != i)
            return false;
    return true;
}

static bool idle_slice(struct exprs *ex, const struct node *node)
{
    uint32_t n;
    const int64_t *steps = node_ints(node, "steps", &n);
    for (uint32_t i = 0; i < n; i++)
        if (steps[i] != 1)
            return false;
    return all_exprs(ex, node, "starts");
}

static bool idle_pad(struct exprs *ex, const struct node *node)
{
    return all_exprs(ex, node, "lo") && all_exprs(ex, node, "hi");
}

static bool idle_reduce(struct exprs *ex, const struct node *node)
{
    uint32_t n;
    (void)ex;
    node_ints(node, "axes", &n);
    return n == 0;
}

static idle_fn *const idle_table[OP_COUNT] = {
#define OP(id, name, least, most, results, shape, cost, infer, eval, lattice, read, check, idle, ...) [OP_##id] = idle,
#include "ir/ops/ops.def"
};

/* A tensor of known elements as a constant, or as from_exprs; {0} when it should be computed. */
static value_id from_known(struct builder *b, const struct node *node, const struct type *out, const expr_id *elems,
                           uint32_t n)
{
    int64_t dims[RANK_MAX];
    enum op_shape shape = op_shape(node->op);
    if (!elems || n > FOLD_ELEMS || shape == SHAPE_CONST || shape == SHAPE_POINT || node->op == OP_BROADCAST)
        return (value_id){0};
    for (uint32_t i = 0; i < n; i++)
        if (elems[i].i == 0)
            return (value_id){0};
    for (int32_t i = 0; i < out->rank; i++)
        ex_is_const(b->x, out->dims[i], &dims[i]);
    return b_from_exprs(b, out->elem, elems, n, dims, out->rank);
}

/* Counts that an opaque node binds (nonzero's, say) say so: value is the result, elem no element. */
static void bind_counts(struct graph *g, node_id id)
{
    struct exprs *ex = g->ctx->exprs;
    struct node node = *graph_node(g, id);
    for (uint32_t i = 0; i < node.n_out; i++) {
        const struct type *t = value_type(g, node.out[i]);
        for (int32_t k = 0; t->kind == TYPE_TENSOR && k < t->rank; k++) {
            sym_id s = ex_as_sym(ex, t->dims[k]);
            if (!s.i || sym_get(ex, s)->kind != SYM_VALUE || sym_get(ex, s)->value)
                continue;
            sym_get(ex, s)->value = node.out[i].i;
            sym_get(ex, s)->elem = UINT32_MAX;
        }
    }
}

/* ---- appending --------------------------------------------------------------------------------------------------- */

static node_id append(struct builder *b, const struct node *node, const struct type *out, uint32_t n_out)
{
    if (check_table[node->op])
        check_table[node->op](b, node, out);
    node_id id = add(b, node, out, n_out);
    if (op_shape(node->op) == SHAPE_OPAQUE)
        bind_counts(b->g, id);
    return id;
}

bool b_op_multi(struct builder *b, enum op op, const value_id *in, uint32_t n_in, const struct attr *attr,
                uint32_t n_attr, value_id *out, uint32_t n_out)
{
    struct type types[8];
    memset(types, 0, sizeof types);
    memset(out, 0, n_out * sizeof *out);
    if (poisoned(in, n_in) || n_out > COUNT_OF(types) ||
        !op_infer(b->g, op, b->src, in, n_in, attr, n_attr, types, n_out))
        return false;
    struct node node = {.op = op, .n_in = n_in, .n_out = n_out, .n_attr = n_attr};
    node.in = arena_copy(&b->g->arena, in, n_in * sizeof *in);
    node.attr = arena_copy(&b->g->arena, attr, n_attr * sizeof *attr);
    if (n_out == 1 && n_in >= 1 && type_equal(&types[0], value_type(b->g, in[0])) && idle_table[op] &&
        idle_table[op](b->x, &node)) {
        out[0] = in[0];
        return true;
    }
    uint32_t n = 0;
    const expr_id *elems = n_out == 1 ? lattice_node(b->g, &node, &types[0], &n) : NULL;
    if (n_out == 1 && (out[0] = from_known(b, &node, &types[0], elems, n)).i)
        return true;
    node_id id = append(b, &node, types, n_out);
    for (uint32_t i = 0; i < n_out; i++)
        out[i] = graph_node(b->g, id)->out[i];
    if (elems) {
        graph_value(b->g, out[0])->elems = elems;
        graph_value(b->g, out[0])->n_elems = n;
    }
    return true;
}

value_id b_op(struct builder *b, enum op op, const value_id *in, uint32_t n_in, const struct attr *attr,
              uint32_t n_attr)
{
    value_id out;
    b_op_multi(b, op, in, n_in, attr, n_attr, &out, 1);
    return out;
}

value_id b_copy(struct builder *b, value_id x)
{
    if (!x.i)
        return x;
    struct type t = *value_type(b->g, x);
    node_id id = add(b, &(struct node){.op = OP_IDENTITY, .in = &x, .n_in = 1}, &t, 1);
    return graph_node(b->g, id)->out[0];
}

/* ---- constants --------------------------------------------------------------------------------------------------- */

value_id b_const_borrow(struct builder *b, enum elem elem, const int64_t *dims, int32_t rank, struct span data)
{
    struct attr attrs[] = {attr_elem("elem", elem), attr_ints("dims", dims, (uint32_t)rank),
                           attr_data(data.data, data.size)};
    struct type t = {0};
    if (!op_infer(b->g, OP_CONSTANT, b->src, NULL, 0, attrs, 3, &t, 1))
        return (value_id){0};
    node_id id = add(b, &(struct node){.op = OP_CONSTANT, .attr = attrs, .n_attr = 3}, &t, 1);
    value_id v = graph_node(b->g, id)->out[0];
    if (elem == ELEM_I64 || elem == ELEM_I32 || elem == ELEM_BOOL) /* others: on demand */
        lattice_elems(b->g, v);
    return v;
}

value_id b_const(struct builder *b, enum elem elem, const int64_t *dims, int32_t rank, const void *data)
{
    int64_t size = elem_size(elem);
    for (int32_t i = 0; i < rank; i++)
        if (dims[i] < 0 || !mul_i64(size, dims[i], &size))
            size = 0; /* b_const_borrow reports it */
    void *copy = arena_alloc(&b->g->arena, (size_t)size + 1);
    if (size)
        memcpy(copy, data, (size_t)size);
    return b_const_borrow(b, elem, dims, rank, (struct span){copy, (size_t)size});
}

value_id b_from_exprs(struct builder *b, enum elem elem, const expr_id *elems, uint32_t n, const int64_t *dims,
                      int32_t rank)
{
    uint32_t n_const = 0;
    int64_t v, count = 1;
    for (int32_t i = 0; i < rank; i++)
        count *= dims[i];
    char *data = arena_alloc(&b->g->arena, (size_t)n * 8 + 1);
    for (uint32_t i = 0; i < n; i++) {
        if (elems[i].i == 0)
            return (value_id){0};
        if (!ex_is_const(b->x, elems[i], &v))
            break;
        elem_from_i64(elem, v, data + i * elem_size(elem));
        n_const++;
    }
    if (n_const == n && count == n)
        return b_const_borrow(b, elem, dims, rank, (struct span){data, (size_t)n * elem_size(elem)});
    struct attr attrs[] = {attr_elem("elem", elem), attr_ints("dims", dims, (uint32_t)rank),
                           attr_exprs("exprs", elems, n)};
    return b_op(b, OP_FROM_EXPRS, NULL, 0, attrs, 3);
}

/* strassen: a large product becomes seven of halves, by Winograd's form of Strassen's algorithm (one level of it).
 *
 *   dot(a, b)     ->     concat of C11 .. C22, sums of seven dots of a's and b's quarters and of sums of those
 *
 *   s1 = a21 + a22   s2 = s1 - a11   s3 = a11 - a21   s4 = a12 - s2
 *   t1 = b12 - b11   t2 = b22 - t1   t3 = b22 - b12   t4 = t2 - b21
 *   u = a11 b11 + s2 t2
 *   C11 = a11 b11 + a12 b21              C12 = u + s1 t1 + s4 b22
 *   C21 = u + s3 t3 - a22 t4             C22 = u + s3 t3 + s1 t1
 *
 * One multiplication of eight is saved for sums over the first operand and the result, so each side has to be long. b
 * is a constant, so the sums of its quarters are constants, too: 1.75 times its bytes. Errors grow by a small factor
 * (docs/numerics.md), so the user asks for it (--strassen). Winograd's form as in: Higham, Accuracy and Stability of
 * Numerical Algorithms, chapter 23. In and out: a legal graph.
 */
#include "ir/build/build.h"
#include "ir/target/budget.h"
#include "passes/module/access.h"
#include "passes/module/compressed.h"
#include "passes/module/module.h"

enum {
    SIDE_LEAST = 768,
    PANELS = 2 * CHANNEL_BLOCK, /* halves of whole panels */
    /* Quarters of a matrix that are read and written: the four sums of a's, and seven results where there was one. */
    OPERAND_QUARTERS = 12,
    RESULT_QUARTERS = 16
};

/* What is cut in two: dims of the operands, and their places in the result. */
struct cut {
    int32_t row, column, contract[2]; /* of operand 0; of operand 1; of each */
    int32_t row_out, column_out;
};

/* The only contracted dim of operand k; -1: there are more, or batch dims. */
static int32_t contracted(const struct node *n, uint32_t k)
{
    uint32_t batch, count;
    node_ints(n, k ? "batch_b" : "batch_a", &batch);
    const int64_t *dim = node_ints(n, k ? "contract_b" : "contract_a", &count);
    return batch == 0 && count == 1 ? (int32_t)dim[0] : -1;
}

/* The product of the dims of t but `without`, and the first of them that is even; false: one is not known. */
static bool free_dims(const struct graph *g, const struct type *t, int32_t without, int64_t *points, int32_t *even)
{
    int64_t extent;
    *points = 1;
    *even = -1;
    for (int32_t d = 0; d < t->rank; d++) {
        if (d == without)
            continue;
        if (!ex_is_const(g->ctx->exprs, t->dims[d], &extent) || extent < 1 || !mul_i64(*points, extent, points))
            return false;
        if (*even < 0 && extent % 2 == 0)
            *even = d;
    }
    return *even >= 0;
}

/* Is an eighth of the multiply-adds more than what the sums take? */
static bool saves(const struct machine *m, int64_t rows, int64_t columns, int64_t steps)
{
    int64_t lanes = m->vector_bytes / 4, lines, operand, result, products;
    if (!mul_i64(rows, steps, &operand) || !mul_i64(rows, columns, &result) || !mul_i64(result, steps, &products) ||
        !mul_i64(operand / 4, OPERAND_QUARTERS, &operand) || !mul_i64(result / 4, RESULT_QUARTERS, &result) ||
        !add_i64(operand, result, &lines) || !mul_i64(lines / lanes, RATE_HALVES_LINE, &lines))
        return false;
    return products / 8 / lanes / m->fma_per_cycle > lines;
}

/* May the product be taken apart, and where? */
static bool cut_of(const struct module *m, const struct node *n, struct cut *cut)
{
    const struct type *t[2];
    int64_t side[2], steps;
    if (n->dead || n->op != OP_DOT || n->n_in != 2 || value_type(m->g, n->out[0])->elem != ELEM_F32)
        return false;
    for (uint32_t k = 0; k < 2; k++) {
        t[k] = value_type(m->g, n->in[k]);
        cut->contract[k] = contracted(n, k);
        if (t[k]->elem != ELEM_F32 || cut->contract[k] < 0 ||
            !free_dims(m->g, t[k], cut->contract[k], &side[k], k ? &cut->column : &cut->row) ||
            value_is_const(m->g, n->in[k]) != (k == 1))
            return false;
    }
    cut->row_out = cut->row - (cut->row > cut->contract[0]);
    cut->column_out = t[0]->rank - 1 + cut->column - (cut->column > cut->contract[1]);
    if (t[1]->rank != 2 || constant_is_compressed(m, n->in[1], cut->column) ||
        !ex_is_const(m->ctx->exprs, t[0]->dims[cut->contract[0]], &steps) || steps % 2)
        return false;
    return m->always || (side[0] >= SIDE_LEAST && side[1] >= SIDE_LEAST && steps >= SIDE_LEAST &&
                         side[1] % PANELS == 0 && saves(module_machine(m), side[0], side[1], steps));
}

/* Half `which` of v along dim d. */
static value_id half(struct builder *b, value_id v, int32_t d, int64_t which)
{
    int64_t extent = 0;
    struct exprs *x = b->g->ctx->exprs;
    ex_is_const(x, value_type(b->g, v)->dims[d], &extent);
    return b_slice_axis(b, v, d, ex_const(x, which * (extent / 2)), ex_const(x, extent / 2));
}

static value_id quarter(struct builder *b, value_id v, int32_t row, int32_t column, int64_t i)
{
    return half(b, half(b, v, row, i / 2), column, i % 2);
}

static value_id add(struct builder *b, value_id x, value_id y)
{
    return b_binary(b, OP_ADD, x, y);
}

static value_id sub(struct builder *b, value_id x, value_id y)
{
    return b_binary(b, OP_SUB, x, y);
}

static value_id product(struct builder *b, const struct node *n, value_id x, value_id y)
{
    return b_op(b, OP_DOT, (value_id[]){x, y}, 2, n->attr, n->n_attr);
}

static void take_apart(struct module *m, node_id id, const struct cut *cut)
{
    const struct node n = *graph_node(m->g, id);
    struct builder build = builder_before(m->g, id), *b = &build;
    value_id a[4], w[4];
    for (int64_t i = 0; i < 4; i++) {
        a[i] = quarter(b, n.in[0], cut->row, cut->contract[0], i);
        w[i] = quarter(b, n.in[1], cut->contract[1], cut->column, i);
    }
    value_id s1 = add(b, a[2], a[3]), s2 = sub(b, s1, a[0]), s3 = sub(b, a[0], a[2]), s4 = sub(b, a[1], s2);
    value_id t1 = sub(b, w[1], w[0]), t2 = sub(b, w[3], t1), t3 = sub(b, w[3], w[1]), t4 = sub(b, t2, w[2]);
    value_id first = product(b, &n, a[0], w[0]), c11 = add(b, product(b, &n, a[1], w[2]), first);
    value_id u = add(b, product(b, &n, s2, t2), first), u3 = add(b, product(b, &n, s3, t3), u);
    value_id both = product(b, &n, s1, t1);
    value_id c12 = add(b, product(b, &n, s4, w[3]), add(b, u, both));
    value_id c21 = sub(b, u3, product(b, &n, a[3], t4)), c22 = add(b, u3, both);
    value_id upper = b_concat(b, (value_id[]){c11, c12}, 2, cut->column_out);
    value_id lower = b_concat(b, (value_id[]){c21, c22}, 2, cut->column_out);
    value_id y = b_concat(b, (value_id[]){upper, lower}, 2, cut->row_out);
    graph_replace(m->g, id, y);
}

/* Where operands are rounded, or weights stored in another type, what sums of them would be is another network. */
bool strassen(struct module *m)
{
    uint32_t n_nodes = is_narrowed(m) || m->weights_type != WEIGHTS_AS_THEY_ARE ? 0 : m->g->nodes.n;
    for (uint32_t i = 1; i < n_nodes; i++) {
        struct cut cut;
        if (cut_of(m, graph_node(m->g, (node_id){i}), &cut))
            take_apart(m, (node_id){i}, &cut);
    }
    graph_sweep(m->g);
    return m->ctx->fail == FAIL_NONE;
}

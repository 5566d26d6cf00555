/* Feature maps as lines: what a sparse convolution leaves for the maps and convolutions after it.
 *
 * The sums of a convolution with taps have a gap after each row of points (sparse_conv.c). A map of such lines is
 * computed on the lines, gaps included, so it is part of the kernel of the sums; so is the next convolution. Where one
 * operand of a map, as the shortcut of a residual block, has other gaps or none, it is computed anew on the lines of
 * the other, if nothing else reads it.
 */
#include "passes/graph/sparse.h"

enum { DEPTH_MOST = 16, OPERANDS_MOST = 3 };

/* ---- tables ------------------------------------------------------------------------------------------------------ */

const struct flat *flat_of(const struct sparse *s, value_id v)
{
    for (uint32_t i = s->flats.n; i > 0; i--)
        if (s->flats.data[i - 1].value.i == v.i)
            return &s->flats.data[i - 1];
    return NULL;
}

static const struct product *product_of(const struct sparse *s, value_id line)
{
    for (uint32_t i = s->products.n; i > 0; i--)
        if (s->products.data[i - 1].line.i == line.i)
            return &s->products.data[i - 1];
    return NULL;
}

void product_add(struct sparse *s, const struct product *p)
{
    VEC_PUSH(s->m->arena, &s->products, *p);
}

/* Points of a line up to the last row, gaps included. */
static int64_t lines_points(const struct lines *at)
{
    int64_t points = at->out[0];
    for (int32_t i = 1; i < at->n; i++)
        points *= at->pitch[i];
    return points;
}

value_id flat_value(struct sparse *s, struct builder *b, value_id line, const struct lines *at, bool alone,
                    const expr_id *d)
{
    struct exprs *x = b->x;
    expr_id rows[RANK_MAX] = {d[0], d[1], ex_const(x, at->out[0])}, zero = ex_const(x, 0);
    value_id v = b_slice_axis(b, line, 2, zero, ex_const(x, lines_points(at)));
    for (int32_t i = 1; i < at->n; i++)
        rows[2 + i] = ex_const(x, at->pitch[i]);
    v = b_reshape(b, v, rows, 2 + at->n);
    for (int32_t i = 1; i < at->n; i++)
        v = b_slice_axis(b, v, 2 + i, zero, ex_const(x, at->out[i]));
    struct flat f = {v, line, *at, alone};
    VEC_PUSH(s->m->arena, &s->flats, f);
    return v;
}

int64_t whole_rows(int64_t points, int64_t row, int64_t times)
{
    int64_t rows = (points + row - 1) / row;
    while (rows * row % LINE_ELEMENTS * (times % LINE_ELEMENTS) % LINE_ELEMENTS)
        rows++;
    return rows;
}

static bool lines_equal(const struct lines *a, const struct lines *b)
{
    bool equal = a->n == b->n && a->points == b->points && a->out[0] == b->out[0];
    for (int32_t i = 1; equal && i < a->n; i++)
        equal = a->out[i] == b->out[i] && a->pitch[i] == b->pitch[i];
    return equal;
}

static bool has_gaps(const struct lines *at)
{
    bool gaps = false;
    for (int32_t i = 1; i < at->n; i++)
        gaps |= at->pitch[i] != at->out[i];
    return gaps;
}

/* ---- lines of other points --------------------------------------------------------------------------------------- */

int64_t again_channels(const struct sparse *s, value_id line, int depth)
{
    const struct graph *g = s->m->g;
    const struct product *p = product_of(s, line);
    const struct node *n = value_node(g, line);
    int64_t most = 0, channels;
    if (p)
        return ex_is_const(s->m->ctx->exprs, value_type(g, p->operand)->dims[1], &channels) ? channels : -1;
    if (!n || depth > DEPTH_MOST || (n->op != OP_BROADCAST && op_shape(n->op) != SHAPE_MAP))
        return -1;
    for (uint32_t i = 0; i < n->n_in && n->op != OP_BROADCAST; i++) {
        channels = again_channels(s, n->in[i], depth + 1);
        if (channels < 0)
            return -1;
        most = channels > most ? channels : most;
    }
    return most;
}

value_id flat_again(const struct sparse *s, struct builder *b, value_id line, const struct again *a)
{
    const struct product *p = product_of(s, line);
    if (p)
        return sparse_product(b, &p->rows, a->operand(b, a->user, p));
    const struct node n = *value_node(b->g, line);
    value_id in[OPERANDS_MOST];
    if (n.op == OP_BROADCAST) {
        const expr_id *of = value_type(b->g, line)->dims, dims[3] = {of[0], of[1], ex_const(b->x, a->points)};
        return b_broadcast(b, n.in[0], dims, 3);
    }
    for (uint32_t i = 0; i < n.n_in; i++)
        in[i] = flat_again(s, b, n.in[i], a);
    return b_op(b, n.op, in, n.n_in, n.attr, n.n_attr);
}

/* ---- maps -------------------------------------------------------------------------------------------------------- */

/* What is the same at all points of a channel, on lines. {0}: v is not. */
static value_id channels_of_line(struct builder *b, value_id v, const expr_id *line)
{
    const struct node *n = value_node(b->g, v);
    if (!n || n->op != OP_BROADCAST)
        return (value_id){0};
    value_id from = n->in[0];
    const struct type t = *value_type(b->g, from);
    int32_t spatial = value_type(b->g, v)->rank - 2, lead = t.rank > spatial ? t.rank - spatial : 0;
    expr_id dims[RANK_MAX];
    for (int32_t d = 0; d < t.rank; d++) {
        if (d >= lead && !ex_is(b->x, t.dims[d], 1))
            return (value_id){0};
        dims[d < lead ? d : lead] = t.dims[d];
    }
    if (t.rank)
        from = b_reshape(b, from, dims, lead + 1);
    return b_broadcast(b, from, line, 3);
}

value_id product_points(struct builder *b, const struct product *p, const expr_id *spatial)
{
    const struct type t = *value_type(b->g, p->operand);
    expr_id starts[RANK_MAX], sizes[RANK_MAX];
    int64_t steps[RANK_MAX];
    for (int32_t d = 0; d < t.rank; d++) {
        starts[d] = ex_const(b->x, 0);
        sizes[d] = d < 2 ? t.dims[d] : spatial[d - 2];
        steps[d] = d < 2 ? 1 : p->strides[d - 2];
    }
    return b_slice(b, p->operand, starts, sizes, steps);
}

/* The operand of a product on the lines of a map: its points, rows with gaps. */
static value_id operand_of_lines(struct builder *b, void *user, const struct product *p)
{
    const struct lines *at = user;
    struct exprs *x = b->x;
    const struct type t = *value_type(b->g, p->operand);
    expr_id lo[RANK_MAX], hi[RANK_MAX], out[SPATIAL_MOST], zero = ex_const(x, 0);
    int64_t row = lines_points(at) / at->out[0], rows = whole_rows(at->points, row, 1);
    const expr_id dims[3] = {t.dims[0], t.dims[1], ex_const(x, rows * row)};
    for (int32_t d = 0; d < t.rank; d++)
        lo[d] = hi[d] = zero;
    for (int32_t d = 0; d < at->n; d++)
        out[d] = ex_const(x, at->out[d]);
    hi[2] = ex_const(x, rows - at->out[0]);
    for (int32_t d = 1; d < at->n; d++)
        hi[2 + d] = ex_const(x, at->pitch[d] - at->out[d]);
    value_id v = b_copy(b, b_pad(b, product_points(b, p, out), (value_id){0}, lo, hi, "constant"));
    return b_slice_axis(b, b_reshape(b, v, dims, 3), 2, zero, ex_const(x, at->points));
}

static bool is_alone(const struct sparse *s, const struct flat *f)
{
    return f->alone && graph_value(s->m->g, f->value)->n_uses == 1;
}

/* Do convolutions or windows read v that want blocks of channels? */
static bool blocks_are_read(const struct sparse *s, value_id v)
{
    const struct graph *g = s->m->g;
    for (const struct graph_user *u = graph_user(g, v, NULL); u; u = graph_user(g, v, u)) {
        enum op op = u->node.i ? graph_node(g, u->node)->op : OP_IDENTITY;
        if (op == OP_WINDOW || (op == OP_CONV && !may_be_sparse(s->m, u->node)))
            return true;
    }
    return false;
}

/* The lines of the operands of a map: those with gaps, if any has. */
static const struct flat *lines_of_map(const struct sparse *s, const struct node *n)
{
    const struct flat *found = NULL;
    for (uint32_t i = 0; i < n->n_in; i++) {
        const struct flat *f = flat_of(s, n->in[i]);
        if (f && (!found || has_gaps(&f->at)))
            found = f;
    }
    return found;
}

static bool all_f32(const struct graph *g, const struct node *n)
{
    bool all = n->n_out == 1 && n->n_in <= OPERANDS_MOST && value_type(g, n->out[0])->elem == ELEM_F32;
    for (uint32_t i = 0; i < n->n_in && all; i++)
        all = value_type(g, n->in[i])->elem == ELEM_F32;
    return all;
}

value_id flat_map(struct sparse *s, node_id id)
{
    const struct node n = *graph_node(s->m->g, id);
    const struct flat *found = op_shape(n.op) == SHAPE_MAP && all_f32(s->m->g, &n) ? lines_of_map(s, &n) : NULL;
    if (!found || blocks_are_read(s, n.out[0]))
        return (value_id){0};
    struct lines at = found->at;
    struct builder b = builder_before(s->m->g, id);
    const expr_id *d = value_type(b.g, n.out[0])->dims, line[3] = {d[0], d[1], ex_const(b.x, at.points)};
    struct again again = {operand_of_lines, &at, at.points};
    value_id in[OPERANDS_MOST];
    bool alone = true;
    for (uint32_t i = 0; i < n.n_in; i++) {
        const struct flat *f = flat_of(s, n.in[i]);
        alone &= !f || is_alone(s, f);
        if (f && lines_equal(&f->at, &at))
            in[i] = f->line;
        else if (f)
            in[i] = is_alone(s, f) && again_channels(s, f->line, 0) > 0 ? flat_again(s, &b, f->line, &again)
                                                                        : (value_id){0};
        else
            in[i] = channels_of_line(&b, n.in[i], line);
        if (!in[i].i)
            return (value_id){0};
    }
    return flat_value(s, &b, b_op(&b, n.op, in, n.n_in, n.attr, n.n_attr), &at, alone, d);
}

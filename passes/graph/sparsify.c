/* sparsify: contractions with a constant that is mostly zeros read and multiply its other elements only.
 *
 *   dot(x [m, k], w [k, n])      ->   transpose(sparse(transpose(x)))
 *
 *   sparse(x [k, l])             =    segments(v[j] * gather(x, i)[j, l], starts)
 *
 * v has the elements of the constant that are not zero, row after row, i their places along k, and starts says where
 * each row begins: compressed sparse rows (CSR). Lanes lie along l: points of an image, rows of a product. A step loads
 * a place and an element, which four to eight vectors of points share, and is one multiply-add for each. Everything is
 * core operators, so the rest of the compiler knows no sparse constants. Results differ from dense ones in the order of
 * sums, and where zeros would have met an infinity or NaN. Convolutions are in sparse_conv.c.
 *
 * With bytes, an element is a group of four, gather(x, i) [j, 4, l], and the product is a dot over these four. A row
 * ends with products of 0 if its elements do not fill the last group. Sums are exact, so results are the dense ones to
 * the bit.
 *
 * In and out: a legal graph. After fold-factors, which needs the dense weights.
 */
#include "passes/graph/sparse.h"
#include "passes/module/access_function.h"
#include "passes/module/analysis.h"
#include "passes/module/compressed.h"

enum {
    PIECE = 4096,
    GROUP = 4, /* products of bytes that one instruction sums */
    PRODUCTS_LEAST = 4096 * POINTS_LEAST, /* multiply-adds of the dense form */
    ELEMENTS_MOST = 1 << 28,              /* of the constant */
    MASKS_PART = 8,                       /* of what sparse constants save, masks of gaps may add one part, */
    MASKS_LEAST = 16384                   /* or so many bytes */
};
#define ZEROS_LEAST 0.6

/* ---- the constant ------------------------------------------------------------------------------------------------ */

/* Element e of the constant, in the order of its dims, is one of a row. */
static void element_place(const struct rows *r, int64_t e, int64_t *row, int64_t *place)
{
    *row = r->by_rows ? e / r->k : e % r->n;
    *place = r->by_rows ? e % r->k : e / r->n;
}

/* Elements of a constant of f32 or bytes. */
static bool piece_read(struct module *m, value_id w, int64_t at, int64_t count, float *piece)
{
    enum elem e = value_type(m->g, w)->elem;
    uint8_t bytes[PIECE];
    if (e == ELEM_F32)
        return const_read(m->g, w, at, count, piece);
    if (!const_read(m->g, w, at, count, bytes))
        return false;
    for (int64_t i = 0; i < count; i++)
        piece[i] = (float)elem_to_i64(e, bytes + i);
    return true;
}

/* Called for each element that is not zero, in the order of the constant's dims. */
typedef void element_fn(struct rows *, int64_t row, int64_t place, float value);

static bool elements_read(struct module *m, value_id w, struct rows *r, element_fn *each)
{
    float piece[PIECE];
    int64_t size = r->n * r->k, row, place;
    for (int64_t at = 0; at < size; at += PIECE) {
        int64_t count = size - at < PIECE ? size - at : PIECE;
        if (!piece_read(m, w, at, count, piece))
            return false;
        for (int64_t i = 0; i < count; i++)
            if (piece[i] != 0) {
                element_place(r, at + i, &row, &place);
                each(r, row, place, piece[i]);
            }
    }
    return true;
}

static void element_count(struct rows *r, int64_t row, int64_t place, float value)
{
    (void)place, (void)value;
    r->starts[row + 1]++;
    r->all++;
}

/* starts[row] is where the row's next element goes; in the end, where the next row begins. */
static void element_add(struct rows *r, int64_t row, int64_t place, float value)
{
    r->values[r->starts[row]] = value;
    r->places[r->starts[row]++] = (int32_t)place;
}

/* Is the constant worth reading as a whole? */
static bool has_zeros(struct module *m, value_id w, int64_t size)
{
    float piece[PIECE];
    int64_t count = size < PIECE ? size : PIECE, zeros = 0;
    if (constant_is_compressed(m, w, -1) || !piece_read(m, w, (size - count) / 2, count, piece))
        return false;
    for (int64_t i = 0; i < count; i++)
        zeros += piece[i] == 0;
    return (double)zeros >= ZEROS_LEAST / 2 * (double)count;
}

bool rows_read(struct module *m, value_id w, struct rows *r)
{
    int64_t size;
    if (!mul_i64(r->n, r->k, &size) || size > ELEMENTS_MOST || !has_zeros(m, w, size))
        return false;
    r->elem = value_type(m->g, w)->elem;
    r->starts = NEW_ARRAY(m->arena, int32_t, r->n + 1);
    if (!elements_read(m, w, r, element_count) || !r->all || (double)r->all > (1 - ZEROS_LEAST) * (double)size)
        return false;
    r->values = NEW_ARRAY(m->arena, float, r->all);
    r->places = NEW_ARRAY(m->arena, int32_t, r->all);
    for (int64_t i = 0; i < r->n; i++)
        r->starts[i + 1] += r->starts[i];
    if (!elements_read(m, w, r, element_add))
        return false;
    memmove(r->starts + 1, r->starts, (size_t)r->n * sizeof *r->starts);
    r->starts[0] = 0;
    return true;
}

/* ---- products of the rows ---------------------------------------------------------------------------------------- */

static int64_t groups_of(const struct rows *r)
{
    int64_t groups = 0;
    for (int64_t row = 0; row < r->n; row++)
        groups += (r->starts[row + 1] - r->starts[row] + GROUP - 1) / GROUP;
    return groups;
}

/* Places of elements, as a constant of the narrowest type that gather takes them in. */
static value_id places_const(struct builder *b, const int32_t *places, const int64_t *dims, int32_t rank, int64_t n)
{
    int32_t most = 0;
    for (int64_t i = 0; i < n; i++)
        most = places[i] > most ? places[i] : most;
    if (most > UINT16_MAX)
        return b_const(b, ELEM_I32, dims, rank, places);
    uint16_t *narrow = NEW_ARRAY(&b->g->arena, uint16_t, n);
    for (int64_t i = 0; i < n; i++)
        narrow[i] = (uint16_t)places[i];
    return b_const(b, ELEM_U16, dims, rank, narrow);
}

/* Products of bytes: rows of groups of four elements, the last ones 0, which one instruction multiplies and adds. */
static value_id groups_product(struct builder *b, const struct rows *r, value_id x)
{
    static const int64_t batch[] = {0, 1};
    struct dims of = b_dims(b, x);
    int32_t lead = of.rank - 2, *starts = NEW_ARRAY(&b->g->arena, int32_t, r->n + 1), at = 0;
    int64_t size[2] = {groups_of(r), GROUP}, lines = r->n + 1, along = lead + 1;
    int32_t *places = NEW_ARRAY(&b->g->arena, int32_t, size[0] * GROUP);
    uint8_t *values = NEW_ARRAY(&b->g->arena, uint8_t, size[0] * GROUP);
    for (int64_t row = 0; row < r->n; row++) {
        for (int32_t i = r->starts[row]; i < r->starts[row + 1]; i++, at++) {
            places[at] = r->places[i];
            values[at] = (uint8_t)(int32_t)r->values[i];
        }
        for (; at % GROUP; at++)
            places[at] = places[at - 1];
        starts[row + 1] = at / GROUP;
    }
    expr_id dims[3] = {of.d[0], ex_const(b->x, size[0]), ex_const(b->x, GROUP)};
    value_id w = b_const(b, r->elem, size, 2, values);
    value_id in[2] = {b_gather(b, x, places_const(b, places, size, 2, size[0] * GROUP), lead),
                      lead ? b_broadcast(b, w, dims, 3) : w};
    struct attr attrs[] = {attr_ints("batch_a", batch, (uint32_t)along), attr_ints("batch_b", batch, (uint32_t)along),
                           attr_ints("contract_a", &along, 1), attr_ints("contract_b", &along, 1),
                           attr_elem("acc", ELEM_I32)};
    value_id segments[2] = {b_op(b, OP_DOT, in, 2, attrs, COUNT_OF(attrs)), b_const(b, ELEM_I32, &lines, 1, starts)};
    struct attr attr = attr_int("axis", lead);
    return b_op(b, OP_SEGMENTS, segments, 2, &attr, 1);
}

value_id sparse_product(struct builder *b, const struct rows *r, value_id x)
{
    if (r->elem != ELEM_F32)
        return groups_product(b, r, x);
    int64_t all[2] = {r->all, 1}, lines = r->n + 1;
    value_id places = places_const(b, r->places, all, 1, r->all), values = b_const(b, ELEM_F32, all, 2, r->values);
    int32_t axis = b_dims(b, x).rank - 2;
    value_id products = b_binary(b, OP_MUL, b_gather(b, x, places, axis), values);
    value_id in[2] = {products, b_const(b, ELEM_I32, &lines, 1, r->starts)};
    struct attr attr = attr_int("axis", axis);
    return b_op(b, OP_SEGMENTS, in, 2, &attr, 1);
}

bool is_small(const struct module *m, int64_t elements, int64_t points)
{
    int64_t products;
    return !m->asked.always && mul_i64(elements, points, &products) && products < PRODUCTS_LEAST;
}

bool pays(const struct rows *r, double points, double copied, double each, double dense)
{
    int64_t all = r->elem == ELEM_F32 ? r->all : groups_of(r) * GROUP;
    double sparse = (double)all * points * each + copied * (r->elem == ELEM_F32 ? COST_COPY : COST_COPY_BYTES);
    return sparse < (double)r->n * (double)r->k * points * dense;
}

static bool is_byte(const struct module *m, value_id v)
{
    enum elem e = value_type(m->g, v)->elem;
    return e == ELEM_U8 || e == ELEM_I8;
}

/* May groups of bytes be faster than the dense product? Not on CPUs that multiply bytes by tile registers.
 * Microcontrollers multiply dense bytes by words and have no memory for copies of operands and results. */
static bool groups_pay(const struct module *m, const struct node *n)
{
    const struct machine *mach = module_machine(m);
    enum dot_kind kind = dot_kind_of(m, n);
    return m->asked.always || (kind < DOT_KINDS && !mach->tiles && !mach->span);
}

/* A product of f32 or of bytes by a constant, which no option makes narrower: options come first, whatever the number
 * of rows. */
static bool is_contraction(const struct module *m, node_id id)
{
    const struct node *n = graph_node(m->g, id);
    if (n->dead || (n->op != OP_DOT && n->op != OP_CONV) || n->n_in != 2 || node_attr(n, "part") ||
        !value_is_const(m->g, n->in[1]) || value_is_const(m->g, n->in[0]))
        return false;
    if (is_byte(m, n->in[0]) && is_byte(m, n->in[1]))
        return value_type(m->g, n->out[0])->elem == ELEM_I32 && groups_pay(m, n);
    return !node_attr(n, "acc") && value_type(m->g, n->in[0])->elem == ELEM_F32 &&
           value_type(m->g, n->in[1])->elem == ELEM_F32 && precision_wanted(m, id) == PRECISION_F32 &&
           weights_wanted(m, id) == WEIGHTS_AS_THEY_ARE;
}

bool may_be_sparse(struct module *m, node_id id)
{
    const struct type *w = is_contraction(m, id) ? value_type(m->g, graph_node(m->g, id)->in[1]) : NULL;
    int64_t size;
    return w && ex_is_const(m->ctx->exprs, dims_product(m->ctx->exprs, w->dims, w->rank), &size) && size > 0 &&
           has_zeros(m, graph_node(m->g, id)->in[1], size);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* The product of one row x [k]: lanes lie along the n columns, all of as many elements as the longest; those that a
 * column lacks are products of a zero that follows the operand. */
static value_id sparse_row(struct builder *b, const struct rows *r, int64_t longest, value_id x)
{
    struct exprs *e = b->x;
    const int64_t dims[2] = {longest, r->n}, axis = 0;
    int64_t size = longest * r->n;
    int32_t *places = NEW_ARRAY(&b->g->arena, int32_t, size);
    float *values = NEW_ARRAY(&b->g->arena, float, size);
    for (int64_t row = 0; row < r->n; row++)
        for (int64_t i = 0; i < longest; i++) {
            int64_t from = r->starts[row] + i;
            bool has = from < r->starts[row + 1];
            places[i * r->n + row] = has ? r->places[from] : (int32_t)r->k;
            values[i * r->n + row] = has ? r->values[from] : 0;
        }
    expr_id lo = ex_const(e, 0), hi = ex_const(e, 1);
    value_id padded = b_copy(b, b_pad(b, x, (value_id){0}, &lo, &hi, "constant"));
    value_id products = b_binary(b, OP_MUL, b_gather(b, padded, places_const(b, places, dims, 2, size), 0),
                                 b_const(b, ELEM_F32, dims, 2, values));
    return b_reduce(b, products, &axis, 1, "sum", false);
}

static int64_t longest_row(const struct rows *r)
{
    int64_t most = 1;
    for (int64_t row = 0; row < r->n; row++)
        most = r->starts[row + 1] - r->starts[row] > most ? r->starts[row + 1] - r->starts[row] : most;
    return most;
}

static value_id sparse_dot(struct module *m, node_id id)
{
    const struct node n = *graph_node(m->g, id);
    struct exprs *x = m->ctx->exprs;
    const struct type *t = value_type(m->g, n.in[0]), *w = value_type(m->g, n.in[1]);
    struct dot_dims d;
    struct rows r;
    uint32_t count;
    int64_t k, cols, points, size, rank = t->rank;
    expr_id back[RANK_MAX], flat[2] = {ex_const(x, 1)};
    if (w->rank != 2 || !dot_dims(m->g, &n, 1, &d) || d.n_batch || !ex_is_const(x, w->dims[d.contract], &k) ||
        !ex_is_const(x, w->dims[d.free], &cols) || !mul_i64(k, cols, &size) ||
        node_ints(&n, "contract_a", &count)[0] != rank - 1 || count != 1)
        return (value_id){0};
    for (int32_t i = 0; i + 1 < rank; i++) {
        back[i] = t->dims[i];
        flat[0] = ex_mul(x, flat[0], t->dims[i]);
    }
    back[rank - 1] = ex_const(x, cols);
    flat[1] = ex_const(x, k);
    if (!ex_is_const(x, flat[0], &points))
        points = POINTS_LEAST;
    r = (struct rows){.n = cols, .k = k, .by_rows = d.contract == 1};
    bool row = points == 1 && !m->asked.strict && w->elem == ELEM_F32;
    if (points < (m->asked.always || row ? 1 : POINTS_LEAST) || is_small(m, size, row ? POINTS_LEAST : points) ||
        !rows_read(m, n.in[1], &r))
        return (value_id){0};
    struct builder b = builder_before(m->g, id);
    int64_t longest = row ? longest_row(&r) : 0;
    if (row && (m->asked.always || (double)(longest * cols) * COST_GATHERED < (double)size))
        return b_reshape(&b, sparse_row(&b, &r, longest, b_reshape(&b, n.in[0], flat + 1, 1)), back, (int32_t)rank);
    if (row || !(m->asked.always || pays(&r, (double)points, (double)points * (double)(k + cols), COST_ELEMENT, 1)))
        return (value_id){0};
    const int64_t turn[2] = {1, 0};
    value_id a = b_copy(&b, b_transpose(&b, b_reshape(&b, n.in[0], flat, 2), turn));
    return b_reshape(&b, b_transpose(&b, sparse_product(&b, &r, a), turn), back, (int32_t)rank);
}

/* Bytes of all masks of gaps: a part of what the constants save if just enough of their elements are zero. */
static int64_t masks_most(struct module *m)
{
    struct exprs *x = m->ctx->exprs;
    double saved = 0;
    for (uint32_t i = 1; i < m->g->nodes.n; i++) {
        const struct node *n = graph_node(m->g, (node_id){i});
        const struct type *w = may_be_sparse(m, (node_id){i}) ? value_type(m->g, n->in[1]) : NULL;
        int64_t size = 0;
        if (w && w->elem == ELEM_F32 && ex_is_const(x, dims_product(x, w->dims, w->rank), &size))
            saved += (double)size * (sizeof(float) - 2 * sizeof(float) * (1 - ZEROS_LEAST));
    }
    saved /= MASKS_PART;
    return m->asked.always || saved > INT32_MAX ? INT32_MAX : saved < MASKS_LEAST ? MASKS_LEAST : (int64_t)saved;
}

bool sparsify(struct module *m)
{
    struct sparse s = {.m = m, .masks = masks_most(m)};
    uint32_t n_nodes = m->g->nodes.n;
    for (uint32_t i = 1; i < n_nodes; i++) {
        const struct node *n = graph_node(m->g, (node_id){i});
        value_id y = {0};
        if (is_contraction(m, (node_id){i}))
            y = n->op == OP_DOT ? sparse_dot(m, (node_id){i}) : sparse_conv(&s, (node_id){i});
        else if (!n->dead)
            y = flat_map(&s, (node_id){i});
        if (y.i)
            graph_replace(m->g, (node_id){i}, y);
    }
    graph_sweep(m->g);
    return m->ctx->fail == FAIL_NONE;
}

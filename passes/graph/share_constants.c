/* share-constants: a constant that is another one transposed, reshaped or a part of its rows becomes that view of it.
 *
 * For networks with tied weights: none of the 554 of ../shared/models that compile.
 * In and out: a legal graph whose equal constants are one (ir/graph/pool.c). Exporters fold a Transpose of a weight
 * into a second initializer: the table of an Embedding and the weight of a Linear tied to it, for one. As a view of the
 * other it takes no room of its own, since layout_transform stores what a view reads.
 *
 * Found by content. Pairs that can match have one element type, one size, and equal first and last elements, which no
 * permutation moves; then 64 elements spread over them are compared, and then all. The work is bounded: so many pairs
 * for each constant, and four times all constants' bytes in whole comparisons.
 *
 * A view must not be slower to read than the constant was, so who reads decides:
 * - transposed: products take panels (weight_order). If all of them want the same ones, a Gather fetches its rows from
 * the panels, too: from a long table, beside whose product that is nothing, or if it costs at most 2 % of the network's
 * estimated time. Every other reader wants its own order: both stay.
 * - reshaped: readers in row-major order, where the other shape costs no division.
 * - rows: readers in row-major order, and rows that begin at a whole cache line.
 */
#include "passes/graph/constant_views.h"
#include "passes/graph/network_time.h"
#include "passes/module/access_function.h"

enum {
    BYTES_LEAST = 4096,
    PAIRS = 16,
    PROBES = 1 << 22,
    ROWS_LONG = 1024, /* of a table */
    PART_OF_TIME = 50, /* of the network's that fetching may cost: the 50th */
    LINE = 64
};

/* The panels that a product wants, in dims of the constant: those of the order, outermost first, and where the lanes
 * go. */
struct panels {
    int32_t n, order[RANK_MAX], lanes;
};
struct constant {
    value_id value;
    struct tensor_data data;
    uint64_t key;
    bool plain; /* somebody reads it in row-major order */
    int64_t rows; /* a Gather fetches parts of it, out of so many along its axis; 0: none does */
    double fetched; /* elements that these fetch in a run */
    struct panels panels; /* n = 0: no product reads it */
    bool differ; /* products want different panels of it */
    bool gone; /* it is a view of another one now */
};
struct merger {
    struct graph *g;
    struct strbuf *report; /* or NULL */
    VEC(struct constant) all; /* in program order */
    uint32_t *index_of; /* by value: constant + 1 */
    uint32_t n_values;
    uint64_t budget; /* bytes that may still be compared as a whole */
    int64_t probes;
    double ns; /* that fetching rows from panels may still cost */
    bool changed;
};

/* ---- constants and their readers ------------------------------------------------------------------------------- */

static bool constant_init(const struct merger *m, node_id id, struct constant *c)
{
    const struct node *node = graph_node(m->g, id);
    const struct attr *data = node->op == OP_CONSTANT && !node->dead ? node_attr(node, "data") : NULL;
    const struct type *t = data ? value_type(m->g, node->out[0]) : NULL;
    if (!data || data->kind != ATTR_DATA || t->elem == ELEM_STR || t->rank < 1 || data->u.data.size < BYTES_LEAST)
        return false;
    size_t size = elem_size(t->elem);
    int64_t count = (int64_t)size, *dims = NEW_ARRAY(&m->g->arena, int64_t, t->rank);
    for (int32_t d = 0; d < t->rank; d++)
        if (!ex_is_const(m->g->ctx->exprs, t->dims[d], &dims[d]) || dims[d] < 1 || !mul_i64(count, dims[d], &count))
            return false;
    const struct span all = data->u.data;
    const char *bytes = all.data;
    *c = (struct constant){.value = node->out[0], .data = {t->elem, t->rank, dims, all, NULL}};
    c->key = hash_mix(hash_mix(t->elem, all.size),
                      hash_mix(hash_bytes(bytes, size), hash_bytes(bytes + all.size - size, size)));
    return (uint64_t)count == all.size;
}

static void collect(struct merger *m)
{
    for (uint32_t i = 1; i < m->g->nodes.n; i++) {
        struct constant c;
        if (!constant_init(m, (node_id){i}, &c))
            continue;
        VEC_PUSH(&m->g->arena, &m->all, c);
        m->index_of[c.value.i] = m->all.n;
        m->budget += 4 * (uint64_t)c.data.bytes.size;
    }
}

/* The constant that v shows, with its dims permuted: dim d of v is dim perm[d] of it. NULL: none. */
static struct constant *constant_behind(struct merger *m, value_id v, int64_t *perm)
{
    int32_t rank = value_type(m->g, v)->kind == TYPE_TENSOR ? value_type(m->g, v)->rank : 0;
    for (int32_t d = 0; d < rank; d++)
        perm[d] = d;
    while (v.i < m->n_values && !m->index_of[v.i])
        if (!weight_step(m->g, &v, perm))
            return NULL;
    return v.i < m->n_values ? &m->all.data[m->index_of[v.i] - 1] : NULL;
}

static bool panels_equal(const struct panels *a, const struct panels *b)
{
    return a->n == b->n && a->lanes == b->lanes && memcmp(a->order, b->order, sizeof a->order[0] * (size_t)a->n) == 0;
}

static void add_panels(struct constant *c, const struct panels *p)
{
    c->differ |= c->panels.n && p->n && !panels_equal(&c->panels, p);
    if (!c->panels.n)
        c->panels = *p;
}

static void add_rows(struct constant *c, int64_t rows, double fetched)
{
    if (rows && (!c->rows || rows < c->rows))
        c->rows = rows;
    c->fetched += fetched;
}

static void note_use(struct merger *m, const struct node *n, uint32_t operand)
{
    int64_t perm[RANK_MAX];
    struct constant *c = n->in[operand].i ? constant_behind(m, n->in[operand], perm) : NULL;
    struct panels p = {0};
    if (!c || (n->n_out && weight_step(m->g, &(value_id){n->out[0].i}, NULL)))
        return;
    if (n->op == OP_GATHER && operand == 0)
        add_rows(c, c->data.dims[perm[node_int(n, "axis", 0)]], elements_hint(m->g, n->out[0]));
    else if ((n->op == OP_DOT || n->op == OP_CONV) && operand == 1 &&
             (p.n = weight_order(m->g, n, perm, p.order, &p.lanes)) > 0)
        add_panels(c, &p);
    else
        c->plain = true;
}

static void note_uses(struct merger *m)
{
    int64_t perm[RANK_MAX];
    for (uint32_t i = 1; i < m->g->nodes.n; i++) {
        const struct node *n = graph_node(m->g, (node_id){i});
        for (uint32_t k = 0; !n->dead && k < n->n_in; k++)
            note_use(m, n, k);
    }
    for (uint32_t r = 1; r < m->g->regions.n; r++) {
        const struct region *region = graph_get_region(m->g, (region_id){r});
        for (uint32_t k = 0; k < region->results.n; k++) {
            struct constant *c = constant_behind(m, region->results.data[k], perm);
            if (c)
                c->plain = true;
        }
    }
}

/* ---- deciding ---------------------------------------------------------------------------------------------------- */

/* What fetching rows of both from panels costs: an element has a cache line there, not a sixteenth. */
static double fetch_ns(const struct constant *a, const struct constant *b)
{
    const double each = 0.5;
    return ((a->rows && a->rows < ROWS_LONG ? a->fetched : 0) + (b->rows && b->rows < ROWS_LONG ? b->fetched : 0)) *
           each;
}

/* Why transposed constants stay two; NULL: they need not. of_b: b's panels in a's dims. */
static const char *why_not_transposed(const struct merger *m, const struct constant *a, const struct constant *b,
                                      const struct panels *of_b)
{
    if (a->differ || b->differ || (a->panels.n && of_b->n && !panels_equal(&a->panels, of_b)))
        return "the products want different panels";
    if (a->plain || b->plain || !(a->panels.n || of_b->n))
        return "each is read in its own order";
    if (fetch_ns(a, b) > m->ns)
        return "to fetch rows of so short a table from panels would cost more than 2 % of the network's time";
    return NULL;
}

/* Dims other than 1: equal, or only one. */
static bool costs_no_division(const struct constant *a, const struct constant *b)
{
    int64_t of[2][RANK_MAX];
    int32_t n[2] = {0, 0};
    for (int32_t d = 0; d < a->data.rank; d++)
        if (a->data.dims[d] != 1)
            of[0][n[0]++] = a->data.dims[d];
    for (int32_t d = 0; d < b->data.rank; d++)
        if (b->data.dims[d] != 1)
            of[1][n[1]++] = b->data.dims[d];
    return n[0] <= 1 || (n[0] == n[1] && memcmp(of[0], of[1], sizeof of[0][0] * (size_t)n[0]) == 0);
}

static const char *why_not_reshaped(const struct constant *a, const struct constant *b)
{
    if (a->panels.n || b->panels.n)
        return "a product wants panels of the one shape";
    return costs_no_division(a, b) ? NULL : "the other shape costs a division for each element";
}

static const char *name_of(const struct merger *m, const struct constant *c)
{
    const char *name = graph_value(m->g, c->value)->name;
    return name ? name : "(unnamed)";
}

static void say(const struct merger *m, const struct constant *a, const struct constant *b, const char *how,
                const char *why)
{
    if (!m->report)
        return;
    strbuf_printf(m->report, "constant '%s', %llu bytes, is '%s' %s", name_of(m, b),
                  (unsigned long long)b->data.bytes.size, name_of(m, a), how);
    strbuf_printf(m->report, why ? "; both are stored: %s\n" : ": stored once\n", why);
}

/* The constant of a at the head of the top region, where every reader sees it; b's readers read `op` of it. */
static void replace(struct merger *m, struct constant *a, struct constant *b, enum op op, const struct attr *attr,
                    uint32_t n_attr)
{
    struct graph *g = m->g;
    value_id from = a->value, old = b->value;
    const struct node constant = *value_node(g, from);
    struct builder build = builder_before(g, graph_get_region(g, (region_id){1})->nodes.data[0]);
    build.src = constant.src;
    a->value = b_op(&build, OP_CONSTANT, NULL, 0, constant.attr, constant.n_attr);
    graph_value_describe(g, a->value, from);
    graph_replace_uses(g, from, a->value);
    build.src = value_node(g, old)->src;
    value_id view = b_op(&build, op, &a->value, 1, attr, n_attr);
    graph_value_describe(g, view, old);
    graph_replace_uses(g, old, view);
    b->gone = m->changed = true;
}

static bool try_transposed(struct merger *m, struct constant *a, struct constant *b)
{
    int32_t perm[RANK_MAX];
    int64_t wide[RANK_MAX];
    struct panels of_b = b->panels;
    if (!constant_is_transposed(&m->budget, &a->data, &b->data, perm))
        return false;
    for (int32_t i = 0; i < of_b.n; i++)
        of_b.order[i] = perm[of_b.order[i]];
    of_b.lanes = of_b.n ? perm[of_b.lanes] : 0;
    const char *why = why_not_transposed(m, a, b, &of_b);
    say(m, a, b, "transposed", why);
    if (why)
        return true;
    for (int32_t d = 0; d < b->data.rank; d++)
        wide[d] = perm[d];
    struct attr attr = attr_ints("perm", wide, (uint32_t)b->data.rank);
    m->ns -= fetch_ns(a, b);
    replace(m, a, b, OP_TRANSPOSE, &attr, 1);
    add_panels(a, &of_b);
    a->fetched = 0; /* which has been counted */
    add_rows(a, b->rows, 0);
    return true;
}

static bool try_reshaped(struct merger *m, struct constant *a, struct constant *b)
{
    if (!constant_is_reshaped(&m->budget, &a->data, &b->data))
        return false;
    const char *why = why_not_reshaped(a, b);
    say(m, a, b, "in another shape", why);
    if (why)
        return true;
    const struct type *t = value_type(m->g, b->value);
    struct attr attr = attr_exprs("dims", t->dims, (uint32_t)t->rank);
    replace(m, a, b, OP_RESHAPE, &attr, 1);
    a->plain |= b->plain;
    add_rows(a, b->rows, b->fetched);
    return true;
}

/* ---- pairs ------------------------------------------------------------------------------------------------------- */

/* Every constant with those of its key before it. */
static void whole_views(struct merger *m)
{
    uint32_t n_slots = 64;
    while (n_slots < 2 * m->all.n)
        n_slots *= 2;
    uint32_t *slots = NEW_ARRAY(&m->g->arena, uint32_t, n_slots);
    for (uint32_t i = 0; i < m->all.n; i++) {
        struct constant *b = &m->all.data[i];
        uint32_t at = (uint32_t)b->key & (n_slots - 1), pairs = 0;
        bool found = false;
        for (; slots[at] && !found && pairs < PAIRS; at = (at + 1) & (n_slots - 1)) {
            struct constant *a = &m->all.data[slots[at] - 1];
            if (a->key != b->key || a->data.elem != b->data.elem || a->data.bytes.size != b->data.bytes.size)
                continue;
            pairs++;
            found = try_reshaped(m, a, b) || try_transposed(m, a, b);
        }
        if (!slots[at] && !b->gone)
            slots[at] = i + 1;
    }
}

/* Can the rows of b be some of a's? */
static bool may_be_rows(const struct constant *a, const struct constant *b)
{
    return !a->gone && !b->gone && a->data.elem == b->data.elem && a->data.rank == b->data.rank &&
           a->data.dims[0] > b->data.dims[0] && !a->panels.n && !b->panels.n &&
           memcmp(a->data.dims + 1, b->data.dims + 1, sizeof a->data.dims[0] * (size_t)(a->data.rank - 1)) == 0;
}

/* The first row of a, at a whole cache line, from which on b lies in it; -1: none. */
static int64_t rows_find(struct merger *m, const struct constant *a, const struct constant *b)
{
    size_t row = a->data.bytes.size / (size_t)a->data.dims[0];
    for (int64_t r = 0; r + b->data.dims[0] <= a->data.dims[0] && m->probes > 0; r++, m->probes--) {
        const char *at = (const char *)a->data.bytes.data + (size_t)r * row;
        if ((size_t)r * row % LINE == 0 && memcmp(at, b->data.bytes.data, row < 16 ? row : 16) == 0 &&
            budget_spend(&m->budget, row) && memcmp(at, b->data.bytes.data, row) == 0 &&
            budget_spend(&m->budget, b->data.bytes.size) && memcmp(at, b->data.bytes.data, b->data.bytes.size) == 0)
            return r;
    }
    return -1;
}

static void try_rows(struct merger *m, struct constant *a, struct constant *b, int64_t row)
{
    struct exprs *x = m->g->ctx->exprs;
    expr_id starts[RANK_MAX], sizes[RANK_MAX];
    int64_t steps[RANK_MAX];
    for (int32_t d = 0; d < b->data.rank; d++) {
        starts[d] = ex_const(x, d ? 0 : row);
        sizes[d] = ex_const(x, b->data.dims[d]);
        steps[d] = 1;
    }
    uint32_t n = (uint32_t)b->data.rank;
    struct attr attr[] = {attr_exprs("starts", starts, n), attr_exprs("sizes", sizes, n), attr_ints("steps", steps, n)};
    say(m, a, b, "in part, some of its rows", NULL);
    replace(m, a, b, OP_SLICE, attr, COUNT_OF(attr));
    a->plain = true;
}

/* Constants that no product reads are few; each with those that have the same kind of rows and more of them. */
static void part_views(struct merger *m)
{
    VEC(uint32_t) tables = {0};
    for (uint32_t i = 0; i < m->all.n; i++)
        if (!m->all.data[i].gone && !m->all.data[i].panels.n)
            VEC_PUSH(&m->g->arena, &tables, i);
    for (uint32_t i = 0; i < tables.n; i++)
        for (uint32_t k = 0; k < tables.n && m->probes-- > 0; k++) {
            struct constant *b = &m->all.data[tables.data[i]], *a = &m->all.data[tables.data[k]];
            int64_t row = may_be_rows(a, b) ? rows_find(m, a, b) : -1;
            if (row >= 0)
                try_rows(m, a, b, row);
        }
}

bool share_constants(struct module *module)
{
    struct graph *g = module->g;
    struct merger m = {.g = g, .report = module->report, .probes = PROBES, .n_values = g->values.n};
    m.index_of = NEW_ARRAY(&g->arena, uint32_t, m.n_values);
    collect(&m);
    if (m.all.n < 2)
        return true;
    note_uses(&m);
    m.ns = network_ns(g) / PART_OF_TIME;
    whole_views(&m);
    part_views(&m);
    if (m.changed)
        graph_sweep(g);
    return true;
}

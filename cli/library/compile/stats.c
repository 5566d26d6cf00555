/* What --stats prints: the census of operators, and constants read beside constants written. */

#include "cli/library/compile/compile.h"

/* Growth is only spoken of beyond this: packing pads, and formulas bring small constants along. */
enum { GROWTH_FREE = 64 * 1024 };
#define GROWTH_WARNED 1.5

struct row {
    const char *domain, *name;
    uint32_t count;
};

static int row_by_name(const void *pa, const void *pb)
{
    const struct row *a = pa, *b = pb;
    int by_name = strcmp(a->name, b->name);
    return by_name ? by_name : strcmp(a->domain, b->domain);
}

static int row_compare(const void *pa, const void *pb)
{
    const struct row *a = pa, *b = pb;
    if (a->count != b->count)
        return a->count < b->count ? 1 : -1;
    return row_by_name(pa, pb);
}

/* Sorts rows of one node each and merges equal ones; returns how many are left. */
static uint32_t rows_merge(struct row *rows, uint32_t n)
{
    uint32_t m = 0;
    qsort(rows, n, sizeof *rows, row_by_name);
    for (uint32_t i = 0; i < n; i++) {
        if (m && row_by_name(&rows[m - 1], &rows[i]) == 0)
            rows[m - 1].count++;
        else
            rows[m++] = rows[i];
    }
    qsort(rows, m, sizeof *rows, row_compare);
    return m;
}

void stats_census(const struct graph *g, const char *title, struct strbuf *out)
{
    struct row *rows = NEW_ARRAY(out->arena, struct row, g->nodes.n + 1);
    uint32_t n = 0;
    for (uint32_t i = 1; i < g->nodes.n; i++) {
        const struct node *node = &g->nodes.data[i];
        if (node->dead || node->op == OP_CONSTANT)
            continue;
        bool imported = node->op == OP_IMPORTED;
        rows[n++] = (struct row){imported && node->domain ? node->domain : "",
                                 imported ? node->op_type : op_name(node->op), 1};
    }
    uint32_t total = n;
    n = rows_merge(rows, n);
    strbuf_printf(out, "%s: %u operators, %u kinds\n", title, total, n);
    for (uint32_t i = 0; i < n; i++)
        strbuf_printf(out, "%8u %s%s%s\n", rows[i].count, rows[i].domain, *rows[i].domain ? "." : "", rows[i].name);
}

/* ---- constants ---------------------------------------------------------------------------------------------- */

/* What elements that take `data` inside the graph take in a file: types of less than a byte packed, strings without
 * their table. */
static int64_t file_bytes(enum elem elem, struct span data)
{
    const struct span *text = data.data;
    int64_t bytes = 0;
    if (elem != ELEM_STR)
        return (int64_t)((data.size / elem_size(elem) * elem_bits(elem) + 7) / 8);
    for (size_t i = 0; i < data.size / sizeof *text; i++)
        bytes += (int64_t)text[i].size;
    return bytes;
}

/* The constant in an attribute, in bytes; in_file: of an operator of the file, not of an initializer (whose other
 * attributes are dims). Short lists of other operators than Constant (pads, axes) are none, long ones are tables. */
enum { TABLE_LEAST = 64 };
static int64_t attr_bytes(const struct graph *g, const struct node *node, const struct attr *a, bool in_file)
{
    switch (a->kind) {
    case ATTR_DATA: return file_bytes(value_type(g, node->out[0])->elem, a->u.data);
    case ATTR_TENSOR: return file_bytes(a->u.tensor->elem, a->u.tensor->bytes);
    case ATTR_FLOATS: return in_file ? 4 * (int64_t)a->n : 0;
    case ATTR_INTS: return in_file ? 8 * (int64_t)a->n : 0;
    default: return 0;
    }
}

int64_t stats_constants(const struct graph *g)
{
    int64_t bytes = 0;
    for (uint32_t i = 1; i < g->nodes.n; i++) {
        const struct node *node = &g->nodes.data[i];
        bool constant = node->op == OP_CONSTANT || (node->op == OP_IMPORTED && strcmp(node->op_type, "Constant") == 0);
        for (uint32_t k = 0; (constant || node->op == OP_IMPORTED) && !node->dead && k < node->n_attr; k++)
            if ((constant || node->attr[k].n >= TABLE_LEAST) &&
                !add_i64(bytes, attr_bytes(g, node, &node->attr[k], node->op == OP_IMPORTED), &bytes))
                return INT64_MAX;
    }
    return bytes;
}

/* Bytes of the constants that the lazy constant v is made of, each counted once. seen: by node, holds `mark` where
 * done. */
static int64_t operand_bytes(const struct graph *g, value_id v, uint32_t *seen, uint32_t mark, uint32_t *stack)
{
    int64_t bytes = 0;
    uint32_t n = 0;
    stack[n++] = graph_value(g, v)->def.i;
    seen[stack[0]] = mark;
    while (n) {
        const struct node *node = graph_node(g, (node_id){stack[--n]});
        const struct attr *data = node->op == OP_CONSTANT ? node_attr(node, "data") : NULL;
        bytes += data ? file_bytes(value_type(g, node->out[0])->elem, data->u.data) : 0;
        for (uint32_t i = 0; i < node->n_in; i++) {
            uint32_t def = node->in[i].i ? graph_value(g, node->in[i])->def.i : 0;
            if (def && seen[def] != mark) {
                seen[def] = mark;
                stack[n++] = def;
            }
        }
    }
    return bytes;
}

struct growth {
    const struct weight *weight;
    int64_t from;
};

static int64_t growth_bytes(const struct growth *g)
{
    return (int64_t)g->weight->bytes - g->from;
}

static int by_growth(const void *pa, const void *pb)
{
    int64_t a = growth_bytes(pa), b = growth_bytes(pb);
    uint64_t i = ((const struct growth *)pa)->weight->offset, k = ((const struct growth *)pb)->weight->offset;
    return a != b ? a < b ? 1 : -1 : i < k ? -1 : i > k;
}

/* The weights by the bytes that they have grown over the constants they are made of, most first. */
static struct growth *growths(const struct compilation *c, uint32_t *n)
{
    const struct module *m = c->module;
    uint32_t *seen = NEW_ARRAY(m->arena, uint32_t, m->g->nodes.n + 1),
             *stack = NEW_ARRAY(m->arena, uint32_t, m->g->nodes.n + 1);
    struct growth *all = NEW_ARRAY(m->arena, struct growth, m->plan.weights.n + 1);
    *n = 0;
    for (uint32_t i = 0; i < m->plan.weights.n; i++) {
        const struct weight *w = &m->plan.weights.data[i];
        if (graph_value(m->g, w->value)->def.i)
            all[(*n)++] = (struct growth){w, operand_bytes(m->g, w->value, seen, i + 1, stack)};
    }
    qsort(all, *n, sizeof *all, by_growth);
    return all;
}

/* The node of the file that a weight is stored for: the one that computes it from constants, else the first that reads
 * it, itself or by way of constants. */
static src_id weight_source(const struct module *m, const struct weight *w)
{
    const struct graph *g = m->g;
    const struct node *def = value_node(g, w->value);
    bool *of_it = NEW_ARRAY(m->arena, bool, g->values.n);
    if (def->op != OP_CONSTANT && def->src.i)
        return def->src;
    of_it[w->value.i] = true;
    for (int turn = 0; turn < 2; turn++) /* a node may stand after its reader in the table */
        for (uint32_t i = 1; i < g->nodes.n; i++) {
            const struct node *n = graph_node(g, (node_id){i});
            bool reads = false;
            for (uint32_t k = 0; !n->dead && k < n->n_in; k++)
                reads |= n->in[k].i && of_it[n->in[k].i];
            if (reads && n->n_out == 1 && value_is_const(g, n->out[0]))
                of_it[n->out[0].i] = true;
            else if (reads && n->src.i)
                return n->src;
        }
    return def->src;
}

/* ", then 'conv2' (Conv) by 3 bytes": the next ones that have grown. */
static const char *other_growths(const struct compilation *c, const struct growth *all, uint32_t n)
{
    enum { SHOWN = 4 };
    struct strbuf text = strbuf_of(&c->ctx->session);
    for (uint32_t i = 1; i < n && i < SHOWN && growth_bytes(&all[i]) > 0; i++) {
        const struct source *src = source_get(c->ctx, weight_source(c->module, all[i].weight));
        if (src)
            strbuf_printf(&text, "%s '%s' by %lld", i == 1 ? "; then" : ",", source_label(src),
                          (long long)growth_bytes(&all[i]));
    }
    return text.n ? text.data : "";
}

static double growth_times(int64_t in, int64_t out)
{
    return in > 0 ? (double)out / (double)in : out > 0 ? (double)out : 1;
}

void print_sizes(const struct compilation *c, struct strbuf *out)
{
    int64_t bytes = (int64_t)c->module->plan.weights_bytes;
    strbuf_printf(out, "constants: %lld bytes in the file, %lld bytes in the output, %.3f times\n",
                  (long long)c->constants_in, (long long)bytes, growth_times(c->constants_in, bytes));
    plan_report(c->module, out);
}

static void report_sizes(const struct compilation *c)
{
    struct strbuf text = strbuf_of(&c->ctx->session);
    stats_fates(c, &text);
    print_sizes(c, &text);
    c->report.put(c->report.user, TEXT_DATA, text.data, text.n);
}

bool run_sizes(struct compilation *c)
{
    const struct module *m = c->module;
    int64_t out = (int64_t)m->plan.weights_bytes;
    double times = growth_times(c->constants_in, out);
    double limit = c->options->limits.max_constant_growth;
    if (c->options->stats)
        report_sizes(c);
    bool over = limit > 0 && times > limit;
    if (out <= c->constants_in + GROWTH_FREE || (!over && times <= GROWTH_WARNED))
        return true;
    uint32_t n;
    struct growth *all = growths(c, &n);
    const struct weight *most = n ? all[0].weight : NULL;
    long long size = most ? (long long)most->bytes : 0, from = n ? all[0].from : 0;
    src_id src = most ? weight_source(m, most) : (src_id){0};
    double own = from > 0 ? (double)size / (double)from : (double)size;
    static const char format[] =
        "the constants grow from %lld to %lld bytes (%.2f times); this node's most, from %lld to %lld bytes (%.2f times)%s%s";
    const char *more = other_growths(c, all, n);
    if (over)
        return error_limit(c->ctx, src, format, (long long)c->constants_in, (long long)out, times, from, size, own,
                           more, " (--max-constant-growth)");
    warn_at(c->ctx, src, "constant-growth", format, (long long)c->constants_in, (long long)out, times, from, size, own,
            more, "");
    return true;
}

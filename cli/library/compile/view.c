/* What inspect -o and report draw, before anything is drawn: see view.h. */
#include "cli/library/compile/view.h"

struct named {
    const char *name;
    value_id value;
};

static void find_leads(struct network_view *d)
{
    for (uint32_t i = 1; i < d->n_rows; i++)
        for (uint64_t k = d->row[i].kernels ? i : 0; k && k < d->n_rows; k = d->row[k].next)
            d->lead[k] = i;
}

bool view_is_constant(const struct network_view *d, value_id v)
{
    node_id def = graph_value(d->g, v)->def;
    return def.i && d->hidden[def.i];
}

/* Hides initializers, Constant, and nodes without code all of whose operands come from hidden ones. Operands stand
 * before their users in every region. */
static void hide_constants(struct network_view *d, region_id r)
{
    const struct region *region = graph_get_region(d->g, r);
    for (uint32_t i = 0; i < region->nodes.n; i++) {
        const struct node *node = graph_node(d->g, region->nodes.data[i]);
        bool constant = !d->lead[node->src.i] && !node->n_region;
        for (uint32_t k = 0; k < node->n_in && constant; k++)
            constant = !node->in[k].i || view_is_constant(d, node->in[k]);
        if (node->op == OP_CONSTANT)
            constant = true;
        d->hidden[region->nodes.data[i].i] = constant;
        d->n_hidden += constant && node->op == OP_IMPORTED;
        for (uint32_t k = 0; k < node->n_region; k++)
            hide_constants(d, node->region[k]);
    }
}

ASCENDING_TEXTS(by_name, struct named, name);

/* The legal graph keeps the names of the file's values and knows their shapes. */
static void name_values(struct network_view *d, struct arena *arena)
{
    const struct graph *legal = d->c->graph;
    d->legal = NEW_ARRAY(arena, struct named, legal->values.n + 1);
    for (uint32_t v = 1; v < legal->values.n; v++)
        if (legal->values.data[v].name)
            d->legal[d->n_legal++] = (struct named){legal->values.data[v].name, {v}};
    qsort(d->legal, d->n_legal, sizeof *d->legal, by_name);
}

void view_make(struct network_view *d, const struct compilation *c, const mcc_node *row, uint32_t n_rows,
               struct arena *arena)
{
    *d = (struct network_view){
        .c = c,
        .g = c->imported,
        .row = row,
        .n_rows = n_rows,
        .lead = NEW_ARRAY(arena, uint32_t, n_rows + 1),
        .hidden = NEW_ARRAY(arena, bool, c->imported->nodes.n + 1),
    };
    find_leads(d);
    hide_constants(d, (region_id){1});
    for (uint32_t i = 0; i < d->g->functions.n; i++)
        hide_constants(d, d->g->functions.data[i].body);
    name_values(d, arena);
}

void view_type(const struct network_view *d, value_id v, struct strbuf *out)
{
    const struct value *value = graph_value(d->g, v);
    const struct type *t = &value->type;
    struct named key = {value->name, {0}}, *found = NULL;
    if (value->name)
        found = bsearch(&key, d->legal, d->n_legal, sizeof key, by_name);
    if (found)
        t = value_type(d->c->graph, found->value);
    if (t->kind != TYPE_TENSOR)
        return;
    strbuf_printf(out, "%s[", elem_name(t->elem));
    for (int32_t i = 0; i < t->rank; i++) {
        strbuf_printf(out, i ? "," : "");
        ex_print(d->g->ctx->exprs, t->dims[i], out);
    }
    strbuf_printf(out, t->rank < 0 ? "...]" : "]");
}

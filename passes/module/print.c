/* The text of a module (docs/reference/module-text.md): its graph, then what is known beyond it, a line for each thing.
 *
 * Values are called by their numbers in the graph's text, nodes by their first result (#N: the N-th node of the text,
 * where there is none), regions by their order there. What follows from other lines is not written: kernel_of, ports,
 * bytes of buffers.
 */
#include "passes/module/attention.h"
#include "passes/module/module_text.h"

struct printer {
    const struct module *m;
    struct exprs *x;
    struct strbuf *out;
    struct graph_numbers n;
};
#define PUT(p, ...) strbuf_printf((p)->out, __VA_ARGS__)

const char *const kernel_words[KERNEL_HALO + 1] = {"map",     "reduce", "contract", "scan",
                                                   "scatter", "call",   "control",  "halo"};
const char *const place_words[PLACE_SEGMENT + 1] = {"none", "input", "output", "arena", "weights", "segment"};
const char *const layout_words[LAYOUT_NC16C + 1] = {"auto", "NCHW", "NHWC", "NC16c"};
const char *const precision_words[PRECISION_F16_SUMS + 1] = {"f32", "bf16", "f16", "f16-sums"};
const char *const choice_words[CHOOSE_LAST + 1] = {"tile",  "winograd",  "chunk",   "split",  "layout",
                                                   "store", "precision", "weights", "version"};

const char *kernel_kind_name(enum kernel_kind k)
{
    return kernel_words[k];
}

static void put_value(struct printer *p, value_id v)
{
    PUT(p, " %%%u", p->n.value[v.i]);
}

static void put_node(struct printer *p, node_id id)
{
    const struct node *n = graph_node(p->m->g, id);
    for (uint32_t i = 0; i < n->n_out; i++)
        if (n->out[i].i) {
            put_value(p, n->out[i]);
            return;
        }
    PUT(p, " #%u", p->n.node[id.i]);
}

static void put_expr(struct printer *p, expr_id e)
{
    PUT(p, " ");
    ex_print(p->x, e, p->out);
}

static void put_mask(struct printer *p, uint32_t mask)
{
    const char *blank = "";
    PUT(p, " [");
    for (uint32_t d = 0; d < 32; d++)
        if (mask >> d & 1) {
            PUT(p, "%s%u", blank, d);
            blank = " ";
        }
    PUT(p, "]");
}

/* ---- kernels --------------------------------------------------------------------------------------------------- */

static void put_nodes(struct printer *p, const char *word, const node_list *nodes)
{
    if (nodes->n)
        PUT(p, " %s", word);
    for (uint32_t i = 0; i < nodes->n; i++)
        put_node(p, nodes->data[i]);
}

static void put_steps(struct printer *p, const char *word, const struct attention_step *steps, uint32_t n)
{
    if (n)
        PUT(p, " %s", word);
    for (uint32_t i = 0; i < n; i++) {
        put_node(p, steps[i].node);
        PUT(p, " %u", steps[i].operand);
    }
}

static void put_attention(struct printer *p, const struct attention *a)
{
    PUT(p, "attention");
    put_node(p, a->values);
    PUT(p, " scores");
    put_node(p, a->scores);
    PUT(p, " rows %u z", a->rows_of);
    put_value(p, a->z);
    PUT(p, " max");
    put_value(p, a->max);
    PUT(p, " terms");
    put_value(p, a->terms);
    put_steps(p, "sink", &a->sink, a->sink.node.i > 0);
    put_steps(p, "least", &a->least, a->least.node.i > 0);
    put_steps(p, "cleared", &a->cleared, a->cleared.node.i > 0);
    put_steps(p, "to_z", a->to_z.data, a->to_z.n);
    put_steps(p, "to_max", a->to_max.data, a->to_max.n);
    put_steps(p, "to_scores", a->to_scores.data, a->to_scores.n);
    put_nodes(p, "computes", &a->nodes);
    PUT(p, "\n");
}

static void put_attentions(struct printer *p)
{
    const struct module *m = p->m;
    const struct attention **at = /* by node in the order of the text */
        NEW_ARRAY(p->out->arena, const struct attention *, m->g->nodes.n + 1);
    for (uint32_t i = 1; i < m->known.n_attention_nodes; i++)
        if (m->known.attention_of[i] && m->known.attention_of[i]->values.i == i)
            at[p->n.node[i]] = m->known.attention_of[i];
    for (uint32_t i = 1; m->known.n_attention_nodes && i < m->g->nodes.n; i++)
        if (at[i])
            put_attention(p, at[i]);
}

static void put_kernel(struct printer *p, uint32_t index)
{
    const struct kernel *k = &p->m->fused.kernels.data[index];
    PUT(p, "kernel %u %s", index, kernel_words[k->kind]);
    if (k->region.i != 1)
        PUT(p, " region %u", p->n.region[k->region.i]);
    PUT(p, " at %u stores", k->order);
    for (uint32_t i = 0; i < k->outs.n; i++)
        put_value(p, k->outs.data[i]);
    if (k->piece)
        PUT(p, " piece %u", k->piece - 1);
    if (k->shares)
        PUT(p, " shares %u", k->shares - 1);
    if (k->domain.i) {
        PUT(p, " over");
        put_value(p, k->domain);
    }
    if (k->anchor.i) {
        PUT(p, " anchor");
        put_node(p, k->anchor);
    }
    put_nodes(p, "path", &k->path);
    if (k->has_rows) {
        PUT(p, " rows");
        put_mask(p, k->row_mask);
    }
    for (uint32_t i = 0; i < k->locals.n; i++) {
        PUT(p, k->locals.data[i].in_result ? " keeps-in-result" : " keeps");
        put_value(p, k->locals.data[i].value);
        put_mask(p, k->locals.data[i].inner);
    }
    if (k->form.staged.i) {
        PUT(p, " stages");
        put_value(p, k->form.staged);
    }
    if (k->form.product.i) {
        PUT(p, " product");
        put_node(p, k->form.product);
    }
    if (k->form.winograd)
        PUT(p, " winograd %u", k->form.winograd);
    if (k->form.attention)
        PUT(p, " attention");
    put_nodes(p, "computes", &k->nodes);
    PUT(p, "\n");
}

/* ---- values in memory -------------------------------------------------------------------------------------------- */

static void put_dims(struct printer *p, const struct storage *s)
{
    PUT(p, " [");
    for (int32_t d = 0; d < s->rank; d++) {
        PUT(p, "%s", d ? ", " : "");
        ex_print(p->x, s->dim[d].outer, p->out);
        if (s->dim[d].block)
            PUT(p, " / %lld * %lld", (long long)s->dim[d].block, (long long)s->dim[d].inner);
    }
    PUT(p, "] size");
    put_expr(p, s->size);
    if (!ex_is(p->x, s->origin, 0)) {
        PUT(p, " origin");
        put_expr(p, s->origin);
    }
}

static void put_constraint(struct printer *p, const struct layout_constraint *w)
{
    PUT(p, "%s%s", w->plain ? " plain" : "", w->blocked ? " blocked" : "");
    if (w->fastest)
        PUT(p, " fastest %d", w->fastest - 1);
    if (w->grows)
        PUT(p, " room %d %lld", w->grows - 1, (long long)w->room);
}

static void put_storage(struct printer *p, value_id v)
{
    const struct module *m = p->m;
    const struct storage *s = m->fused.storage ? &m->fused.storage[v.i] : NULL;
    const struct layout_constraint *w = m->fused.constraint ? &m->fused.constraint[v.i] : NULL;
    bool placed = s && s->place != PLACE_NONE, constraints = w && (w->plain || w->blocked || w->fastest || w->grows);
    if (!m->fused.stored[v.i] && !placed && !constraints)
        return;
    PUT(p, "value");
    put_value(p, v);
    PUT(p, m->fused.stored[v.i] ? " stored" : "");
    if (placed)
        PUT(p, " %s", place_words[s->place]);
    if (placed && s->place >= PLACE_ARENA && s->dim)
        PUT(p, " %u", s->buffer);
    if (constraints)
        put_constraint(p, w);
    if (s && s->halo) {
        PUT(p, " halo [");
        for (int32_t d = 0; d < 2 * value_type(m->g, v)->rank; d++)
            PUT(p, "%s%lld", d ? " " : "", (long long)s->halo[d]);
        PUT(p, "]");
    }
    if (placed && s->dim)
        put_dims(p, s);
    PUT(p, "\n");
}

/* In the order of the text. */
static void put_values(struct printer *p)
{
    uint32_t n = p->m->fused.n_values, *at = NEW_ARRAY(p->out->arena, uint32_t, n + 1);
    for (uint32_t v = 1; v < n; v++)
        at[p->n.value[v]] = v;
    for (uint32_t i = 1; i < n; i++)
        if (at[i])
            put_storage(p, (value_id){at[i]});
}

static void put_buffers(struct printer *p)
{
    const struct module *m = p->m;
    for (uint32_t i = 0; i < m->plan.buffers.n; i++) {
        const struct buffer *b = &m->plan.buffers.data[i];
        PUT(p, "buffer %u of", i);
        put_value(p, b->value);
        if (m->facts & HAS_OFFSETS && b->first != UINT32_MAX)
            PUT(p, " lives %u %u", b->first, b->last);
        if (b->segment)
            PUT(p, " segment");
        if (b->offset.i) {
            PUT(p, " offset");
            put_expr(p, b->offset);
        }
        PUT(p, "\n");
    }
    if (m->facts & HAS_OFFSETS) {
        PUT(p, "workspace");
        put_expr(p, m->plan.arena_bytes);
        PUT(p, "\n");
    }
}

static void put_weights(struct printer *p)
{
    const struct module *m = p->m;
    for (uint32_t i = 0; i < m->plan.weights.n; i++) {
        const struct weight *w = &m->plan.weights.data[i];
        PUT(p, "weight %u of", i);
        put_value(p, w->value);
        if (m->facts & HAS_WEIGHTS)
            PUT(p, " offset %llu bytes %llu", (unsigned long long)w->offset, (unsigned long long)w->bytes);
        PUT(p, "\n");
    }
    if (m->facts & HAS_WEIGHTS)
        PUT(p, "segment %llu\n", (unsigned long long)m->plan.weights_bytes);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static void put_options(struct printer *p)
{
    const struct module *m = p->m;
    PUT(p, "module 1 level %d layout %s winograd %u%s%s%s", m->asked.opt_level, layout_words[m->asked.layout],
        m->asked.winograd, m->asked.attention ? " attention" : "", m->asked.sparse ? " sparse" : "",
        m->asked.always ? " always" : "");
    if (m->asked.precision)
        PUT(p, " precision %s", precision_words[m->asked.precision]);
    if (m->asked.weights_type)
        PUT(p, " constants %s", weights_rows[m->asked.weights_type].word);
    if (m->asked.best != target_find(BEST_BY_DEFAULT))
        PUT(p, " for \"%s\"", m->asked.best->name);
    if (m->asked.matdot)
        PUT(p, " matdot %u", m->asked.matdot);
    PUT(p, "%s%s\n", m->asked.pairs ? " pairs" : "", m->asked.strict ? " strict" : "");
    for (uint32_t i = 0; i < m->asked.choices.n; i++) {
        const struct choice *c = &m->asked.choices.data[i];
        PUT(p, "choose ");
        strbuf_quoted(p->out, c->node);
        PUT(p, " %s", c->field ? c->field : choice_words[c->key]);
        PUT(p, " %lld %lld %lld\n", (long long)c->n[0], (long long)c->n[1], (long long)c->n[2]);
    }
    PUT(p, "facts ");
    facts_print(m->facts & TEXT_FACTS, p->out);
    PUT(p, "\n");
}

void module_print(const struct module *m, struct strbuf *out, bool full)
{
    struct printer p = {m, m->ctx->exprs, out, graph_numbers(m->g, out->arena)};
    graph_print(m->g, out, full);
    put_options(&p);
    put_attentions(&p);
    for (uint32_t i = 0; i < m->fused.kernels.n; i++)
        put_kernel(&p, i);
    put_values(&p);
    put_buffers(&p);
    put_weights(&p);
    if (m->facts & HAS_ORDER) {
        PUT(&p, "order");
        for (uint32_t i = 0; i < m->fused.order.n; i++)
            PUT(&p, " %u", m->fused.order.data[i]);
        PUT(&p, "\n");
    }
}

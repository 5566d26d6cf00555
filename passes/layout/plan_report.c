/* What the plan of memory costs: the workspace, how much of it is alive at the fullest moment, and which nodes' results
 * are. Sizes with symbols are printed as expressions; they are compared as multiples of the batch, all others being 1.
 */
#include "passes/module/module.h"

enum { SHOWN = 8 };

/* Bytes of a buffer with every symbol at 1. */
static int64_t unit_bytes(const struct module *m, const struct buffer *b, const int64_t *ones)
{
    int64_t bytes = 0;
    return ex_eval(m->ctx->exprs, b->bytes, ones, &bytes) && bytes > 0 ? bytes : 0;
}

static bool is_alive(const struct buffer *b, uint32_t at)
{
    return !b->segment && b->first <= at && at <= b->last;
}

/* The kernel (an index into order) at which most is alive; *bytes: how much. One pass over the ends of lives. */
static uint32_t fullest(const struct module *m, const int64_t *size, int64_t *bytes)
{
    int64_t *change = NEW_ARRAY(m->arena, int64_t, m->fused.order.n + 2), now = 0;
    uint32_t at = 0;
    for (uint32_t i = 0; i < m->plan.buffers.n; i++) {
        const struct buffer *b = &m->plan.buffers.data[i];
        if (b->segment || b->first == UINT32_MAX || b->last > m->fused.order.n)
            continue;
        change[b->first] += size[i];
        change[b->last + 1] -= size[i];
    }
    *bytes = 0;
    for (uint32_t i = 0; i < m->fused.order.n; i++) {
        now += change[i];
        if (now > *bytes) {
            *bytes = now;
            at = i;
        }
    }
    return at;
}

static void print_node(const struct module *m, value_id v, struct strbuf *out)
{
    const struct value *value = graph_value(m->g, v);
    const struct source *s = value->def.i ? source_get(m->ctx, graph_node(m->g, value->def)->src) : NULL;
    if (s && s->op)
        strbuf_printf(out, "'%s' (%s)", source_label(s), s->op);
    else
        strbuf_printf(out, "value %u", v.i);
}

void plan_report(const struct module *m, struct strbuf *out)
{
    struct exprs *x = m->ctx->exprs;
    int64_t *ones = NEW_ARRAY(m->arena, int64_t, sym_count(x) + 1),
            *size = NEW_ARRAY(m->arena, int64_t, m->plan.buffers.n + 1), peak;
    for (uint32_t i = 0; i <= sym_count(x); i++)
        ones[i] = 1;
    for (uint32_t i = 0; i < m->plan.buffers.n; i++)
        size[i] = unit_bytes(m, &m->plan.buffers.data[i], ones);
    uint32_t at = fullest(m, size, &peak);
    strbuf_printf(out, "workspace: ");
    ex_print(x, m->plan.arena_bytes, out);
    strbuf_printf(out, " bytes");
    if (!m->fused.order.n || !peak) {
        strbuf_printf(out, "\n");
        return;
    }
    const struct kernel *k = &m->fused.kernels.data[m->fused.order.data[at]];
    strbuf_printf(out, "; at most %lld alive at once, in the kernel of ", (long long)peak);
    print_node(m, k->outs.n ? k->outs.data[0] : (value_id){0}, out);
    strbuf_printf(out, ", held by\n");
    for (uint32_t shown = 0; shown < SHOWN; shown++) {
        uint32_t most = m->plan.buffers.n;
        for (uint32_t i = 0; i < m->plan.buffers.n; i++)
            if (is_alive(&m->plan.buffers.data[i], at) && size[i] &&
                (most == m->plan.buffers.n || size[i] > size[most]))
                most = i;
        if (most == m->plan.buffers.n)
            return;
        strbuf_printf(out, "%12lld  ", (long long)size[most]);
        print_node(m, m->plan.buffers.data[most].value, out);
        strbuf_printf(out, "\n");
        size[most] = 0;
    }
}

/* Finding what the user chose for a kernel or a node: see choices.h. */
#include "passes/module/choices.h"

#include <string.h>

/* The latest of the same node and key counts. */
static struct choice *latest(const struct module *m, const char *label, enum choice_key key)
{
    for (uint32_t i = m->choices.n; i > 0; i--) {
        struct choice *c = &m->choices.data[i - 1];
        if (c->key == key && !strcmp(c->node, label))
            return c;
    }
    return NULL;
}

struct choice *choice_of_node(const struct module *m, node_id id, enum choice_key key)
{
    struct choice *c = m->choices.n ? latest(m, source_label(source_get(m->ctx, graph_node(m->g, id)->src)), key)
                                    : NULL;
    if (c)
        c->asked = true;
    return c;
}

struct choice *choice_of_kernel(const struct module *m, const struct kernel *k, enum choice_key key)
{
    struct choice *best = NULL;
    for (uint32_t i = 0; m->choices.n && i < k->nodes.n; i++) {
        struct choice *c = choice_of_node(m, k->nodes.data[i], key);
        best = c && (!best || c > best) ? c : best;
    }
    return best;
}

void choice_refuse(const struct module *m, const struct choice *c, const char *why)
{
    warn_at(m->ctx, (src_id){0}, "choose", "%s: %s", c->text, why);
}

bool is_narrowed(const struct module *m)
{
    bool some = m->precision != PRECISION_F32 || m->weights_type == WEIGHTS_BF16 || m->weights_type == WEIGHTS_F16;
    for (uint32_t i = 0; i < m->choices.n; i++)
        some |= m->choices.data[i].key == CHOOSE_PRECISION;
    return some;
}

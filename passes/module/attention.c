/* What is known of attentions: module/attention.h. */
#include "passes/module/attention.h"

static const struct attention *attention_at(const struct module *m, node_id id)
{
    return id.i < m->known.n_attention_nodes ? m->known.attention_of[id.i] : NULL;
}

bool is_attention_product(const struct module *m, node_id id)
{
    return attention_at(m, id) != NULL;
}

const struct attention *attention_of_values(const struct module *m, node_id id)
{
    const struct attention *a = m->asked.attention && m->asked.opt_level > 0 ? attention_at(m, id) : NULL;
    return a && a->values.i == id.i ? a : NULL;
}

const struct attention *attention_of_scores(const struct module *m, node_id id)
{
    const struct attention *a = m->asked.attention && m->asked.opt_level > 0 ? attention_at(m, id) : NULL;
    return a && a->scores.i == id.i ? a : NULL;
}

bool attention_record(struct module *m, const struct attention *a)
{
    if (!m->known.attention_of) {
        m->known.n_attention_nodes = m->g->nodes.n;
        m->known.attention_of = NEW_ARRAY(m->arena, const struct attention *, m->known.n_attention_nodes);
    }
    if (m->known.attention_of[a->scores.i] || m->known.attention_of[a->values.i])
        return false;
    m->known.attention_of[a->values.i] = m->known.attention_of[a->scores.i] = arena_copy(m->arena, a, sizeof *a);
    return true;
}

bool attention_dims(const struct graph *g, const struct node *n, uint32_t operand, struct dot_dims *d)
{
    int32_t free_dim[RANK_MAX], count = dot_free(g, n, operand, free_dim);
    uint32_t n_batch, n_contract;
    const int64_t *batch = node_ints(n, operand ? "batch_b" : "batch_a", &n_batch);
    const int64_t *contract = node_ints(n, operand ? "contract_b" : "contract_a", &n_contract);
    if (n_contract != 1 || count < 1 || (operand && count > 1))
        return false;
    *d = (struct dot_dims){n_batch + (uint32_t)count - 1, {0}, (int32_t)contract[0], free_dim[count - 1]};
    for (uint32_t i = 0; i < d->n_batch; i++)
        d->batch[i] = i < n_batch ? (int32_t)batch[i] : free_dim[i - n_batch];
    return true;
}

value_id attention_operand(const struct graph *g, struct attention_step s)
{
    return graph_node(g, s.node)->in[s.operand];
}

void attention_walk(const struct graph *g, const attention_steps *steps, expr_id *idx)
{
    for (uint32_t i = 0; i < steps->n; i++)
        operand_at(g, graph_node(g, steps->data[i].node), steps->data[i].operand, idx, idx);
}

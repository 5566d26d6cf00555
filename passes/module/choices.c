/* Finding what the user chose for a kernel or a node: see choices.h. */
#include "passes/module/choices.h"

/* Open addressing: the number + 1 of the latest choice of the node and key; 0: there is none. */
static uint32_t *slot_of(const struct module *m, const char *node, enum choice_key key)
{
    for (uint64_t i = hash_mix(hash_bytes(node, strlen(node)), key);; i++) {
        uint32_t *slot = &m->asked.choice_slots[i & (m->asked.n_choice_slots - 1)];
        const struct choice *c = *slot ? &m->asked.choices.data[*slot - 1] : NULL;
        if (!c || (c->key == key && !strcmp(c->node, node)))
            return slot;
    }
}

void choice_add(struct module *m, struct choice c)
{
    VEC_PUSH(m->arena, &m->asked.choices, c);
    uint32_t n = m->asked.choices.n, entered = n - 1;
    if (2 * n > m->asked.n_choice_slots) {
        m->asked.n_choice_slots = m->asked.n_choice_slots ? 2 * m->asked.n_choice_slots : 16;
        m->asked.choice_slots = NEW_ARRAY(m->arena, uint32_t, m->asked.n_choice_slots);
        entered = 0;
    }
    for (; entered < n; entered++) {
        struct choice *one = &m->asked.choices.data[entered];
        uint32_t *slot = slot_of(m, one->node, one->key);
        one->before = *slot;
        *slot = entered + 1;
    }
}

struct choice *choice_latest(const struct module *m, const char *node, enum choice_key key)
{
    uint32_t i = m->asked.choices.n ? *slot_of(m, node, key) : 0;
    return i ? &m->asked.choices.data[i - 1] : NULL;
}

struct choice *choice_before(const struct module *m, const struct choice *c)
{
    return c->before ? &m->asked.choices.data[c->before - 1] : NULL;
}

struct choice *choice_of_node(const struct module *m, node_id id, enum choice_key key)
{
    if (!m->asked.choices.n)
        return NULL;
    struct choice *c = choice_latest(m, source_label(source_get(m->ctx, graph_node(m->g, id)->src)), key);
    if (c)
        c->asked = true;
    return c;
}

struct choice *choice_of_kernel(const struct module *m, const struct kernel *k, enum choice_key key)
{
    struct choice *best = NULL;
    for (uint32_t i = 0; m->asked.choices.n && i < k->nodes.n; i++) {
        struct choice *c = choice_of_node(m, k->nodes.data[i], key);
        best = c && (!best || c > best) ? c : best;
    }
    return best;
}

void choice_refuse(const struct module *m, const struct choice *c, const char *why)
{
    warn_at(m->ctx, (src_id){0}, "choose", "%s: %s", c->text, why);
}

const struct weights_row weights_rows[WEIGHTS_TYPES] = {
    [WEIGHTS_AS_THEY_ARE] = {"auto", ELEM_NONE, 0},
#define WEIGHTS(id, word, elem, most) [WEIGHTS_##id] = {word, ELEM_##elem, most},
#include "passes/module/weights.def"
};

/* Does an option or a choice store constants in a type with scales, or in one without? */
static bool stores(const struct module *m, bool scaled)
{
    const struct weights_row *w = &weights_rows[m->asked.weights_type];
    bool some = w->elem && (w->most > 0) == scaled;
    for (uint32_t i = 0; i < m->asked.choices.n; i++) {
        const struct choice *c = &m->asked.choices.data[i];
        w = &weights_rows[c->key == CHOOSE_WEIGHTS ? c->n[0] : 0];
        some |= w->elem && (w->most > 0) == scaled;
    }
    return some;
}

/* The arithmetic of the twins of a search (ir/graph/probe.h). */
static enum arithmetic second_of(const struct module *m)
{
    return m->asked.probe ? m->asked.probe->second : ARITHMETIC_F32;
}

static bool is_twin(const struct module *m, node_id id)
{
    bool found = false;
    for (uint32_t i = 0; m->asked.probe && i < m->asked.probe->twins.n && !found; i++)
        found = m->asked.probe->twins.data[i].i == id.i;
    return found;
}

bool is_narrowed(const struct module *m)
{
    bool some = second_of(m) == ARITHMETIC_BF16 || second_of(m) == ARITHMETIC_F16;
    some |= m->asked.precision != PRECISION_F32 || stores(m, false);
    for (uint32_t i = 0; i < m->asked.choices.n; i++)
        some |= m->asked.choices.data[i].key == CHOOSE_PRECISION;
    return some;
}

bool is_quantized(const struct module *m)
{
    return stores(m, true) || second_of(m) == ARITHMETIC_I8 || second_of(m) == ARITHMETIC_I4;
}

/* INT8: legalize took the choice where it could. */
enum precision precision_wanted(const struct module *m, node_id id)
{
    if (is_twin(m, id) && (second_of(m) == ARITHMETIC_BF16 || second_of(m) == ARITHMETIC_F16))
        return second_of(m) == ARITHMETIC_BF16 ? PRECISION_BF16 : PRECISION_F16;
    const struct choice *chosen = choice_latest(m, source_label(source_get(m->ctx, graph_node(m->g, id)->src)),
                                                CHOOSE_PRECISION);
    if (chosen && chosen->n[0] != PRECISION_INT8)
        chosen = choice_of_node(m, id, CHOOSE_PRECISION);
    return chosen ? (enum precision)chosen->n[0] : m->asked.precision;
}

enum weights_type weights_wanted(const struct module *m, node_id id)
{
    if (is_twin(m, id) && (second_of(m) == ARITHMETIC_I8 || second_of(m) == ARITHMETIC_I4))
        return second_of(m) == ARITHMETIC_I8 ? WEIGHTS_I8 : WEIGHTS_I4;
    const struct choice *c = choice_of_node(m, id, CHOOSE_WEIGHTS);
    return c ? (enum weights_type)c->n[0] : m->asked.weights_type;
}

/* The record of one kernel: its kind, then what the kind's row decides, estimates and says in words (kinds.h). */
#include "passes/schedule/kinds.h"

/* ---- kinds ------------------------------------------------------------------------------------------------------- */

static bool none_choose(const struct site *site, struct schedule *out)
{
    (void)site, (void)out;
    return true;
}

static void none_facts(const struct site *site, const struct schedule *s, struct schedule_facts *f)
{
    (void)site, (void)s, (void)f;
}

static const struct kind none_kind = {.choose = none_choose, .facts = none_facts};
const struct kind_row kind_rows[SCHEDULE_KINDS] = {
    {"none", "", &none_kind},
#define KIND(id, name, what) [SCHEDULE_##id] = {#name, what, &name##_kind},
#include "passes/schedule/fields.def"
};

const char *schedule_kind_name(enum schedule_kind kind)
{
    return kind_rows[kind].name;
}

int schedule_kind_by_name(const char *name)
{
    const struct kind_row *row = ROW_NAMED(kind_rows, SCHEDULE_KINDS, name);
    return row ? (int)(row - kind_rows) : -1;
}

enum schedule_kind schedule_kind_of(const struct kernel *k)
{
    enum schedule_kind own = SCHEDULE_NONE;
    for (int kind = 1; kind < SCHEDULE_KINDS; kind++)
        own = kind_rows[kind].kind->owns && kind_rows[kind].kind->owns(k) ? (enum schedule_kind)kind : own;
    return own;
}

/* What a second result is of, operands that only one template computes, and a softmax inside bind it to its own kind */
bool kernel_is_free(const struct site *site)
{
    const struct kernel *k = site->k;
    return (k->kind == KERNEL_REDUCE || k->kind == KERNEL_CONTRACT) && k->outs.n == 1 && !k->form.product.i &&
           !k->form.attention;
}

uint32_t schedule_kinds(const struct site *site)
{
    uint32_t kinds = 1u << schedule_kind_of(site->k);
    for (int kind = 1; kind < SCHEDULE_KINDS; kind++)
        if (kind_rows[kind].kind->serves && kind_rows[kind].kind->serves(site))
            kinds |= 1u << kind;
    return kinds;
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

bool schedule_choose(const struct site *site, struct schedule *out)
{
    if (out->kind != SCHEDULE_NONE)
        reduce_choose(site, out);
    bool ok = kind_of(out->kind)->choose(site, out);
    out->ns = ok ? schedule_facts(site, out).ns : 0;
    return ok;
}

/* Products of bf16 without an instruction for them are of f32; those of bytes are of bytes. */
static enum products arithmetic_of(const struct site *site, const struct schedule *s)
{
    const struct node *n = graph_node(site->g, site->k->anchor);
    enum elem a = value_type(site->g, n->in[0])->elem, sum = value_type(site->g, n->out[0])->elem;
    for (uint32_t i = 0; i < s->n_reduce; i++)
        if (s->reduce[i].halves)
            return PRODUCTS_NONE;
    if (dot_kind_of(site->m, n) == DOT_U8 || (elem_size(a) == 1 && sum == ELEM_I32))
        return s->tile.matmul ? PRODUCTS_INT8_TILES : PRODUCTS_INT8;
    if (dot_is_whole(site->mach, site->m, n))
        return s->tile.matmul ? PRODUCTS_BF16_TILES : PRODUCTS_BF16;
    return elem_class(a) == 'F' && a != ELEM_F64 ? PRODUCTS_F32 : PRODUCTS_NONE;
}

struct schedule_facts schedule_facts(const struct site *site, const struct schedule *s)
{
    node_id *reductions = NEW_ARRAY(site->m->arena, node_id, s->n_reduce + 1);
    struct schedule_facts f = {.reductions = reductions};
    if (s->kind != SCHEDULE_NONE)
        kernel_reductions(site, s->kind, reductions);
    kind_of(s->kind)->facts(site, s, &f);
    f.arithmetic = f.flops ? arithmetic_of(site, s) : PRODUCTS_NONE;
    return f;
}

const char *schedule_words(const struct module *m, uint32_t kernel)
{
    const struct cpu_schedules *first = m->plan.schedules.n ? &m->plan.schedules.data[0] : NULL;
    const struct kind *kind = first ? kind_of(first->of[kernel].kind) : NULL;
    return kind && kind->words
               ? kind->words(m, &m->fused.kernels.data[kernel], &first->of[kernel], &first->facts[kernel])
               : NULL;
}

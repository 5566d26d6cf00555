/* A kernel's frame: its arguments, which are the buffers that its values can mention and the sizes that its code uses,
 * and what is left of it when all is emitted.
 */
#include "passes/emit/emit.h"
#include "passes/module/analysis.h"
#include "passes/module/visited.h"

struct collector {
    struct em *em;
    struct visited seen;
    VEC(value_id) work;
};

static void collect_buffer(struct collector *c, value_id v)
{
    struct em *em = c->em;
    for (uint32_t i = 0; i < em->args.n; i++)
        if (em->args.data[i].value.i == v.i)
            return;
    VEC_PUSH(em->arena, &em->args, ((struct karg){.value = v}));
}

static void collect_operands(struct collector *c, const struct node *n)
{
    for (uint32_t k = 0; k < n->n_in; k++)
        if (n->in[k].i)
            VEC_PUSH(c->em->arena, &c->work, n->in[k]);
}

/* Buffers that the kernel's values can mention: a walk from the stored values to what is in memory. */
static void collect(struct em *em)
{
    struct collector c = {.em = em, .seen = {.g = em->g, .arena = em->arena}};
    for (uint32_t i = 0; i < em->k->outs.n; i++) {
        value_id v = em->k->outs.data[i];
        collect_buffer(&c, v);
        visit(&c.seen, v, NULL);
        if (em->k->piece) { /* pieces of equal shape then have equal code */
            const struct node *n = value_node(em->g, v);
            expr_id start;
            if (piece_start(em->m, n, em->k->piece - 1, &start) && !ex_is(em->x, start, 0))
                em->args.data[em->args.n - 1].start = ex_min(em->x, start,
                                                             em->m->fused.storage[v.i].size); /* may be empty */
            VEC_PUSH(em->arena, &c.work, em->k->domain);
        }
        if (!em->k->piece && em->k->kind != KERNEL_HALO)
            collect_operands(&c, value_node(em->g, v));
    }
    const struct schedule *s = em->schedule;
    if (s && s->kind == SCHEDULE_ATTENTION && s->attention.parts)
        VEC_PUSH(em->arena, &em->args, ((struct karg){.shared = true}));
    while (c.work.n) {
        value_id v = c.work.data[--c.work.n];
        if (!visit(&c.seen, v, NULL))
            continue;
        bool constant = value_is_const(em->g, v);
        if (em->m->fused.storage[v.i].place != PLACE_NONE)
            collect_buffer(&c, v);
        if (em->m->fused.stored[v.i] && !constant)
            continue;
        if (value_node(em->g, v))
            collect_operands(&c, value_node(em->g, v));
    }
}

enum { ARGS_MOST = 255, KEPT_MOST = 100 }; /* of a launch; of those, not this kernel's own */

/* One launch serves several CPU levels: the sizes that the levels before this one ask for keep their places, used or
 * not, if the buffers in front of them are the same. */
static void keep_sizes(struct em *em)
{
    const struct kernel *k = em->k;
    uint32_t n = em->args.n;
    bool same = k->args.n >= n && k->args.n <= KEPT_MOST;
    for (uint32_t i = 0; same && i < n; i++)
        same = karg_same(&k->args.data[i], &em->args.data[i]);
    for (uint32_t i = n; same && i < k->args.n; i++)
        same = k->args.data[i].size.i != 0;
    for (uint32_t i = n; same && i < k->args.n; i++)
        VEC_PUSH(em->arena, &em->args, k->args.data[i]);
}

/* Does the result lie where an operand does (layout/in_place.c)? */
static bool updates_in_place(const struct em *em)
{
    const struct storage *storage = em->m->fused.storage, *out = em->k->outs.n ? &storage[em->k->outs.data[0].i] : NULL;
    for (uint32_t i = 0; i < em->args.n && out && out->place == PLACE_ARENA; i++) {
        const struct storage *s = &storage[em->args.data[i].value.i];
        if (s != out && s->place == PLACE_ARENA && s->buffer == out->buffer)
            return true;
    }
    return false;
}

void em_begin(struct em *em, const struct site *site, const struct schedule *schedule,
              const struct schedule_facts *facts, const char *name)
{
    struct module *m = site->m;
    struct kernel *k = site->k;
    *em = (struct em){.m = m,
                      .k = k,
                      .g = site->g,
                      .x = site->x,
                      .arena = site->arena,
                      .site = *site,
                      .schedule = schedule,
                      .facts = facts};
    em->f = lf_new(m->ctx, site->arena, LROLE_KERNEL, name);
    k->shared_bytes = 0;
    k->keeps_scratch = false;
    em->level[0] = (lblock){1};
    em->bytes = kernel_has_bytes(m->g, k);
    em->memo_cap = 256;
    em->memo = NEW_ARRAY(em->arena, struct em_memo, em->memo_cap);
    collect(em);
    uint32_t alone = k->shares || updates_in_place(em) ? 0 : LARG_NOALIAS;
    for (uint32_t i = 0; i < em->args.n; i++) {
        struct karg a = em->args.data[i];
        lreg v;
        if (a.value.i) {
            bool out = false;
            for (uint32_t j = 0; j < k->outs.n; j++)
                out |= k->outs.data[j].i == a.value.i;
            struct ltype t = {value_type(m->g, a.value)->elem, 0};
            v = lf_arg(em->f, t, LARG_IN | (out ? LARG_OUT : 0) | alone, 0, NULL);
        } else {
            v = lf_arg(em->f, (struct ltype){ELEM_F32, 0}, LARG_IN | LARG_OUT, 64, NULL);
        }
        VEC_PUSH(em->arena, &em->arg_lreg, v);
    }
    keep_sizes(em);
    for (uint32_t i = em->arg_lreg.n; i < ARGS_MOST; i++)
        VEC_PUSH(em->arena, &em->arg_lreg, lf_arg(em->f, (struct ltype){ELEM_I64, 1}, 0, 0, NULL));
}

lreg em_size(struct em *em, expr_id e)
{
    uint32_t i = 0;
    while (i < em->args.n && em->args.data[i].size.i != e.i)
        i++;
    if (i == em->arg_lreg.n)
        context_unwind(em->m->ctx, FAIL_LIMIT, (src_id){0}, "kernel %s reads more than %d values and sizes",
                       em->f->name, ARGS_MOST);
    if (i == em->args.n)
        VEC_PUSH(em->arena, &em->args, ((struct karg){.size = e}));
    return em->arg_lreg.data[i];
}

lreg em_buffer(struct em *em, value_id v)
{
    for (uint32_t i = 0; i < em->args.n; i++)
        if (em->args.data[i].value.i == v.i)
            return em->arg_lreg.data[i];
    em->failed = true;
    error_internal(em->m->ctx, (src_id){0}, "kernel %s: value %u is not an argument", em->f->name, v.i);
    return (lreg){1};
}

lreg em_shared(struct em *em)
{
    for (uint32_t i = 0; i < em->args.n; i++)
        if (em->args.data[i].shared)
            return em->arg_lreg.data[i];
    em->failed = true;
    error_internal(em->m->ctx, (src_id){0}, "kernel %s shares no memory", em->f->name);
    return (lreg){1};
}

/* Does the kernel compute the node that is to come out wrong? */
static bool is_broken(const struct em *em)
{
    for (uint32_t i = 0; em->m->asked.broken && i < em->k->nodes.n; i++) {
        const char *name = source_get(em->m->ctx, graph_node(em->g, em->k->nodes.data[i])->src)->name;
        if (name && strcmp(name, em->m->asked.broken) == 0)
            return true;
    }
    return false;
}

bool em_finish(struct em *em)
{
    struct strbuf text;
    struct kernel *k = em->k;
    if (em->failed)
        return false;
    for (uint32_t i = 0; i < k->nodes.n; i++) {
        uint32_t src = graph_node(em->g, k->nodes.data[i])->src.i, j = 0;
        while (j < em->f->nodes.n && em->f->nodes.data[j] != src)
            j++;
        if (src && j == em->f->nodes.n)
            VEC_PUSH(em->arena, &em->f->nodes, src);
    }
    em->f->args.n = em->args.n;
    lf_tidy(em->f);
    if (em->m->asked.strict)
        lf_settle_zeros(em->f);
    if (is_broken(em))
        em->m->asked.broke |= lf_break(em->f);
    if (!lf_finish(em->f)) {
        strbuf_init(&text, em->arena);
        lf_print(em->f, &text);
        remark_at(em->m->ctx, (src_id){0}, "broken-kernel", "%.900s", text.data ? text.data : "");
        return false;
    }
    strbuf_init(&text, em->arena);
    lf_print(em->f, &text);
    k->bytes = 0;
    for (uint32_t i = 0; i < em->args.n; i++) { /* each buffer read or written once */
        value_id v = em->args.data[i].value;
        if (v.i)
            k->bytes += (uint64_t)extent_counted(em->m, em->m->fused.storage[v.i].size) *
                        elem_size(value_type(em->g, v)->elem);
    }
    k->name = arena_strdup(em->m->arena, em->f->name);
    k->text = arena_strndup(em->m->arena, text.data, text.n);
    k->local_bytes = em->f->local_bytes;
    k->args.data = arena_copy(em->m->arena, em->args.data, em->args.n * sizeof *em->args.data);
    k->args.n = k->args.cap = em->args.n;
    return true;
}

/* See merge.h. */
#include "codegen/container/merge.h"

#include "codegen/sink.h"
#include "runtime/rt.h"

static size_t slot_of(const char *name)
{
    return hash_bytes(name, strlen(name)) % COUNT_OF(((struct merging *)0)->heads);
}

/* That of the name itself, or the other name. */
static const struct merge_name *look_up(const struct merging *m, const char *name)
{
    for (uint32_t k = m->heads[slot_of(name)]; k; k = m->names.data[k - 1].next)
        if (strcmp(m->names.data[k - 1].name, name) == 0)
            return &m->names.data[k - 1];
    return NULL;
}

void merging_define(struct merging *m, const char *name, uint32_t member, uint32_t symbol, const char *as)
{
    uint32_t *head = &m->heads[slot_of(name)];
    if (look_up(m, name))
        return;
    VEC_PUSH(m->arena, &m->names, ((struct merge_name){name, member, symbol, as, *head}));
    *head = m->names.n;
}

const struct merge_name *merging_find(const struct merging *m, const char *name)
{
    const struct merge_name *d = look_up(m, name);
    for (int times = 0; times < 3 && d && d->as; times++)
        d = look_up(m, d->as);
    return d && d->as ? NULL : d;
}

void merging_begin(struct merging *m, struct linking *from, const char *prefix)
{
    uint32_t n_runtime;
    const struct span *runtime = linking_runtime(from, &n_runtime);
    *m = (struct merging){.arena = from->arena,
                          .objects = NEW_ARRAY(from->arena, struct span, from->n_units + n_runtime + 1)};
    m->objects[m->n++] = from->table;
    for (uint32_t i = 0; i < from->n_units; i++) {
        const struct codegen_unit *same = from->units[i].same;
        if (same)
            merging_define(m, arena_printf(m->arena, "%s%s", prefix, from->units[i].symbol), 0, 0,
                           arena_printf(m->arena, "%s%s", prefix, same->symbol));
        else
            m->objects[m->n++] = from->units[i].object;
    }
    m->n_model = m->n;
    for (uint32_t i = 0; i < n_runtime; i++)
        m->objects[m->n++] = runtime[i];
}

struct product {
    const struct linked *l;
    struct mcc_rt_desc *desc;
    uint64_t desc_at;
    struct span front, head, tail;
    bool odd; /* an archive's member, after which a byte is missing */
};

static bool write_product(void *user, struct sink *s)
{
    const struct product *p = user;
    const struct weights_writer *w = p->l->weights;
    return sink_put(s, p->front.data, p->front.size) && sink_put(s, p->head.data, p->head.size) &&
           (!embedded_size(w) || sink_weights(s, w, &p->desc->weights_hash)) &&
           sink_put(s, p->tail.data, p->tail.size) && (!p->odd || sink_put(s, "\n", 1)) &&
           sink_fits(s, w->sidecar ? w->size : 0) &&
           sink_patch(s, p->desc, sizeof *p->desc, p->front.size + p->desc_at);
}

bool merging_write(const struct linked *l, struct mcc_rt_desc *desc, uint64_t desc_at, struct span head,
                   struct span tail, struct span (*front)(struct arena *, const char *symbol, uint64_t member_size))
{
    const uint64_t size = head.size + embedded_size(l->weights) + tail.size;
    const bool archive = l->kind == OUTPUT_ARCHIVE;
    struct product p = {l,
                        desc,
                        desc_at,
                        archive ? front(l->arena, l->query, size) : (struct span){"", 0},
                        head,
                        tail,
                        archive && size % 2};
    return artifact_put(l, desc, NULL, write_product, &p);
}

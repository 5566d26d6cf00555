/* The record of one kernel: its kind, then what the kind's decisions say; and the record in words. */
#include "passes/schedule/decisions.h"
#include "passes/module/winograd.h"

enum schedule_kind schedule_kind_of(const struct kernel *k)
{
    static const enum schedule_kind kinds[] = {
        [KERNEL_MAP] = SCHEDULE_MAP,      [KERNEL_REDUCE] = SCHEDULE_TILED,    [KERNEL_CONTRACT] = SCHEDULE_TILED,
        [KERNEL_SCAN] = SCHEDULE_SCAN,    [KERNEL_SCATTER] = SCHEDULE_SCATTER, [KERNEL_OPAQUE] = SCHEDULE_NONE,
        [KERNEL_CONTROL] = SCHEDULE_NONE, [KERNEL_HALO] = SCHEDULE_HALO,
    };
    enum schedule_kind kind = kinds[k->kind];
    return kind == SCHEDULE_NONE ? kind
           : k->form.winograd    ? SCHEDULE_WINOGRAD
           : k->form.attention   ? SCHEDULE_ATTENTION
                                 : kind;
}

/* What a second result is of, and operands that only one template computes, bind the kernel to its own kind. */
uint32_t schedule_kinds(const struct site *site)
{
    const struct kernel *k = site->k;
    enum schedule_kind own = schedule_kind_of(k);
    uint32_t kinds = 1u << own;
    if ((own != SCHEDULE_TILED && own != SCHEDULE_WINOGRAD) || k->outs.n != 1 || k->form.product.i)
        return kinds;
    kinds |= 1u << SCHEDULE_TILED | 1u << SCHEDULE_MAP;
    return kinds | (!k->form.staged.i && winograd_serves(site->m, k) ? 1u << SCHEDULE_WINOGRAD : 0);
}

static bool kind_choose(const struct site *site, struct schedule *out)
{
    if (out->kind != SCHEDULE_NONE)
        reduce_choose(site, out);
    switch (out->kind) {
    case SCHEDULE_TILED:
        tile_choose(site, out);
        stage_choose(site, &out->tile);
        block_choose(site, &out->tile);
        scale_choose(site, out);
        tile_split_choose(site, &out->tile);
        return true;
    case SCHEDULE_WINOGRAD: winograd_sizes(site, out); return true;
    case SCHEDULE_ATTENTION: return attention_sizes(site, out);
    case SCHEDULE_MAP: map_choose(site, out); return true;
    case SCHEDULE_SCAN:
    case SCHEDULE_SCATTER: lines_choose(site, out); return true;
    case SCHEDULE_HALO: halo_choose(site, out); return true;
    default: return true;
    }
}

bool schedule_choose(const struct site *site, struct schedule *out)
{
    bool ok = kind_choose(site, out);
    out->ns = ok ? schedule_facts(site, out).ns : 0;
    return ok;
}

struct schedule_facts schedule_facts(const struct site *site, const struct schedule *s)
{
    node_id *reductions = NEW_ARRAY(site->m->arena, node_id, s->n_reduce + 1);
    struct schedule_facts f = {.reductions = reductions};
    if (s->kind != SCHEDULE_NONE)
        kernel_reductions(site, s->kind, reductions);
    switch (s->kind) {
    case SCHEDULE_MAP:
        f.ns = map_estimate(site, &s->nest);
        f.flops = site->k->anchor.i ? anchor_flops(site) : 0;
        break;
    case SCHEDULE_TILED:
        f.ns = tile_estimate(site, &s->tile);
        f.flops = anchor_flops(site);
        if (s->tile.k_block)
            outer_k(site, graph_node(site->g, site->k->anchor), &f.k);
        break;
    case SCHEDULE_WINOGRAD: winograd_estimate(site, &s->winograd, &f); break;
    case SCHEDULE_ATTENTION: attention_estimate(site, &s->attention, &f); break;
    case SCHEDULE_SCAN:
    case SCHEDULE_SCATTER: f.ns = lines_estimate(site, s); break;
    case SCHEDULE_HALO: f.ns = halo_estimate(site, &s->nest); break;
    default: break;
    }
    return f;
}

static const char *tile_words(const struct tile_schedule *t, const struct k_dim *k, struct arena *a)
{
    const char *note = arena_printf(a, "tiles of %u x %u points%s by %u vector%s of %u lanes%s", t->tb, t->ta,
                                    t->flat ? " of whole images" : "", t->nr, t->nr == 1 ? "" : "s", t->lanes,
                                    t->early ? ", panels prefetched a block ahead" : "");
    if (t->k_block)
        note = arena_printf(a, "%s, in blocks of %lld products", note, (long long)(t->k_block * k->inner));
    if (t->chunk)
        note = arena_printf(a, "%s; operand computed for %u tiles at a time%s", note, t->chunk,
                            t->stage_columns ? ", a convolution of one tap included" : "");
    return note;
}

static const char *winograd_words(const struct module *m, const struct kernel *k, const struct winograd_schedule *w)
{
    return arena_printf(
        m->arena, "tiles of %d results of %ux%u by %d vectors of %u lanes, %d in a chunk; U derived %s%s", (int)w->mr,
        w->m, w->m, (int)w->nr, winograd_lanes(m->plan.schedules.data[0].mach), (int)w->chunk,
        w->resident ? "first" : "by slices", k->form.staged.i ? "; operand computed where tiles read it" : "");
}

static const char *attention_words(const struct attention_schedule *t, struct arena *a)
{
    const char *how = t->span ? "spans of keys with a running maximum" : "all keys, exact softmax";
    const char *note = arena_printf(a,
                                    "attention: blocks of %lld rows by %s, scores in tiles of %lld keys by %lld "
                                    "vectors, results of %lld rows by %lld vectors of %u lanes",
                                    (long long)(t->nv * t->lanes), how, (long long)t->mr, (long long)t->nv,
                                    (long long)t->pr, (long long)t->pc, t->lanes);
    return t->parts ? arena_printf(a, "%s; few blocks in parts of %lld keys", note, (long long)t->part) : note;
}

const char *schedule_words(const struct module *m, uint32_t kernel)
{
    const struct cpu_schedules *first = m->plan.schedules.n ? &m->plan.schedules.data[0] : NULL;
    const struct schedule *s = first ? &first->of[kernel] : NULL;
    switch (s ? s->kind : SCHEDULE_NONE) {
    case SCHEDULE_TILED: return tile_words(&s->tile, &first->facts[kernel].k, m->arena);
    case SCHEDULE_WINOGRAD: return winograd_words(m, &m->fused.kernels.data[kernel], &s->winograd);
    case SCHEDULE_ATTENTION: return attention_words(&s->attention, m->arena);
    default: return NULL;
    }
}

/* The tiled kind: an anchor (conv, dot, window, reduce) by register tiles. Its decisions are in tile_cost.c, stage.c,
 * block.c and split.c, its rules in verify_tiled.c.
 */
#include "passes/schedule/kinds.h"

static bool owns(const struct kernel *k)
{
    return k->kind == KERNEL_REDUCE || k->kind == KERNEL_CONTRACT;
}

static bool choose(const struct site *site, struct schedule *out)
{
    tile_choose(site, out);
    stage_choose(site, &out->tile);
    block_choose(site, &out->tile);
    scale_choose(site, out);
    tile_split_choose(site, &out->tile);
    epilogue_choose(site, &out->tile);
    return true;
}

static void facts(const struct site *site, const struct schedule *s, struct schedule_facts *f)
{
    f->ns = tile_estimate(site, &s->tile);
    f->flops = anchor_flops(site);
    if (s->tile.k_block)
        outer_k(site, graph_node(site->g, site->k->anchor), &f->k);
}

static bool check(struct check *c, struct strbuf *why)
{
    (void)why;
    c->tile = tile_facts(c->site);
    return true;
}

static const char *words(const struct module *m, const struct kernel *kernel, const struct schedule *s,
                         const struct schedule_facts *known)
{
    const struct tile_schedule *t = &s->tile;
    struct arena *a = m->arena;
    (void)kernel;
    const char *note = arena_printf(a, "tiles of %u x %u points%s by %u vector%s of %u lanes%s", t->tb, t->ta,
                                    t->flat ? " of whole images" : "", t->nr, t->nr == 1 ? "" : "s", t->lanes,
                                    t->early ? ", panels prefetched a block ahead" : "");
    if (t->k_block)
        note = arena_printf(a, "%s, in blocks of %lld products", note, (long long)(t->k_block * known->k.inner));
    if (t->chunk)
        note = arena_printf(a, "%s; operand computed for %u tiles at a time%s", note, t->chunk,
                            t->stage_columns ? ", a convolution of one tap included" : "");
    return note;
}

/* ---- versions ---------------------------------------------------------------------------------------------------- */

static int64_t whole_ns(const struct site *site, const struct size_at *at, const struct schedule *s)
{
    return tile_whole(site, at, &s->tile);
}

static int64_t code_of(const struct site *site, const struct schedule *s)
{
    return tile_code(site, &s->tile);
}

static bool is_cut(const struct site *site, const struct schedule *s, sym_id size)
{
    const struct type *t = value_type(site->g, graph_node(site->g, site->k->anchor)->out[0]);
    const int32_t cut[] = {s->tile.vec, s->tile.a, s->tile.b};
    bool uses = false;
    for (size_t i = 0; i < COUNT_OF(cut); i++)
        uses |= cut[i] >= 0 && ex_uses(site->x, t->dims[cut[i]], size);
    return uses;
}

static const struct kind_versions versions = {whole_ns, code_of, is_cut};
const struct kind tiled_kind = {.owns = owns,
                                .serves = kernel_is_free,
                                .choose = choose,
                                .facts = facts,
                                .check = check,
                                .words = words,
                                .versions = &versions};

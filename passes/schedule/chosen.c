/* --choose: what a user says of a kernel's tile, chunk and parts overwrites these fields of its record, and the cost
 * model decides the others anew around them. What the record cannot have, by the rules of verify.c, is a warning, and
 * the field stays.
 */
#include "passes/module/choices.h"
#include "passes/schedule/schedule.h"

/* Is it a decision of such a kernel? */
static bool has_key(const struct site *site, enum schedule_kind kind, enum choice_key key)
{
    return kind == SCHEDULE_WINOGRAD ||
           (kind == SCHEDULE_TILED && (key == CHOOSE_TILE || (key == CHOOSE_CHUNK && site->k->form.staged.i)));
}

static const char *tile_set(const struct choice *c, struct schedule *s)
{
    if (s->kind == SCHEDULE_TILED) {
        s->tile.tb = c->n[0];
        s->tile.ta = c->n[1];
        s->tile.nr = c->n[2];
        return NULL;
    }
    s->winograd.mr = c->n[1];
    s->winograd.nr = c->n[2];
    return c->n[0] == 1 ? NULL : "a Winograd kernel has tiles of 1 x tiles x vectors";
}

/* NULL, or why not. m: of Winograd's form. */
static const char *field_set(const struct site *site, const struct choice *c, uint32_t m, struct schedule *s)
{
    struct winograd_shape w;
    switch (c->key) {
    case CHOOSE_TILE: return tile_set(c, s);
    case CHOOSE_CHUNK:
        if (s->kind == SCHEDULE_TILED)
            s->tile.chunk = c->n[0];
        else
            s->winograd.chunk = c->n[0];
        return NULL;
    default:
        winograd_shape(site, m, &w);
        s->winograd.group = w.ocv / c->n[0];
        return w.ocv % c->n[0] ? "the vectors of output channels are no multiple of it" : NULL;
    }
}

bool schedule_chosen(const struct site *site, struct schedule *s)
{
    static const enum choice_key keys[] = {CHOOSE_TILE, CHOOSE_CHUNK, CHOOSE_SPLIT};
    struct schedule told = {.kind = s->kind};
    for (size_t i = 0; i < COUNT_OF(keys) && site->m->choices.n; i++) {
        const struct choice *c = has_key(site, s->kind, keys[i]) ? choice_of_kernel(site->m, site->k, keys[i]) : NULL;
        if (!c)
            continue;
        struct schedule more = told, next;
        struct strbuf why;
        const char *wrong = field_set(site, c, s->winograd.m, &more);
        strbuf_init(&why, site->m->arena);
        next = more;
        if (!wrong && !schedule_choose(site, &next))
            return false;
        if (!wrong && schedule_verify(site, &next, &why)) {
            told = more;
            *s = next;
            continue;
        }
        if (!wrong && !why.n)
            return false;
        choice_refuse(site->m, c,
                      wrong ? wrong
                            : arena_printf(site->m->arena, "a CPU of %u registers of %u bytes: %s",
                                           site->mach->registers, site->mach->vector_bytes, why.data));
    }
    return true;
}

/* --choose: what a user says of a kernel's tile, chunk and parts overwrites these fields of its record, and the cost
 * model decides the others anew around them, without a version; then what is said of a version. What the record cannot
 * have, by the bounds and rules of fields.def, is a warning, and the field stays.
 */
#include "passes/module/choices.h"
#include "passes/schedule/fields.h"

/* Is it a decision of such a kernel? */
static bool has_key(const struct site *site, enum schedule_kind kind, enum choice_key key)
{
    return kind == SCHEDULE_WINOGRAD ||
           (kind == SCHEDULE_TILED && (key == CHOOSE_TILE || (key == CHOOSE_CHUNK && site->k->form.staged.i)));
}

/* The fields that a choice's numbers go into; NULL: that number is to be 1. */
static const struct {
    enum choice_key key;
    enum schedule_kind kind;
    const char *field[3];
    uint32_t n;
} targets[] = {
    {CHOOSE_TILE, SCHEDULE_TILED, {"tile.rows", "tile.columns", "tile.vectors"}, 3},
    {CHOOSE_TILE, SCHEDULE_WINOGRAD, {NULL, "tile.tiles", "tile.vectors"}, 3},
    {CHOOSE_CHUNK, SCHEDULE_TILED, {"staged.tiles"}, 1},
    {CHOOSE_CHUNK, SCHEDULE_WINOGRAD, {"chunk"}, 1},
    {CHOOSE_SPLIT, SCHEDULE_WINOGRAD, {"group"}, 1},
};

static const char *number_set(const struct site *site, const char *name, int64_t n, struct schedule *s)
{
    uint32_t item;
    const struct field *f = name ? field_find(s->kind, name, &item) : NULL;
    if (!f)
        return n == 1 ? NULL : "a Winograd kernel has tiles of 1 x tiles x vectors";
    const char *bounds = field_bounds(f, 0, n, site->m->arena);
    if (!bounds)
        field_set(f, s, 0, n);
    return bounds;
}

/* NULL, or why not. m: of Winograd's form. */
static const char *numbers_set(const struct site *site, const struct choice *c, uint32_t m, struct schedule *s)
{
    struct winograd_shape w;
    const char *wrong = NULL;
    if (c->key == CHOOSE_SPLIT) {
        winograd_shape(site, m, &w);
        if (w.ocv % c->n[0])
            return "the vectors of output channels are no multiple of it";
    }
    for (size_t i = 0; i < COUNT_OF(targets); i++)
        for (uint32_t k = 0; k < targets[i].n && !wrong && targets[i].key == c->key && targets[i].kind == s->kind; k++)
            wrong = number_set(site, targets[i].field[k], c->key == CHOOSE_SPLIT ? w.ocv / c->n[0] : c->n[k], s);
    return wrong;
}

/* A version up to that value of the outermost dynamic size of the kernel's results, or none. */
static bool version_chosen(const struct site *site, struct schedule *s)
{
    const struct choice *c = s->kind == SCHEDULE_NONE || !site->m->asked.choices.n
                                 ? NULL
                                 : choice_of_kernel(site->m, site->k, CHOOSE_VERSION);
    struct schedule next = *s;
    struct strbuf why;
    if (!c)
        return true;
    next.version = (struct version_schedule){c->n[0] ? version_size(site) : 0, 0, 0};
    struct size_range r = version_range(site->x, &next.version);
    if (c->n[0] && !next.version.size) {
        choice_refuse(site->m, c, "no size of its results is dynamic");
        return true;
    }
    if (r.size.i) {
        next.version.least = sym_get(site->x, r.size)->lo > 1 ? sym_get(site->x, r.size)->lo : 1;
        next.version.most = c->n[0];
    }
    strbuf_init(&why, site->m->arena);
    if (schedule_verify(site, &next, &why))
        *s = next;
    else if (why.n)
        choice_refuse(site->m, c, why.data);
    return site->m->ctx->fail == FAIL_NONE;
}

bool schedule_chosen(const struct site *site, struct schedule *s)
{
    static const enum choice_key keys[] = {CHOOSE_TILE, CHOOSE_CHUNK, CHOOSE_SPLIT};
    struct schedule told = {.kind = s->kind};
    for (size_t i = 0; i < COUNT_OF(keys) && site->m->asked.choices.n; i++) {
        const struct choice *c = has_key(site, s->kind, keys[i]) ? choice_of_kernel(site->m, site->k, keys[i]) : NULL;
        if (!c)
            continue;
        struct schedule more = told, next;
        struct strbuf why;
        const char *wrong = numbers_set(site, c, s->winograd.m, &more);
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
    return version_chosen(site, s);
}

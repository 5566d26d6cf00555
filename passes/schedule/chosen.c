/* --choose: fields of a kernel's record that a user gives by name for all CPUs, and short forms of some.
 *
 * The numbers of tile, chunk and split are fields that the cost model then decides the others around, without a
 * version; version is the three fields of one. After these come fields by name, all of a kernel together, around which
 * the others stay. If the record is impossible then, by the bounds and rules of fields.def, a choice is a warning.
 */
#include "passes/module/choices.h"
#include "passes/schedule/fields.h"

static const char *refused(const struct site *site, const struct strbuf *why)
{
    return arena_printf(site->m->arena, "a CPU of %u registers of %u bytes: %s", site->mach->registers,
                        site->mach->vector_bytes, why->data);
}

/* Sets n fields, of which the choice is the last one. False: the record is impossible then, which is a warning, or
 * after a diagnostic. */
static bool choice_set(const struct site *site, const struct choice *c, const struct field_value *v, uint32_t n,
                       struct schedule *s)
{
    struct strbuf why = strbuf_of(site->m->arena);
    if (schedule_set(site, v, n, s, &why, &(uint32_t){0}))
        return true;
    if (why.n)
        choice_refuse(site->m, c, refused(site, &why));
    return false;
}

/* ---- short forms ------------------------------------------------------------------------------------------------- */

/* Is it a decision of such a kernel? */
static bool has_key(const struct site *site, enum schedule_kind kind, enum choice_key key)
{
    return kind == SCHEDULE_WINOGRAD ||
           (kind == SCHEDULE_TILED && (key == CHOOSE_TILE || (key == CHOOSE_CHUNK && site->k->form.staged.i)));
}

/* The fields that a choice's numbers are; NULL: that number is to be 1. */
static const struct {
    enum choice_key key;
    enum schedule_kind kind;
    const char *field[3];
    uint32_t n;
} short_forms[] = {
    {CHOOSE_TILE, SCHEDULE_TILED, {"tile.rows", "tile.columns", "tile.vectors"}, 3},
    {CHOOSE_TILE, SCHEDULE_WINOGRAD, {NULL, "tile.tiles", "tile.vectors"}, 3},
    {CHOOSE_CHUNK, SCHEDULE_TILED, {"staged.tiles"}, 1},
    {CHOOSE_CHUNK, SCHEDULE_WINOGRAD, {"chunk"}, 1},
    {CHOOSE_SPLIT, SCHEDULE_WINOGRAD, {"group"}, 1},
};

/* NULL, or why not. m: of Winograd's form. */
static const char *numbers_set(const struct site *site, const struct choice *c, uint32_t m, struct schedule *s)
{
    int64_t n[3] = {c->n[0], c->n[1], c->n[2]};
    struct winograd_shape w;
    const char *wrong = NULL;
    if (c->key == CHOOSE_SPLIT) {
        winograd_shape(site, m, &w);
        if (w.ocv % n[0])
            return "the vectors of output channels are not multiple of it";
        n[0] = w.ocv / n[0];
    }
    for (size_t i = 0; i < COUNT_OF(short_forms); i++)
        for (uint32_t k = 0; k < short_forms[i].n && short_forms[i].key == c->key && short_forms[i].kind == s->kind;
             k++) {
            struct field_value v;
            if (!short_forms[i].field[k] && n[k] != 1)
                return "a Winograd kernel has tiles of 1 x tiles x vectors";
            if (!short_forms[i].field[k])
                continue;
            wrong = wrong ? wrong : field_value(s->kind, short_forms[i].field[k], n[k], site->m->arena, &v);
            if (!wrong)
                field_set(&schedule_fields[v.field], s, v.item, v.value);
        }
    return wrong;
}

/* *given: the record of these fields alone. False after a diagnostic. */
static bool short_form_chosen(const struct site *site, const struct choice *c, struct schedule *given,
                              struct schedule *s)
{
    struct schedule more = *given, next;
    const char *wrong = numbers_set(site, c, s->winograd.m, &more);
    struct strbuf why = strbuf_of(site->m->arena);
    next = more;
    if (!wrong && !schedule_choose(site, &next))
        return false;
    if (!wrong && schedule_verify(site, &next, &why)) {
        *given = more;
        *s = next;
        return true;
    }
    if (!wrong && !why.n)
        return false;
    choice_refuse(site->m, c, wrong ? wrong : refused(site, &why));
    return true;
}

/* A version up to that value of the outermost dynamic size of the kernel's results, or none. */
static bool version_chosen(const struct site *site, const struct choice *c, struct schedule *s)
{
    static const char *const names[] = {"version.size", "version.least", "version.most"};
    int64_t n[3] = {c->n[0] ? version_size(site) : 0, 0, c->n[0]};
    struct field_value v[3];
    if (c->n[0] && !n[0]) {
        choice_refuse(site->m, c, "no size of its results is dynamic");
        return true;
    }
    struct size_range r = version_range(site->x, &(struct version_schedule){(uint32_t)n[0], 0, 0});
    if (r.size.i)
        n[1] = sym_get(site->x, r.size)->lo > 1 ? sym_get(site->x, r.size)->lo : 1;
    for (int i = 0; i < 3; i++) {
        const char *wrong = field_value(s->kind, names[i], n[i], site->m->arena, &v[i]);
        if (wrong) {
            choice_refuse(site->m, c, wrong);
            return true;
        }
    }
    choice_set(site, c, v, COUNT_OF(v), s);
    return site->m->ctx->fail == FAIL_NONE;
}

static bool short_forms_chosen(const struct site *site, struct schedule *s)
{
    static const enum choice_key keys[] = {CHOOSE_TILE, CHOOSE_CHUNK, CHOOSE_SPLIT};
    struct schedule given = {.kind = s->kind};
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        const struct choice *c = has_key(site, s->kind, keys[i]) ? choice_of_kernel(site->m, site->k, keys[i]) : NULL;
        if (c && !short_form_chosen(site, c, &given, s))
            return false;
    }
    const struct choice *version = choice_of_kernel(site->m, site->k, CHOOSE_VERSION);
    return !version || version_chosen(site, version, s);
}

/* ---- fields by name ---------------------------------------------------------------------------------------------- */

struct chosen {
    const struct choice *choice;
    struct field_value value;
};
typedef VEC(struct chosen) chosen_fields;

/* In the order of the table, in which counts come before items; of one field the latest choice last. */
static int by_field(const void *a, const void *b)
{
    const struct chosen *p = a, *q = b;
    if (p->value.field != q->value.field)
        return p->value.field < q->value.field ? -1 : 1;
    if (p->value.item != q->value.item)
        return p->value.item < q->value.item ? -1 : 1;
    return (p->choice > q->choice) - (p->choice < q->choice);
}

/* `split` is a short form of Winograd's kernels and a field of others. */
static void split_collect(const struct site *site, const struct schedule *s, chosen_fields *all)
{
    struct chosen one = {.value.item = 0};
    if (has_key(site, s->kind, CHOOSE_SPLIT) || !field_find(s->kind, "split", &one.value.item))
        return;
    one.choice = choice_of_kernel(site->m, site->k, CHOOSE_SPLIT);
    if (one.choice && !field_value(s->kind, "split", one.choice->n[0], site->m->arena, &one.value))
        VEC_PUSH(site->arena, all, one);
}

/* Those for the nodes of the kernel that a record of the kind has, each field once. */
static chosen_fields fields_collect(const struct site *site, const struct schedule *s)
{
    struct module *m = site->m;
    chosen_fields all = {0};
    for (uint32_t i = 0; i < site->k->nodes.n; i++) {
        const struct node *n = graph_node(site->g, site->k->nodes.data[i]);
        struct choice *c = choice_latest(m, source_label(source_get(m->ctx, n->src)), CHOOSE_FIELD);
        if (!c || c->collected == s)
            continue;
        for (c->collected = s; c; c = choice_before(m, c)) {
            struct chosen one = {.choice = c};
            if (!field_find(s->kind, c->field, &one.value.item))
                continue;
            c->asked = true;
            const char *wrong = field_value(s->kind, c->field, c->n[0], m->arena, &one.value);
            if (wrong)
                choice_refuse(m, c, wrong);
            else
                VEC_PUSH(site->arena, &all, one);
        }
    }
    split_collect(site, s, &all);
    if (all.n)
        qsort(all.data, all.n, sizeof *all.data, by_field);
    uint32_t n = 0;
    for (uint32_t i = 0; i < all.n; i++)
        if (i + 1 == all.n || all.data[i].value.field != all.data[i + 1].value.field ||
            all.data[i].value.item != all.data[i + 1].value.item)
            all.data[n++] = all.data[i];
    all.n = n;
    return all;
}

/* All of them together; if that record is impossible, one after another. */
static bool fields_chosen(const struct site *site, struct schedule *s)
{
    chosen_fields all = fields_collect(site, s);
    struct field_value *v = NEW_ARRAY(site->arena, struct field_value, all.n + 1);
    struct strbuf why = strbuf_of(site->m->arena);
    for (uint32_t i = 0; i < all.n; i++)
        v[i] = all.data[i].value;
    if (!all.n || schedule_set(site, v, all.n, s, &why, &(uint32_t){0}))
        return true;
    struct schedule made = *s;
    uint32_t n = 0; /* of v: those that are possible so far, and the one at hand */
    for (uint32_t i = 0; i < all.n && site->m->ctx->fail == FAIL_NONE; i++) {
        struct schedule next = *s;
        v[n] = all.data[i].value;
        if (!choice_set(site, all.data[i].choice, v, n + 1, &next))
            continue;
        made = next;
        n++;
    }
    *s = made;
    return site->m->ctx->fail == FAIL_NONE;
}

bool schedule_chosen(const struct site *site, struct schedule *s)
{
    return s->kind == SCHEDULE_NONE || !site->m->asked.choices.n ||
           (short_forms_chosen(site, s) && fields_chosen(site, s));
}

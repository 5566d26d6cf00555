/* Fields of a record that a user gives in place of the cost model's: --schedules here, --choose in chosen.c. Both set
 * them by schedule_set, which checks the record by fields.def.
 */
#include "passes/schedule/fields.h"

/* A record whose arrays are its own. */
static struct schedule record_copy(struct arena *a, const struct schedule *s)
{
    struct schedule copy = *s;
    copy.reduce = arena_copy(a, s->reduce, s->n_reduce * sizeof *s->reduce);
    copy.producer = arena_copy(a, s->producer, s->n_producer * sizeof *s->producer);
    return copy;
}

static bool is_estimate(const struct field_value *v)
{
    return schedule_fields[v->field].at == offsetof(struct schedule, ns) && !schedule_fields[v->field].via;
}

bool schedule_set(const struct site *site, const struct field_value *v, uint32_t n, struct schedule *s,
                  struct strbuf *why, uint32_t *at)
{
    struct schedule next = record_copy(site->m->arena, s);
    bool estimate = true;
    for (*at = 0; *at < n; ++*at) {
        const struct field *f = &schedule_fields[v[*at].field];
        if (v[*at].item >= field_count(f, &next)) {
            strbuf_printf(why, "there is no %s: the record has %u of it", field_name(f, v[*at].item, site->m->arena),
                          field_count(f, &next));
            return false;
        }
        if (site->m->asked.strict && f->bits == BITS && field_get(f, &next, v[*at].item) != v[*at].value) {
            strbuf_printf(why, "%s changes the bits of results, and --strict leaves it to the shape; here %lld",
                          field_name(f, v[*at].item, site->m->arena), (long long)field_get(f, &next, v[*at].item));
            return false;
        }
        field_set(f, &next, v[*at].item, v[*at].value);
        estimate &= !is_estimate(&v[*at]);
    }
    if (!schedule_verify(site, &next, why) || why->n)
        return false;
    if (estimate)
        next.ns = schedule_facts(site, &next).ns;
    *s = next;
    return true;
}

/* ---- --schedules ------------------------------------------------------------------------------------------------- */

static bool wrong(const struct site *site, uint32_t line, const char *why)
{
    return error_at(site->m->ctx, FAIL_USAGE, (src_id){0}, NULL, "%s:%u: %s", site->m->asked.overrides_path, line, why);
}

/* The names of some kinds. */
static const char *kinds_words(uint32_t kinds, struct arena *a)
{
    const char *words = "";
    for (uint32_t kind = 0; kinds >> kind; kind++)
        if (kinds >> kind & 1)
            words = arena_printf(a, "%s%s%s", words, *words ? ", " : "", schedule_kind_name((enum schedule_kind)kind));
    return words;
}

/* The record's own winograd.m, which the others follow; as it is if nothing is said of it. */
static uint32_t form_of(const struct schedule_override *o, uint32_t form, uint32_t *line)
{
    for (uint32_t k = 0; k < o->fields.n; k++)
        if (schedule_fields[o->fields.data[k].field].at == offsetof(struct schedule, winograd.m)) {
            form = (uint32_t)o->fields.data[k].value;
            *line = o->fields.data[k].line;
        }
    return form;
}

/* The record that the cost model would make of that kind, and of Winograd's by that form. */
static bool kind_apply(const struct site *site, const struct schedule_override *o, struct schedule *s)
{
    uint32_t line = o->line, own = s->kind == SCHEDULE_WINOGRAD ? s->winograd.m : 0,
             form = o->kind == SCHEDULE_WINOGRAD ? form_of(o, own, &line) : 0, kinds = schedule_kinds(site);
    struct arena *a = site->m->arena;
    if (o->kind == (int)s->kind && form == own)
        return true;
    if (o->kind == SCHEDULE_WINOGRAD && form != own && !winograd_form(form))
        return wrong(site, line, arena_printf(a, "winograd.m is 2, 4 or 6, not '%u'", form));
    if (!(kinds >> o->kind & 1))
        return wrong(site, line,
                     arena_printf(a, "the kernel's schedule may be of kind %s, not '%s'", kinds_words(kinds, a),
                                  schedule_kind_name((enum schedule_kind)o->kind)));
    if (site->m->asked.strict && (own || form))
        return wrong(site, line, "Winograd's form changes the bits of results, and --strict leaves it to the shape");
    *s = (struct schedule){.kind = (enum schedule_kind)o->kind, .winograd.m = form};
    return schedule_choose(site, s);
}

static const char *record_name(const struct schedule_override *o, struct arena *a)
{
    return arena_printf(a, "k%u on %s%s", o->kernel, o->cpu, o->version ? " version" : "");
}

bool schedule_override(const struct site *site, uint32_t kernel, bool version, const char *cpu, struct schedule *s)
{
    struct module *m = site->m;
    for (uint32_t i = 0; i < m->asked.overrides.n; i++) {
        const struct schedule_override *o = &m->asked.overrides.data[i];
        uint32_t at;
        if (o->kernel != kernel || o->version != version || strcmp(o->cpu, cpu) != 0)
            continue;
        if (!kind_apply(site, o, s))
            return false;
        struct strbuf why = strbuf_of(m->arena);
        if (schedule_set(site, o->fields.data, o->fields.n, s, &why, &at))
            continue;
        if (why.n && at < o->fields.n)
            return wrong(site, o->fields.data[at].line, why.data);
        return why.n && wrong(site, o->line, arena_printf(m->arena, "%s: %s", record_name(o, m->arena), why.data));
    }
    return true;
}

bool schedule_no_version(const struct site *site, uint32_t kernel, const char *cpu)
{
    struct module *m = site->m;
    for (uint32_t i = 0; i < m->asked.overrides.n; i++) {
        const struct schedule_override *o = &m->asked.overrides.data[i];
        if (o->kernel == kernel && o->version && strcmp(o->cpu, cpu) == 0)
            return wrong(
                site, o->line,
                arena_printf(m->arena,
                             "%s: the kernel has no version, as version.size of its own record is 0; set that, "
                             "or remove this record",
                             record_name(o, m->arena)));
    }
    return true;
}

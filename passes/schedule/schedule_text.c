/* Records as text, and back: what -print-after=schedule writes and --schedules=FILE reads.
 *
 *   schedule k12 "features.3/Conv" x86-64-v4: tiled
 *     tile.columns     6               # points along the tiled dim a
 *     ...
 *
 * The record of a version (schedule.version) follows that of its kernel, with " version" behind the CPU. The fields are
 * those of fields.def; those of a version print where there is one. A file may leave some out: they stay what the cost
 * model says. Behind # and in lines that begin with // are comments.
 */
#include "ir/base/scan.h"
#include "passes/schedule/fields.h"

#include <string.h>

enum { LINE_MOST = 512 };
#define VERSION " version"

static const char *const kind_names[] = {
    [SCHEDULE_NONE] = "none",           [SCHEDULE_MAP] = "map",
    [SCHEDULE_TILED] = "tiled",         [SCHEDULE_WINOGRAD] = "winograd",
    [SCHEDULE_ATTENTION] = "attention", [SCHEDULE_SCAN] = "scan",
    [SCHEDULE_SCATTER] = "scatter",     [SCHEDULE_HALO] = "halo",
};

const char *schedule_kind_name(enum schedule_kind kind)
{
    return kind_names[kind];
}

int schedule_kind_by_name(const char *name)
{
    for (size_t kind = 0; kind < COUNT_OF(kind_names); kind++)
        if (strcmp(kind_names[kind], name) == 0)
            return (int)kind;
    return -1;
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

static void field_print(const struct field *f, const struct schedule *s, uint32_t item, struct arena *a,
                        struct strbuf *out)
{
    const char *note = item ? NULL : f->note;
    strbuf_printf(out, "  %-17s %-8lld%s%s\n", field_name(f, item, a), (long long)field_get(f, s, item),
                  note ? " # " : "", note ? note : "");
}

/* The fields of each reduction behind a line that says which one it is. */
static void reductions_print(const struct module *m, const struct schedule *s, const node_id *nodes,
                             const struct field *f, uint32_t n, struct strbuf *out)
{
    for (uint32_t k = 0; k < s->n_reduce; k++) {
        const struct node *node = graph_node(m->g, nodes[k]);
        strbuf_printf(out, "  # reduce.%u: %s of ", k, op_name(node->op));
        strbuf_quoted(out, source_label(source_get(m->ctx, node->src)));
        strbuf_printf(out, "\n");
        for (uint32_t i = 0; i < n; i++)
            field_print(&f[i], s, k, m->arena, out);
    }
}

static bool is_of_version(const struct field *f)
{
    return !f->via && f->at >= offsetof(struct schedule, version) &&
           f->at < offsetof(struct schedule, version) + sizeof(struct version_schedule);
}

static void record_print(const struct module *m, const struct kernel *kernel, const struct schedule *s,
                         const struct schedule_facts *facts, struct strbuf *out)
{
    for (uint32_t i = 0; i < schedule_field_count; i++) {
        const struct field *f = &schedule_fields[i];
        uint32_t n = 1;
        if (!field_is_of(f, s->kind) || (is_of_version(f) && !s->version.size))
            continue;
        if (f->via == offsetof(struct schedule, reduce)) {
            while (i + n < schedule_field_count && f[n].via == f->via)
                n++;
            reductions_print(m, s, facts->reductions, f, n, out);
            i += n - 1;
            continue;
        }
        for (uint32_t k = 0; k < field_count(f, s); k++) {
            if (f->via == offsetof(struct schedule, producer))
                strbuf_printf(out, "  # producer.%u: %%%u\n", k, producer_value(kernel, k).i);
            field_print(f, s, k, m->arena, out);
        }
    }
    if (facts->flops)
        strbuf_printf(out, "  # %llu floating-point operations\n", (unsigned long long)facts->flops);
}

/* more: of a version. */
static void kernel_print(const struct module *m, const struct cpu_schedules *v, uint32_t i, bool more,
                         struct strbuf *out)
{
    const struct schedule *s = more ? &v->version[i] : &v->of[i];
    if (s->kind == SCHEDULE_NONE)
        return;
    strbuf_printf(out, "schedule k%u ", i);
    strbuf_quoted(out, kernel_label(m, &m->fused.kernels.data[i]));
    strbuf_printf(out, " %s%s: %s\n", v->cpu, more ? VERSION : "", kind_names[s->kind]);
    record_print(m, &m->fused.kernels.data[i], s, more ? &v->version_facts[i] : &v->facts[i], out);
    strbuf_printf(out, "\n");
}

void schedules_print(const struct module *m, struct strbuf *out)
{
    for (uint32_t v = 0; v < m->plan.schedules.n; v++)
        for (uint32_t i = 0; i < m->fused.kernels.n; i++) {
            kernel_print(m, &m->plan.schedules.data[v], i, false, out);
            kernel_print(m, &m->plan.schedules.data[v], i, true, out);
        }
}

/* ---- parsing ----------------------------------------------------------------------------------------------------- */

struct reader {
    struct module *m;
    const char *path;
    uint32_t line;
};

static bool wrong(const struct reader *r, const char *what, const char *word)
{
    return error_at(r->m->ctx, FAIL_USAGE, (src_id){0}, NULL, "%s:%u: %s '%s'", r->path, r->line, what, word);
}

static bool number_read(const char *text, int64_t *n)
{
    struct scan s = {.p = text, .blanks = ""};
    return !scan_i64(&s, n) && !*s.p;
}

/* Is the last word of the CPU's place that of a version? Then it is cut off. */
static bool version_read(char *cpu)
{
    size_t n = strlen(cpu), word = strlen(VERSION);
    bool is = n > word && strcmp(cpu + n - word, VERSION) == 0;
    if (is)
        cpu[n - word] = 0;
    return is;
}

/* schedule k12 "label" CPU: KIND */
static bool head_read(struct reader *r, char *line)
{
    struct schedule_told t = {.line = r->line};
    struct strbuf label;
    char *kernel = line + strlen("schedule "), *quote = strchr(kernel, '"'), *colon = strrchr(line, ':');
    int64_t number;
    if (!quote || !colon || *kernel != 'k' || quote == kernel || quote[-1] != ' ')
        return wrong(r, "schedule kN \"NODE\" CPU: KIND, not", line);
    quote[-1] = 0;
    *colon = 0;
    if (!number_read(kernel + 1, &number) || number < 0 || number >= r->m->fused.kernels.n)
        return wrong(r, "there is no kernel", kernel);
    t.kernel = (uint32_t)number;
    strbuf_init(&label, r->m->arena);
    strbuf_quoted(&label, kernel_label(r->m, &r->m->fused.kernels.data[number]));
    if (strncmp(quote, label.data, label.n) != 0 || quote[label.n] != ' ')
        return wrong(r, arena_printf(r->m->arena, "%s computes %s here, not", kernel, label.data), quote);
    t.version = version_read(quote + label.n + 1);
    t.cpu = arena_strdup(r->m->arena, quote + label.n + 1);
    t.kind = colon[1] == ' ' ? schedule_kind_by_name(colon + 2) : -1;
    if (t.kind < 0)
        return wrong(r, "no kind of schedule:", colon + 1);
    VEC_PUSH(r->m->arena, &r->m->asked.told, t);
    return true;
}

static bool field_read(struct reader *r, char *line)
{
    char *name = line + strspn(line, " "), *value = name + strcspn(name, " ");
    struct schedule_told *t = r->m->asked.told.n ? &r->m->asked.told.data[r->m->asked.told.n - 1] : NULL;
    struct schedule_field set = {.line = r->line};
    if (!t)
        return wrong(r, "a field before the first schedule:", name);
    if (*value)
        *value++ = 0;
    value += strspn(value, " ");
    const struct field *f = field_find((enum schedule_kind)t->kind, name, &set.item);
    if (!f)
        return wrong(r, arena_printf(r->m->arena, "a schedule of kind %s has no field", kind_names[t->kind]), name);
    if (!number_read(value, &set.value))
        return wrong(r, arena_printf(r->m->arena, "%s takes a number, not", name), value);
    const char *bounds = field_bounds(f, set.item, set.value, r->m->arena);
    if (bounds)
        return error_at(r->m->ctx, FAIL_USAGE, (src_id){0}, NULL, "%s:%u: %s", r->path, r->line, bounds);
    set.field = (uint32_t)(f - schedule_fields);
    VEC_PUSH(r->m->arena, &t->fields, set);
    return true;
}

bool schedules_parse(struct module *m, const char *path, const char *text)
{
    struct reader r = {.m = m, .path = path};
    m->asked.told_path = path;
    for (const char *at = text; *at; at += *at == '\n') {
        char line[LINE_MOST];
        size_t n = strcspn(at, "\n");
        r.line++;
        if (n >= sizeof line)
            return wrong(&r, "a line of more than 511 bytes:", arena_strndup(m->arena, at, 40));
        memcpy(line, at, n);
        at += n;
        bool head = strncmp(line, "schedule ", strlen("schedule ")) == 0 && n > strlen("schedule ");
        if (strncmp(line, "//", 2) == 0)
            n = 0;
        for (size_t i = 0; !head && i < n; i++) /* a label may hold the sign of a comment */
            n = line[i] == '#' ? i : n;
        while (n && (line[n - 1] == ' ' || line[n - 1] == '\r'))
            n--;
        line[n] = 0;
        if (n && !(head ? head_read(&r, line) : field_read(&r, line)))
            return false;
    }
    return true;
}

static bool fields_apply(const struct site *site, struct reader *r, const struct schedule_told *t, struct schedule *s)
{
    for (uint32_t k = 0; k < t->fields.n; k++) {
        const struct schedule_field *set = &t->fields.data[k];
        const struct field *f = &schedule_fields[set->field];
        r->line = set->line;
        if (set->item >= field_count(f, s))
            return wrong(r, arena_printf(site->m->arena, "there are %u of '%s', not", field_count(f, s), f->name),
                         arena_printf(site->m->arena, "%u", set->item));
        field_set(f, s, set->item, set->value);
    }
    return true;
}

/* Does the text say something of the field at that place of a record? */
static bool says(const struct schedule_told *t, size_t at)
{
    for (uint32_t k = 0; k < t->fields.n; k++)
        if (schedule_fields[t->fields.data[k].field].at == at && !schedule_fields[t->fields.data[k].field].via)
            return true;
    return false;
}

/* The names of some kinds. */
static const char *kinds_words(uint32_t kinds, struct arena *a)
{
    const char *words = "";
    for (uint32_t kind = 0; kind < COUNT_OF(kind_names); kind++)
        if (kinds >> kind & 1)
            words = arena_printf(a, "%s%s%s", words, *words ? ", " : "", kind_names[kind]);
    return words;
}

/* The record's own winograd.m, which the others follow; as it is where nothing is said of it. */
static uint32_t told_form(struct reader *r, const struct schedule_told *t, uint32_t form)
{
    for (uint32_t k = 0; k < t->fields.n; k++)
        if (schedule_fields[t->fields.data[k].field].at == offsetof(struct schedule, winograd.m)) {
            form = (uint32_t)t->fields.data[k].value;
            r->line = t->fields.data[k].line;
        }
    return form;
}

/* The record that the cost model would make of that kind, and of Winograd's by that form. */
static bool kind_apply(const struct site *site, struct reader *r, const struct schedule_told *t, struct schedule *s)
{
    uint32_t own = s->kind == SCHEDULE_WINOGRAD ? s->winograd.m : 0,
             form = t->kind == SCHEDULE_WINOGRAD ? told_form(r, t, own) : 0;
    if (t->kind == (int)s->kind && form == own)
        return true;
    if (t->kind == SCHEDULE_WINOGRAD && form != own && !winograd_form(form))
        return wrong(r, "winograd.m is 2, 4 or 6, not", arena_printf(site->m->arena, "%u", form));
    uint32_t kinds = schedule_kinds(site);
    if (!(kinds >> t->kind & 1))
        return wrong(r,
                     arena_printf(site->m->arena, "the kernel's schedule may be of kind %s, not",
                                  kinds_words(kinds, site->m->arena)),
                     kind_names[t->kind]);
    *s = (struct schedule){.kind = (enum schedule_kind)t->kind, .winograd.m = form};
    return schedule_choose(site, s);
}

bool schedule_told(const struct site *site, uint32_t kernel, bool version, const char *cpu, struct schedule *s)
{
    struct module *m = site->m;
    for (uint32_t i = 0; i < m->asked.told.n; i++) {
        const struct schedule_told *t = &m->asked.told.data[i];
        struct reader r = {m, m->asked.told_path, t->line};
        struct strbuf why;
        if (t->kernel != kernel || t->version != version || strcmp(t->cpu, cpu) != 0)
            continue;
        if (!kind_apply(site, &r, t, s))
            return false;
        if (!fields_apply(site, &r, t, s))
            return false;
        strbuf_init(&why, m->arena);
        if (!schedule_verify(site, s, &why) && !why.n)
            return false;
        if (why.n)
            return error_at(m->ctx, FAIL_USAGE, (src_id){0}, NULL, "%s:%u: k%u on %s%s: %s", m->asked.told_path,
                            t->line, kernel, cpu, version ? VERSION : "", why.data);
        if (!says(t, offsetof(struct schedule, ns)))
            s->ns = schedule_facts(site, s).ns;
    }
    return true;
}

bool schedule_untold(const struct site *site, uint32_t kernel, const char *cpu)
{
    struct module *m = site->m;
    for (uint32_t i = 0; i < m->asked.told.n; i++) {
        const struct schedule_told *t = &m->asked.told.data[i];
        if (t->kernel == kernel && t->version && strcmp(t->cpu, cpu) == 0)
            return error_at(m->ctx, FAIL_USAGE, (src_id){0}, NULL,
                            "%s:%u: k%u on %s%s: version.size is 0: the kernel has no version, which this were of",
                            m->asked.told_path, t->line, kernel, cpu, VERSION);
    }
    return true;
}

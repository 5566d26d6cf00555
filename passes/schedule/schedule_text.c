/* Records as text, and back: what -print-after=schedule writes and --schedules=FILE reads.
 *
 *   schedule k12 "features.3/Conv" x86-64-v4: tiled
 *     tile.columns     6               # points along the tiled dim a
 *     ...
 *
 * The record of a version (schedule.version) follows that of its kernel, with " version" after the CPU. The fields are
 * those of fields.def; those of a version print where there is one. A file may leave some out: they stay what the cost
 * model says (override.c). After # and in lines that begin with // are comments.
 */
#include "ir/base/scan.h"
#include "passes/schedule/fields.h"

enum { LINE_MOST = 512 };
#define VERSION " version"

/* ---- printing ---------------------------------------------------------------------------------------------------- */

static void field_print(const struct field *f, const struct schedule *s, uint32_t item, struct arena *a,
                        struct strbuf *out)
{
    const char *note = item ? NULL : f->note;
    strbuf_printf(out, "  %-17s %-8lld%s%s\n", field_name(f, item, a), (long long)field_get(f, s, item),
                  note ? " # " : "", note ? note : "");
}

/* The fields of each reduction, after a line that says which one it is. */
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
        strbuf_printf(out, "  # %llu operations of %s\n", (unsigned long long)facts->flops,
                      facts->arithmetic ? products_names[facts->arithmetic] : "other types");
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
    strbuf_printf(out, " %s%s: %s\n", v->cpu, more ? VERSION : "", schedule_kind_name(s->kind));
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

/* The number after "schedule k". */
static bool kernel_read(const char *text, uint32_t kernels, uint32_t *kernel)
{
    struct scan s = {.p = text, .blanks = ""};
    return !scan_u32(&s, kernels - 1, kernel) && !*s.p && kernels;
}

/* Does the CPU's name end in the word of a version? Then that is cut off. */
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
    struct schedule_override o = {.line = r->line};
    char *kernel = line + strlen("schedule "), *quote = strchr(kernel, '"'), *colon = strrchr(line, ':');
    if (!quote || !colon || *kernel != 'k' || quote == kernel || quote[-1] != ' ')
        return wrong(r, "a record begins with schedule kN \"NODE\" CPU: KIND, not with", line);
    quote[-1] = 0;
    *colon = 0;
    if (!kernel_read(kernel + 1, r->m->fused.kernels.n, &o.kernel))
        return wrong(r, "the network has no kernel", kernel);
    struct strbuf label = strbuf_of(r->m->arena);
    strbuf_quoted(&label, kernel_label(r->m, &r->m->fused.kernels.data[o.kernel]));
    if (strncmp(quote, label.data, label.n) != 0 || quote[label.n] != ' ')
        return wrong(r, arena_printf(r->m->arena, "%s computes %s in this compilation, not", kernel, label.data),
                     quote);
    o.version = version_read(quote + label.n + 1);
    o.cpu = arena_strdup(r->m->arena, quote + label.n + 1);
    if (!target_find(o.cpu))
        return wrong(r, "mcc has no CPU (mcc -mcpu=help prints all)", o.cpu);
    o.kind = colon[1] == ' ' ? schedule_kind_by_name(colon + 2) : -1;
    if (o.kind < 0)
        return wrong(r, "schedules have no kind", colon + 1 + strspn(colon + 1, " "));
    VEC_PUSH(r->m->arena, &r->m->asked.overrides, o);
    return true;
}

static bool field_line(struct reader *r, char *line)
{
    char *name = line + strspn(line, " "), *value = name + strcspn(name, " ");
    uint32_t n = r->m->asked.overrides.n;
    struct schedule_override *o = n ? &r->m->asked.overrides.data[n - 1] : NULL;
    struct field_value set = {.line = r->line};
    if (!o)
        return wrong(r, "the first record comes after the field", name);
    if (*value)
        *value++ = 0;
    value += strspn(value, " ");
    const char *why = field_read((enum schedule_kind)o->kind, name, value, r->m->arena, &set);
    if (why)
        return error_at(r->m->ctx, FAIL_USAGE, (src_id){0}, NULL, "%s:%u: %s", r->path, r->line, why);
    VEC_PUSH(r->m->arena, &o->fields, set);
    return true;
}

bool schedules_parse(struct module *m, const char *path, const char *text)
{
    struct reader r = {.m = m, .path = path};
    m->asked.overrides_path = path;
    for (const char *at = text; *at; at += *at == '\n') {
        char line[LINE_MOST];
        size_t n = strcspn(at, "\n");
        r.line++;
        if (n >= sizeof line)
            return wrong(&r, "the line is longer than 511 bytes:", arena_strndup(m->arena, at, 40));
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
        if (n && !(head ? head_read(&r, line) : field_line(&r, line)))
            return false;
    }
    return true;
}

/* See mutate.h. */
#include "tests/fuzz/mutate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "passes/schedule/fields.h"

enum { CHANGES_MOST = 4, NAME_MOST = 64 };

bool schedule_field_limits(const char *kind, const char *name, int64_t *least, int64_t *most)
{
    uint32_t item;
    int number = schedule_kind_by_name(kind);
    const struct field *f = number < 0 ? NULL : field_find((enum schedule_kind)number, name, &item);
    if (f) {
        *least = f->least;
        *most = f->most;
    }
    return f != NULL;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static const char *quoted(struct arena *a, const char *line)
{
    const char *from = strchr(line, '"'), *to = from ? strchr(from + 1, '"') : NULL;
    return to ? arena_strndup(a, from + 1, (size_t)(to - from - 1)) : "";
}

struct records records_read(struct arena *a, const char *text)
{
    uint32_t lines = 1;
    for (const char *p = text; *p; p++)
        lines += *p == '\n';
    struct records all = {.record = NEW_ARRAY(a, struct record, lines)};
    for (const char *p = text; *p; p += strcspn(p, "\n"), p += *p == '\n') {
        const char *line = arena_strndup(a, p, strcspn(p, "\n")), *colon = strrchr(line, ':');
        char name[NAME_MOST];
        long long value;
        if (!strncmp(line, "schedule ", 9) && colon) {
            all.record[all.n++] = (struct record){.head = arena_strndup(a, line, (size_t)(colon - line)),
                                                  .label = quoted(a, line),
                                                  .kind = colon + 2,
                                                  .field = NEW_ARRAY(a, struct record_field, lines)};
        } else if (all.n && sscanf(line, " %63[^# ] %lld", name, &value) == 2) {
            struct record *r = &all.record[all.n - 1];
            r->field[r->n++] = (struct record_field){arena_strdup(a, name), value};
        }
    }
    return all;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static long long number(struct draw *d, const char *kind, const char *name, long long old)
{
    int64_t least, most;
    static const long long some[] = {
        -2,  -1,  0,    1,    2,    3,     4,     5,       6,          7,          8,          9,          10,
        12,  14,  15,   16,   17,   24,    28,    31,      32,         33,         48,         63,         64,
        65,  100, 127,  128,  129,  255,   256,   257,     512,        1023,       1024,       1025,       4096,
        511, 513, 4095, 4097, 8192, 65535, 65536, 1 << 20, 1073741823, 1073741824, 1073741825, 2147483647, 2147483648};
    static const long long large[] = {
        4294967295,    4294967296,         4294967297,         1LL << 40,           1LL << 61,
        1LL << 62,     0x7fffffffffffffff, 0x7ffffffffffffffe, -0x7fffffffffffffff, (-0x7fffffffffffffff - 1),
        -2147483648LL, -4294967296LL};
    if (name && draw_chance(d, 25) && schedule_field_limits(kind, name, &least, &most))
        return (draw_chance(d, 30) ? least : most) + (most < INT64_MAX ? draw_int(d, -1, 1) : 0);
    const unsigned long long wraps = (unsigned long long)old;
    switch (draw_int(d, 0, 9)) {
    case 0: return (long long)(wraps + 1);
    case 1: return (long long)(wraps - 1);
    case 2: return (long long)(wraps * 2);
    case 3: return old / 2;
    case 4: return draw_int(d, 0, 40);
    case 5: return draw_chance(d, 10) ? DRAW_PICK(d, large) : draw_int(d, 0, 2);
    case 6: return 1LL << draw_int(d, 0, 9);
    default: return DRAW_PICK(d, some);
    }
}

static const struct record_field *same_field(struct draw *d, const struct records *all, const char *name)
{
    for (int tries = 0; tries < 8; tries++) {
        const struct record *r = &all->record[draw_int(d, 0, all->n - 1)];
        for (uint32_t i = 0; i < r->n; i++)
            if (!strcmp(r->field[i].name, name))
                return &r->field[i];
    }
    return NULL;
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

/* Numbers of the first of a field's items, and how many there are. */
static uint32_t items_of(const struct record *r, const char *name, uint32_t *n)
{
    uint32_t first = 0;
    while (first < r->n && strncmp(r->field[first].name, name, strlen(name)))
        first++;
    for (*n = 0; first + *n < r->n && !strncmp(r->field[first + *n].name, name, strlen(name));)
        ++*n;
    return first;
}

static void swap(struct record_field *a, struct record_field *b)
{
    long long n = a->value;
    a->value = b->value;
    b->value = n;
}

/* The loops in another order, mostly with their steps. */
static void shuffle_loops(struct draw *d, struct record *r)
{
    uint32_t n, loop = items_of(r, "loop.", &n), step = items_of(r, "step.", &n);
    bool both = draw_chance(d, 80);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = i + 1; j < n; j++)
            if (draw_chance(d, 50)) {
                swap(&r->field[loop + i], &r->field[loop + j]);
                if (both)
                    swap(&r->field[step + i], &r->field[step + j]);
            }
}

static struct record copy_of(struct draw *d, const struct record *from)
{
    struct record r = *from;
    r.field = arena_copy(&d->ctx->session, from->field, (r.n + 1) * sizeof *r.field);
    return r;
}

static void put(struct strbuf *out, const struct record *r, const bool *left_out)
{
    strbuf_printf(out, "%s: %s\n", r->head, r->kind);
    for (uint32_t i = 0; i < r->n; i++)
        if (!left_out[i])
            strbuf_printf(out, "  %s %lld\n", r->field[i].name, r->field[i].value);
}

static void change(struct draw *d, const struct records *all, struct record *r, bool *left_out)
{
    int64_t n = draw_chance(d, 55) ? 1 : draw_int(d, 2, CHANGES_MOST);
    for (; n > 0 && r->n; n--) {
        uint32_t i = (uint32_t)draw_int(d, 0, r->n - 1);
        const struct record_field *other = draw_chance(d, 15) ? same_field(d, all, r->field[i].name) : NULL;
        r->field[i].value = other ? other->value : number(d, r->kind, r->field[i].name, r->field[i].value);
        left_out[i] = false;
    }
    if (draw_chance(d, 15)) {
        shuffle_loops(d, r);
        for (uint32_t i = 0; i < r->n; i++)
            left_out[i] &= strncmp(r->field[i].name, "loop.", 5) != 0 && strncmp(r->field[i].name, "step.", 5) != 0;
    }
}

static const char *nonsense(struct draw *d, const struct record *r)
{
    static const char *const lines[] = {"  lanes",
                                        "  lanes 1e9",
                                        "  lanes 99999999999999999999",
                                        "  no.such.field 1",
                                        "  reduce.4294967296.lanes 4",
                                        "  loop.65535 0",
                                        "  peel.3 1",
                                        "  producer.9.lanes 8",
                                        "  estimate -1",
                                        "  estimate 9223372036854775807",
                                        "schedule ",
                                        "schedule k0 \"\" x: map",
                                        "  parallel 4 5",
                                        "  tile.rows 0x10",
                                        "  reduce..lanes 1",
                                        "  # nothing",
                                        "lanes.dim 8",
                                        "  winograd.m 4294967298",
                                        "  loops -0",
                                        "  split \x01"};
    return arena_printf(&d->ctx->session, "%s: %s\n%s\n", r->head, r->kind, DRAW_PICK(d, lines));
}

const char *records_mutate(struct draw *d, const struct records *all)
{
    struct arena *a = &d->ctx->session;
    const struct record *from = &all->record[draw_int(d, 0, all->n - 1)];
    struct record r = copy_of(d, from);
    bool *left_out = NEW_ARRAY(a, bool, r.n + 1);
    struct strbuf out = strbuf_of(a);
    if (draw_chance(d, 3))
        return nonsense(d, from);
    if (draw_chance(d, 12)) { /* another kind, whose fields are those of the cost model */
        r.kind = schedule_kind_name((enum schedule_kind)(
            draw_chance(d, 70) ? draw_int(d, SCHEDULE_MAP, SCHEDULE_WINOGRAD) : draw_int(d, 0, SCHEDULE_KINDS - 1)));
        r.n = 0;
        if (!strcmp(r.kind, "winograd"))
            r.field[r.n++] = (struct record_field){"winograd.m", draw_chance(d, 80) ? 2 * draw_int(d, 1, 3)
                                                                                    : number(d, NULL, NULL, 4)};
    } else if (draw_chance(d, 8)) { /* the decisions for another kernel of the kind */
        const struct record *other = &all->record[draw_int(d, 0, all->n - 1)];
        r = copy_of(d, !strcmp(other->kind, r.kind) ? other : from);
        r.head = from->head;
        left_out = NEW_ARRAY(a, bool, r.n + 1);
    }
    memset(left_out, draw_chance(d, 50), r.n);
    change(d, all, &r, left_out);
    put(&out, &r, left_out);
    return out.data;
}

const char *choice_mutate(struct draw *d, const struct records *all)
{
    static const char *const words[] = {"winograd=off", "winograd=2",     "winograd=4", "winograd=6",
                                        "layout=plain", "layout=blocked", "store=yes"};
    struct arena *a = &d->ctx->session;
    const char *label = all->record[draw_int(d, 0, all->n - 1)].label;
    const struct record *r = &all->record[draw_int(d, 0, all->n - 1)];
    const struct record_field *f = &r->field[draw_int(d, 0, r->n - 1)];
    label = draw_chance(d, 90) ? r->label : label;
    if (draw_chance(d, 60))
        return arena_printf(a, "%s:%s=%lld", label, f->name, number(d, r->kind, f->name, f->value));
    switch (draw_int(d, 0, 5)) {
    case 0: return arena_printf(a, "%s:chunk=%lld", label, number(d, NULL, NULL, 4));
    case 1: return arena_printf(a, "%s:split=%lld", label, number(d, NULL, NULL, 2));
    case 2: return arena_printf(a, "%s:%s", label, DRAW_PICK(d, words));
    case 3: return arena_printf(a, "%s:tile=1x%lldx%lld", label, number(d, NULL, NULL, 4), number(d, NULL, NULL, 2));
    default:
        return arena_printf(a, "%s:tile=%lldx%lldx%lld", label, (long long)draw_int(d, 1, 4),
                            (long long)draw_int(d, 1, 16), (long long)draw_int(d, 1, draw_chance(d, 80) ? 4 : 12));
    }
}

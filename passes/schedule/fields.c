/* Fields of records by name: their places and C types, from fields.def and the declaration of struct schedule alone. */
#include "ir/base/scan.h"
#include "passes/schedule/fields.h"

enum { ITEMS_MOST = 1 << 16 };

/* Not evaluated. */
#define RECORD ((struct schedule *)0)
#define TYPE_OF(member) \
    _Generic((member), bool: FIELD_BOOL, int32_t: FIELD_I32, uint32_t: FIELD_U32, int64_t: FIELD_I64)
#define FIELD(kinds, member, name, least, most, rule, bits, note)                                                \
    {kinds, name, TYPE_OF(RECORD->member), offsetof(struct schedule, member), 0, 0, 0, least, most, rule_##rule, \
     bits,  note},
#define ITEMS(kinds, count, array, name, least, most, rule, bits, note) \
    {kinds,                                                             \
     name,                                                              \
     TYPE_OF(RECORD->array[0]),                                         \
     offsetof(struct schedule, array),                                  \
     offsetof(struct schedule, count),                                  \
     sizeof RECORD->array[0],                                           \
     0,                                                                 \
     least,                                                             \
     most,                                                              \
     rule_##rule,                                                       \
     bits,                                                              \
     note},
#define POINTED(count, array, member, name, least, most, rule, bits, note) \
    {~(1u << SCHEDULE_NONE),                                               \
     name,                                                                 \
     TYPE_OF(RECORD->array->member),                                       \
     offsetof(struct array##_schedule, member),                            \
     offsetof(struct schedule, count),                                     \
     sizeof *RECORD->array,                                                \
     offsetof(struct schedule, array),                                     \
     least,                                                                \
     most,                                                                 \
     rule_##rule,                                                          \
     bits,                                                                 \
     note},
const struct field schedule_fields[] = {
#include "passes/schedule/fields.def"
};
const uint32_t schedule_field_count = COUNT_OF(schedule_fields);

uint32_t field_count(const struct field *f, const struct schedule *s)
{
    return f->each ? *(const uint32_t *)((const char *)s + f->count) : 1;
}

static void *field_at(const struct field *f, const struct schedule *s, uint32_t item)
{
    char *base = f->via ? *(char *const *)((const char *)s + f->via) : (char *)(uintptr_t)s;
    return base + f->at + item * f->each;
}

int64_t field_get(const struct field *f, const struct schedule *s, uint32_t item)
{
    const void *at = field_at(f, s, item);
    switch (f->type) {
    case FIELD_BOOL: return *(const bool *)at;
    case FIELD_I32: return *(const int32_t *)at;
    case FIELD_U32: return *(const uint32_t *)at;
    default: return *(const int64_t *)at;
    }
}

void field_set(const struct field *f, struct schedule *s, uint32_t item, int64_t value)
{
    void *at = field_at(f, s, item);
    switch (f->type) {
    case FIELD_BOOL: *(bool *)at = value; break;
    case FIELD_I32: *(int32_t *)at = (int32_t)value; break;
    case FIELD_U32: *(uint32_t *)at = (uint32_t)value; break;
    default: *(int64_t *)at = value; break;
    }
}

const char *field_name(const struct field *f, uint32_t item, struct arena *a)
{
    const char *number = strstr(f->name, "%u");
    return number ? arena_printf(a, "%.*s%u%s", (int)(number - f->name), f->name, item, number + 2) : f->name;
}

/* Is that the field's name, of one of several? *item: its number, else 0. */
static bool is_named(const struct field *f, const char *name, uint32_t *item)
{
    const char *number = strstr(f->name, "%u");
    size_t before = number ? (size_t)(number - f->name) : 0;
    char *end;
    *item = 0;
    if (!number)
        return strcmp(f->name, name) == 0;
    if (strncmp(f->name, name, before) != 0 || name[before] < '0' || name[before] > '9')
        return false;
    unsigned long n = strtoul(name + before, &end, 10);
    *item = (uint32_t)n;
    return n < ITEMS_MOST && strcmp(end, number + 2) == 0;
}

const struct field *field_find(enum schedule_kind kind, const char *name, uint32_t *item)
{
    for (uint32_t i = 0; i < schedule_field_count; i++)
        if (field_is_of(&schedule_fields[i], kind) && is_named(&schedule_fields[i], name, item))
            return &schedule_fields[i];
    return NULL;
}

bool fields_agree(const struct schedule *a, const struct schedule *b, const char **name)
{
    *name = "the kind";
    if ((a->kind == SCHEDULE_WINOGRAD) != (b->kind == SCHEDULE_WINOGRAD))
        return false;
    for (uint32_t i = 0; i < schedule_field_count; i++) {
        const struct field *f = &schedule_fields[i];
        if (f->bits == SAME || !field_is_of(f, a->kind) || !field_is_of(f, b->kind))
            continue;
        *name = f->name;
        if (field_count(f, a) != field_count(f, b))
            return false;
        for (uint32_t item = 0; item < field_count(f, a); item++)
            if (field_get(f, a, item) != field_get(f, b, item))
                return false;
    }
    return true;
}

const char *field_bounds(const struct field *f, uint32_t item, int64_t value, struct arena *a)
{
    if (value >= f->least && value <= f->most)
        return NULL;
    const char *name = field_name(f, item, a);
    if (f->most == INT64_MAX)
        return arena_printf(a, "%s is %lld: it is at least %lld", name, (long long)value, (long long)f->least);
    return arena_printf(a, "%s is %lld: %lld to %lld are possible", name, (long long)value, (long long)f->least,
                        (long long)f->most);
}

const char *field_value(enum schedule_kind kind, const char *name, int64_t value, struct arena *a,
                        struct field_value *out)
{
    const struct field *f = field_find(kind, name, &out->item);
    if (!f)
        return arena_printf(a, "a schedule of kind %s has no field '%s'", schedule_kind_name(kind), name);
    out->field = (uint32_t)(f - schedule_fields);
    out->value = value;
    return field_bounds(f, out->item, value, a);
}

const char *field_read(enum schedule_kind kind, const char *name, const char *value, struct arena *a,
                       struct field_value *out)
{
    struct scan s = {.p = value, .blanks = ""};
    int64_t n = 0;
    if ((scan_i64(&s, &n) || *s.p) && field_find(kind, name, &out->item))
        return arena_printf(a, "%s takes a number, not '%s'", name, value);
    return field_value(kind, name, n, a, out);
}

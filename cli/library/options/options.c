/* The option table at work: lookup, suggestions, parsing of values. */
#include "cli/library/options/options.h"

#include "cli/library/options/nearest.h"

#define FIELD(f) offsetof(struct options, f), sizeof(((struct options *)0)->f)
const struct option option_table[] = {
#define FLAG(f, n, s, w, h) {OPTION_FLAG, n, s, w, FIELD(f), 0, 0, 0, NULL, h, __LINE__},
#define TEXT(f, n, s, w, m, h) {OPTION_TEXT, n, s, w, FIELD(f), 0, 0, 0, m, h, __LINE__},
#define W(id, word) " " word
#define ONE_OF(f, n, w, words, h) {OPTION_ONE_OF, n, 0, w, FIELD(f), 0, 0, 0, (words) + 1, h, __LINE__},
#define LIST(f, n, s, w, m, h) {OPTION_LIST, n, s, w, FIELD(f), 0, 0, 0, m, h, __LINE__},
#define INT(f, n, s, w, d, lo, hi, m, h) {OPTION_INT, n, s, w, FIELD(f), lo, hi, (double)(d), m, h, __LINE__},
#define SIZE(f, n, w, d, m, h) {OPTION_SIZE, n, 0, w, FIELD(f), 0, INT64_MAX, (double)(d), m, h, __LINE__},
#define REAL(f, n, w, d, m, h) {OPTION_REAL, n, 0, w, FIELD(f), 0, 0, d, m, h, __LINE__},
#include "cli/library/options/options.def"
};
const uint32_t option_count = COUNT_OF(option_table);

const char *option_group(const struct option *def)
{
    static const struct {
        uint32_t line;           /* of options.def: a group's options stand below its title */
        const char *title;
    } groups[] = {
#define GROUP(title) {__LINE__, title},
#include "cli/library/options/options.def"
    };
    size_t i = COUNT_OF(groups) - 1;
    while (i && groups[i].line > def->line)
        i--;
    return groups[i].title;
}

static void *option_field(struct options *o, const struct option *def)
{
    return (char *)o + def->offset;
}

static void store_int(struct options *o, const struct option *def, int64_t v)
{
    if (def->size == sizeof(int32_t))
        *(int32_t *)option_field(o, def) = (int32_t)v;
    else
        *(int64_t *)option_field(o, def) = v;
}

void options_reset(struct options *o, char keep)
{
    for (uint32_t i = 0; i < option_count; i++) {
        const struct option *def = &option_table[i];
        if (strchr(def->where, keep))
            continue;
        memset(option_field(o, def), 0, def->size);
        if (def->kind == OPTION_INT || def->kind == OPTION_SIZE)
            store_int(o, def, (int64_t)def->preset);
        else if (def->kind == OPTION_REAL)
            *(double *)option_field(o, def) = def->preset;
    }
}

void options_init(struct options *o)
{
    memset(o, 0, sizeof *o);
    o->limits = limits_default;
    options_reset(o, '-'); /* which no row has */
}

bool option_is_preset(const struct options *o, const struct option *def)
{
    const char *now = (const char *)o + def->offset;
    struct options preset;
    if (def->kind == OPTION_LIST)
        return ((const struct text_list *)(const void *)now)->items.n == 0;
    options_init(&preset);
    return memcmp(now, (const char *)&preset + def->offset, def->size) == 0;
}

const struct option *option_find(const char *name, char where)
{
    for (uint32_t i = 0; i < option_count; i++)
        if (strcmp(option_table[i].name, name) == 0 && strchr(option_table[i].where, where))
            return &option_table[i];
    return NULL;
}

const char *option_suggest(const char *name, char where)
{
    struct nearest near = nearest_to(name);
    for (uint32_t i = 0; i < option_count; i++)
        if (strchr(option_table[i].where, where) && strlen(option_table[i].name) > 1)
            nearest_try(&near, option_table[i].name);
    return near.found;
}

const char *option_gone(const char *name)
{
    static const struct gone {
        const char *name, *advice;
    } gone[] = {
        {"strassen", "it gained too little; leave it out"},
        {"winograd-weights", "kernels derive the weights, which is as fast; leave it out"},
    };
    const struct gone *row = ROW_NAMED(gone, COUNT_OF(gone), name);
    return row ? row->advice : NULL;
}

/* ---- values ---------------------------------------------------------------------------------------- */

/* Decimal digits only, optionally a binary suffix: no sign, no base prefix, no exponent. */
static bool parse_count(const char *s, bool suffix, int64_t *out)
{
    int64_t v = 0;
    const char *p = s;
    if (s[0] == '0' && s[1] >= '0' && s[1] <= '9')
        return false;
    for (; *p >= '0' && *p <= '9'; p++)
        if (!mul_i64(v, 10, &v) || !add_i64(v, *p - '0', &v))
            return false;
    if (p == s)
        return false;
    if (suffix && *p) {
        static const char letters[] = "KMG";
        const char *which = strchr(letters, *p);
        if (!which || !mul_i64(v, (int64_t)1 << 10 * (which - letters + 1), &v))
            return false;
        p++;
    }
    *out = v;
    return *p == 0;
}

/* e-2 after a number's digits, which becomes a hundredth of itself. */
static bool apply_exponent(const char *s, double *number)
{
    bool small = s[1] == '-';
    const char *digits = s + 1 + (small || s[1] == '+');
    size_t n = strspn(digits, "0123456789");
    if (n == 0 || n > 2 || digits[n])
        return false;
    double scale = 1;
    for (int power = n == 2 ? (digits[0] - '0') * 10 + (digits[1] - '0') : digits[0] - '0'; power > 0; power--)
        scale *= 10;
    *number = small ? *number / scale : *number * scale;
    return true;
}

/* Digits with an optional fraction and exponent, in any locale; no sign. */
bool real_parse(const char *s, double *out)
{
    size_t whole = strspn(s, "0123456789");
    size_t rest = s[whole] == '.' ? 1 + strspn(s + whole + 1, "0123456789") : 0;
    const char *end = s + whole + rest;
    if (whole == 0 || whole + rest > 30 || rest == 1)
        return false;
    *out = 0;
    for (size_t i = 0; i < whole; i++)
        *out = *out * 10 + (s[i] - '0');
    double unit = 1;
    for (size_t i = whole + 1; i < whole + rest; i++)
        *out += (s[i] - '0') * (unit /= 10);
    return *end == 0 || ((*end == 'e' || *end == 'E') && apply_exponent(end, out));
}

struct span option_word(const struct option *def, unsigned i)
{
    const char *p = def->meta;
    for (; i && *p; i--)
        p += strcspn(p, " "), p += strspn(p, " ");
    return (struct span){p, strcspn(p, " ")};
}

const char *option_text(struct arena *arena, const struct options *o, const struct option *def)
{
    const void *field = (const char *)o + def->offset;
    struct span word;
    switch (def->kind) {
    case OPTION_FLAG: return *(const bool *)field ? "true" : "false";
    case OPTION_ONE_OF:
        word = option_word(def, *(const unsigned *)field);
        return arena_strndup(arena, word.data, word.size);
    case OPTION_INT:
    case OPTION_SIZE:
        return arena_printf(arena, "%lld",
                            def->size == sizeof(int32_t) ? (long long)*(const int32_t *)field
                                                         : (long long)*(const int64_t *)field);
    case OPTION_REAL: return arena_printf(arena, "%.17g", *(const double *)field);
    case OPTION_TEXT: return *(const char *const *)field;
    case OPTION_LIST: break;
    }
    return NULL;
}

static bool set_word(struct context *ctx, unsigned *field, const struct option *def, const char *value, enum fail fail)
{
    struct span word;
    for (unsigned i = 0; (word = option_word(def, i)).size; i++)
        if (word.size == strlen(value) && memcmp(word.data, value, word.size) == 0) {
            *field = i;
            return true;
        }
    return error_at(ctx, fail, (src_id){0}, NULL, "'%s' is one of: %s; not '%s'", def->name, def->meta, value);
}

static bool set_number(struct context *ctx, struct options *o, const struct option *def, const char *value,
                       enum fail fail)
{
    int64_t v;
    if (!parse_count(value, def->kind == OPTION_SIZE, &v))
        return error_at(ctx, fail, (src_id){0}, NULL, "'%s' takes a whole number%s, not '%s'", def->name,
                        def->kind == OPTION_SIZE ? " of bytes (K, M, G: times 1024)" : "", value);
    if (v < def->least || v > def->most)
        return error_at(ctx, fail, (src_id){0}, NULL, "'%s' takes %lld to %lld, not '%s'", def->name,
                        (long long)def->least, (long long)def->most, value);
    if (def->size == sizeof(int32_t) && v > INT32_MAX)
        return error_at(ctx, fail, (src_id){0}, NULL, "'%s' is at most %d, not '%s'", def->name, INT32_MAX, value);
    store_int(o, def, v);
    return true;
}

bool option_set(struct context *ctx, struct options *o, const struct option *def, const char *value, enum fail fail)
{
    void *field = option_field(o, def);
    for (uint32_t i = 0; i < o->places.n && def->kind != OPTION_LIST; i++)
        if (o->places.data[i].def->offset == def->offset)      /* by another name, too */
            o->places.data[i].path = NULL;
    if (def->kind != OPTION_FLAG && !value)
        return error_at(ctx, fail, (src_id){0}, NULL, "'%s' needs a value", def->name);
    switch (def->kind) {
    case OPTION_FLAG:
        if (value && strcmp(value, "true") != 0 && strcmp(value, "false") != 0)
            return error_at(ctx, fail, (src_id){0}, NULL, "'%s' is true or false, not '%s'", def->name, value);
        *(bool *)field = !value || strcmp(value, "true") == 0;
        return true;
    case OPTION_ONE_OF: return set_word(ctx, field, def, value, fail);
    case OPTION_TEXT: *(const char **)field = arena_strdup(&ctx->session, value); return true;
    case OPTION_LIST: {
        struct text_list *list = field;
        VEC_PUSH(&ctx->session, &list->items, arena_strdup(&ctx->session, value));
        return true;
    }
    case OPTION_INT:
    case OPTION_SIZE: return set_number(ctx, o, def, value, fail);
    case OPTION_REAL:
        return real_parse(value, field) ||
               error_at(ctx, fail, (src_id){0}, NULL, "'%s' takes a number such as 1.5, not '%s'", def->name, value);
    }
    return false;
}

bool option_blame(struct context *ctx, const struct options *o, const char *name, const char *text)
{
    const struct option *named = option_find(name, 'C');
    for (uint32_t i = 0; named && i < o->places.n; i++) {
        const struct config_place *place = &o->places.data[i];
        if (place->def->offset != named->offset || !place->path || place->text != text)
            continue;
        ctx->model_path = place->path;
        ctx->line = place->line;
        ctx->column = place->column;
    }
    return false;
}

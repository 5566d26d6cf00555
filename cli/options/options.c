/* The option table at work: lookup, suggestions, parsing of values and of command lines.
 *
 * Spelling is a compiler's: one dash or two, "-o FILE" and "-oFILE" for letters, "--name=value" and "--name value".
 * A flag may be given a value ("--stats=false"), so that the command line can undo what the configuration says.
 */
#include "cli/options/options.h"

#include "cli/options/nearest.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
#include "cli/options/options.def"
};
const uint32_t option_count = COUNT_OF(option_table);

const char *option_group(const struct option *def)
{
    static const struct {
        uint32_t line;           /* of options.def: a group's options stand below its title */
        const char *title;
    } groups[] = {
#define GROUP(title) {__LINE__, title},
#include "cli/options/options.def"
    };
    size_t i = COUNT_OF(groups) - 1;
    while (i && groups[i].line > def->line)
        i--;
    return groups[i].title;
}

enum { ARGUMENTS_MAX = 65536, RESPONSE_FILE_MAX = 1 << 20 };

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
    static const struct {
        const char *name, *advice;
    } gone[] = {
        {"strassen", "it gained too little; leave it out"},
        {"winograd-weights", "kernels derive the weights, which is as fast; leave it out"},
    };
    for (size_t i = 0; i < COUNT_OF(gone); i++)
        if (strcmp(gone[i].name, name) == 0)
            return gone[i].advice;
    return NULL;
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

/* e-2 behind a number's digits, which becomes a hundredth of itself. */
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
static bool parse_real(const char *s, double *out)
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
        if (!parse_real(value, field))
            return error_at(ctx, fail, (src_id){0}, NULL, "'%s' takes a number such as 1.5, not '%s'", def->name,
                            value);
        return true;
    }
    return false;
}

/* ---- command lines ---------------------------------------------------------------------------------- */

struct arguments {
    VEC(const char *) items;
};

/* Appends the words of a response file: separated by white space, '...' and "..." kept together, \ takes the next
 * byte as it is. */
static bool response_file(struct context *ctx, const char *path, struct arguments *out)
{
    char *text = arena_alloc(&ctx->session, RESPONSE_FILE_MAX + 1);
    FILE *f = fopen(path, "rbe");
    if (!f)
        return error_env(ctx, "cannot read '@%s': %s", path, strerror(errno));
    size_t n = fread(text, 1, RESPONSE_FILE_MAX + 1, f);
    bool failed = ferror(f);
    fclose(f);
    if (failed)
        return error_env(ctx, "cannot read '@%s'", path);
    if (n > RESPONSE_FILE_MAX)
        return error_limit(ctx, (src_id){0}, "'@%s' is larger than 1 MiB", path);
    struct strbuf word;
    strbuf_init(&word, &ctx->session);
    bool inside = false;
    char quote = 0;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (!quote && isspace((unsigned char)c)) {
            if (inside)
                VEC_PUSH(&ctx->session, &out->items, arena_strndup(&ctx->session, word.data, word.n));
            inside = false;
            word.n = 0;
            continue;
        }
        inside = true;
        if (quote ? c == quote : c == '\'' || c == '"')
            quote = quote ? 0 : c;
        else if (c == '\\' && quote != '\'' && i + 1 < n)
            strbuf_append(&word, &text[++i], 1);
        else
            strbuf_append(&word, &c, 1);
        strbuf_append(&word, "", 0);
    }
    if (inside)
        VEC_PUSH(&ctx->session, &out->items, arena_strndup(&ctx->session, word.data, word.n));
    return true;
}

struct setting {
    const struct option *def;
    const char *value;
};
struct settings {
    VEC(struct setting) items;
};

void option_blame(struct context *ctx, const struct options *o, const char *name, const char *text)
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
}

static const struct option *find_letter(char letter, char where)
{
    for (uint32_t i = 0; i < option_count; i++)
        if (option_table[i].letter == letter && strchr(option_table[i].where, where))
            return &option_table[i];
    return NULL;
}

static bool unknown_option(struct context *ctx, const char *arg, const char *name, char where)
{
    const char *gone = option_gone(name), *near = gone ? NULL : option_suggest(name, where);
    return error_at(ctx, FAIL_USAGE, (src_id){0}, NULL,
                    gone   ? "option '%s' is gone: %s"
                    : near ? "unknown option '%s'; did you mean '--%s'?"
                           : "unknown option '%s' (--help lists them)",
                    arg, gone ? gone : near);
}

/* One argument that starts with a dash; *i moves past a value that stands apart. */
static bool parse_option(struct context *ctx, const struct arguments *args, uint32_t *i, char where,
                         struct settings *out)
{
    const char *arg = args->items.data[*i];
    const char *text = arg + (arg[1] == '-' ? 2 : 1);
    const char *equals = strchr(text, '=');
    const char *name = equals ? arena_strndup(&ctx->session, text, (size_t)(equals - text)) : text;
    struct setting s = {option_find(text, where), NULL};    /* a spelling that holds '=' itself */
    if (!s.def)
        s = (struct setting){option_find(name, where), equals ? equals + 1 : NULL};
    if (!s.def && arg[1] != '-' && (s.def = find_letter(text[0], where))) {
        s.value = text[1] ? text + 1 + (text[1] == '=') : NULL;
        if (s.def->kind == OPTION_FLAG && s.value)
            return unknown_option(ctx, arg, name, where);
    }
    if (!s.def)
        return unknown_option(ctx, arg, name, where);
    if (s.def->kind != OPTION_FLAG && !s.value) {
        if (*i + 1 == args->items.n)
            return error_at(ctx, FAIL_USAGE, (src_id){0}, NULL, "option '%s' needs a value: %s", arg, s.def->meta);
        s.value = args->items.data[++*i];
    }
    VEC_PUSH(&ctx->session, &out->items, s);
    return true;
}

static bool collect(struct context *ctx, struct options *o, const struct arguments *args, char where,
                    struct settings *out)
{
    bool options_end = false, good = true;
    for (uint32_t i = 0; i < args->items.n; i++) {
        const char *arg = args->items.data[i];
        if (options_end || arg[0] != '-' || arg[1] == 0)
            VEC_PUSH(&ctx->session, &o->files.items, arg);
        else if (strcmp(arg, "--") == 0)
            options_end = true;
        else if (!parse_option(ctx, args, &i, where, out))
            good = false;
    }
    return good;
}

bool options_parse(struct context *ctx, struct options *o, int argc, char **argv, char where)
{
    struct arguments args = {0};
    struct settings settings = {0};
    for (int i = 0; i < argc; i++) {
        bool is_value = i > 0 && strcmp(argv[i - 1], "-o") == 0;
        if (argv[i][0] == '@' && argv[i][1] && !is_value) {
            if (!response_file(ctx, argv[i] + 1, &args))
                return false;
        } else {
            VEC_PUSH(&ctx->session, &args.items, argv[i]);
        }
        if (args.items.n > ARGUMENTS_MAX)
            return error_at(ctx, FAIL_USAGE, (src_id){0}, NULL, "more than %d arguments", ARGUMENTS_MAX);
    }
    bool good = collect(ctx, o, &args, where, &settings);
    /* The form of errors first, so that those of the configuration and of other options have it. */
    for (uint32_t i = 0; i < settings.items.n; i++) {
        const struct option *def = settings.items.data[i].def;
        bool form = strcmp(def->name, "fdiagnostics-format") == 0 || strcmp(def->name, "json") == 0;
        if (form && !option_set(ctx, o, def, settings.items.data[i].value, FAIL_USAGE))
            return false;
    }
    if (!good)
        return false;
    const char *config = NULL;
    for (uint32_t i = 0; i < settings.items.n; i++)
        if (strcmp(settings.items.data[i].def->name, "config") == 0)
            config = settings.items.data[i].value;
    if (config && !config_load(ctx, o, config, where))
        return false;
    for (uint32_t i = 0; i < settings.items.n; i++)
        if (!option_set(ctx, o, settings.items.data[i].def, settings.items.data[i].value, FAIL_USAGE))
            return false;
    return true;
}

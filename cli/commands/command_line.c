/* Command lines: the options of a sub-command, and the files.
 *
 * Spelling is a compiler's: one dash or two, "-o FILE" and "-oFILE" for letters, "--name=value" and "--name value".
 * A flag may be given a value ("--stats=false"), so that the command line can undo what the configuration says.
 */
#include "cli/commands/command_line.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>

enum { ARGUMENTS_MAX = 65536, RESPONSE_FILE_MAX = 1 << 20 };

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
    struct strbuf word = strbuf_of(&ctx->session);
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
    return error_usage(ctx,
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
    if (!s.value && strchr(s.def->where, 'o'))
        s.value = "";
    if (s.def->kind != OPTION_FLAG && !s.value) {
        if (*i + 1 == args->items.n)
            return error_usage(ctx, "option '%s' needs a value: %s", arg, s.def->meta);
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
            return error_usage(ctx, "more than %d arguments", ARGUMENTS_MAX);
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

/* --autocomplete=COMMAND,WORD or WORD, what shells ask when a tab is typed; the words before it follow after "--". */
#include "cli/commands/artifact/artifact.h"
#include "cli/commands/command.h"
#include "ir/base/file.h"
#include "ir/target/platform.h"

struct request {
    struct context *ctx;
    const struct text_list *words;   /* of the line, before the one under the cursor */
    char where;                      /* letter of the command */
    struct strbuf *out;
};

/* Names that may stand before '=' in an option's value. */
struct names {
    VEC(const char *) inputs, outputs, symbols;
};

/* Of the first word that is a file: a compiled network, or one that is imported. What cannot be read has none. */
static void read_names(const struct request *r, struct names *names)
{
    struct arena *arena = r->out->arena;
    char head[1];
    for (uint32_t i = 0; i < r->words->items.n; i++) {
        const char *path = r->words->items.data[i];
        if (path[0] == '-' || strchr(path, '=') || !file_head(path, head, 1))
            continue;
        if (artifact_is(path)) {
            struct artifact_file *a = NEW(arena, struct artifact_file);
            if (!artifact_read(r->ctx, path, false, a))
                return;
            for (uint32_t k = 0; k < a->api.n_in; k++)
                VEC_PUSH(arena, &names->inputs, a->api.in[k].name);
            for (uint32_t k = 0; k < a->api.n_out; k++)
                VEC_PUSH(arena, &names->outputs, a->api.out[k].name);
            for (uint32_t k = 0; k < a->api.n_sym; k++)
                VEC_PUSH(arena, &names->symbols, a->api.sym[k].name);
            return;
        }
        const struct graph *g = format_by_suffix(path) ? network_import(r->ctx, path, NULL, NULL) : NULL;
        for (uint32_t k = 0; g && k < graph_user_inputs(g); k++)
            VEC_PUSH(arena, &names->inputs, g->inputs.data[k].name);
        for (uint32_t k = 0; g && k < graph_user_outputs(g); k++)
            VEC_PUSH(arena, &names->outputs, g->outputs.data[k].name);
        return;
    }
}

/* The names of ports and symbols that the option's value begins with: -i picture=, --dim n=, --dump y. before: what
 * stands before them in the word. */
static void put_ports(const struct request *r, const struct option *def, const char *begun, const char *before)
{
    struct names names = {0};
    bool feed = strcmp(def->name, "feed") == 0, input = strcmp(def->name, "input") == 0;
    bool dim = strcmp(def->name, "dim") == 0, against = strcmp(def->name, "against") == 0;
    if ((!feed && !input && !dim && !against && strcmp(def->name, "dump") != 0) || strchr(begun, '='))
        return;
    read_names(r, &names);
    uint32_t n = feed || input ? names.inputs.n : dim ? names.symbols.n : names.outputs.n;
    const char *const *list = feed || input ? names.inputs.data : dim ? names.symbols.data : names.outputs.data;
    for (uint32_t i = 0; i < n; i++)
        if (strncmp(list[i], begun, strlen(begun)) == 0 && !list[i][strcspn(list[i], "\t\n \"'\\")])
            strbuf_printf(r->out, "%s%s%s\t%s\n", before, list[i], feed || dim || against ? "=" : "",
                          dim             ? "symbol"
                          : feed || input ? "input"
                                          : "output");
}

static void put_value(struct strbuf *out, const struct option *def, const char *begun, const char *value, size_t n)
{
    if (strncmp(value, begun, strlen(begun) < n ? strlen(begun) : n) == 0 && strlen(begun) <= n)
        strbuf_printf(out, "--%s=%.*s\n", def->name, (int)n, value);
}

/* The words that the option takes and that begin so: its own, or rows of a table of which its help says only the
 * kind. */
static void put_values(const struct request *r, const struct option *def, const char *begun)
{
    struct strbuf *out = r->out;
    bool variants = strcmp(def->name, "variants") == 0, cpu = strcmp(def->meta, "CPU") == 0;
    if (def->kind == OPTION_ONE_OF)
        for (unsigned i = 0; option_word(def, i).size; i++)
            put_value(out, def, begun, option_word(def, i).data, option_word(def, i).size);
    for (uint32_t i = 0; strcmp(def->meta, "TRIPLE") == 0 && i < platform_count; i++) {
        const char *name = arena_printf(out->arena, "%s-%s", platforms[i].arch, platforms[i].system);
        put_value(out, def, begun, name, strlen(name));
    }
    for (uint32_t i = 0; strcmp(def->meta, "STAGE") == 0 && i < stage_count; i++)
        put_value(out, def, begun, stage_table[i].name, strlen(stage_table[i].name));
    for (uint32_t i = 0; strcmp(def->meta, "DOMAIN") == 0 && op_domain(i); i++)
        put_value(out, def, begun, op_domain(i), strlen(op_domain(i)));
    if (cpu || variants)
        put_value(out, def, begun, cpu ? "native" : "all", cpu ? 6 : 3);
    for (uint32_t i = 0; (cpu || variants) && i < target_count; i++)
        put_value(out, def, begun, target_rows[i].name, strlen(target_rows[i].name));
    put_ports(r, def, begun, arena_printf(out->arena, "--%s=", def->name));
}

/* Does the option want a value, always? */
static bool has_value(const struct option *def)
{
    return def->kind != OPTION_FLAG && !strchr(def->where, 'o');
}

/* The option whose value the word is: the one before it, which wants one. */
static const struct option *wants_value(const struct request *r)
{
    const char *last = r->words->items.n ? r->words->items.data[r->words->items.n - 1] : "";
    const char *name = last + strspn(last, "-");
    if (name == last || strchr(name, '='))
        return NULL;
    for (uint32_t i = 0; i < option_count; i++) {
        const struct option *def = &option_table[i];
        bool letter = name - last == 1 && name[0] == def->letter && name[1] == 0;
        if (strchr(def->where, r->where) && has_value(def) && (letter || strcmp(def->name, name) == 0))
            return def;
    }
    return NULL;
}

/* Candidates for the word under the cursor, "CANDIDATE<tab>HELP" a line: options where it begins as one, or what one
 * takes. Everything else is a file's name, which shells complete by themselves. */
static void autocomplete(const struct request *r, const char *word)
{
    const char *equals = strchr(word, '=');
    size_t dashes = strspn(word, "-");
    const struct option *open = wants_value(r);
    if (open) {
        put_ports(r, open, word, "");
        return;
    }
    if (dashes == 0)
        return;
    for (uint32_t i = 0; i < option_count; i++) {
        const struct option *def = &option_table[i];
        size_t length = strlen(def->name);
        if (!strchr(def->where, r->where) || strchr(def->where, 'h') || length <= 2 || def->name[0] == '#')
            continue;
        if (!equals && strncmp(def->name, word + dashes, strlen(word + dashes)) == 0)
            strbuf_printf(r->out, "--%s%s\t%s\n", def->name, has_value(def) ? "=" : "", def->help);
        if (equals && length == (size_t)(equals - word) - dashes && memcmp(def->name, word + dashes, length) == 0)
            put_values(r, def, equals + 1);
    }
}

void generate_completions(struct context *ctx, const char *request, const struct text_list *words,
                          const struct command_row *rows, uint32_t n, struct strbuf *out)
{
    struct request r = {ctx, words, 'C', out};
    const char *comma = strchr(request, ',');
    for (uint32_t i = 0; comma && i < n; i++)
        if (strlen(rows[i].name) == (size_t)(comma - request) &&
            memcmp(rows[i].name, request, (size_t)(comma - request)) == 0)
            r.where = rows[i].where;
    autocomplete(&r, comma ? comma + 1 : request);
    if (request[0] == '-' || comma || wants_value(&r))
        return;
    for (uint32_t i = 0; i < n; i++)
        if (strncmp(rows[i].name, request, strlen(request)) == 0)
            strbuf_printf(out, "%s\t%s\n", rows[i].name, rows[i].help);
}

/* What the option table prints as: --help of a sub-command, the reference in docs/commands.md, --print-config. */
#include <stdio.h>
#include <string.h>

#include "cli/options/options.h"

enum { HELP_COLUMN = 30, HELP_WIDTH = 100 };

void option_spelling(struct strbuf *out, const struct option *def)
{
    if (def->letter && def->letter != def->name[0])
        strbuf_printf(out, "-%c, ", def->letter);
    else if (def->letter && def->name[1])
        strbuf_printf(out, "-%c, ", def->letter);
    bool compiler_like = strlen(def->name) <= 2 || def->name[0] == '#';
    strbuf_printf(out, "%s%s", compiler_like ? "-" : "--", def->name);
    switch (def->kind) {
    case OPTION_FLAG: return;
    case OPTION_ONE_OF: {
        strbuf_append(out, "=", 1);
        for (const char *p = def->meta; *p; p++)
            strbuf_append(out, *p == ' ' ? "|" : p, 1);
        return;
    }
    default: strbuf_printf(out, "%s%s", compiler_like ? (def->kind == OPTION_INT ? "" : " ") : "=", def->meta);
    }
}

/* Appends words of text, breaking lines before HELP_WIDTH. */
static void print_wrapped(struct strbuf *out, const char *text)
{
    size_t column = HELP_COLUMN;
    while (*text) {
        size_t n = strcspn(text, " ");
        if (column > HELP_COLUMN && column + 1 + n > HELP_WIDTH) {
            strbuf_printf(out, "\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
        } else if (column > HELP_COLUMN) {
            strbuf_append(out, " ", 1);
            column++;
        }
        strbuf_append(out, text, n);
        column += n;
        text += n;
        text += strspn(text, " ");
    }
    strbuf_append(out, "\n", 1);
}

void option_meaning(struct strbuf *out, const struct option *def)
{
    if (def->kind == OPTION_ONE_OF)
        strbuf_printf(out, "%s (default: %.*s)", def->help, (int)strcspn(def->meta, " "), def->meta);
    else if (def->kind == OPTION_INT || def->kind == OPTION_SIZE || def->kind == OPTION_REAL)
        strbuf_printf(out, "%s (default: %.15g)", def->help, def->preset);
    else
        strbuf_printf(out, "%s", def->help);
}

void options_help(struct strbuf *out, char where)
{
    const char *group = NULL;
    for (uint32_t i = 0; i < option_count; i++) {
        const struct option *def = &option_table[i];
        if (!strchr(def->where, where) || strchr(def->where, 'h'))
            continue;
        if (group != option_group(def))
            strbuf_printf(out, "\n%s:\n", group = option_group(def));
        size_t start = out->n;
        strbuf_printf(out, "  ");
        option_spelling(out, def);
        size_t width = out->n - start;
        if (width + 2 > HELP_COLUMN)
            strbuf_printf(out, "\n%*s", HELP_COLUMN, "");
        else
            strbuf_printf(out, "%*s", (int)(HELP_COLUMN - width), "");
        struct strbuf text;
        strbuf_init(&text, out->arena);
        option_meaning(&text, def);
        print_wrapped(out, text.data);
    }
}

/* Text of a cell of a Markdown table. */
static void put_cell(struct strbuf *out, const char *text)
{
    for (const char *p = text; *p; p++)
        strbuf_printf(out, *p == '|' ? "\\|" : "%c", *p);
}

void option_commands(struct strbuf *out, const struct option *def)
{
    static const struct {
        char letter;
        const char *name;
    } commands[] = {
        {'C', "compile"},
        {'K', "check"},
        {'E', "eval"},
        {'R', "run"},
        {'B', "bench"},
        {'I', "inspect"},
        {'D', "diff"},
        {'Q', "quantize"},
        {'X', "reduce"},
        {'P', "report"},
        {'F', "configuration file"},
    };
    const char *comma = "";
    for (size_t k = 0; k < COUNT_OF(commands); k++)
        if (strchr(def->where, commands[k].letter)) {
            strbuf_printf(out, "%s%s", comma, commands[k].name);
            comma = ", ";
        }
}

void options_reference(struct strbuf *out)
{
    const char *group = NULL;
    for (uint32_t i = 0; i < option_count; i++) {
        const struct option *def = &option_table[i];
        struct strbuf cell;
        if (strchr(def->where, 'h'))
            continue;
        if (group != option_group(def)) {
            strbuf_printf(out, "%s### %s\n\n| option | in | meaning |\n|---|---|---|\n", group ? "\n" : "",
                          option_group(def));
            group = option_group(def);
        }
        strbuf_init(&cell, out->arena);
        option_spelling(&cell, def);
        strbuf_printf(out, "| `");
        put_cell(out, cell.data);
        strbuf_printf(out, "` | ");
        option_commands(out, def);
        strbuf_printf(out, " | ");
        strbuf_init(&cell, out->arena);
        option_meaning(&cell, def);
        put_cell(out, cell.data);
        strbuf_printf(out, " |\n");
    }
}

static void config_list(struct strbuf *out, const char *name, const struct text_list *list)
{
    strbuf_printf(out, list->items.n ? "%s:\n" : "%s: []\n", name);
    for (uint32_t k = 0; k < list->items.n; k++) {
        strbuf_printf(out, "  - ");
        strbuf_quoted(out, list->items.data[k]);
        strbuf_printf(out, "\n");
    }
}

/* A text that is not given has no value to write: its line is a comment. */
static void config_text(struct strbuf *out, const struct option *def, const char *text)
{
    if (!text) {
        strbuf_printf(out, "# %s: %s\n", def->name, def->meta);
        return;
    }
    strbuf_printf(out, "%s: ", def->name);
    strbuf_quoted(out, text);
    strbuf_printf(out, "\n");
}

void options_print_config(struct strbuf *out, const struct options *o)
{
    for (uint32_t i = 0; i < option_count; i++) {
        const struct option *def = &option_table[i];
        const void *field = (const char *)o + def->offset;
        bool again = false;      /* another name of an option that has its line */
        for (uint32_t k = 0; k < i; k++)
            again |= option_table[k].offset == def->offset && strchr(option_table[k].where, 'F');
        if (!strchr(def->where, 'F') || again)
            continue;
        switch (def->kind) {
        case OPTION_FLAG: strbuf_printf(out, "%s: %s\n", def->name, *(const bool *)field ? "true" : "false"); break;
        case OPTION_ONE_OF: {
            struct span word = option_word(def, *(const unsigned *)field);
            config_text(out, def, arena_strndup(out->arena, word.data, word.size));
            break;
        }
        case OPTION_TEXT: config_text(out, def, *(const char *const *)field); break;
        case OPTION_LIST: config_list(out, def->name, field); break;
        case OPTION_INT:
        case OPTION_SIZE:
            strbuf_printf(out, "%s: %lld\n", def->name,
                          def->size == sizeof(int32_t) ? (long long)*(const int32_t *)field
                                                       : (long long)*(const int64_t *)field);
            break;
        case OPTION_REAL: strbuf_printf(out, "%s: %.17g\n", def->name, *(const double *)field); break;
        }
    }
}

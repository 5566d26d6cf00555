/* What the option table prints as: --help of a sub-command, the reference in docs/commands.md, --print-config. */
#include <stdio.h>

#include "cli/commands/command_line.h"

enum { HELP_COLUMN = 30, HELP_WIDTH = 100, PAGE_WIDTH = 120 };

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
    default:
        if (strchr(def->where, 'o'))
            strbuf_printf(out, "[=%s]", def->meta);
        else
            strbuf_printf(out, "%s%s", compiler_like ? (def->kind == OPTION_INT ? "" : " ") : "=", def->meta);
    }
}

/* Appends words of text from `column` on, breaking lines before `width`; further lines are indented. */
static void print_wrapped(struct strbuf *out, const char *text, size_t column, size_t indent, size_t width)
{
    const char *space = "";
    while (*text) {
        size_t n = strcspn(text, " ");
        if (*space && column + 1 + n > width) {
            strbuf_printf(out, "\n%*s", (int)indent, space = "");
            column = indent;
        }
        strbuf_printf(out, "%s%.*s", space, (int)n, text);
        column += strlen(space) + n;
        text += n;
        text += strspn(text, " ");
        space = " ";
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
        struct strbuf text = strbuf_of(out->arena);
        option_meaning(&text, def);
        print_wrapped(out, text.data, HELP_COLUMN, HELP_COLUMN, HELP_WIDTH);
    }
}

/* alone: named where no other command takes the option. */
static const struct {
    char letter;
    const char *name;
    bool alone;
} commands[] = {
    {'C', "compile", false}, {'K', "check", false},   {'E', "eval", false}, {'R', "run", false},
    {'B', "bench", false},   {'I', "inspect", false}, {'D', "diff", false}, {'Q', "quantize", false},
    {'X', "reduce", false},  {'P', "report", false},  {'O', "prove", true},
};

/* The commands that take it, or those that do not; how many there are. */
static size_t put_commands(struct strbuf *out, const struct option *def, bool taken)
{
    size_t n = 0;
    for (size_t k = 0; k < COUNT_OF(commands); k++)
        if (commands[k].alone ? taken && !n && strchr(def->where, commands[k].letter)
                              : (strchr(def->where, commands[k].letter) != NULL) == taken)
            strbuf_printf(out, "%s%s", n++ ? ", " : "", commands[k].name);
    return n;
}

void option_commands(struct strbuf *out, const struct option *def)
{
    put_commands(out, def, true);
    if (strchr(def->where, 'F'))
        strbuf_printf(out, ", configuration file");
}

/* The same in few words: "all but check, reduce; file". */
static const char *commands_short(struct arena *arena, const struct option *def)
{
    struct strbuf takes = strbuf_of(arena), others = strbuf_of(arena), text = strbuf_of(arena);
    size_t n_takes = put_commands(&takes, def, true), n_others = put_commands(&others, def, false);
    if (n_takes <= n_others)
        strbuf_printf(&text, "%s", takes.data);
    else
        strbuf_printf(&text, n_others ? "all but %s" : "all", others.data);
    if (strchr(def->where, 'F'))
        strbuf_printf(&text, "; file");
    return text.data;
}

/* What takes most options of the group that begins with option `first`. */
static const char *group_commands(struct arena *arena, uint32_t first)
{
    const char *most = NULL;
    size_t n_most = 0;
    for (uint32_t i = first; i < option_count && option_group(&option_table[i]) == option_group(&option_table[first]);
         i++) {
        const char *text = commands_short(arena, &option_table[i]);
        size_t n = 0;
        for (uint32_t k = first; k < option_count; k++)
            n += option_group(&option_table[k]) == option_group(&option_table[first]) &&
                 !strchr(option_table[k].where, 'h') && strcmp(commands_short(arena, &option_table[k]), text) == 0;
        if (n > n_most)
            most = text, n_most = n;
    }
    return most;
}

void options_reference(struct strbuf *out)
{
    const char *group = NULL, *usual = "";
    for (uint32_t i = 0; i < option_count; i++) {
        const struct option *def = &option_table[i];
        if (strchr(def->where, 'h'))
            continue;
        if (group != option_group(def)) {
            usual = group_commands(out->arena, i);
            strbuf_printf(out, "%s### %s\n\nCommands: %s.\n\n", group ? "\n" : "", option_group(def), usual);
            group = option_group(def);
        }
        const char *takes = commands_short(out->arena, def);
        struct strbuf text = strbuf_of(out->arena);
        strbuf_printf(&text, "`");
        option_spelling(&text, def);
        strbuf_printf(&text, "`");
        if (strcmp(takes, usual) != 0)
            strbuf_printf(&text, " (%s)", takes);
        strbuf_printf(&text, ": ");
        option_meaning(&text, def);
        strbuf_printf(out, "- ");
        print_wrapped(out, text.data, 2, 2, PAGE_WIDTH);
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
        const char *text = option_text(out->arena, o, def);
        if (def->kind == OPTION_LIST)
            config_list(out, def->name, field);
        else if (def->kind == OPTION_TEXT || def->kind == OPTION_ONE_OF)
            config_text(out, def, text);
        else
            strbuf_printf(out, "%s: %s\n", def->name, text);
    }
}

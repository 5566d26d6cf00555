/* What is made from the option table for other programs: manual pages and the completions of shells (which ask
 * complete.c).
 *
 * The commands' names and helps come from main.c's table, through struct command_row.
 */
#include "cli/commands/command.h"
#include "cli/commands/command_line.h"
#include "cli/library/mccc.h"
#include "passes/schedule/schedule.h"

static bool is_public(const struct option *def)
{
    return !strchr(def->where, 'h');
}

/* ---- manual pages ------------------------------------------------------------------------------------------------ */

/* Text in roff: backslashes and dashes as they are, no line that starts with a control character. */
static void roff(struct strbuf *out, const char *text)
{
    for (const char *p = text; *p; p++) {
        if (*p == '\\' || *p == '-')
            strbuf_append(out, "\\", 1);
        if ((*p == '.' || *p == '\'') && (p == text || p[-1] == '\n'))
            strbuf_printf(out, "\\&");
        strbuf_append(out, *p == '\\' ? "e" : p, 1);
    }
}

/* All options by group, each with the commands that take it; where: of one letter's alone. */
static void roff_options(struct strbuf *out, char where)
{
    const char *group = NULL;
    for (uint32_t i = 0; i < option_count; i++) {
        const struct option *def = &option_table[i];
        if ((where && !strchr(def->where, where)) || !is_public(def))
            continue;
        if (group != option_group(def))
            strbuf_printf(out, ".SS %s\n", group = option_group(def));
        struct strbuf text = strbuf_of(out->arena);
        option_spelling(&text, def);
        strbuf_printf(out, ".TP\n\\fB");
        roff(out, where == 'F' ? def->name : text.data);
        strbuf_printf(out, "\\fR\n");
        text.n = 0;
        option_meaning(&text, def);
        roff(out, text.data);
        if (!where) {
            strbuf_printf(out, "\n.br\n\\fI");
            option_commands(out, def);
            strbuf_printf(out, "\\fR");
        }
        strbuf_printf(out, "\n");
    }
}

/* Lines of a command, a tab and what it does. */
static void roff_examples(struct strbuf *out, const char *lines)
{
    while (*lines) {
        size_t n = strcspn(lines, "\n"), tab = strcspn(lines, "\t");
        struct strbuf part = strbuf_of(out->arena);
        strbuf_append(&part, lines, tab);
        strbuf_printf(out, ".TP\n\\fB");
        roff(out, part.data);
        part.n = 0;
        strbuf_append(&part, lines + tab + 1, n - tab - 1);
        strbuf_printf(out, "\\fR\n");
        roff(out, part.data);
        strbuf_printf(out, "\n");
        lines += n + 1;
    }
}

static void manual_command(const struct command_row *rows, uint32_t n, struct strbuf *out)
{
    strbuf_printf(
        out,
        ".TH MCC 1 \"\" \"mcc %s\"\n.SH NAME\nmcc \\- ahead\\-of\\-time compiler for neural networks\n.SH SYNOPSIS\n",
        MCCC_VERSION);
    for (uint32_t i = 0; i < n; i++) {
        strbuf_printf(out, "%s.B mcc\n", i ? ".br\n" : "");
        roff(out, rows[i].usage);
        strbuf_printf(out, "\n");
    }
    strbuf_printf(out, ".SH EXAMPLES\n");
    for (uint32_t i = 0; i < n; i++)
        roff_examples(out, rows[i].examples);
    strbuf_printf(
        out, ".SH DESCRIPTION\n.B mcc\ncompiles an ONNX network to a native shared object that needs only libc.\n");
    for (uint32_t i = 0; i < n; i++) {
        strbuf_printf(out, ".TP\n.B mcc %s\n", rows[i].name);
        roff(out, rows[i].help);
        strbuf_printf(out, ".\n");
    }
    strbuf_printf(out, ".SH OPTIONS\nOne dash or two make no difference; @FILE reads arguments from FILE.\n");
    roff_options(out, 0);
    strbuf_printf(out,
                  ".SH EXIT STATUS\n0 done, 1 model or configuration refused, 2 usage, 3 environment (files, disk), "
                  "4 a limit was reached (memory included), 5 internal error,\n"
                  "6 a claim does not hold (verify, prove).\n.SH SEE ALSO\n.BR mcc.yaml (5),\n.BR mcc_model (3)\n");
}

static void manual_config(const struct command_row *rows, uint32_t n, struct strbuf *out)
{
    (void)rows, (void)n;
    strbuf_printf(
        out,
        ".TH MCC.YAML 5 \"\" \"mcc %s\"\n.SH NAME\nmcc.yaml \\- options of mcc in a file\n.SH DESCRIPTION\n"
        "A YAML mapping of option names to values, given to\n.BR mcc (1)\nas \\-\\-config=FILE. Each key stands once; "
        "the command line wins over it. Options that may be given again take a list. Anchors, aliases, tags and "
        "several documents are refused; an unknown key is an error with its line and column.\n.SH KEYS\n",
        MCCC_VERSION);
    roff_options(out, 'F');
    strbuf_printf(out, ".SH EXAMPLE\n.nf\nO: 2\nlayout: auto\ninput:\n  \\- x:f32[batch=1..64,3,224,224]\n"
                       "  \\- {name: mask, dtype: bool, shape: [batch, 1]}\n.fi\n.SH SEE ALSO\n.BR mcc (1)\n");
}

/* ---- shells: each asks --autocomplete, so they never fall behind the table --------------------------------------- */

static const char shell_bash[] =
    "# bash completion for mcc\n"
    "_mcc()\n{\n"
    "    local line=${COMP_LINE:0:COMP_POINT} word command= words\n"
    "    word=${line##*[[:space:]]}\n"
    "    [ \"$COMP_CWORD\" -gt 1 ] && command=${COMP_WORDS[1]},\n"
    "    read -ra words <<<\"${line%\"$word\"}\"\n"
    "    COMPREPLY=()\n"
    "    while IFS=$'\\t' read -r name _; do\n"
    "        [[ $word == *=* ]] && name=${name#*=}\n"
    "        COMPREPLY+=(\"$name\")\n"
    "    done < <(\"${COMP_WORDS[0]}\" --autocomplete=\"$command$word\" -- \"${words[@]:1}\" 2>/dev/null)\n"
    "    [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace\n"
    "}\n"
    "complete -o default -F _mcc mcc\n";

static const char shell_zsh[] =
    "#compdef mcc\n"
    "# zsh completion for mcc\n"
    "local -a names helps\n"
    "local command= line name help\n"
    "(( CURRENT > 2 )) && command=${words[2]},\n"
    "while IFS=$'\\t' read -r name help; do\n"
    "    names+=(\"$name\") helps+=(\"$name  $help\")\n"
    "done < <(${words[1]} --autocomplete=\"$command$PREFIX\" -- \"${(@)words[2,CURRENT-1]}\" 2>/dev/null)\n"
    "if (( ! $#names )); then\n"
    "    [[ $PREFIX == *=* ]] && compset -P '*='\n"
    "    _files\n"
    "elif [[ ${names[1]} == *= ]]; then\n"
    "    compadd -l -S '' -d helps -a names\n"
    "else\n"
    "    compadd -l -d helps -a names\n"
    "fi\n";

static const char shell_fish[] =
    "# fish completion for mcc\n"
    "function __mcc_complete\n"
    "    set -l before (commandline -opc)\n"
    "    set -l command\n"
    "    test (count $before) -gt 1; and set command $before[2],\n"
    "    $before[1] --autocomplete=\"$command\"(commandline -ct) -- $before[2..-1] 2>/dev/null\n"
    "end\n"
    "complete -c mcc -a '(__mcc_complete)'\n";

static void page_schedules(const struct command_row *rows, uint32_t n, struct strbuf *out)
{
    (void)rows, (void)n;
    schedules_reference(out);
}

bool generate_text(const char *what, const struct command_row *rows, uint32_t n, struct strbuf *out)
{
    static const struct kind {
        const char *name;
        void (*make)(const struct command_row *, uint32_t, struct strbuf *);
        const char *text; /* where make is NULL */
    } kinds[] = {
        {"mcc.1", manual_command, NULL},
        {"mcc.yaml.5", manual_config, NULL},
        {"schedules.md", page_schedules, NULL},
        {"bash", NULL, shell_bash},
        {"zsh", NULL, shell_zsh},
        {"fish", NULL, shell_fish},
    };
    const struct kind *kind = ROW_NAMED(kinds, COUNT_OF(kinds), what);
    if (kind && kind->make)
        kind->make(rows, n, out);
    else if (kind)
        strbuf_append(out, kind->text, strlen(kind->text));
    return kind != NULL;
}

/* What is made from the option table for other programs: manual pages, completions of shells, --autocomplete.
 *
 * The commands' names and helps come from main.c's table, through struct command_row.
 */
#include <string.h>

#include "cli/command.h"
#include "cli/compile.h"
#include "cli/mccc.h"
#include "ir/target/target.h"

static bool is_public(const struct option *def)
{
    return !strchr(def->where, 'h');
}

static bool is_word(const struct option *def)
{
    return strlen(def->name) > 2 && def->name[0] != '#';
}

/* ---- --autocomplete=COMMAND,WORD or WORD ------------------------------------------------------------------------- */

static void put_value(struct strbuf *out, const struct option *def, const char *begun, const char *value, size_t n)
{
    if (strncmp(value, begun, strlen(begun) < n ? strlen(begun) : n) == 0 && strlen(begun) <= n)
        strbuf_printf(out, "--%s=%.*s\n", def->name, (int)n, value);
}

/* The words that the option takes and that begin so: its own, or rows of a table of which its help says only the kind. */
static void put_values(struct strbuf *out, const struct option *def, const char *begun)
{
    static const char *const triples[] = {"x86_64-linux-gnu", "aarch64-linux-gnu", "riscv64-linux-gnu"};
    bool variants = strcmp(def->name, "variants") == 0, cpu = strcmp(def->meta, "CPU") == 0;
    if (def->kind == OPTION_ONE_OF)
        for (const char *p = def->meta; *p; p += strcspn(p, " "), p += strspn(p, " "))
            put_value(out, def, begun, p, strcspn(p, " "));
    for (size_t i = 0; strcmp(def->meta, "TRIPLE") == 0 && i < COUNT_OF(triples); i++)
        put_value(out, def, begun, triples[i], strlen(triples[i]));
    for (uint32_t i = 0; strcmp(def->meta, "STAGE") == 0 && i < stage_count; i++)
        put_value(out, def, begun, stage_table[i].name, strlen(stage_table[i].name));
    if (cpu || variants)
        put_value(out, def, begun, cpu ? "native" : "all", cpu ? 6 : 3);
    for (uint32_t i = 0; (cpu || variants) && i < target_count; i++)
        put_value(out, def, begun, target_rows[i].name, strlen(target_rows[i].name));
}

/* Candidates for the word under the cursor, "CANDIDATE<tab>HELP" a line: options where it begins as one, or the words that one
 * takes. Everything else is a file's name, which shells complete by themselves. */
static void autocomplete(const char *request, const struct command_row *rows, uint32_t n, struct strbuf *out)
{
    const char *comma = strchr(request, ',');
    char where = 'C';
    for (uint32_t i = 0; comma && i < n; i++)
        if (strlen(rows[i].name) == (size_t)(comma - request) &&
            memcmp(rows[i].name, request, (size_t)(comma - request)) == 0)
            where = rows[i].where;
    const char *word = comma ? comma + 1 : request, *equals = strchr(word, '=');
    size_t dashes = strspn(word, "-");
    if (dashes == 0)
        return;
    for (uint32_t i = 0; i < option_count; i++) {
        const struct option *def = &option_table[i];
        size_t length = strlen(def->name);
        if (!strchr(def->where, where) || !is_public(def) || !is_word(def))
            continue;
        if (!equals && strncmp(def->name, word + dashes, strlen(word + dashes)) == 0)
            strbuf_printf(out, "--%s%s\t%s\n", def->name, def->kind == OPTION_FLAG ? "" : "=", def->help);
        if (equals && length == (size_t)(equals - word) - dashes && memcmp(def->name, word + dashes, length) == 0)
            put_values(out, def, equals + 1);
    }
}

void generate_completions(const char *request, const struct command_row *rows, uint32_t n, struct strbuf *out)
{
    autocomplete(request, rows, n, out);
    if (request[0] == '-' || strchr(request, ','))
        return;
    for (uint32_t i = 0; i < n; i++)
        if (strncmp(rows[i].name, request, strlen(request)) == 0)
            strbuf_printf(out, "%s\t%s\n", rows[i].name, rows[i].help);
}

/* ---- manual pages -------------------------------------------------------------------------------------------------- */

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

static void roff_options(struct strbuf *out, char where)
{
    for (uint32_t i = 0; i < option_count; i++) {
        const struct option *def = &option_table[i];
        struct strbuf text;
        if (!strchr(def->where, where) || !is_public(def))
            continue;
        strbuf_init(&text, out->arena);
        option_spelling(&text, def);
        strbuf_printf(out, ".TP\n\\fB");
        roff(out, where == 'F' ? def->name : text.data);
        strbuf_printf(out, "\\fR\n");
        text.n = 0;
        option_meaning(&text, def);
        roff(out, text.data);
        strbuf_printf(out, "\n");
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
    strbuf_printf(
        out, ".SH DESCRIPTION\n.B mcc\ncompiles an ONNX network to a native shared object that needs only libc.\n");
    for (uint32_t i = 0; i < n; i++) {
        strbuf_printf(out, ".SS mcc %s\n", rows[i].name);
        roff(out, rows[i].help);
        strbuf_printf(out, ".\n");
        roff_options(out, rows[i].where);
    }
    strbuf_printf(
        out,
        ".SH EXIT STATUS\n0 done, 1 model or configuration refused, 2 usage, 3 environment (files, disk), "
        "4 a limit was reached (memory included), 5 internal error.\n.SH SEE ALSO\n.BR mcc.yaml (5),\n.BR mcc_model (3)\n");
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

/* ---- shells: each asks --autocomplete, so they never fall behind the table -------------------------------------------- */

static void shell_bash(const struct command_row *rows, uint32_t n, struct strbuf *out)
{
    (void)rows, (void)n;
    strbuf_printf(out, "# bash completion for mcc\n"
                       "_mcc()\n{\n"
                       "    local line=${COMP_LINE:0:COMP_POINT} word command=\n"
                       "    word=${line##*[[:space:]]}\n"
                       "    [ \"$COMP_CWORD\" -gt 1 ] && command=${COMP_WORDS[1]},\n"
                       "    COMPREPLY=()\n"
                       "    while IFS=$'\\t' read -r name _; do\n"
                       "        [[ $word == *=* ]] && name=${name#*=}\n"
                       "        COMPREPLY+=(\"$name\")\n"
                       "    done < <(\"${COMP_WORDS[0]}\" --autocomplete=\"$command$word\" 2>/dev/null)\n"
                       "    [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace\n"
                       "}\n"
                       "complete -o default -F _mcc mcc\n");
}

static void shell_zsh(const struct command_row *rows, uint32_t n, struct strbuf *out)
{
    (void)rows, (void)n;
    strbuf_printf(out, "#compdef mcc\n"
                       "# zsh completion for mcc\n"
                       "local -a names helps\n"
                       "local command= line name help\n"
                       "(( CURRENT > 2 )) && command=${words[2]},\n"
                       "while IFS=$'\\t' read -r name help; do\n"
                       "    names+=(\"$name\") helps+=(\"$name  $help\")\n"
                       "done < <(${words[1]} --autocomplete=\"$command$PREFIX\" 2>/dev/null)\n"
                       "(( $#names )) && compadd -l -S '' -d helps -a names || _files\n");
}

static void shell_fish(const struct command_row *rows, uint32_t n, struct strbuf *out)
{
    (void)rows, (void)n;
    strbuf_printf(out, "# fish completion for mcc\n"
                       "function __mcc_complete\n"
                       "    set -l before (commandline -opc)\n"
                       "    set -l command\n"
                       "    test (count $before) -gt 1; and set command $before[2],\n"
                       "    $before[1] --autocomplete=\"$command\"(commandline -ct) 2>/dev/null\n"
                       "end\n"
                       "complete -c mcc -a '(__mcc_complete)'\n");
}

bool generate_text(const char *what, const struct command_row *rows, uint32_t n, struct strbuf *out)
{
    static const struct {
        const char *name;
        void (*make)(const struct command_row *, uint32_t, struct strbuf *);
    } kinds[] = {
        {"mcc.1", manual_command}, {"mcc.yaml.5", manual_config}, {"bash", shell_bash},
        {"zsh", shell_zsh},        {"fish", shell_fish},
    };
    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        if (strcmp(kinds[i].name, what) == 0) {
            kinds[i].make(rows, n, out);
            return true;
        }
    return false;
}

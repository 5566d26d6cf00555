/* The command's two text ends, standard output and standard error: colours, --json, writes that fail (terminal.h). */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/commands/progress.h"
#include "cli/commands/terminal.h"

static int colour_asked = -1;    /* by option; -1: not */
static bool output_is_json;      /* of --json: nothing else goes to standard output */
static int output_failed;        /* errno of the first write to standard output that failed; 0: none */

static void output_put(FILE *f, const char *text, size_t size)
{
    errno = 0;
    if (fwrite(text, 1, size, f) != size && f == stdout && !output_failed)
        output_failed = errno;
}

int terminal_end(int status)
{
    errno = 0;
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "mcc: error: cannot write to standard output: %s\n",
                strerror(output_failed ? output_failed : errno));
        status = status ? status : FAIL_ENV;
    }
    if (fflush(stderr) != 0 || ferror(stderr))
        status = status ? status : FAIL_ENV;
    return status;
}

void terminal_options(bool json, int colour)
{
    output_is_json = json;
    colour_asked = colour;
}

static bool wants_colour(void)
{
    static int answer = -1;
    if (colour_asked >= 0)
        return colour_asked;
    if (answer < 0) {
        const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
        answer = isatty(2) && !(no && *no) && term && strcmp(term, "dumb") != 0;
    }
    return answer;
}

static void put_terminal(void *user, int kind, const char *text, size_t size)
{
    static const char *const words[] = {"note: ", "remark: ", "warning: ", "error: "};
    static const char *const colours[] = {"\033[1;36m", "\033[1;34m", "\033[1;35m", "\033[1;31m"};
    (void)user;
    progress_clear();
    FILE *f = kind == TEXT_DATA && !output_is_json ? stdout : stderr;
    const char *word = kind < TEXT_DATA && wants_colour() ? strstr(text, words[kind]) : NULL;
    if (word) {
        size_t before = (size_t)(word - text), n = strlen(words[kind]);
        output_put(f, text, before);
        fprintf(f, "%s%s\033[0m", colours[kind], words[kind]);
        text += before + n;
        size -= before + n;
    }
    output_put(f, text, size);
}

struct report terminal_report(void)
{
    return (struct report){NULL, put_terminal, progress_step};
}

void terminal_print(const struct strbuf *text)
{
    if (text->n)
        output_put(output_is_json ? stderr : stdout, text->data, text->n);
}

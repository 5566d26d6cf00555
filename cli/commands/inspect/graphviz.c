/* Graphviz as another program: its `dot` gets the text on standard input and answers with the picture on standard
 * output. Both are files without a name, so neither side ever waits for the other. */
#include <errno.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/commands/inspect/inspect.h"
#include "ir/base/file.h"

extern char **environ;

/* A file that nobody else sees; -1 and a diagnostic. */
static int nameless_file(struct context *ctx)
{
    char *name = arena_printf(&ctx->session, "%s/mcc-draw-XXXXXX", temp_folder());
    int fd = mkstemp(name);
    if (fd < 0)
        error_env(ctx, "cannot make a file '%s': %s", name, strerror(errno));
    else
        unlink(name);
    return fd;
}

static bool read_all(int fd, struct strbuf *out)
{
    char piece[1 << 16];
    if (lseek(fd, 0, SEEK_SET) != 0)
        return false;
    for (;;) {
        ssize_t n = read(fd, piece, sizeof piece);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n == 0;
        strbuf_append(out, piece, (size_t)n);
    }
}

/* Runs dot; its exit status, or -1 with errno where it does not start. */
static int run_dot(const char *format, int from, int to)
{
    char flag[16] = "-T";
    char *argv[] = {(char[]){"dot"}, flag, NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status;
    strncat(flag, format, sizeof flag - 3);
    errno = posix_spawn_file_actions_init(&actions);
    if (errno)
        return -1;
    posix_spawn_file_actions_adddup2(&actions, from, 0);
    posix_spawn_file_actions_adddup2(&actions, to, 1);
    int failed = posix_spawnp(&pid, "dot", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed) {
        errno = failed;
        return -1;
    }
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

struct drawing {
    struct context *ctx;
    const char *format;
    const struct strbuf *text;
    struct strbuf *picture;
    int from, to; /* what dot reads and writes; -1: not open */
};

static bool drawing_run(void *user)
{
    struct drawing *d = user;
    struct context *ctx = d->ctx;
    if ((d->from = nameless_file(ctx)) < 0 || (d->to = nameless_file(ctx)) < 0)
        return false;
    if (!fd_write(d->from, d->text->data, d->text->n) || lseek(d->from, 0, SEEK_SET) != 0)
        return error_env(ctx, "cannot write the drawing for Graphviz: %s", strerror(errno));
    int status = run_dot(d->format, d->from, d->to);
    if (status == 127 || (status < 0 && errno == ENOENT))
        return error_env(
            ctx, "a picture as %s needs Graphviz, and its program 'dot' is not installed; -o FILE.dot needs nothing",
            d->format);
    if (status < 0)
        return error_env(ctx, "cannot start Graphviz's 'dot': %s", strerror(errno));
    if (status > 0)
        return error_env(ctx, "Graphviz's 'dot' ended with status %d", status);
    if (!read_all(d->to, d->picture))
        return error_env(ctx, "cannot read Graphviz's picture: %s", strerror(errno));
    return d->picture->n || error_env(ctx, "Graphviz's 'dot' drew nothing");
}

static void drawing_end(void *user)
{
    struct drawing *d = user;
    if (d->from >= 0)
        close(d->from);
    if (d->to >= 0)
        close(d->to);
}

bool graphviz_run(struct context *ctx, const struct strbuf *text, const char *format, struct strbuf *picture)
{
    struct drawing d = {ctx, format, text, picture, -1, -1};
    return run_guarded(ctx, drawing_run, drawing_end, &d);
}

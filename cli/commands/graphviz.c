/* Graphviz as another program: its `dot` gets the text on standard input and answers with the picture on standard
 * output. Both are files without a name, so neither side ever waits for the other. */
#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/commands/inspect.h"
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

bool graphviz_run(struct context *ctx, const struct strbuf *text, const char *format, struct strbuf *picture)
{
    int from = nameless_file(ctx), to = from < 0 ? -1 : nameless_file(ctx);
    bool ok = to >= 0;
    if (ok && (!fd_write(from, text->data, text->n) || lseek(from, 0, SEEK_SET) != 0))
        ok = error_env(ctx, "cannot write the drawing for Graphviz: %s", strerror(errno));
    int status = ok ? run_dot(format, from, to) : 0;
    if (ok && (status == 127 || (status < 0 && errno == ENOENT)))
        ok = error_env(
            ctx, "a picture as %s needs Graphviz, and its program 'dot' is not installed; -o FILE.dot needs nothing",
            format);
    else if (ok && status < 0)
        ok = error_env(ctx, "cannot start Graphviz's 'dot': %s", strerror(errno));
    else if (ok && status > 0)
        ok = error_env(ctx, "Graphviz's 'dot' ended with status %d", status);
    if (ok && !read_all(to, picture))
        ok = error_env(ctx, "cannot read Graphviz's picture: %s", strerror(errno));
    if (ok && !picture->n)
        ok = error_env(ctx, "Graphviz's 'dot' drew nothing");
    if (from >= 0)
        close(from);
    if (to >= 0)
        close(to);
    return ok;
}

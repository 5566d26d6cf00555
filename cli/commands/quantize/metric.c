/* --metric=CMD: the user's program says what a network's outputs are worth.
 *
 * The outputs of the samples at hand lie in a folder of their own, OUTPUT as NNNNNN-OUTPUT.npy, where NNNNNN is the
 * number of the sample in the order of --sample, from 0; samples.txt has a line for each: the number, a tab, the
 * file of its first input. CMD's words and the folder are what is run, without a shell; the last number of its
 * standard output counts.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/commands/quantize/error.h"
#include "cli/commands/temporary.h"
#include "ir/base/file.h"

extern char **environ;

/* Words of CMD; the end of its output that is looked at, and what it may write in all. */
enum { WORDS = 64, END = 4096, OUTPUT_MOST = 64 << 20 };

/* ---- the folder -------------------------------------------------------------------------------------------------- */

void metric_begin(struct error_search *e)
{
    folder_clear(e->folder);
    strbuf_init(&e->list, &e->ctx->session);
}

bool metric_put(struct error_search *e, uint32_t k, uint32_t output, const DLTensor *t)
{
    struct file_tensor b = {.elem = elem_by_dlpack(t->dtype), .rank = t->ndim};
    int64_t elements, bytes;
    if (b.elem == ELEM_NONE || b.elem == ELEM_STR || t->ndim > RANK_MAX)
        return error_at(e->ctx, FAIL_USAGE, (src_id){0}, e->t.names[output],
                        "'metric': the output is not a tensor of numbers");
    memcpy(b.dims, t->shape, sizeof *t->shape * (size_t)t->ndim);
    if (!file_tensor_sizes(b.elem, b.rank, b.dims, &elements, &bytes))
        return error_limit(e->ctx, (src_id){0}, "output '%s' is too large", e->t.names[output]);
    b.data = (char *)(uintptr_t)trial_data(t);
    b.size = (size_t)bytes;
    if (output == 0)
        strbuf_printf(&e->list, "%06u\t%s\n", k, e->t.samples.from[k]);
    const char *name = arena_printf(&e->ctx->session, "%06u-%s", k, e->t.names[output]);
    return file_tensor_write(e->ctx, e->folder, name, OPT_FORMAT_NPY, &b);
}

/* ---- the program ------------------------------------------------------------------------------------------------- */

/* The last number of the text, which may be none (nan); false: there is nothing like one. */
static bool last_number(char *text, double *out)
{
    bool found = false;
    for (char *rest, *word = strtok_r(text, " \t\r\n", &rest); word; word = strtok_r(NULL, " \t\r\n", &rest)) {
        char *end;
        double v = strtod(word, &end);
        if (end != word && !*end) {
            *out = v;
            found = true;
        }
    }
    return found;
}

/* Reads until the program closes its output: the last END bytes. False: it wrote too much, or not in time. */
static bool read_end(int fd, double until, char text[END + 1])
{
    char piece[END];
    size_t kept = 0, all = 0;
    for (;;) {
        const double left = until - time_now();
        struct pollfd p = {fd, POLLIN, 0};
        int ready = left > 0 ? poll(&p, 1, left < 1e6 ? (int)(left * 1000) + 1 : 1000000000) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            return false;
        ssize_t n = read(fd, piece, sizeof piece);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            text[kept] = 0;
            return true;
        }
        all += (size_t)n;
        if (all > OUTPUT_MOST)
            return false;
        size_t old = kept + (size_t)n > END ? END - (size_t)n : kept;
        memmove(text, text + kept - old, old);
        memcpy(text + old, piece, (size_t)n);
        kept = old + (size_t)n;
    }
}

struct asking {
    struct error_search *e;
    double *out;
    int pipe[2];
};

static bool start(struct asking *a)
{
    struct context *ctx = a->e->ctx;
    char *argv[WORDS + 2], *rest;
    posix_spawn_file_actions_t actions;
    uint32_t n = 0;
    char *words = arena_strdup(&ctx->session, a->e->options->metric);
    for (char *w = strtok_r(words, " ", &rest); w; w = strtok_r(NULL, " ", &rest)) {
        if (n == WORDS)
            return error_at(ctx, FAIL_USAGE, (src_id){0}, NULL, "'metric': a command of at most %d words", WORDS);
        argv[n++] = w;
    }
    if (!n)
        return error_at(ctx, FAIL_USAGE, (src_id){0}, NULL, "'metric' takes a command");
    argv[n] = arena_strdup(&ctx->session, a->e->folder);
    argv[n + 1] = NULL;
    if (pipe2(a->pipe, O_CLOEXEC) != 0 || posix_spawn_file_actions_init(&actions) != 0)
        return error_env(ctx, "cannot run '%s': %s", argv[0], strerror(errno));
    pid_t pid;
    int bad = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    bad = bad ? bad : posix_spawn_file_actions_adddup2(&actions, a->pipe[1], 1);
    bad = bad ? bad : posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (bad)
        return error_env(ctx, "cannot run '%s': %s", argv[0], strerror(bad));
    ctx->child = pid;
    close(a->pipe[1]);
    a->pipe[1] = -1;
    return true;
}

/* A program may close its output long before it ends. False: it did not end in time. */
static bool wait_end(struct context *ctx, double until, int *status)
{
    const struct timespec pause = {0, 2000000};
    for (pid_t done; (done = waitpid(ctx->child, status, WNOHANG)) == 0 || (done < 0 && errno == EINTR);) {
        if (time_now() >= until)
            return false;
        nanosleep(&pause, NULL);
    }
    ctx->child = 0;
    return true;
}

static bool ask(void *user)
{
    struct asking *a = user;
    struct context *ctx = a->e->ctx;
    const char *command = a->e->options->metric;
    const double most = a->e->options->limits.compile_time;
    char text[END + 1];
    int status = 0;
    if (!start(a))
        return false;
    const double until = most > 0 ? time_now() + most : INFINITY;
    if (!read_end(a->pipe[0], until, text) || !wait_end(ctx, until, &status))
        return error_limit(ctx, (src_id){0}, "'%s' wrote too much, or did not end within %g s (--limit-compile-time)",
                           command, most);
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        return error_env(ctx, "'%s' failed (status %d)", command,
                         WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    return last_number(text, a->out) ||
           error_env(ctx, "'%s' printed no number: the last one of its standard output is the metric", command);
}

static void ask_end(void *user)
{
    struct asking *a = user;
    struct context *ctx = a->e->ctx;
    if (ctx->child) {
        kill(ctx->child, SIGKILL);
        waitpid(ctx->child, NULL, 0);
        ctx->child = 0;
    }
    for (int i = 0; i < 2; i++)
        if (a->pipe[i] >= 0)
            close(a->pipe[i]);
}

bool metric_ask(struct error_search *e, double *out)
{
    struct asking a = {.e = e, .out = out, .pipe = {-1, -1}};
    return output_write(e->ctx, arena_printf(&e->ctx->session, "%s/samples.txt", e->folder), e->list.data, e->list.n) &&
           run_guarded(e->ctx, ask, ask_end, &a);
}

/* ---- a search ---------------------------------------------------------------------------------------------------- */

/* What the outputs of f32 are worth. */
static bool ask_exact(struct error_search *e, enum part part)
{
    metric_begin(e);
    for (uint32_t k = 0; k < e->t.samples.n; k++)
        for (uint32_t i = 0; i < e->t.n_want && e->part[part][k]; i++) {
            const struct tensor *w = &e->t.want[k * e->t.n_want + i];
            DLTensor t = {w->data, {kDLCPU, 0}, w->rank, elem_dlpack(w->elem), w->dims, NULL, 0};
            if (!w->data)
                return error_at(e->ctx, FAIL_USAGE, (src_id){0}, e->t.names[i],
                                "'metric': the output is not a tensor of numbers");
            if (!metric_put(e, k, i, &t))
                return false;
        }
    return metric_ask(e, &e->exact_metric[part]) &&
           (isfinite(e->exact_metric[part]) || error_env(e->ctx, "'%s' printed no number but %g of the outputs in f32",
                                                         e->options->metric, e->exact_metric[part]));
}

struct run {
    struct error_search *e;
    bool (*use)(struct error_search *);
};

static bool run_use(void *user)
{
    struct run *r = user;
    return ask_exact(r->e, PART_SEEN) && (!r->e->n_part[PART_HELD] || ask_exact(r->e, PART_HELD)) && r->use(r->e);
}

static void run_end(void *user)
{
    struct run *r = user;
    folder_clear(r->e->folder);
    rmdir(r->e->folder);
    r->e->ctx->temp_folder = NULL;
}

/* Each output has a file of its own, and each sample a line? */
static bool names_differ(const struct error_search *e)
{
    struct arena *arena = &e->ctx->session;
    const char **names = NEW_ARRAY(arena, const char *, e->t.n_want + 1);
    for (uint32_t i = 0; i < e->t.n_want; i++) {
        names[i] = file_tensor_name(arena, arena_printf(arena, "-%s", e->t.names[i]));
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(names[i], names[k]) == 0)
                return error_at(e->ctx, FAIL_USAGE, (src_id){0}, e->t.names[i],
                                "'metric': the files of this output and of '%s' would have one name", e->t.names[k]);
    }
    for (uint32_t k = 0; k < e->t.samples.n; k++)
        if (strpbrk(e->t.samples.from[k], "\r\n"))
            return error_at(e->ctx, FAIL_USAGE, (src_id){0}, NULL,
                            "'metric': samples.txt has a line for each sample, and the name of a file breaks one");
    return true;
}

bool metric_run(struct error_search *e, bool (*use)(struct error_search *))
{
    struct run r = {e, use};
    char *folder = arena_printf(&e->ctx->session, "%s/mcc-metric-XXXXXX", temp_folder());
    if (!names_differ(e))
        return false;
    e->ctx->temp_folder = folder; /* before it has its name: until then there is none of this one */
    if (!mkdtemp(folder)) {
        e->ctx->temp_folder = NULL;
        return error_env(e->ctx, "cannot make a folder '%s'", folder);
    }
    e->folder = folder;
    return run_guarded(e->ctx, run_use, run_end, &r);
}

/* mcc bench: times an artifact, or a network that is compiled for it. First whole runs, without looking inside; then
 * again with the event callback, for the table of kernels or, with --roofline, for what they lose against the limits of
 * the machine. Inputs that are not given are drawn. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "cli/commands/bench.h"
#include "cli/commands/temporary.h"
#include "cli/command.h"
#include "cli/compile.h"
#include "cli/cpu.h"

enum { RUNS_LEAST = 10, RUNS_MOST = 100000, WARM_UP = 3, ROWS_MAX = 40 };
#define AUTO_NS 2000000000.0 /* two seconds of timed runs when --runs is not given */

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void on_event(void *user, uint32_t node, int end, uint64_t ns)
{
    struct profile *p = user;
    if (node >= p->n)
        return;
    struct kernel_time *k = &p->nodes[node];
    if (!end) {
        k->started = (double)ns;
        return;
    }
    k->now += (double)ns - k->started;
    k->calls++;
}

static void on_chunk(void *user, uint32_t node, uint32_t thread, uint64_t from, uint64_t to)
{
    chunks_add(&((struct profile *)user)->chunks, node, thread, from, to);
}

static int by_number(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int by_time(const void *a, const void *b)
{
    double x = ((const struct kernel_time *)a)->ns, y = ((const struct kernel_time *)b)->ns;
    return (x < y) - (x > y);
}

static int by_sample(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void profile_open(struct session *s, struct profile *p, uint32_t runs)
{
    p->runs = runs;
    memset(p->nodes, 0, sizeof *p->nodes * p->n);
    for (uint32_t i = 0; i < p->n; i++) {
        p->nodes[i].node = i;
        p->nodes[i].sample = NEW_ARRAY(&s->ctx->session, float, runs);
    }
}

static void profile_run(struct profile *p, uint32_t run)
{
    for (uint32_t i = 0; i < p->n; i++) {
        p->nodes[i].sample[run] = (float)p->nodes[i].now;
        p->nodes[i].now = 0;
    }
}

static void profile_close(struct profile *p)
{
    for (uint32_t i = 0; i < p->n; i++) {
        qsort(p->nodes[i].sample, p->runs, sizeof(float), by_sample);
        for (uint32_t k = 0; k < p->runs; k++)
            p->nodes[i].all += (double)p->nodes[i].sample[k];
        p->nodes[i].ns = (double)p->nodes[i].sample[p->runs / 2];
    }
}

/* Buffers for all outputs when plan knows their shapes; NULL when the data decides one: then runs allocate. */
static DLTensor **outputs_plan(struct session *s, size_t *ctx_bytes)
{
    struct arena *arena = &s->ctx->session;
    uint32_t n = s->api->n_out;
    int64_t **shape = NEW_ARRAY(arena, int64_t *, n + 1);
    DLTensor **out = NEW_ARRAY(arena, DLTensor *, n + 1);
    for (uint32_t i = 0; i < n; i++)
        shape[i] = NEW_ARRAY(arena, int64_t, RANK_MAX);
    if (s->api->plan(s->lib->model, s->in_pointer, shape, ctx_bytes, &s->error) != MCC_OK) {
        session_error(s, "plan");
        return NULL;
    }
    for (uint32_t i = 0; i < n; i++) {
        const mcc_port *port = &s->api->out[i];
        struct blob b = {.elem = elem_by_dlpack(port->dtype), .rank = port->ndim};
        if (port->flags || port->ndim < 0 || port->ndim > RANK_MAX || b.elem == ELEM_NONE)
            return NULL;
        memcpy(b.dims, shape[i], sizeof *shape[i] * (size_t)port->ndim);
        if (!blob_alloc(s->ctx, &b))
            return NULL;
        out[i] = NEW(arena, DLTensor);
        *out[i] = (DLTensor){
            .data = b.data, .device = {kDLCPU, 0}, .ndim = port->ndim, .dtype = port->dtype, .shape = shape[i]};
    }
    return out;
}

static bool run_once(struct session *s, DLTensor **out, DLManagedTensorVersioned **managed)
{
    if (out)
        return s->api->run(s->run, s->in_pointer, out, &s->error) == MCC_OK || session_error(s, "run");
    if (s->api->run_dlpack(s->run, s->in_pointer, managed, &s->error) != MCC_OK)
        return session_error(s, "run");
    for (uint32_t i = 0; i < s->api->n_out; i++)
        managed[i]->deleter(managed[i]);
    return true;
}

/* What the time is of the machine's, which is measured beside it, and what the network takes. The operations are those
 * of the symbols' least values: with others given they are not known. */
static void print_shares(struct session *s, double ns, size_t ctx_bytes, const char *library)
{
    struct strbuf text;
    struct stat st;
    double flops = 0;
    strbuf_init(&text, &s->ctx->session);
    for (uint32_t i = 0; i < s->api->n_node; i++)
        flops += (double)s->api->node[i].flops;
    strbuf_printf(&text, "%s: ", s->ctx->model_path);
    if (!s->options->dims.items.n && !s->options->feeds.items.n && flops > 0 && ns > 0) {
        struct calibration c;
        calibrate_flops(&c, s->options->threads ? (uint32_t)s->options->threads : cpu_usable());
        strbuf_printf(&text, "%.2f GFLOP/s, %.1f%% of the %.1f that %u thread%s reach; ", flops / ns,
                      c.flops_best > 0 ? 100 * flops / ns / c.flops_best : 0, c.flops_best, c.threads,
                      c.threads == 1 ? "" : "s");
    }
    strbuf_printf(&text, "memory %zu bytes beside the file's %lld\n", ctx_bytes,
                  stat(library, &st) == 0 ? (long long)st.st_size : 0LL);
    terminal_print(&text);
}

static void print_times(struct session *s, double *ns, uint32_t n, size_t ctx_bytes)
{
    struct strbuf text;
    strbuf_init(&text, &s->ctx->session);
    qsort(ns, n, sizeof *ns, by_number);
    strbuf_printf(&text, "%s: %u runs, median %.4f ms, p10 %.4f ms, p90 %.4f ms, least %.4f ms, workspace %zu bytes\n",
                  s->ctx->model_path, n, ns[n / 2] / 1e6, ns[n / 10] / 1e6, ns[n - 1 - n / 10] / 1e6, ns[0] / 1e6,
                  ctx_bytes);
    terminal_print(&text);
}

double profile_turns(const struct session *s, const struct profile *p, const struct kernel_time *k)
{
    uint32_t kernels = s->api->node[k->node].kernels;
    return (double)k->calls / p->runs / (kernels ? kernels : 1);
}

static void print_kernels(struct session *s, struct profile *p)
{
    struct strbuf text;
    double total = 0, rest = 0, lost = 0;
    bool shared = p->chunks.threads > 1;
    uint32_t shown = s->options->all ? p->n : ROWS_MAX, left = 0;
    strbuf_init(&text, &s->ctx->session);
    qsort(p->nodes, p->n, sizeof *p->nodes, by_time);
    for (uint32_t i = 0; i < p->n; i++) {
        total += p->nodes[i].ns;
        lost += p->nodes[i].ns * chunks_idle(&p->chunks, p->nodes[i].node, p->nodes[i].all);
    }
    strbuf_printf(&text, "%10s %6s %9s %9s %6s%s  %s\n", "us/run", "share", "GFLOP/s", "GB/s", "calls",
                  shared ? "  waits" : "", "source nodes");
    for (uint32_t i = 0; i < p->n; i++) {
        const struct kernel_time *k = &p->nodes[i];
        if (!k->calls)
            continue;
        if (shown == 0) {
            left++;
            rest += k->ns;
            continue;
        }
        shown--;
        const mcc_node *node = &s->api->node[k->node];
        double each = k->ns / profile_turns(s, p, k);
        strbuf_printf(&text, "%10.2f %5.1f%% %9.2f %9.2f %6.0f  ", k->ns / 1e3, total > 0 ? 100 * k->ns / total : 0,
                      each > 0 ? (double)node->flops / each : 0, each > 0 ? (double)node->bytes / each : 0,
                      (double)k->calls / p->runs);
        if (shared)
            strbuf_printf(&text, "%4.0f%%  ", 100 * chunks_idle(&p->chunks, k->node, k->all));
        node_describe(s->api, node, &text);
        strbuf_printf(&text, "\n");
    }
    if (left)
        strbuf_printf(&text, "%10.2f %5.1f%%  %u more (--all shows them)\n", rest / 1e3,
                      total > 0 ? 100 * rest / total : 0, left);
    strbuf_printf(&text, "%10.2f %5.1f%%  all kernels\n", total / 1e3, 100.0);
    if (shared)
        strbuf_printf(&text, "%10.2f %5.1f%%  of them lost: a thread without work, of %u\n", lost / 1e3,
                      total > 0 ? 100 * lost / total : 0, p->chunks.threads);
    terminal_print(&text);
}

/* How often to run: --runs, or for AUTO_NS as the first runs say. 0 after a diagnostic. */
static uint32_t count_runs(struct session *s, DLTensor **out, DLManagedTensorVersioned **managed)
{
    double start = now_ns();
    for (int i = 0; i < WARM_UP; i++)
        if (!run_once(s, out, managed))
            return 0;
    double each = (now_ns() - start) / WARM_UP, fit = AUTO_NS / (each > 1 ? each : 1);
    if (s->options->runs)
        return (uint32_t)s->options->runs;
    return fit < RUNS_LEAST ? RUNS_LEAST : fit > RUNS_MOST ? RUNS_MOST : (uint32_t)fit;
}

static bool bench(struct session *s, struct profile *p, bool inside, const char *library)
{
    size_t ctx_bytes = 0;
    DLTensor **out = outputs_plan(s, &ctx_bytes);
    if (s->ctx->fail != FAIL_NONE)
        return false;
    DLManagedTensorVersioned **managed = NEW_ARRAY(&s->ctx->session, DLManagedTensorVersioned *, s->api->n_out + 1);
    uint32_t n = count_runs(s, out, managed);
    if (!n)
        return false;
    if (inside)
        n = n < SAMPLES_MAX ? n : SAMPLES_MAX;
    double *ns = NEW_ARRAY(&s->ctx->session, double, n);
    profile_open(s, p, inside ? n : 1);
    for (uint32_t i = 0; i < n; i++) {
        chunks_begin(&p->chunks);
        double start = now_ns();
        if (!run_once(s, out, managed))
            return false;
        ns[i] = now_ns() - start;
        if (inside)
            profile_run(p, i);
    }
    if (!inside) {
        print_times(s, ns, n, ctx_bytes);
        print_shares(s, ns[n / 2], ctx_bytes, library);
        return true;
    }
    profile_close(p);
    if (s->options->profile && !profile_write(s, p, s->options->profile))
        return false;
    if (s->options->trace && !chunks_write(s, &p->chunks, s->options->trace))
        return false;
    if (!s->options->roofline) {
        print_kernels(s, p);
        return true;
    }
    struct calibration c;
    calibrate(&c, (uint32_t)s->options->threads);
    calibration_print(s->ctx, &c);
    roofline_print(s, p, &c);
    return true;
}

/* An output can be written and would not replace the artifact. */
static bool beside_ok(struct context *ctx, const struct options *o, const char *path)
{
    struct file_list read = {0};
    VEC_PUSH(&ctx->session, &read.paths, o->files.items.data[0]);
    return output_check(ctx, path) && output_differs(ctx, path, &read, NULL);
}

struct benching {
    struct context *ctx;
    struct options *options;
    struct profile profile;
    struct session s;
};

/* First without looking inside, then with the event callback. */
static void bench_library(void *user, const char *library)
{
    struct benching *b = user;
    struct context *ctx = b->ctx;
    const struct options *o = b->options;
    struct profile *profile = &b->profile;
    uint32_t threads = o->threads ? (uint32_t)o->threads : cpu_usable();
    for (int inside = 0; inside < 2 && ctx->fail == FAIL_NONE; inside++) {
        mcc_host host = {
            .size = sizeof host,
            .user = profile,
            .threads = (uint32_t)o->threads,
            .flags = (uint32_t)o->variant,
            .event = inside ? on_event : NULL,
            .chunk = inside && (threads > 1 || o->trace) ? on_chunk : NULL,
        };
        if (session_open(&b->s, ctx, o, library, &host)) {
            ctx->model_path = o->files.items.data[0];
            if (session_feed(&b->s, true)) {
                profile->n = b->s.api->n_node;
                profile->nodes = NEW_ARRAY(&ctx->session, struct kernel_time, profile->n + 1);
                if (host.chunk)
                    chunks_open(&ctx->session, &profile->chunks, threads, profile->n, o->trace);
                (void)bench(&b->s, profile, inside, library);
            }
        }
        session_close(&b->s);
    }
}

static void bench_end(void *user)
{
    session_close(&((struct benching *)user)->s);
}

enum fail command_bench(struct context *ctx, struct options *o)
{
    struct benching *b = NEW(&ctx->session, struct benching);
    *b = (struct benching){.ctx = ctx, .options = o};
    if (o->calibrate) {
        struct calibration c;
        (o->roofline ? calibrate : calibrate_flops)(&c, (uint32_t)o->threads);
        calibration_print(ctx, &c);
        return ctx->fail;
    }
    if (o->roofline && !o->threads)
        o->threads = 1;
    if ((o->profile && !beside_ok(ctx, o, o->profile)) || (o->trace && !beside_ok(ctx, o, o->trace)))
        return ctx->fail;
    return with_library(ctx, o, bench_library, bench_end, b);
}

/* What a network takes: first whole runs, without looking inside; then again with the event callback, kernel by kernel.
 * Inputs that are not given are drawn. mcc bench prints it, mcc report draws it. */
#include <sys/stat.h>

#include "cli/commands/artifact/artifact.h"
#include "cli/commands/bench/bench.h"
#include "cli/library/options/cpu.h"

enum { RUNS_LEAST = 10, RUNS_MOST = 100000, WARM_UP = 3 };
#define AUTO_NS 2000000000.0 /* two seconds of timed runs when --runs is not given */

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

static void on_launch(void *user, uint32_t node, uint32_t kernel, int64_t count, int64_t ns)
{
    struct profile *p = user;
    (void)node, (void)count, (void)ns;
    if (kernel < p->n_launched)
        p->launched[kernel] = true;
}

ASCENDING_NUMBERS(by_number, double);

DESCENDING(by_time, struct kernel_time, ns);

ASCENDING_NUMBERS(by_sample, float);

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
        struct file_tensor b = {.elem = elem_by_dlpack(port->dtype), .rank = port->ndim};
        if (port->flags || port->ndim < 0 || port->ndim > RANK_MAX || b.elem == ELEM_NONE)
            return NULL;
        memcpy(b.dims, shape[i], sizeof *shape[i] * (size_t)port->ndim);
        if (!file_tensor_alloc(s->ctx, &b))
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

/* How often to run: --runs, or for AUTO_NS as the first runs say. 0 after a diagnostic. */
static uint32_t count_runs(struct session *s, DLTensor **out, DLManagedTensorVersioned **managed)
{
    double start = time_now() * 1e9;
    for (int i = 0; i < WARM_UP; i++)
        if (!session_reset(s) || !run_once(s, out, managed))
            return 0;
    double each = (time_now() * 1e9 - start) / WARM_UP, fit = AUTO_NS / (each > 1 ? each : 1);
    if (s->options->runs)
        return (uint32_t)s->options->runs;
    return fit < RUNS_LEAST ? RUNS_LEAST : fit > RUNS_MOST ? RUNS_MOST : (uint32_t)fit;
}

/* Its runs: of whole networks, or, inside, of kernels told apart. */
static bool time_runs(struct measure *m, bool inside)
{
    struct session *s = &m->s;
    struct profile *p = &m->profile;
    DLTensor **out = outputs_plan(s, &m->workspace);
    if (s->ctx->fail != FAIL_NONE)
        return false;
    DLManagedTensorVersioned **managed = NEW_ARRAY(&s->ctx->session, DLManagedTensorVersioned *, s->api->n_out + 1);
    uint32_t n = count_runs(s, out, managed);
    if (!n)
        return false;
    if (inside)
        n = n < SAMPLES_MAX ? n : SAMPLES_MAX;
    double *ns = NEW_ARRAY(&s->ctx->session, double, n);
    if (inside)
        profile_open(s, p, n);
    for (uint32_t i = 0; i < n; i++) {
        chunks_begin(&p->chunks);
        if (!session_reset(s))
            return false;
        double start = time_now() * 1e9;
        if (!run_once(s, out, managed))
            return false;
        ns[i] = time_now() * 1e9 - start;
        if (inside)
            profile_run(p, i);
    }
    if (inside) {
        profile_close(p);
        return true;
    }
    qsort(ns, n, sizeof *ns, by_number);
    m->ns = ns;
    m->runs = n;
    return true;
}

/* Do the inputs have the sizes that operations and bytes were counted for? */
static bool sizes_are_counted(struct measure *m)
{
    struct session *s = &m->s;
    int64_t *symbols = NEW_ARRAY(&m->ctx->session, int64_t, s->api->n_sym + 1);
    bool same = session_symbols(s, symbols);
    for (uint32_t i = 0; !m->by_dims && i < s->api->n_sym; i++)
        symbols[i] = symbol_least(&s->api->sym[i]);
    for (uint32_t i = 0; same && i < s->api->n_in; i++)
        for (int32_t d = 0; d < s->api->in[i].ndim; d++) {
            const mcc_dim *dim = &s->api->in[i].dims[d];
            if (dim->extent == -1 && dim->symbol >= 0)
                same = same && s->in[i].dims[d] == symbols[dim->symbol];
        }
    return same;
}

/* What the kernels that ran compute in, as the artifact's table has it. */
static void note_arithmetic(struct profile *p, const struct mcc_rt_desc *desc)
{
    for (uint32_t i = 0; i < desc->n_kernels; i++) {
        const struct mcc_rt_kernel *k = &desc->kernels[i];
        if (p->launched[i] && k->node < p->n && k->arithmetic < PRODUCTS)
            p->nodes[k->node].flops[k->arithmetic] += (double)k->flops;
    }
}

bool measure(struct measure *m, const char *library)
{
    struct context *ctx = m->ctx;
    const struct options *o = m->options;
    struct profile *profile = &m->profile;
    uint32_t threads = o->threads ? (uint32_t)o->threads : cpu_usable();
    struct artifact_file *file = NEW(&ctx->session, struct artifact_file);
    m->library = library;
    struct diag_mark mark = diag_mark(ctx);
    if (!artifact_read(ctx, library, false, file)) /* of an earlier mcc */
        diag_drop(ctx, &mark);
    profile->n_launched = file->desc.n_kernels;
    profile->launched = NEW_ARRAY(&ctx->session, bool, profile->n_launched + 1);
    for (int inside = 0; inside < 2; inside++) {
        mcc_host host = {
            .size = sizeof host,
            .user = profile,
            .threads = (uint32_t)o->threads,
            .flags = (uint32_t)o->variant,
            .event = inside ? on_event : NULL,
            .launch = inside ? on_launch : NULL,
            .chunk = inside && (threads > 1 || o->trace) ? on_chunk : NULL,
        };
        session_close(&m->s);
        if (!session_open(&m->s, ctx, o, library, &host))
            return false;
        ctx->model_path = o->files.items.data[0];
        if (!session_feed(&m->s, true))
            return false;
        m->counted = sizes_are_counted(m);
        profile->n = m->s.api->n_node;
        profile->nodes = NEW_ARRAY(&ctx->session, struct kernel_time, profile->n + 1);
        if (host.chunk)
            chunks_open(&ctx->session, &profile->chunks, threads, profile->n, o->trace);
        if (!time_runs(m, inside))
            return false;
    }
    note_arithmetic(profile, &file->desc);
    return true;
}

void measure_end(void *user)
{
    session_close(&((struct measure *)user)->s);
}

uint64_t measure_flops(const struct measure *m)
{
    uint64_t flops = 0;
    if (!m->counted)
        return 0;
    for (uint32_t i = 0; i < m->s.api->n_node; i++)
        flops += m->s.api->node[i].flops;
    return flops;
}

enum products kernel_arithmetic(const struct kernel_time *k)
{
    enum products most = PRODUCTS_NONE;
    for (enum products a = most; a < PRODUCTS; a++)
        most = k->flops[a] > k->flops[most] ? a : most;
    return most;
}

double measure_peak_ns(const struct measure *m, const struct kernel_time *k, const struct calibration *c)
{
    double all = 0, ns = 0;
    for (enum products a = PRODUCTS_F32; a < PRODUCTS; a++)
        if (c->peak[a] > 0) {
            all += k->flops[a];
            ns += k->flops[a] / c->peak[a];
        }
    /* those of a version are counted for other sizes than the node's, which are the run's */
    return m->counted && all > 0 ? ns / all * (double)m->s.api->node[k->node].flops : 0;
}

uint64_t measure_file_bytes(const struct measure *m)
{
    struct stat st;
    return stat(m->library, &st) == 0 ? (uint64_t)st.st_size : 0;
}

double profile_turns(const struct session *s, const struct profile *p, const struct kernel_time *k)
{
    uint64_t kernels = s->api->node[k->node].kernels;
    return (double)k->calls / p->runs / (double)(kernels ? kernels : 1);
}

void profile_sort(struct profile *p)
{
    qsort(p->nodes, p->n, sizeof *p->nodes, by_time);
}

/* mcc bench: times an artifact, or a network that is compiled for it (measure.c), and prints whole runs and the table
 * of kernels or, with --roofline, what they lose against the limits of the machine. */

#include "cli/commands/command.h"
#include "cli/commands/bench/bench.h"
#include "cli/commands/temporary.h"
#include "cli/library/options/cpu.h"

enum { ROWS_MAX = 40 };

/* What the time is of the machine's, which was measured now, and what the network takes. */
static void print_shares(const struct measure *m, const struct calibration *c)
{
    const struct session *s = &m->s;
    double flops = (double)measure_flops(m), ns = m->ns[m->runs / 2], known = 0, peak = 0;
    struct strbuf text = strbuf_of(&s->ctx->session);
    strbuf_printf(&text, "%s: ", s->ctx->model_path);
    for (uint32_t i = 0; i < m->profile.n; i++) {
        double each = measure_peak_ns(m, &m->profile.nodes[i], c);
        known += each > 0 ? (double)s->api->node[i].flops : 0;
        peak += each;
    }
    if (flops > 0 && ns > 0)
        strbuf_printf(&text, "%.2f GFLOP/s, %.1f%% of the %.1f that %u thread%s reach; ", flops / ns, 100 * peak / ns,
                      peak > 0 ? known / peak : 0, c->threads, c->threads == 1 ? "" : "s");
    strbuf_printf(&text, "memory %zu bytes, and the file's %llu\n", m->workspace,
                  (unsigned long long)measure_file_bytes(m));
    terminal_print(&text);
}

static void print_times(const struct measure *m)
{
    const double *ns = m->ns;
    uint32_t n = m->runs;
    struct strbuf text = strbuf_of(&m->ctx->session);
    strbuf_printf(&text, "%s: %u runs, median %.4f ms, p10 %.4f ms, p90 %.4f ms, least %.4f ms, workspace %zu bytes\n",
                  m->ctx->model_path, n, ns[n / 2] / 1e6, ns[n / 10] / 1e6, ns[n - 1 - n / 10] / 1e6, ns[0] / 1e6,
                  m->workspace);
    terminal_print(&text);
}

/* amount / ns; "-" where no amount is known for these sizes. */
static void put_rate(struct strbuf *out, bool known, uint64_t amount, double ns)
{
    if (known)
        strbuf_printf(out, " %9.2f", ns > 0 ? (double)amount / ns : 0);
    else
        strbuf_printf(out, " %9s", "-");
}

/* Per cent of the peak of the kernel's arithmetic. */
static void put_peak(struct strbuf *out, const struct kernel_time *k, double part)
{
    if (part > 0)
        strbuf_printf(out, " %5.0f%% %-10s", part, products_names[kernel_arithmetic(k)]);
    else
        strbuf_printf(out, " %6s %-10s", "-", "");
}

static void print_kernels(struct measure *m, const struct calibration *c)
{
    struct session *s = &m->s;
    struct profile *p = &m->profile;
    double total = 0, rest = 0, lost = 0;
    bool shared = p->chunks.threads > 1;
    uint32_t shown = s->options->all ? p->n : ROWS_MAX, left = 0;
    struct strbuf text = strbuf_of(&s->ctx->session);
    profile_sort(p);
    for (uint32_t i = 0; i < p->n; i++) {
        total += p->nodes[i].ns;
        lost += p->nodes[i].ns * chunks_idle(&p->chunks, p->nodes[i].node, p->nodes[i].all);
    }
    strbuf_printf(&text, "%10s %6s %9s %6s %-10s %9s %6s%s  %s\n", "us/run", "share", "GFLOP/s", "% peak", "of", "GB/s",
                  "calls", shared ? "  waits" : "", "source nodes");
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
        strbuf_printf(&text, "%10.2f %5.1f%%", k->ns / 1e3, total > 0 ? 100 * k->ns / total : 0);
        put_rate(&text, m->counted, node->flops, each);
        put_peak(&text, k, 100 * measure_peak_ns(m, k, c) / (each > 0 ? each : 1));
        put_rate(&text, m->counted, node->bytes, each);
        strbuf_printf(&text, " %6.0f  ", (double)k->calls / p->runs);
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

bool beside_ok(struct context *ctx, const struct options *o, const char *path)
{
    struct file_list read = {0};
    VEC_PUSH(&ctx->session, &read.paths, o->files.items.data[0]);
    return output_check(ctx, path) && output_differs(ctx, path, &read, NULL);
}

static void bench_print(struct measure *m)
{
    const struct options *o = m->options;
    struct calibration c;
    print_times(m);
    (o->roofline ? calibrate : calibrate_flops)(&c, o->threads ? (uint32_t)o->threads : cpu_usable());
    print_shares(m, &c);
    if (!o->roofline) {
        print_kernels(m, &c);
        return;
    }
    if (!roofline_known(m))
        return;
    calibration_print(m->ctx, &c);
    roofline_print(m, &c);
}

static void bench_library(void *user, const char *library, struct compilation *c)
{
    struct measure *m = user;
    const struct options *o = m->options;
    m->by_dims = c != NULL;
    if (!measure(m, library) || (o->profile && !profile_write(&m->s, &m->profile, o->profile)) ||
        (o->trace && !chunks_write(&m->s, &m->profile.chunks, o->trace)))
        return;
    if (o->document && (!o->roofline || roofline_known(m)))
        measure_json(m, NULL, o->roofline, &o->document->result);
    else if (!o->document)
        bench_print(m);
}

enum fail command_bench(struct context *ctx, struct options *o)
{
    struct measure *m = NEW(&ctx->session, struct measure);
    *m = (struct measure){.ctx = ctx, .options = o};
    if (o->calibrate) {
        struct calibration c = {0};
        (o->roofline ? calibrate : calibrate_flops)(&c, (uint32_t)o->threads);
        if (o->document)
            calibration_json(&c, NULL, &o->document->result);
        else
            calibration_print(ctx, &c);
        return ctx->fail;
    }
    if (o->roofline && !o->threads)
        o->threads = 1;
    if ((o->profile && !beside_ok(ctx, o, o->profile)) || (o->trace && !beside_ok(ctx, o, o->trace)))
        return ctx->fail;
    return with_library(ctx, o, true, bench_library, measure_end, m);
}

/* mcc bench --roofline: how far every kernel is from what the machine could do. The limit of a kernel is the longer of
 * its multiply-adds at the measured peak of their arithmetic and its bytes, each counted once, at the measured rate of
 * the smallest level of the memory that holds them; so above 100 % only means that data stayed nearer than its size
 * says. */

#include "cli/commands/bench/bench.h"
#include "cli/commands/command.h"

struct row {
    const struct kernel_time *k;
    double limit;
    int memory;
};

static int by_loss(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    double lost_x = x->k->ns - x->limit, lost_y = y->k->ns - y->limit;
    return (lost_x < lost_y) - (lost_x > lost_y);
}

void calibration_print(struct context *ctx, const struct calibration *c)
{
    struct strbuf text = strbuf_of(&ctx->session);
    strbuf_printf(&text, "threads %u\nflops %.1f GFLOP/s\nflops-best %.1f GFLOP/s\n", c->threads, c->flops,
                  c->peak[PRODUCTS_F32]);
    for (enum products a = PRODUCTS_F32 + 1; a < PRODUCTS; a++)
        if (c->peak[a] > 0)
            strbuf_printf(&text, "flops-%s %.1f GFLOP/s\n", products_names[a], c->peak[a]);
    if (c->threads > 1)
        strbuf_printf(&text, "round-trip %.0f ns\n", c->round_trip);
    for (int i = 0; i < CALIBRATE_LEVELS && c->level_read[i] > 0; i++)
        strbuf_printf(&text, "read-%lluK %.1f GB/s\n", (unsigned long long)c->level_bytes[i] >> 10, c->level_read[i]);
    terminal_print(&text);
}

bool roofline_known(const struct measure *m)
{
    return m->counted ||
           error_usage(m->ctx, "'roofline': the operations of compiled code are counted for the least sizes only; "
                               "give the network instead, with the sizes as --dim");
}

void roofline_print(struct measure *m, const struct calibration *c)
{
    struct session *s = &m->s;
    struct profile *p = &m->profile;
    struct row *row = NEW_ARRAY(&s->ctx->session, struct row, p->n + 1);
    uint32_t n = 0;
    double total = 0, limits = 0;
    struct strbuf text = strbuf_of(&s->ctx->session);
    for (uint32_t i = 0; i < p->n; i++) {
        const struct kernel_time *k = &p->nodes[i];
        const mcc_node *node = &s->api->node[k->node];
        if (!k->calls)
            continue;
        row[n].k = k;
        row[n].limit = profile_turns(s, p, k) *
                       calibration_limit(c, measure_peak_ns(m, k, c), node->bytes, &row[n].memory);
        total += k->ns;
        limits += row[n++].limit;
    }
    qsort(row, n, sizeof *row, by_loss);
    strbuf_printf(&text, "%10s %10s %6s %9s %9s %7s %-6s %6s  %s\n", "us/run", "lost us", "share", "GFLOP/s", "GB/s",
                  "% limit", "limit", "calls", "source nodes");
    for (uint32_t i = 0; i < n; i++) {
        const struct kernel_time *k = row[i].k;
        const mcc_node *node = &s->api->node[k->node];
        double ns = k->ns > 0 ? k->ns : 1, each = ns / profile_turns(s, p, k);
        strbuf_printf(&text, "%10.2f %10.2f %5.1f%% %9.2f %9.2f %6.0f%% %-6s %6.0f  ", k->ns / 1e3,
                      (k->ns - row[i].limit) / 1e3, total > 0 ? 100 * k->ns / total : 0, (double)node->flops / each,
                      (double)node->bytes / each, 100 * row[i].limit / ns, row[i].memory ? "memory" : "fma",
                      (double)k->calls / p->runs);
        node_describe(s->api, node, &text);
        strbuf_printf(&text, "\n");
    }
    strbuf_printf(&text, "%10.2f %10.2f %5.1f%% %27.0f%%  all kernels\n", total / 1e3, (total - limits) / 1e3, 100.0,
                  total > 0 ? 100 * limits / total : 0);
    terminal_print(&text);
}

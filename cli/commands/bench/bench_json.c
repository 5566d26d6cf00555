/* What mcc bench measures as JSON (docs/json.md), for --json and for mcc report. */
#include <math.h>

#include "cli/commands/bench/bench.h"
#include "cli/library/options/cpu.h"

void calibration_json(const struct calibration *c, const char *key, struct json *j)
{
    JSON_GROUP(j, key, "{", j_uint("threads", c->threads), j_real("gflops", c->flops),
               j_real("gflops_best", c->peak[PRODUCTS_F32]));
    json_open(j, "peaks", '{');
    for (enum products a = PRODUCTS_F32; a < PRODUCTS; a++)
        if (c->peak[a] > 0)
            json_real(j, products_names[a], c->peak[a]);
    json_close(j, "}");
    if (c->threads > 1)
        json_real(j, "round_trip_ns", c->round_trip);
    json_open(j, "reads", '[');
    for (int i = 0; i < CALIBRATE_LEVELS && c->level_read[i] > 0; i++)
        JSON_GROUP(j, NULL, "{}", j_uint("bytes", c->level_bytes[i]), j_real("gb_per_s", c->level_read[i]));
    json_close(j, "]}");
}

static void put_kernel(const struct measure *m, const struct kernel_time *k, const struct calibration *c, bool roofline,
                       struct json *j)
{
    const struct profile *p = &m->profile;
    const mcc_node *node = &m->s.api->node[k->node];
    double turns = profile_turns(&m->s, p, k), peak = measure_peak_ns(m, k, c);
    JSON_GROUP(j, NULL, "{", j_uint("node", k->node), j_text("name", node->name), j_text("operator", node->op));
    json_open(j, "nodes", '[');
    for (const mcc_node *i = node;; i = &m->s.api->node[i->next]) {
        JSON_GROUP(j, NULL, "{}", j_text("name", i->name), j_text("operator", i->op));
        if (!i->next)
            break;
    }
    json_close(j, "]");
    JSON_ADD(j, j_real("ns", k->ns), j_real("calls", (double)k->calls / p->runs),
             j_real("flops", m->counted ? (double)node->flops * turns : NAN),
             j_real("bytes", m->counted ? (double)node->bytes * turns : NAN),
             j_text("arithmetic", products_names[kernel_arithmetic(k)]),
             j_real("peak", peak <= 0   ? NAN
                            : k->ns > 0 ? turns * peak / k->ns
                                        : 0));
    if (p->chunks.threads > 1)
        json_real(j, "waits", chunks_idle(&p->chunks, k->node, k->all));
    if (roofline && m->counted) {
        int memory;
        JSON_ADD(j, j_real("limit_ns", turns * calibration_limit(c, peak, node->bytes, &memory)),
                 j_text("limited_by", memory ? "memory" : "fma"));
    }
    json_close(j, "}");
}

void measure_json(struct measure *m, const char *key, bool roofline, struct json *j)
{
    const double *ns = m->ns;
    uint32_t n = m->runs;
    uint64_t flops = measure_flops(m);
    struct calibration c = {0};
    (roofline ? calibrate : calibrate_flops)(&c, m->options->threads ? (uint32_t)m->options->threads : cpu_usable());
    JSON_GROUP(j, key, "{", j_uint("runs", n), j_real("median_ns", ns[n / 2]), j_real("p10_ns", ns[n / 10]),
               j_real("p90_ns", ns[n - 1 - n / 10]), j_real("least_ns", ns[0]), j_uint("workspace_bytes", m->workspace),
               j_uint("file_bytes", measure_file_bytes(m)), j_known("flops", flops, flops));
    calibration_json(&c, "machine", j);
    profile_sort(&m->profile);
    json_open(j, "kernels", '[');
    for (uint32_t i = 0; i < m->profile.n; i++)
        if (m->profile.nodes[i].calls)
            put_kernel(m, &m->profile.nodes[i], &c, roofline, j);
    json_close(j, "]}");
}

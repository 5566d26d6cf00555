/* mcc bench -t N: chunks of kernels by thread. */
#include "cli/commands/bench/chunks.h"

#include "cli/library/compile/compile.h"

enum { CHUNKS_MOST = 1 << 16 };      /* of one thread in one run: 1.5 MB */

void chunks_open(struct arena *arena, struct chunks *c, uint32_t threads, uint32_t nodes, bool keep)
{
    *c = (struct chunks){threads, nodes, NEW_ARRAY(arena, struct thread_chunks, threads)};
    for (uint32_t t = 0; t < threads; t++) {
        c->of[t].busy = NEW_ARRAY(arena, double, nodes + 1);
        c->of[t].last = keep ? NEW_ARRAY(arena, struct chunk, CHUNKS_MOST) : NULL;
    }
}

void chunks_add(struct chunks *c, uint32_t node, uint32_t thread, uint64_t from, uint64_t to)
{
    if (thread >= c->threads || node >= c->nodes)
        return;
    struct thread_chunks *of = &c->of[thread];
    of->busy[node] += (double)(to - from);
    if (of->last && of->n < CHUNKS_MOST)
        of->last[of->n++] = (struct chunk){node, from, to};
    else
        of->lost++;
}

void chunks_begin(struct chunks *c)
{
    for (uint32_t t = 0; t < c->threads; t++)
        c->of[t].n = c->of[t].lost = 0;
}

double chunks_idle(const struct chunks *c, uint32_t node, double ns)
{
    double busy = 0, all = ns * c->threads;
    for (uint32_t t = 0; t < c->threads; t++)
        busy += c->of[t].busy[node];
    return all > 0 && busy < all ? 1 - busy / all : 0;
}

bool chunks_write(struct session *s, const struct chunks *c, const char *path)
{
    struct strbuf out = strbuf_of(&s->ctx->session);
    struct json j = {.out = &out};
    uint64_t begin = UINT64_MAX;
    uint32_t lost = 0;
    for (uint32_t t = 0; t < c->threads; t++) {
        lost += c->of[t].lost;
        if (c->of[t].n && c->of[t].last[0].from < begin)
            begin = c->of[t].last[0].from;
    }
    if (lost)
        warn_at(s->ctx, (src_id){0}, NULL,
                "%u parts of kernels, beyond the first %d of each thread, are not in the trace", lost, CHUNKS_MOST);
    trace_open(&j, s->api->name);
    for (uint32_t t = 0; t < c->threads; t++)
        for (uint32_t i = 0; i < c->of[t].n; i++) {
            const struct chunk *one = &c->of[t].last[i];
            const mcc_node *node = &s->api->node[one->node];
            trace_event(&j, t, node->name, node->op, (double)(one->from - begin) / 1e3,
                        (double)(one->to - one->from) / 1e3);
        }
    trace_close(&j, "ns");
    return output_write(s->ctx, path, out.data, out.n);
}

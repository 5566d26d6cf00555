/* mcc inspect --threads: which kernels keep so many threads from being so many times as fast. The network runs once, so
 * that its launches are those of the shapes and, in loops and branches, of the data; their times are the kernels'
 * estimates. */

#include "cli/commands/command.h"
#include "cli/commands/artifact/bound.h"
#include "cli/commands/inspect/inspect.h"

enum { LAUNCHES_MOST = 1 << 20, KERNELS_SHOWN = 40 };

struct launch {
    uint32_t node, kernel;
    int64_t count, ns;
};
/* What the runtime told; `launches` counts those beyond the room, too. */
struct launches {
    uint32_t n, room;
    struct launch *of;
};
/* A kernel's launches together. */
struct limit {
    struct launch launch; /* the last one */
    uint32_t launches;
    double ns[BOUND_COUNTS_MAX], alone;
    double lost; /* against a fair share of each of the most threads */
};

static void on_launch(void *user, uint32_t node, uint32_t kernel, int64_t count, int64_t ns)
{
    struct launches *l = user;
    if (l->n < l->room)
        l->of[l->n] = (struct launch){node, kernel, count, ns};
    if (l->n < UINT32_MAX)
        l->n++;
}

ASCENDING(by_kernel, struct launch, kernel);

static int by_loss(const void *a, const void *b)
{
    const struct limit *x = a, *y = b;
    return x->lost != y->lost ? (x->lost < y->lost) - (x->lost > y->lost)
                              : (x->launch.kernel > y->launch.kernel) - (x->launch.kernel < y->launch.kernel);
}

struct table {
    uint32_t counts, threads[BOUND_COUNTS_MAX], n;
    struct limit *of;
    double alone, ns[BOUND_COUNTS_MAX];
};

static void table_make(struct arena *arena, const struct launches *l, struct table *t)
{
    uint32_t n = l->n < l->room ? l->n : l->room;
    qsort(l->of, n, sizeof *l->of, by_kernel);
    t->of = NEW_ARRAY(arena, struct limit, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        const struct launch *one = &l->of[i];
        if (t->n == 0 || t->of[t->n - 1].launch.kernel != one->kernel)
            t->n++;
        struct limit *k = &t->of[t->n - 1];
        k->launch = *one;
        k->launches++;
        k->alone += bound_launch(one->count, one->ns, 1);
        for (uint32_t c = 0; c < t->counts; c++)
            k->ns[c] += bound_launch(one->count, one->ns, t->threads[c]);
    }
    for (uint32_t i = 0; i < t->n; i++) {
        struct limit *k = &t->of[i];
        k->lost = k->ns[t->counts - 1] - k->alone / t->threads[t->counts - 1];
        t->alone += k->alone;
        for (uint32_t c = 0; c < t->counts; c++)
            t->ns[c] += k->ns[c];
    }
    qsort(t->of, t->n, sizeof *t->of, by_loss);
}

static void print_row(struct strbuf *out, double alone, const double *ns, uint32_t counts)
{
    strbuf_printf(out, "%10.2f", alone / 1e3);
    for (uint32_t c = 0; c < counts; c++)
        strbuf_printf(out, " %6.2f", ns[c] > 0 ? alone / ns[c] : 1);
}

static void table_print(const struct session *s, const struct table *t, struct strbuf *out)
{
    uint32_t most = t->threads[t->counts - 1], shown = s->options->all ? t->n : KERNELS_SHOWN;
    double fair = t->alone / most, all = t->ns[t->counts - 1] - fair;
    strbuf_printf(out, "%10s", "us alone");
    for (uint32_t c = 0; c < t->counts; c++)
        strbuf_printf(out, " %5ux", t->threads[c]);
    strbuf_printf(out, " %6s %8s %10s  %s\n", "lost", "indices", "ns each", "source nodes");
    print_row(out, t->alone, t->ns, t->counts);
    strbuf_printf(out, " %5.1f%% %8s %10s  all kernels: what is lost at %u threads, as a part of their time\n",
                  t->ns[t->counts - 1] > 0 ? 100 * all / t->ns[t->counts - 1] : 0, "", "", most);
    for (uint32_t i = 0; i < t->n && i < shown; i++) {
        const struct limit *k = &t->of[i];
        print_row(out, k->alone, k->ns, t->counts);
        strbuf_printf(out, " %5.1f%% %8lld %10lld  ",
                      t->ns[t->counts - 1] > 0 ? 100 * k->lost / t->ns[t->counts - 1] : 0, (long long)k->launch.count,
                      (long long)k->launch.ns);
        node_describe(s->api, &s->api->node[k->launch.node], out);
        strbuf_printf(out, k->launches > 1 ? ", %u launches\n" : "\n", k->launches);
    }
    if (t->n > shown)
        strbuf_printf(out, "%u more (--all shows them)\n", t->n - shown);
}

static void put_json(const struct session *s, const struct table *t, struct json *j)
{
    JSON_GROUP(j, NULL, "{", j_text("kind", "threads"));
    json_open(j, "threads", '[');
    for (uint32_t c = 0; c < t->counts; c++)
        json_uint(j, NULL, t->threads[c]);
    json_close(j, "]");
    json_real(j, "alone_ns", t->alone);
    json_open(j, "ns", '[');
    for (uint32_t c = 0; c < t->counts; c++)
        json_real(j, NULL, t->ns[c]);
    json_close(j, "]");
    json_open(j, "kernels", '[');
    for (uint32_t i = 0; i < t->n; i++) {
        const struct limit *k = &t->of[i];
        JSON_GROUP(j, NULL, "{", j_uint("kernel", k->launch.kernel), j_uint("node", k->launch.node),
                   j_text("name", s->api->node[k->launch.node].name), j_uint("launches", k->launches),
                   j_int("indices", k->launch.count), j_int("ns_each", k->launch.ns), j_real("alone_ns", k->alone));
        json_open(j, "ns", '[');
        for (uint32_t c = 0; c < t->counts; c++)
            json_real(j, NULL, k->ns[c]);
        json_close(j, "]}");
    }
    json_close(j, "]}");
}

static bool run_once(struct session *s)
{
    DLManagedTensorVersioned **out = NEW_ARRAY(&s->ctx->session, DLManagedTensorVersioned *, s->api->n_out + 1);
    if (!session_feed(s, true))
        return false;
    if (s->api->run_dlpack(s->run, s->in_pointer, out, &s->error) != MCC_OK)
        return session_error(s, "run");
    for (uint32_t i = 0; i < s->api->n_out; i++)
        out[i]->deleter(out[i]);
    return true;
}

enum fail inspect_threads(struct context *ctx, struct options *o)
{
    struct table t = {0};
    struct launches l = {.room = LAUNCHES_MOST};
    struct session s;
    t.counts = bound_counts(o->bound_threads, t.threads);
    if (t.counts == 0)
        return fail_usage(ctx, "'threads' takes up to %d ascending numbers of 1 to %d, not '%s'", BOUND_COUNTS_MAX,
                          BOUND_THREADS_MOST, o->bound_threads);
    l.of = NEW_ARRAY(&ctx->session, struct launch, l.room);
    mcc_host host = {.size = sizeof host, .user = &l, .threads = 1, .flags = (uint32_t)o->variant, .launch = on_launch};
    if (session_open(&s, ctx, o, o->files.items.data[0], &host) && run_once(&s)) {
        struct strbuf out = strbuf_of(&ctx->session);
        table_make(&ctx->session, &l, &t);
        if (o->document)
            put_json(&s, &t, &o->document->result);
        else
            table_print(&s, &t, &out);
        terminal_print(&out);
        if (l.n > l.room)
            warn_at(ctx, (src_id){0}, NULL, "launches beyond the first %u are not counted", l.room);
    }
    session_close(&s);
    return ctx->fail;
}

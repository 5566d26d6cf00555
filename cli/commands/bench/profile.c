/* The file of mcc bench --profile: what a run of each kernel takes, so that mcc inspect can colour a drawing by it.
 *
 * Text, one line for each source node that leads kernels, its fields apart by tabs:
 *     mcc-profile 1  RUNS  "NETWORK"
 *     INDEX  NANOSECONDS  CALLS  "NAME"  "OPERATOR"  ...
 * INDEX is the row of mcc_api.node, NANOSECONDS the median over the runs of all its kernels' time in one run, CALLS how
 * often these were called in a run; further pairs of name and operator are the other nodes that they compute, which are
 * for people: reading passes over them. Names are quoted as in every other text of mcc.
 */
#include <math.h>

#include "cli/commands/bench/bench.h"

enum { PROFILE_MAX = 64 << 20 };

static void put_key(struct strbuf *out, const char *name, const char *op)
{
    strbuf_quoted(out, name ? name : "");
    strbuf_printf(out, "\t");
    strbuf_quoted(out, op ? op : "");
}

/* What follows the times: the leading node, then the others that its kernels compute. */
static void put_also(const mcc_api *api, uint64_t next, struct strbuf *out)
{
    for (; next; next = api->node[next].next) {
        strbuf_printf(out, "\t");
        put_key(out, api->node[next].name, api->node[next].op);
    }
}

bool profile_write(struct session *s, const struct profile *p, const char *path)
{
    struct strbuf text = strbuf_of(&s->ctx->session);
    strbuf_printf(&text, "mcc-profile 1\t%u\t", p->runs);
    strbuf_quoted(&text, s->api->name);
    strbuf_printf(&text, "\n");
    for (uint32_t i = 0; i < p->n; i++) {
        const struct kernel_time *k = &p->nodes[i];
        const mcc_node *node = &s->api->node[k->node];
        if (!k->calls)
            continue;
        strbuf_printf(&text, "%u\t%.0f\t%.0f\t", k->node, k->ns, (double)k->calls / p->runs);
        put_key(&text, node->name, node->op);
        put_also(s->api, node->next, &text);
        strbuf_printf(&text, "\n");
    }
    return output_write(s->ctx, path, text.data, text.n);
}

/* The number at *at, which a tab ends; *at goes after the tab. */
static bool read_number(const char **at, double *out)
{
    char *end;
    *out = strtod(*at, &end);
    if (end == *at || *end != '\t' || !isfinite(*out) || *out < 0)
        return false;
    *at = end + 1;
    return true;
}

static bool read_line(struct context *ctx, const char *line, uint32_t number, const mcc_node *row, uint32_t n,
                      double *ns)
{
    double index, time, calls;
    if (!read_number(&line, &index) || !read_number(&line, &time) || !read_number(&line, &calls))
        return error_model(ctx, (src_id){0},
                           "line %u is not a line of a profile (mcc bench --profile=FILE writes them)", number);
    struct strbuf key = strbuf_of(&ctx->session);
    uint32_t i = index < n ? (uint32_t)index : n;
    if (i < n)
        put_key(&key, row[i].name, row[i].op);
    if (i == n || strncmp(key.data, line, key.n) != 0 || (line[key.n] && line[key.n] != '\t') || !row[i].kernels)
        return error_model(ctx, (src_id){0},
                           "line %u is about a kernel that this network does not have: the profile is another "
                           "network's, or was taken with other options",
                           number);
    ns[i] = time;
    return true;
}

static bool read_lines(struct context *ctx, char *text, size_t size, const mcc_node *row, uint32_t n, double *ns)
{
    static const char head[] = "mcc-profile 1\t";
    if (strncmp(text, head, sizeof head - 1) != 0 || strlen(text) != size)
        return error_model(ctx, (src_id){0}, "not a profile (mcc bench --profile=FILE writes them)");
    uint32_t number = 1;
    for (char *line = strchr(text, '\n'); line && line[1]; number++) {
        char *end = strchr(++line, '\n');
        if (end)
            *end = 0;
        if (!read_line(ctx, line, number + 1, row, n, ns))
            return false;
        line = end;
    }
    return true;
}

bool profile_read(struct context *ctx, const char *path, const mcc_node *row, uint32_t n, double *ns)
{
    const char *model = ctx->model_path;
    struct span text;
    for (uint32_t i = 0; i < n; i++)
        ns[i] = -1;
    ctx->model_path = path;
    bool ok = text_file_read(ctx, path, "profile", PROFILE_MAX, &text) &&
              read_lines(ctx, (char *)(intptr_t)text.data, text.size, row, n, ns);
    if (ok)
        ctx->model_path = model;
    return ok;
}

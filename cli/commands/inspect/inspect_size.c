/* The table of an artifact's sizes. */
#include "cli/commands/inspect/inspect.h"

static void put_row(const struct sizes *sizes, uint64_t bytes, const char *what, struct strbuf *out)
{
    strbuf_printf(out, "bytes    %12llu %6.1f%%  %s\n", (unsigned long long)bytes,
                  sizes->file ? 100 * (double)bytes / (double)sizes->file : 0, what);
}

void sizes_print(const mcc_api *api, const struct sizes *s, bool sealed, struct strbuf *out)
{
    uint64_t variants = 0, known = s->weights + s->code + s->tables + s->symbols + s->graph + s->debug + s->headers;
    const char *p = api->features;
    put_row(s, s->weights, "weights", out);
    if (s->weights && sealed)
        put_row(s, s->weights_padding, "  of these padding", out);
    for (int i = 0; *p && i < VARIANTS_MAX; i++) {
        size_t n = strcspn(p, ",");
        put_row(s, s->variant[i], arena_printf(out->arena, "code of variant %d, %.*s", i + 1, (int)n, p), out);
        variants += s->variant[i];
        p += n + (p[n] == ',');
    }
    put_row(s, s->code > variants ? s->code - variants : 0, "code of the runtime", out);
    put_row(s, s->tables + s->headers, "tables", out);
    put_row(s, s->symbols, "names of functions", out);
    if (s->graph)
        put_row(s, s->graph, "graph and buffers for reports", out);
    if (s->debug)
        put_row(s, s->debug, "line tables", out);
    put_row(s, s->file > known ? s->file - known : 0, "padding between the parts", out);
    put_row(s, s->file, "file", out);
    if (!s->sidecar)
        return;
    strbuf_printf(out, "bytes    %12llu          weights file beside it\n", (unsigned long long)s->sidecar);
    if (sealed)
        strbuf_printf(out, "bytes    %12llu            of these padding\n", (unsigned long long)s->weights_padding);
}

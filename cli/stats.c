/* The census of --stats: how many of which operator a graph has. */
#include <stdlib.h>
#include <string.h>

#include "cli/compile.h"

struct row { const char *domain, *name; uint32_t count; };

static int row_compare(const void *pa, const void *pb)
{
    const struct row *a = pa, *b = pb;
    if (a->count != b->count)
        return a->count < b->count ? 1 : -1;
    int by_name = strcmp(a->name, b->name);
    return by_name ? by_name : strcmp(a->domain, b->domain);
}

static int row_by_name(const void *pa, const void *pb)
{
    const struct row *a = pa, *b = pb;
    int by_name = strcmp(a->name, b->name);
    return by_name ? by_name : strcmp(a->domain, b->domain);
}

/* Sorts rows of one node each and merges equal ones; returns how many are left. */
static uint32_t rows_merge(struct row *rows, uint32_t n)
{
    uint32_t m = 0;
    qsort(rows, n, sizeof *rows, row_by_name);
    for (uint32_t i = 0; i < n; i++) {
        if (m && row_by_name(&rows[m - 1], &rows[i]) == 0)
            rows[m - 1].count++;
        else
            rows[m++] = rows[i];
    }
    qsort(rows, m, sizeof *rows, row_compare);
    return m;
}

void stats_census(const struct graph *g, const char *title, struct strbuf *out)
{
    struct row *rows = NEW_ARRAY(out->arena, struct row, g->nodes.n + 1);
    uint32_t n = 0;
    for (uint32_t i = 1; i < g->nodes.n; i++) {
        const struct node *node = &g->nodes.data[i];
        if (node->dead || node->op == OP_CONSTANT)
            continue;
        bool imported = node->op == OP_ONNX;
        rows[n++] = (struct row){imported && node->domain ? node->domain : "", imported ? node->op_type : op_name(node->op), 1};
    }
    uint32_t total = n;
    n = rows_merge(rows, n);
    strbuf_printf(out, "%s: %u operators, %u kinds\n", title, total, n);
    for (uint32_t i = 0; i < n; i++)
        strbuf_printf(out, "%8u %s%s%s\n", rows[i].count, rows[i].domain, *rows[i].domain ? "." : "", rows[i].name);
}

/* --list-ops: which versions of which operators are served, for which element types.
 *
 * A line is a version that the schema table has and that a row of legalize's table serves; nothing here is written by hand.
 * "(ai.onnx)": exporters write it in that domain, but ONNX does not have it.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "frontend/frontend.h"
#include "passes/passes.h"

/* Computation knows no complex numbers; what else a row does not take stands in its restrictions. */
static bool is_served(enum elem e, const void *note)
{
    char class = elem_class(e);
    return class != 'C' && !(class == 'S' && strstr(note, "no strings")) && !(class == 'B' && strstr(note, "no booleans")) &&
           (class == 'F' || !strstr(note, "floats only"));
}

static int row_order(const void *a, const void *b)
{
    struct op_row x = legalize_row(*(const uint32_t *)a), y = legalize_row(*(const uint32_t *)b);
    int by_domain = strcmp(x.domain, y.domain), by_op = strcmp(x.op, y.op);
    return by_domain ? by_domain : by_op ? by_op : (x.since > y.since) - (x.since < y.since);
}

static void row_print(uint32_t i, struct strbuf *out)
{
    struct op_row row = legalize_row(i);
    for (int32_t v = 0; (v = onnx_version_after(row.domain, row.op, v)) > 0;) {
        if (!legalize_row_serves(i, v))
            continue;
        const char *domain = *row.domain ? row.domain : onnx_version_is_foreign("", row.op, v) ? "(ai.onnx)" : "ai.onnx";
        strbuf_printf(out, "%-26s %-28s %5d  %-26s ", domain, row.op, (int)v, row.lowering);
        onnx_types_print(row.domain, row.op, v, is_served, row.note, out);
        strbuf_printf(out, "%s%s\n", *row.note ? "  " : "", row.note);
    }
}

void list_ops(struct context *ctx, struct strbuf *out)
{
    uint32_t n = legalize_row_count(), *sorted = NEW_ARRAY(&ctx->session, uint32_t, n);
    for (uint32_t i = 0; i < n; i++)
        sorted[i] = i;
    qsort(sorted, n, sizeof *sorted, row_order);
    strbuf_printf(out, "%-26s %-28s %5s  %-26s %s\n", "domain", "operator", "since", "lowering", "element types of operands  restrictions");
    for (uint32_t i = 0; i < n; i++)
        row_print(sorted[i], out);
}

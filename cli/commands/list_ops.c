/* --list-ops: which versions of which operators are served, for which element types.
 *
 * A line is a version that the format's standard has and that a row of legalize's tables serves; nothing here is
 * written by hand. Where no format tells of an operator, it is the row as it stands.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/commands/command.h"
#include "frontend/frontend.h"
#include "passes/passes.h"

/* Computation knows no complex numbers; what else a row does not take stands in its restrictions. */
static bool is_served(enum elem e, const void *note)
{
    char class = elem_class(e);
    return class != 'C' && !(class == 'S' && strstr(note, "no strings")) &&
           !(class == 'B' && strstr(note, "no booleans")) && (class == 'F' || !strstr(note, "floats only"));
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
    const struct operator_facts *facts = operator_facts(row.domain, row.op);
    if (!facts)
        strbuf_printf(out, "%-26s %-28s %5d  %-26s -%s%s\n", row.domain, row.op, (int)row.since, row.lowering,
                      *row.note ? "  " : "", row.note);
    for (int32_t v = 0; facts && (v = facts->version_after(row.domain, row.op, v)) > 0;) {
        if (!legalize_row_serves(i, v))
            continue;
        strbuf_printf(out, "%-26s %-28s %5d  %-26s ", facts->domain_shown(row.domain, row.op, v), row.op, (int)v,
                      row.lowering);
        facts->types_print(row.domain, row.op, v, is_served, row.note, out);
        strbuf_printf(out, "%s%s\n", *row.note ? "  " : "", row.note);
    }
}

void list_ops(struct context *ctx, struct strbuf *out)
{
    uint32_t n = legalize_row_count(), *sorted = NEW_ARRAY(&ctx->session, uint32_t, n);
    for (uint32_t i = 0; i < n; i++)
        sorted[i] = i;
    qsort(sorted, n, sizeof *sorted, row_order);
    strbuf_printf(out, "%-26s %-28s %5s  %-26s %s\n", "domain", "operator", "since", "lowering",
                  "element types of operands  restrictions");
    for (uint32_t i = 0; i < n; i++)
        row_print(sorted[i], out);
}

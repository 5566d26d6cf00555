/* --list-ops: which versions of which operators are served, for which element types.
 *
 * A line is a version that the format's standard has and that a row of legalize's tables serves; nothing here is
 * written by hand. Where no format tells of an operator, it is the row as it stands.
 */

#include "cli/commands/command.h"

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

/* ONNX's own domain is empty. */
static const char *domain_of(uint32_t row)
{
    const char *domain = legalize_row(row).domain;
    return *domain ? domain : "ai.onnx";
}

const char *op_domain(uint32_t i)
{
    for (uint32_t row = 0, k = 0; row < legalize_row_count(); row++) {
        uint32_t first = 0;
        while (strcmp(domain_of(first), domain_of(row)) != 0)
            first++;
        if (first == row && k++ == i)
            return domain_of(row);
    }
    return NULL;
}

bool list_ops(struct context *ctx, const char *domain, struct strbuf *out)
{
    uint32_t n = 0, *sorted = NEW_ARRAY(&ctx->session, uint32_t, legalize_row_count());
    for (uint32_t i = 0; i < legalize_row_count(); i++)
        if (!*domain || strcmp(domain, domain_of(i)) == 0)
            sorted[n++] = i;
    if (!n)
        return error_usage(ctx, "no operators of domain '%s' (--list-ops lists them all)", domain);
    qsort(sorted, n, sizeof *sorted, row_order);
    strbuf_printf(out, "%-26s %-28s %5s  %-26s %s\n", "domain", "operator", "since", "lowering",
                  "element types of operands  restrictions");
    for (uint32_t i = 0; i < n; i++)
        row_print(sorted[i], out);
    return true;
}

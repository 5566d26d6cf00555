/* The operator table (onnx.def): look-up, the list of what could not be served, the support matrix.
 */
#include <stdlib.h>
#include <string.h>

#include "passes/legalize/driver.h"

static const struct row rows[] = {
#define ROW(domain, op, since, rule, param, note) {domain, #op, since, rule, #rule, param, note},
#include "passes/legalize/onnx.def"
};

const struct row *row_find(const char *domain, const char *op, int32_t version)
{
    const struct row *best = NULL;
    if (strcmp(domain, "ai.onnx") == 0)
        domain = "";
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct row *row = &rows[i];
        if (row->op[0] == op[0] && row->since <= version && (!best || row->since > best->since) &&
            strcmp(row->op, op) == 0 && strcmp(row->domain, domain) == 0)
            best = row;
    }
    return best;
}

/* ---- what could not be served ----------------------------------------------------------------------------- */

void legalize_refuse(struct legalizer *lg, const struct node *node, const char *reason)
{
    int32_t version = source_get(lg->ctx, node->src)->version;
    struct refusal *found = NULL;
    for (uint32_t i = 0; i < lg->refusals.n && !found; i++) {
        struct refusal *f = &lg->refusals.data[i];
        if (f->version == version && strcmp(f->op, node->op_type) == 0 && strcmp(f->domain, node->domain) == 0 &&
            strcmp(f->reason, reason) == 0)
            found = f;
    }
    if (!found) {
        struct refusal f = {.domain = node->domain, .op = node->op_type, .version = version,
                            .reason = arena_strdup(lg->arena, reason)};
        VEC_PUSH(lg->arena, &lg->refusals, f);
        found = &lg->refusals.data[lg->refusals.n - 1];
    }
    if (found->count < COUNT_OF(found->first))
        found->first[found->count] = node->src;
    found->count++;
}

static void refusal_print(const struct legalizer *lg, const struct refusal *f, struct strbuf *out)
{
    strbuf_printf(out, "%s%s%s-%d x %u (", f->domain, *f->domain ? "." : "", f->op, (int)f->version, f->count);
    for (uint32_t i = 0; i < f->count && i < COUNT_OF(f->first); i++) {
        const struct source *s = source_get(lg->ctx, f->first[i]);
        const char *name = s->name && *s->name ? s->name : s->output ? s->output : "";
        strbuf_printf(out, "%s'%.60s'", i ? ", " : "", name);
    }
    strbuf_printf(out, "%s): %s", f->count > COUNT_OF(f->first) ? ", ..." : "", f->reason);
}

/* One message when it fits into a line (diag.c keeps lines short), else one per piece of the list. */
void legalize_report(struct legalizer *lg)
{
    enum { PIECE = 700 };
    if (!lg->refusals.n)
        return;
    struct strbuf piece, one;
    strbuf_init(&piece, lg->arena);
    for (uint32_t i = 0; i < lg->refusals.n; i++) {
        strbuf_init(&one, lg->arena);
        refusal_print(lg, &lg->refusals.data[i], &one);
        if (piece.n && piece.n + one.n > PIECE) {
            error_model(lg->ctx, (src_id){0}, "unsupported operators: %s", piece.data);
            strbuf_init(&piece, lg->arena);
        }
        strbuf_printf(&piece, "%s%s", piece.n ? "; " : "", one.data);
    }
    error_model(lg->ctx, (src_id){0}, "unsupported operators: %s (`mcc --list-ops` prints what is supported)",
                piece.data);
}

/* ---- the support matrix ------------------------------------------------------------------------------------ */

static int row_order(const void *a, const void *b)
{
    const struct row *x = *(const struct row *const *)a, *y = *(const struct row *const *)b;
    int by_domain = strcmp(x->domain, y->domain), by_op = strcmp(x->op, y->op);
    return by_domain ? by_domain : by_op ? by_op : (x->since > y->since) - (x->since < y->since);
}

void legalize_list_ops(struct strbuf *out)
{
    const struct row *sorted[COUNT_OF(rows)];
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        sorted[i] = &rows[i];
    qsort(sorted, COUNT_OF(rows), sizeof sorted[0], row_order);
    strbuf_printf(out, "%-26s %-28s %5s  %-28s %s\n", "domain", "operator", "since", "lowering", "restrictions");
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct row *row = sorted[i];
        strbuf_printf(out, "%-26s %-28s %5d  %-28s %s\n", *row->domain ? row->domain : "ai.onnx", row->op,
                      (int)row->since, row->rule_name + strlen("rule_"), row->note);
    }
}

/* The operator table (rules.def): look-up, the list of what could not be served, the support
 * matrix. */

#include "passes/legalize/driver.h"

static const struct rule_row rows[] = {
#define ROW(domain, op, since, rule, param, note) {domain, #op, since, rule, #rule, param, note},
#include "passes/legalize/rules.def"
};

const struct rule_row *row_find(const char *domain, const char *op, int32_t version)
{
    const struct rule_row *best = NULL;
    if (strcmp(domain, "ai.onnx") == 0)
        domain = "";
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct rule_row *row = &rows[i];
        if (row->op[0] == op[0] && row->since <= version && (!best || row->since > best->since) &&
            strcmp(row->op, op) == 0 && strcmp(row->domain, domain) == 0)
            best = row;
    }
    return best;
}

/* ---- what could not be served ----------------------------------------------------------------------------- */

static void operand_print(const struct legalizer *lg, value_id imported, struct strbuf *out)
{
    const struct lowered *l = imported.i ? &lg->map[imported.i] : NULL;
    const struct type *t = l && l->kind == LOWERED_VALUE && l->v.i ? value_type(lg->to, l->v) : NULL;
    if (!t || t->kind != TYPE_TENSOR || t->elem == ELEM_NONE) {
        strbuf_printf(out, !l                        ? "nothing"
                           : l->kind == LOWERED_LIST ? "sequence"
                                                     : "unknown type");    /* of a node that is refused itself */
        return;
    }
    strbuf_printf(out, "%s[", elem_name(t->elem));
    if (t->rank < 0)
        strbuf_printf(out, "...");
    for (int32_t d = 0; d < t->rank; d++) {
        strbuf_printf(out, d ? "," : "");
        ex_print(lg->ctx->exprs, t->dims[d], out);
    }
    strbuf_printf(out, "]");
}

/* The text, cut after `most` bytes. */
static const char *cut_short(struct strbuf *text, size_t most)
{
    if (text->n > most) {
        text->n = most;
        strbuf_printf(text, "...");
    }
    return text->n ? text->data : "";
}

/* Operand types, cut where they get long. */
static const char *operands_text(const struct legalizer *lg, const struct node *node)
{
    enum { LONG = 100 };
    struct strbuf out = strbuf_of(lg->arena);
    for (uint32_t i = 0; i < node->n_in && out.n < LONG; i++) {
        strbuf_printf(&out, i ? ", " : "");
        operand_print(lg, node->in[i], &out);
    }
    return cut_short(&out, LONG);
}

static void attribute_print(const struct attr *a, struct strbuf *out)
{
    enum { SHOWN = 8 };
    bool list = a->kind == ATTR_INTS || a->kind == ATTR_FLOATS || a->kind == ATTR_STRS;
    uint32_t n = list ? a->n : 1;
    strbuf_printf(out, "%.40s=%s", a->name, list ? "[" : "");
    for (uint32_t i = 0; i < n && i < SHOWN; i++) {
        strbuf_printf(out, i ? "," : "");
        switch (a->kind) {
        case ATTR_INT: strbuf_printf(out, "%lld", (long long)a->u.i); break;
        case ATTR_INTS: strbuf_printf(out, "%lld", (long long)a->u.ints[i]); break;
        case ATTR_FLOAT: strbuf_printf(out, "%g", a->u.f); break;
        case ATTR_FLOATS: strbuf_printf(out, "%g", a->u.floats[i]); break;
        case ATTR_STR: strbuf_printf(out, "'%.40s'", a->u.s); break;
        case ATTR_STRS: strbuf_printf(out, "'%.40s'", a->u.strs[i]); break;
        case ATTR_TENSOR: strbuf_printf(out, "a tensor of %s", elem_name(a->u.tensor->elem)); break;
        case ATTR_REGION: strbuf_printf(out, "a graph"); break;
        default: strbuf_printf(out, "..."); break;
        }
    }
    strbuf_printf(out, n > SHOWN ? ",...]" : list ? "]" : "");
}

/* Attributes, cut where they get long. */
static const char *attributes_text(const struct legalizer *lg, const struct node *node)
{
    enum { LONG = 160 };
    struct strbuf out = strbuf_of(lg->arena);
    for (uint32_t i = 0; i < node->n_attr && out.n < LONG; i++) {
        strbuf_printf(&out, i ? ", " : "");
        attribute_print(&node->attr[i], &out);
    }
    return cut_short(&out, LONG);
}

/* The interface has no maps. */
#define MAPS "begin the model after it, with its result as an input: a column for each entry, 0 where the map has none"

/* What to do about an operator that has no lowering. */
static const char *advice(const struct node *node)
{
    static const struct {
        const char *domain, *op, *text;
    } known[] = {
        {"", "ImageDecoder", "decode the picture before the network and make its pixels an input"},
        {"ai.onnx.preview.training", "Gradient",
         "let the framework that trains the network compute the gradients, and export the graph that they make"},
        {"ai.onnx.preview.training", NULL, "export the network for inference, without the training step"},
        {"com.microsoft", NULL, "ONNX Runtime's optimizer puts such nodes in: compile the network from before it"},
        {"", NULL, "compute it before or after the network, or write it with operators that are supported"},
        {"ai.onnx.ml", "CastMap", MAPS},
        {"ai.onnx.ml", "DictVectorizer", MAPS},
        {"ai.onnx.ml", NULL, "compute it before or after the network, or write it with operators that are supported"},
    };
    const char *domain = strcmp(node->domain, "ai.onnx") == 0 ? "" : node->domain;
    for (size_t i = 0; i < COUNT_OF(known); i++)
        if (strcmp(domain, known[i].domain) == 0 && (!known[i].op || strcmp(node->op_type, known[i].op) == 0))
            return known[i].text;
    return NULL;
}

void legalize_refuse_unknown(struct legalizer *lg, const struct node *node, const char *reason)
{
    const char *text = advice(node);
    legalize_refuse(lg, node, text ? arena_printf(lg->arena, "%s; %s", reason, text) : reason);
}

/* The version of the node's operator, or of what the model imports where there is no such operator. */
static int32_t version_of(const struct legalizer *lg, const struct node *node)
{
    const int32_t version = source_get(lg->ctx, node->src)->version;
    const struct opset *o = version > 0 ? NULL : ROW_NAMED(lg->from->opsets.data, lg->from->opsets.n, node->domain);
    return o ? (int32_t)o->version : version;
}

void legalize_refuse(struct legalizer *lg, const struct node *node, const char *reason)
{
    int32_t version = version_of(lg, node);
    struct refusal *found = NULL;
    for (uint32_t i = 0; i < lg->refusals.n && !found; i++) {
        struct refusal *f = &lg->refusals.data[i];
        if (f->version == version && strcmp(f->op, node->op_type) == 0 && strcmp(f->domain, node->domain) == 0 &&
            strcmp(f->reason, reason) == 0)
            found = f;
    }
    if (!found) {
        struct refusal f = {.domain = node->domain,
                            .op = node->op_type,
                            .version = version,
                            .reason = arena_strdup(lg->arena, reason),
                            .types = operands_text(lg, node),
                            .attributes = attributes_text(lg, node)};
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
        strbuf_printf(out, "%s'%.60s'%s%.60s", i ? ", " : "", source_label(s), s->origin ? " at " : "",
                      origin_short(s->origin));
    }
    strbuf_printf(out, "%s", f->count > COUNT_OF(f->first) ? ", ..." : "");
    strbuf_printf(out, "%s%s", *f->types ? " of " : "", f->types);
    strbuf_printf(out, "%s%s", *f->attributes ? ", with " : "", f->attributes);
    strbuf_printf(out, "): %s", f->reason);
}

/* Domains whose operators are specified somewhere: nobody can write those as functions of the model but their
 * makers. */
static bool is_custom(const char *domain)
{
    static const char *const known[] = {"", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview.training", "com.microsoft"};
    return !ROW_NAMED(known, COUNT_OF(known), domain) && !ROW_NAMED(rows, COUNT_OF(rows), domain);
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
    bool custom = false;
    for (uint32_t i = 0; i < lg->refusals.n; i++)
        custom |= is_custom(lg->refusals.data[i].domain);
    error_model(lg->ctx, (src_id){0}, "unsupported operators: %s (`mcc --list-ops` prints what is supported)%s",
                piece.data,
                custom ? "; an operator of your own can come as a model function (docs/model-functions.md)" : "");
}

/* ---- the table for others --------------------------------------------------------------------------------- */

uint32_t legalize_row_count(void)
{
    return COUNT_OF(rows);
}

struct op_row legalize_row(uint32_t i)
{
    const struct rule_row *row = &rows[i];
    return (struct op_row){row->domain, row->op, row->since, row->rule_name + strlen("rule_"), row->note};
}

bool legalize_row_serves(uint32_t i, int32_t version)
{
    return row_find(rows[i].domain, rows[i].op, version) == &rows[i];
}

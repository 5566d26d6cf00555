/* Operators of ai.onnx.ml that make or read maps. The interface of artifacts has no maps of labels to numbers: what
 * stands after them is a tensor, and the labels, which are the same in every run, go to the model's metadata.
 */
#include "passes/legalize/ml/ml.h"
#include "passes/legalize/driver.h"

/* A JSON string. */
static void json_text(struct strbuf *out, const char *s)
{
    strbuf_printf(out, "\"");
    for (; *s; s++)
        if ((unsigned char)*s < 32 || *s == '"' || *s == '\\')
            strbuf_printf(out, "\\u%04x", (unsigned char)*s);
        else
            strbuf_append(out, s, 1);
    strbuf_printf(out, "\"");
}

/* The labels as a JSON array. */
static const char *labels_text(struct arena *arena, const struct ml_labels *labels)
{
    struct strbuf text = strbuf_of(arena);
    for (uint32_t i = 0; i < labels->n; i++) {
        strbuf_printf(&text, i ? "," : "[");
        if (labels->ints)
            strbuf_printf(&text, "%lld", (long long)labels->ints[i]);
        else
            json_text(&text, labels->strings[i]);
    }
    strbuf_printf(&text, "]");
    return text.data;
}

const char *ml_labels_key(struct arena *arena, const char *output)
{
    return arena_printf(arena, "classlabels:%s", output);
}

bool rule_zip_map(struct rule *r)
{
    struct builder *b = r->b;
    struct graph *g = b->g;
    struct ml_labels labels;
    value_id x = rule_in(r, 0);
    int32_t rank = v_rank(b, x);
    const char *name = graph_value(r->lg->from, r->node->out[0])->name;
    int64_t n;
    if (!x.i || !ml_labels_read(r, "classlabels_int64s", &labels))
        return false;
    if (rank < 1 || rank > 2 || !labels.n)
        return rule_bad(r, "an operand of rank %d and %u labels", (int)rank, labels.n);
    if (ex_is_const(b->x, b_dim(b, x, rank - 1), &n) && n != labels.n)
        return rule_bad(r, "%lld scores and %u labels", (long long)n, labels.n);
    struct meta meta = {ml_labels_key(&g->arena, name ? name : ""), labels_text(&g->arena, &labels)};
    bool known = false;
    for (uint32_t i = 0; i < g->metadata.n; i++)
        known |= !strcmp(g->metadata.data[i].key, meta.key);
    if (!known) {
        VEC_PUSH(&g->arena, &g->metadata, meta);
        warn_at(r->lg->ctx, r->node->src, "maps",
                "maps become the tensor of their numbers, one column a label; the labels are the metadata '%.100s'",
                meta.key);
    }
    return rule_result(r, x);
}

/* What names of the file stand for: values in scope, and for messages the place that a node came from. */
#include "frontend/onnx/import.h"

value_id value_resolve(struct importer *im, const char *name, src_id src, const char *role)
{
    const struct binding *b = name_lookup(&im->names, name);
    if (!b)
        error_model(im->ctx, src, "%s '%s' is made by no node, input or initializer that is visible here", role, name);
    return b ? b->value : (value_id){0};
}

/* "file:line" of the innermost frame of a Python stack trace that an exporter left in the metadata, or NULL. */
static const char *trace_origin(struct importer *im, const ProtobufCBinaryData *text)
{
    static const char file_mark[] = "File \"", line_mark[] = "\", line ";
    char *trace = arena_strndup(&im->scratch, (const char *)text->data, text->len), *last = NULL;
    for (char *p = trace; (p = strstr(p, file_mark)); p++)
        last = p + sizeof file_mark - 1;
    char *end = last ? strstr(last, line_mark) : NULL;
    if (!end)
        return NULL;
    long line = strtol(end + sizeof line_mark - 1, NULL, 10);
    return arena_printf(&im->ctx->session, "%.*s:%ld", (int)(end - last < 500 ? end - last : 500), last, line);
}

src_id node_source(struct importer *im, const Onnx__NodeProto *node, int32_t version)
{
    struct arena *session = &im->ctx->session;
    struct source s = {
        .name = arena_strdup(session, node->name ? node->name : ""),
        .op = arena_strdup(session, node->op_type ? node->op_type : ""),
        .domain = arena_strdup(session, domain_normal(node->domain)),
        .version = version,
        .output = "",
    };
    for (size_t i = 0; i < node->n_output && !*s.output; i++)
        s.output = arena_strdup(session, node->output[i]);
    for (size_t i = 0; i < node->n_metadata_props && !s.origin; i++) {
        const Onnx__StringStringEntryProto *m = node->metadata_props[i];
        if (m->key && strcmp(m->key, "pkg.torch.onnx.stack_trace") == 0 && m->value.len)
            s.origin = trace_origin(im, &m->value);
    }
    return source_add(im->ctx, s);
}

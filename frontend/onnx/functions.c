/* ModelProto.functions -> model_function: each body a region of its own that sees no outer names. */
#include "frontend/onnx/import.h"

static const char *text(const char *s)
{
    return s ? s : "";
}

/* Errors of a function as a whole carry its name as the node's. */
static src_id function_source(struct importer *im, const Onnx__FunctionProto *f)
{
    struct source s = {
        .name = arena_strdup(&im->ctx->session, text(f->name)),
        .op = "function",
        .domain = arena_strdup(&im->ctx->session, domain_normal(f->domain)),
        .output = "",
    };
    return source_add(im->ctx, s);
}

static bool attributes_declare(struct importer *im, const Onnx__FunctionProto *f, src_id src,
                               struct model_function *out)
{
    bool ok = true;
    struct arena *arena = &im->g->arena;
    im->keep = arena;
    for (size_t i = 0; i < f->n_attribute; i++)
        VEC_PUSH(arena, &out->attr_names, arena_strdup(arena, f->attribute[i]));
    for (size_t i = 0; i < f->n_attribute_proto; i++) {
        struct attr a;
        if (!attribute_import(im, f->attribute_proto[i], (struct where){src, NULL}, &a))
            ok = false;
        else if (a.kind == ATTR_REGION || a.kind == ATTR_REF)
            ok = error_model(im->ctx, src, "attribute '%s' has a default of a kind that is not supported", a.name);
        else
            VEC_PUSH(arena, &out->attr_defaults, a);
    }
    im->keep = &im->scratch;
    return ok;
}

static bool params_declare(struct importer *im, const Onnx__FunctionProto *f, region_id body, src_id src)
{
    const struct type unknown = {.kind = TYPE_UNKNOWN, .rank = RANK_UNKNOWN};
    bool ok = true;
    for (size_t i = 0; i < f->n_input; i++) {
        const char *name = f->input[i];
        if (!*name || name_lookup(&im->names, name))
            ok = error_model(im->ctx, src, *name ? "two inputs are called '%s'" : "an input has no name%s", name);
        else
            name_bind(&im->names, name, graph_param(im->g, body, unknown, name), 0);
    }
    return ok;
}

static bool body_import(struct importer *im, const Onnx__FunctionProto *f, region_id body, src_id src)
{
    uint32_t before = im->ctx->n_errors;
    params_declare(im, f, body, src);
    if (!nodes_import(im, f->node, f->n_node, body, 0) && im->ctx->n_errors != before)
        return false;
    for (size_t i = 0; i < f->n_output; i++) {
        value_id v = value_resolve(im, f->output[i], src, "output");
        if (v.i)
            graph_add_result(im->g, body, v);
    }
    return im->ctx->n_errors == before;
}

static bool function_import(struct importer *im, const Onnx__FunctionProto *f, uint32_t index)
{
    struct arena *arena = &im->g->arena;
    src_id src = function_source(im, f);
    struct model_function *out = &im->g->functions.data[index];
    struct opset *opsets;
    uint32_t n_opsets;
    if (!opsets_import(im, f->opset_import, f->n_opset_import, f->name, &opsets, &n_opsets))
        return false;
    for (uint32_t i = 0; i < n_opsets; i++)
        VEC_PUSH(arena, &out->opsets, opsets[i]);
    out->body = graph_region(im->g, (region_id){0}, (node_id){0});
    if (!attributes_declare(im, f, src, out))
        return false;
    im->opsets = (struct opset_scope){opsets, n_opsets};
    scope_open(&im->names);
    bool ok = body_import(im, f, out->body, src);
    scope_close(&im->names);
    return ok;
}

/* Names first, bodies second: a body may call a function that the file lists later. */
static bool function_declare(struct importer *im, const Onnx__FunctionProto *f)
{
    struct arena *arena = &im->g->arena;
    struct model_function out = {
        .domain = arena_strdup(arena, domain_normal(f->domain)),
        .name = arena_strdup(arena, text(f->name)),
        .overload = arena_strdup(arena, text(f->overload)),
    };
    if (!*out.name)
        return error_model(im->ctx, (src_id){0}, "a function has no name");
    if (f->n_attribute > ATTRIBUTES_MAX || f->n_attribute_proto > ATTRIBUTES_MAX)
        return error_limit(im->ctx, function_source(im, f), "more than %d attributes", ATTRIBUTES_MAX);
    char *key = function_key(im, out.domain, out.name, out.overload);
    if (name_lookup(&im->functions, key))
        return error_model(im->ctx, function_source(im, f), "two functions have this domain and name");
    VEC_PUSH(arena, &im->g->functions, out);
    name_bind(&im->functions, key, (value_id){im->g->functions.n}, 0);
    return true;
}

bool functions_import(struct importer *im)
{
    const Onnx__ModelProto *m = im->model;
    bool ok = true;
    for (size_t i = 0; i < m->n_functions; i++)
        ok = function_declare(im, m->functions[i]) && ok;
    if (!ok)
        return false;
    struct opset_scope outer = im->opsets;
    im->in_function = true;
    for (size_t i = 0; i < m->n_functions; i++)
        ok = function_import(im, m->functions[i], (uint32_t)i) && ok;
    im->in_function = false;
    im->opsets = outer;
    return ok;
}

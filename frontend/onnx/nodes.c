/* NodeProto -> OP_IMPORTED nodes: operands resolved through the scopes, attributes decoded, subgraphs imported as
 * regions.
 *
 * A node with an error is still appended, so that one mistake gives one message and not one for every reader.
 */
#include "frontend/onnx/schemas.h"

/* ---- operands and attributes ----------------------------------------------------------------------------------- */

static value_id *operands_import(struct importer *im, const Onnx__NodeProto *node, src_id src)
{
    value_id *in = NEW_ARRAY(&im->scratch, value_id, node->n_input);
    for (size_t i = 0; i < node->n_input; i++)
        if (*node->input[i])
            in[i] = value_resolve(im, node->input[i], src, "input");
    return in;
}

/* Attributes that could be read, without repeats; protos: the message of each. */
static uint32_t attributes_import(struct importer *im, const Onnx__NodeProto *node, src_id src, struct attr *out,
                                  const Onnx__AttributeProto **protos)
{
    uint32_t n = 0;
    struct where w = {src, NULL};
    for (size_t i = 0; i < node->n_attribute; i++) {
        if (!attribute_import(im, node->attribute[i], w, &out[n]))
            continue;
        uint32_t k = 0;
        while (k < n && strcmp(out[k].name, out[n].name) != 0)
            k++;
        if (k < n) {
            error_model(im->ctx, src, "attribute '%s' is given twice", out[n].name);
            continue;
        }
        protos[n++] = node->attribute[i];
    }
    return n;
}

static bool regions_import(struct importer *im, node_id id, const Onnx__AttributeProto *const *protos, src_id src,
                           uint32_t depth)
{
    bool ok = true;
    for (uint32_t i = 0; i < graph_node(im->g, id)->n_attr; i++) {
        if (graph_node(im->g, id)->attr[i].kind != ATTR_REGION)
            continue;
        if (depth + 1 > (uint32_t)im->ctx->limits.subgraph_depth)
            return error_limit(im->ctx, src, "subgraphs nested more than %d deep (--limit-subgraph-depth)",
                               im->ctx->limits.subgraph_depth);
        region_id r = graph_region(im->g, graph_node(im->g, id)->parent, id);
        graph_node(im->g, id)->attr[i].u.region = r;
        ok = subgraph_import(im, protos[i]->g, r, src, depth + 1) && ok;
    }
    return ok;
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

static void results_bind(struct importer *im, node_id id, const Onnx__NodeProto *node)
{
    struct node *n = graph_node(im->g, id);
    for (size_t i = 0; i < node->n_output; i++) {
        if (!*node->output[i]) {
            n->out[i] = (value_id){0};
            continue;
        }
        graph_value(im->g, n->out[i])->name = arena_strdup(&im->g->arena, node->output[i]);
        name_lookup(&im->names, node->output[i])->value = n->out[i];
    }
}

static bool node_import(struct importer *im, const Onnx__NodeProto *node, region_id r, uint32_t depth)
{
    uint32_t before = im->ctx->n_errors;
    const char *op = node->op_type ? node->op_type : "", *domain = domain_normal(node->domain);
    const char *overload = node->overload ? node->overload : "";
    const struct model_function *callee = function_find(im, domain, op, overload);
    const struct schema *schema = callee ? NULL : schema_find(domain, op, opset_of(im, domain));
    src_id src = node_source(im, node, schema ? schema->since : 0);
    if (!*op)
        error_model(im->ctx, src, "the node has no operator type");
    if (node->n_attribute > ATTRIBUTES_MAX)
        return error_limit(im->ctx, src, "the node has %zu attributes, and the limit is %d", node->n_attribute,
                           ATTRIBUTES_MAX);
    value_id *in = operands_import(im, node, src);
    struct attr *attrs = NEW_ARRAY(&im->scratch, struct attr, node->n_attribute);
    const Onnx__AttributeProto **protos = NEW_ARRAY(&im->scratch, const Onnx__AttributeProto *, node->n_attribute);
    uint32_t n_attr = attributes_import(im, node, src, attrs, protos);
    if (schema)
        schema_check(im, schema, node, src, in, attrs, n_attr);
    if (callee)
        call_check(im, callee, node, src);
    node_id id = graph_append(im->g, r, OP_IMPORTED, src, in, (uint32_t)node->n_input, attrs, n_attr, NULL,
                              (uint32_t)node->n_output);
    struct node *n = graph_node(im->g, id);
    n->op_type = arena_strdup(&im->g->arena, op);
    n->domain = arena_strdup(&im->g->arena, domain);
    n->overload = arena_strdup(&im->g->arena, overload);
    if (regions_import(im, id, protos, src, depth) && schema)
        schema_check_regions(im, schema, id, src);
    results_bind(im, id, node);
    return im->ctx->n_errors == before;
}

/* Binds what the nodes make, so that readers find it wherever it is made. */
static bool outputs_declare(struct importer *im, Onnx__NodeProto *const *nodes, uint32_t n)
{
    bool ok = true;
    for (uint32_t i = 0; i < n; i++) {
        for (size_t k = 0; k < nodes[i]->n_output; k++) {
            const char *name = nodes[i]->output[k];
            const struct binding *b = *name ? name_lookup(&im->names, name) : NULL;
            if (b && b->scope == im->names.scope)
                ok = error_model(im->ctx, node_source(im, nodes[i], 0),
                                 b->producer ? "its output '%s' is made twice"
                                             : "its output '%s' has the name of an input or initializer",
                                 name);
            else if (b && b->value.i)
                ok = error_model(im->ctx, node_source(im, nodes[i], 0),
                                 "its output '%s' has the name of a value of an enclosing graph", name);
            else if (*name)
                name_bind(&im->names, name, (value_id){0}, i + 1);
        }
    }
    return ok;
}

bool nodes_import(struct importer *im, Onnx__NodeProto *const *nodes, size_t n_nodes, region_id r, uint32_t depth)
{
    if (n_nodes > (size_t)im->ctx->limits.nodes)
        return error_limit(im->ctx, (src_id){0}, "the graph has %zu nodes, and the limit is %lld (--limit-nodes)",
                           n_nodes, (long long)im->ctx->limits.nodes);
    uint32_t n = (uint32_t)n_nodes;
    if (!outputs_declare(im, nodes, n))
        return false;
    const uint32_t *order = nodes_order(im, nodes, n);
    if (!order)
        return false;
    bool ok = true;
    for (uint32_t i = 0; i < n; i++)
        ok = node_import(im, nodes[order[i]], r, depth) && ok;
    return ok;
}

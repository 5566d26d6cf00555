/* Nodes of the file -> OP_IMPORTED nodes of their operator's domain, with every argument of the operator's schema
 * (arguments.c), and the results' names and types.
 */
#include "frontend/pt2/arguments.h"

enum { NODE_ARGS_MAX = 4096 };

/* ---- appending ------------------------------------------------------------------------------------------------- */

value_id pt2_constant(struct pt2 *p, enum elem elem, const int64_t *dims, int32_t rank, const void *data,
                      const char *name)
{
    return graph_constant(p->g, p->region, elem, dims, rank, data, name);
}

static node_id append(struct pt2 *p, src_id src, const char *domain, const char *op, const value_id *in, uint32_t n_in,
                      const struct attr *attrs, uint32_t n_attrs, const struct type *types, uint32_t n_out)
{
    node_id id = graph_append(p->g, p->region, OP_IMPORTED, src, in, n_in, attrs, n_attrs, types, n_out);
    struct node *node = graph_node(p->g, id);
    node->domain = domain;
    node->op_type = op;
    node->overload = "";
    return id;
}

static value_id append_aten(struct pt2 *p, src_id src, const char *op, const value_id *in, uint32_t n_in,
                            const struct attr *attrs, uint32_t n_attrs)
{
    if (!src.i)
        src = source_add(p->ctx, (struct source){.name = "", .op = op, .domain = "aten", .version = 1, .output = op});
    return graph_node(p->g, append(p, src, "aten", op, in, n_in, attrs, n_attrs, NULL, 1))->out[0];
}

value_id pt2_append_ints(struct pt2 *p, src_id src, const char *op, value_id x, const char *attr, const int64_t *list,
                         uint32_t n)
{
    return append_aten(p, src, op, &x, 1, ARRAY(struct attr, attr_ints(attr, list, n)));
}

value_id pt2_append_pair(struct pt2 *p, src_id src, const char *op, value_id x, value_id y)
{
    return append_aten(p, src, op, ARRAY(value_id, x, y), NULL, 0);
}

value_id pt2_append_joined(struct pt2 *p, src_id src, const struct json *node, const char *op, const value_id *list,
                           uint32_t n)
{
    const int64_t lists[3] = {0, 2, n};
    int64_t dim = 0;
    value_id *in = NEW_ARRAY(&p->scratch, value_id, n + 2);
    memcpy(in + 2, list, n * sizeof *list);
    json_as_int(json_get(node_arg(node, "dim"), "as_int"), &dim);
    const struct attr attrs[] = {attr_ints("lists", arena_copy(&p->scratch, lists, sizeof lists), 3),
                                 attr_int("dim", dim)};
    return append_aten(p, src, op, in, n + 2, attrs, 2);
}

/* ---- where a node comes from ----------------------------------------------------------------------------------- */

/* "file:line" of the last frame of a stack trace that is not PyTorch's own, or NULL. */
static const char *origin_of(struct pt2 *p, const char *trace)
{
    static const char mark[] = "File \"", line_mark[] = "\", line ";
    const char *best = NULL;
    for (const char *at = trace; at && (at = strstr(at, mark)); at++) {
        const char *begin = at + sizeof mark - 1, *end = strstr(begin, line_mark), *library = strstr(begin, "/torch/");
        if (end && !(library && library < end) && strncmp(begin, "torch/", 6) != 0)
            best = begin;
    }
    const char *end = best ? strstr(best, line_mark) : NULL;
    if (!end)
        return NULL;
    long line = strtol(end + sizeof line_mark - 1, NULL, 10);
    return arena_printf(&p->ctx->session, "%.*s:%ld", (int)(end - best < 500 ? end - best : 500), best, line);
}

/* The module that the node was traced in: "layers.3.attn.q_proj" of "key,path,class;...", the last one. */
static const char *module_of(struct pt2 *p, const char *stack)
{
    const char *last = stack ? strrchr(stack, ';') : NULL;
    const char *begin = strchr(last ? last : stack ? stack : "", ',');
    const char *end = begin ? strchr(begin + 1, ',') : NULL;
    size_t n = end ? (size_t)(end - begin - 1) : 0;
    if (n == 0 || n > 200)
        return NULL;
    for (const char *c = begin + 1; c < end; c++)
        if ((*c < '0' || *c > '9') && (*c < 'A' || *c > 'Z') && (*c < 'a' || *c > 'z') && *c != '.' && *c != '_')
            return NULL;
    return arena_strndup(&p->scratch, begin + 1, n);
}

static const char *output_name(const struct json *node)
{
    const struct json *u = json_only(json_first(json_get(node, "outputs")));
    const struct json *first = json_is(u, JSON_LIST) ? json_first(u) : u;
    const char *name = json_as_text(json_get(first, "name"));
    return name ? name : json_as_text(json_get(first, "as_name")) ? json_as_text(json_get(first, "as_name")) : "";
}

static src_id source_of(struct pt2 *p, const struct json *node, const char *domain, const char *op)
{
    struct arena *session = &p->ctx->session;
    const struct json *meta = json_get(node, "metadata");
    const char *output = output_name(node), *module = module_of(p, json_as_text(json_get(meta, "nn_module_stack")));
    struct source s = {
        .name = module ? arena_printf(session, "%s/%s", module, output) : arena_strdup(session, output),
        .op = op,
        .domain = domain,
        .version = 1,
        .output = arena_strdup(session, output),
        .origin = origin_of(p, json_as_text(json_get(meta, "stack_trace"))),
    };
    return source_add(p->ctx, s);
}

/* ---- nodes ----------------------------------------------------------------------------------------------------- */

bool pt2_target(struct pt2 *p, const struct json *node, const char **domain, const char **op)
{
    const char *target = json_as_text(json_get(node, "target")), *dot;
    if (target && strncmp(target, "torch.ops.", 10) == 0)
        target += 10;
    dot = target ? strchr(target, '.') : NULL;
    if (!dot)
        return pt2_refuse(p, "a node has no target 'torch.ops.NAMESPACE.OPERATOR.OVERLOAD', but '%s'",
                          target ? target : "");
    *domain = arena_strndup(&p->ctx->session, target, (size_t)(dot - target)); /* sources outlive the graph */
    *op = arena_strdup(&p->ctx->session, dot + 1);
    return true;
}

const char *pt2_pure(struct pt2 *p, const char *op)
{
    const char *dot = strchr(op, '.');
    if (!dot || dot - op < 2 || dot[-1] != '_' || dot[-2] == '_')
        return NULL;
    return arena_printf(&p->ctx->session, "%.*s%s", (int)(dot - op - 1), op, dot);
}

/* The results' names, in order; those of a list of tensors one by one. */
struct results {
    VEC(const char *) names;
    bool ok;
};

static void result_add(struct pt2 *p, struct results *r, const struct json *u)
{
    const char *name = json_as_text(json_get(u, "name"));
    if (!name)
        name = json_as_text(json_get(u, "as_name"));
    r->ok = r->ok && name;
    VEC_PUSH(&p->scratch, &r->names, name);
}

static bool results_read(struct pt2 *p, const struct json *node, src_id src, struct results *r)
{
    *r = (struct results){.ok = true};
    for (const struct json *o = json_first(json_get(node, "outputs")); o; o = o->next) {
        const struct json *u = json_only(o);
        if (json_is(u, JSON_LIST))
            for (const struct json *e = json_first(u); e; e = e->next)
                result_add(p, r, e);
        else if (u && strcmp(u->key, "as_none") == 0)
            VEC_PUSH(&p->scratch, &r->names, NULL);
        else
            result_add(p, r, u);
    }
    return r->ok || error_model(p->ctx, src, "a result has no name");
}

/* Types of the results that the file states: rules look at the element type, legalize compares all of it. */
static const struct type *result_types(struct pt2 *p, const struct results *r)
{
    struct type *types = NEW_ARRAY(&p->scratch, struct type, r->names.n);
    for (uint32_t i = 0; i < r->names.n; i++) {
        const struct binding *b = r->names.data[i] ? name_lookup(&p->metas, r->names.data[i]) : NULL;
        types[i] = (struct type){.kind = TYPE_UNKNOWN, .rank = RANK_UNKNOWN};
        if (b && !meta_type(p, p->meta_list.data[b->value.i], r->names.data[i], true, &types[i]))
            return NULL;
    }
    return types;
}

static bool results_bind(struct pt2 *p, node_id id, const struct results *r, src_id src)
{
    for (uint32_t i = 0; i < r->names.n; i++) {
        value_id v = graph_node(p->g, id)->out[i];
        const char *name = r->names.data[i];
        if (!name) {
            graph_node(p->g, id)->out[i] = (value_id){0};
            continue;
        }
        if (pt2_is_bound(p, name))
            return error_model(p->ctx, src, "two values are called '%s'", name);
        graph_value(p->g, v)->name = arena_strdup(&p->g->arena, name);
        value_add(p, name, v);
    }
    return true;
}

const char *const *node_result_names(struct pt2 *p, const struct json *node, src_id src, uint32_t *n)
{
    struct results r;
    bool ok = results_read(p, node, src, &r);
    *n = r.names.n;
    return ok ? (r.names.n ? r.names.data : NEW(&p->scratch, const char *)) : NULL;
}

node_id node_results(struct pt2 *p, const struct json *node, src_id src, const char *domain, const char *op,
                     const value_id *in, uint32_t n_in, const struct attr *attrs, uint32_t n_attrs)
{
    struct results results;
    const struct type *types = results_read(p, node, src, &results) ? result_types(p, &results) : NULL;
    if (!types)
        return (node_id){0};
    node_id id = append(p, src, domain, op, in, n_in, attrs, n_attrs, types, results.names.n);
    return results_bind(p, id, &results, src) ? id : (node_id){0};
}

/* Is x of a list of numbers of the run, or an integer, the size y? Equal texts are equal expressions. */
static bool sizes_equal(struct pt2 *p, const struct json *x, const struct json *y)
{
    const char *name = json_as_text(json_get(x, "as_name"));
    const struct binding *b = name ? name_lookup(&p->numbers, name) : NULL;
    const struct json *is = b ? p->meta_list.data[b->value.i] : x;
    const char *text = json_as_text(json_get(json_get(is, "as_expr"), "expr_str"));
    const char *other = json_as_text(json_get(json_get(y, "as_expr"), "expr_str"));
    int64_t i, k;
    if (text && other)
        return strcmp(text, other) == 0;
    return json_as_int(json_is(is, JSON_OBJECT) ? json_get(is, "as_int") : is, &i) &&
           json_as_int(json_get(y, "as_int"), &k) && i == k;
}

static bool lists_equal(struct pt2 *p, const struct json *a, const struct json *c, const struct json *sizes)
{
    const struct json *x = json_first(a), *y = json_first(c), *size = json_first(sizes);
    for (; x && y; x = x->next, y = y->next, size = size ? size->next : NULL) {
        int64_t n;
        bool one = sizes && json_as_int(json_get(size, "as_int"), &n) && n == 1; /* its stride says nothing */
        if (!one && !sizes_equal(p, x, y))
            return false;
    }
    return !x && !y;
}

/* Decompositions write as_strided with the sizes and strides that the tensor has already: that is the tensor. */
static bool is_same_view(struct pt2 *p, const struct json *node)
{
    const struct json *self = node_arg(node, "self"), *size = json_only(node_arg(node, "size"));
    const struct json *stride = json_only(node_arg(node, "stride")), *offset = node_arg(node, "storage_offset");
    const char *name = json_as_text(json_get(json_get(self, "as_tensor"), "name"));
    const struct binding *b = name ? name_lookup(&p->metas, name) : NULL;
    const struct json *meta = b ? p->meta_list.data[b->value.i] : NULL, *sizes = json_get(meta, "sizes");
    return meta && lists_equal(p, size, sizes, NULL) && lists_equal(p, stride, json_get(meta, "strides"), sizes) &&
           (!offset || json_get(offset, "as_none"));
}

/* as_strided reads memory: how the operand lies there, where the file says it in numbers. */
static void layout_put(struct pending *n, const struct json *node)
{
    const char *name = json_as_text(json_get(json_get(node_arg(node, "self"), "as_tensor"), "name"));
    const struct binding *b = name ? name_lookup(&n->p->metas, name) : NULL;
    const struct json *meta = b ? n->p->meta_list.data[b->value.i] : NULL, *strides = json_get(meta, "strides");
    int64_t *list = NEW_ARRAY(&n->p->scratch, int64_t, strides ? strides->n + 1 : 1), offset;
    uint32_t k = 0;
    for (const struct json *s = json_first(strides); s; s = s->next)
        if (!json_as_int(json_get(s, "as_int"), &list[k++]))
            return;
    if (!strides || !json_as_int(json_get(json_get(meta, "storage_offset"), "as_int"), &offset))
        return;
    put(n, attr_ints("self_strides", list, k));
    put(n, attr_int("self_offset", offset));
}

/* Casts the operands as autocast does: to the narrow type for products, to the result's elsewhere if that is wider. */
static void operands_cast(struct pending *n, const char *op, const struct type *result, uint32_t n_results)
{
    static const char products[] =
        " conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution "
        "_convolution mm bmm addmm baddbmm addbmm linear matmul prelu einsum "
        "scaled_dot_product_attention ";
    enum elem to = n_results && result->kind == TYPE_TENSOR ? result->elem : ELEM_NONE;
    const char *dot = strchr(op, '.'), *name = arena_printf(&n->p->scratch, " %.*s ", (int)(dot ? dot - op : 0), op);
    if (to == ELEM_NONE || elem_class(to) != 'F')
        return;
    for (uint32_t i = 0; i < n->in.n; i++) {
        enum elem from = n->in.data[i].i ? value_type(n->p->g, n->in.data[i])->elem : ELEM_NONE;
        bool narrow = to == n->p->autocast && strstr(products, name);
        if (from == ELEM_NONE || elem_class(from) != 'F' || from == to || (elem_size(from) >= elem_size(to) && !narrow))
            continue;
        const struct attr attr = attr_elem("dtype", to);
        n->in.data[i] = append_aten(n->p, n->src, "_to_copy.default", &n->in.data[i], 1, &attr, 1);
        graph_value(n->p->g, n->in.data[i])->type = pt2_any(to);
    }
}

static bool node_import(struct pt2 *p, const struct json *node)
{
    const char *domain, *op, *pure;
    struct results results;
    if (!json_is(json_get(node, "inputs"), JSON_LIST) || json_get(node, "inputs")->n > NODE_ARGS_MAX)
        return pt2_refuse(p, "a node has no list of inputs, or one of more than %d", NODE_ARGS_MAX);
    if (!pt2_target(p, node, &domain, &op))
        return false;
    struct pending n = {.p = p, .src = source_of(p, node, domain, op), .what = op, .ok = true};
    if (++p->n_imported > p->ctx->limits.nodes || p->g->nodes.n > p->ctx->limits.nodes)
        return error_limit(p->ctx, n.src, "more than %lld nodes (--limit-nodes)", (long long)p->ctx->limits.nodes);
    if (strcmp(domain, "higher_order") == 0)
        return higher_order_import(p, node, n.src, op);
    pure = pt2_pure(p, op);
    bool same = strcmp(op, "as_strided.default") == 0 && is_same_view(p, node);
    if (same)
        op = "alias.default";
    const struct schema *schema = torch_schema(domain, op),
                        *written = schema || !pure ? NULL : torch_schema(domain, pure);
    if (written)
        schema = written;
    if (schema && !same)
        arguments(&n, schema, node, NULL);
    else
        arguments_unknown(&n, node);
    if (strcmp(op, "as_strided.default") == 0)
        layout_put(&n, node);
    if (!n.ok || !results_read(p, node, n.src, &results))
        return false;
    const struct type *types = result_types(p, &results);
    if (!types)
        return false;
    if (p->autocast != ELEM_NONE)
        operands_cast(&n, op, &types[0], results.names.n);
    node_id id = append(p, n.src, domain, written ? pure : op, n.in.data, n.in.n, n.attrs.data, n.attrs.n, types,
                        results.names.n);
    if (!results_bind(p, id, &results, n.src))
        return false;
    enum schema_alias alias = schema ? torch_schema_alias(schema) : ALIAS_NONE;
    if (!n.first && alias == ALIAS_MAYBE && n.lists.n == 3 && n.lists.data[2] == 1)
        n.first = n.listed; /* einsum of one tensor may be a permutation of it */
    if (written && (alias == ALIAS_VIEW || alias == ALIAS_MAYBE))
        return error_model(p->ctx, n.src,
                           "%s changes the shape of its operand in place: export with run_decompositions()", op);
    for (uint32_t i = 0; n.first && i < results.names.n; i++)
        if (results.names.data[i])
            value_view(p, name_lookup(&p->names, results.names.data[i])->value.i, n.first, node,
                       written ? ALIAS_SAME : alias);
    if (written && alias == ALIAS_NONE && n.first)
        return value_write(p, n.first, graph_node(p->g, id)->out[0], n.src);
    return true;
}

value_id node_again(struct pt2 *p, const struct json *node, value_id self, value_id src, const char *as)
{
    const char *domain, *op;
    if (!pt2_target(p, node, &domain, &op))
        return (value_id){0};
    op = as ? as : op;
    const struct schema *schema = torch_schema("aten", op);
    struct pending n = {.p = p, .src = source_of(p, node, "aten", op), .what = op, .ok = true};
    const struct instead by = {self, src};
    if (!schema || json_get(node, "outputs")->n != 1 ||
        json_is(json_only(json_first(json_get(node, "outputs"))), JSON_LIST)) {
        error_model(p->ctx, n.src,
                    "a view with several results, of a tensor that was written to, is not supported: export with "
                    "run_decompositions()");
        return (value_id){0};
    }
    arguments(&n, schema, node, &by);
    return n.ok ? append_aten(p, n.src, op, n.in.data, n.in.n, n.attrs.data, n.attrs.n) : (value_id){0};
}

bool pt2_nodes(struct pt2 *p, const struct json *graph)
{
    const struct json *nodes = json_get(graph, "nodes");
    uint32_t before = p->ctx->n_errors;
    if (!json_is(nodes, JSON_LIST))
        return pt2_refuse(p, "a graph of the program has no list of nodes");
    if (nodes->n > p->ctx->limits.nodes)
        return error_limit(p->ctx, (src_id){0}, "%u nodes, the limit is %lld (--limit-nodes)", nodes->n,
                           (long long)p->ctx->limits.nodes);
    for (const struct json *n = json_first(nodes); n; n = n->next)
        if (!node_import(p, n))
            return false;
    return p->ctx->n_errors == before;
}

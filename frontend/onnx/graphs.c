/* GraphProto -> a region: parameters, initializers as constants at its head, nodes, results. The top graph also has
 * ports; of its inputs those with an initializer are constants, unless the user wants to override them.
 */
#include "frontend/onnx/import.h"

static const char *text(const char *s)
{
    return s ? s : "";
}

/* ---- initializers --------------------------------------------------------------------------------------------- */

static struct type constant_type(struct importer *im, const struct tensor_data *t)
{
    expr_id *dims = NEW_ARRAY(&im->scratch, expr_id, t->rank);
    for (int32_t i = 0; i < t->rank; i++)
        dims[i] = ex_const(im->ctx->exprs, t->dims[i]);
    return (struct type){.kind = TYPE_TENSOR, .elem = t->elem, .rank = t->rank, .dims = dims};
}

static value_id constant_append(struct importer *im, region_id r, const struct tensor_data *t)
{
    const struct attr attrs[] = {
        attr_elem("elem", t->elem),
        attr_ints("dims", t->dims, (uint32_t)t->rank),
        attr_data(t->bytes.data, t->bytes.size),
    };
    struct type type = constant_type(im, t);
    node_id id = graph_append(im->g, r, OP_CONSTANT, (src_id){0}, NULL, 0, attrs, COUNT_OF(attrs), &type, 1);
    value_id v = graph_node(im->g, id)->out[0];
    graph_value(im->g, v)->name = arena_strdup(&im->g->arena, t->name);
    return v;
}

/* The graph's inputs by name: value.i is the first one's index + 1. */
static void inputs_index(struct importer *im, const Onnx__GraphProto *g, struct names *out)
{
    names_init(out, &im->scratch);
    for (uint32_t i = 0; i < g->n_input; i++)
        if (!name_lookup(out, text(g->input[i]->name)))
            name_bind(out, text(g->input[i]->name), (value_id){i + 1}, 0);
}

static bool is_overridable(const struct importer *im, const char *name)
{
    return im->options && ROW_NAMED(im->options->overridable, im->options->n_overridable, name);
}

static bool declaration_agrees(struct importer *im, const Onnx__ValueInfoProto *input, struct where w,
                               const struct type *actual)
{
    struct type declared;
    if (!input->type)
        return true;
    if (!type_import(im, input->type, w, &declared))
        return false;
    bool same = declared.kind == TYPE_TENSOR && declared.elem == actual->elem &&
                (declared.rank == RANK_UNKNOWN || declared.rank == actual->rank);
    for (int32_t i = 0; same && declared.rank > 0 && i < declared.rank; i++)
        same = declared.dims[i].i == actual->dims[i].i || ex_kind(im->ctx->exprs, declared.dims[i]) != EX_CONST;
    return same ? true : refuse(im, w, "the initializer and the input of its name have different types");
}

/* Binds an initializer as a constant. One that the user wants to override is only checked: without an entry among the
 * inputs it becomes a parameter here, with one it becomes that parameter. */
static bool initializer_add(struct importer *im, const Onnx__GraphProto *g, struct names *inputs, region_id r, bool top,
                            const struct tensor_data *t)
{
    struct where w = {{0}, t->name};
    const struct binding *b = name_lookup(&im->names, t->name);
    if (b && b->scope == im->names.scope)
        return refuse(im, w, "two initializers have this name");
    if (b && b->value.i)
        return refuse(im, w, "the initializer has the name of a value of an enclosing graph");
    struct type type = constant_type(im, t);
    const struct binding *listed = name_lookup(inputs, t->name);
    const Onnx__ValueInfoProto *input = listed ? g->input[listed->value.i - 1] : NULL;
    if (input && !declaration_agrees(im, input, w, &type))
        return false;
    if (!top || !is_overridable(im, t->name))
        name_bind(&im->names, t->name, constant_append(im, r, t), 0);
    else if (!input)
        name_bind(&im->names, t->name, graph_param(im->g, r, type, t->name), 0);
    return true;
}

static bool initializers_import(struct importer *im, const Onnx__GraphProto *g, region_id r, src_id src, bool top)
{
    bool ok = true;
    struct names inputs;
    inputs_index(im, g, &inputs);
    for (size_t i = 0; i < g->n_initializer + g->n_sparse_initializer; i++) {
        const Onnx__SparseTensorProto *sparse = i < g->n_initializer ? NULL
                                                                     : g->sparse_initializer[i - g->n_initializer];
        const Onnx__TensorProto *dense = sparse ? sparse->values : g->initializer[i];
        const char *name = dense ? text(dense->name) : "";
        struct tensor_data t;
        if (!*name) {
            ok = error_model(im->ctx, src, "an initializer has no name");
            continue;
        }
        struct where w = {src, dense->name};
        if (sparse ? sparse_import(im, sparse, w, &t) : tensor_import(im, dense, w, &t)) {
            ok = initializer_add(im, g, &inputs, r, top, &t) && ok;
        } else {
            name_bind(&im->names, dense->name, (value_id){0}, 0);   /* its readers need no error of their own */
            ok = false;
        }
    }
    return ok;
}

/* ---- inputs ------------------------------------------------------------------------------------------------------ */

static bool param_add(struct importer *im, const Onnx__ValueInfoProto *input, region_id r, src_id src, bool top)
{
    const char *name = text(input->name);
    struct where w = {src, name};
    struct type type = {.kind = TYPE_UNKNOWN, .rank = RANK_UNKNOWN};
    if (!*name)
        return error_model(im->ctx, src, "an input of the graph has no name");
    bool ok = input->type ? type_import(im, input->type, w, &type)
                          : !top || refuse(im, w, "an input of the graph has no type");
    name_bind(&im->names, name, graph_param(im->g, r, type, name), 0);
    return ok;
}

/* Inputs that are no initializers become parameters; the initializers are bound already. */
static bool inputs_import(struct importer *im, const Onnx__GraphProto *g, region_id r, src_id src, bool top)
{
    struct names seen;
    bool ok = true;
    names_init(&seen, &im->scratch);
    for (size_t i = 0; i < g->n_input; i++) {
        const char *name = text(g->input[i]->name);
        if (*name && name_lookup(&seen, name)) {
            ok = error_at(im->ctx, FAIL_MODEL, src, name, "two inputs of the graph have this name");
            continue;
        }
        name_bind(&seen, name, (value_id){0}, 0);
        const struct binding *b = *name ? name_lookup(&im->names, name) : NULL;
        if (!b || b->scope != im->names.scope)
            ok = param_add(im, g->input[i], r, src, top) && ok;
    }
    return ok;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static bool outputs_import(struct importer *im, const Onnx__GraphProto *g, region_id r, src_id src)
{
    bool ok = true;
    for (size_t i = 0; i < g->n_output; i++) {
        const char *name = text(g->output[i]->name);
        value_id v = {0};
        if (*name)
            v = value_resolve(im, name, src, "output");
        else
            error_model(im->ctx, src, "output %zu of the graph has no name", i);
        if (v.i)
            graph_add_result(im->g, r, v);
        ok = ok && v.i;
    }
    return ok;
}

/* Everything of a graph but its ports. */
static bool body_import(struct importer *im, const Onnx__GraphProto *g, region_id r, src_id src, uint32_t depth)
{
    uint32_t before = im->ctx->n_errors;
    initializers_import(im, g, r, src, depth == 0);
    inputs_import(im, g, r, src, depth == 0);
    if (nodes_import(im, g->node, g->n_node, r, depth) || im->ctx->n_errors == before)
        outputs_import(im, g, r, src);
    return im->ctx->n_errors == before;
}

bool subgraph_import(struct importer *im, const Onnx__GraphProto *g, region_id r, src_id src, uint32_t depth)
{
    scope_open(&im->names);
    bool ok = body_import(im, g, r, src, depth);
    scope_close(&im->names);
    return ok;
}

/* ---- the top graph ----------------------------------------------------------------------------------------------- */

static void port_push(struct importer *im, bool output, const char *name, const struct type *declared, value_id v)
{
    struct port p = {arena_strdup(&im->ctx->session, name), declared, v};
    if (output)
        VEC_PUSH(&im->g->arena, &im->g->outputs, p);
    else
        VEC_PUSH(&im->g->arena, &im->g->inputs, p);
}

/* In the order of the region's parameters: overridable initializers without an input, then the file's inputs. */
static void input_ports(struct importer *im)
{
    const struct region *top = graph_get_region(im->g, (region_id){1});
    for (uint32_t i = 0; i < top->params.n; i++) {
        value_id v = top->params.data[i];
        struct type *declared = arena_copy(&im->g->arena, value_type(im->g, v), sizeof *declared);
        port_push(im, false, graph_value(im->g, v)->name, declared, v);
    }
}

static bool output_ports(struct importer *im, const Onnx__GraphProto *g)
{
    const struct region *top = graph_get_region(im->g, (region_id){1});
    struct names seen;
    bool ok = true;
    names_init(&seen, &im->scratch);
    for (size_t i = 0; i < g->n_output; i++) {
        const char *name = g->output[i]->name;
        struct type *declared = NEW(&im->g->arena, struct type);
        declared->rank = RANK_UNKNOWN;
        if (name_lookup(&seen, name))
            ok = error_at(im->ctx, FAIL_MODEL, (src_id){0}, name, "two outputs of the graph have this name");
        name_bind(&seen, name, (value_id){0}, 0);
        if (g->output[i]->type && g->output[i]->type->value_case != ONNX__TYPE_PROTO__VALUE__NOT_SET)
            ok = type_import(im, g->output[i]->type, (struct where){{0}, name}, declared) && ok;
        port_push(im, true, name, declared, top->results.data[i]);
    }
    return ok;
}

static bool overridable_check(struct importer *im)
{
    bool ok = true;
    for (uint32_t i = 0; im->options && i < im->options->n_overridable; i++) {
        const struct binding *b = name_lookup(&im->names, im->options->overridable[i]);
        if (!b || !b->value.i || graph_value(im->g, b->value)->def.i)
            ok = error_at(im->ctx, FAIL_USAGE, (src_id){0}, im->options->overridable[i],
                          "the model has no initializer of this name to override");
    }
    return ok;
}

bool graph_import(struct importer *im, const Onnx__GraphProto *g)
{
    im->g->name = arena_strdup(&im->g->arena, text(g->name));
    if (g->n_output == 0)
        return error_model(im->ctx, (src_id){0}, "the graph has no outputs");
    scope_open(&im->names);
    bool ok = body_import(im, g, (region_id){1}, (src_id){0}, 0);
    if (ok) {
        input_ports(im);
        ok = output_ports(im, g) && overridable_check(im);
    }
    scope_close(&im->names);
    return ok;
}

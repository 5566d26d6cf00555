/* The verifier of tensor graphs. Every violation is one FAIL_INTERNAL diagnostic that names the invariant.
 *
 *  both forms
 *   1  a live node stands exactly once in the list of its region; a dead one in none
 *   2  a region's owner lists it, its parent is the region of its owner, its depth one more; all regions form a tree
 *   3  results know their node, parameters their region: the members def and result of a value point back
 *   4  an operand, or a result of a region, is defined before it in the same region or in an enclosing one
 *   5  n_uses counts the operands of live nodes and the results of regions; graph_user finds each of them
 *   6  the ports are the parameters and results of the top region, in order; the last inputs are the states, of their
 *      element type and dims, and in the legal form the last outputs, too
 *  legal form
 *   7  no node is `imported`; the number of operands and results is that of the operator's row
 *   8  attributes are those of the row: known name, its kind, once, none missing but the optional ones
 *   9  every type is known: an element type, a rank in [0, 32], every dim an expression that may be >= 0; of
 *      what a sequence, optional or map holds rank and dims may be unknown; the rank of an if's result, too
 *  10  inference agrees with the types of results (control flow: kinds, element types and ranks across regions; a rank
 * that is unknown goes with every other) 11  known elements: as many as the type's static dims say, of an integer or
 * bool tensor 12  a SYM_VALUE symbol in a type or attribute names a live value of this graph, or is the `trips` of a
 * loop
 */
#include "ir/graph/graph.h"

#include <stdio.h>

struct verifier {
    struct graph *g;
    struct arena arena;
    uint8_t *listed;             /* by node: times it was met in a list */
    uint32_t *uses;              /* by value */
    uint32_t *owned;             /* by region: times an owner or function lists it */
    bool *defined;               /* by value: in scope at this point of the walk */
    bool *seen_expr;
    uint32_t n_exprs;
    bool ok;
};

PRINTF_LIKE(4, 5)
static void violated(struct verifier *v, int number, const struct node *node, const char *fmt, ...)
{
    TEXT_OF_ARGUMENTS(text, 400, fmt);
    v->ok = false;
    error_internal(v->g->ctx, node ? node->src : (src_id){0}, "graph invariant %d: %s%s%s", number,
                   node ? op_name(node->op) : "", node ? ": " : "", text);
}

static bool value_exists(const struct verifier *v, value_id id)
{
    return id.i > 0 && id.i < v->g->values.n;
}

/* ---- expressions and types ------------------------------------------------------------------------------ */

/* Invariant 12 for all symbols of e; every expression is looked at once. */
static void check_expr(struct verifier *v, const struct node *node, expr_id e)
{
    struct exprs *x = v->g->ctx->exprs;
    if (!e.i || e.i >= v->n_exprs || v->seen_expr[e.i])
        return;
    v->seen_expr[e.i] = true;
    sym_id s = ex_as_sym(x, e);
    if (s.i && sym_get(x, s)->kind == SYM_VALUE) {
        value_id at = {sym_get(x, s)->value};
        node_id def = value_exists(v, at) ? graph_value(v->g, at)->def : (node_id){0};
        if (!value_exists(v, at) || (def.i && graph_node(v->g, def)->dead))
            violated(v, 12, node, "nothing computes the symbol %s", sym_get(x, s)->name);
    }
    for (uint32_t i = 0; i < ex_n_args(x, e); i++)
        check_expr(v, node, ex_arg(x, e, i));   /* depth is bounded when expressions are made */
}

static void check_type(struct verifier *v, const struct node *node, const struct type *t)
{
    bool held = t && t->kind != TYPE_TENSOR;
    for (; t && (t->kind == TYPE_SEQUENCE || t->kind == TYPE_OPTIONAL || t->kind == TYPE_MAP); t = t->inner) {
        if (!t->inner)
            violated(v, 9, node, "a sequence, optional or map of nothing");
    }
    if (!t)
        return;
    if (t->kind != TYPE_TENSOR || t->elem == ELEM_NONE || (unsigned)t->elem >= ELEM_COUNT) {
        violated(v, 9, node, "a type is unknown");
        return;
    }
    if (t->rank > RANK_MAX)
        violated(v, 9, node, "rank %d", (int)t->rank);
    for (int32_t i = 0; i < t->rank; i++) {
        if (t->dims[i].i ? ex_hi(v->g->ctx->exprs, t->dims[i]) < 0 : !held)
            violated(v, 9, node, "dim %d is %s", (int)i, t->dims[i].i ? "negative" : "unknown");
        check_expr(v, node, t->dims[i]);
    }
}

/* The type of a value: outermost, a tensor has a rank, unless it is what an if chooses. */
static void check_value_type(struct verifier *v, const struct node *node, const struct value *value)
{
    const struct type *t = &value->type;
    check_type(v, node, t);
    if (t->kind == TYPE_TENSOR && t->rank < 0 && !(node && node->op == OP_IF))
        violated(v, 9, node, "a rank is unknown");
    if (!value->elems)
        return;
    char class = t->kind == TYPE_TENSOR ? elem_class(t->elem) : 'S';
    int64_t n = 1, dim;
    for (int32_t i = 0; i < t->rank && n >= 0; i++)
        if (!ex_is_const(v->g->ctx->exprs, t->dims[i], &dim) || !mul_i64(n, dim, &n))
            n = -1;
    if (n != (int64_t)value->n_elems || !strchr("BIUF", class))
        violated(v, 11, node, "%u known elements", value->n_elems);
    for (uint32_t i = 0; i < value->n_elems; i++)
        check_expr(v, node, value->elems[i]);
}

/* ---- nodes of the legal form ------------------------------------------------------------------------------ */

static void check_attr(struct verifier *v, const struct node *node, uint32_t i, const struct op_attr *rows, uint32_t n)
{
    const struct attr *a = &node->attr[i];
    uint32_t k = 0;
    while (k < n && strcmp(rows[k].name, a->name) != 0)
        k++;
    if (k == n)
        violated(v, 8, node, "no attribute %s in its row", a->name);
    else if (rows[k].kind != (char)a->kind)
        violated(v, 8, node, "attribute %s has kind %c, not %c", a->name, (char)a->kind, rows[k].kind);
    for (uint32_t j = 0; j < i; j++)
        if (strcmp(node->attr[j].name, a->name) == 0)
            violated(v, 8, node, "attribute %s stands twice", a->name);
    bool own = node->op == OP_LOOP && strcmp(a->name, "trips") == 0;
    if (a->kind == ATTR_EXPR && !(own && ex_as_sym(v->g->ctx->exprs, a->u.e).i))
        check_expr(v, node, a->u.e);
    for (uint32_t j = 0; a->kind == ATTR_EXPRS && j < a->n; j++) {
        if (!a->u.exprs[j].i)
            violated(v, 8, node, "attribute %s holds an unknown expression", a->name);
        check_expr(v, node, a->u.exprs[j]);
    }
}

static bool check_row(struct verifier *v, const struct node *node)
{
    const struct op_info *row = op_info(node->op);
    if (node->op == OP_NONE || node->op == OP_IMPORTED || (int64_t)node->n_in < row->min_in ||
        (row->max_in >= 0 && (int64_t)node->n_in > row->max_in) ||
        (row->n_out >= 0 && (int64_t)node->n_out != row->n_out)) {
        violated(v, 7, node, "%u operands and %u results", node->n_in, node->n_out);
        return false;
    }
    struct op_attr rows[OP_ATTR_MAX];
    uint32_t n = op_attrs(node->op, rows);
    for (uint32_t i = 0; i < node->n_attr; i++)
        check_attr(v, node, i, rows, n);
    for (uint32_t k = 0; k < n; k++)
        if (!rows[k].optional && !node_attr(node, rows[k].name))
            violated(v, 8, node, "attribute %s is missing", rows[k].name);
    return v->ok;
}

/* May a region's result of type a be a result of type b? */
static bool alike(const struct type *a, const struct type *b)
{
    return a->kind == b->kind &&
           (a->kind != TYPE_TENSOR || (a->elem == b->elem && (a->rank == b->rank || b->rank == RANK_UNKNOWN)));
}

/* Results k.. of region r against results from.. of the node, as far as the kinds go; scans have one dim more. */
static void check_region_results(struct verifier *v, const struct node *node, region_id r, uint32_t first,
                                 uint32_t n_carried)
{
    const struct region *region = graph_get_region(v->g, r);
    if (region->results.n != node->n_out + first) {
        violated(v, 10, node, "a region gives %u results for %u", region->results.n, node->n_out);
        return;
    }
    for (uint32_t i = 0; i < node->n_out; i++) {
        struct type inner = *value_type(v->g, region->results.data[first + i]);
        if (i >= n_carried)
            inner.rank++;
        if (!alike(&inner, value_type(v->g, node->out[i])))
            violated(v, 10, node, "result %u does not have the type that its region gives", i);
    }
}

static void check_control(struct verifier *v, const struct node *node)
{
    if (node->op == OP_IF) {
        if (node->n_region != 2)
            violated(v, 10, node, "%u regions", node->n_region);
        for (uint32_t i = 0; i < node->n_region; i++) {
            if (graph_get_region(v->g, node->region[i])->params.n)
                violated(v, 10, node, "a branch has parameters");
            check_region_results(v, node, node->region[i], 0, node->n_out);
        }
    } else if (node->op == OP_LOOP) {
        uint32_t n_carried = (uint32_t)node_int(node, "n_carried", 0);
        if (node->n_region != 1 || n_carried + 2 != node->n_in || n_carried > node->n_out) {
            violated(v, 10, node, "%u regions, %u carried values", node->n_region, n_carried);
            return;
        }
        const struct region *body = graph_get_region(v->g, node->region[0]);
        if (body->params.n != node->n_in)
            violated(v, 10, node, "the body has %u parameters", body->params.n);
        check_region_results(v, node, node->region[0], 1, n_carried);
    }
}

static void check_inferred(struct verifier *v, const struct node *node)
{
    struct type *out = NEW_ARRAY(&v->arena, struct type, node->n_out);
    if (!op_infer(v->g, node->op, node->src, node->in, node->n_in, node->attr, node->n_attr, out, node->n_out)) {
        violated(v, 10, node, "inference refuses it");
        return;
    }
    for (uint32_t i = 0; i < node->n_out; i++)
        if (!type_equal(&out[i], value_type(v->g, node->out[i])))
            violated(v, 10, node, "result %u has not the type that inference gives", i);
}

static void check_legal(struct verifier *v, const struct node *node)
{
    for (uint32_t i = 0; i < node->n_out; i++)
        check_value_type(v, node, graph_value(v->g, node->out[i]));
    bool types_fine = v->ok;
    if (!check_row(v, node) || !types_fine)
        return;
    if (op_shape(node->op) == SHAPE_CONTROL && node->op != OP_ASSERT)
        check_control(v, node);
    else
        check_inferred(v, node);
}

/* ---- the walk ----------------------------------------------------------------------------------------------- */

static void check_use(struct verifier *v, const struct node *node, value_id id, bool may_be_absent)
{
    if (!id.i && may_be_absent)
        return;
    if (!value_exists(v, id)) {
        violated(v, 4, node, "operand %u does not exist", id.i);
        return;
    }
    v->uses[id.i]++;
    if (!v->defined[id.i])
        violated(v, 4, node, "value %u is used where it is not defined", id.i);
}

static void define(struct verifier *v, const struct node *node, value_id id, node_id def, uint32_t result)
{
    if (!id.i && node && !v->g->legal)
        return;   /* an omitted result */
    if (!value_exists(v, id) || graph_value(v->g, id)->def.i != def.i || graph_value(v->g, id)->result != result ||
        v->defined[id.i]) {
        violated(v, 3, node, "value %u, result or parameter %u, does not point back or is defined twice", id.i, result);
        return;
    }
    v->defined[id.i] = true;
}

static void check_region(struct verifier *v, region_id r);

static void check_node(struct verifier *v, region_id r, node_id id)
{
    if (id.i == 0 || id.i >= v->g->nodes.n || v->listed[id.i] || graph_node(v->g, id)->dead ||
        graph_node(v->g, id)->parent.i != r.i) {
        violated(v, 1, NULL, "node %u stands where it does not belong, or twice", id.i);
        return;
    }
    struct node node = *graph_node(v->g, id);   /* inference may add to the graph's arrays */
    v->listed[id.i]++;
    for (uint32_t i = 0; i < node.n_in; i++)
        check_use(v, &node, node.in[i], !v->g->legal);
    for (uint32_t i = 0; i < node.n_region; i++) {
        region_id inner = node.region[i];
        if (inner.i == 0 || inner.i >= v->g->regions.n || v->owned[inner.i]++ ||
            graph_get_region(v->g, inner)->owner.i != id.i || graph_get_region(v->g, inner)->parent.i != r.i ||
            graph_get_region(v->g, inner)->depth != graph_get_region(v->g, r)->depth + 1)
            violated(v, 2, &node, "region %u is not its own", inner.i);
        else
            check_region(v, inner);
    }
    for (uint32_t i = 0; i < node.n_out; i++)
        define(v, &node, node.out[i], id, i);
    if (v->g->legal && v->ok)
        check_legal(v, &node);
}

/* What a region defines is out of scope after it. Recursion is bounded by graph_region. */
static void check_region(struct verifier *v, region_id r)
{
    const struct region *region = graph_get_region(v->g, r);
    for (uint32_t i = 0; i < region->params.n; i++) {
        define(v, NULL, region->params.data[i], (node_id){0}, i);
        if (v->g->legal && value_exists(v, region->params.data[i]))
            check_value_type(v, NULL, graph_value(v->g, region->params.data[i]));
    }
    uint32_t n = region->nodes.n;
    for (uint32_t i = 0; i < n; i++)
        check_node(v, r, graph_get_region(v->g, r)->nodes.data[i]);
    region = graph_get_region(v->g, r);
    for (uint32_t i = 0; i < region->results.n; i++)
        check_use(v, NULL, region->results.data[i], !v->g->legal);
    for (uint32_t i = 0; i < region->params.n; i++)
        if (value_exists(v, region->params.data[i]))
            v->defined[region->params.data[i].i] = false;
    for (uint32_t i = 0; i < region->nodes.n; i++) {
        const struct node *node = graph_node(v->g, region->nodes.data[i]);
        for (uint32_t k = 0; k < node->n_out; k++)
            if (value_exists(v, node->out[k]))
                v->defined[node->out[k].i] = false;
    }
}

static uint32_t count_users(const struct graph *g, value_id v)
{
    uint32_t n = 0;
    for (const struct graph_user *u = graph_user(g, v, NULL); u; u = graph_user(g, v, u))
        n++;
    return n;
}

static void check_counts(struct verifier *v)
{
    for (uint32_t i = 1; i < v->g->nodes.n; i++)
        if (!v->g->nodes.data[i].dead && !v->listed[i] && v->owned[v->g->nodes.data[i].parent.i])
            violated(v, 1, &v->g->nodes.data[i], "node %u stands in no list", i);
    for (uint32_t i = 1; i < v->g->values.n; i++)
        if (v->uses[i] != v->g->values.data[i].n_uses)
            violated(v, 5, NULL, "value %u has %u uses, not %u", i, v->uses[i], v->g->values.data[i].n_uses);
        else if (v->uses[i] > count_users(v->g, (value_id){i}))
            violated(v, 5, NULL, "value %u has %u uses, some of which graph_user does not find", i, v->uses[i]);
}

static void check_ports(struct verifier *v)
{
    const struct graph *g = v->g;
    const struct region *top = graph_get_region(g, (region_id){1});
    bool fine = g->inputs.n == top->params.n && g->outputs.n == top->results.n;
    for (uint32_t i = 0; fine && i < g->inputs.n; i++)
        fine = g->inputs.data[i].value.i == top->params.data[i].i;
    for (uint32_t i = 0; fine && i < g->outputs.n; i++)
        fine = g->outputs.data[i].value.i == top->results.data[i].i;
    if (!fine)
        violated(v, 6, NULL, "%u inputs for %u parameters, %u outputs for %u results, or of other values", g->inputs.n,
                 top->params.n, g->outputs.n, top->results.n);
    fine = g->states.n <= g->inputs.n && g->states.n <= g->outputs.n;
    for (uint32_t k = 0; fine && k < g->states.n; k++)
        fine = graph_state_fits(g, k, g->inputs.data[graph_user_inputs(g) + k].value) &&
               (!g->legal || graph_state_fits(g, k, g->outputs.data[graph_user_outputs(g) + k].value));
    if (!fine)
        violated(v, 6, NULL, "%u states, which are not the last inputs and outputs", g->states.n);
}

bool graph_verify(struct graph *g)
{
    struct verifier v = {.g = g, .ok = true, .n_exprs = ex_count(g->ctx->exprs)};
    arena_init(&v.arena, g->ctx);
    v.listed = NEW_ARRAY(&v.arena, uint8_t, g->nodes.n);
    v.uses = NEW_ARRAY(&v.arena, uint32_t, g->values.n);
    v.defined = NEW_ARRAY(&v.arena, bool, g->values.n);
    v.owned = NEW_ARRAY(&v.arena, uint32_t, g->regions.n);
    v.seen_expr = NEW_ARRAY(&v.arena, bool, v.n_exprs);
    v.owned[1] = 1;
    for (uint32_t i = 0; i < g->functions.n; i++) {
        if (g->functions.data[i].body.i) {
            v.owned[g->functions.data[i].body.i]++;
            check_region(&v, g->functions.data[i].body);
        }
    }
    check_region(&v, (region_id){1});
    if (v.ok)
        check_counts(&v);
    check_ports(&v);
    arena_release(&v.arena);
    return v.ok;
}

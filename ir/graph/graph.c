/* The tensor graph: creation and mutation of nodes, values and regions, with use counts kept right.
 *
 * Ids are positions in dense arrays; an erased node keeps its id and its record (dead), its region's list
 * forgets it. Everything handed in is copied into the graph's arena, except the bytes of constants.
 * Sweeping is in ir/graph/sweep.c.
 */
#include "ir/graph/graph.h"

#include <assert.h>

struct graph *graph_new(struct context *ctx)
{
    struct arena arena;
    arena_init(&arena, ctx);
    struct graph *g = NEW(&arena, struct graph);
    g->ctx = ctx;
    g->arena = arena;
    g->name = "";
    VEC_PUSH(&g->arena, &g->nodes, (struct node){.dead = true});
    VEC_PUSH(&g->arena, &g->values, (struct value){0});
    VEC_PUSH(&g->arena, &g->regions, (struct region){0});
    VEC_PUSH(&g->arena, &g->users, (struct graph_user){0});
    graph_region(g, (region_id){0}, (node_id){0});
    return g;
}

void graph_free(struct graph *g)
{
    if (!g)
        return;
    struct arena arena = g->arena;   /* g itself lives in it */
    arena_release(&arena);
}

struct node *graph_node(const struct graph *g, node_id n)
{
    assert(n.i > 0 && n.i < g->nodes.n);
    return &g->nodes.data[n.i];
}

struct value *graph_value(const struct graph *g, value_id v)
{
    assert(v.i > 0 && v.i < g->values.n);
    return &g->values.data[v.i];
}

struct region *graph_get_region(const struct graph *g, region_id r)
{
    assert(r.i > 0 && r.i < g->regions.n);
    return &g->regions.data[r.i];
}

const struct type *value_type(const struct graph *g, value_id v)
{
    return &graph_value(g, v)->type;
}

uint32_t graph_user_inputs(const struct graph *g)
{
    return g->inputs.n - g->states.n;
}

uint32_t graph_user_outputs(const struct graph *g)
{
    return g->outputs.n - g->states.n;
}

bool graph_state_fits(const struct graph *g, uint32_t k, value_id v)
{
    const struct tensor_data *state = &g->states.data[k].initial;
    const struct type *t = value_type(g, v);
    bool fits = t->kind == TYPE_TENSOR && t->elem == state->elem && t->rank == state->rank;
    for (int32_t d = 0; fits && d < state->rank; d++)
        fits = ex_is(g->ctx->exprs, t->dims[d], state->dims[d]);
    return fits;
}

expr_id concat_begin(const struct graph *graph, const struct node *n, uint32_t k)
{
    struct graph *g = (struct graph *)(uintptr_t)graph;   /* only its cache changes */
    uint32_t id = n->out ? graph_value(g, n->out[0])->def.i : 0;
    int64_t axis = node_int(n, "axis", 0);
    while (g->begins.n <= id)
        VEC_PUSH(&g->arena, &g->begins, (struct concat_begins){0});
    struct concat_begins *b = &g->begins.data[id];
    if (b->n != n->n_in + 1 || (id == 0 && k == 0)) {
        *b = (struct concat_begins){n->n_in + 1, NEW_ARRAY(&g->arena, expr_id, n->n_in + 1)};
        b->begin[0] = ex_const(g->ctx->exprs, 0);
        for (uint32_t i = 0; i < n->n_in; i++)
            b->begin[i + 1] = ex_add(g->ctx->exprs, b->begin[i], value_type(g, n->in[i])->dims[axis]);
    }
    return b->begin[k];
}

enum op value_op(const struct graph *g, value_id v)
{
    node_id def = graph_value(g, v)->def;
    return def.i ? graph_node(g, def)->op : OP_NONE;
}

const struct node *value_node(const struct graph *g, value_id v)
{
    return v.i && graph_value(g, v)->def.i ? graph_node(g, graph_value(g, v)->def) : NULL;
}

/* ---- regions ------------------------------------------------------------------------------------- */

void graph_adopt_region(struct graph *g, node_id owner, region_id region)
{
    struct node *node = graph_node(g, owner);
    region_id *list = NEW_ARRAY(&g->arena, region_id, node->n_region + 1);
    if (node->n_region)
        memcpy(list, node->region, node->n_region * sizeof *list);
    list[node->n_region++] = region;
    node->region = list;
    graph_get_region(g, region)->owner = owner;
}

region_id graph_region(struct graph *g, region_id parent, node_id owner)
{
    const struct limits *limits = &g->ctx->limits;
    uint32_t depth = parent.i ? graph_get_region(g, parent)->depth + 1 : 0;
    if (depth > (uint32_t)limits->subgraph_depth + (uint32_t)limits->call_depth)
        context_unwind(g->ctx, FAIL_LIMIT, owner.i ? graph_node(g, owner)->src : (src_id){0},
                       "subgraphs are nested more than %u deep (--limit-subgraph-depth, --limit-call-depth)",
                       depth - 1);
    VEC_PUSH(&g->arena, &g->regions, ((struct region){.parent = parent, .depth = depth}));
    region_id id = {g->regions.n - 1};
    if (owner.i)
        graph_adopt_region(g, owner, id);
    return id;
}

/* Recursion is bounded: graph_region limits the depth. */
void graph_hang_region(struct graph *g, region_id r, region_id parent)
{
    struct region *region = graph_get_region(g, r);
    region->parent = parent;
    region->depth = graph_get_region(g, parent)->depth + 1;
    for (uint32_t i = 0; i < region->nodes.n; i++) {
        const struct node *node = graph_node(g, region->nodes.data[i]);
        for (uint32_t k = 0; k < node->n_region; k++)
            graph_hang_region(g, node->region[k], r);
    }
}

void graph_splice_region(struct graph *g, region_id inner)
{
    struct region *from = graph_get_region(g, inner);
    region_id outer = from->parent;
    for (uint32_t i = 0; i < from->nodes.n; i++) {
        struct node *node = graph_node(g, from->nodes.data[i]);
        node->parent = outer;
        for (uint32_t k = 0; k < node->n_region; k++)
            graph_hang_region(g, node->region[k], outer);
        VEC_PUSH(&g->arena, &graph_get_region(g, outer)->nodes, from->nodes.data[i]);
    }
    from->nodes.n = 0;
}

/* ---- copies into the graph's arena ------------------------------------------------------------------ */

/* A scalar's dims are none, but at an address: passes add to it and copy from it. */
static struct type type_copy(struct graph *g, const struct type *from)
{
    static const expr_id no_dims[1];
    struct type copy = *from;
    struct type *to = &copy;
    for (;;) {
        if (to->kind == TYPE_TENSOR && to->rank > 0)
            to->dims = arena_copy(&g->arena, to->dims, (size_t)to->rank * sizeof *to->dims);
        else
            to->dims = no_dims;
        if (!to->inner)
            return copy;
        struct type *inner = arena_copy(&g->arena, to->inner, sizeof *inner);
        to->inner = inner;
        to = inner;
    }
}

static void copy_tensors(struct graph *g, struct attr *a)
{
    uint32_t n = a->kind == ATTR_TENSORS ? a->n : 1;
    struct tensor_data *copy = arena_copy(&g->arena, a->u.tensor, n * sizeof *copy);
    for (uint32_t i = 0; i < n; i++) {
        if (copy[i].rank > 0)
            copy[i].dims = arena_copy(&g->arena, copy[i].dims, (size_t)copy[i].rank * sizeof *copy[i].dims);
        if (copy[i].name)
            copy[i].name = arena_strdup(&g->arena, copy[i].name);
    }
    a->u.tensor = copy;
}

static struct attr attr_copy(struct graph *g, const struct attr *from)
{
    struct attr a = *from;
    a.name = arena_strdup(&g->arena, a.name);
    switch (a.kind) {
    case ATTR_INTS: a.u.ints = arena_copy(&g->arena, a.u.ints, a.n * sizeof *a.u.ints); break;
    case ATTR_FLOATS: a.u.floats = arena_copy(&g->arena, a.u.floats, a.n * sizeof *a.u.floats); break;
    case ATTR_EXPRS: a.u.exprs = arena_copy(&g->arena, a.u.exprs, a.n * sizeof *a.u.exprs); break;
    case ATTR_STR:
    case ATTR_REF:
        if (!a.n)
            a.n = (uint32_t)strlen(a.u.s);
        a.u.s = arena_strndup(&g->arena, a.u.s, a.n);
        break;
    case ATTR_STRS: {
        const char **strs = NEW_ARRAY(&g->arena, const char *, a.n);
        for (uint32_t i = 0; i < a.n; i++)
            strs[i] = arena_strdup(&g->arena, a.u.strs[i]);
        a.u.strs = strs;
        break;
    }
    case ATTR_TENSOR:
    case ATTR_TENSORS: copy_tensors(g, &a); break;
    case ATTR_TYPE: {
        struct type type = type_copy(g, a.u.type);
        a.u.type = arena_copy(&g->arena, &type, sizeof type);
        break;
    }
    default: /* held in the record itself, or borrowed bytes */ break;
    }
    return a;
}

/* ---- nodes and values --------------------------------------------------------------------------------- */

/* The use is an operand of a node, or a result of a region. */
static void use_add(struct graph *g, value_id v, node_id n, region_id r, uint32_t at)
{
    if (!v.i)
        return;
    struct value *value = graph_value(g, v);
    value->n_uses++;
    VEC_PUSH(&g->arena, &g->users, ((struct graph_user){n, r, at, value->users}));
    value->users = g->users.n - 1;
}

static void use_drop(struct graph *g, value_id v)
{
    if (!v.i)
        return;
    struct value *value = graph_value(g, v);
    assert(value->n_uses > 0);
    value->n_uses--;
}

value_id graph_param(struct graph *g, region_id r, struct type type, const char *name)
{
    struct value v = {
        .type = type_copy(g, &type),
        .result = graph_get_region(g, r)->params.n,
        .name = name ? arena_strdup(&g->arena, name) : NULL,
    };
    VEC_PUSH(&g->arena, &g->values, v);
    value_id id = {g->values.n - 1};
    VEC_PUSH(&g->arena, &graph_get_region(g, r)->params, id);
    return id;
}

/* A node with its results, in no region's list yet. */
static node_id node_create(struct graph *g, region_id r, const struct node *from, const struct type *out)
{
    struct node node = *from;
    node.parent = r;
    node.in = arena_copy(&g->arena, node.in, node.n_in * sizeof *node.in);
    node.out = NEW_ARRAY(&g->arena, value_id, node.n_out);
    struct attr *attrs = NEW_ARRAY(&g->arena, struct attr, node.n_attr);
    for (uint32_t i = 0; i < node.n_attr; i++)
        attrs[i] = attr_copy(g, &node.attr[i]);
    node.attr = attrs;
    node_id id = {g->nodes.n};
    for (uint32_t i = 0; i < node.n_in; i++)
        use_add(g, node.in[i], id, (region_id){0}, i);
    for (uint32_t i = 0; i < node.n_out; i++) {
        struct value v = {.def = id, .result = i};
        if (out)
            v.type = type_copy(g, &out[i]);
        VEC_PUSH(&g->arena, &g->values, v);
        node.out[i] = (value_id){g->values.n - 1};
    }
    VEC_PUSH(&g->arena, &g->nodes, node);
    return id;
}

node_id graph_append(struct graph *g, region_id r, enum op op, src_id src, const value_id *in, uint32_t n_in,
                     const struct attr *attr, uint32_t n_attr, const struct type *out, uint32_t n_out)
{
    struct node node = {
        .op = op,
        .src = src,
        .n_in = n_in,
        .n_out = n_out,
        .n_attr = n_attr,
        .in = (value_id *)(uintptr_t)in,
        .attr = (struct attr *)(uintptr_t)attr,
    };
    node_id id = node_create(g, r, &node, out);
    VEC_PUSH(&g->arena, &graph_get_region(g, r)->nodes, id);
    return id;
}

value_id graph_constant(struct graph *g, region_id r, enum elem elem, const int64_t *dims, int32_t rank,
                        const void *data, const char *name)
{
    int64_t size = elem_size(elem);
    expr_id *list = NEW_ARRAY(&g->ctx->session, expr_id, rank);
    for (int32_t i = 0; i < rank; i++) {
        size *= dims[i];
        list[i] = ex_const(g->ctx->exprs, dims[i]);
    }
    const struct attr attrs[] = {attr_elem("elem", elem), attr_ints("dims", dims, (uint32_t)rank),
                                 attr_data(data, (size_t)size)};
    struct type type = {.kind = TYPE_TENSOR, .elem = elem, .rank = rank, .dims = list};
    node_id id = graph_append(g, r, OP_CONSTANT, (src_id){0}, NULL, 0, attrs, 3, &type, 1);
    value_id v = graph_node(g, id)->out[0];
    graph_value(g, v)->name = arena_strdup(&g->arena, name);
    return v;
}

/* Passes insert and erase in the order of the list: the search begins where the one before it ended. */
static uint32_t node_position(struct region *region, node_id n)
{
    uint32_t size = region->nodes.n, after = region->position < size ? region->position : 0, before = after;
    const node_id *list = region->nodes.data;
    for (; after < size || before > 0; after++) {
        if (after < size && list[after].i == n.i)
            return region->position = after;
        if (before > 0 && list[--before].i == n.i)
            return region->position = before;
    }
    assert(!"the node is in the list of its region");
    return 0;
}

node_id graph_insert_before(struct graph *g, node_id where, enum op op, src_id src, const value_id *in, uint32_t n_in,
                            const struct attr *attr, uint32_t n_attr, const struct type *out, uint32_t n_out)
{
    region_id r = graph_node(g, where)->parent;
    node_id id = graph_append(g, r, op, src, in, n_in, attr, n_attr, out, n_out);
    struct region *region = graph_get_region(g, r);
    node_id *list = region->nodes.data;
    uint32_t at = node_position(region, where);
    memmove(&list[at + 1], &list[at], (region->nodes.n - 1 - at) * sizeof *list);
    list[at] = id;
    return id;
}

void graph_set_operand(struct graph *g, node_id n, uint32_t i, value_id v)
{
    struct node *node = graph_node(g, n);
    assert(i < node->n_in);
    if (node->in[i].i == v.i)
        return;
    use_add(g, v, n, (region_id){0}, i);
    use_drop(g, node->in[i]);
    node->in[i] = v;
}

void graph_add_result(struct graph *g, region_id r, value_id v)
{
    use_add(g, v, (node_id){0}, r, graph_get_region(g, r)->results.n);
    VEC_PUSH(&g->arena, &graph_get_region(g, r)->results, v);
}

void graph_set_result(struct graph *g, region_id r, uint32_t i, value_id v)
{
    value_id *result = &graph_get_region(g, r)->results.data[i];
    if (result->i != v.i) {
        use_add(g, v, (node_id){0}, r, i);
        use_drop(g, *result);
        *result = v;
    }
    if (r.i == 1 && i < g->outputs.n)
        g->outputs.data[i].value = v;
}

const struct graph_user *graph_user(const struct graph *g, value_id v, const struct graph_user *before)
{
    for (uint32_t k = before ? before->next : graph_value(g, v)->users; k; k = g->users.data[k].next) {
        const struct graph_user *u = &g->users.data[k];
        const struct node *node = u->node.i ? graph_node(g, u->node) : NULL;
        const struct region *region = node ? NULL : graph_get_region(g, u->region);
        if (node ? !node->dead && node->in[u->at].i == v.i
                 : u->at < region->results.n && region->results.data[u->at].i == v.i)
            return u;
    }
    return NULL;
}

uint32_t value_output(const struct graph *g, value_id v)
{
    uint32_t first = UINT32_MAX;
    for (const struct graph_user *u = graph_user(g, v, NULL); u; u = graph_user(g, v, u))
        if (u->region.i == 1 && u->at < first)
            first = u->at;
    return first;
}

void graph_replace_uses(struct graph *g, value_id old, value_id with)
{
    if (old.i == with.i)
        return;
    for (const struct graph_user *next = graph_user(g, old, NULL); next;) {
        struct graph_user u = *next;
        if (u.node.i)
            graph_set_operand(g, u.node, u.at, with);
        else
            graph_set_result(g, u.region, u.at, with);
        next = graph_user(g, old, &u);
    }
    graph_value(g, old)->users = 0;
}

void graph_value_describe(struct graph *g, value_id to, value_id from)
{
    const struct value *as = graph_value(g, from);
    struct value *v = graph_value(g, to);
    v->name = as->name;
    v->elems = as->elems;
    v->n_elems = as->n_elems;
}

static void node_kill(struct graph *g, node_id n);

/* Drops what a region's nodes and results use. Recursion is bounded: graph_region limits the depth. */
static void region_kill(struct graph *g, region_id r)
{
    struct region *region = graph_get_region(g, r);
    for (uint32_t i = 0; i < region->results.n; i++)
        use_drop(g, region->results.data[i]);
    region->results.n = 0;
    for (uint32_t i = region->nodes.n; i-- > 0;)
        node_kill(g, region->nodes.data[i]);
    region->nodes.n = 0;
}

static void node_kill(struct graph *g, node_id n)
{
    struct node *node = graph_node(g, n);
    if (node->dead)
        return;
    for (uint32_t i = 0; i < node->n_region; i++)
        region_kill(g, node->region[i]);
    for (uint32_t i = 0; i < node->n_in; i++)
        use_drop(g, node->in[i]);
    for (uint32_t i = 0; i < node->n_out; i++)
        assert(!node->out[i].i || graph_value(g, node->out[i])->n_uses == 0);
    node->dead = true;
}

void graph_erase(struct graph *g, node_id n)
{
    struct region *region = graph_get_region(g, graph_node(g, n)->parent);
    node_id *list = region->nodes.data;
    uint32_t at = node_position(region, n);
    memmove(&list[at], &list[at + 1], (--region->nodes.n - at) * sizeof *list);
    node_kill(g, n);
}

void graph_replace(struct graph *g, node_id n, value_id by)
{
    value_id was = graph_node(g, n)->out[0];
    if (!by.i)
        return;
    graph_value_describe(g, by, was);
    graph_replace_uses(g, was, by);
    graph_erase(g, n);
}

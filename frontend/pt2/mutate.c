/* Operators that write to memory, as pure ones.
 *
 * PyTorch's tensors may share memory: of a tensor and its views, a write to one changes all. A write gives its value a
 * new meaning. The values that it is a view of get theirs by the inverse of the view (select_scatter for select); every
 * other view of that memory is made again from its parent, when somebody reads it.
 */
#include "frontend/pt2/pt2.h"

enum { DEPTH_MAX = 200 };

uint32_t value_new(struct pt2 *p, const char *name, value_id v)
{
    struct pt2_value value = {.name = name, .v = v, .storage = p->storages.n};
    VEC_PUSH(&p->scratch, &p->storages, (struct pt2_storage){0});
    VEC_PUSH(&p->scratch, &p->values, value);
    return p->values.n - 1;
}

uint32_t value_add(struct pt2 *p, const char *name, value_id v)
{
    uint32_t index = value_new(p, name, v);
    name_bind(&p->names, name, (value_id){index}, 0);
    return index;
}

bool pt2_is_bound(const struct pt2 *p, const char *name)
{
    const struct binding *b = name_lookup((struct names *)(uintptr_t)&p->names, name);
    return b && b->scope == p->names.scope;
}

/* Of another element type, it is a copy for certain. */
static bool is_cast(const struct pt2 *p, value_id v, value_id parent)
{
    const struct type *a = value_type(p->g, v), *b = value_type(p->g, parent);
    return a->kind == TYPE_TENSOR && b->kind == TYPE_TENSOR && a->elem != b->elem;
}

void value_view(struct pt2 *p, uint32_t value, uint32_t parent, const struct json *node, enum schema_alias alias)
{
    struct pt2_value *v = &p->values.data[value];
    if (alias == ALIAS_NONE || (alias == ALIAS_MAYBE && is_cast(p, v->v, p->values.data[parent].v)))
        return;
    if (alias == ALIAS_SAME && !p->values.data[parent].view && p->values.data[parent].parent)
        parent = p->values.data[parent].parent; /* the same tensor: chains of writes stay flat */
    v->depth = p->values.data[parent].depth + 1;
    v->storage = p->values.data[parent].storage;
    v->version = p->storages.data[v->storage].version;
    v->parent = parent;
    v->view = alias == ALIAS_SAME ? NULL : node;
    v->maybe = alias == ALIAS_MAYBE;
}

/* Nodes that are not the file's say nothing of their results: a value keeps its element type. */
static void elem_keep(struct pt2 *p, value_id v, value_id before)
{
    if (v.i && value_type(p->g, v)->kind == TYPE_UNKNOWN && value_type(p->g, before)->kind == TYPE_TENSOR)
        graph_value(p->g, v)->type = pt2_any(value_type(p->g, before)->elem);
}

/* Brings a value up to date: its parent, and the view of it again. Parents come before their views. */
bool value_refresh(struct pt2 *p, uint32_t value, src_id src)
{
    struct pt2_value *v = &p->values.data[value];
    uint32_t version = p->storages.data[v->storage].version;
    if (v->version == version)
        return true;
    if (v->depth > DEPTH_MAX)
        return error_limit(p->ctx, src,
                           "'%s' is a view of a view, %u deep, of a tensor that was written to; the limit is %d",
                           v->name, v->depth, DEPTH_MAX);
    if (v->maybe || !v->parent)
        return error_model(p->ctx, src,
                           "'%s' shares memory with a tensor that was written to, or is a copy, as strides are: use "
                           "clone() before the write, or export with run_decompositions()",
                           v->name);
    if (!value_refresh(p, v->parent, src))
        return false;
    v = &p->values.data[value];
    value_id parent = p->values.data[v->parent].v, before = v->v;
    v->v = v->view ? node_again(p, v->view, parent, (value_id){0}, NULL) : parent;
    elem_keep(p, v->v, before);
    v->version = version;
    return true;
}

value_id value_now(struct pt2 *p, const char *name, src_id src, uint32_t *index)
{
    const struct binding *b = name_lookup(&p->names, name);
    b = b && b->scope >= p->floor ? b : NULL;
    *index = b ? b->value.i : 0;
    if (!b) {
        error_model(p->ctx, src, "operand '%s' is made by no node or input before it", name);
        return (value_id){0};
    }
    return value_refresh(p, *index, src) ? p->values.data[*index].v : (value_id){0};
}

/* The whole of the pieces that a node cut its parent into, one of which was written; {0}: there is one that is not
 * known as it is now. No piece shares memory with another, so the others stay as they are. */
static value_id pieces_join(struct pt2 *p, const struct json *node, uint32_t written, bool stack, src_id src)
{
    const struct json *outputs = json_get(node, "outputs"), *pieces = json_only(json_first(outputs));
    const struct pt2_value *v = p->values.data;
    if (outputs->n != 1 || !json_is(pieces, JSON_LIST))
        return (value_id){0};
    uint32_t first = written, n = pieces->n;
    if ((p->n_imported += n) > p->ctx->limits.nodes) {
        error_limit(p->ctx, src, "more than %lld nodes (--limit-nodes)", (long long)p->ctx->limits.nodes);
        return (value_id){0};
    }
    while (v[first - 1].view == node && v[first - 1].parent == v[written].parent)
        first--;
    value_id *list = NEW_ARRAY(&p->scratch, value_id, n);
    for (uint32_t i = 0; i < n; i++) {
        if (first + i >= p->values.n || v[first + i].view != node || v[first + i].parent != v[written].parent ||
            (first + i != written && v[first + i].version + 1 != v[written].version))
            return (value_id){0};
        list[i] = v[first + i].v;
    }
    for (uint32_t i = 0; i < n; i++)
        p->values.data[first + i].version = v[written].version;
    return pt2_append_joined(p, src, node, stack ? "stack.default" : "cat.default", list, n);
}

/* The view's dims back in their parent's order; {0}: the node does not say what that was. */
static value_id permuted_back(struct pt2 *p, const struct json *node, value_id view, src_id src)
{
    const struct json *dims = json_get(node_arg(node, "dims"), "as_ints");
    int64_t n = dims ? dims->n : 0, at = 0, d;
    int64_t *inverse = NEW_ARRAY(&p->scratch, int64_t, n + 1);
    if (!dims)
        return (value_id){0};
    for (const struct json *e = json_first(dims); e; e = e->next, at++) {
        if (!json_as_int(e, &d) || d < -n || d >= n)
            return (value_id){0};
        inverse[d < 0 ? d + n : d] = at;
    }
    return pt2_append_ints(p, src, "permute.default", view, "dims", inverse, (uint32_t)n);
}

/* The parent's elements with the view's in their places. {0} after a diagnostic. */
static value_id put_back(struct pt2 *p, const struct json *node, value_id parent, value_id view, uint32_t value,
                         src_id src)
{
    static const struct {
        const char *view, *inverse;
    } inverses[] = {
        {"aten.select.int", "select_scatter.default"},
        {"aten.slice.Tensor", "slice_scatter.default"},
        {"aten.view.default", "view_as.default"},
        {"aten.unsqueeze.default", "view_as.default"},
        {"aten.squeeze.dim", "view_as.default"},
        {"aten.squeeze.dims", "view_as.default"},
        {"aten.squeeze.default", "view_as.default"},
        {"aten.transpose.int", "transpose.int"},
        {"aten.t.default", "t.default"},
        {"aten.mT.default", "mT.default"},
        {"aten.swapaxes.default", "swapaxes.default"},
        {"aten.permute.default", "permute"},
        {"aten.unflatten.int", "view_as.default"},
        {"aten.split.Tensor", "cat"},
        {"aten.split.sizes", "cat"},
        {"aten.split_with_sizes.default", "cat"},
        {"aten.chunk.default", "cat"},
        {"aten.unbind.int", "stack"},
    };
    const char *target = json_as_text(json_get(node, "target"));
    target += strncmp(target, "torch.ops.", 10) == 0 ? 10 : 0;
    for (uint32_t i = 0; i < COUNT_OF(inverses); i++) {
        if (strcmp(target, inverses[i].view) != 0)
            continue;
        const char *op = inverses[i].inverse;
        if (!strchr(op, '.')) {
            value_id whole = strcmp(op, "permute") == 0 ? permuted_back(p, node, view, src)
                                                        : pieces_join(p, node, value, strcmp(op, "stack") == 0, src);
            if (whole.i || p->ctx->n_errors)
                return whole;
            break;
        }
        if (strstr(op, "_scatter"))
            return node_again(p, node, parent, view, op);
        if (strcmp(op, "view_as.default") == 0)
            return pt2_append_pair(p, src, op, view, parent);
        return node_again(p, node, view, (value_id){0}, op);
    }
    error_model(p->ctx, src,
                "writes to a view that %s made, which is not supported: write to the whole tensor, or export with "
                "run_decompositions()",
                target);
    return (value_id){0};
}

bool value_write(struct pt2 *p, uint32_t value, value_id now, src_id src)
{
    struct pt2_storage *s = &p->storages.data[p->values.data[value].storage];
    uint32_t at = value, depth = p->values.data[value].depth;
    if (depth > DEPTH_MAX)
        return error_limit(p->ctx, src, "writes to a view of a view, %u deep; the limit is %d", depth, DEPTH_MAX);
    if (s->kind == STORAGE_OPERAND)
        return error_model(p->ctx, src,
                           "writes, within a graph of %s, to a tensor from around it, which is not supported: write to "
                           "a clone() of it",
                           p->values.data[value].name);
    if (s->kind == STORAGE_KEPT)
        state_write(p, s);
    /* All of the chain is up to date, for the value was just read. */
    for (;;) {
        struct pt2_value *v = &p->values.data[at];
        elem_keep(p, now, v->v);
        v->v = now;
        v->version = s->version + 1;
        if (!v->parent || v->maybe)
            break;
        if (v->view)
            now = put_back(p, v->view, p->values.data[v->parent].v, now, at, src);
        if (!now.i)
            return false;
        at = p->values.data[at].parent;
    }
    s->version++;
    return true;
}

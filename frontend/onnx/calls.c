/* Calls of model functions: which function a node calls, and whether its inputs, outputs and attributes fit. Calls are
 * counted before anybody inlines: recursion, depth, and how many nodes the whole model has once inlined.
 */
#include "frontend/onnx/import.h"

static const char *text(const char *s)
{
    return s ? s : "";
}

char *function_key(struct importer *im, const char *domain, const char *name, const char *overload)
{
    return arena_printf(&im->scratch, "%s\x1f%s\x1f%s", domain, name, overload);
}

const struct model_function *function_find(struct importer *im, const char *domain, const char *name,
                                           const char *overload)
{
    if (im->functions.list.n <= 1)
        return NULL;
    const struct binding *b = name_lookup(&im->functions, function_key(im, domain, name, overload));
    return b ? &im->g->functions.data[b->value.i - 1] : NULL;
}

/* Against the function's message: its body may not be imported yet. */
bool call_check(struct importer *im, const struct model_function *callee, const Onnx__NodeProto *node, src_id src)
{
    const Onnx__FunctionProto *f = im->model->functions[callee - im->g->functions.data];
    bool ok = true;
    if (node->n_input > f->n_input)
        ok = error_model(im->ctx, src, "the call has %zu inputs, and function '%s' takes %zu", node->n_input, f->name,
                         f->n_input);
    if (node->n_output > f->n_output)
        ok = error_model(im->ctx, src, "the call has %zu outputs, and function '%s' has %zu", node->n_output, f->name,
                         f->n_output);
    for (size_t i = 0; i < node->n_attribute; i++) {
        const char *name = text(node->attribute[i]->name);
        bool known = false;
        for (size_t k = 0; k < f->n_attribute && !known; k++)
            known = strcmp(f->attribute[k], name) == 0;
        for (size_t k = 0; k < f->n_attribute_proto && !known; k++)
            known = strcmp(text(f->attribute_proto[k]->name), name) == 0;
        if (!known)
            ok = error_model(im->ctx, src, "function '%s' has no attribute '%s'", f->name, name);
    }
    return ok;
}

/* ---- counting calls ----------------------------------------------------------------------------------------- */

struct call {
    uint32_t caller, callee;
    src_id src;
};   /* function indices; the top graph is number n */
struct calls {
    struct importer *im;
    uint32_t n;                  /* functions */
    VEC(struct call) list;       /* grouped by caller */
    uint32_t *first;             /* [n + 2] */
    int64_t *size;               /* nodes once inlined, up to limits.nodes + 1 */
    uint32_t *depth;
};

/* For each region the function it is in, or n. */
static uint32_t *region_owners(const struct calls *c)
{
    const struct graph *g = c->im->g;
    uint32_t *owner = NEW_ARRAY(&c->im->scratch, uint32_t, g->regions.n);
    for (uint32_t r = 1; r < g->regions.n; r++)
        owner[r] = c->n;
    for (uint32_t i = 0; i < c->n; i++)
        owner[g->functions.data[i].body.i] = i;
    for (uint32_t r = 1; r < g->regions.n; r++)   /* parents come before their children */
        if (g->regions.data[r].parent.i)
            owner[r] = owner[g->regions.data[r].parent.i];
    return owner;
}

static void calls_collect(struct calls *c)
{
    const struct graph *g = c->im->g;
    const uint32_t *owner = region_owners(c);
    VEC(struct call) found = {0};
    for (uint32_t i = 1; i < g->nodes.n; i++) {
        const struct node *n = &g->nodes.data[i];
        uint32_t caller = owner[n->parent.i];
        c->size[caller]++;
        if (n->op != OP_IMPORTED)
            continue;
        const struct model_function *f = function_find(c->im, n->domain, n->op_type, n->overload);
        if (f) {
            VEC_PUSH(&c->im->scratch, &found, ((struct call){caller, (uint32_t)(f - g->functions.data), n->src}));
            c->first[caller + 1]++;
        }
    }
    for (uint32_t i = 0; i <= c->n; i++)
        c->first[i + 1] += c->first[i];
    c->list.data = NEW_ARRAY(&c->im->scratch, struct call, found.n);
    c->list.n = found.n;
    uint32_t *at = arena_copy(&c->im->scratch, c->first, (c->n + 1) * sizeof *at);
    for (uint32_t i = 0; i < found.n; i++)
        c->list.data[at[found.data[i].caller]++] = found.data[i];
}

static bool caller_finish(struct calls *c, uint32_t f)
{
    int64_t most = c->im->ctx->limits.nodes;
    for (uint32_t k = c->first[f]; k < c->first[f + 1]; k++) {
        const struct call *call = &c->list.data[k];
        const char *name = c->im->g->functions.data[call->callee].name;
        c->size[f] += c->size[call->callee];
        if (c->size[f] > most)
            return error_limit(c->im->ctx, call->src,
                               "with function '%s' inlined the model has more than %lld nodes (--limit-nodes)", name,
                               (long long)most);
        if (c->depth[f] <= c->depth[call->callee])
            c->depth[f] = c->depth[call->callee] + 1;
        if (c->depth[f] > (uint32_t)c->im->ctx->limits.call_depth)
            return error_limit(c->im->ctx, call->src,
                               "calls of function '%s' are more than %d deep (--limit-call-depth)", name,
                               c->im->ctx->limits.call_depth);
    }
    return true;
}

/* Post-order over the calls from `root` with an explicit stack. color: 0 new, 1 open, 2 done. */
static bool calls_visit(struct calls *c, uint32_t root, uint8_t *color, uint32_t *next, uint32_t *stack)
{
    uint32_t depth = 0;
    stack[depth++] = root;
    color[root] = 1;
    while (depth) {
        uint32_t at = stack[depth - 1];
        if (next[at] == c->first[at + 1]) {
            if (!caller_finish(c, at))
                return false;
            color[at] = 2;
            depth--;
            continue;
        }
        const struct call *call = &c->list.data[next[at]++];
        if (color[call->callee] == 1)
            return error_model(c->im->ctx, call->src, "function '%s' calls itself, directly or through others",
                               c->im->g->functions.data[call->callee].name);
        if (color[call->callee] == 0) {
            color[call->callee] = 1;
            stack[depth++] = call->callee;
        }
    }
    return true;
}

bool functions_count(struct importer *im)
{
    struct calls c = {.im = im, .n = im->g->functions.n};
    struct arena *a = &im->scratch;
    c.first = NEW_ARRAY(a, uint32_t, c.n + 2);
    c.size = NEW_ARRAY(a, int64_t, c.n + 1);
    c.depth = NEW_ARRAY(a, uint32_t, c.n + 1);
    calls_collect(&c);
    uint8_t *color = NEW_ARRAY(a, uint8_t, c.n + 1);
    uint32_t *next = arena_copy(a, c.first, (c.n + 1) * sizeof *next), *stack = NEW_ARRAY(a, uint32_t, c.n + 1);
    for (uint32_t i = 0; i <= c.n; i++)
        if (color[i] == 0 && !calls_visit(&c, i, color, next, stack))
            return false;
    return true;
}

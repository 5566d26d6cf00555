/* Adapters of low rank (--lora): products by constant matrices get two inputs each, A [in, lora_rank] and
 * B [lora_rank, out], and y becomes y + (x A) B.
 *
 * The rank is one open size of all of them, so a caller may give others in each run, and none with a rank of 0. A port
 * is called by its product's path with dots, as PEFT calls modules: /model/layers.0/mlp/up_proj/MatMul has the ports
 * model.layers.0.mlp.up_proj.lora_A and .lora_B. This changes the imported graph, so all formats share it.
 */
#include "passes/legalize/driver.h"

enum { LORA_RANK_MOST = 4096, TARGETS_MOST = 64, MATMUL_VERSION = 13, ADD_VERSION = 14, ONNX_FLOAT = 1 };

struct adapters {
    struct graph *g;
    struct arena scratch;
    expr_id rank;
    enum elem stored; /* of the inputs of products in f32 */
    const char *targets; /* names with commas between them; "": all products */
    uint64_t met; /* by target: has a product this name? */
    uint32_t n;
};

static const struct node *constant_of(const struct graph *g, value_id v)
{
    const struct node *n = v.i ? value_node(g, v) : NULL;
    return n && n->op == OP_CONSTANT ? n : NULL;
}

/* The constant that v is, or that it is dequantized from; *elem: the type of its numbers. */
static const struct type *weights_of(const struct graph *g, value_id v, enum elem *elem)
{
    const struct node *n = v.i ? value_node(g, v) : NULL;
    bool pair = n && n->op == OP_IMPORTED && !*n->domain && !strcmp(n->op_type, "DequantizeLinear") && n->n_in > 1 &&
                constant_of(g, n->in[0]) && constant_of(g, n->in[1]);
    const struct type *t = pair ? value_type(g, n->in[0]) : constant_of(g, v) ? value_type(g, v) : NULL;
    int64_t wanted = pair ? node_int(n, "output_dtype", 0) : 0;
    *elem = wanted > 0 && wanted < 1000 ? elem_by_onnx((int32_t)wanted)
            : pair                      ? value_type(g, n->in[1])->elem
            : t                         ? t->elem
                                        : ELEM_NONE;
    return t;
}

/* The sizes of a product by a constant matrix, and the type in which it computes. */
struct linear {
    int64_t in, out;
    enum elem elem;
};

static int64_t extent(const struct graph *g, const struct type *t, int32_t d)
{
    int64_t n = 0;
    return ex_is_const(g->ctx->exprs, t->dims[d], &n) ? n : 0;
}

static bool is_linear(const struct graph *g, const struct node *n, struct linear *l)
{
    enum elem elem;
    if (n->op != OP_IMPORTED || n->n_in < 2 || n->n_out != 1 || constant_of(g, n->in[0]))
        return false;
    const struct type *w = weights_of(g, n->in[1], &elem);
    if (!w)
        return false;
    bool aten = !strcmp(n->domain, "aten") && !strcmp(n->op_type, "linear.default");
    bool onnx = !*n->domain && (!strcmp(n->op_type, "MatMul") || !strcmp(n->op_type, "Gemm"));
    bool turned = aten || node_int(n, "transB", 0);
    if (!strcmp(n->domain, "com.microsoft") && !strcmp(n->op_type, "MatMulNBits") && n->n_in > 2) {
        *l = (struct linear){node_int(n, "K", 0), node_int(n, "N", 0),
                             constant_of(g, n->in[2]) ? value_type(g, n->in[2])->elem : ELEM_NONE};
    } else if (!strcmp(n->domain, "ggml") && !strcmp(n->op_type, "MulMat")) {
        *l = (struct linear){node_int(n, "columns", 0), extent(g, w, 0), ELEM_F32};
    } else if (w->rank == 2 && (onnx || aten)) {
        *l = (struct linear){extent(g, w, turned), extent(g, w, !turned), node_int(n, "transA", 0) ? ELEM_NONE : elem};
    } else {
        return false;
    }
    return l->in > 0 && l->out > 0 && l->elem != ELEM_NONE && elem_class(l->elem) == 'F';
}

/* The product's path with dots, without the operator's own part (of a .pt2 what follows the module): scratch
 * memory. */
static char *path_of(struct adapters *a, const struct node *n)
{
    const char *label = source_label(source_get(a->g->ctx, n->src));
    char *path = arena_strdup(&a->scratch, label + (*label == '/')), *own = strrchr(path, '/');
    if (own && !strcmp(n->domain, "aten"))
        *own = 0;
    for (char *c = path; *c; c++)
        *c = *c == '/' ? '.' : *c;
    char *last = strrchr(path, '.');
    if (last && (!strncmp(last + 1, "MatMul", 6) || !strncmp(last + 1, "Gemm", 4)))
        *last = 0;
    return path;
}

/* Is one of the path's parts a target? */
static bool is_target(struct adapters *a, const char *path)
{
    bool found = !*a->targets;
    uint32_t k = 0;
    for (const char *t = a->targets; *t; k++) {
        size_t size = strcspn(t, ",");
        for (const char *part = path; *part;) {
            size_t n = strcspn(part, ".");
            if (n == size && !memcmp(part, t, n)) {
                a->met |= 1ull << k;
                found = true;
            }
            part += n + (part[n] == '.');
        }
        t += size + (t[size] == ',');
    }
    return found;
}

static value_id matrix_input(struct adapters *a, const char *name, enum elem elem, expr_id rows, expr_id columns)
{
    const expr_id dims[2] = {rows, columns};
    struct type type = {
        .kind = TYPE_TENSOR, .elem = elem, .rank = 2, .dims = arena_copy(&a->g->arena, dims, sizeof dims)};
    const char *own = arena_strdup(&a->g->ctx->session, name);
    value_id v = graph_param(a->g, (region_id){1}, type, own);
    struct port port = {own, arena_copy(&a->g->arena, &type, sizeof type), v};
    VEC_PUSH(&a->g->arena, &a->g->inputs, port);
    return v;
}

/* An operator before `where`, or at the region's end for {0}. y {0}: Cast of x to f32, else of two operands. */
static value_id operation(struct adapters *a, region_id r, node_id where, const char *op, int32_t version,
                          const char *name, value_id x, value_id y)
{
    struct graph *g = a->g;
    const value_id in[2] = {x, y};
    const struct attr to = attr_int("to", ONNX_FLOAT);
    uint32_t n_in = y.i ? 2 : 1;
    src_id src = source_add(g->ctx,
                            (struct source){.name = name, .op = op, .domain = "", .version = version, .output = name});
    node_id id = where.i ? graph_insert_before(g, where, OP_IMPORTED, src, in, n_in, &to, 2 - n_in, NULL, 1)
                         : graph_append(g, r, OP_IMPORTED, src, in, n_in, &to, 2 - n_in, NULL, 1);
    struct node *n = graph_node(g, id);
    n->op_type = op;
    n->domain = n->overload = "";
    return n->out[0];
}

/* The matrix as the product reads it: a kernel widens what it loads. */
static value_id widened(struct adapters *a, region_id r, node_id where, const char *name, value_id v, enum elem elem)
{
    return value_type(a->g, v)->elem == elem ? v
                                             : operation(a, r, where, "Cast", MATMUL_VERSION, name, v, (value_id){0});
}

static bool is_free(const struct graph *g, const char *name)
{
    return !ROW_NAMED(g->inputs.data, g->inputs.n, name);
}

static bool adapter_add(struct adapters *a, node_id id, node_id next, const char *path, const struct linear *l)
{
    struct graph *g = a->g;
    struct exprs *x = g->ctx->exprs;
    const struct node n = *graph_node(g, id);
    const char *name = arena_printf(&g->ctx->session, "%s.lora", path);
    const char *port[2] = {arena_printf(&a->scratch, "%s_A", name), arena_printf(&a->scratch, "%s_B", name)};
    if (!is_free(g, port[0]) || !is_free(g, port[1]))
        return error_at(g->ctx, FAIL_USAGE, n.src, NULL,
                        "'lora': two products are called '%s', or an input %s is there", path, port[0]);
    value_id in = n.in[0], out = n.out[0];
    enum elem elem = l->elem == ELEM_F32 ? a->stored : l->elem;
    value_id down = matrix_input(a, port[0], elem, ex_const(x, l->in), a->rank);
    value_id up = matrix_input(a, port[1], elem, a->rank, ex_const(x, l->out));
    down = widened(a, n.parent, next, name, down, l->elem);
    up = widened(a, n.parent, next, name, up, l->elem);
    value_id few = operation(a, n.parent, next, "MatMul", MATMUL_VERSION, name, in, down);
    value_id more = operation(a, n.parent, next, "MatMul", MATMUL_VERSION, name, few, up);
    value_id sum = operation(a, n.parent, next, "Add", ADD_VERSION, name, more, more);
    graph_replace_uses(g, out, sum);
    graph_value_describe(g, sum, out);
    graph_set_operand(g, graph_value(g, sum)->def, 0, out);
    a->n++;
    return true;
}

/* RANK[,TYPE][:TARGETS] */
static bool spec_read(struct adapters *a, const char *spec)
{
    static const struct {
        const char *text;
        enum elem elem;
    } types[] = {{",bf16", ELEM_BF16}, {",f16", ELEM_F16}};
    struct context *ctx = a->g->ctx;
    char *end;
    long rank = *spec >= '0' && *spec <= '9' ? strtol(spec, &end, 10) : 0;
    a->stored = ELEM_F32;
    for (size_t i = 0; rank > 0 && i < sizeof types / sizeof *types; i++)
        if (!strncmp(end, types[i].text, strlen(types[i].text))) {
            a->stored = types[i].elem;
            end += strlen(types[i].text);
            break;
        }
    if (rank < 1 || rank > LORA_RANK_MOST || (*end && *end != ':') || (*end && !end[1]))
        return error_at(ctx, FAIL_USAGE, (src_id){0}, NULL,
                        "'lora': '%s' is not RANK[,bf16|f16][:NAME,...], the rank from 1 to %d", spec, LORA_RANK_MOST);
    a->targets = *end ? end + 1 : end;
    uint32_t names = 1;
    for (const char *t = a->targets; *t; t++)
        names += *t == ',';
    if (names > TARGETS_MOST)
        return error_at(ctx, FAIL_USAGE, (src_id){0}, NULL, "'lora': there are more than %d names", TARGETS_MOST);
    if (sym_find(ctx->exprs, LORA_RANK).i)
        return error_at(ctx, FAIL_USAGE, (src_id){0}, NULL, "'lora': the model has a size " LORA_RANK " of its own");
    a->rank = ex_sym(ctx->exprs, sym_new(ctx->exprs, SYM_SHAPE, LORA_RANK, 0, rank));
    return true;
}

static bool all_met(const struct adapters *a)
{
    struct context *ctx = a->g->ctx;
    uint32_t k = 0;
    for (const char *t = a->targets; *t; k++) {
        size_t size = strcspn(t, ",");
        if (!(a->met >> k & 1))
            return error_at(ctx, FAIL_USAGE, (src_id){0}, NULL,
                            "'lora': no product by a constant matrix has '%.*s' in its name", (int)size, t);
        t += size + (t[size] == ',');
    }
    return a->n ||
           error_at(ctx, FAIL_USAGE, (src_id){0}, NULL, "'lora': the model has no product by a constant matrix");
}

bool adapters_add(struct graph *g, const char *spec)
{
    struct adapters a = {.g = g};
    if (g->states.n)
        return error_at(g->ctx, FAIL_USAGE, (src_id){0}, NULL, "'lora': models with states are not supported");
    if (!spec_read(&a, spec))
        return false;
    arena_init(&a.scratch, g->ctx);
    const struct region *top = graph_get_region(g, (region_id){1});
    uint32_t n = top->nodes.n;
    node_id *nodes = arena_copy(&a.scratch, top->nodes.data, n * sizeof *nodes);
    bool ok = true;
    for (uint32_t i = 0; ok && i < n; i++) {
        struct linear l;
        if (!is_linear(g, graph_node(g, nodes[i]), &l))
            continue;
        const char *path = path_of(&a, graph_node(g, nodes[i]));
        if (is_target(&a, path))
            ok = adapter_add(&a, nodes[i], i + 1 < n ? nodes[i + 1] : (node_id){0}, path, &l);
    }
    arena_release(&a.scratch);
    return ok && all_met(&a);
}

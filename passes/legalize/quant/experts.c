/* com.microsoft MoE and QMoE, and GGUF's experts: each token goes through the k experts that its router's numbers
 * choose.
 *
 * What tokens choose is sorted by expert, and a loop goes through the experts that anybody chose: one takes its tokens'
 * rows, and adds what it makes of them to their sums. So the weights of an expert are read once, and only if it is
 * chosen; a matrix of all experts lies in panels, and a product reads those of the expert of this iteration. Routing is
 * that of ONNX Runtime's kernels for CPUs: of equal numbers the last is the largest. MoE's weights are the softmax of
 * all numbers, as they are or divided by their sum, and so are QMoE's where its weights are floats; those of integers,
 * which that kernel has, are the softmax of the chosen ones.
 */
#include "passes/legalize/driver.h"
#include "passes/legalize/nn/window.h"
#include "passes/legalize/quant/blocks.h"

#include <math.h>

enum { LAYERS = 3, LEVEL_BYTES = 4 };
enum { OF_FLOATS, OF_BLOCKS, OF_GGML }; /* rule->param */

/* Operands of the first, second and third layer. */
struct layer_operands {
    uint32_t weights, scales, zeros, bias; /* scales 0: weights are floats */
};
static const struct layer_operands of_floats[LAYERS] = {{2, 0, 0, 3}, {4, 0, 0, 5}, {6, 0, 0, 7}},
                                   of_blocks[LAYERS] = {{2, 3, 11, 4}, {5, 6, 12, 7}, {8, 9, 13, 10}};
enum { ROUTER_WEIGHTS = 14, FIRST_GLOBAL_SCALE = 15, GLOBAL_SCALES = 2 };

static const struct layer_operands *operands_of(const struct rule *r, uint32_t layer)
{
    return r->param == OF_BLOCKS ? &of_blocks[layer] : &of_floats[layer];
}

/* The same layer of all experts. */
struct layer {
    int64_t experts, in, out;
    value_id w; /* f32 [experts, out, in] */
    struct blocks blocks; /* many 0: w */
    value_id bias; /* f32 [experts, out]; {0}: none */
    bool bytes; /* rows are rounded to bytes by blocks */
};

/* What is chosen of `of` matrices, `n` times, sorted. */
struct choices {
    int64_t of;
    expr_id n;
    value_id ids, order; /* i64 [n]: the chosen ones in ascending order, and the place where each was chosen */
    value_id sizes; /* i64 [of]: how often each is chosen */
};

struct experts {
    int64_t count, k;
    value_id x; /* f32 [tokens, width] */
    struct layer layer[LAYERS];
    bool third;
    int64_t fusion;
    struct choices chosen; /* tokens * k */
    value_id weights; /* f32 [tokens * k], by choice */
    bool one_token;
};

/* ---- weights ----------------------------------------------------------------------------------------------------- */

static bool blocks_of_layer(struct rule *r, const struct layer_operands *at, uint32_t i, const int64_t d[3],
                            struct layer *l)
{
    static const char *const own[LAYERS] = {"fc1_expert_weight_bits", "fc2_expert_weight_bits",
                                            "fc3_expert_weight_bits"};
    struct builder *b = r->b;
    int64_t block = rule_int(r, "block_size", 0), level = rule_int(r, "accuracy_level", 0);
    struct blocks *s = &l->blocks;
    *s = (struct blocks){.many = d[0], .n = d[1], .bits = rule_int(r, own[i], rule_int(r, "expert_weight_bits", 4))};
    if (s->bits != 2 && s->bits != 4 && s->bits != 8)
        return rule_refuse(r, "the weights have %lld bits", (long long)s->bits);
    if (!mul_i64(d[2], 8 / s->bits, &s->k) || s->k > INT32_MAX)
        return rule_bad(r, "rows of %lld bytes", (long long)d[2]);
    if (block > 0 && (block < 16 || block & (block - 1) || s->k % block))
        return rule_bad(r, "blocks of %lld in rows of %lld", (long long)block, (long long)s->k);
    s->size = block > 0 ? block : s->k;
    s->count = s->k / s->size;
    s->middle = INT64_C(1) << (s->bits - 1);
    s->bytes = rule_in(r, at->weights);
    if (v_elem(b, s->bytes) != ELEM_U8)
        return rule_bad(r, "weights of %s for quant_type \"int\"", elem_name(v_elem(b, s->bytes)));
    if (!rule_has(r, at->scales))
        return rule_bad(r, "weights of layer %u without scales", i + 1);
    int64_t dims[3] = {d[0], d[1], s->count}, packed[3] = {d[0], d[1], (s->count * s->bits + 7) / 8},
            in_columns[2] = {d[0], (d[1] * s->bits + 7) / 8};
    s->scale = b_convert(b, v_reshape_i(b, rule_in(r, at->scales), dims, 3), ELEM_F32);
    if (rule_has(r, at->zeros)) { /* of whole columns side by side, else of each column's blocks */
        value_id zero = block > 0 ? v_reshape_i(b, rule_in(r, at->zeros), packed, 3)
                                  : v_reshape_i(b, rule_in(r, at->zeros), in_columns, 2);
        zero = v_unpacked(b, zero, s->bits, ex_const(b->x, block > 0 ? s->count : d[1]));
        s->zero = b_convert(b, v_reshape_i(b, zero, dims, 3), ELEM_F32);
    }
    l->in = s->k;
    l->bytes = block > 0 && blocks_allow_bytes(r, s, level == LEVEL_BYTES || s->bits == 8);
    return s->scale.i && (s->zero.i || !rule_has(r, at->zeros));
}

/* QMoE's weights of quant_type "fp8": numbers of 8 bits with a scale for each square of block_size rows and columns, or
 * for each expert. */
static bool is_f8(struct rule *r)
{
    return r->param == OF_BLOCKS && rule_str_is(r, "quant_type", "int", "fp8");
}

static bool f8_layer(struct rule *r, const struct layer_operands *at, uint32_t i, const int64_t d[3], struct layer *l)
{
    struct builder *b = r->b;
    int64_t block = rule_int(r, "block_size", 0);
    if (block > INT32_MAX)
        return rule_bad(r, "blocks of %lld", (long long)block);
    int64_t rows = block > 0 && block < d[1] ? block : d[1], columns = block > 0 && block < d[2] ? block : d[2];
    int64_t dims[3] = {d[0], (d[1] + rows - 1) / rows, (d[2] + columns - 1) / columns};
    uint32_t scales = block > 0 ? at->scales : FIRST_GLOBAL_SCALE + i;
    value_id w = rule_in(r, at->weights);
    if (v_elem(b, w) != ELEM_F8E4M3FN)
        return rule_bad(r, "weights of %s for quant_type \"fp8\"", elem_name(v_elem(b, w)));
    if ((block <= 0 && i >= GLOBAL_SCALES) || !rule_has(r, scales))
        return rule_bad(r, "weights of layer %u without scales", i + 1);
    value_id scale = b_convert(b, v_reshape_i(b, rule_in(r, scales), dims, 3), ELEM_F32);
    scale = v_blocks_spread(b, scale, 1, rows, ex_const(b->x, d[1]));
    scale = v_blocks_spread(b, scale, 2, columns, ex_const(b->x, d[2]));
    l->w = b_binary(b, OP_MUL, b_convert(b, w, ELEM_F32), scale);
    return l->w.i != 0;
}

static bool ggml_layer(struct rule *r, uint32_t at, uint32_t i, struct layer *l)
{
    static const char *const type[LAYERS] = {"fc1_type", "fc2_type", "fc3_type"};
    if (!ggml_matrix(r, at, 3, rule_str(r, type[i], ""), &l->blocks))
        return false;
    l->in = l->blocks.k;
    l->bytes = r->lg->options->bytes != BYTES_NEVER;
    return true;
}

static bool layer_read(struct rule *r, uint32_t i, struct layer *l)
{
    struct builder *b = r->b;
    const struct layer_operands *at = operands_of(r, i);
    const struct dims dims = b_dims(b, rule_in(r, at->weights));
    int64_t d[3];
    *l = (struct layer){.in = 0};
    if (!dims.d)
        return false;
    if (dims.rank != 3)
        return rule_bad(r, "weights of rank %d", (int)dims.rank);
    for (int32_t k = 0; k < 3; k++)
        if (!ex_is_const(b->x, dims.d[k], &d[k]) || d[k] < 1 || d[k] > INT32_MAX)
            return rule_refuse(r, "the number of experts or a width is dynamic, or 0");
    l->experts = d[0];
    l->out = d[1];
    l->in = d[2];
    if (rule_has(r, at->bias)) {
        int64_t bias[2] = {d[0], d[1]};
        l->bias = v_reshape_i(b, v_widen(b, rule_in(r, at->bias)), bias, 2);
    }
    if (is_f8(r))
        return f8_layer(r, at, i, d, l);
    if (r->param == OF_BLOCKS)
        return blocks_of_layer(r, at, i, d, l);
    if (r->param == OF_GGML && v_elem(b, rule_in(r, at->weights)) == ELEM_U8)
        return ggml_layer(r, at->weights, i, l);
    l->w = v_widen(b, rule_in(r, at->weights));
    return l->w.i != 0;
}

/* x [rows, in] through layer l of an expert: [rows, out]. */
static value_id layer_product(struct rule *r, const struct layer *l, value_id x, expr_id expert)
{
    struct builder *b = r->b;
    struct blocks s = l->blocks;
    s.chosen = expert;
    value_id y = !s.many    ? v_product_chosen(b, x, l->w, expert, 2)
                 : l->bytes ? block_product(r, x, &s)
                            : blocks_product(r, x, &s);
    if (l->bias.i)
        y = b_binary(b, OP_ADD, y, b_slice_axis(b, l->bias, 0, expert, ex_const(b->x, 1)));
    return y;
}

/* ---- activations ------------------------------------------------------------------------------------------------- */

/* gate * sigmoid(alpha * gate) * (linear + beta), both clamped. */
static value_id swiglu(struct rule *r, value_id gate, value_id linear)
{
    struct builder *b = r->b;
    double limit = rule_float(r, "swiglu_limit", INFINITY);
    if (isfinite(limit)) {
        gate = b_binary_f64(b, OP_MIN, gate, limit);
        linear = b_clamp(b, linear, -limit, limit);
    }
    value_id turned = b_unary(b, OP_SIGMOID, b_binary_f64(b, OP_MUL, gate, rule_float(r, "activation_alpha", 1)));
    return b_binary(b, OP_MUL, b_binary(b, OP_MUL, gate, turned),
                    b_binary_f64(b, OP_ADD, linear, rule_float(r, "activation_beta", 0)));
}

/* Half `part` of h [rows, 2 * n]: every second element of a fused layer 1, else of the one that is after the other. */
static value_id half(struct builder *b, value_id h, int64_t fusion, int64_t n, int64_t part)
{
    expr_id of = ex_const(b->x, n), dims[3] = {b_dim(b, h, 0), of, ex_const(b->x, 2)};
    if (fusion == 2)
        return b_slice_axis(b, h, 1, ex_const(b->x, part * n), of);
    return b_squeeze(b, b_slice_axis(b, b_reshape(b, h, dims, 3), 2, ex_const(b->x, part), ex_const(b->x, 1)), 2);
}

/* Whether layer 1, without a third layer, makes gates, too. */
static bool is_gated(const char *kind)
{
    return !strcmp(kind, "swiglu") || !strcmp(kind, "geglu");
}

static value_id activated(struct rule *r, const struct experts *e, value_id h, value_id third)
{
    struct builder *b = r->b;
    const char *kind = rule_str(r, "activation_type", "relu");
    int64_t n = e->layer[1].in;
    if (is_gated(kind) && !e->third) {
        third = half(b, h, e->fusion, n, 1);
        h = half(b, h, e->fusion, n, 0);
    }
    if (!strcmp(kind, "swiglu"))
        return swiglu(r, h, third);
    if (!strcmp(kind, "geglu"))
        return b_binary(b, OP_MUL, v_gelu_tanh(b, h), third);
    if (!strcmp(kind, "relu"))
        h = b_binary_f64(b, OP_MAX, h, 0);
    else if (!strcmp(kind, "silu"))
        h = b_binary(b, OP_MUL, h, b_unary(b, OP_SIGMOID, h));
    else if (!strcmp(kind, "gelu"))
        h = v_gelu_tanh(b, h);
    return e->third ? b_binary(b, OP_MUL, h, third) : h;
}

/* ---- routing ----------------------------------------------------------------------------------------------------- */

static value_id sorted(struct builder *b, value_id x, bool descending, expr_id count, value_id *places)
{
    value_id out[2];
    struct attr attrs[] = {attr_int("axis", v_rank(b, x) - 1), attr_int("descending", descending),
                           attr_expr("count", count)};
    if (!x.i || !b_op_multi(b, OP_SORT, &x, 1, attrs, 3, out, 2))
        return (value_id){0};
    *places = out[1];
    return out[0];
}

/* The weights of the experts `chosen` [tokens, k], of which the router says `best`. */
static value_id weights_of(struct rule *r, value_id router, value_id best, value_id chosen)
{
    struct builder *b = r->b;
    static const int64_t last[] = {1};
    bool normalized = rule_int(r, "normalize_routing_weights", 0) != 0;
    struct attr axis = attr_int("axis", 1);
    if (rule_has(r, ROUTER_WEIGHTS) && r->param == OF_BLOCKS) {
        value_id in[2] = {v_widen(b, rule_in(r, ROUTER_WEIGHTS)), chosen};
        if (!rule_shaped(r, in[0], "router_weights", b_dims(b, router).d, 2))
            return (value_id){0};
        value_id w = b_op(b, OP_GATHER_ELEMENTS, in, 2, &axis, 1), zero = b_splat_like(b, w, 0);
        if (normalized) {
            value_id sum = b_reduce(b, w, last, 1, "sum", true);
            w = b_select(b, b_binary_f64(b, OP_EQ, sum, 0), zero, b_binary(b, OP_DIV, w, sum));
        }
        return b_select(b, b_binary(b, OP_LT, b_splat_like(b, w, 1e-8), w), w, zero);
    }
    if ((r->param != OF_FLOATS && !is_f8(r)) || normalized)
        return v_softmax(b, best, last, 1, false);
    value_id most = b_reduce(b, router, last, 1, "max", true);
    value_id sum = b_reduce(b, b_unary(b, OP_EXP, b_binary(b, OP_SUB, router, most)), last, 1, "sum", true);
    return b_binary(b, OP_DIV, b_unary(b, OP_EXP, b_binary(b, OP_SUB, best, most)), sum);
}

/* ids: i64 [n], each below `of`. */
static void choices_sort(struct builder *b, value_id ids, struct choices *c)
{
    expr_id dims[2] = {c->n, ex_const(b->x, c->of)};
    value_id same = b_binary(b, OP_EQ, b_unsqueeze(b, ids, 1), v_iota(b, ELEM_I64, dims, 2, 1));
    c->sizes = b_reduce(b, b_convert(b, same, ELEM_I64), ARRAY(int64_t, 0), "sum", false);
    c->ids = sorted(b, ids, false, c->n, &c->order);
}

/* How many different ones there are. */
static expr_id choices_trips(struct builder *b, const struct choices *c)
{
    value_id some = b_convert(b, b_binary(b, OP_LT, b_splat_like(b, c->sizes, 0), c->sizes), ELEM_I64);
    return b_elem(b, b_reduce(b, some, ARRAY(int64_t, 0), "sum", false), 0, c->of);
}

/* The one whose choices begin at number `before` (i64, rank 0): *which, and where it was chosen; the next one's number.
 * {0} after a diagnostic. */
static value_id choices_next(struct builder *b, const struct choices *c, value_id before, expr_id *which,
                             value_id *places)
{
    expr_id begin = b_elem(b, before, 0, INT32_MAX);
    value_id id = b_gather(b, c->ids, before, 0), size = b_gather(b, c->sizes, id, 0);
    if (!begin.i || !size.i)
        return (value_id){0};
    *which = b_elem(b, id, 0, c->of - 1);
    expr_id n = b_elem(b, size, 1, INT32_MAX);
    if (!which->i || !n.i)
        return (value_id){0};
    *places = b_slice_axis(b, c->order, 0, begin, n);
    return v_expr(b, ELEM_I64, ex_add(b->x, begin, n));
}

static bool route(struct rule *r, struct experts *e)
{
    struct builder *b = r->b;
    struct exprs *ex = b->x;
    value_id router = v_widen(b, rule_in(r, 1)), places = {0};
    expr_id tokens = b_dim(b, e->x, 0), all = ex_const(ex, e->count);
    if (!rule_shaped(r, router, "router_probs", (expr_id[]){tokens, all}, 2))
        return false;
    value_id best = sorted(b, v_flip(b, router, 1), true, ex_const(ex, e->k), &places);
    value_id chosen = b_binary(b, OP_SUB, b_scalar_i64(b, ELEM_I64, e->count - 1), places);
    e->chosen = (struct choices){.of = e->count, .n = ex_mulc(ex, tokens, e->k)};
    e->weights = b_reshape(b, weights_of(r, router, best, chosen), &e->chosen.n, 1);
    e->one_token = ex_is(ex, tokens, 1);
    e->chosen.ids = b_reshape(b, chosen, &e->chosen.n, 1);
    if (!e->one_token) /* of one, each choice is another expert */
        choices_sort(b, e->chosen.ids, &e->chosen);
    return e->chosen.ids.i && e->weights.i;
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

static value_id expert_rows(struct rule *r, const struct experts *e, value_id x, expr_id expert)
{
    value_id h = layer_product(r, &e->layer[0], x, expert),
             third = e->third ? layer_product(r, &e->layer[2], x, expert) : (value_id){0};
    return layer_product(r, &e->layer[1], activated(r, e, h, third), expert);
}

/* Carried: the sums [1, width]. */
static bool choice_step(struct rule *r, void *data, value_id iter, const value_id *carried, value_id *next,
                        value_id *scan)
{
    const struct experts *e = data;
    struct builder *b = r->b;
    (void)scan;
    expr_id expert = b_elem(b, b_gather(b, e->chosen.ids, iter, 0), 0, e->count - 1);
    value_id y = expert.i ? expert_rows(r, e, e->x, expert) : (value_id){0};
    next[0] = b_binary(b, OP_ADD, carried[0], b_binary(b, OP_MUL, y, b_gather(b, e->weights, iter, 0)));
    return next[0].i != 0;
}

/* Carried: the sums [tokens, width], and the number of choices that lie before this expert's. */
static bool expert_step(struct rule *r, void *data, value_id iter, const value_id *carried, value_id *next,
                        value_id *scan)
{
    const struct experts *e = data;
    struct builder *b = r->b;
    expr_id expert;
    value_id order;
    (void)iter, (void)scan;
    next[1] = choices_next(b, &e->chosen, carried[1], &expert, &order);
    if (!next[1].i)
        return false;
    value_id token = b_binary(b, OP_DIV, order, b_scalar_i64(b, ELEM_I64, e->k));
    value_id y = expert_rows(r, e, b_gather(b, e->x, token, 0), expert);
    y = b_binary(b, OP_MUL, y, b_unsqueeze(b, b_gather(b, e->weights, order, 0), 1));
    next[0] = b_scatter_nd(b, carried[0], b_unsqueeze(b, token, 1), y, "sum");
    return next[0].i != 0;
}

static value_id summed(struct rule *r, struct experts *e)
{
    struct builder *b = r->b;
    expr_id dims[2] = {b_dim(b, e->x, 0), ex_const(b->x, e->layer[1].out)};
    value_id carried[2] = {b_splat_f64(b, ELEM_F32, 0, dims, 2), b_scalar_i64(b, ELEM_I64, 0)};
    struct counted_loop loop = {.trips = ex_const(b->x, e->k), .body = choice_step, .data = e, .n_carried = 1};
    if (ex_is(b->x, dims[0], 0))
        return carried[0];
    if (!e->one_token) {
        loop.trips = choices_trips(b, &e->chosen);
        loop.body = expert_step;
        loop.n_carried = 2;
    }
    return loop.trips.i && rule_counted_loop(r, &loop, carried, NULL) ? carried[0] : (value_id){0};
}

/* ---- the operators ----------------------------------------------------------------------------------------------- */

static bool served(struct rule *r)
{
    static const char *const kinds[] = {"relu", "gelu", "silu", "swiglu", "geglu", "identity"};
    const char *kind = rule_str(r, "activation_type", "relu");
    bool known = false, blocks = r->param == OF_BLOCKS;
    for (uint32_t i = 0; i < COUNT_OF(kinds); i++)
        known |= !strcmp(kind, kinds[i]);
    if (!known)
        return rule_bad(r, "activation_type \"%.40s\"", kind);
    if (blocks && !is_f8(r) && !rule_str_is(r, "quant_type", "int", "int"))
        return rule_refuse(r, "quant_type \"%.40s\"", rule_str(r, "quant_type", "int"));
    if (blocks && rule_int(r, "weights_prepacked", -1) == 1)
        return rule_refuse(r, "the weights are prepacked for a GPU: export them without");
    bool whole = is_f8(r) && rule_int(r, "block_size", 0) <= 0; /* one scale for an expert */
    for (uint32_t i = FIRST_GLOBAL_SCALE + (whole ? GLOBAL_SCALES : 0); blocks && i < r->n_in; i++)
        if (rule_has(r, i))
            return rule_refuse(r, "operand %u scales floats of 4 or 8 bits", i);
    for (uint32_t i = 0; is_f8(r) && i < LAYERS; i++)
        if (rule_has(r, of_blocks[i].zeros) || (whole && rule_has(r, of_blocks[i].scales)))
            return rule_bad(r, "zero points, or scales without block_size, of weights of floats");
    return true;
}

static bool experts_read(struct rule *r, struct experts *e)
{
    struct builder *b = r->b;
    const struct layer *l = e->layer;
    const char *kind = rule_str(r, "activation_type", "relu");
    int64_t width;
    *e = (struct experts){.k = rule_int(r, "k", 1), .fusion = rule_int(r, "swiglu_fusion", 0)};
    e->third = rule_has(r, operands_of(r, 2)->weights);
    for (uint32_t i = 0; i < (e->third ? 3u : 2u); i++)
        if (!layer_read(r, i, &e->layer[i]))
            return false;
    const struct dims d = b_dims(b, rule_in(r, 0));
    if (!d.d)
        return false;
    e->count = l[0].experts;
    if (l[1].experts != e->count || (e->third && l[2].experts != e->count))
        return rule_bad(r, "layers of %lld and %lld experts", (long long)e->count,
                        (long long)(l[1].experts != e->count ? l[1] : l[2]).experts);
    if (d.rank < 2 || e->k < 1 || e->k > e->count)
        return rule_bad(r, "an input of rank %d, %lld of %lld experts", (int)d.rank, (long long)e->k,
                        (long long)e->count);
    bool fused = is_gated(kind) && !e->third;
    if (fused && e->fusion != 1 && e->fusion != 2)
        return rule_bad(r, "%s without swiglu_fusion and without a third layer", kind);
    if (e->third && !strcmp(kind, "geglu"))
        return rule_bad(r, "geglu with a third layer");
    if (!ex_is_const(b->x, d.d[d.rank - 1], &width))
        return rule_refuse(r, "the width is dynamic");
    if (l[0].in != width || l[1].out != width || l[0].out != l[1].in * (fused ? 2 : 1) ||
        (e->third && (l[2].in != width || l[2].out != l[0].out)))
        return rule_bad(r, "layers of %lld to %lld and %lld to %lld for rows of %lld", (long long)l[0].in,
                        (long long)l[0].out, (long long)l[1].in, (long long)l[1].out, (long long)width);
    expr_id rows[2] = {dims_product(b->x, d.d, d.rank - 1), d.d[d.rank - 1]};
    e->x = b_reshape(b, v_widen(b, rule_in(r, 0)), rows, 2);
    return e->x.i != 0;
}

bool rule_experts(struct rule *r)
{
    struct builder *b = r->b;
    struct experts e;
    value_id in = rule_in(r, 0);
    if (!in.i || !served(r) || !experts_read(r, &e) || !route(r, &e))
        return false;
    const struct dims d = b_dims(b, in);
    value_id y = summed(r, &e);
    return rule_result(r, b_convert(b, b_reshape(b, y, d.d, d.rank), v_elem(b, in)));
}

/* ---- experts as exporters write them: products by matrices that a Gather fetches --------------------------------- */

struct fetched {
    struct choices chosen;
    value_id x, w; /* [n, k], [of, in, out] or [of, out, in] */
    int64_t along; /* the dim of w that is summed over */
};

/* Carried: the results [n, out], and the number of choices that lie before this matrix's. */
static bool fetched_step(struct rule *r, void *data, value_id iter, const value_id *carried, value_id *next,
                         value_id *scan)
{
    const struct fetched *f = data;
    struct builder *b = r->b;
    expr_id which;
    value_id places;
    (void)iter, (void)scan;
    next[1] = choices_next(b, &f->chosen, carried[1], &which, &places);
    if (!next[1].i)
        return false;
    value_id y = v_product_chosen(b, b_gather(b, f->x, places, 0), f->w, which, f->along);
    next[0] = v_rows_set(b, carried[0], places, y, 0);
    return next[0].i != 0;
}

/* Is v a constant's matrices at n indices? Matrices of a few elements are gathered as fast. */
static bool is_fetched(struct builder *b, value_id v, struct fetched *f, value_id *at)
{
    enum { ELEMENTS_LEAST = 1 << 14 };
    const struct node *n = v_defining(b, v, OP_GATHER);
    const struct type *t;
    int64_t d[3], elements;
    if (n ? node_int(n, "axis", 0) != 0 || v_rank(b, n->in[1]) != 1
          : !(n = v_defining(b, v, OP_GATHER_ND)) || node_int(n, "batch", 0) != 0 || v_rank(b, n->in[1]) != 2)
        return false;
    t = value_type(b->g, n->in[0]);
    if (!value_is_const(b->g, n->in[0]) || t->rank != 3 || t->elem != ELEM_F32 || v_rank(b, v) != 3)
        return false;
    for (int32_t i = 0; i < 3; i++)
        if (!ex_is_const(b->x, t->dims[i], &d[i]) || d[i] < 1)
            return false;
    f->w = n->in[0];
    f->chosen = (struct choices){.of = d[0], .n = b_dim(b, v, 0)};
    *at = b_convert(b, n->op == OP_GATHER_ND ? b_squeeze(b, n->in[1], 1) : n->in[1], ELEM_I64);
    return d[0] > 1 && mul_i64(d[1], d[2], &elements) && elements >= ELEMENTS_LEAST;
}

bool rule_matmul_fetched(struct rule *r, value_id a, value_id w, value_id *y)
{
    struct builder *b = r->b;
    struct fetched f;
    value_id at;
    bool left = is_fetched(b, a, &f, &at);
    if (!left && !is_fetched(b, w, &f, &at))
        return false;
    value_id rows = left ? w : a;
    const struct dims d = b_dims(b, rows);
    if (!d.d || d.rank != 3 || v_elem(b, rows) != ELEM_F32 || !ex_is(b->x, d.d[left ? 2 : 1], 1) ||
        ex_is(b->x, d.d[0], 0) || d.d[0].i != f.chosen.n.i ||
        d.d[left ? 1 : 2].i != value_type(b->g, f.w)->dims[left ? 2 : 1].i)
        return false;
    f.along = left ? 2 : 1;
    f.x = b_squeeze(b, rows, left ? 2 : 1);
    expr_id of = ex_const(b->x, f.chosen.of), dims[2] = {f.chosen.n, value_type(b->g, f.w)->dims[left ? 1 : 2]};
    choices_sort(b, b_gather(b, v_iota(b, ELEM_I64, &of, 1, 0), at, 0), &f.chosen); /* indices from the end, too */
    value_id carried[2] = {b_splat_f64(b, ELEM_F32, 0, dims, 2), b_scalar_i64(b, ELEM_I64, 0)};
    struct counted_loop loop = {.trips = choices_trips(b, &f.chosen), .body = fetched_step, .data = &f, .n_carried = 2};
    bool ok = loop.trips.i && rule_counted_loop(r, &loop, carried, NULL);
    *y = ok ? b_unsqueeze(b, carried[0], left ? 2 : 1) : (value_id){0};
    return true;
}

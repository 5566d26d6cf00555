/* Products of floats by constants that are chosen to be of int8 (--choose NODE:precision=int8, what --error finds), and
 * what that would cost (struct product_probe); also what rounding the operands of other nodes would.
 *
 * int8 is what an import of QuantizeLinear and DequantizeLinear around the node would be: the rule gets dequantized
 * operands, and the kernels of quantized networks do the rest. The first operand has one scale and zero point, by its
 * range; the second one scale for each output channel, max / 127.
 *
 * A probe runs the node's rule twice, the second time with quantized operands, and a run takes the result of that for
 * the one product that the input PROBE_INPUT numbers. So one artifact measures all products alone. Arithmetic that is
 * no int8 is narrow-products' (passes/graph/probe_products.c).
 */
#include "passes/legalize/driver.h"
#include "passes/legalize/nn/window.h"

#include <math.h>

#define LEAST_SCALE 1e-30 /* of a channel of zeros */
enum { STEPS_U8 = 255, STEPS_I8 = 127 };

static const struct product_row {
    const char *op; /* or what stands before the overload's name */
    bool is_conv;
    int32_t out_axis; /* of the second operand; -1: as transB says */
    uint32_t first; /* which one the first operand is */
} product_rows[] = {
    {"Conv", true, 0, 0},        {"ConvTranspose", true, 1, 0},    {"MatMul", false, 1, 0},
    {"Gemm", false, -1, 0},      {"linear", false, 0, 0},          {"mm", false, 1, 0},
    {"matmul", false, 1, 0},     {"addmm", false, 1, 1},           {"conv1d", true, 0, 0},
    {"conv2d", true, 0, 0},      {"conv3d", true, 0, 0},           {"conv_transpose1d", true, 1, 0},
    {"convolution", true, 0, 0}, {"conv_transpose2d", true, 1, 0}, {"conv_transpose3d", true, 1, 0},
};

/* A tensor of f32 that no DequantizeLinear gives, known now or not. */
static bool is_float(const struct builder *b, const struct lowered *a, bool constant)
{
    return a->kind == LOWERED_VALUE && a->v.i && !a->quantized && v_elem(b, a->v) == ELEM_F32 &&
           value_is_const(b->g, a->v) == constant;
}

/* Is there a kernel of bytes for it? (rule_conv_dequantized, rule_matmul_dequantized) */
static bool fits_int8(const struct rule *r, const struct product_form *f)
{
    const struct builder *b = r->b;
    const value_id x = r->arg[f->first].v, w = r->arg[f->first + 1].v;
    int32_t rank = v_rank(b, w);
    int64_t groups = node_int(r->node, "group", node_int(r->node, "groups", 1)), known;
    if (!f->is_conv)
        return rank == 2 && v_rank(b, x) >= 2 && !node_int(r->node, "transA", 0);
    bool fits = f->out_axis == 0 && rank >= 3 && v_rank(b, x) == rank &&
                (groups == 1 || ex_is(b->x, value_type(b->g, w)->dims[1], 1));
    for (int32_t d = 0; fits && d < rank; d++)
        fits = ex_is_const(b->x, value_type(b->g, w)->dims[d], &known) && known > 0;
    return fits;
}

bool product_form(const struct rule *r, struct product_form *f)
{
    const struct product_row *row = NULL;
    const size_t n = strcspn(r->op, ".");
    const bool onnx = !*r->node->domain || !strcmp(r->node->domain, "ai.onnx");
    for (size_t i = 0; i < COUNT_OF(product_rows) && !row; i++)
        row = strlen(product_rows[i].op) == n && !memcmp(product_rows[i].op, r->op, n) ? &product_rows[i] : NULL;
    if (!onnx && strcmp(r->node->domain, "aten") != 0)
        return false;
    if (!row || r->n_out < 1 || r->n_in < row->first + 2 || !is_float(r->b, &r->arg[row->first], false) ||
        !is_float(r->b, &r->arg[row->first + 1], true) || v_rank(r->b, r->arg[row->first + 1].v) < 2)
        return false;
    *f = (struct product_form){.is_conv = row->is_conv, .out_axis = row->out_axis, .first = row->first};
    if (row->out_axis < 0)
        f->out_axis = node_int(r->node, "transB", 0) ? 0 : 1;
    if (node_int(r->node, "transposed", 0))
        f->out_axis = 1;
    f->takes_int8 = fits_int8(r, f);
    return true;
}

/* ---- operands ---------------------------------------------------------------------------------------------------- */

/* Scale and zero point of u8 for a range, stretched to hold 0. */
static void range_scale(const struct operand_range *range, float *scale, uint8_t *zero)
{
    double lo = fmin(range->least, 0), hi = fmax(range->most, 0);
    *scale = (float)fmax((hi - lo) / STEPS_U8, LEAST_SCALE);
    *zero = (uint8_t)fmin(fmax(rint(-lo / (double)*scale), 0), STEPS_U8);
}

static const struct quantized *quantized_new(struct builder *b, struct quantized q)
{
    return q.q.i ? arena_copy(&b->g->arena, &q, sizeof q) : NULL;
}

static const struct quantized *quantize_by(struct builder *b, value_id x, const struct operand_range *range)
{
    float scale;
    uint8_t zero;
    range_scale(range, &scale, &zero);
    value_id s = b_const(b, ELEM_F32, NULL, 0, &scale), z = b_const(b, ELEM_U8, NULL, 0, &zero);
    return quantized_new(b, (struct quantized){v_quantize(b, b_binary(b, OP_DIV, x, s), z, ELEM_U8), s, z, 0, false});
}

/* Several products of one value share what it is quantized to. */
static const struct quantized *calibrated(struct rule *r, value_id x, enum arithmetic how,
                                          const struct operand_range *range)
{
    struct legalizer *lg = r->lg;
    struct calibrated c = {.x = x, .region = r->b->region};
    if (how == ARITHMETIC_INT8)
        c.range = *range;
    else
        c.range = (struct operand_range){1, 0}; /* none has its ends so */
    for (uint32_t i = 0; i < lg->calibrated.n; i++) {
        const struct calibrated *known = &lg->calibrated.data[i];
        if (known->x.i == x.i && known->region.i == c.region.i && known->range.least == c.range.least &&
            known->range.most == c.range.most)
            return known->bytes;
    }
    if (how == ARITHMETIC_INT8) {
        c.bytes = quantize_by(r->b, x, range);
    } else {
        value_id out[3];
        v_quantize_dynamic(r->b, x, out);
        c.bytes = quantized_new(r->b, (struct quantized){out[0], out[1], out[2], 0, false});
    }
    VEC_PUSH(lg->arena, &lg->calibrated, c);
    return c.bytes;
}

static const struct quantized *quantize_constant(struct builder *b, value_id w, int32_t out_axis)
{
    int64_t axes[RANK_MAX];
    uint32_t n = 0;
    for (int32_t d = 0; d < v_rank(b, w); d++)
        if (d != out_axis)
            axes[n++] = d;
    value_id low = b_unary(b, OP_NEG, b_reduce(b, w, axes, n, "min", true)),
             high = b_reduce(b, w, axes, n, "max", true);
    value_id most = b_binary_f64(b, OP_MAX, b_binary(b, OP_MAX, high, low), LEAST_SCALE);
    value_id s = b_binary_f64(b, OP_DIV, most, STEPS_I8);
    value_id q = b_convert(b, b_unary(b, OP_ROUND, b_binary(b, OP_DIV, w, s)), ELEM_I8);
    expr_id outs = b_dim(b, w, out_axis);
    return quantized_new(b, (struct quantized){q, b_reshape(b, s, &outs, 1), {0}, out_axis, false});
}

static value_id dequantize(struct builder *b, const struct quantized *q)
{
    value_id y = b_convert(b, q->q, ELEM_I32);
    if (q->zero.i)
        y = b_binary(b, OP_SUB, y, b_convert(b, q->zero, ELEM_I32));
    value_id s = v_rank(b, q->scale) == 1 ? v_along(b, q->scale, q->axis, v_rank(b, q->q)) : q->scale;
    return b_binary(b, OP_MUL, b_convert(b, y, ELEM_F32), s);
}

static bool put_quantized(struct lowered *arg, struct builder *b, const struct quantized *q)
{
    if (!q)
        return false;
    *arg = lowered_value(dequantize(b, q));
    arg->quantized = q;
    return arg->v.i != 0;
}

/* The caller's bytes, if the constant is the file's and not computed of that one. */
static bool weights_fit(const struct rule *r, value_id w, const struct probed_weights *given)
{
    const struct graph *g = r->b->g;
    bool fit = given && const_bytes(g, w) && v_rank(r->b, w) == given->rank;
    for (int32_t d = 0; fit && d < given->rank; d++)
        fit = ex_is(r->b->x, value_type(g, w)->dims[d], given->dims[d]);
    return fit;
}

static const struct quantized *weights_given(struct builder *b, const struct probed_weights *given)
{
    const int64_t *outs = &given->dims[given->axis];
    value_id q = b_const(b, ELEM_I8, given->dims, given->rank, given->bytes);
    return quantized_new(b,
                         (struct quantized){q, b_const(b, ELEM_F32, outs, 1, given->scales), {0}, given->axis, false});
}

/* Puts the rule's operands in int8 in their place. given: NULL: max / 127. False after a diagnostic. */
static bool operands_put(struct rule *r, const struct product_form *f, enum arithmetic how,
                         const struct operand_range *range, const struct probed_weights *given)
{
    struct lowered *arg = NEW_ARRAY(&r->b->g->arena, struct lowered, r->n_in + 1);
    struct lowered *x = &arg[f->first], *w = x + 1;
    const bool fit = weights_fit(r, r->arg[f->first + 1].v, given);
    const uint32_t bias = f->first ? 0 : 2;
    memcpy(arg, r->arg, r->n_in * sizeof *arg);
    if (fit && given->bias) {
        arg[bias] = lowered_value(b_const(r->b, ELEM_F32, &given->dims[given->axis], 1, given->bias));
        r->n_in = r->n_in > bias ? r->n_in : bias + 1;
    }
    r->arg = arg;
    return put_quantized(w, r->b, fit ? weights_given(r->b, given) : quantize_constant(r->b, w->v, f->out_axis)) &&
           put_quantized(x, r->b, calibrated(r, x->v, how, range));
}

/* ---- choices ----------------------------------------------------------------------------------------------------- */

static const char *label_of(const struct rule *r)
{
    return source_label(source_get(r->lg->ctx, r->node->src));
}

bool product_choose(struct rule *r, const struct product_form *f)
{
    const struct legalize_options *o = r->lg->options;
    struct operand_range range = {0, 0};
    if (!o || !o->chosen || !f->takes_int8)
        return true;
    enum arithmetic how = o->chosen(o->user, label_of(r), f->is_conv, &range);
    return how == ARITHMETIC_F32 || operands_put(r, f, how, &range, NULL);
}

/* ---- probes ------------------------------------------------------------------------------------------------------ */

/* What the probe says of the node, or of others of its label; NULL: nothing. f: NULL: it is not a product. */
static struct probed_product *probed_of(struct rule *r, const struct product_form *f)
{
    struct product_probe *probe = r->lg->options->probe;
    struct probed_product *p = f ? probe_product(probe, label_of(r), r->op) : probe_find(probe, label_of(r));
    if (!p)
        return NULL;
    p->times += r->b->region.i == 1 ? 1 : 2; /* a body of a loop runs often */
    if (f) {
        p->is_conv = f->is_conv;
        p->takes_int8 = f->takes_int8;
        p->x = r->arg[f->first].v;
    }
    p->takes_int8 &= p->times == 1;
    p->twin &= p->times == 1;
    return p;
}

/* The same of a node that is not a product: the first floats by the ranges that the probe has. */
static bool operands_round(struct rule *r, const struct probed_product *p)
{
    struct builder *b = r->b;
    struct arena *arena = &b->g->arena;
    struct lowered *arg = arena_copy(arena, r->arg, r->n_in * sizeof *arg);
    uint32_t done = 0;
    for (uint32_t i = 0; i < r->n_in; i++) {
        struct lowered *at = &arg[i];
        uint32_t n = 1;
        if (at->kind == LOWERED_LIST) {
            n = at->n;
            arg[i].items = at = arena_copy(arena, at->items, n * sizeof *at);
        }
        for (uint32_t k = 0; k < n && done < p->n_ranges; k++)
            if (is_float(b, &at[k], false) &&
                !put_quantized(&at[k], b, calibrated(r, at[k].v, ARITHMETIC_INT8, &p->ranges[done++])))
                return false;
    }
    r->arg = arg;
    return true;
}

bool node_probed(struct rule *r, rule_fn *rule, const struct product_form *f)
{
    struct legalizer *lg = r->lg;
    struct builder *b = r->b;
    const struct probed_product *p = probed_of(r, f);
    const enum arithmetic how = lg->options->probe->second;
    struct rule again = *r;
    if ((how != ARITHMETIC_INT8 && how != ARITHMETIC_DYNAMIC) || !p || !p->wanted || p->times != 1 ||
        (!f && (!p->n_ranges || r->node->n_region)) || r->out[0].kind != LOWERED_VALUE)
        return true;
    again.out = NEW_ARRAY(lg->arena, struct lowered, r->n_out + 1);
    if (!(f ? operands_put(&again, f, how, &p->range, p->weights) : operands_round(&again, p)) || !rule(&again) ||
        lg->fork)
        return false;
    const int64_t number = p - lg->options->probe->products.data;
    value_id taken = b_binary_f64(b, OP_EQ, lg->probe, (double)number);
    lg->options->probe->products.data[number].twin = true;
    return rule_result(r, b_select(b, taken, again.out[0].v, r->out[0].v));
}

void probe_begin(struct legalizer *lg)
{
    struct product_probe *probe = lg->options ? lg->options->probe : NULL;
    for (uint32_t i = 0; probe && i < probe->products.n; i++) {
        struct probed_product *p = &probe->products.data[i];
        p->x = (value_id){0};
        p->times = 0;
        p->twin = false;
    }
    if (!probe || probe->second == ARITHMETIC_F32)
        return;
    struct type type = {.kind = TYPE_TENSOR, .elem = ELEM_I64};
    lg->probe = graph_param(lg->to, lg->b.region, type, PROBE_INPUT);
    struct port port = {.name = PROBE_INPUT, .value = lg->probe, .declared = value_type(lg->to, lg->probe)};
    port.declared = arena_copy(lg->arena, port.declared, sizeof type);
    VEC_PUSH(lg->arena, &lg->to->inputs, port);
}

void probe_end(struct legalizer *lg)
{
    const struct product_probe *probe = lg->options ? lg->options->probe : NULL;
    for (uint32_t i = 0; probe && probe->observe && i < probe->products.n; i++) {
        const struct probed_product *p = &probe->products.data[i];
        bool seen = !p->takes_int8;
        for (uint32_t k = 0; k < i && !seen; k++)
            seen = probe->products.data[k].takes_int8 && probe->products.data[k].x.i == p->x.i;
        if (seen)
            continue;
        struct port port = {.name = arena_printf(lg->arena, PROBE_OPERAND "%u", i), .value = p->x};
        port.declared = arena_copy(lg->arena, value_type(lg->to, p->x), sizeof(struct type));
        VEC_PUSH(lg->arena, &lg->to->outputs, port);
        graph_add_result(lg->to, lg->b.region, p->x);
    }
}

/* com.microsoft: products with what ONNX Runtime's optimizer fuses into them, and its operators of the channels-last
 * layout.
 *
 * Each is the operators that were fused, so later passes see what the unfused network would have shown them.
 */
#include "passes/legalize/driver.h"
#include "passes/legalize/nn/window.h"

/* ---- activations ------------------------------------------------------------------------------------------------- */

/* An activation and the attributes of its own operator that its parameters are, in order. */
struct fused_activation {
    const char *op, *params[2];
};
static const struct fused_activation activations[] = {
    {"Relu", {0}},
    {"Sigmoid", {0}},
    {"Tanh", {0}},
    {"Softplus", {0}},
    {"Softsign", {0}},
    {"HardSwish", {0}},
    {"LeakyRelu", {"alpha"}},
    {"Elu", {"alpha"}},
    {"Celu", {"alpha"}},
    {"ThresholdedRelu", {"alpha"}},
    {"HardSigmoid", {"alpha", "beta"}},
    {"Selu", {"alpha", "gamma"}},
};

/* The standard's operator of that name on x: its rule, run in the place of r's node. */
static value_id operator_run(struct rule *r, const char *op, const struct attr *attrs, uint32_t n, value_id x)
{
    const struct rule_row *row = row_find("", op, INT32_MAX);
    struct node node = {.op = OP_IMPORTED,
                        .src = r->node->src,
                        .attr = arena_copy(&r->b->g->arena, attrs, n * sizeof *attrs),
                        .n_attr = n,
                        .op_type = op,
                        .domain = ""};
    struct lowered arg = lowered_value(x), out = {.kind = LOWERED_NONE};
    struct rule sub = {.b = r->b,
                       .lg = r->lg,
                       .node = &node,
                       .op = op,
                       .version = INT32_MAX,
                       .param = row->param,
                       .n_in = 1,
                       .n_out = 1,
                       .arg = &arg,
                       .out = &out};
    return x.i && row->rule(&sub) ? out.v : (value_id){0};
}

/* A parameter of the activation: activation_params[i] of convolutions, activation_alpha, _beta, _gamma of Gemm. */
static bool parameter_read(struct rule *r, uint32_t i, const char *name, double *out)
{
    uint32_t n;
    const double *list = rule_floats(r, "activation_params", &n);
    char text[32] = "activation_";
    if (i < n)
        *out = list[i];
    if (i < n || !name)
        return i < n;
    strncat(text, name, sizeof text - strlen(text) - 1);
    const struct attr *a = node_attr(r->node, text);
    if (a)
        *out = a->u.f;
    return a != NULL;
}

static value_id activated(struct rule *r, value_id y)
{
    const char *name = rule_str(r, "activation", "");
    struct attr attrs[2];
    double p[2];
    uint32_t n = 0;
    if (!*name || !y.i)
        return y;
    if (strcmp(name, "Clip") == 0 && parameter_read(r, 0, NULL, &p[0]) && parameter_read(r, 1, NULL, &p[1]))
        return b_clamp(r->b, y, p[0], p[1]);
    for (size_t k = 0; k < COUNT_OF(activations); k++) {
        const struct fused_activation *f = &activations[k];
        if (strcmp(name, f->op) != 0)
            continue;
        for (uint32_t i = 0; i < 2 && f->params[i]; i++)
            if (parameter_read(r, i, f->params[i], &p[i]))
                attrs[n++] = attr_float(f->params[i], p[i]);
        return operator_run(r, f->op, attrs, n, y);
    }
    return rule_refuse(r, "the activation is \"%.40s\"", name), (value_id){0};
}

/* ---- convolutions ------------------------------------------------------------------------------------------------ */

/* Convolution, then bias (operand 2), then Z added (operand 3), then the activation. The row's parameter: x, Z and the
 * result have their channels last. */
bool rule_fused_conv(struct rule *r)
{
    struct builder *b = r->b;
    value_id in = rule_in(r, 0), x = v_widen(b, in);
    if (r->param)
        x = v_channels_first(b, x);
    value_id y = rule_conv_core(r, x, v_widen(b, rule_in(r, 1)), ELEM_NONE);
    if (rule_has(r, 2))
        y = b_binary(b, OP_ADD, y, v_channels(b, v_widen(b, rule_in(r, 2)), y, 1));
    if (rule_has(r, 3)) {
        value_id z = v_widen(b, rule_in(r, 3));
        y = b_binary(b, OP_ADD, y, r->param ? v_channels_first(b, z) : z);
    }
    y = activated(r, y);
    if (r->param)
        y = v_channels_last(b, y);
    return rule_result(r, b_convert(b, y, v_elem(b, in)));
}

/* ---- matrix products --------------------------------------------------------------------------------------------- */

/* A batch written after the rows (dims 1 to rank - 2 are the batch) moved before them, then the last two axes
 * exchanged. */
static value_id turned(struct builder *b, value_id v, bool last, bool batch)
{
    int64_t perm[RANK_MAX];
    int32_t rank = v_rank(b, v);
    if (rank < 2)
        return v;
    for (int32_t i = 0; i < rank; i++)
        perm[i] = batch && i < rank - 1 ? (i + 1) % (rank - 1) : i;
    if (last) {
        int64_t row = perm[rank - 2];
        perm[rank - 2] = perm[rank - 1];
        perm[rank - 1] = row;
    }
    return b_transpose(b, v, perm);
}

/* alpha * A' B' (FusedMatMul; TransposeMatMul, its older name, without batches to turn). */
bool rule_fused_matmul(struct rule *r)
{
    struct builder *b = r->b;
    double alpha = rule_float(r, "alpha", 1);
    value_id in = rule_in(r, 0), a = in, w = rule_in(r, 1);
    if (alpha != 1) {
        a = v_widen(b, a);
        w = v_widen(b, w);
    }
    a = turned(b, a, rule_int(r, "transA", 0) != 0, rule_int(r, "transBatchA", 0) != 0);
    w = turned(b, w, rule_int(r, "transB", 0) != 0, rule_int(r, "transBatchB", 0) != 0);
    return rule_result(r, b_convert(b, v_affine(b, b_matmul(b, a, w), alpha, 0), v_elem(b, in)));
}

bool rule_fused_gemm(struct rule *r)
{
    enum elem e;
    value_id y = rule_gemm_wide(r, &e);
    return y.i && rule_result(r, b_convert(r->b, activated(r, v_widen(r->b, y)), e));
}

/* ---- normalisation with what is fused into it -------------------------------------------------------------------- */

/* Softmax of data + bias over axis and all after it. Where the bias has fewer dims it has them of the last axes, or,
 * with is_inner_broadcast, of the same rank with 1 where it repeats: numpy's rule for both. */
bool rule_bias_softmax(struct rule *r)
{
    struct builder *b = r->b;
    value_id in = rule_in(r, 0), x = b_binary(b, OP_ADD, v_widen(b, in), v_widen(b, rule_in(r, 1)));
    int64_t axes[RANK_MAX];
    uint32_t n = 0;
    int32_t axis, rank = v_rank(b, x);
    if (!x.i || !rule_axis(r, rule_int(r, "axis", 1), rank, &axis))
        return false;
    for (int32_t i = axis; i < rank; i++)
        axes[n++] = i;
    return rule_result(r, b_convert(b, v_softmax(b, x, axes, n, false), v_elem(b, in)));
}

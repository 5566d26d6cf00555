/* RNN, GRU, LSTM and LinearAttention: counted loops over time, short static ones unroll.
 *
 * The input's product with the weights is computed for all steps at once before the loop; an iteration adds the
 * recurrent product. A reverse direction turns the sequence around before and after. With sequence_lens a state
 * stays as it is past its sequence's end and the output there is zero. Gate orders: GRU z r h, LSTM i o f c.
 * DynamicQuantizeLSTM has weights of bytes, already transposed; what they are multiplied by is quantized by its range,
 * all steps at once and each state. PyTorch's LSTM may project the output, which is then smaller than the cell's state:
 * operand 8, which ONNX's has not.
 */
#include "passes/legalize/nn/attention.h"
#include "passes/legalize/nn/window.h"

#include <strings.h>

enum cell { CELL_RNN, CELL_GRU, CELL_LSTM };

/* ---- activations ----------------------------------------------------------------------------------------------- */

struct activation {
    const char *name;
    double alpha, beta;
};
enum { MAX_ACTIVATIONS = 6 };

static value_id apply(struct rule *r, const struct activation *f, value_id x)
{
    struct builder *b = r->b;
    value_id zero = b_splat_like(b, x, 0), y;
    if (strcasecmp(f->name, "Sigmoid") == 0)
        return b_unary(b, OP_SIGMOID, x);
    if (strcasecmp(f->name, "Tanh") == 0)
        return b_unary(b, OP_TANH, x);
    if (strcasecmp(f->name, "Relu") == 0)
        return b_binary_f64(b, OP_MAX, x, 0);
    if (strcasecmp(f->name, "Affine") == 0)
        return v_affine(b, x, f->alpha, f->beta);
    if (strcasecmp(f->name, "LeakyRelu") == 0)
        return b_select(b, b_binary(b, OP_LT, x, zero), v_affine(b, x, f->alpha, 0), x);
    if (strcasecmp(f->name, "ThresholdedRelu") == 0)
        return b_select(b, b_binary(b, OP_LT, b_splat_like(b, x, f->alpha), x), x, zero);
    if (strcasecmp(f->name, "ScaledTanh") == 0)
        return v_affine(b, b_unary(b, OP_TANH, v_affine(b, x, f->beta, 0)), f->alpha, 0);
    if (strcasecmp(f->name, "HardSigmoid") == 0)
        return b_clamp(b, v_affine(b, x, f->alpha, f->beta), 0, 1);
    if (strcasecmp(f->name, "Elu") == 0)
        return b_select(b, b_binary(b, OP_LT, x, zero), v_affine(b, b_unary(b, OP_EXPM1, x), f->alpha, 0), x);
    if (strcasecmp(f->name, "Softsign") == 0)
        return b_binary(b, OP_DIV, x, b_binary_f64(b, OP_ADD, b_unary(b, OP_ABS, x), 1));
    if (strcasecmp(f->name, "Softplus") == 0) {
        y = b_unary(b, OP_LOG1P, b_unary(b, OP_EXP, b_unary(b, OP_NEG, b_unary(b, OP_ABS, x))));
        return b_binary(b, OP_ADD, b_binary_f64(b, OP_MAX, x, 0), y);
    }
    return rule_bad(r, "no activation is called \"%.40s\"", f->name), (value_id){0};
}

/* alpha and beta are taken from the attributes' lists in order, by the activations that have them. */
static bool activations_read(struct rule *r, enum cell cell, uint32_t dirs, struct activation *out)
{
    static const struct {
        const char *name;
        double alpha, beta;
        int has;
    } known[] = {
        {"Affine", 1, 0, 3},     {"LeakyRelu", 0.01, 0, 1},    {"ThresholdedRelu", 1, 0, 1},
        {"ScaledTanh", 1, 1, 3}, {"HardSigmoid", 0.2, 0.5, 3}, {"Elu", 1, 0, 1},
    };
    static const char *const usual[][3] = {{"Tanh"}, {"Sigmoid", "Tanh"}, {"Sigmoid", "Tanh", "Tanh"}};
    uint32_t per = (uint32_t)cell + 1, n_alpha, n_beta, at_alpha = 0, at_beta = 0;
    const struct attr *names = node_attr(r->node, "activations");
    const double *alpha = rule_floats(r, "activation_alpha", &n_alpha),
                 *beta = rule_floats(r, "activation_beta", &n_beta);
    if (names && (names->kind != ATTR_STRS || names->n < per * dirs))
        return rule_bad(r, "too few activations");
    for (uint32_t i = 0; i < per * dirs; i++) {
        out[i] = (struct activation){.name = names ? names->u.strs[i] : usual[cell][i % per]};
        for (size_t k = 0; k < COUNT_OF(known); k++) {
            if (strcasecmp(known[k].name, out[i].name) != 0)
                continue;
            out[i].alpha = at_alpha < n_alpha ? alpha[at_alpha++] : known[k].alpha;
            out[i].beta = !(known[k].has & 2) ? 0 : at_beta < n_beta ? beta[at_beta++] : known[k].beta;
        }
    }
    return true;
}

/* ---- one direction ----------------------------------------------------------------------------------------------- */

struct direction {
    enum cell cell;
    const struct activation *act;
    expr_id hidden;
    value_id projected; /* [steps, batch, gates * hidden], biases added where that is right */
    value_id recurrent; /* [hidden, gates * hidden] */
    value_id reset_bias; /* GRU with linear_before_reset: [hidden], else {0} */
    value_id peephole; /* LSTM: [3 * hidden], else {0} */
    value_id projection; /* LSTM: [hidden, outputs], else {0} */
    value_id lens; /* i64 [batch, 1], else {0} */
    double clip; /* 0: none */
    bool linear_before_reset, input_forget;
    bool bytes; /* recurrent is of bytes, with these: */
    value_id scale, zero;
};

/* Rows of x by quantized weights of one scale and zero point or one for each column, in f32. */
static value_id dynamic_product(struct rule *r, value_id x, value_id w, value_id scale, value_id zero)
{
    value_id q[3];
    if (!x.i || !w.i || !scale.i || !zero.i)
        return (value_id){0};
    v_quantize_dynamic(r->b, x, q);
    return v_product_scaled(r->b, rule_integer_matmul(r, q[0], q[2], w, zero), q[1], scale, (value_id){0});
}

static value_id gate(struct builder *b, value_id x, const struct direction *d, int k, int n)
{
    return x.i ? b_slice_axis(b, x, v_rank(b, x) - 1, ex_mulc(b->x, d->hidden, k), ex_mulc(b->x, d->hidden, n)) : x;
}

static value_id activated(struct rule *r, const struct direction *d, int f, value_id x)
{
    return apply(r, &d->act[f], d->clip > 0 ? b_clamp(r->b, x, -d->clip, d->clip) : x);
}

static value_id step_gru(struct rule *r, const struct direction *d, value_id x, value_id h)
{
    struct builder *b = r->b;
    value_id zr = b_binary(b, OP_ADD, gate(b, x, d, 0, 2), b_matmul(b, h, gate(b, d->recurrent, d, 0, 2)));
    zr = activated(r, d, 0, zr);
    value_id z = gate(b, zr, d, 0, 1), reset = gate(b, zr, d, 1, 1), inner, rh = gate(b, d->recurrent, d, 2, 1);
    if (d->linear_before_reset) {
        inner = b_matmul(b, h, rh);
        if (d->reset_bias.i)
            inner = b_binary(b, OP_ADD, inner, d->reset_bias);
        inner = b_binary(b, OP_MUL, reset, inner);
    } else {
        inner = b_matmul(b, b_binary(b, OP_MUL, reset, h), rh);
    }
    value_id candidate = activated(r, d, 1, b_binary(b, OP_ADD, gate(b, x, d, 2, 1), inner));
    value_id keep = b_binary(b, OP_MUL, z, h);
    value_id rest = b_binary(b, OP_SUB, b_splat_like(b, z, 1), z);
    return b_binary(b, OP_ADD, b_binary(b, OP_MUL, rest, candidate), keep);
}

static value_id peep(struct builder *b, const struct direction *d, value_id x, int k, value_id c)
{
    return d->peephole.i ? b_binary(b, OP_ADD, x, b_binary(b, OP_MUL, gate(b, d->peephole, d, k, 1), c)) : x;
}

static value_id step_lstm(struct rule *r, const struct direction *d, value_id x, value_id h, value_id *c)
{
    struct builder *b = r->b;
    value_id turned = d->bytes ? dynamic_product(r, h, d->recurrent, d->scale, d->zero) : b_matmul(b, h, d->recurrent);
    value_id all = b_binary(b, OP_ADD, x, turned);
    value_id in = activated(r, d, 0, peep(b, d, gate(b, all, d, 0, 1), 0, *c));
    value_id forget = d->input_forget ? b_binary(b, OP_SUB, b_splat_like(b, in, 1), in)
                                      : activated(r, d, 0, peep(b, d, gate(b, all, d, 2, 1), 2, *c));
    value_id candidate = activated(r, d, 1, gate(b, all, d, 3, 1));
    *c = b_binary(b, OP_ADD, b_binary(b, OP_MUL, forget, *c), b_binary(b, OP_MUL, in, candidate));
    value_id out = activated(r, d, 0, peep(b, d, gate(b, all, d, 1, 1), 1, *c));
    value_id h_next = b_binary(b, OP_MUL, out, apply(r, &d->act[2], *c));
    return d->projection.i ? b_matmul(b, h_next, d->projection) : h_next;
}

static bool step(struct rule *r, void *data, value_id iter, const value_id *carried, value_id *next, value_id *scan)
{
    const struct direction *d = data;
    struct builder *b = r->b;
    value_id x = b_gather(b, d->projected, iter, 0), h = carried[0], c = carried[1 * (d->cell == CELL_LSTM)];
    switch (d->cell) {
    case CELL_RNN: h = activated(r, d, 0, b_binary(b, OP_ADD, x, b_matmul(b, h, d->recurrent))); break;
    case CELL_GRU: h = step_gru(r, d, x, h); break;
    case CELL_LSTM: h = step_lstm(r, d, x, h, &c); break;
    }
    scan[0] = h;
    if (d->lens.i && h.i) {
        value_id active = b_binary(b, OP_LT, iter, d->lens);
        scan[0] = b_select(b, active, h, b_splat_like(b, h, 0));
        h = b_select(b, active, h, carried[0]);
        if (d->cell == CELL_LSTM)
            c = b_select(b, active, c, carried[1]);
    }
    next[0] = h;
    if (d->cell == CELL_LSTM)
        next[1] = c;
    return h.i && scan[0].i;
}

/* ---- the layer --------------------------------------------------------------------------------------------------- */

struct layer {
    enum cell cell;
    uint32_t dirs, gates;
    bool reverse, batch_first, bytes, projected;
    value_id x, lens; /* x: [steps, batch, input] */
    enum elem narrow;
    expr_id steps, batch, hidden;
    struct activation act[MAX_ACTIVATIONS];
};

/* Operand i for direction k: its first dim (of a state in batch-first layout: its second) is the direction. */
static value_id of_direction(struct rule *r, const struct layer *l, uint32_t i, uint32_t k, bool state)
{
    struct builder *b = r->b;
    int32_t axis = state && l->batch_first ? 1 : 0;
    value_id v = rule_in(r, i);
    if (!v.i)
        return v;
    v = b_slice_axis(b, v, axis, ex_const(b->x, k), ex_const(b->x, 1));
    return v_widen(b, b_squeeze(b, v, axis));
}

static value_id state_of(struct rule *r, const struct layer *l, uint32_t i, uint32_t k)
{
    expr_id dims[2] = {l->batch, l->hidden};
    return rule_has(r, i) ? of_direction(r, l, i, k, true) : b_splat_f64(r->b, v_elem(r->b, l->x), 0, dims, 2);
}

/* Time backwards along axis 0: within each sequence's length when lengths are given. */
static value_id time_flip(struct builder *b, value_id x, const struct layer *l)
{
    if (!l->lens.i)
        return v_flip(b, x, 0);
    const struct dims dims = b_dims(b, x);
    if (!dims.d)
        return (value_id){0};
    value_id t = v_iota(b, ELEM_I64, dims.d, dims.rank, 0),
             len = b_broadcast(b, v_along(b, l->lens, 1, dims.rank), dims.d, dims.rank);
    value_id back = b_binary(b, OP_SUB, b_binary_f64(b, OP_SUB, len, 1), t);
    return b_gather_elements(b, x, b_select(b, b_binary(b, OP_LT, t, len), back, t), 0);
}

/* Biases: W's and R's halves add up, except the reset gate's R half, which is inside the product. */
static value_id bias_of(struct rule *r, const struct layer *l, struct direction *d, uint32_t k)
{
    struct builder *b = r->b;
    value_id all = of_direction(r, l, 3, k, false), w = gate(b, all, d, 0, (int)l->gates);
    value_id rec = gate(b, all, d, (int)l->gates, (int)l->gates);
    if (!all.i || !d->linear_before_reset)
        return all.i ? b_binary(b, OP_ADD, w, rec) : all;
    d->reset_bias = gate(b, rec, d, 2, 1);
    value_id parts[2] = {b_binary(b, OP_ADD, gate(b, w, d, 0, 2), gate(b, rec, d, 0, 2)), gate(b, w, d, 2, 1)};
    return b_concat(b, parts, 2, 0);
}

/* x w for all steps and sequences at once: as rows of one matrix, so that register tiles hold several steps where the
 * batch is small or open. */
static value_id project(struct rule *r, const struct layer *l, value_id w, uint32_t k)
{
    struct builder *b = r->b;
    expr_id rows[2] = {ex_mul(b->x, l->steps, l->batch), b_dim(b, l->x, 2)},
            all[3] = {l->steps, l->batch, b_dim(b, w, 1)};
    value_id x = b_reshape(b, l->x, rows, 2);
    value_id y = l->bytes ? dynamic_product(r, x, w, of_direction(r, l, 8, k, false), of_direction(r, l, 9, k, false))
                          : b_matmul(b, x, w);
    return b_reshape(b, y, all, 3);
}

static bool direction_run(struct rule *r, const struct layer *l, uint32_t k, value_id state[2], value_id *y)
{
    struct builder *b = r->b;
    static const int64_t turn[] = {1, 0};
    struct direction d = {.cell = l->cell, .act = l->act + k * ((uint32_t)l->cell + 1), .hidden = l->hidden};
    bool backwards = l->reverse || k == 1;
    d.clip = rule_float(r, "clip", 0);
    d.linear_before_reset = l->cell == CELL_GRU && rule_int(r, "linear_before_reset", 0) != 0;
    d.input_forget = l->cell == CELL_LSTM && rule_int(r, "input_forget", 0) != 0;
    value_id w = of_direction(r, l, 1, k, false), rec = of_direction(r, l, 2, k, false);
    if (!w.i || !rec.i)
        return false;
    d.recurrent = l->bytes ? rec : b_transpose(b, rec, turn);
    d.projected = project(r, l, l->bytes ? w : b_transpose(b, w, turn), k);
    d.bytes = l->bytes;
    if (l->bytes) {
        d.scale = of_direction(r, l, 10, k, false);
        d.zero = of_direction(r, l, 11, k, false);
    }
    if (rule_has(r, 3))
        d.projected = b_binary(b, OP_ADD, d.projected, bias_of(r, l, &d, k));
    if (backwards)
        d.projected = time_flip(b, d.projected, l);
    if (l->cell == CELL_LSTM && rule_has(r, 7))
        d.peephole = of_direction(r, l, 7, k, false);
    if (l->projected && !(d.projection = b_transpose(b, of_direction(r, l, 8, k, false), turn)).i)
        return false;
    if (l->lens.i)
        d.lens = b_unsqueeze(b, l->lens, 1);
    state[0] = state_of(r, l, 5, k);
    if (l->cell == CELL_LSTM)
        state[1] = state_of(r, l, 6, k);
    struct counted_loop loop = {
        .trips = l->steps, .body = step, .data = &d, .n_carried = l->cell == CELL_LSTM ? 2 : 1, .n_scan = 1};
    if (!d.projected.i || !rule_counted_loop(r, &loop, state, y))
        return false;
    if (backwards)
        *y = time_flip(b, *y, l);
    return true;
}

/* The weights, biases and states have the dims that the number of directions, the batch and the sizes give. */
static bool layer_shaped(struct rule *r, const struct layer *l)
{
    struct exprs *ex = r->b->x;
    expr_id dirs = ex_const(ex, l->dirs), input = b_dim(r->b, l->x, 2), gates = ex_mulc(ex, l->hidden, l->gates),
            size = b_dim(r->b, rule_in(r, 2), l->bytes ? 1 : 2), first = l->batch_first ? l->batch : dirs,
            second = l->batch_first ? dirs : l->batch;
    const struct {
        const char *what;
        int32_t rank;
        expr_id dims[3];
    } want[] = {
        [1] = {"W", 3, {dirs, l->bytes ? input : gates, l->bytes ? gates : input}},
        [2] = {"R", 3, {dirs, l->bytes ? size : gates, l->bytes ? gates : size}},
        [3] = {"B", 2, {dirs, ex_mulc(ex, gates, 2)}},
        [4] = {"sequence_lens", 1, {l->batch}},
        [5] = {"initial_h", 3, {first, second, size}},
        [6] = {"initial_c", 3, {first, second, l->hidden}},
        [7] = {"P", 2, {dirs, ex_mulc(ex, l->hidden, 3)}},
        [8] = {"the projection", 3, {dirs, size, l->hidden}},
    };
    for (uint32_t i = 1; i < (l->projected ? 9 : 8); i++)
        if (rule_has(r, i) && !rule_shaped(r, rule_in(r, i), want[i].what, want[i].dims, want[i].rank))
            return false;
    return true;
}

static bool layer_read(struct rule *r, struct layer *l)
{
    struct builder *b = r->b;
    static const int64_t swap[] = {1, 0, 2};
    l->bytes = r->param > CELL_LSTM;
    l->cell = l->bytes ? CELL_LSTM : (enum cell)r->param;
    l->gates = l->cell == CELL_RNN ? 1 : l->cell == CELL_GRU ? 3 : 4;
    l->batch_first = rule_int(r, "layout", 0) != 0;
    l->reverse = rule_str_is(r, "direction", "forward", "reverse");
    l->dirs = rule_str_is(r, "direction", "forward", "bidirectional") ? 2 : 1;
    value_id in = rule_in(r, 0);
    if (!in.i || !rule_in(r, 2).i)
        return false;
    if (v_rank(b, in) != 3 || v_rank(b, rule_in(r, 2)) != 3)
        return rule_bad(r, "operands X, R must have rank 3");
    l->narrow = v_elem(b, in);
    l->x = v_widen(b, l->batch_first ? b_transpose(b, in, swap) : in);
    l->steps = b_dim(b, l->x, 0);
    l->batch = b_dim(b, l->x, 1);
    l->projected = r->param == CELL_LSTM && rule_has(r, 8);
    l->hidden = l->projected ? b_dim(b, rule_in(r, 8), 2) : b_dim(b, rule_in(r, 2), l->bytes ? 1 : 2);
    if (rule_has(r, 4))
        l->lens = b_convert(b, rule_in(r, 4), ELEM_I64);
    return layer_shaped(r, l) && activations_read(r, l->cell, l->dirs, l->act);
}

/* Stacks the directions on a new axis and brings the result into the layer's layout. */
static value_id join(struct builder *b, const struct layer *l, const value_id *of_dir, bool sequence)
{
    static const int64_t seq_perm[] = {2, 0, 1, 3}, state_perm[] = {1, 0, 2};
    value_id parts[2];
    for (uint32_t k = 0; k < l->dirs; k++)
        parts[k] = b_unsqueeze(b, of_dir[k], sequence ? 1 : 0);
    value_id v = l->dirs == 1 ? parts[0] : b_concat(b, parts, l->dirs, sequence ? 1 : 0);
    v = b_convert(b, v, l->narrow);
    return l->batch_first && v.i ? b_transpose(b, v, sequence ? seq_perm : state_perm) : v;
}

/* The row's parameter is the cell: 0 RNN, 1 GRU, 2 LSTM, 3 LSTM of quantized weights. */
bool rule_recurrent(struct rule *r)
{
    struct layer l = {.lens = {0}};
    value_id y[2], h[2], c[2];
    if (!layer_read(r, &l))
        return false;
    for (uint32_t k = 0; k < l.dirs; k++) {
        value_id state[2] = {{0}};
        if (!direction_run(r, &l, k, state, &y[k]))
            return false;
        h[k] = state[0];
        c[k] = state[1];
    }
    if (rule_wants(r, 0))
        rule_out(r, 0, join(r->b, &l, y, true));
    if (rule_wants(r, 1))
        rule_out(r, 1, join(r->b, &l, h, false));
    if (rule_wants(r, 2))
        rule_out(r, 2, join(r->b, &l, c, false));
    return true;
}

/* ---- LinearAttention --------------------------------------------------------------------------------------------- */

struct linear_attention {
    value_id q, k, v, decay, beta; /* [steps, B, H, d] in f32; decay and beta {0} when the rule has none */
    value_id scale; /* rank 0 */
    int64_t group; /* query heads per key head, 1 where keys are more */
    expr_id first; /* step that a loop begins with */
    bool keeps; /* its states, each before the step */
};

/* (B, T, H * d) -> [T, B, H, d]. */
static value_id by_step(struct rule *r, value_id x, int64_t heads)
{
    struct builder *b = r->b;
    static const int64_t perm[] = {1, 0, 2, 3};
    const struct dims d = b_dims(b, x);
    if (!d.d || d.rank != 3)
        return d.d ? rule_bad(r, "operand of rank %d", (int)d.rank), (value_id){0} : (value_id){0};
    expr_id h = ex_const(b->x, heads), out[4] = {d.d[0], d.d[1], h, ex_div(b->x, d.d[2], h)};
    return b_transpose(b, b_reshape(b, b_convert(b, x, ELEM_F32), out, 4), perm);
}

/* State [B, H, dk, dv]: decays, takes in the step's key and value, is read by the queries. */
static bool linear_step(struct rule *r, void *data, value_id iter, const value_id *carried, value_id *next,
                        value_id *scan)
{
    const struct linear_attention *a = data;
    struct builder *b = r->b;
    iter = ex_is(b->x, a->first, 0) ? iter : b_binary(b, OP_ADD, iter, v_expr(b, ELEM_I64, a->first));
    value_id s = carried[0], q = b_gather(b, a->q, iter, 0), k = b_gather(b, a->k, iter, 0),
             v = b_gather(b, a->v, iter, 0);
    if (a->decay.i)
        s = b_binary(b, OP_MUL, s, b_unsqueeze(b, b_unary(b, OP_EXP, b_gather(b, a->decay, iter, 0)), 3));
    if (a->beta.i) {
        value_id seen = b_squeeze(b, b_matmul(b, b_unsqueeze(b, k, 2), s), 2);
        v = b_binary(b, OP_MUL, b_gather(b, a->beta, iter, 0), b_binary(b, OP_SUB, v, seen));
    }
    s = b_binary(b, OP_ADD, s, b_binary(b, OP_MUL, b_unsqueeze(b, k, 3), b_unsqueeze(b, v, 2)));
    const struct dims dq = b_dims(b, q); /* [B, Hq, dk] -> [B, Hkv, group, dk] */
    if (!dq.d || !s.i)
        return false;
    expr_id folded[4] = {dq.d[0], b_dim(b, s, 1), ex_const(b->x, a->group), dq.d[2]};
    expr_id out[3] = {dq.d[0], dq.d[1], b_dim(b, s, 3)};
    value_id y = b_reshape(b, b_matmul(b, b_reshape(b, q, folded, 4), s), out, 3);
    scan[0] = b_binary(b, OP_MUL, y, a->scale);
    if (a->keeps)
        scan[1] = carried[0];
    next[0] = s;
    return scan[0].i != 0;
}

/* The steps of the sequence, in one loop, or with a window of states in two, where those before the last steps are
 * kept. *y: what comes of all steps, [T, B, H, dv]; *state: after the last one, or [window, B, Hkv, dk, dv] with zeros
 * for steps that are not of this run. Without steps the last state is the one before. */
static bool linear_steps(struct rule *r, struct linear_attention *a, int64_t window, value_id *state, value_id *y)
{
    struct builder *b = r->b;
    struct exprs *x = b->x;
    expr_id steps = b_dim(b, a->q, 0), none = ex_const(x, 0), before = ex_const(x, window - 1),
            kept = window ? ex_max(x, ex_min(x, ex_addc(x, steps, -1), before), none) : none,
            rest = ex_sub(x, steps, kept);
    struct counted_loop loop = {.trips = rest, .body = linear_step, .data = a, .n_carried = 1, .n_scan = 1};
    value_id part[2], last[2];
    a->first = none;
    if (!state->i || !rule_counted_loop(r, &loop, state, &part[0]))
        return false;
    *y = part[0];
    if (!window)
        return true;
    if (window > 1) {
        a->first = rest;
        a->keeps = true;
        loop.trips = kept;
        loop.n_scan = 2;
        if (!rule_counted_loop(r, &loop, state, last))
            return false;
        part[1] = last[0];
        *y = b_concat(b, part, 2, 0);
    }
    *state = b_unsqueeze(b, *state, 0);
    if (window == 1)
        return state->i != 0;
    expr_id lo[5] = {ex_sub(x, before, kept), none, none, none, none}, hi[5] = {none, none, none, none, none};
    value_id all[2] = {b_pad(b, last[1], (value_id){0}, lo, hi, "constant"), *state};
    *state = b_concat(b, all, 2, 0);
    return state->i != 0;
}

/* Repeats each of the heads of x [T, B, H, d], so that there are that many. */
static value_id heads_repeated(struct builder *b, value_id x, int64_t heads)
{
    const struct dims d = b_dims(b, x);
    if (!d.d)
        return (value_id){0};
    expr_id all = ex_const(b->x, heads), wide[5] = {d.d[0], d.d[1], d.d[2], ex_div(b->x, all, d.d[2]), d.d[3]},
            out[4] = {d.d[0], d.d[1], all, d.d[3]};
    return b_reshape(b, b_broadcast(b, b_unsqueeze(b, x, 3), wide, 5), out, 4);
}

/* Queries of fewer heads than states, and such keys, are those of several states. All heads have the same width. */
static bool heads_read(struct rule *r, struct linear_attention *a, int64_t hq, int64_t hk)
{
    struct builder *b = r->b;
    value_id q = rule_in(r, 0), k = rule_in(r, 1);
    int64_t queries, keys, heads = hk;
    if (!q.i || !k.i)
        return false;
    if (ex_is_const(b->x, b_dim(b, q, -1), &queries) && ex_is_const(b->x, b_dim(b, k, -1), &keys)) {
        heads = queries / hq ? keys / (queries / hq) : hk;
        if (heads < 1 || keys != queries / hq * heads || hk % heads)
            return rule_bad(r, "keys of width %lld for queries of %lld in %lld heads", (long long)keys,
                            (long long)queries, (long long)hq);
    } else if (hq < hk) {
        return rule_refuse(r, "fewer query heads than key heads, of dynamic width");
    }
    a->group = hq < hk ? 1 : hq / hk;
    a->q = hq < hk ? heads_repeated(b, by_step(r, q, hq), hk) : by_step(r, q, hq);
    a->k = heads < hk ? heads_repeated(b, by_step(r, k, heads), hk) : by_step(r, k, hk);
    return a->q.i && a->k.i;
}

static bool linear_read(struct rule *r, struct linear_attention *a, int64_t hq, int64_t hk)
{
    static const char *const names[] = {[1] = "key", "value", NULL, "decay", "beta"};
    struct builder *b = r->b;
    *a = (struct linear_attention){.v = by_step(r, rule_in(r, 2), hk)};
    if (!a->v.i || !heads_read(r, a, hq, hk))
        return false;
    for (uint32_t i = 1; i < COUNT_OF(names); i++) {
        value_id v = rule_in(r, i);
        if (names[i] && v.i &&
            !rule_shaped(r, v, names[i], (expr_id[]){b_dim(b, a->q, 1), b_dim(b, a->q, 0), b_dim(b, v, -1)}, 3))
            return false;
    }
    double given = rule_float(r, "scale", 0);
    value_id root = b_unary(b, OP_SQRT, v_expr(b, ELEM_F32, b_dim(b, a->k, 3)));
    a->scale = given != 0 ? b_scalar_f64(b, ELEM_F32, given) : b_binary(b, OP_DIV, b_scalar_f64(b, ELEM_F32, 1), root);
    const char *update = rule_str(r, "update_rule", "gated_delta");
    bool gating = strncmp(update, "gated", 5) == 0, delta = strstr(update, "delta") != NULL;
    if (gating != rule_has(r, 4) || delta != rule_has(r, 5))
        return rule_bad(r, "update_rule \"%.20s\" and the operands decay and beta do not go together", update);
    if (gating)
        a->decay = by_step(r, rule_in(r, 4), hk);
    if (delta) {
        static const int64_t perm[] = {1, 0, 2}; /* (B, T, Hkv or 1) -> [T, B, .., 1] */
        a->beta = b_unsqueeze(b, b_transpose(b, b_convert(b, rule_in(r, 5), ELEM_F32), perm), 3);
    }
    return true;
}

bool rule_linear_attention(struct rule *r)
{
    struct builder *b = r->b;
    struct linear_attention a;
    int64_t hq = rule_int(r, "q_num_heads", 0), hk = rule_int(r, "kv_num_heads", 0);
    if (hq < 1 || hk < 1 || hq > INT32_MAX || hk > INT32_MAX || (hq % hk && hk % hq))
        return rule_bad(r, "%lld query heads, %lld key heads", (long long)hq, (long long)hk);
    int64_t window = rule_int(r, "state_window", 0);
    if (window < 0 || window > STATES_MOST)
        return rule_bad(r, "state_window %lld", (long long)window);
    if (!linear_read(r, &a, hq, hk))
        return false;
    value_id state, y;
    expr_id dims[4] = {b_dim(b, a.q, 1), ex_const(b->x, hk), b_dim(b, a.k, 3), b_dim(b, a.v, 3)};
    if (rule_has(r, 3)) {
        state = b_convert(b, window ? v_state_last(r, window) : rule_in(r, 3), ELEM_F32);
        if (!rule_shaped(r, state, "past_state", dims, 4))
            return false;
    } else {
        state = b_splat_f64(b, ELEM_F32, 0, dims, 4);
    }
    if (!linear_steps(r, &a, window, &state, &y))
        return false;
    static const int64_t perm[] = {1, 0, 2, 3}; /* [T, B, Hq, dv] -> (B, T, Hq * dv) */
    const struct dims d = b_dims(b, y);
    if (!d.d)
        return false;
    expr_id out[3] = {d.d[1], d.d[0], ex_mul(b->x, d.d[2], d.d[3])};
    enum elem narrow = v_elem(b, rule_in(r, 0));
    rule_out(r, 0, b_convert(b, b_reshape(b, b_transpose(b, y, perm), out, 3), narrow));
    rule_out(r, 1, b_convert(b, state, rule_has(r, 3) ? v_elem(b, rule_in(r, 3)) : narrow));
    return true;
}

/* com.microsoft: decay_scale * softplus(a + dt_bias), and sigmoid(b). */
bool rule_linear_attention_gate(struct rule *r)
{
    struct builder *b = r->b;
    value_id in = rule_in(r, 0), x = b_binary(b, OP_ADD, b_convert(b, in, ELEM_F32), rule_in(r, 1));
    if (rule_wants(r, 1) && !rule_has(r, 3))
        return rule_bad(r, "beta without its operand b");
    if (rule_has(r, 3))
        rule_out(r, 1, b_convert(b, b_unary(b, OP_SIGMOID, v_widen(b, rule_in(r, 3))), v_elem(b, in)));
    return rule_result(r, b_convert(b, b_binary(b, OP_MUL, v_softplus(b, x), rule_in(r, 2)), v_elem(b, in)));
}

/* LSTM, GRU and RNN of several layers, and their cells: each layer is ONNX's operator (nn/recurrent.c), whose gates
 * stand in another order.
 */
#include "passes/legalize/aten.h"

enum { CELL_RNN, CELL_GRU, CELL_LSTM, CELL_RELU };

struct stack {
    int cell;
    bool biases, projected;
    uint32_t dirs, first, per; /* the first weight, and how many there are for each layer and direction */
};

/* Rows of the gates: of r, z, n those of z, r, n; of i, f, g, o those of i, o, f, g. */
static value_id gates_ordered(struct builder *b, value_id w, int cell)
{
    static const int64_t orders[][4] = {{0}, {1, 0, 2}, {0, 3, 1, 2}, {0}};
    static const uint32_t counts[] = {1, 3, 4, 1};
    uint32_t n = counts[cell];
    value_id parts[4];
    if (!w.i || n == 1)
        return w;
    expr_id hidden = ex_div(b->x, b_dim(b, w, 0), ex_const(b->x, n));
    for (uint32_t k = 0; k < n; k++)
        parts[k] = b_slice_axis(b, w, 0, ex_mulc(b->x, hidden, orders[cell][k]), hidden);
    return b_concat(b, parts, n, 0);
}

enum part { OF_INPUT, OF_STATE, OF_BIASES, OF_PROJECTION };

/* Weights of the input, of the state, biases of both (one that is not there is 0), of the projection; of both
 * directions. */
static value_id of_layer(struct rule *r, const struct stack *s, uint32_t layer, enum part part)
{
    struct builder *b = r->b;
    value_id dirs[2];
    for (uint32_t k = 0; k < s->dirs; k++) {
        uint32_t first = s->first + (layer * s->dirs + k) * s->per,
                 at = first + (part == OF_PROJECTION ? s->per - 1 : (uint32_t)part);
        value_id v = {0}, biases[2];
        if (part == OF_BIASES) {
            for (uint32_t i = 0; i < 2; i++)
                biases[i] = rule_has(r, at + i) ? gates_ordered(b, rule_in(r, at + i), s->cell)
                                                : b_splat_like(b, rule_in(r, at + 1 - i), 0);
            v = b_concat(b, biases, 2, 0);
        } else {
            v = part == OF_PROJECTION ? rule_in(r, at) : gates_ordered(b, rule_in(r, at), s->cell);
        }
        dirs[k] = b_unsqueeze(b, v, 0);
    }
    return s->dirs == 1 ? dirs[0] : b_concat(r->b, dirs, 2, 0);
}

/* One layer of x [steps, batch, size] from states [dirs, batch, hidden]; out: [steps, dirs, batch, hidden], states. */
static bool layer_run(struct rule *r, const struct stack *s, uint32_t layer, value_id x, const value_id state[2],
                      value_id out[3])
{
    static const char *const relu[] = {"Relu", "Relu"};
    bool lstm = s->cell == CELL_LSTM;
    value_id all[3] = {{1}, {1}, {1}}, in[9] = {x,
                                                of_layer(r, s, layer, OF_INPUT),
                                                of_layer(r, s, layer, OF_STATE),
                                                s->biases ? of_layer(r, s, layer, OF_BIASES) : all[0],
                                                {0},
                                                state[0],
                                                lstm ? state[1] : (value_id){0}};
    struct lowered got[3] = {{0}};
    struct node node = *r->node;
    struct rule one = *r;
    for (uint32_t i = 0; i < (lstm ? 7 : 6); i++)
        if (!in[i].i && i != 4)
            return false;
    if (!s->biases)
        in[3] = (value_id){0};
    if (s->projected && !(in[8] = of_layer(r, s, layer, OF_PROJECTION)).i)
        return false;
    node.out = all; /* all three are wanted */
    node.n_out = one.n_out = 3;
    one.node = &node;
    one.out = got;
    const struct attr attrs[] = {attr_str("direction", s->dirs == 2 ? "bidirectional" : "forward"),
                                 attr_int("linear_before_reset", 1),
                                 {.name = "activations", .kind = ATTR_STRS, .n = s->dirs, .u.strs = relu}};
    if (!aten_as(&one, rule_recurrent, 22, s->cell % CELL_RELU, in, lstm ? 9 : 6, attrs, s->cell == CELL_RELU ? 3 : 2))
        return false;
    for (uint32_t i = 0; i < 3; i++)
        out[i] = got[i].v;
    return out[0].i && out[1].i;
}

/* [steps, dirs, batch, hidden] as the next layer's input. */
static value_id joined(struct builder *b, value_id y, uint32_t dirs)
{
    static const int64_t perm[] = {0, 2, 1, 3};
    const struct dims d = b_dims(b, y);
    if (!d.d)
        return (value_id){0};
    if (dirs == 1)
        return b_squeeze(b, y, 1);
    return b_reshape(b, b_transpose(b, y, perm), ARRAY(expr_id, d.d[0], d.d[2], ex_mulc(b->x, d.d[3], dirs)));
}

/* The initial states: a list of two for LSTM, one tensor for the others. */
static bool states_read(struct rule *r, int cell, value_id state[2])
{
    uint32_t n, first = aten_list(r, 1, &n);
    if (cell != CELL_LSTM)
        return (state[0] = rule_in(r, 1)).i != 0;
    if (n != 2)
        return rule_bad(r, "there are %u initial states", n);
    state[0] = rule_in(r, first);
    state[1] = rule_in(r, first + 1);
    return state[0].i && state[1].i;
}

static bool stack_read(struct rule *r, struct stack *s, uint32_t *layers)
{
    int64_t n = rule_int(r, "num_layers", 1);
    uint32_t given;
    *s = (struct stack){.cell = r->param, .biases = aten_flag(r, "has_biases")};
    s->dirs = aten_flag(r, "bidirectional") ? 2 : 1;
    s->per = s->biases ? 4 : 2;
    s->first = aten_list(r, 2, &given);
    if (n < 1 || n > given)
        return rule_bad(r, "%lld layers cannot have %u weights", (long long)n, given);
    *layers = (uint32_t)n;
    s->projected = s->cell == CELL_LSTM && given == *layers * s->dirs * (s->per + 1);
    s->per += s->projected;
    if (given != *layers * s->dirs * s->per)
        return rule_bad(r, "there are %u weights for %u layers", given, *layers);
    return !aten_flag(r, "train") || aten_float(r, "dropout", 0) == 0 ||
           rule_refuse(r, "it drops at random: export the module in evaluation mode, module.eval()");
}

/* param: 0 rnn_tanh, 1 gru, 2 lstm, 3 rnn_relu */
bool rule_aten_recurrent(struct rule *r)
{
    static const int64_t swap[] = {1, 0, 2};
    struct builder *b = r->b;
    struct stack s;
    uint32_t layers = 0, n_states = r->param == CELL_LSTM ? 2 : 1;
    value_id x = rule_in(r, 0), state[2], *last[2], out[3], own[2];
    bool turned = aten_flag(r, "batch_first");
    if (!x.i || !stack_read(r, &s, &layers) || !states_read(r, s.cell, state))
        return false;
    if (v_rank(b, x) != 3 || v_rank(b, state[0]) != 3)
        return rule_bad(r, "the input has rank %d and the states rank %d", (int)v_rank(b, x), (int)v_rank(b, state[0]));
    for (uint32_t k = 0; k < n_states; k++)
        last[k] = NEW_ARRAY(&b->g->arena, value_id, layers);
    x = turned ? b_transpose(b, x, swap) : x;
    for (uint32_t i = 0; i < layers; i++) {
        for (uint32_t k = 0; k < n_states; k++)
            own[k] = b_slice_axis(b, state[k], 0, ex_const(b->x, (int64_t)i * s.dirs), ex_const(b->x, s.dirs));
        if (!layer_run(r, &s, i, x, own, out))
            return false;
        x = joined(b, out[0], s.dirs);
        for (uint32_t k = 0; k < n_states; k++)
            last[k][i] = out[1 + k];
    }
    for (uint32_t k = 0; k < n_states; k++)
        rule_out(r, 1 + k, layers == 1 ? last[k][0] : b_concat(b, last[k], layers, 0));
    return rule_result(r, turned ? b_transpose(b, x, swap) : x);
}

/* One step of one layer; param as above. */
bool rule_aten_cell(struct rule *r)
{
    struct builder *b = r->b;
    struct stack s = {.cell = r->param, .biases = rule_has(r, 4) || rule_has(r, 5), .dirs = 1, .first = 2, .per = 4};
    uint32_t n_states = r->param == CELL_LSTM ? 2 : 1;
    value_id x = rule_in(r, 0), state[2], out[3];
    if (!x.i || !states_read(r, s.cell, state))
        return false;
    if (v_rank(b, x) != 2 || v_rank(b, state[0]) != 2)
        return rule_refuse(r, "the input has rank %d, and 2 is supported", (int)v_rank(b, x));
    for (uint32_t k = 0; k < n_states; k++)
        state[k] = b_unsqueeze(b, state[k], 0);
    if (!layer_run(r, &s, 0, b_unsqueeze(b, x, 0), state, out))
        return false;
    for (uint32_t k = 0; k < n_states; k++)
        rule_out(r, k, b_squeeze(b, out[1 + k], 0));
    return true;
}

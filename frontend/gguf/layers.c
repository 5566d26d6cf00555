/* A decoder from the numbers of its model and the names of its tensors.
 *
 * Inputs and outputs are those of onnxruntime-genai's files: input_ids, attention_mask, past_key_values.N.key and
 * .value; logits, present.N.key and .value. So are the operators, except for products and lookups by block types.
 */
#include "frontend/gguf/gguf.h"

#include <math.h>

/* ---- rotary angles --------------------------------------------------------------------------------------------- */

/* What a position is multiplied with for each pair: base^(-2 i / n), over the factor, and over the tensor's numbers.
 * YaRN divides the slow pairs alone by the factor, those after h.ramp[1], and the ones from h.ramp[0] on in part. */
static value_id frequencies(struct gguf *p, double base, double factor, const char *tensor)
{
    int64_t n = p->h.rotated / 2;
    struct gguf_tensor *t = tensor ? gguf_tensor(p, tensor) : NULL;
    float *list = arena_alloc_array(&p->ctx->session, (size_t)n, sizeof *list);
    for (int64_t i = 0; i < n; i++) {
        double slow = ((double)i - p->h.ramp[0]) / fmax(p->h.ramp[1] - p->h.ramp[0], 1e-3);
        double part = p->h.yarn ? fmin(fmax(slow, 0), 1) : 1;
        list[i] = (float)(pow(base, -(double)i / (double)n) * (part / factor + 1 - part));
    }
    value_id v = gguf_constant(p, ELEM_F32, &n, 1, list, "rope");
    return t ? gguf_binary(p, "Div", tensor, v, gguf_vector(p, tensor, n)) : v;
}

/* Cosines and sines of all tokens of the run, a row each, and the rows' numbers. */
static void angles(struct gguf *p, bool windowed)
{
    const struct hyper *h = &p->h;
    bool local = windowed && h->arch->window_base > 0, by_length = gguf_tensor(p, "rope_factors_long.weight");
    const struct gguf_key *own = gguf_own(p, "rope.freq_base_swa");
    double base = local && own ? gguf_number(own, 0) : local ? h->arch->window_base : h->base;
    double factor = local ? 1 : h->factor;
    if (!(base >= 1 && base < 1e30)) {
        gguf_refuse(p, "key '%s' is not a number from 1 on", own->name);
        return;
    }
    const char *tensor = by_length ? "rope_factors_short.weight" : "rope_freqs.weight";
    const value_id in[4] = {p->ids, p->mask, frequencies(p, base, factor, tensor),
                            by_length ? frequencies(p, base, factor, "rope_factors_long.weight") : (value_id){0}};
    const struct attr attrs[] = {attr_float("magnitude", h->magnitude), attr_int("length", h->original_context)};
    gguf_append(p, &(struct gguf_op){"ggml", "RotaryAngles", 1, "rope", in, by_length ? 4 : 3, attrs, 2},
                p->angles[windowed], 3);
}

/* ---- layers ---------------------------------------------------------------------------------------------------- */

/* blk.N.PART, in scratch memory. */
static const char *in_layer(struct gguf *p, int64_t layer, const char *part)
{
    return arena_printf(&p->scratch, "blk.%lld.%s", (long long)layer, part);
}

static bool has(struct gguf *p, int64_t layer, const char *part)
{
    return gguf_tensor(p, in_layer(p, layer, part));
}

static value_id normed(struct gguf *p, const char *name, value_id x, int64_t length)
{
    const value_id in[2] = {x, gguf_vector(p, arena_printf(&p->scratch, "%s.weight", name), length)};
    const struct attr epsilon = attr_float("epsilon", p->h.epsilon);
    value_id y;
    gguf_append(p, &(struct gguf_op){"", "RMSNormalization", 23, name, in, 2, &epsilon, 1}, &y, 1);
    return y;
}

static bool is_windowed(const struct hyper *h, int64_t layer)
{
    int64_t every = h->window_every;
    return h->window && every && (every == 1 || layer % every < every - 1);
}

static value_id past(struct gguf *p, int64_t layer, const char *which)
{
    const struct hyper *h = &p->h;
    const expr_id dims[4] = {gguf_symbol(p, "batch_size"), ex_const(p->ctx->exprs, h->kv_heads),
                             gguf_symbol(p, "past_sequence_length"), ex_const(p->ctx->exprs, h->head)};
    const char *name = arena_printf(&p->scratch, "past_key_values.%lld.%s", (long long)layer, which);
    return gguf_input(p, name, ELEM_F32, dims, 4);
}

/* Queries, keys and values: three operands, or one for all. */
static void projections(struct gguf *p, int64_t layer, value_id x, value_id out[3])
{
    const struct hyper *h = &p->h;
    int64_t q = h->heads * h->head, k = h->kv_heads * h->head;
    if (has(p, layer, "attn_qkv.weight")) {
        out[0] = gguf_product(p, in_layer(p, layer, "attn_qkv"), x, q + 2 * k, h->width);
        return;
    }
    out[0] = gguf_product(p, in_layer(p, layer, "attn_q"), x, q, h->width);
    out[1] = gguf_product(p, in_layer(p, layer, "attn_k"), x, k, h->width);
    out[2] = gguf_product(p, in_layer(p, layer, "attn_v"), x, k, h->width);
}

static value_id attention(struct gguf *p, int64_t layer, value_id x)
{
    enum { QUERY, PAST = 3, LENGTHS = 5, TOTAL, COSINES, PLACES = 9, SINKS = 11, HEAD_NORMS = 14, OPERANDS = 16 };
    const struct hyper *h = &p->h;
    bool windowed = is_windowed(h, layer);
    const value_id *angle = p->angles[windowed && h->arch->window_base > 0];
    value_id in[OPERANDS] = {{0}}, out[3];
    projections(p, layer, x, in + QUERY);
    in[PAST] = past(p, layer, "key");
    in[PAST + 1] = past(p, layer, "value");
    in[LENGTHS] = p->lengths;
    in[TOTAL] = p->total;
    in[COSINES] = angle[0];
    in[COSINES + 1] = angle[1];
    in[PLACES] = angle[2];
    if (h->arch->sinks)
        in[SINKS] = gguf_vector(p, in_layer(p, layer, "attn_sinks.weight"), h->heads);
    if (h->arch->head_norms) {
        in[HEAD_NORMS] = gguf_vector(p, in_layer(p, layer, "attn_q_norm.weight"), h->head);
        in[HEAD_NORMS + 1] = gguf_vector(p, in_layer(p, layer, "attn_k_norm.weight"), h->head);
    }
    const struct attr attrs[] = {
        attr_int("num_heads", h->heads),
        attr_int("kv_num_heads", h->kv_heads),
        attr_float("scale", h->scale),
        attr_int("do_rotary", 1),
        attr_int("rotary_interleaved", !h->arch->halves),
        attr_int("local_window_size", windowed ? h->window : -1),
        attr_float("softcap", h->attention_cap),
        attr_float("qk_norm_epsilon", h->epsilon),
    };
    uint32_t n_in = h->arch->head_norms ? OPERANDS : h->arch->sinks ? SINKS + 1 : PLACES + 1;
    gguf_append(p,
                &(struct gguf_op){"com.microsoft", "GroupQueryAttention", 1, in_layer(p, layer, "attention"), in, n_in,
                                  attrs, COUNT_OF(attrs)},
                out, 3);
    VEC_PUSH(&p->scratch, &p->present, out[1]);
    VEC_PUSH(&p->scratch, &p->present, out[2]);
    return gguf_product(p, in_layer(p, layer, "attn_output"), out[0], h->width, h->heads * h->head);
}

static value_id activated(struct gguf *p, const char *name, value_id x)
{
    const struct attr by_tanh = attr_str("approximate", "tanh");
    value_id y;
    if (strcmp(p->h.arch->activation, "gelu") != 0)
        return gguf_binary(p, "Mul", name, x, gguf_unary(p, "Sigmoid", name, x));
    gguf_append(p, &(struct gguf_op){"", "Gelu", 20, name, &x, 1, &by_tanh, 1}, &y, 1);
    return y;
}

/* Operands of an expert layer: the matrices of all experts, and their biases if there are some. */
static bool expert_matrix(struct gguf *p, int64_t layer, const char *which, int64_t rows, int64_t columns, value_id *in,
                          const char **type)
{
    const char *name = in_layer(p, layer, arena_printf(&p->scratch, "ffn_%s_exps.weight", which));
    const char *bias = in_layer(p, layer, arena_printf(&p->scratch, "ffn_%s_exps.bias", which));
    const int64_t dims[2] = {p->h.experts, rows};
    in[0] = gguf_weights(p, name, p->h.experts, rows, columns);
    if (gguf_tensor(p, bias))
        in[1] = gguf_floats(p, bias, dims, 2);
    *type = in[0].i ? gguf_tensor(p, name)->type->name : NULL;
    return in[0].i;
}

/* Of all experts a token goes through those that have the largest numbers of a product, weighed by their softmax. */
static value_id experts(struct gguf *p, int64_t layer, value_id x)
{
    enum { ROUTER = 1, GATE, DOWN = 4, UP = 6, OPERANDS = 8 };
    const struct hyper *h = &p->h;
    const int64_t two = 2, rows[2] = {-1, h->experts};
    const char *name = in_layer(p, layer, "ffn_gate_inp"), *type[3];
    value_id in[OPERANDS] = {x}, y = gguf_product(p, name, x, h->experts, h->width);
    in[ROUTER] = gguf_binary(p, "Reshape", name, y,
                             gguf_constant(p, ELEM_I64, &two, 1, arena_copy(&p->ctx->session, rows, sizeof rows), ""));
    if (!expert_matrix(p, layer, "gate", h->expert_forward, h->width, in + GATE, &type[0]) ||
        !expert_matrix(p, layer, "down", h->width, h->expert_forward, in + DOWN, &type[1]) ||
        !expert_matrix(p, layer, "up", h->expert_forward, h->width, in + UP, &type[2]))
        return (value_id){0};
    const struct attr attrs[] = {
        attr_int("k", h->experts_used),   attr_str("activation_type", h->arch->activation),
        attr_str("fc1_type", type[0]),    attr_str("fc2_type", type[1]),
        attr_str("fc3_type", type[2]),    attr_float("activation_alpha", 1.702), /* those of "swiglu" are gpt-oss's */
        attr_float("activation_beta", 1), attr_float("swiglu_limit", 7),
    };
    gguf_append(
        p, &(struct gguf_op){"ggml", "Experts", 1, in_layer(p, layer, "experts"), in, OPERANDS, attrs, COUNT_OF(attrs)},
        &y, 1);
    return y;
}

/* down(activation(gate x) * up x); gate and up may be one matrix, gate first. */
static value_id forward(struct gguf *p, int64_t layer, value_id x)
{
    const struct hyper *h = &p->h;
    const char *up = in_layer(p, layer, "ffn_up"), *gate = in_layer(p, layer, "ffn_gate");
    value_id half[2];
    if (h->arch->experts > 1 || (h->experts && has(p, layer, "ffn_gate_inp.weight")))
        return experts(p, layer, x);
    if (has(p, layer, "ffn_gate.weight")) {
        half[0] = gguf_product(p, gate, x, h->forward, h->width);
        half[1] = gguf_product(p, up, x, h->forward, h->width);
    } else {
        value_id both = gguf_product(p, up, x, 2 * h->forward, h->width);
        const struct attr attrs[] = {attr_int("axis", -1), attr_int("num_outputs", 2)};
        gguf_append(p, &(struct gguf_op){"", "Split", 18, up, &both, 1, attrs, 2}, half, 2);
    }
    value_id y = gguf_binary(p, "Mul", up, activated(p, gate, half[0]), half[1]);
    return gguf_product(p, in_layer(p, layer, "ffn_down"), y, h->width, h->forward);
}

static value_id layer_of(struct gguf *p, int64_t layer, value_id x)
{
    int64_t width = p->h.width;
    bool post = p->h.arch->post_norms;
    value_id y = attention(p, layer, normed(p, in_layer(p, layer, "attn_norm"), x, width));
    if (post)
        y = normed(p, in_layer(p, layer, "post_attention_norm"), y, width);
    x = gguf_binary(p, "Add", in_layer(p, layer, "attention.sum"), x, y);
    const char *norm = p->h.arch->sinks ? "post_attention_norm" : "ffn_norm";
    y = forward(p, layer, normed(p, in_layer(p, layer, norm), x, width));
    if (post)
        y = normed(p, in_layer(p, layer, "post_ffw_norm"), y, width);
    return gguf_binary(p, "Add", in_layer(p, layer, "ffn.sum"), x, y);
}

/* ---- the whole ------------------------------------------------------------------------------------------------- */

static value_id cast_i32(struct gguf *p, value_id x)
{
    const struct attr to = attr_int("to", 6); /* INT32 of TensorProto.DataType */
    value_id y;
    gguf_append(p, &(struct gguf_op){"", "Cast", 23, "attention_mask", &x, 1, &to, 1}, &y, 1);
    return y;
}

/* Tokens, and of the mask: how many tokens each sequence has, less one, and how long it is. */
static void inputs(struct gguf *p)
{
    const expr_id batch = gguf_symbol(p, "batch_size");
    const expr_id ids[2] = {batch, gguf_symbol(p, "sequence_length")};
    const expr_id mask[2] = {batch, gguf_symbol(p, "total_sequence_length")};
    p->ids = gguf_input(p, "input_ids", ELEM_I64, ids, 2);
    p->mask = gguf_input(p, "attention_mask", ELEM_I64, mask, 2);
    value_id one = gguf_int(p, 1);
    value_id sums = gguf_binary(p, "ReduceSum", "attention_mask", p->mask, one);
    p->lengths = cast_i32(p, gguf_binary(p, "Sub", "attention_mask", sums, one));
    value_id dims = gguf_unary(p, "Shape", "attention_mask", p->mask);
    p->total = cast_i32(p, gguf_binary(p, "Gather", "attention_mask", dims, one));
}

static value_id embedded(struct gguf *p)
{
    static const char name[] = "token_embd.weight";
    const value_id in[2] = {gguf_weights(p, name, 0, p->h.vocabulary, p->h.width), p->ids};
    const struct attr type = attr_str("type", gguf_tensor(p, name)->type->name);
    value_id x;
    gguf_append(p, &(struct gguf_op){"ggml", "GetRows", 1, "token_embd", in, 2, &type, 1}, &x, 1);
    return gguf_scaled(p, "token_embd", x, p->h.arch->scaled_embedding ? sqrt((double)p->h.width) : 1);
}

static value_id logits(struct gguf *p, value_id x)
{
    const struct hyper *h = &p->h;
    const char *name = gguf_tensor(p, "output.weight") ? "output" : "token_embd";
    value_id y = gguf_product(p, name, normed(p, "output_norm", x, h->width), h->vocabulary, h->width);
    if (h->logits_cap == 0)
        return y;
    y = gguf_unary(p, "Tanh", "logits", gguf_scaled(p, "logits", y, 1 / h->logits_cap));
    return gguf_scaled(p, "logits", y, h->logits_cap);
}

/* A tensor that nothing reads belongs to something that this reader does not know. */
static bool all_used(struct gguf *p)
{
    for (uint32_t i = 0; i < p->tensors.n && !p->ctx->n_errors; i++)
        if (!p->tensors.data[i].used)
            error_at(p->ctx, FAIL_MODEL, (src_id){0}, p->tensors.data[i].name,
                     "no layer of architecture '%s' reads this tensor: the model is of a form that is not supported",
                     p->h.arch->name);
    return !p->ctx->n_errors;
}

bool gguf_decoder(struct gguf *p)
{
    inputs(p);
    angles(p, false);
    if (p->h.arch->window_base > 0 && p->h.window)
        angles(p, true);
    value_id x = embedded(p);
    for (int64_t i = 0; i < p->h.layers && !p->ctx->n_errors; i++)
        x = layer_of(p, i, x);
    value_id y = logits(p, x);
    if (!y.i || !all_used(p))
        return false;
    gguf_output(p, "logits", y);
    for (uint32_t i = 0; i < p->present.n; i++)
        gguf_output(p, arena_printf(&p->scratch, "present.%u.%s", i / 2, i % 2 ? "value" : "key"), p->present.data[i]);
    return true;
}

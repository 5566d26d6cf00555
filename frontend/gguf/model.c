/* The numbers of a language model, from the keys of its file. */
#include "frontend/gguf/gguf.h"

#include <math.h>

enum { SIZE_MOST = 1 << 24, HEAD_MOST = 1 << 16, LAYERS_MOST = 4096 };

static const struct architecture architectures[] = {
#define ARCH(...) {__VA_ARGS__},
#include "frontend/gguf/architectures.def"
};

static bool text_is(const struct gguf_key *k, const char *text)
{
    struct span s = k && k->kind == GGUF_STRING ? gguf_string(k) : (struct span){"", 0};
    return s.size == strlen(text) && memcmp(s.data, text, s.size) == 0;
}

static bool architecture_find(struct gguf *p)
{
    const struct gguf_key *k = gguf_find(p, "general.architecture");
    if (!k || k->kind != GGUF_STRING)
        return gguf_refuse(p, "the file has no key 'general.architecture'");
    struct strbuf known = strbuf_of(&p->scratch);
    for (uint32_t i = 0; i < COUNT_OF(architectures); i++) {
        if (text_is(k, architectures[i].name))
            p->h.arch = &architectures[i];
        strbuf_printf(&known, i ? ", %s" : "%s", architectures[i].name);
    }
    struct span s = gguf_string(k);
    return p->h.arch || gguf_refuse(p, "architecture '%.*s' is not supported; these are: %s",
                                    (int)(s.size < 40 ? s.size : 40), (const char *)s.data, known.data);
}

const struct gguf_key *gguf_own(struct gguf *p, const char *name)
{
    return gguf_find(p, arena_printf(&p->scratch, "%s.%s", p->h.arch->name, name));
}

/* A number from lo to hi, or as many equal ones as an array has. absent < 0: it has to be there. */
static bool size_of(struct gguf *p, const char *name, int64_t absent, int64_t lo, int64_t hi, int64_t *out)
{
    const struct gguf_key *k = gguf_own(p, name);
    int64_t other;
    *out = absent;
    if (!k)
        return absent >= 0 || gguf_refuse(p, "the file has no key '%s.%s'", p->h.arch->name, name);
    if (!gguf_whole(k, 0, out) || *out < lo || *out > hi)
        return gguf_refuse(p, "key '%s' at byte %llu is not an integer from %lld to %lld", k->name,
                           (unsigned long long)k->at, (long long)lo, (long long)hi);
    for (uint64_t i = 1; i < k->n; i++)
        if (!gguf_whole(k, i, &other) || other != *out)
            return gguf_refuse(p, "key '%s' at byte %llu: layers that differ are not supported", k->name,
                               (unsigned long long)k->at);
    return true;
}

static bool real_of(struct gguf *p, const char *name, double absent, double *out)
{
    const struct gguf_key *k = gguf_own(p, name);
    *out = k ? gguf_number(k, 0) : absent;
    return (isfinite(*out) && *out >= 0 && *out < 1e30) ||
           gguf_refuse(p, "key '%s.%s' is not a number from 0 on", p->h.arch->name, name);
}

/* The pairs that turn `fast` and `slow` times within the original context, and how YaRN scales cosines and sines. */
static bool yarn_read(struct gguf *p)
{
    struct hyper *h = &p->h;
    const double n = (double)h->rotated;
    double turns[2];
    if (!real_of(p, "rope.scaling.yarn_beta_fast", 32, &turns[0]) ||
        !real_of(p, "rope.scaling.yarn_beta_slow", 1, &turns[1]))
        return false;
    if (!(h->factor >= 1) || !(h->base > 1) || !(turns[1] > 0) || turns[0] < turns[1] || h->arch->window_base > 0)
        return gguf_refuse(p, "YaRN with factor %g, base %g, %g and %g turns: not supported", h->factor, h->base,
                           turns[0], turns[1]);
    for (int32_t i = 0; i < 2; i++)
        h->ramp[i] = n * log((double)h->original_context / (turns[i] * 2 * acos(-1))) / (2 * log(h->base));
    h->ramp[0] = fmax(floor(h->ramp[0]), 0);
    h->ramp[1] = fmin(ceil(h->ramp[1]), n - 1);
    h->magnitude *= 1 + 0.1 * log(h->factor);
    h->yarn = true;
    return true;
}

/* Rotary angles: divided by a factor (linear), slow ones alone (YaRN), or by a factor for each pair that a tensor gives
 * (longrope, llama3). */
static bool scaling_read(struct gguf *p)
{
    const struct gguf_key *type = gguf_own(p, "rope.scaling.type");
    struct hyper *h = &p->h;
    bool none = text_is(type, "none") || text_is(type, "longrope"), yarn = text_is(type, "yarn");
    if (type && !none && !yarn && !text_is(type, "linear"))
        return gguf_refuse(p, "key '%s' is none of \"none\", \"linear\", \"yarn\" and \"longrope\"", type->name);
    if (!real_of(p, gguf_own(p, "rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear", 0, &h->factor) ||
        !real_of(p, "rope.scaling.attn_factor", 1, &h->magnitude))
        return false;
    if (none || h->factor == 0)
        h->factor = 1;
    return size_of(p, "rope.scaling.original_context_length", h->context, 1, INT32_MAX, &h->original_context) &&
           (!yarn || yarn_read(p));
}

static bool attention_read(struct gguf *p)
{
    struct hyper *h = &p->h;
    int64_t value;
    if (!size_of(p, "attention.head_count", -1, 1, h->width, &h->heads) ||
        !size_of(p, "attention.head_count_kv", h->heads, 1, h->heads, &h->kv_heads) ||
        !size_of(p, "attention.key_length", h->width / h->heads, 1, HEAD_MOST, &h->head) ||
        !size_of(p, "attention.value_length", h->head, 1, HEAD_MOST, &value) ||
        !size_of(p, "rope.dimension_count", h->head, 2, h->head, &h->rotated) ||
        !size_of(p, "attention.sliding_window", 0, 0, INT32_MAX, &h->window) ||
        !size_of(p, "attention.sliding_window_pattern", h->arch->window_every, 2, LAYERS_MOST, &h->window_every) ||
        !real_of(p, "attention.layer_norm_rms_epsilon", 1e-5, &h->epsilon) ||
        !real_of(p, "rope.freq_base", 10000, &h->base) ||
        !real_of(p, "attn_logit_softcapping", h->arch->attention_cap, &h->attention_cap) ||
        !real_of(p, "final_logit_softcapping", h->arch->logits_cap, &h->logits_cap) || !scaling_read(p))
        return false;
    bool by_width = h->arch->scaled_by_width && h->layers == h->arch->scaled_by_width;
    double scale = 1 / sqrt((double)(by_width ? h->width / h->heads : h->head));
    if (!real_of(p, "attention.scale", scale, &h->scale))
        return false;
    if (value != h->head || h->heads % h->kv_heads || h->rotated % 2 || h->rotated > HEAD_MOST || h->base < 1)
        return gguf_refuse(p,
                           "%lld heads of %lld, %lld of keys, values of %lld, %lld of each rotated by base %g: not "
                           "supported",
                           (long long)h->heads, (long long)h->head, (long long)h->kv_heads, (long long)value,
                           (long long)h->rotated, h->base);
    return !h->window || h->window_every ||
           gguf_refuse(p, "key '%s.attention.sliding_window': windows of this architecture are not supported",
                       h->arch->name);
}

/* What other models of the same architecture's name do with their numbers: nothing here reads these keys. */
static bool others_refuse(struct gguf *p)
{
    static const char *const names[] = {"attention.clamp_kqv",
                                        "attention.max_alibi_bias",
                                        "attention.temperature_length",
                                        "embedding_scale",
                                        "logit_scale",
                                        "residual_scale",
                                        "rope.dimension_sections",
                                        "use_parallel_residual",
                                        "expert_gating_func",
                                        "expert_group_count",
                                        "expert_shared_count",
                                        "expert_weights_scale",
                                        "rope.scaling.yarn_attn_factor",
                                        "rope.scaling.yarn_ext_factor",
                                        "rope.scaling.yarn_log_multiplier"};
    const struct gguf_key *causal = gguf_own(p, "attention.causal");
    for (uint32_t i = 0; i < COUNT_OF(names); i++)
        if (gguf_own(p, names[i]))
            return gguf_refuse(p, "key '%s.%s' is not supported", p->h.arch->name, names[i]);
    return !causal || (causal->kind == GGUF_BOOL && causal->data[0]) ||
           gguf_refuse(p, "key '%s' is false: attention to later tokens is not supported", causal->name);
}

/* Widths of feed-forward layers; where the file has experts, how many of them and how many a token goes through. */
static bool forward_read(struct gguf *p)
{
    struct hyper *h = &p->h;
    bool all = h->arch->experts > 1;
    if (!size_of(p, "expert_count", all ? -1 : 0, all, SIZE_MOST, &h->experts) ||
        !size_of(p, "expert_feed_forward_length", 0, 1, SIZE_MOST, &h->expert_forward) ||
        !size_of(p, "feed_forward_length", h->expert_forward ? h->expert_forward : -1, 1, SIZE_MOST, &h->forward))
        return false;
    if (!h->expert_forward)
        h->expert_forward = h->forward;
    if (h->experts && !h->arch->experts)
        return gguf_refuse(p, "key '%s.expert_count': experts of this architecture are not supported", h->arch->name);
    return !h->experts || size_of(p, "expert_used_count", -1, 1, h->experts, &h->experts_used);
}

bool gguf_hyper(struct gguf *p)
{
    struct hyper *h = &p->h;
    if (!architecture_find(p) || !size_of(p, "block_count", -1, 1, LAYERS_MOST, &h->layers) ||
        !size_of(p, "embedding_length", -1, 1, SIZE_MOST, &h->width) ||
        !size_of(p, "context_length", INT32_MAX, 1, INT32_MAX, &h->context) || !forward_read(p) || !attention_read(p) ||
        !others_refuse(p))
        return false;
    const struct gguf_tensor *words = gguf_tensor(p, "token_embd.weight");
    if (!words || words->rank != 2)
        return gguf_refuse(p, "the file has no matrix 'token_embd.weight'");
    h->vocabulary = words->dims[0];
    return h->vocabulary <= SIZE_MOST || error_limit(p->ctx, (src_id){0}, "a vocabulary of %lld words, the limit is %d",
                                                     (long long)h->vocabulary, SIZE_MOST);
}

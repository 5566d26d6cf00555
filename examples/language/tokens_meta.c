/* Reading the tokenizer of a GGUF file: mcc keeps the file's keys in the artifact, arrays as JSON. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meta.h"
#include "tokens.h"
#include "vocabulary.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* tokenizer.ggml.token_type */
enum { NORMAL = 1, UNKNOWN, CONTROL, USER, UNUSED, BYTE };

/* tokenizer.ggml.pre: how text is cut before merging. */
static const struct {
    const char *name;
    int rules;
    enum split_rule rule[2];
    int begins, whole;     /* a text begins with a token; pieces that are tokens stay whole */
} cuts[] = {
    {"llama-bpe", 1, {SPLIT_WORDS_3}, 1, 1},
    {"llama3", 1, {SPLIT_WORDS_3}, 1, 1},
    {"llama-v3", 1, {SPLIT_WORDS_3}, 1, 1},
    {"falcon3", 1, {SPLIT_WORDS_3}, 1, 1},
    {"smaug-bpe", 1, {SPLIT_WORDS_3}, 0, 0},
    {"dbrx", 1, {SPLIT_WORDS_3}, 0, 0},
    {"qwen2", 1, {SPLIT_WORDS_1}, 0, 0},
    {"deepseek-r1-qwen", 1, {SPLIT_WORDS_1}, 0, 0},
    {"megrez", 1, {SPLIT_WORDS_1}, 0, 0},
    {"stablelm2", 1, {SPLIT_WORDS_1}, 0, 0},
    {"gpt-2", 1, {SPLIT_GPT2}, 0, 0},
    {"phi-2", 1, {SPLIT_GPT2}, 0, 0},
    {"mpt", 1, {SPLIT_GPT2}, 0, 0},
    {"olmo", 1, {SPLIT_GPT2}, 0, 0},
    {"smollm", 2, {SPLIT_DIGITS_1, SPLIT_GPT2}, 0, 0},
    {"starcoder", 2, {SPLIT_DIGITS_1, SPLIT_GPT2}, 0, 0},
    {"refact", 2, {SPLIT_DIGITS_1, SPLIT_GPT2}, 0, 0},
    {"command-r", 2, {SPLIT_DIGITS_1, SPLIT_GPT2}, 0, 0},
    {"codeshell", 2, {SPLIT_DIGITS_1, SPLIT_GPT2}, 0, 0},
};

/* Tokens that are special whatever the file says: some files have them as words. */
static const char *const ends[] = {"<|eot_id|>",    "<|im_end|>", "<|end|>",        "<end_of_turn>",
                                   "<|endoftext|>", "<|eom_id|>", "<|end_of_text|>"};

__attribute__((format(printf, 2, 3))) static int refuse(struct tokens *t, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(t->why, sizeof t->why, format, list);
    va_end(list);
    return 0;
}

const char *meta_find(const char *meta, const char *key)
{
    while (meta && *meta) {
        const char *value = meta + strlen(meta) + 1;
        if (strcmp(meta, key) == 0)
            return value;
        meta = value + strlen(value) + 1;
    }
    return NULL;
}

int64_t meta_whole(const char *meta, const char *key, int64_t otherwise)
{
    const char *text = meta_find(meta, key);
    char *end;
    errno = 0;
    long long value = text ? strtoll(text, &end, 10) : 0;
    return text && end != text && !*end && !errno ? value : otherwise;
}

static int meta_true(const char *meta, const char *key, int otherwise)
{
    const char *text = meta_find(meta, key);
    return text ? strcmp(text, "true") == 0 : otherwise;
}

/* NULL: there is none. A wrong one is refused in t->why. */
static json_t *meta_array(struct tokens *t, const char *meta, const char *key)
{
    const char *text = meta_find(meta, key);
    json_error_t error;
    json_t *json = text ? json_loads(text, JSON_ALLOW_NUL, &error) : NULL;
    if (text && !json_is_array(json)) {
        refuse(t, "%s is no list", key);
        json_decref(json);
        json = NULL;
    }
    return json;
}

/* ---- the vocabulary ---------------------------------------------------------------------------------------------- */

struct lists {
    json_t *token, *type, *score, *merge;
};

int tokens_ends(const char *text)
{
    for (size_t i = 0; i < COUNT(ends); i++)
        if (strcmp(text, ends[i]) == 0)
            return 1;
    return 0;
}

static int type_of(const struct lists *l, size_t i)
{
    const char *text = json_string_value(json_array_get(l->token, i));
    json_t *type = json_array_get(l->type, i);
    return tokens_ends(text) ? CONTROL : json_is_integer(type) ? (int)json_integer_value(type) : NORMAL;
}

static int is_added(int type)
{
    return type == UNKNOWN || type == CONTROL || type == USER;
}

/* Tokens, and which of them are looked for before text is cut. byte: ByteLevel's letters; NULL: text as it is. */
static int read_vocabulary(struct tokens *t, const struct lists *l, const int *byte, int trim)
{
    json_t *one;
    size_t i, added = 0;
    json_array_foreach(l->token, i, one)
    {
        if (!json_is_string(one))
            return refuse(t, "token %zu is no text", i);
        int type = type_of(l, i);
        size_t n;
        char *text = vocabulary_text(json_string_value(one), json_string_length(one), is_added(type) ? NULL : byte, &n);
        int ok = text && bpe_put(&t->bpe, (int64_t)i, text, n);
        free(text);
        if (!ok)
            return refuse(t, "token %zu: more than %d, or no memory", i, BPE_NUMBERS);
        added += is_added(type) && n > 0;
    }
    t->added = calloc(added + 1, sizeof *t->added);
    if (!t->added)
        return refuse(t, "no memory");
    for (i = 0; i < json_array_size(l->token); i++) {
        const struct bpe_text *kept = &t->bpe.token[i];
        int type = type_of(l, i);
        if (is_added(type) && kept->bytes > 0)
            t->added[t->n_added++] = (struct tokens_added){
                (int64_t)i,
                kept->text,
                kept->bytes,
                type != USER,
                0,
                trim && strcmp(kept->text, "<unk>") && strcmp(kept->text, "<s>") && strcmp(kept->text, "<|endoftext|>")};
    }
    tokens_sort_added(t);
    return t->bpe.used > 0 || refuse(t, "no vocabulary");
}

static int read_scores(struct tokens *t, const struct lists *l)
{
    t->bpe.score = malloc((size_t)t->bpe.n * sizeof *t->bpe.score);
    if (!t->bpe.score)
        return refuse(t, "no memory");
    for (int32_t i = 0; i < t->bpe.n; i++)
        t->bpe.score[i] = NAN;
    for (size_t i = 0; i < json_array_size(l->token); i++) {
        int type = type_of(l, i);
        json_t *score = json_array_get(l->score, i);
        if (type != UNKNOWN && type != CONTROL && type != BYTE)
            t->bpe.score[i] = json_is_number(score) ? (float)json_number_value(score) : 0;
    }
    return 1;
}

static int read_merges(struct tokens *t, const struct lists *l, const int *byte)
{
    json_t *one;
    size_t i;
    json_array_foreach(l->merge, i, one)
    {
        const char *a = json_string_value(one), *b = a && *a ? strchr(a + 1, ' ') : NULL;
        if (!b || !vocabulary_merge(&t->bpe, a, (size_t)(b - a), b + 1, strlen(b + 1), byte))
            return refuse(t, "merge %zu is none of two tokens, or there is no memory", i);
    }
    return t->bpe.merges > 0 || refuse(t, "no merges");
}

/* ---- the two kinds ----------------------------------------------------------------------------------------------- */

static void first_put(struct tokens *t, const char *meta, int begins, int64_t otherwise)
{
    int64_t id = meta_whole(meta, "tokenizer.ggml.bos_token_id", otherwise);
    if (meta_true(meta, "tokenizer.ggml.add_bos_token", begins) && id >= 0 && id < t->bpe.n && t->bpe.token[id].text)
        t->first[t->n_first++] = id;
}

/* SentencePiece's: letters, U+2581 for spaces, scores. */
static int read_scored(struct tokens *t, const char *meta, const struct lists *l)
{
    static const char *const trimming[] = {"phi-3", "Phi-3", "phi3", "Phi3"};
    const char *name = meta_find(meta, "general.name");
    int trim = 0;
    for (size_t i = 0; name && i < COUNT(trimming); i++)
        trim |= strstr(name, trimming[i]) != NULL;
    if (!read_vocabulary(t, l, NULL, trim) || !read_scores(t, l))
        return 0;
    t->marks = 1;
    t->strip = meta_true(meta, "tokenizer.ggml.add_space_prefix", 1);
    t->prepend = t->strip ? PREPEND_ALWAYS : PREPEND_NEVER;
    t->bpe.unknown = (int32_t)meta_whole(meta, "tokenizer.ggml.unknown_token_id", 0);
    if (t->bpe.unknown >= t->bpe.n || (t->bpe.unknown >= 0 && !t->bpe.token[t->bpe.unknown].text))
        t->bpe.unknown = -1;
    t->bpe.fuse = 1;
    vocabulary_bytes(&t->bpe, 1);
    first_put(t, meta, 1, 1);
    return tokens_show_marks(t) || refuse(t, "no memory");
}

/* GPT-2's: bytes, and merges in order. */
static int read_merged(struct tokens *t, const char *meta, const struct lists *l)
{
    const char *pre = meta_find(meta, "tokenizer.ggml.pre");
    int byte[VOCABULARY_POINTS];
    size_t k = 0;
    while (k < COUNT(cuts) && (!pre || strcmp(cuts[k].name, pre)))
        k++;
    if (k == COUNT(cuts))
        return refuse(t, "tokenizer.ggml.pre is '%.60s': text cut by that is not supported here", pre ? pre : "");
    vocabulary_points(byte);
    if (!read_vocabulary(t, l, byte, 0) || !read_merges(t, l, byte))
        return 0;
    t->rules = cuts[k].rules;
    memcpy(t->rule, cuts[k].rule, sizeof cuts[k].rule);
    t->bpe.whole = cuts[k].whole;
    t->bpe.unknown = -1;
    vocabulary_bytes(&t->bpe, 0);
    first_put(t, meta, cuts[k].begins, -1);
    return 1;
}

int tokens_read_meta(struct tokens *t, const char *meta)
{
    const char *model = meta_find(meta, "tokenizer.ggml.model");
    char why[TOKENS_WHY];
    *t = (struct tokens){0};
    if (!model)
        return refuse(t, "the network has no tokenizer: compile a .gguf, or give the FOLDER with tokenizer.json");
    struct lists l = {meta_array(t, meta, "tokenizer.ggml.tokens"), meta_array(t, meta, "tokenizer.ggml.token_type"),
                      meta_array(t, meta, "tokenizer.ggml.scores"), meta_array(t, meta, "tokenizer.ggml.merges")};
    int ok = !t->why[0];
    if (ok)
        ok = strcmp(model, "llama") == 0  ? read_scored(t, meta, &l)
             : strcmp(model, "gpt2") == 0 ? read_merged(t, meta, &l)
                                          : refuse(t, "a tokenizer '%.60s' is not supported here", model);
    json_decref(l.token);
    json_decref(l.type);
    json_decref(l.score);
    json_decref(l.merge);
    if (!ok) {
        memcpy(why, t->why, sizeof why);
        snprintf(t->why, sizeof t->why, "the network's tokenizer: %.228s", why);
        tokens_free(t);
    }
    return ok;
}

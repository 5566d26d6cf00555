/* Reading tokenizer.json: what it may ask for is written down here, all else is refused. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tokens.h"
#include "vocabulary.h"

enum { FILE_MAX = 1 << 28 };

__attribute__((format(printf, 2, 3))) static int refuse(char why[TOKENS_WHY], const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(why, TOKENS_WHY, format, list);
    va_end(list);
    return 0;
}

json_t *json_read(const char *path, char why[TOKENS_WHY])
{
    struct stat s;
    json_error_t error;
    if (stat(path, &s) != 0 || !S_ISREG(s.st_mode) || s.st_size > FILE_MAX)
        return refuse(why, "%s: no file, or one of more than %d MB", path, FILE_MAX >> 20), NULL;
    json_t *json = json_load_file(path, 0, &error);
    if (!json)
        refuse(why, "%s:%d: %s", path, error.line, error.text);
    return json;
}

static const char *string_of(const json_t *json, const char *key)
{
    const char *text = json_string_value(json_object_get(json, key));
    return text ? text : "";
}

static int is_true(const json_t *json, const char *key)
{
    return json_is_true(json_object_get(json, key));
}

static int is_type(const json_t *json, const char *type)
{
    return strcmp(string_of(json, "type"), type) == 0;
}

/* The parts of a Sequence, or the thing itself: part i, NULL behind the last. */
static const json_t *part_of(const json_t *json, const char *list, size_t i)
{
    if (!json || json_is_null(json))
        return NULL;
    if (is_type(json, "Sequence"))
        return json_array_get(json_object_get(json, list), i);
    return i == 0 ? json : NULL;
}

/* ---- how text is cut --------------------------------------------------------------------------------------------- */

static int rule_add(struct tokens *t, int rule)
{
    if (t->rules == TOKENS_RULES)
        return refuse(t->why, "a pre_tokenizer of more than %d rules", TOKENS_RULES);
    t->rule[t->rules++] = (enum split_rule)rule;
    return 1;
}

/* Llama-2's: U+2581 before the text and for each space. NFC: text is taken for composed. */
static int read_normalizer(struct tokens *t, const json_t *json)
{
    const json_t *part;
    for (size_t i = 0; (part = part_of(json, "normalizers", i)); i++) {
        const char *pattern = string_of(json_object_get(part, "pattern"), "String");
        if (is_type(part, "Prepend") && strcmp(string_of(part, "prepend"), "\xe2\x96\x81") == 0)
            t->prepend = PREPEND_ALWAYS;
        else if (is_type(part, "Replace") && !strcmp(pattern, " ") &&
                 !strcmp(string_of(part, "content"), "\xe2\x96\x81"))
            t->marks = 1;
        else if (!is_type(part, "NFC"))
            return refuse(t->why, "a normalizer '%s' is not supported here", string_of(part, "type"));
    }
    return t->prepend != PREPEND_ALWAYS || t->marks || refuse(t->why, "a normalizer that prepends without replacing");
}

static int read_metaspace(struct tokens *t, const json_t *part)
{
    const char *scheme = string_of(part, "prepend_scheme");
    if (strcmp(string_of(part, "replacement"), "\xe2\x96\x81") != 0)
        return refuse(t->why, "Metaspace with a replacement other than U+2581");
    t->marks = 1;
    t->prepend = !strcmp(scheme, "never") || json_is_false(json_object_get(part, "add_prefix_space")) ? PREPEND_NEVER
                 : !strcmp(scheme, "first")                                                           ? PREPEND_FIRST
                                                                                                      : PREPEND_MISSING;
    return json_is_false(json_object_get(part, "split")) || rule_add(t, SPLIT_MARKS);
}

static int read_split(struct tokens *t, const json_t *part)
{
    const json_t *pattern = json_object_get(part, "pattern");
    const char *regex = string_of(pattern, "Regex");
    int rule = split_rule_of(regex);
    if (t->marks && !strcmp(string_of(pattern, "String"), " ")) /* no space is left to cut at */
        return 1;
    if (rule < 0 || !is_type(part, "Split") || strcmp(string_of(part, "behavior"), "Isolated") ||
        is_true(part, "invert"))
        return refuse(t->why, "a pre_tokenizer that splits by '%.120s' is not supported here", regex);
    return rule_add(t, rule);
}

static int read_pre_tokenizer(struct tokens *t, const json_t *json, int *bytes)
{
    const json_t *part;
    for (size_t i = 0; (part = part_of(json, "pretokenizers", i)); i++) {
        int ok;
        if (is_type(part, "ByteLevel")) {
            if (is_true(part, "add_prefix_space") && i > 0)
                return refuse(t->why, "a ByteLevel that adds spaces behind other rules");
            t->prepend = is_true(part, "add_prefix_space") ? PREPEND_MISSING : t->prepend;
            *bytes = 1;
            ok = json_is_false(json_object_get(part, "use_regex")) || rule_add(t, SPLIT_GPT2);
        } else if (is_type(part, "Metaspace")) {
            ok = read_metaspace(t, part);
        } else if (is_type(part, "Digits")) {
            ok = rule_add(t, is_true(part, "individual_digits") ? SPLIT_DIGITS_1 : SPLIT_DIGITS);
        } else if (is_type(part, "Split")) {
            ok = read_split(t, part);
        } else {
            ok = refuse(t->why, "a pre_tokenizer '%s' is not supported here", string_of(part, "type"));
        }
        if (!ok)
            return 0;
    }
    return *bytes + t->marks == 1 || refuse(t->why, "neither bytes (ByteLevel) nor letters with U+2581 for spaces");
}

static int read_decoder(struct tokens *t, const json_t *json, int bytes)
{
    const json_t *part;
    size_t i;
    for (i = 0; (part = part_of(json, "decoders", i)); i++) {
        int known = is_type(part, "ByteLevel") ? bytes
                    : is_type(part, "Replace") || is_type(part, "ByteFallback") || is_type(part, "Fuse") ||
                            is_type(part, "Strip") || is_type(part, "Metaspace")
                        ? !bytes
                        : 0;
        if (!known)
            return refuse(t->why, "a decoder '%s' is not supported here", string_of(part, "type"));
        t->strip |= is_type(part, "Strip") || (is_type(part, "Metaspace") && t->prepend != PREPEND_NEVER);
    }
    return i > 0 || refuse(t->why, "no decoder");
}

/* ---- the vocabulary ---------------------------------------------------------------------------------------------- */

static int put_vocabulary(struct tokens *t, json_t *vocab, const int *byte)
{
    const char *key;
    json_t *id;
    json_object_foreach(vocab, key, id)
    {
        size_t n;
        char *text = vocabulary_text(key, strlen(key), byte, &n);
        int ok = text && json_is_integer(id) && bpe_put(&t->bpe, json_integer_value(id), text, n);
        free(text);
        if (!ok)
            return refuse(t->why, "the vocabulary's '%.40s': no number below %d, or no memory", key, BPE_NUMBERS);
    }
    return t->bpe.used > 0 || refuse(t->why, "no vocabulary");
}

/* "a b" or ["a", "b"]. */
static int put_merge(struct tokens *t, const json_t *merge, const int *byte)
{
    const char *a = json_string_value(merge), *b = a ? strchr(a, ' ') : NULL;
    size_t bytes = b ? (size_t)(b++ - a) : 0;
    if (json_is_array(merge) && json_array_size(merge) == 2) {
        a = json_string_value(json_array_get(merge, 0));
        b = json_string_value(json_array_get(merge, 1));
        bytes = a ? strlen(a) : 0;
    }
    return a && b && vocabulary_merge(&t->bpe, a, bytes, b, strlen(b), byte);
}

static int read_model(struct tokens *t, const json_t *model, int bytes)
{
    json_t *merges = json_object_get(model, "merges"), *merge;
    const char *unknown = string_of(model, "unk_token");
    size_t i;
    int table[VOCABULARY_POINTS];
    vocabulary_points(table);
    const int *byte = bytes ? table : NULL;
    if (!is_type(model, "BPE") || string_of(model, "continuing_subword_prefix")[0] ||
        string_of(model, "end_of_word_suffix")[0] || json_real_value(json_object_get(model, "dropout")) > 0)
        return refuse(t->why, "a model '%s' that is not a plain BPE is not supported here", string_of(model, "type"));
    if (!put_vocabulary(t, json_object_get(model, "vocab"), byte))
        return 0;
    json_array_foreach(merges, i, merge) if (!put_merge(t, merge, byte)) return refuse(
        t->why, "merge %zu is none of two tokens, or there is no memory", i);
    t->bpe.letters = !bytes;
    t->bpe.fuse = is_true(model, "fuse_unk");
    t->bpe.whole = is_true(model, "ignore_merges");
    t->bpe.unknown = unknown[0] ? bpe_find(&t->bpe, unknown, strlen(unknown)) : -1;
    if (!bytes && !is_true(model, "byte_fallback"))
        memset(t->bpe.byte, 0xff, sizeof t->bpe.byte);
    else
        vocabulary_bytes(&t->bpe, !bytes);
    return 1;
}

/* ---- added tokens ------------------------------------------------------------------------------------------------ */

static int read_added(struct tokens *t, json_t *list)
{
    json_t *one;
    size_t i;
    t->added = calloc(json_array_size(list) + 1, sizeof *t->added);
    if (!t->added)
        return refuse(t->why, "no memory");
    json_array_foreach(list, i, one)
    {
        json_t *number = json_object_get(one, "id");
        const char *text = string_of(one, "content");
        int64_t id = json_is_integer(number) ? json_integer_value(number) : -1;
        if (!text[0] || is_true(one, "single_word") || !bpe_put(&t->bpe, id, text, strlen(text)))
            return refuse(t->why, "the added token '%.40s' is not supported here", text);
        const struct bpe_text *kept = &t->bpe.token[id];
        t->added[t->n_added++] = (struct tokens_added){
            id, kept->text, kept->bytes, is_true(one, "special"), is_true(one, "lstrip"), is_true(one, "rstrip")};
    }
    tokens_sort_added(t);
    return 1;
}

/* The special tokens that the post-processor puts before a text. */
static void read_first(struct tokens *t, const json_t *json)
{
    const json_t *part;
    for (size_t i = 0; (part = part_of(json, "processors", i)); i++) {
        json_t *single = json_object_get(part, "single"), *names = json_object_get(part, "special_tokens");
        for (size_t k = 0; is_type(part, "TemplateProcessing") && k < json_array_size(single); k++) {
            const char *name = string_of(json_object_get(json_array_get(single, k), "SpecialToken"), "id");
            json_t *ids = json_object_get(json_object_get(names, name), "ids");
            if (!name[0])
                break;
            for (size_t j = 0; j < json_array_size(ids) && t->n_first < TOKENS_FIRST; j++)
                t->first[t->n_first++] = json_integer_value(json_array_get(ids, j));
        }
    }
}

int tokens_read(struct tokens *t, const char *path)
{
    char why[TOKENS_WHY];
    int bytes = 0;
    *t = (struct tokens){0};
    json_t *json = json_read(path, t->why);
    if (!json)
        return 0;
    int ok = read_normalizer(t, json_object_get(json, "normalizer"));
    ok = ok && read_pre_tokenizer(t, json_object_get(json, "pre_tokenizer"), &bytes);
    ok = ok && read_decoder(t, json_object_get(json, "decoder"), bytes);
    ok = ok && read_model(t, json_object_get(json, "model"), bytes);
    ok = ok && read_added(t, json_object_get(json, "added_tokens")) &&
         (bytes || tokens_show_marks(t) || refuse(t->why, "no memory"));
    if (ok)
        read_first(t, json_object_get(json, "post_processor"));
    json_decref(json);
    if (!ok) {
        memcpy(why, t->why, sizeof why);
        snprintf(t->why, sizeof t->why, "tokenizer.json: %.238s", why);
        tokens_free(t);
    }
    return ok;
}

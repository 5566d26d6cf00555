/* Interpretation of string operators (see eval.c): those that work element by element. The others exist in the runtime
 * only, and asking for them is a status. A string is a span of bytes. */
#include "ir/eval/eval.h"

static bool string_equal(const struct span *a, const struct span *b)
{
    return a->size == b->size && (a->size == 0 || memcmp(a->data, b->data, a->size) == 0);
}

static struct span string_concat(struct eval *e, const struct span *a, const struct span *b)
{
    char *data = arena_alloc(e->arena, a->size + b->size + 1);
    if (a->size)
        memcpy(data, a->data, a->size);
    if (b->size)
        memcpy(data + a->size, b->data, b->size);
    return (struct span){data, a->size + b->size};
}

/* The number of s in a packed list (rt_ops.h), from 1; of equal strings that of the last. 0: it is not there; -1: the
 * tensor is not such a list. */
static int64_t string_find(const struct span *s, const struct tensor *list)
{
    const char *at = list->data, *end = at + tensor_count(list);
    uint32_t count, bytes;
    int64_t found = 0;
    if (end - at < (int64_t)sizeof count)
        return -1;
    memcpy(&count, at, sizeof count);
    at += sizeof count;
    for (uint32_t k = 0; k < count; k++, at += bytes) {
        if (end - at < (int64_t)sizeof bytes)
            return -1;
        memcpy(&bytes, at, sizeof bytes);
        at += sizeof bytes;
        if (end - at < bytes)
            return -1;
        const struct span key = {at, bytes};
        found = string_equal(s, &key) ? (int64_t)k + 1 : found;
    }
    return found;
}

/* String number `at` of a packed list. False: the tensor is not such a list, or has no such number. */
static bool string_pick(const struct tensor *list, int64_t at, struct span *out)
{
    const char *p = list->data, *end = p + tensor_count(list);
    uint32_t count, bytes;
    if (end - p < (int64_t)sizeof count)
        return false;
    memcpy(&count, p, sizeof count);
    p += sizeof count;
    if (at < 0 || at >= count)
        return false;
    for (int64_t k = 0; k <= at; k++, p += bytes) {
        if (end - p < (int64_t)sizeof bytes)
            return false;
        memcpy(&bytes, p, sizeof bytes);
        p += sizeof bytes;
        if (end - p < bytes)
            return false;
        *out = (struct span){p, bytes};
    }
    return true;
}

static enum eval_status pick(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    TRY(eval_result(e, n, 0, out));
    int64_t count = tensor_count(out);
    if (in[0]->elem != ELEM_I64 || in[1]->elem != ELEM_U8 || tensor_count(in[0]) != count || out->elem != ELEM_STR)
        return eval_fail(e, EVAL_SHAPE, "string function pick: shapes or types differ");
    for (int64_t i = 0; i < count; i++)
        if (!string_pick(in[1], ((const int64_t *)in[0]->data)[i], (struct span *)out->data + i))
            return eval_fail(e, EVAL_VALUE, "string function pick: no string has this number");
    return EVAL_OK;
}

/* Does s as a whole match the table of a regular expression (rt_ops.h)? -1: the tensor is not such a table. */
static int64_t string_match(const struct span *s, const struct tensor *table)
{
    enum { ROWS = 256 + 4 };
    const uint8_t *data = table->data;
    int64_t size = tensor_count(table);
    uint16_t width, entry = 1;
    if (size < ROWS)
        return -1;
    memcpy(&width, data + 256, sizeof width);
    for (size_t k = 0; k <= s->size; k++) { /* the entries of the bytes, and at the end whether the state accepts */
        int64_t column = k < s->size ? 1 + data[((const uint8_t *)s->data)[k]] : 0;
        int64_t at = ROWS + 2 * ((int64_t)entry * (width + 1) + column);
        if (column > width || at + 2 > size)
            return -1;
        memcpy(&entry, data + at, sizeof entry);
    }
    return entry != 0;
}

/* The number of a string by a table, the second operand; negative: the operand is not such a table. */
typedef int64_t string_fn(const struct span *, const struct tensor *table);

static enum eval_status by_table(struct eval *e, const struct node *n, struct tensor *const *in, enum elem elem,
                                 string_fn *of, struct tensor *out)
{
    const char *fn = node_str(n, "fn", "?");
    TRY(eval_result(e, n, 0, out));
    int64_t count = tensor_count(out);
    if (in[0]->elem != ELEM_STR || in[1]->elem != ELEM_U8 || tensor_count(in[0]) != count || out->elem != elem)
        return eval_fail(e, EVAL_SHAPE, "string function %s: shapes or types differ", fn);
    for (int64_t i = 0; i < count; i++) {
        int64_t number = of((const struct span *)in[0]->data + i, in[1]);
        if (number < 0)
            return eval_fail(e, EVAL_VALUE, "string function %s: operand 2 is not a table of it", fn);
        elem_from_i64(elem, number, (char *)out->data + (size_t)i * elem_size(elem));
    }
    return EVAL_OK;
}

enum eval_status eval_string(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    const char *fn = node_str(n, "fn", "?");
    bool equal = strcmp(fn, "equal") == 0, concat = strcmp(fn, "concat") == 0;
    if (strcmp(fn, "find") == 0 && n->n_in == 2)
        return by_table(e, n, in, ELEM_I64, string_find, out);
    if (strcmp(fn, "pick") == 0 && n->n_in == 2)
        return pick(e, n, in, out);
    if (strcmp(fn, "match") == 0 && n->n_in == 2)
        return by_table(e, n, in, ELEM_BOOL, string_match, out);
    if ((!equal && !concat) || n->n_in != 2 || in[0]->elem != ELEM_STR || in[1]->elem != ELEM_STR)
        return eval_fail(e, EVAL_UNSUPPORTED, "string function %s is not interpreted", fn);
    TRY(eval_result(e, n, 0, out));
    int64_t count = tensor_count(out);
    if (tensor_count(in[0]) != count || tensor_count(in[1]) != count || out->elem != (equal ? ELEM_BOOL : ELEM_STR))
        return eval_fail(e, EVAL_SHAPE, "string function %s: shapes or types differ", fn);
    for (int64_t i = 0; i < count; i++) {
        const struct span *a = (const struct span *)in[0]->data + i, *b = (const struct span *)in[1]->data + i;
        if (equal)
            ((uint8_t *)out->data)[i] = string_equal(a, b);
        else
            ((struct span *)out->data)[i] = string_concat(e, a, b);
    }
    return EVAL_OK;
}

/* ai.onnx.ml.LabelEncoder: each element is looked up in a list of keys; the value at the place of its key comes out, or the
 * default.
 *
 * The place, from 1 (0: no such key), is one of a table whose first element is the default. Of numbers it is the largest place
 * whose key is equal, NaN to any NaN, so of keys named twice the last one counts; strings are looked up by the runtime.
 */
#include "passes/legalize/ml.h"

#include <string.h>

enum { KEYS_MAX = 1 << 16 };

/* A list from the attribute NAME_strings, NAME_int64s, NAME_floats or NAME_tensor. */
struct listed {
    enum elem elem;              /* ELEM_NONE: there is none */
    uint32_t n;
    const char *const *strings;  /* ELEM_STR */
    value_id v;                  /* else: rank 1 */
};

/* The strings of a list end with their first zero byte, so none may hold one. */
static struct listed strings_of_tensor(struct rule *r, const struct tensor_data *t, uint32_t n)
{
    const struct span *s = t->bytes.data;
    const char **list = NEW_ARRAY(&r->b->g->arena, const char *, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        if (s[i].size && memchr(s[i].data, 0, s[i].size)) {
            rule_refuse(r, "a string with a zero byte");
            return (struct listed){0};
        }
        list[i] = arena_strndup(&r->b->g->arena, s[i].data, s[i].size);
    }
    return (struct listed){.elem = ELEM_STR, .n = n, .strings = list};
}

static struct listed list_read(struct rule *r, const char *name)
{
    struct builder *b = r->b;
    static const char *const kinds[] = {"strings", "int64s", "floats", "tensor"};
    for (size_t k = 0; k < COUNT_OF(kinds); k++) {
        const struct attr *a = node_attr(r->node, arena_printf(&b->g->arena, "%s_%s", name, kinds[k]));
        int64_t n = a ? a->n : 0;
        if (a && a->kind == ATTR_STRS)
            return (struct listed){.elem = ELEM_STR, .n = a->n, .strings = a->u.strs};
        if (a && a->kind == ATTR_INTS)
            return (struct listed){.elem = ELEM_I64, .n = a->n, .v = b_const(b, ELEM_I64, &n, 1, a->u.ints)};
        if (a && a->kind == ATTR_FLOATS)
            return (struct listed){.elem = ELEM_F32, .n = a->n, .v = ml_floats(b, a->u.floats, n)};
        const struct tensor_data *t = a && a->kind == ATTR_TENSOR ? a->u.tensor : NULL;
        if (!t || t->rank != 1 || t->dims[0] > KEYS_MAX)
            continue;
        if (t->elem == ELEM_STR)
            return strings_of_tensor(r, t, (uint32_t)t->dims[0]);
        return (struct listed){.elem = t->elem, .n = (uint32_t)t->dims[0],
                               .v = b_const_borrow(b, t->elem, t->dims, t->rank, t->bytes)};
    }
    return (struct listed){0};
}

/* Rank 1, one element of that type; {0} after rule_bad. */
static value_id default_read(struct rule *r, enum elem elem)
{
    struct builder *b = r->b;
    const struct attr *a = node_attr(r->node, "default_tensor");
    int64_t one = 1;
    if (a && (a->kind != ATTR_TENSOR || a->u.tensor->elem != elem)) {
        rule_bad(r, "default_tensor has another type than the values");
        return (value_id){0};
    }
    if (a) {
        const struct tensor_data *t = a->u.tensor;
        return v_reshape_i(b, b_const_borrow(b, elem, t->dims, t->rank, t->bytes), &one, 1);
    }
    value_id v = elem_class(elem) == 'I' ? b_scalar_i64(b, elem, rule_int(r, "default_int64", -1))
                                         : b_scalar_f64(b, elem, rule_float(r, "default_float", -0.0));
    return v_reshape_i(b, v, &one, 1);
}

/* Of numbers x: the largest place whose key is equal, i64 of x's shape. */
static value_id place_of(struct rule *r, value_id x, const struct listed *keys)
{
    struct builder *b = r->b;
    int32_t rank = v_rank(b, x);
    int64_t last = rank;
    expr_id n = ex_const(b_exprs(b), keys->n);
    value_id wide = b_unsqueeze(b, x, rank), same = b_binary(b, OP_EQ, wide, keys->v);
    if (v_is_float(b, x))
        same = b_binary(b, OP_OR, same, b_binary(b, OP_AND, b_unary(b, OP_ISNAN, wide), b_unary(b, OP_ISNAN, keys->v)));
    value_id place = b_binary_f64(b, OP_ADD, v_iota(b, ELEM_I64, &n, 1, 0), 1);
    return b_reduce(b, b_select(b, same, place, b_scalar_i64(b, ELEM_I64, 0)), &last, 1, "max", false);
}

bool rule_label_encoder(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0);
    struct listed keys = list_read(r, "keys"), values = list_read(r, "values");
    if (!x.i)
        return false;
    if (keys.elem == ELEM_NONE || values.elem == ELEM_NONE || !keys.n || keys.n != values.n || keys.n > KEYS_MAX)
        return rule_refuse(r, "%u keys, %u values", keys.n, values.n);
    if (keys.elem != v_elem(b, x))
        return rule_bad(r, "keys are %s, the operand is %s", elem_name(keys.elem), elem_name(v_elem(b, x)));
    if (values.elem == ELEM_STR || !strchr("IF", elem_class(values.elem)))
        return rule_refuse(r, "values of type %s", elem_name(values.elem));
    value_id table[2] = {default_read(r, values.elem), values.v};
    value_id place = keys.elem == ELEM_STR ? v_string_find(b, x, keys.strings, keys.n) : place_of(r, x, &keys);
    return rule_result(r, b_gather(b, b_concat(b, table, 2, 0), place, 0));
}

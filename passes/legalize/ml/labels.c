/* ai.onnx.ml.LabelEncoder and CategoryMapper: each element is looked up in a list of keys; the value at the place of
 * its key comes out, or the default.
 *
 * The place, from 1 (0: no such key), is one of a table whose first element is the default. Of numbers it is the
 * largest place whose key is equal, NaN to any NaN, so of keys named twice the last one counts; strings are looked up
 * by the runtime.
 */
#include "passes/legalize/ml/ml.h"

enum { KEYS_MAX = 1 << 16 };

/* A list from the attribute NAME_strings, NAME_int64s, NAME_floats or NAME_tensor. */
struct listed {
    enum elem elem; /* ELEM_NONE: there is none */
    uint32_t n;
    const struct span *strings; /* ELEM_STR */
    value_id v; /* else: rank 1 */
};

static struct listed list_read(struct rule *r, const char *name)
{
    struct builder *b = r->b;
    static const char *const kinds[] = {"strings", "int64s", "floats", "tensor"};
    for (size_t k = 0; k < COUNT_OF(kinds); k++) {
        const struct attr *a = node_attr(r->node, arena_printf(&b->g->arena, "%s_%s", name, kinds[k]));
        int64_t n = a ? a->n : 0;
        if (a && a->kind == ATTR_STRS)
            return (struct listed){.elem = ELEM_STR, .n = a->n, .strings = b_spans(b, a->u.strs, a->n)};
        if (a && a->kind == ATTR_INTS)
            return (struct listed){.elem = ELEM_I64, .n = a->n, .v = b_const(b, ELEM_I64, &n, 1, a->u.ints)};
        if (a && a->kind == ATTR_FLOATS)
            return (struct listed){.elem = ELEM_F32, .n = a->n, .v = v_floats(b, a->u.floats, n)};
        const struct tensor_data *t = a && a->kind == ATTR_TENSOR ? a->u.tensor : NULL;
        if (!t || t->rank != 1 || t->dims[0] > KEYS_MAX)
            continue;
        if (t->elem == ELEM_STR)
            return (struct listed){.elem = ELEM_STR, .n = (uint32_t)t->dims[0], .strings = t->bytes.data};
        return (struct listed){
            .elem = t->elem, .n = (uint32_t)t->dims[0], .v = b_const_borrow(b, t->elem, t->dims, t->rank, t->bytes)};
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
    expr_id n = ex_const(b->x, keys->n);
    value_id wide = b_unsqueeze(b, x, rank), same = b_binary(b, OP_EQ, wide, keys->v);
    if (v_is_float(b, x))
        same = b_binary(b, OP_OR, same, b_binary(b, OP_AND, b_unary(b, OP_ISNAN, wide), b_unary(b, OP_ISNAN, keys->v)));
    value_id place = b_binary_f64(b, OP_ADD, v_iota(b, ELEM_I64, &n, 1, 0), 1);
    return b_reduce(b, b_select(b, same, place, b_scalar_i64(b, ELEM_I64, 0)), &last, 1, "max", false);
}

/* The string that stands for no key. */
static struct span default_string(struct rule *r)
{
    const struct attr *a = node_attr(r->node, "default_tensor");
    const char *s = rule_str(r, "default_string", "_Unused");
    if (a && a->kind == ATTR_TENSOR && a->u.tensor->elem == ELEM_STR && a->u.tensor->bytes.size)
        return *(const struct span *)a->u.tensor->bytes.data;
    return (struct span){s, strlen(s)};
}

/* The value at each place; the default at place 0. */
static bool values_at(struct rule *r, const struct listed *values, value_id place)
{
    struct builder *b = r->b;
    if (values->elem != ELEM_STR) {
        value_id table[2] = {default_read(r, values->elem), values->v};
        return rule_result(r, b_gather(b, b_concat(b, table, 2, 0), place, 0));
    }
    const struct attr *a = node_attr(r->node, "default_tensor");
    if (a && (a->kind != ATTR_TENSOR || a->u.tensor->elem != ELEM_STR))
        return rule_bad(r, "default_tensor has another type than the values");
    struct span *list = NEW_ARRAY(&b->g->arena, struct span, values->n + 1);
    list[0] = default_string(r);
    memcpy(list + 1, values->strings, values->n * sizeof *list);
    return rule_result(r, v_string_pick(b, place, list, values->n + 1));
}

static value_id place_in(struct rule *r, value_id x, const struct listed *keys)
{
    return keys->elem == ELEM_STR ? v_string_find(r->b, x, keys->strings, keys->n) : place_of(r, x, keys);
}

bool rule_label_encoder(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = v_is_string(b, rule_in(r, 0)) ? rule_strings(r, 0) : rule_in(r, 0);
    struct listed keys = list_read(r, "keys"), values = list_read(r, "values");
    if (!x.i)
        return false;
    if (keys.elem == ELEM_NONE || values.elem == ELEM_NONE || !keys.n || keys.n != values.n || keys.n > KEYS_MAX)
        return rule_refuse(r, "there are %u keys and %u values", keys.n, values.n);
    if (keys.elem != v_elem(b, x))
        return rule_bad(r, "keys are %s, the operand is %s", elem_name(keys.elem), elem_name(v_elem(b, x)));
    if (!strchr("IFS", elem_class(values.elem)))
        return rule_refuse(r, "the values are of type %s", elem_name(values.elem));
    return values_at(r, &values, place_in(r, x, &keys));
}

/* Between a list of strings and the integers beside it: 0, 1, ... where there are none. */
static bool between(struct rule *r, const struct attr *strings, const int64_t *ints, uint32_t n_ints)
{
    struct builder *b = r->b;
    value_id x = v_is_string(b, rule_in(r, 0)) ? rule_strings(r, 0) : rule_in(r, 0);
    if (!x.i)
        return false;
    if (!strings || strings->kind != ATTR_STRS || !strings->n || strings->n > KEYS_MAX)
        return rule_bad(r, "no list of strings, or a longer one than %d", KEYS_MAX);
    int64_t n = strings->n, *count = NEW_ARRAY(&b->g->arena, int64_t, n);
    for (int64_t i = 0; i < n; i++)
        count[i] = i;
    if (ints && n_ints != n)
        return rule_bad(r, "%lld strings and %u integers", (long long)n, n_ints);
    struct listed texts = {.elem = ELEM_STR, .n = (uint32_t)n, .strings = b_spans(b, strings->u.strs, (uint32_t)n)};
    struct listed numbers = {.elem = ELEM_I64, .n = (uint32_t)n, .v = b_const(b, ELEM_I64, &n, 1, ints ? ints : count)};
    bool from_text = v_is_string(b, x);
    if (!from_text && v_elem(b, x) != ELEM_I64)
        return rule_bad(r, "the operand is %s", elem_name(v_elem(b, x)));
    return values_at(r, from_text ? &numbers : &texts, place_in(r, x, from_text ? &texts : &numbers));
}

/* Version 1: strings to their place in a list, from 0, and back. */
bool rule_label_encoder_old(struct rule *r)
{
    return between(r, node_attr(r->node, "classes_strings"), NULL, 0);
}

bool rule_category_mapper(struct rule *r)
{
    uint32_t n;
    const int64_t *ints = rule_ints(r, "cats_int64s", &n);
    return ints ? between(r, node_attr(r->node, "cats_strings"), ints, n) : rule_bad(r, "no cats_int64s");
}

/* 1 in the column of its category, f32 [..., categories]; floats are cut to integers. */
bool rule_one_hot_encoder(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = v_is_string(b, rule_in(r, 0)) ? rule_strings(r, 0) : rule_in(r, 0);
    struct listed cats = list_read(r, "cats");
    if (!x.i)
        return false;
    if (!cats.n || cats.n > KEYS_MAX)
        return rule_refuse(r, "there are %u categories, which is too many", cats.n);
    if (!rule_int(r, "zeros", 1))
        return rule_refuse(r, "zeros = 0: a run that fails where a category is unknown");
    if (v_is_string(b, x) != (cats.elem == ELEM_STR))
        return rule_bad(r, "categories are %s, the operand is %s", elem_name(cats.elem), elem_name(v_elem(b, x)));
    value_id place = place_in(r, v_is_string(b, x) ? x : b_convert(b, x, ELEM_I64), &cats);
    expr_id n = ex_const(b->x, cats.n);
    value_id column = b_binary_f64(b, OP_ADD, v_iota(b, ELEM_I64, &n, 1, 0), 1);
    value_id hot = b_binary(b, OP_EQ, b_unsqueeze(b, place, v_rank(b, x)), column);
    return rule_result(r, b_convert(b, hot, ELEM_F32));
}

/* Operators on strings as functions over whole buffers: equality and concatenation with broadcasting, looking up in a
 * list, splitting, normalization. Strings of attributes go along as one constant of bytes (mcc_rt_str_list of
 * runtime/ops/rt_ops.h).
 */
#include "passes/legalize/legalize.h"
#include "passes/regex/regex.h"

/* A function that the runtime has under that name. {0}: there are no dims, after a diagnostic. */
static value_id string_op(struct builder *b, const char *fn, enum elem elem, const value_id *in, uint32_t n,
                          struct dims dims)
{
    struct attr attrs[] = {attr_str("fn", fn), attr_elem("elem", elem),
                           attr_exprs("dims", dims.d, (uint32_t)dims.rank)};
    return dims.d ? b_op(b, OP_STRING, in, n, attrs, 3) : (value_id){0};
}

static value_id spread(struct rule *r, value_id v, const expr_id *dims, int32_t rank)
{
    const struct dims from = b_dims(r->b, v);
    bool same = from.d && from.rank == rank;
    for (int32_t i = 0; same && i < rank; i++)
        same = from.d[i].i == dims[i].i;
    return same ? v : string_op(r->b, "spread", ELEM_STR, &v, 1, (struct dims){dims, rank});
}

/* Equal of strings, and StringConcat where the row's parameter is none. */
bool rule_string_binary(struct rule *r)
{
    struct builder *b = r->b;
    value_id in[2] = {rule_strings(r, 0), rule_strings(r, 1)};
    if (!in[0].i || !in[1].i)
        return false;
    const struct dims a = b_dims(b, in[0]), c = b_dims(b, in[1]);
    expr_id dims[RANK_MAX];
    int32_t rank = b_broadcast_dims(b, a.d, a.rank, c.d, c.rank, dims);
    if (rank < 0)
        return false;
    for (int k = 0; k < 2; k++) {
        in[k] = spread(r, in[k], dims, rank);
        if (!in[k].i)
            return false;
    }
    bool equal = r->param == OP_EQ;
    return rule_result(
        r, string_op(b, equal ? "equal" : "concat", equal ? ELEM_BOOL : ELEM_STR, in, 2, (struct dims){dims, rank}));
}

/* ---- strings of attributes --------------------------------------------------------------------------------------- */

const struct span *b_spans(struct builder *b, const char *const *list, uint32_t n)
{
    struct span *spans = NEW_ARRAY(&b->g->arena, struct span, n + 1);
    for (uint32_t i = 0; i < n; i++)
        spans[i] = (struct span){list[i], strlen(list[i])};
    return spans;
}

static value_id packed(struct builder *b, const struct span *list, uint32_t n)
{
    size_t bytes = sizeof n;
    for (uint32_t i = 0; i < n; i++)
        bytes += sizeof n + list[i].size;
    uint8_t *data = arena_alloc(&b->g->arena, bytes), *at = data + sizeof n;
    memcpy(data, &n, sizeof n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t size = (uint32_t)list[i].size;
        memcpy(at, &size, sizeof size);
        if (size)
            memcpy(at + sizeof size, list[i].data, size);
        at += sizeof size + size;
    }
    int64_t dim = (int64_t)bytes;
    return b_const_borrow(b, ELEM_U8, &dim, 1, (struct span){(const char *)data, bytes});
}

value_id v_string_find(struct builder *b, value_id x, const struct span *list, uint32_t n)
{
    return string_op(b, "find", ELEM_I64, ARRAY(value_id, x, packed(b, list, n)), b_dims(b, x));
}

value_id v_string_pick(struct builder *b, value_id x, const struct span *list, uint32_t n)
{
    const struct dims dims = b_dims(b, x);
    value_id in[2] = {x, packed(b, list, n)};
    struct attr attrs[] = {attr_str("fn", "pick"), attr_elem("elem", ELEM_STR),
                           attr_exprs("dims", dims.d, (uint32_t)dims.rank), attr_int("option", n)};
    return dims.d ? b_op(b, OP_STRING, in, 2, attrs, 4) : (value_id){0};
}

value_id rule_strings(struct rule *r, uint32_t i)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, i);
    const struct dims dims = b_dims(b, x);
    if (!dims.d)
        return (value_id){0};
    if (!v_is_string(b, x)) {
        rule_bad(r, "operand %u is not a tensor of strings", i + 1);
        return (value_id){0};
    }
    const struct tensor_data *t = value_is_const(b->g, x) ? value_fold(b->g, x) : NULL;
    if (!t)
        return x;
    size_t n = t->bytes.size / sizeof(struct span);
    expr_id count = ex_const(b->x, (int64_t)n);
    return v_string_pick(b, b_reshape(b, v_iota(b, ELEM_I64, &count, 1, 0), dims.d, dims.rank), t->bytes.data,
                         (uint32_t)n);
}

/* The pieces of each string on a new last axis, and how many there are of each. */
bool rule_string_split(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_strings(r, 0);
    const char *delimiter = rule_str(r, "delimiter", "");
    const struct dims dims = b_dims(b, x);
    expr_id out[RANK_MAX + 1], width = b_symbol(b, "pieces", INT32_MAX);
    if (!dims.d)
        return false;
    if (dims.rank >= RANK_MAX)
        return rule_bad(r, "an operand of rank %d", (int)dims.rank);
    memcpy(out, dims.d, (size_t)dims.rank * sizeof *out);
    out[dims.rank] = width;
    value_id in[3] = {x, packed(b, b_spans(b, &delimiter, 1), 1)};
    struct attr counts[] = {attr_str("fn", "split_count"), attr_elem("elem", ELEM_I64),
                            attr_exprs("dims", dims.d, (uint32_t)dims.rank), attr_expr("count", width),
                            attr_int("option", rule_int(r, "maxsplit", -1))};
    in[2] = b_op(b, OP_STRING, in, 2, counts, 5);
    struct attr pieces[] = {attr_str("fn", "split"), attr_elem("elem", ELEM_STR),
                            attr_exprs("dims", out, (uint32_t)dims.rank + 1),
                            attr_int("option", rule_int(r, "maxsplit", -1))};
    rule_out(r, 0, in[2].i ? b_op(b, OP_STRING, in, 3, pieces, 4) : in[2]);
    rule_out(r, 1, in[2]);
    return in[2].i != 0;
}

/* Whether each string as a whole matches a pattern, which goes along as a table. */
bool rule_regex_full_match(struct rule *r)
{
    struct builder *b = r->b;
    const char *pattern = rule_str(r, "pattern", NULL);
    value_id in[2] = {rule_strings(r, 0), {0}};
    struct regex_error error;
    struct span table;
    if (!in[0].i)
        return false;
    if (!pattern)
        return rule_bad(r, "the attribute pattern is missing");
    if (!regex_compile(&b->g->arena, pattern, strlen(pattern), &table, &error)) {
        const char *text = arena_printf(&b->g->arena, error.at ? "the pattern, character %u" : "the pattern", error.at);
        return error.broken ? rule_bad(r, "%s: %s", text, error.text) : rule_refuse(r, "%s: %s", text, error.text);
    }
    int64_t size = (int64_t)table.size;
    in[1] = b_const_borrow(b, ELEM_U8, &size, 1, table);
    return rule_result(r, string_op(b, "match", ELEM_BOOL, in, 2, b_dims(b, in[0])));
}

/* Strings (C) or (1, C) without the stop words, upper, lower or as they are. */
bool rule_string_normalizer(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_strings(r, 0);
    const struct attr *words = node_attr(r->node, "stopwords");
    bool lower = rule_str_is(r, "case_change_action", "NONE", "LOWER"),
         upper = rule_str_is(r, "case_change_action", "NONE", "UPPER");
    const struct dims dims = b_dims(b, x);
    int64_t known = INT32_MAX, n_words = words && words->kind == ATTR_STRS ? words->n : 0;
    if (!dims.d)
        return false;
    expr_id one = ex_const(b->x, 1);
    if (dims.rank < 1 || dims.rank > 2 || (dims.rank == 2 && ex_cmp_eq(b->x, dims.d[0], one) == FALSE_))
        return rule_bad(r, "the operand must be strings of shape (C) or (1, C)");
    if (!lower && !upper && !rule_str_is(r, "case_change_action", "NONE", "NONE"))
        return rule_bad(r, "case_change_action is \"%.20s\"", rule_str(r, "case_change_action", ""));
    if (ex_is_const(b->x, dims.d[dims.rank - 1], &known) && known < 1)
        known = 1;
    if (dims.rank == 2)
        b_assert(b, ex_eq(b->x, dims.d[0], one), EVAL_SHAPE, "the operand must be strings of shape (C) or (1, C)");
    expr_id left = b_symbol(b, "left", known), out[2] = {one, left};
    value_id in[3] = {x, packed(b, n_words ? b_spans(b, words->u.strs, (uint32_t)n_words) : NULL, (uint32_t)n_words),
                      b_scalar_i64(b, ELEM_I64, n_words)};
    return rule_result(r, b_op(b, OP_STRING, in, 3,
                               ARRAY(struct attr, attr_str("fn", "normalize"), attr_elem("elem", ELEM_STR),
                                     attr_exprs("dims", dims.rank == 1 ? &left : out, (uint32_t)dims.rank),
                                     attr_expr("count", left), attr_int("option", rule_int(r, "is_case_sensitive", 0)),
                                     attr_int("mapping", lower   ? 1
                                                         : upper ? 2
                                                                 : 0))));
}

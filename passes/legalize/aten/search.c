/* Where values stand among others: membership, places in sorted sequences, histograms. Each value is compared with all
 * of them. */
#include "passes/legalize/aten.h"

/* How many of the last dim are set, as i64. */
static value_id counted(struct builder *b, value_id set)
{
    return b_reduce(b, b_convert(b, set, ELEM_I64), ARRAY(int64_t, v_rank(b, set) - 1), "sum", false);
}

/* Is each element one of the others? */
bool rule_aten_isin(struct rule *r)
{
    struct builder *b = r->b;
    enum elem e = aten_promoted(r, 0, rule_has(r, 0) ? "elements" : "element", 1,
                                rule_has(r, 1) ? "test_elements" : "test_element");
    value_id x = aten_operand(r, 0, rule_has(r, 0) ? "elements" : "element", e),
             among = aten_operand(r, 1, rule_has(r, 1) ? "test_elements" : "test_element", e);
    if (!x.i || !among.i)
        return false;
    expr_id n = b_count(b, among);
    int64_t last[] = {v_rank(b, x)};
    value_id same = b_binary(b, OP_EQ, b_unsqueeze(b, x, v_rank(b, x)), b_reshape(b, among, &n, 1));
    value_id found = b_convert(b, b_reduce(b, b_convert(b, same, ELEM_U8), last, 1, "max", false), ELEM_BOOL);
    return rule_result(r, aten_flag(r, "invert") ? b_unary(b, OP_NOT, found) : found);
}

/* How many of the last dim of a sorted sequence stand before each value: those less than it, or not greater. NaN stands
 * after all. param: the operands are the values and the sequence (bucketize), not the sequence and the values. */
bool rule_aten_searchsorted(struct rule *r)
{
    struct builder *b = r->b;
    uint32_t at_values = r->param ? 0 : 1, at_sorted = r->param ? 1 : 0;
    const char *names[2] = {r->param ? "boundaries" : "sorted_sequence", "self"};
    enum elem e = aten_promoted(r, at_sorted, names[0], at_values, names[1]);
    value_id sorted = aten_operand(r, at_sorted, names[0], e), values = aten_operand(r, at_values, names[1], e);
    const char *side = rule_str(r, "side", aten_flag(r, "right") ? "right" : "left");
    bool right = strcmp(side, "right") == 0;
    if (!right && (strcmp(side, "left") != 0 || aten_flag(r, "right")))
        return rule_bad(r, "side is '%.40s'%s; 'left' or 'right' is needed", side,
                        aten_flag(r, "right") ? " and 'right'" : "");
    if (!r->param && rule_has(r, 5)) {
        const struct dims dims = b_dims(b, sorted);
        if (!dims.d || !rule_shaped(r, rule_in(r, 5), "sorter", dims.d, dims.rank))
            return false;
        sorted = b_gather_elements(b, sorted, rule_in(r, 5), v_rank(b, sorted) - 1);
    }
    int32_t rank = v_rank(b, sorted), n = v_rank(b, values);
    if (!sorted.i || !values.i)
        return false;
    if (rank < 1 || (rank > 1 && (r->param || rank != n)))
        return rule_bad(r, "the sequence has rank %d and the values rank %d", (int)rank, (int)n);
    values = b_unsqueeze(b, values, n);
    sorted = rank > 1 ? b_unsqueeze(b, sorted, rank - 1) : sorted;
    value_id after = right ? b_binary(b, OP_LT, values, sorted) : b_binary(b, OP_LE, values, sorted);
    return aten_result_stated(r, counted(b, b_unary(b, OP_NOT, after)));
}

/* How many elements lie in each of the equal parts of a range, of which the last one has both ends. */
bool rule_aten_histc(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = v_widen(b, rule_in(r, 0));
    int64_t bins;
    double lo = aten_float(r, "min", 0), hi = aten_float(r, "max", 0);
    if (!x.i || !aten_int_known(r, 1, "bins", 100, &bins))
        return false;
    if (bins < 1 || bins > INT32_MAX || !(lo < hi) || !v_is_float(b, x))
        return rule_refuse(r, "the range is that of the data: state min below max");
    expr_id n = b_count(b, x), all[2] = {ex_const(b->x, bins), n};
    x = b_reshape(b, x, &n, 1);
    value_id at = b_binary_f64(b, OP_MUL, b_binary_f64(b, OP_DIV, b_binary_f64(b, OP_SUB, x, lo), hi - lo),
                               (double)bins);
    at = b_binary_f64(b, OP_MIN, b_unary(b, OP_FLOOR, at), (double)(bins - 1));
    value_id within = b_binary(b, OP_AND, b_binary(b, OP_LE, b_splat_like(b, x, lo), x),
                               b_binary(b, OP_LE, x, b_splat_like(b, x, hi)));
    value_id hit = b_binary(b, OP_EQ, b_convert(b, b_select(b, within, at, b_splat_like(b, at, -1)), ELEM_I64),
                            v_iota(b, ELEM_I64, all, 2, 0));
    return aten_result_stated(r, counted(b, hit));
}

/* TfIdfVectorizer over integers: how often each n-gram of a pool occurs in a row, with up to max_skip_count elements
 * left out between two of its elements (the same number each time; a single element has no gaps).
 *
 * The pool lists n-grams of length 1, then of length 2, ...; ngram_counts says where each length starts. For each
 * length and skip the row's windows are compared with all n-grams of that length at once and the matches counted.
 */
#include "passes/legalize/legalize.h"

enum { POOL_MAX = 1 << 20, SKIP_MAX = 64 };

struct pool {
    const int64_t *items, *starts, *indexes;
    uint32_t n_items, n_starts, n_indexes;
    int64_t shortest, longest, skips, columns;
};

static bool pool_read(struct rule *r, struct pool *p)
{
    p->items = rule_ints(r, "pool_int64s", &p->n_items);
    p->starts = rule_ints(r, "ngram_counts", &p->n_starts);
    p->indexes = rule_ints(r, "ngram_indexes", &p->n_indexes);
    p->shortest = rule_int(r, "min_gram_length", 1);
    p->longest = rule_int(r, "max_gram_length", 1);
    p->skips = rule_int(r, "max_skip_count", 0);
    if (!p->items || !p->starts || !p->indexes)
        return rule_refuse(r, "there is no pool of integers");
    if (p->shortest < 1 || p->longest < p->shortest || p->longest > p->n_starts || p->skips < 0 ||
        p->n_items > POOL_MAX)
        return rule_bad(r, "n-grams of %lld to %lld elements, %u lengths", (long long)p->shortest,
                        (long long)p->longest, p->n_starts);
    if (p->skips > SKIP_MAX)
        return rule_refuse(r, "max_skip_count is %lld", (long long)p->skips);
    int64_t grams = 0;
    for (uint32_t k = 0; k < p->n_starts; k++) {
        int64_t end = k + 1 < p->n_starts ? p->starts[k + 1] : p->n_items;
        if (p->starts[k] < (k ? p->starts[k - 1] : 0) || end < p->starts[k] || end > p->n_items ||
            (end - p->starts[k]) % (k + 1))
            return rule_bad(r, "ngram_counts does not cut the pool into n-grams");
        grams += (end - p->starts[k]) / (k + 1);
    }
    if (grams != p->n_indexes || p->starts[0] != 0)
        return rule_bad(r, "%u ngram_indexes for %lld n-grams", p->n_indexes, (long long)grams);
    for (uint32_t i = 0; i < p->n_indexes; i++) {
        if (p->indexes[i] < 0 || p->indexes[i] >= POOL_MAX)
            return rule_bad(r, "ngram_indexes holds %lld", (long long)p->indexes[i]);
        p->columns = p->indexes[i] >= p->columns ? p->indexes[i] + 1 : p->columns;
    }
    return true;
}

/* Matches of the n-grams of `length` elements at `step` elements from one another: i64 [rows, grams]. */
static value_id matches(struct rule *r, const struct pool *p, value_id x, int64_t length, int64_t step)
{
    struct builder *b = r->b;
    struct exprs *ex = b->x;
    int64_t first = p->starts[length - 1], end = (uint32_t)length < p->n_starts ? p->starts[length] : p->n_items;
    int64_t grams = (end - first) / length, axis = 1;
    expr_id reach = ex_addc(ex, b_dim(b, x, 1), -(length - 1) * step), size = ex_max(ex, reach, ex_const(ex, 0));
    value_id all = {0};
    for (int64_t k = 0; k < length; k++) {
        int64_t *column = NEW_ARRAY(&b->g->arena, int64_t, grams);
        for (int64_t g = 0; g < grams; g++)
            column[g] = p->items[first + g * length + k];
        expr_id start = ex_min(ex, ex_const(ex, k * step), b_dim(b, x, 1)); /* where nothing fits, nothing is read */
        value_id element = b_unsqueeze(b, b_slice_axis(b, x, 1, start, size), 2);
        value_id same = b_binary(b, OP_EQ, element, b_const(b, ELEM_I64, &grams, 1, column));
        all = k ? b_binary(b, OP_AND, all, same) : same;
    }
    return b_reduce(b, b_convert(b, all, ELEM_I64), &axis, 1, "sum", false);
}

/* Counts of all n-grams in the order of the pool: i64 [rows, n_indexes]; lengths that are not wanted count 0. */
static value_id counts(struct rule *r, const struct pool *p, value_id x)
{
    struct builder *b = r->b;
    value_id parts[64];
    uint32_t n = 0;
    for (int64_t length = 1; length <= p->n_starts && n < COUNT_OF(parts); length++) {
        int64_t end = (uint32_t)length < p->n_starts ? p->starts[length] : p->n_items;
        int64_t grams = (end - p->starts[length - 1]) / length;
        expr_id dims[2] = {b_dim(b, x, 0), ex_const(b->x, grams)};
        if (!grams)
            continue;
        bool wanted = length >= p->shortest && length <= p->longest;
        value_id sum = wanted ? matches(r, p, x, length, 1) : b_broadcast(b, b_scalar_i64(b, ELEM_I64, 0), dims, 2);
        for (int64_t skip = 1; wanted && length > 1 && skip <= p->skips; skip++)
            sum = b_binary(b, OP_ADD, sum, matches(r, p, x, length, skip + 1));
        parts[n++] = sum;
    }
    return n == 1 ? parts[0] : b_concat(b, parts, n, 1);
}

/* Column j of the result is the sum of the n-grams whose index is j. */
static value_id columns(struct rule *r, const struct pool *p, value_id y)
{
    struct builder *b = r->b;
    int64_t dims[2] = {p->n_indexes, p->columns};
    float *table = arena_alloc_array(&b->g->arena, (size_t)(dims[0] * dims[1]), sizeof *table);
    memset(table, 0, (size_t)(dims[0] * dims[1]) * sizeof *table);
    for (uint32_t i = 0; i < p->n_indexes; i++)
        table[i * p->columns + p->indexes[i]] = 1;
    return b_matmul(b, y, b_const(b, ELEM_F32, dims, 2, table));
}

bool rule_tfidf(struct rule *r)
{
    struct builder *b = r->b;
    struct pool p = {0};
    value_id x = rule_in(r, 0);
    uint32_t n_weights;
    const double *weights = rule_floats(r, "weights", &n_weights);
    bool tf = rule_str_is(r, "mode", "TF", "TF"), idf = rule_str_is(r, "mode", "TF", "IDF");
    if (!x.i)
        return false;
    if (v_is_string(b, x))
        return rule_refuse(r, "the n-grams are of strings");
    int32_t rank = v_rank(b, x);
    if (rank < 1 || rank > 2)
        return rule_bad(r, "input of rank %d", (int)rank);
    if (!tf && !idf && !rule_str_is(r, "mode", "TF", "TFIDF"))
        return rule_bad(r, "mode \"%.20s\"", rule_str(r, "mode", ""));
    if (!pool_read(r, &p))
        return false;
    if (p.n_starts > 64 || (int64_t)p.n_indexes * p.columns > POOL_MAX || (!tf && weights && n_weights != p.n_indexes))
        return rule_refuse(r, "there are %u n-grams, %lld columns and %u weights", p.n_indexes, (long long)p.columns,
                           n_weights);
    x = b_convert(b, rank == 1 ? b_unsqueeze(b, x, 0) : x, ELEM_I64);
    value_id y = b_convert(b, counts(r, &p, x), ELEM_F32);
    if (idf)
        y = b_binary_f64(b, OP_MIN, y, 1);
    if (!tf && weights) {
        int64_t n = n_weights;
        float *w = NEW_ARRAY(&b->g->arena, float, n);
        for (int64_t i = 0; i < n; i++)
            w[i] = (float)weights[i];
        y = b_binary(b, OP_MUL, y, b_const(b, ELEM_F32, &n, 1, w));
    }
    y = columns(r, &p, y);
    return rule_result(r, rank == 1 ? b_squeeze(b, y, 0) : y);
}

/* MatMul, Gemm, Einsum and their integer forms: all become `dot`. */
#include "passes/legalize/nn/window.h"

bool rule_matmul(struct rule *r)
{
    value_id y;
    if (rule_matmul_dequantized(r, false, &y) || rule_matmul_fetched(r, rule_in(r, 0), rule_in(r, 1), &y))
        return rule_result(r, y);
    return rule_result(r, b_matmul(r->b, rule_in(r, 0), rule_in(r, 1)));
}

static value_id transposed(struct builder *b, value_id v, bool flag)
{
    static const int64_t perm[] = {1, 0};
    return flag && v.i ? b_transpose(b, v, perm) : v;
}

/* alpha * A' B' + beta * C; before version 7 `broadcast` allows C to be smaller, which numpy's rule covers. */
value_id rule_gemm_wide(struct rule *r, enum elem *e)
{
    struct builder *b = r->b;
    value_id a = rule_in(r, 0), w = rule_in(r, 1);
    double alpha = rule_float(r, "alpha", 1), beta = rule_float(r, "beta", 1);
    if (!a.i || !w.i)
        return (value_id){0};
    if (v_rank(b, a) != 2 || v_rank(b, w) != 2)
        return rule_bad(r, "operands of rank %d and %d", (int)v_rank(b, a), (int)v_rank(b, w)), (value_id){0};
    *e = v_elem(b, a);
    bool narrow = *e == ELEM_F16 || *e == ELEM_BF16;
    bool wide = narrow && (alpha != 1 || rule_has(r, 2));
    if (wide) {
        a = v_widen(b, a);
        w = v_widen(b, w);
    }
    bool turn_a = rule_int(r, "transA", 0) != 0, turn_w = rule_int(r, "transB", 0) != 0;
    value_id y;
    if (turn_a || !rule_matmul_dequantized(r, turn_w, &y))
        y = b_matmul(b, transposed(b, a, turn_a), transposed(b, w, turn_w));
    y = v_affine(b, y, alpha, 0);
    if (rule_has(r, 2) && beta != 0) {
        value_id c = wide ? v_widen(b, rule_in(r, 2)) : rule_in(r, 2);
        if (v_rank(b, c) > 2)
            return rule_bad(r, "C of rank %d", (int)v_rank(b, c)), (value_id){0};
        y = b_binary(b, OP_ADD, y, v_affine(b, b_broadcast_like(b, c, y), beta, 0));
    }
    return y;
}

bool rule_gemm(struct rule *r)
{
    enum elem e;
    value_id y = rule_gemm_wide(r, &e);
    return y.i && rule_result(r, b_convert(r->b, y, e));
}

/* ---- Einsum ------------------------------------------------------------------------------------------------------ */

/* Labels: letters are 0..51, dims of the ellipsis 52 + distance from its right end. A term lists the label of every
 * dim of an operand. */
enum { LABELS = 52 + RANK_MAX, MAX_TERMS = 16 };
struct term {
    value_id v;
    uint8_t label[RANK_MAX];
    int32_t rank;
};

static int letter(char c)
{
    if (c >= 'a' && c <= 'z')
        return c - 'a';
    return c >= 'A' && c <= 'Z' ? c - 'A' + 26 : -1;
}

/* Parses one term of the equation up to ',' or '-' or the end. dots: rank of its ellipsis, -1 when unknown: then
 * the term is of `rank` dims and the ellipsis has what is left. */
static bool term_parse(struct rule *r, const char **p, struct term *t, int32_t rank, int32_t dots)
{
    int32_t letters = 0;
    for (const char *q = *p; *q && *q != ',' && *q != '-'; q++)
        letters += letter(*q) >= 0;
    if (dots < 0)
        dots = rank - letters;
    t->rank = 0;
    for (; **p && **p != ',' && **p != '-'; ++*p) {
        if (**p == ' ')
            continue;
        if (strncmp(*p, "...", 3) == 0) {
            for (int32_t k = dots; k-- > 0 && t->rank < RANK_MAX;)
                t->label[t->rank++] = (uint8_t)(52 + k);
            *p += 2;
            continue;
        }
        int id = letter(**p);
        if (id < 0 || t->rank >= RANK_MAX)
            return rule_bad(r, "equation cannot be read at \"%.20s\"", *p);
        t->label[t->rank++] = (uint8_t)id;
    }
    return true;
}

static int32_t term_find(const struct term *t, uint8_t label)
{
    for (int32_t i = 0; i < t->rank; i++)
        if (t->label[i] == label)
            return i;
    return -1;
}

static void term_drop(struct term *t, int32_t i)
{
    memmove(t->label + i, t->label + i + 1, (size_t)(t->rank - i - 1));
    t->rank--;
}

/* Repeated labels within one term: the diagonal. */
static void term_diagonal(struct builder *b, struct term *t)
{
    for (int32_t i = 0; i < t->rank; i++) {
        for (int32_t k = i + 1; k < t->rank && t->v.i; k++) {
            if (t->label[k] != t->label[i])
                continue;
            expr_id dims[RANK_MAX];
            memcpy(dims, b_dims(b, t->v).d, (size_t)t->rank * sizeof *dims);
            dims[k] = ex_const(b->x, 1);
            t->v = b_squeeze(b, b_gather_elements(b, t->v, v_iota(b, ELEM_I64, dims, t->rank, i), k), k);
            term_drop(t, k--);
        }
    }
}

/* Dims of 1 where another term has more are dropped: dot needs equal ones, and the other term decides. */
static void terms_unbroadcast(struct builder *b, struct term *terms, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        for (int32_t d = 0; d < terms[i].rank && terms[i].v.i; d++) {
            bool larger = false;
            for (uint32_t k = 0; k < n; k++) {
                int32_t at = k == i ? -1 : term_find(&terms[k], terms[i].label[d]);
                larger |= at >= 0 && !ex_is(b->x, b_dim(b, terms[k].v, at), 1);
            }
            if (!larger || !ex_is(b->x, b_dim(b, terms[i].v, d), 1))
                continue;
            terms[i].v = b_squeeze(b, terms[i].v, d);
            term_drop(&terms[i], d--);
        }
    }
}

/* Sums away labels that neither the other terms nor the result need. */
static void term_reduce(struct builder *b, struct term *t, const bool needed[LABELS])
{
    int64_t axes[RANK_MAX];
    uint32_t n = 0;
    for (int32_t i = 0; i < t->rank; i++)
        if (!needed[t->label[i]])
            axes[n++] = i;
    if (!n)
        return;
    t->v = b_reduce(b, t->v, axes, n, "sum", false);
    while (n-- > 0)
        term_drop(t, (int32_t)axes[n]);
}

/* Terms of the same labels, the last one of a summed: lanes lie along what is summed, not along the results. perm: the
 * dims of c in the order of a's. */
static value_id products_summed(struct builder *b, const struct term *a, const struct term *c, const int64_t *perm,
                                const int64_t *axes, uint32_t n)
{
    return b_reduce(b, b_binary(b, OP_MUL, a->v, b_transpose(b, c->v, perm)), axes, n, "sum", false);
}

static struct term terms_multiply(struct builder *b, const struct term *a, const struct term *c,
                                  const bool needed[LABELS])
{
    struct term out = {.rank = 0};
    int64_t batch_a[RANK_MAX], batch_b[RANK_MAX], contract_a[RANK_MAX], contract_b[RANK_MAX], perm[RANK_MAX];
    uint32_t nb = 0, nc = 0;
    for (int32_t i = 0; i < a->rank; i++) {
        int32_t k = term_find(c, a->label[i]);
        if (k < 0)
            continue;
        bool keep = needed[a->label[i]];
        perm[nb + nc] = k;
        (keep ? batch_a : contract_a)[keep ? nb : nc] = i;
        (keep ? batch_b : contract_b)[keep ? nb : nc] = k;
        if (keep)
            out.label[out.rank++] = a->label[i];
        *(keep ? &nb : &nc) += 1;
    }
    for (int32_t i = 0; i < a->rank && out.rank < RANK_MAX; i++)
        if (term_find(c, a->label[i]) < 0)
            out.label[out.rank++] = a->label[i];
    for (int32_t i = 0; i < c->rank && out.rank < RANK_MAX; i++)
        if (term_find(a, c->label[i]) < 0)
            out.label[out.rank++] = c->label[i];
    enum elem e = v_elem(b, a->v);
    if (a->rank == c->rank && nb + nc == (uint32_t)a->rank && nc && contract_a[nc - 1] == a->rank - 1 &&
        (e == ELEM_F32 || e == ELEM_F64)) {
        out.v = products_summed(b, a, c, perm, contract_a, nc);
        return out;
    }
    struct attr attrs[] = {attr_ints("batch_a", batch_a, nb), attr_ints("batch_b", batch_b, nb),
                           attr_ints("contract_a", contract_a, nc), attr_ints("contract_b", contract_b, nc)};
    out.v = b_op(b, OP_DOT, ARRAY(value_id, a->v, c->v), attrs, 4);
    return out;
}

static void labels_needed(const struct term *terms, uint32_t from, uint32_t n, const struct term *result,
                          bool needed[LABELS])
{
    memset(needed, 0, LABELS * sizeof *needed);
    for (int32_t i = 0; i < result->rank; i++)
        needed[result->label[i]] = true;
    for (uint32_t k = from; k < n; k++)
        for (int32_t i = 0; i < terms[k].rank; i++)
            needed[terms[k].label[i]] = true;
}

/* Without "->": the ellipsis, then labels that occur once, in alphabetical order (upper case first). */
static void result_implicit(const struct term *terms, uint32_t n, int32_t dots, struct term *out)
{
    uint32_t count[LABELS] = {0};
    for (uint32_t k = 0; k < n; k++)
        for (int32_t i = 0; i < terms[k].rank; i++)
            count[terms[k].label[i]]++;
    out->rank = 0;
    for (int32_t k = dots; k-- > 0;)
        out->label[out->rank++] = (uint8_t)(52 + k);
    for (int i = 0; i < 52 && out->rank < RANK_MAX; i++) {
        int label = i < 26 ? i + 26 : i - 26;
        if (count[label] == 1)
            out->label[out->rank++] = (uint8_t)label;
    }
}

static bool einsum_parse(struct rule *r, struct term *terms, struct term *result)
{
    const char *p = rule_str(r, "equation", "");
    int32_t dots = 0;
    for (uint32_t i = 0; i < r->n_in; i++) {
        terms[i].v = v_widen(r->b, rule_in(r, i));
        int32_t rank = v_rank(r->b, terms[i].v), own = 0;
        if (!terms[i].v.i || !term_parse(r, &p, &terms[i], rank, -1))
            return false;
        if (terms[i].rank != rank)
            return rule_bad(r, "operand %u has rank %d, its term %d", i + 1, (int)rank, (int)terms[i].rank);
        for (int32_t d = 0; d < rank; d++)
            own += terms[i].label[d] >= 52;
        dots = own > dots ? own : dots;
        bool last = i + 1 == r->n_in;
        if (*p != (last ? '-' : ',') && !(last && !*p))
            return rule_bad(r, "the equation and the %u operands do not go together", r->n_in);
        p += *p == ',';
    }
    if (*p != '-') {
        result_implicit(terms, r->n_in, dots, result);
        return true;
    }
    p += 2;
    return term_parse(r, &p, result, 0, dots);
}

bool rule_einsum(struct rule *r)
{
    struct builder *b = r->b;
    struct term terms[MAX_TERMS], result;
    bool needed[LABELS];
    if (!r->n_in || r->n_in > MAX_TERMS)
        return rule_refuse(r, "there are %u operands", r->n_in);
    if (!einsum_parse(r, terms, &result))
        return false;
    for (uint32_t i = 0; i < r->n_in; i++)
        term_diagonal(b, &terms[i]);
    terms_unbroadcast(b, terms, r->n_in);
    struct term acc = terms[0];
    labels_needed(terms, 1, r->n_in, &result, needed);
    term_reduce(b, &acc, needed);
    for (uint32_t i = 1; i < r->n_in; i++) {
        struct term next = terms[i];
        labels_needed(terms, i + 1, r->n_in, &result, needed);
        bool with_acc[LABELS];
        memcpy(with_acc, needed, sizeof with_acc);
        for (int32_t d = 0; d < acc.rank; d++)
            with_acc[acc.label[d]] = true;
        term_reduce(b, &next, with_acc);
        acc = terms_multiply(b, &acc, &next, needed);
    }
    int64_t perm[RANK_MAX];
    if (acc.rank != result.rank)
        return rule_refuse(r, "a label of the result occurs in no operand or twice");
    for (int32_t i = 0; i < result.rank; i++) {
        perm[i] = term_find(&acc, result.label[i]);
        if (perm[i] < 0)
            return rule_bad(r, "a label of the result occurs in no operand");
    }
    value_id y = acc.v.i ? b_transpose(b, acc.v, perm) : acc.v;
    return rule_result(r, b_convert(b, y, v_elem(b, rule_in(r, 0))));
}

/* const_read against the interpreter: random expressions over constants, random ranges; and the limits of folding.
 *
 * MCC_TEST_SEED and MCC_TEST_COUNT override what is tried; a failure prints its seed. */
#include "ir/eval/field.h"
#include "ir/eval/panel.h"
#include "ir/ops/field.h"
#include "tests/ir/evaluate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t rng_state;

static uint32_t below(uint32_t n)
{
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng_state >> 33) % n;
}

/* ---- random expressions ------------------------------------------------------------------------------------------ */

enum { MAX_ELEMS = 20000 };

static value_id random_constant(struct bench *t, const int64_t *dims, int32_t rank)
{
    static float data[MAX_ELEMS];
    int64_t n = 1;
    for (int32_t i = 0; i < rank; i++)
        n *= dims[i];
    for (int64_t i = 0; i < n; i++)
        data[i] = (float)below(1000) / 8;
    return b_const(&t->b, ELEM_F32, dims, rank, data);
}

static int32_t static_dims(struct bench *t, value_id v, int64_t *dims)
{
    const struct type *type = value_type(t->g, v);
    for (int32_t i = 0; i < type->rank; i++)
        assert_true(ex_is_const(t->ctx->exprs, type->dims[i], &dims[i]));
    return type->rank;
}

static void as_exprs(struct bench *t, const int64_t *v, int32_t n, expr_id *out)
{
    for (int32_t i = 0; i < n; i++)
        out[i] = ex_const(t->ctx->exprs, v[i]);
}

static value_id random_transpose(struct bench *t, value_id v)
{
    int64_t dims[RANK_MAX], perm[RANK_MAX];
    int32_t rank = static_dims(t, v, dims);
    for (int32_t i = 0; i < rank; i++)
        perm[i] = i;
    for (int32_t i = rank - 1; i > 0; i--) {
        uint32_t k = below((uint32_t)i + 1);
        int64_t swap = perm[i];
        perm[i] = perm[k];
        perm[k] = swap;
    }
    return b_transpose(&t->b, v, perm);
}

/* Splits one dim in two, or merges two. */
static value_id random_reshape(struct bench *t, value_id v)
{
    int64_t dims[RANK_MAX], to[RANK_MAX];
    int32_t rank = static_dims(t, v, dims), n = 0;
    expr_id list[RANK_MAX];
    int32_t at = rank ? (int32_t)below((uint32_t)rank) : -1;
    for (int32_t i = 0; i < rank; i++) {
        if (i != at || rank > 6) {
            to[n++] = dims[i];
        } else if (i + 1 < rank && below(2)) {
            to[n++] = dims[i] * dims[i + 1];
            i++;
        } else {
            int64_t f = dims[i] % 3 == 0 ? 3 : dims[i] % 2 == 0 ? 2 : 1;
            to[n++] = dims[i] / f;
            to[n++] = f;
        }
    }
    as_exprs(t, to, n, list);
    return b_reshape(&t->b, v, list, n);
}

static value_id random_slice(struct bench *t, value_id v)
{
    int64_t dims[RANK_MAX], start[RANK_MAX], size[RANK_MAX], step[RANK_MAX];
    expr_id starts[RANK_MAX], sizes[RANK_MAX];
    int32_t rank = static_dims(t, v, dims);
    for (int32_t i = 0; i < rank; i++) {
        int64_t by = 1 + below(2), n = (dims[i] - 1) / by + 1;
        size[i] = n > 2 ? n - below(2) : n;
        bool back = below(3) == 0;
        step[i] = back ? -by : by;
        start[i] = back ? dims[i] - 1 : dims[i] - 1 - (size[i] - 1) * by;
    }
    as_exprs(t, start, rank, starts);
    as_exprs(t, size, rank, sizes);
    return b_slice(&t->b, v, starts, sizes, step);
}

static value_id random_pad(struct bench *t, value_id v)
{
    int64_t dims[RANK_MAX], lo[RANK_MAX], hi[RANK_MAX];
    expr_id los[RANK_MAX], his[RANK_MAX];
    int32_t rank = static_dims(t, v, dims);
    for (int32_t i = 0; i < rank; i++) {
        lo[i] = below(2);
        hi[i] = below(2);
    }
    as_exprs(t, lo, rank, los);
    as_exprs(t, hi, rank, his);
    value_id fill = below(2) ? b_scalar_f64(&t->b, ELEM_F32, 7) : (value_id){0};
    return b_pad(&t->b, v, fill, los, his, below(6) ? "constant" : "edge");
}

static value_id random_concat(struct bench *t, value_id v)
{
    int64_t dims[RANK_MAX];
    int32_t rank = static_dims(t, v, dims);
    if (rank == 0)
        return v;
    uint32_t axis = below((uint32_t)rank);
    dims[axis] = 1 + below(3);
    value_id parts[3] = {random_constant(t, dims, rank), v, random_constant(t, dims, rank)};
    return b_concat(&t->b, parts, 3, (int32_t)axis);
}

/* With a constant of some of v's dims, broadcast: what folding a scale into weights looks like. */
static value_id random_binary(struct bench *t, value_id v)
{
    static const enum op ops[] = {OP_ADD, OP_SUB, OP_MUL, OP_MAX};
    int64_t dims[RANK_MAX];
    int32_t rank = static_dims(t, v, dims);
    for (int32_t i = 0; i < rank; i++)
        if (below(2))
            dims[i] = 1;
    return b_binary(&t->b, ops[below(COUNT_OF(ops))], v, random_constant(t, dims, rank));
}

static value_id random_broadcast(struct bench *t, value_id v)
{
    int64_t dims[RANK_MAX];
    expr_id list[RANK_MAX];
    int32_t rank = static_dims(t, v, dims);
    if (rank > 5)
        return v;
    memmove(dims + 1, dims, (size_t)rank * sizeof *dims);
    dims[0] = 1 + below(3);
    as_exprs(t, dims, rank + 1, list);
    return b_broadcast(&t->b, v, list, rank + 1);
}

/* By a matrix of positive and negative indices, so that the rank grows. */
static value_id random_gather(struct bench *t, value_id v)
{
    int64_t dims[RANK_MAX], idx[6];
    int32_t rank = static_dims(t, v, dims), axis;
    if (rank == 0 || rank > 5 || dims[axis = (int32_t)below((uint32_t)rank)] == 0)
        return v;
    const int64_t shape[2] = {1 + below(2), 1 + below(3)};
    for (int i = 0; i < 6; i++)
        idx[i] = (int64_t)below((uint32_t)dims[axis] * 2) - dims[axis];
    return b_gather(&t->b, v, b_const(&t->b, ELEM_I64, shape, 2, idx), axis);
}

static value_id random_other(struct bench *t, value_id v)
{
    int64_t axis = 0;
    switch (below(4)) {
    case 0: return b_unary(&t->b, OP_NEG, v);
    case 1: return b_convert(&t->b, b_convert(&t->b, v, ELEM_I32), ELEM_F32);
    case 2: return value_type(t->g, v)->rank > 2 ? b_reduce(&t->b, v, &axis, 1, "max", false) : v;
    default:
        return b_select(&t->b, b_binary(&t->b, OP_LT, v, b_splat_like(&t->b, v, 60)), v, b_unary(&t->b, OP_NEG, v));
    }
}

typedef value_id random_fn(struct bench *, value_id);
static random_fn *const steps[] = {
    random_transpose, random_reshape,   random_slice,  random_pad,   random_concat,
    random_binary,    random_broadcast, random_gather, random_other,
};

static int64_t count_of(struct bench *t, value_id v)
{
    int64_t n;
    assert_true(ex_is_const(t->ctx->exprs, b_count(&t->b, v), &n));
    return n;
}

static void try_expression(uint64_t seed)
{
    struct bench t;
    struct tensor want;
    const char *text;
    int64_t dims[4];
    bench_open(&t);
    rng_state = seed;
    int32_t rank = 1 + (int32_t)below(4);
    for (int32_t i = 0; i < rank; i++)
        dims[i] = 1 + below(i < 2 ? 9 : 6);
    value_id v = random_constant(&t, dims, rank);
    for (uint32_t k = 1 + below(9); k > 0; k--) {
        value_id next = steps[below(COUNT_OF(steps))](&t, v);
        assert_true(next.i != 0);
        v = count_of(&t, next) <= MAX_ELEMS ? next : v;
    }
    assert_true(value_is_const(t.g, v));
    if (bench_eval(&t, v, &want, &text) != EVAL_OK)
        fail_msg("seed %llu: %s", (unsigned long long)seed, text);
    int64_t n = count_of(&t, v);
    float *got = malloc((size_t)n * sizeof *got + 8);
    for (int k = 0; k < 6; k++) {
        int64_t first = k ? below((uint32_t)n) : 0, size = k ? 1 + below((uint32_t)(n - first)) : n;
        if (!const_read(t.g, v, first, size, got))
            fail_msg("seed %llu: %s", (unsigned long long)seed, last_error(t.ctx));
        if (memcmp(got, (float *)want.data + first, (size_t)size * sizeof *got) != 0)
            fail_msg("seed %llu: elements %lld + %lld differ", (unsigned long long)seed, (long long)first,
                     (long long)size);
    }
    const char *lies = const_bytes(t.g, v);
    if (lies && memcmp(lies, want.data, (size_t)n * sizeof *got) != 0)
        fail_msg("seed %llu: what lies in memory differs", (unsigned long long)seed);
    free(got);
    bench_close(&t);
}

static void test_random(void **state)
{
    const char *seed = getenv("MCC_TEST_SEED"), *count = getenv("MCC_TEST_COUNT");
    uint64_t first = seed ? strtoull(seed, NULL, 10) : 1, n = count ? strtoull(count, NULL, 10) : 1500;
    (void)state;
    for (uint64_t i = 0; i < n; i++)
        try_expression(first + i);
}

/* ---- limits ------------------------------------------------------------------------------------------------------ */

/* A long chain is neither deep recursion nor a wrong answer. */
static void test_long_chain(void **state)
{
    struct bench t;
    float got[3];
    (void)state;
    bench_open(&t);
    value_id v = bench_const(&t, "f32 3: 1 2 3");
    for (int i = 0; i < 20000; i++)
        v = b_unary(&t.b, OP_NEG, v);
    assert_true(const_read(t.g, v, 0, 3, got));
    assert_true(got[0] == 1 && got[2] == 3);
    bench_close(&t);
}

/* A constant lies in memory as it is, reshaped as well; what is computed does not. */
static void test_what_lies_in_memory(void **state)
{
    struct bench t;
    const float want[] = {1, 2, 3};
    (void)state;
    bench_open(&t);
    value_id v = bench_const(&t, "f32 3: 1 2 3");
    expr_id dims[] = {ex_const(t.ctx->exprs, 3), ex_const(t.ctx->exprs, 1)};
    const char *lies = const_bytes(t.g, v);
    assert_non_null(lies);
    assert_memory_equal(lies, want, sizeof want);
    assert_ptr_equal(const_bytes(t.g, b_reshape(&t.b, v, dims, 2)), lies);
    assert_null(const_bytes(t.g, b_unary(&t.b, OP_NEG, v)));
    bench_close(&t);
}

/* v + v + ... doubles the paths at every level: each element must not be read 2^40 times. */
static void test_diamonds(void **state)
{
    struct bench t;
    float got;
    (void)state;
    bench_open(&t);
    value_id v = bench_const(&t, "f32 2: 1 2");
    for (int i = 0; i < 40; i++)
        v = b_binary(&t.b, OP_ADD, v, v);
    assert_true(const_read(t.g, v, 1, 1, &got));
    assert_true(got == 2 * 1099511627776.0f);
    bench_close(&t);
}

static void test_folding_is_bounded(void **state)
{
    struct bench t;
    (void)state;
    bench_open(&t);
    expr_id dims[2] = {ex_const(t.ctx->exprs, 1 << 20), ex_const(t.ctx->exprs, 1 << 10)};
    value_id big = b_broadcast(&t.b, bench_const(&t, "f32: 3"), dims, 2);
    float got[4];
    assert_true(value_is_const(t.g, big));
    assert_null(value_fold(t.g, big));
    assert_int_equal(t.ctx->fail, FAIL_LIMIT);
    assert_non_null(strstr(last_error(t.ctx), "4294967296 bytes"));
    assert_true(const_read(t.g, b_unary(&t.b, OP_NEG, big), (int64_t)1 << 29, 4, got));
    assert_true(got[0] == -3 && got[3] == -3);
    bench_close(&t);
}

/* Rows of a small table, 4 GiB of them: the result is never there as a whole, and indices are checked before it is
 * read. */
static void test_gathers_are_read(void **state)
{
    (void)state;
    for (int outside = 0; outside < 2; outside++) {
        struct bench t;
        float got[4];
        bench_open(&t);
        expr_id dims[2] = {ex_const(t.ctx->exprs, 2), ex_const(t.ctx->exprs, 1 << 29)};
        value_id table = b_broadcast(&t.b, bench_const(&t, "f32 2 1: 7 9"), dims, 2);
        value_id rows = b_gather(&t.b, table, bench_const(&t, outside ? "i64 2: -1 2" : "i64 2: -1 0"), 0);
        graph_add_result(t.g, t.b.region, rows);
        assert_int_equal(constants_settle(t.g), !outside);
        if (outside)
            assert_non_null(strstr(last_error(t.ctx), "an index of a constant is outside of the dim"));
        else
            assert_true(const_read(t.g, rows, ((int64_t)1 << 29) - 2, 4, got) && got[1] == 9 && got[2] == 7);
        bench_close(&t);
    }
}

/* What takes too many operators to be read element by element is folded before it is spread, not after: 2^30 elements
 * of it are read. */
static void test_dear_ones_are_folded_small(void **state)
{
    struct bench t;
    float got[4];
    (void)state;
    bench_open(&t);
    expr_id dims[2] = {ex_const(t.ctx->exprs, 1 << 29), ex_const(t.ctx->exprs, 2)};
    value_id dear = bench_const(&t, "f32 2: 3 -5");
    for (int k = 0; k < 99; k++)
        dear = b_unary(&t.b, OP_NEG, dear);
    value_id sum = b_binary(&t.b, OP_ADD, b_broadcast(&t.b, dear, dims, 2), b_broadcast(&t.b, dear, dims, 2));
    assert_true(const_read(t.g, sum, (int64_t)1 << 29, 4, got));
    assert_true(got[0] == -6 && got[1] == 10 && got[2] == -6 && got[3] == 10);
    bench_close(&t);
}

static void test_what_is_constant(void **state)
{
    struct bench t;
    double x;
    int64_t v[2];
    (void)state;
    bench_open(&t);
    value_id c = bench_const(&t, "f32 2: 1 2"), in = bench_symbolic(&t, "n", "f32 2: 1 2");
    assert_true(value_is_const(t.g, b_unary(&t.b, OP_NEG, c)));
    assert_false(value_is_const(t.g, in));
    assert_false(value_is_const(t.g, b_unary(&t.b, OP_NEG, in)));
    /* a constant spread over a run-time extent is not one */
    assert_false(value_is_const(t.g, b_splat_like(&t.b, in, 2)));
    assert_false(value_const_f64(t.g, c, &x, 1));
    assert_true(value_const_i64(t.g, b_unary(&t.b, OP_NEG, c), v, 2));
    assert_true(v[0] == -1 && v[1] == -2);
    bench_close(&t);
}

static void test_traps_are_reported(void **state)
{
    struct bench t;
    (void)state;
    bench_open(&t);
    value_id x = bench_const(&t, "i16 100: 0"), y = b_binary(&t.b, OP_DIV, x, x);
    assert_true(y.i != 0);
    assert_null(value_fold(t.g, y));
    assert_non_null(strstr(last_error(t.ctx), "division by zero"));
    bench_close(&t);
}

/* Sums over every choice of four dims: some lie side by side, and are read as one. */
static void test_sums_over_dims(void **state)
{
    const int64_t dims[4] = {2, 3, 4, 5};
    int32_t data[120];
    (void)state;
    for (int32_t i = 0; i < 120; i++)
        data[i] = i == 7 ? INT32_MAX : i * i % 97;
    for (uint32_t set = 1; set < 16; set++) {
        struct bench t;
        uint32_t sums[120] = {0}, n = 0;
        int64_t axes[4];
        bench_open(&t);
        for (uint32_t d = 0; d < 4; d++)
            if (set >> d & 1)
                axes[n++] = d;
        for (uint32_t i = 0; i < 120; i++) {
            uint32_t at[4] = {i / 60, i / 20 % 3, i / 5 % 4, i % 5}, to = 0;
            for (uint32_t d = 0; d < 4; d++)
                to = set >> d & 1 ? to : to * (uint32_t)dims[d] + at[d];
            sums[to] += (uint32_t)data[i];
        }
        value_id v = b_reduce(&t.b, b_const(&t.b, ELEM_I32, dims, 4, data), axes, n, "sum", false);
        const struct tensor_data *sum = value_fold(t.g, v);
        assert_non_null(sum);
        assert_memory_equal(sum->bytes.data, sums, (size_t)count_of(&t, v) * sizeof *sums);
        bench_close(&t);
    }
}

/* What cannot be read piece by piece is folded, with an error of the model where that fails, once something that is
 * computed reads it. */
static void test_settling(void **state)
{
    for (int read = 0; read < 2; read++)
        for (int traps = 0; traps < 2; traps++) {
            struct bench t;
            int64_t all[1] = {0};
            bench_open(&t);
            value_id in = bench_symbolic(&t, "n", "i16 3: 1 2 3"),
                     c = bench_const(&t, traps ? "i16 3: 0 0 0" : "i16 3: 5 5 5");
            value_id sum = b_reduce(&t.b, b_binary(&t.b, OP_DIV, c, c), all, 1, "sum", false);
            graph_add_result(t.g, t.b.region,
                             read ? b_binary(&t.b, OP_MUL, in, b_broadcast(&t.b, sum, value_type(t.g, in)->dims, 1))
                                  : in);
            assert_int_equal(constants_settle(t.g), !(read && traps));
            assert_int_equal(t.ctx->n_errors, read && traps);
            if (read && traps)
                assert_non_null(strstr(last_error(t.ctx), "division by zero"));
            bench_close(&t);
        }
    (void)state;
}

/* mcc prove: what stands for a folded number is what the expression is in the field, if the code has that number. */
static void test_folded_in_the_field(void **state)
{
    struct bench t;
    uint32_t residue = 0;
    (void)state;
    bench_open(&t);
    value_id c = b_binary(&t.b, OP_DIV, bench_const(&t, "f32 1: 3"), bench_const(&t, "f32 1: 7"));
    assert_true(field_number(t.g, c, (double)(3.0f / 7.0f), &residue));
    assert_int_equal(residue, field_of((double)(3.0f / 7.0f)));
    assert_false(field_number(t.g, c, 7.0 / 3.0, &residue));
    assert_false(field_number(t.g, c, 0, &residue));
    assert_false(field_number(t.g, c, (double)NAN, &residue));
    bench_close(&t);
}

/* Fractions, numbers of 53 bits, and what a float holds no fraction of. */
static void test_numbers_in_the_field(void **state)
{
    (void)state;
    assert_int_equal(field_of(0.5), FIELD_HALF);
    assert_int_equal(field_apply(OP_ADD, FIELD_HALF, FIELD_HALF), FIELD_ONE);
    assert_int_equal(field_of(0), 0);
    assert_int_equal(field_of(0x1p-151), 0);
    for (int i = 1; i < 40; i++) {
        const double x = ldexp(16777213.0, -i * 4); /* no fraction, except for the first ones */
        assert_int_equal(field_apply(OP_ADD, field_of(x / 2), field_of(x / 2)), field_of(x));
        assert_int_equal(field_apply(OP_MUL, field_of((double)((float)i / 1023)), field_of_integer(1023)),
                         field_of_integer(i));
    }
}

/* All fractions and some other floats, as one by one. */
static void test_many_numbers_in_the_field(void **state)
{
    enum { N = 1100 };
    static unsigned char sieve[FIELD_SIEVE];
    static float x[N];
    static uint32_t residues[N];
    (void)state;
    field_sieve(sieve);
    for (int q = 1; q <= FIELD_FRACTIONS + 1; q++) {
        for (int p = 0; p < N; p++) {
            uint32_t bits = below(UINT32_MAX);
            x[p] = (float)((double)(p % 2 ? p : -p) / q);
            if (p > q)
                memcpy(&x[p], &bits, sizeof bits);
        }
        field_of_floats(sieve, x, residues, N);
        for (int p = 0; p < N; p++)
            if (residues[p] != field_of(x[p]))
                fail_msg("%a is %u, and %u among many", (double)x[p], field_of(x[p]), residues[p]);
    }
}

/* Equal constants of two graphs have their residues in the same memory. */
static void test_shared_constants(void **state)
{
    static float data[1 << 13];
    const int64_t dims[] = {COUNT_OF(data)};
    struct bench t[2];
    struct field_constants constants = {.sieve = NULL};
    const uint32_t *residues[3];
    (void)state;
    for (size_t i = 0; i < COUNT_OF(data); i++)
        data[i] = (float)below(1000) / 7;
    for (int i = 0; i < 2; i++) {
        bench_open(&t[i]);
        value_id v = b_const(&t[i].b, ELEM_F32, dims, 1, data);
        data[0]++;
        value_id w = b_const(&t[i].b, ELEM_F32, dims, 1, data);
        data[0]--;
        graph_enter_field(t[i].g, &constants);
        residues[i] = node_attr(value_node(t[i].g, v), "data")->u.data.data;
        residues[2] = node_attr(value_node(t[i].g, w), "data")->u.data.data;
        assert_int_equal(residues[i][0], field_of(data[0]));
        assert_int_equal(residues[2][0], field_of(data[0] + 1));
        assert_int_equal(residues[2][1], field_of(data[1]));
    }
    assert_ptr_equal(residues[0], residues[1]);
    assert_int_equal(constants.of.n, 2);
    for (int i = 0; i < 2; i++)
        bench_close(&t[i]);
}

/* Panels of each kind that the CPU has, at the ends of what sums hold. */
static void test_panels_in_the_field(void **state)
{
    enum { MOST = 4100 };
    static const int64_t ks[] = {0, 1, 3, 4, 5, 8, 100, 2047, 2048, 2049, MOST};
    static union word a[MOST * PANEL_MOST], b[MOST * PANEL_MOST];
    union word c[PANEL_MOST * PANEL_MOST];
    struct panel panels[PANELS_MOST];
    (void)state;
    for (uint32_t i = 0; i < panels_of(FIELD, panels); i++)
        for (size_t j = 0; j < COUNT_OF(ks); j++)
            for (int64_t rows = 1; rows <= panels[i].width; rows++) {
                const int64_t width = panels[i].width, k = ks[j];
                for (int64_t e = 0; e < k * width; e++) {
                    a[e].u = rows == 1 ? FIELD_N - 1 : below(FIELD_N);
                    b[e].u = rows <= 2 ? FIELD_N - 1 : below(3) ? below(FIELD_N) : FIELD_MINUS_INF;
                }
                panels[i].multiply(a, b, k, rows, c);
                for (int64_t e = 0; e < rows * width; e++) {
                    int64_t want = 0;
                    for (int64_t s = 0; s < k; s++)
                        want = field_apply(OP_ADD, want,
                                           field_apply(OP_MUL, a[s * width + e / width].i, b[s * width + e % width].i));
                    assert_int_equal(c[e].u, want);
                }
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_long_chain),
        cmocka_unit_test(test_diamonds),
        cmocka_unit_test(test_folding_is_bounded),
        cmocka_unit_test(test_gathers_are_read),
        cmocka_unit_test(test_what_is_constant),
        cmocka_unit_test(test_traps_are_reported),
        cmocka_unit_test(test_sums_over_dims),
        cmocka_unit_test(test_settling),
        cmocka_unit_test(test_folded_in_the_field),
        cmocka_unit_test(test_numbers_in_the_field),
        cmocka_unit_test(test_many_numbers_in_the_field),
        cmocka_unit_test(test_shared_constants),
        cmocka_unit_test(test_panels_in_the_field),
        cmocka_unit_test(test_dear_ones_are_folded_small),
        cmocka_unit_test(test_what_lies_in_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

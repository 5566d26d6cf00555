/* The interpreter: arithmetic of every type against C, memory with its checks, undefined lanes, control, programs. */
#include "loops.h"

#include <math.h>
#include <string.h>

/* ---- arithmetic against C ---------------------------------------------------------------------------------------- */

enum { N = 64 };

/* out[i] = op(a[i], b[i], c[i]) over N elements in vectors of 8 */
static void run_op(struct context *ctx, const char *op, const char *type, const char *result, uint32_t n_in,
                   const void *a, const void *b, const void *c, void *out, size_t size, size_t result_size)
{
    static const char *const operands[] = {"", "%11", "%11, %12", "%11, %12, %13"};
    char *text = arena_printf(
        &ctx->session,
        "kernel @k { arg %%0 : buffer %s in arg %%1 : buffer %s in arg %%2 : buffer %s in arg %%3 : buffer %s out "
        "%%4 = const index 0 %%5 = const index 8 parallel %%6 = %%4 to %%5 { %%10 = mul index %%6, %%5 "
        "%%11 = load %sx8 %%0[%%10] %%12 = load %sx8 %%1[%%10] %%13 = load %sx8 %%2[%%10] "
        "%%14 = %s %sx8 %s store %%3[%%10], %%14 } }",
        type, type, type, result, type, type, type, op, result, operands[n_in]);
    struct linterp_arg args[] = {{.buffer = {(void *)(uintptr_t)a, (int64_t)(N * size)}},
                                 {.buffer = {(void *)(uintptr_t)b, (int64_t)(N * size)}},
                                 {.buffer = {(void *)(uintptr_t)c, (int64_t)(N * size)}},
                                 {.buffer = {out, (int64_t)(N * result_size)}}};
    struct linterp_result r = lf_interpret(loops_load(ctx, text), args, 0, 8, NULL);
    if (r.code)
        fail_msg("%s %s: %s", op, type, r.text);
}

/* Elements that meet each other in all pairs: extremes, small numbers, then bits at random. */
#define FILL(T, a, b, c)                                                                 \
    do {                                                                                 \
        const T ends[8] = {0, 1, 2, (T) - 1, (T)((T) ~(T)0 / 2), (T) - 128, 5, (T) - 3}; \
        for (int i_ = 0; i_ < N; i_++) {                                                 \
            (a)[i_] = ends[i_ / 8];                                                      \
            (b)[i_] = ends[i_ % 8];                                                      \
            (c)[i_] = (T)(i_ * 77 - 1000);                                               \
        }                                                                                \
        (a)[7] = (T)(UINT64_C(1) << (sizeof(T) * 8 - 1));                                \
        (b)[7] = (T) - 1;                                                                \
    } while (0)

#define CHECK_INT(T, type, op, n_in, guard, expression)                                                          \
    do {                                                                                                         \
        T a[N], b[N], c[N], r[N];                                                                                \
        FILL(T, a, b, c);                                                                                        \
        for (int i = 0; i < N; i++)                                                                              \
            if (!(guard))                                                                                        \
                b[i] = 3;                                                                                        \
        run_op(ctx, op, type, type, n_in, a, b, c, r, sizeof(T), sizeof(T));                                     \
        for (int i = 0; i < N; i++) {                                                                            \
            T want = (T)(expression);                                                                            \
            if (r[i] != want)                                                                                    \
                fail_msg("%s %s(%lld, %lld, %lld) = %lld, not %lld", op, type, (long long)a[i], (long long)b[i], \
                         (long long)c[i], (long long)r[i], (long long)want);                                     \
        }                                                                                                        \
    } while (0)

#define CHECK_COMPARE(T, type, op, expression)                      \
    do {                                                            \
        T a[N], b[N], c[N];                                         \
        uint8_t r[N];                                               \
        FILL(T, a, b, c);                                           \
        run_op(ctx, op, type, "bool", 2, a, b, c, r, sizeof(T), 1); \
        for (int i = 0; i < N; i++)                                 \
            assert_int_equal(r[i], expression);                     \
    } while (0)

#define IS_MIN(T) (a[i] == (T)(UINT64_C(1) << (sizeof(T) * 8 - 1)) && b[i] == (T) - 1)

/* What C says about an unsigned or narrow type computed in a type W that is wide enough. */
#define INT_TESTS(T, W, U, type)                                                                                 \
    static void test_##type(void **state)                                                                        \
    {                                                                                                            \
        struct context *ctx = *state;                                                                            \
        const int width = (int)sizeof(T) * 8;                                                                    \
        const bool is_signed = (T) - 1 < (T)1;                                                                   \
        CHECK_INT(T, #type, "add", 2, true, (U)a[i] + (U)b[i]);                                                  \
        CHECK_INT(T, #type, "sub", 2, true, (U)a[i] - (U)b[i]);                                                  \
        CHECK_INT(T, #type, "mul", 2, true, (uint64_t)a[i] * (uint64_t)b[i]);                                    \
        CHECK_INT(T, #type, "fma", 3, true, (uint64_t)a[i] * (uint64_t)b[i] + (uint64_t)c[i]);                   \
        CHECK_INT(T, #type, "neg", 1, true, 0 - (U)a[i]);                                                        \
        CHECK_INT(T, #type, "abs", 1, true, a[i] < (T)1 && a[i] != 0 ? 0 - (U)a[i] : (U)a[i]);                   \
        CHECK_INT(T, #type, "not", 1, true, ~a[i]);                                                              \
        CHECK_INT(T, #type, "div", 2, b[i] != 0, IS_MIN(T) && is_signed ? a[i] : (T)(a[i] / b[i]));              \
        CHECK_INT(T, #type, "rem", 2, b[i] != 0, IS_MIN(T) && is_signed ? 0 : (T)(a[i] % b[i]));                 \
        CHECK_INT(T, #type, "floordiv", 2, b[i] > 0,                                                             \
                  (T)floor((double)((W)a[i] / (W)b[i])) - ((W)a[i] % (W)b[i] < (W)1 && (W)a[i] % (W)b[i] != 0)); \
        CHECK_INT(T, #type, "floormod", 2, b[i] > 0, ((W)a[i] % (W)b[i] + (W)b[i]) % (W)b[i]);                   \
        CHECK_INT(T, #type, "min", 2, true, a[i] < b[i] ? a[i] : b[i]);                                          \
        CHECK_INT(T, #type, "max", 2, true, a[i] > b[i] ? a[i] : b[i]);                                          \
        CHECK_INT(T, #type, "and", 2, true, a[i] & b[i]);                                                        \
        CHECK_INT(T, #type, "or", 2, true, a[i] | b[i]);                                                         \
        CHECK_INT(T, #type, "xor", 2, true, a[i] ^ b[i]);                                                        \
        CHECK_INT(T, #type, "shl", 2, true, (U)b[i] >= (U)width ? 0 : (U)a[i] << (U)b[i]);                       \
        CHECK_INT(T, #type, "shr", 2, true,                                                                      \
                  (U)b[i] < (U)width                 ? (T)(a[i] >> b[i])                                         \
                  : is_signed && a[i] < (T)1 && a[i] ? (T) - 1                                                   \
                                                     : (T)0);                                                    \
        CHECK_COMPARE(T, #type, "eq", a[i] == b[i]);                                                             \
        CHECK_COMPARE(T, #type, "ne", a[i] != b[i]);                                                             \
        CHECK_COMPARE(T, #type, "lt", a[i] < b[i]);                                                              \
        CHECK_COMPARE(T, #type, "le", a[i] <= b[i]);                                                             \
    }
INT_TESTS(int8_t, int64_t, uint8_t, i8)
INT_TESTS(int16_t, int64_t, uint16_t, i16)
INT_TESTS(int32_t, int64_t, uint32_t, i32)
INT_TESTS(uint8_t, uint64_t, uint8_t, u8)
INT_TESTS(uint16_t, uint64_t, uint16_t, u16)
INT_TESTS(uint32_t, uint64_t, uint32_t, u32)

#define CHECK_FLOAT(T, type, op, n_in, expression)                                                                    \
    do {                                                                                                              \
        T r[N];                                                                                                       \
        run_op(ctx, op, type, type, n_in, a, b, c, r, sizeof(T), sizeof(T));                                          \
        for (int i = 0; i < N; i++) {                                                                                 \
            T want = (T)(expression);                                                                                 \
            if (memcmp(&r[i], &want, sizeof want) != 0 && !(isnan(r[i]) && isnan(want)) && !(r[i] == 0 && want == 0)) \
                fail_msg("%s %s(%a, %a, %a) = %a, not %a", op, type, (double)a[i], (double)b[i], (double)c[i],        \
                         (double)r[i], (double)want);                                                                 \
        }                                                                                                             \
    } while (0)

#define FLOAT_TESTS(T, type, fabs_, sqrt_, floor_, ceil_, rint_, trunc_, fmod_, fma_)                     \
    static void test_##type(void **state)                                                                 \
    {                                                                                                     \
        struct context *ctx = *state;                                                                     \
        static const T ends[8] = {0, (T) - 0.0, 1.5, (T) - 2.5, INFINITY, NAN, (T)1e-40, (T)3e38};        \
        T a[N], b[N], c[N];                                                                               \
        for (int i = 0; i < N; i++) {                                                                     \
            a[i] = ends[i / 8];                                                                           \
            b[i] = ends[i % 8];                                                                           \
            c[i] = (T)i / 3 - 10;                                                                         \
        }                                                                                                 \
        CHECK_FLOAT(T, #type, "add", 2, a[i] + b[i]);                                                     \
        CHECK_FLOAT(T, #type, "sub", 2, a[i] - b[i]);                                                     \
        CHECK_FLOAT(T, #type, "mul", 2, a[i] * b[i]);                                                     \
        CHECK_FLOAT(T, #type, "div", 2, a[i] / b[i]);                                                     \
        CHECK_FLOAT(T, #type, "rem", 2, fmod_(a[i], b[i]));                                               \
        CHECK_FLOAT(T, #type, "fma", 3, fma_(a[i], b[i], c[i]));                                          \
        CHECK_FLOAT(T, #type, "neg", 1, -a[i]);                                                           \
        CHECK_FLOAT(T, #type, "abs", 1, fabs_(a[i]));                                                     \
        CHECK_FLOAT(T, #type, "sqrt", 1, sqrt_(a[i]));                                                    \
        CHECK_FLOAT(T, #type, "floor", 1, floor_(a[i]));                                                  \
        CHECK_FLOAT(T, #type, "ceil", 1, ceil_(a[i]));                                                    \
        CHECK_FLOAT(T, #type, "rint", 1, rint_(a[i]));                                                    \
        CHECK_FLOAT(T, #type, "trunc", 1, trunc_(a[i]));                                                  \
        CHECK_FLOAT(T, #type, "min", 2, isnan(a[i]) || isnan(b[i]) ? (T)NAN : a[i] < b[i] ? a[i] : b[i]); \
        CHECK_FLOAT(T, #type, "max", 2, isnan(a[i]) || isnan(b[i]) ? (T)NAN : a[i] > b[i] ? a[i] : b[i]); \
        CHECK_FLOAT(T, #type, "minnum", 2, a[i] < b[i] ? a[i] : b[i]);                                    \
        CHECK_FLOAT(T, #type, "maxnum", 2, a[i] > b[i] ? a[i] : b[i]);                                    \
        uint8_t r[N];                                                                                     \
        run_op(ctx, "lt", #type, "bool", 2, a, b, c, r, sizeof(T), 1);                                    \
        for (int i = 0; i < N; i++)                                                                       \
            assert_int_equal(r[i], a[i] < b[i]);                                                          \
        run_op(ctx, "le", #type, "bool", 2, a, b, c, r, sizeof(T), 1);                                    \
        for (int i = 0; i < N; i++)                                                                       \
            assert_int_equal(r[i], a[i] <= b[i]);                                                         \
        run_op(ctx, "ne", #type, "bool", 2, a, b, c, r, sizeof(T), 1);                                    \
        for (int i = 0; i < N; i++)                                                                       \
            assert_int_equal(r[i], a[i] != b[i]);                                                         \
        run_op(ctx, "eq", #type, "bool", 2, a, b, c, r, sizeof(T), 1);                                    \
        for (int i = 0; i < N; i++)                                                                       \
            assert_int_equal(r[i], a[i] == b[i]);                                                         \
    }
FLOAT_TESTS(float, f32, fabsf, sqrtf, floorf, ceilf, rintf, truncf, fmodf, fmaf)
FLOAT_TESTS(double, f64, fabs, sqrt, floor, ceil, rint, trunc, fmod, fma)

/* Finite f16 as a whole number of 2^-24. */
static int64_t half_to_whole(uint16_t h)
{
    int64_t exponent = h >> 10 & 31, mantissa = h & 1023;
    int64_t x = exponent ? (mantissa + 1024) << (exponent - 1) : mantissa;
    return h & 0x8000 ? -x : x;
}

__extension__ typedef __int128 int128;
__extension__ typedef unsigned __int128 uint128;

/* A whole number of 2^-48 as the nearest f16, of two as near ones the even. */
static uint16_t whole_to_half(int128 x)
{
    uint16_t sign = x < 0 ? 0x8000 : 0;
    uint128 m = x < 0 ? -(uint128)x : (uint128)x;
    uint32_t drop = 24;
    while (m >> drop >= 2048)
        drop++;
    uint128 half = (uint128)1 << (drop - 1), rest = m & (2 * half - 1);
    uint64_t q = (uint64_t)(m >> drop);
    q += rest > half || (rest == half && q & 1);
    uint64_t bits = ((uint64_t)(drop - 24) << 10) + q; /* a carry goes into the exponent; below 1024: subnormal */
    return sign | (uint16_t)(bits > 0x7c00 ? 0x7c00 : bits);
}

/* fma of f16 rounds once: against sums in whole numbers. */
static void test_f16(void **state)
{
    struct context *ctx = *state;
    /* beside the random ones: 1 + 2^-11 and a little, either side of the middle; the ends of the range */
    static const uint16_t ends[][3] = {{0x1001, 0x3bff, 0x3c00}, {0x1001, 0x3c00, 0x3c00}, {0x0fff, 0x3c00, 0x3c00},
                                       {0x1000, 0x3c00, 0x3c01}, {0x0001, 0x0001, 0x3c00}, {0x8001, 0x0001, 0x3c00},
                                       {0x7bff, 0x7bff, 0xfbff}, {0x7bff, 0x4000, 0xfbff}, {0x0001, 0x3800, 0x0001},
                                       {0x0001, 0x3800, 0x0000}, {0x0003, 0x3800, 0x8000}, {0x3c00, 0x4bff, 0x7bff}};
    uint64_t seed = 9;
    for (int draw = 0; draw < 2000; draw++) {
        uint16_t in[3][N], r[N];
        for (int i = 0; i < N; i++)
            for (int o = 0; o < 3; o++) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                uint16_t h = (uint16_t)(seed >> 40);
                h = (h & 0x7c00) == 0x7c00 ? h & 0x83ff : h;
                in[o][i] = !draw && i < (int)COUNT_OF(ends) ? ends[i][o] : h;
            }
        run_op(ctx, "fma", "f16", "f16", 3, in[0], in[1], in[2], r, 2, 2);
        for (int i = 0; i < N; i++) {
            int128 sum = (int128)half_to_whole(in[0][i]) * half_to_whole(in[1][i]);
            uint16_t want = whole_to_half(sum + (int128)half_to_whole(in[2][i]) * (1 << 24));
            if (r[i] != want && ((r[i] | want) & 0x7fff))
                fail_msg("fma f16(%x, %x, %x) = %x, not %x", in[0][i], in[1][i], in[2][i], r[i], want);
        }
    }
}

/* 64 bits: the cases where C itself would overflow */
static void test_i64(void **state)
{
    struct context *ctx = *state;
    int64_t a[N], b[N], c[N], r[N];
    for (int i = 0; i < N; i++) {
        a[i] = i % 2 ? INT64_MIN : INT64_MAX;
        b[i] = i % 4 < 2 ? -1 : 7;
        c[i] = i;
    }
    run_op(ctx, "div", "i64", "i64", 2, a, b, c, r, 8, 8);
    assert_true(r[1] == INT64_MIN && r[0] == -INT64_MAX && r[2] == INT64_MAX / 7 && r[3] == INT64_MIN / 7);
    run_op(ctx, "rem", "i64", "i64", 2, a, b, c, r, 8, 8);
    assert_true(r[1] == 0 && r[3] == INT64_MIN % 7);
    run_op(ctx, "add", "i64", "i64", 2, a, b, c, r, 8, 8);
    assert_true(r[1] == INT64_MAX && r[2] == INT64_MIN + 6);
    for (int i = 0; i < N; i++)
        b[i] = 7;
    run_op(ctx, "floordiv", "i64", "i64", 2, a, b, c, r, 8, 8);
    assert_true(r[1] == INT64_MIN / 7 - 1 && r[0] == INT64_MAX / 7);
    run_op(ctx, "floormod", "i64", "i64", 2, a, b, c, r, 8, 8);
    assert_true(r[1] == INT64_MIN % 7 + 7 && r[0] == INT64_MAX % 7);
    run_op(ctx, "div", "u64", "u64", 2, a, b, c, r, 8, 8);
    assert_true((uint64_t)r[1] == (UINT64_C(1) << 63) / 7);
}

static void test_bool(void **state)
{
    struct context *ctx = *state;
    uint8_t a[N], b[N], r[N];
    for (int i = 0; i < N; i++) {
        a[i] = i % 2 ? 0x80 : 0; /* any non-zero byte loads as true */
        b[i] = i % 4 < 2;
    }
    run_op(ctx, "and", "bool", "bool", 2, a, b, b, r, 1, 1);
    assert_true(r[0] == 0 && r[1] == 1 && r[2] == 0 && r[3] == 0);
    run_op(ctx, "xor", "bool", "bool", 2, a, b, b, r, 1, 1);
    assert_true(r[0] == 1 && r[1] == 0 && r[2] == 0 && r[3] == 1);
    run_op(ctx, "not", "bool", "bool", 1, a, b, b, r, 1, 1);
    assert_true(r[0] == 1 && r[1] == 0);
    run_op(ctx, "eq", "bool", "bool", 2, a, b, b, r, 1, 1);
    assert_true(r[0] == 0 && r[1] == 1 && r[2] == 1 && r[3] == 0);
}

/* ---- plans as small calculators: they read `in` and write `out` -------------------------------------------------- */

struct plan_run {
    struct linterp_result r;
    int64_t out[16];
};

static struct plan_run run_plan(struct context *ctx, const char *body, const struct linterp_host *host)
{
    struct plan_run p = {0};
    _Alignas(64) int64_t data[8] = {10, 11, 12, 13, 14, 15, 16, 17};
    char *text = arena_printf(
        &ctx->session,
        "program @p { arg %%0 : buffer i64 in arg %%1 : buffer i64 out %%2 = const index 0 %%3 = const index 1 "
        "%%4 = const index 2 %%5 = const index 8 %%6 = const bool 1 %%7 = const bool 0 %s }",
        body);
    struct linterp_arg args[] = {{.buffer = {data, sizeof data}}, {.buffer = {p.out, sizeof p.out}}};
    p.r = lf_interpret(loops_load(ctx, text), args, 0, 0, host);
    return p;
}

static const struct {
    const char *body;
    int64_t out[4];
} good[] = {
    {"%10 = load i64x4 %0[%3] store %1[%2], %10", {11, 12, 13, 14}},
    {"%10 = loads i64x4 %0[%2] stride %4 store %1[%2], %10", {10, 12, 14, 16}},
    {"%10 = const index -2 %11 = const index 7 %12 = loads i64x4 %0[%11] stride %10 store %1[%2], %12",
     {17, 15, 13, 11}},
    {"%10 = iota i64x4 %11 = mul i64x4 %10, %10 %12 = const i64x4 7 %13 = and i64x4 %11, %12 %14 = gather i64x4 %0[%13] "
     "store %1[%2], %14",
     {10, 11, 14, 11}},
    {"%10 = iota i64x4 %11 = const i64x4 2 %12 = lt boolx4 %10, %11 %13 = const index 6 %14 = load i64x4 %0[%13] mask %12 "
     "store %1[%2], %14",
     {16, 17, 0, 0}},
    {"%10 = iota i64x4 %11 = const i64x4 2 %12 = lt boolx4 %10, %11 %13 = const index -2 %14 = not boolx4 %12 "
     "%15 = load i64x4 %0[%13] mask %14 store %1[%2], %15",
     {0, 0, 10, 11}},
    {"%10 = iota i64x2 stores %1[%3] stride %4, %10", {0, 0, 0, 1}},
    {"%10 = iota i64x4 %11 = const i64x4 3 %12 = sub i64x4 %11, %10 scatter %1[%12], %10", {3, 2, 1, 0}},
    {"%10 = iota i64x4 %11 = const i64x4 1 scatter %1[%11], %10", {0, 3, 0, 0}}, /* in order: the last lane stays */
    {"%10 = iota i64x4 %11 = const i64x4 1 %12 = ne boolx4 %10, %11 store %1[%2], %10 mask %12", {0, 0, 2, 3}},
    {"%10 = offset buffer i32 %0, %5 %11 = load i32x4 %10[%2] %12 = convert i64x4 %11 store %1[%2], %12",
     {11, 0, 12, 0}},
    {"%10 = const index 1099511627776 prefetch %0, %10 prefetch2 %0, %2 %11 = load i64 %0[%3] store %1[%2], %11",
     {11, 0, 0, 0}},
    {"%10 = offset buffer f32 %0, %5 %11 = shared bool %10, %0 %12 = shared bool %0, %0 %13 = shared bool %1, %0 "
     "%14 = convert i64 %11 %15 = convert i64 %12 %16 = convert i64 %13 store %1[%2], %14 store %1[%3], %15 "
     "%17 = add index %3, %3 store %1[%17], %16",
     {0, 1, 0, 0}},
    {"%10 = const f32 0x1p+0 %11 = bitcast i32 %10 %12 = convert i64 %11 store %1[%2], %12", {0x3f800000, 0, 0, 0}},
    {"%10 = const i16x4 258 %11 = bitcast i64 %10 store %1[%2], %11", {0x0102010201020102, 0, 0, 0}},
    {"%10 = load i64x4 %0[%2] %11 = extract i64 %10 lane 3 %12 = insert i64x4 %10, %11 lane 0 store %1[%2], %12",
     {13, 11, 12, 13}},
    {"%10 = load i64x4 %0[%2] %11 = iota i64x4 %12 = shuffle i64x4 %10, %11 [7, 0, 4, 3] store %1[%2], %12",
     {3, 10, 0, 13}},
    {"%10 = load i64x4 %0[%2] %11 = hreduce i64 add %10 %12 = hreduce i64 max %10 %13 = hreduce i64 min %10 "
     "%14 = hreduce i64 mul %10 %15 = splat i64x4 %11 %16 = insert i64x4 %15, %12 lane 1 %17 = insert i64x4 %16, %13 lane 2 "
     "%18 = insert i64x4 %17, %14 lane 3 store %1[%2], %18",
     {46, 13, 10, 10 * 11 * 12 * 13}},
    {"%10 = select i64 %6, %3, %4 %11 = select i64 %7, %3, %4 store %1[%2], %10 store %1[%3], %11", {1, 2, 0, 0}},
    {"%10 = select buffer i64 %7, %0, %1 store %10[%2], %4", {2, 0, 0, 0}},
    {"%10 = const f32x4 -2.5 %11 = convert i64x4 %10 store %1[%2], %11", {-2, -2, -2, -2}},
    {"%10 = const f32 nan %11 = convert i64 %10 %12 = const f32 inf %13 = convert i64 %12 store %1[%2], %11 store %1[%3], %13",
     {0, INT64_MAX, 0, 0}},
    {"%10 = const index 300 %11 = convert u8 %10 %12 = convert i64 %11 store %1[%2], %12", {44, 0, 0, 0}},
    /* sum of the input */
    {"%12 = for %10 = %2 to %5 step 1 carry(%11 = %2) { %13 = load index %0[%10] %14 = add index %11, %13 yield %14 } "
     "store %1[%2], %12",
     {108, 0, 0, 0}},
    /* yields are taken all at once: Fibonacci by swapping */
    {"%13, %14 = for %10 = %2 to %5 step 1 carry(%11 = %2, %12 = %3) { %15 = add index %11, %12 yield %12, %15 } "
     "store %1[%2], %13 store %1[%3], %14",
     {21, 34, 0, 0}},
    {"%13, %14 = for %10 = %2 to %3 step 1 carry(%11 = %4, %12 = %5) { yield %12, %11 } store %1[%2], %13 store %1[%3], %14",
     {8, 2, 0, 0}},
    /* no trips: the inits */
    {"%12 = for %10 = %5 to %2 step 1 carry(%11 = %4) { yield %10 } store %1[%2], %12", {2, 0, 0, 0}},
    {"%12 = for %10 = %2 to %5 step 3 carry(%11 = %2) { yield %10 } store %1[%2], %12", {6, 0, 0, 0}},
    /* while i * i < 20 */
    {"%13, %14 = for %10 = %2 to %5 step 1 carry(%11 = %6, %12 = %2) while { %15 = add index %10, %3 %16 = mul index %15, %15 "
     "%17 = const index 20 %18 = lt bool %16, %17 yield %18, %15 } store %1[%2], %14",
     {5, 0, 0, 0}},
    {"%13 = for %10 = %2 to %5 step 1 carry(%11 = %7) while { yield %6 } %14 = convert i64 %13 store %1[%2], %14",
     {0, 0, 0, 0}},
    /* a loop that would step past the largest index ends */
    {"%10 = const index 9223372036854775806 %11 = const index 9223372036854775807 %14 = for %12 = %10 to %11 step 5 "
     "carry(%13 = %2) { %15 = add index %13, %3 yield %15 } store %1[%2], %14",
     {1, 0, 0, 0}},
    /* carried buffers alternate */
    {"%10 = local buffer i64 1 store %10[%2], %5 %13, %14 = for %11 = %2 to %3 step 1 carry(%12 = %0, %15 = %10) "
     "{ yield %15, %12 } %16 = load i64 %13[%2] %17 = load i64 %14[%2] store %1[%2], %16 store %1[%3], %17",
     {8, 10, 0, 0}},
    {"%10 = if %6 { yield %4 } else { yield %5 } %11 = if %7 { yield %4 } else { yield %5 } store %1[%2], %10 store %1[%3], %11",
     {2, 8, 0, 0}},
    {"if %7 { store %1[%2], %4 } else { store %1[%3], %4 } if %7 { store %1[%4], %4 }", {0, 2, 0, 0}},
    {"check %6 code -9 node 1 \"x\" store %1[%2], %4", {2, 0, 0, 0}},
    /* undefined lanes may be moved and masked away */
    {"%10 = local buffer i64 4 store %10[%3], %4 %11 = load i64x4 %10[%2] %12 = extract i64 %11 lane 1 store %1[%2], %12",
     {2, 0, 0, 0}},
    {"%10 = local buffer i64 4 store %10[%2], %4 %11 = load i64x4 %10[%2] %12 = iota i64x4 %13 = const i64x4 0 "
     "%14 = eq boolx4 %12, %13 %15 = select i64x4 %14, %11, %12 store %1[%2], %15",
     {2, 1, 2, 3}},
    {"%10 = local buffer i64 4 store %10[%2], %4 %11 = load i64x4 %10[%2] %12 = iota i64x4 %13 = const i64x4 0 "
     "%14 = eq boolx4 %12, %13 store %1[%2], %11 mask %14",
     {2, 0, 0, 0}},
    {"%10 = local buffer i64 4 %11 = local buffer i64 4 %12 = load i64x4 %10[%2] store %11[%2], %12 store %1[%2], %4",
     {2, 0, 0, 0}},
};

static void test_good_programs(void **state)
{
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        struct plan_run p = run_plan(*state, good[i].body, NULL);
        if (p.r.code)
            fail_msg("%s\nin %s", p.r.text, good[i].body);
        for (int k = 0; k < 4; k++)
            if (p.out[k] != good[i].out[k])
                fail_msg("out[%d] = %lld, not %lld\n%s", k, (long long)p.out[k], (long long)good[i].out[k],
                         good[i].body);
    }
}

static const struct {
    const char *body;
    int code;
    const char *says;
} bad[] = {
    {"%10 = load i64 %0[%5]", -100, "%8 = load: element 8 (lane 0) of a buffer of 8"},
    {"%10 = const index -1 %11 = load i64 %0[%10]", -100, "element -1"},
    {"%10 = const index 5 %11 = load i64x4 %0[%10]", -100, "element 8 (lane 3)"},
    {"%10 = const index 9223372036854775807 %11 = load i64x2 %0[%10]", -100, "of a buffer of 8"},
    {"%10 = const index 9223372036854775807 %11 = loads i64x4 %0[%5] stride %10", -100, "of a buffer of 8"},
    {"%10 = loads i64x4 %0[%4] stride %4", -100, "element 8"},
    {"%10 = const i64x4 8 %11 = gather i64x4 %0[%10]", -100, "element 8"},
    {"%10 = const index 16 store %1[%10], %10", -100, "element 16"},
    {"%10 = const i64x4 -1 scatter %1[%10], %10", -100, "element -1"},
    {"%10 = load i64x2 %0[%3] align 16", -100, "not aligned to 16"},
    {"%10 = const index 4 %11 = offset buffer i64 %0, %10 %12 = load i64 %11[%2]", -100, "not aligned to 8"},
    {"%10 = const index 65 %11 = offset buffer i64 %0, %10", -100, "byte 65 of a buffer of 64"},
    {"%10 = const index 60 %11 = offset buffer i8 %0, %10 %12 = const index 4 %13 = load i8 %11[%12]", -100,
     "of a buffer of 4"},
    {"%10 = div index %3, %2", -100, "divisor"},
    {"%10 = rem index %3, %2", -100, "divisor"},
    {"%10 = const index -3 %11 = floordiv index %3, %10", -100, "divisor"},
    {"%10 = iota i64x4 %11 = const i64x4 1 %12 = div i64x4 %11, %10", -100, "divisor"},
    {"check %7 code -9 node 12 \"index out of range\"", -9, "index out of range"},
    {"%10 = const boolx4 1 %11 = insert boolx4 %10, %7 lane 2 check %11 code -2 node 1 \"shape\"", -2, "shape"},
    {"%10 = local buffer i64 4 %11 = load i64 %10[%2] store %1[%2], %11", -100,
     "lane 0 of the stored value is undefined"},
    {"%10 = local buffer i64 4 store %10[%2], %2 %11 = load i64x2 %10[%2] store %1[%2], %11", -100, "lane 1"},
    {"%10 = local buffer i64 4 %11 = load i64 %10[%2] %12 = mul i64 %11, %2 store %1[%2], %12", -100, "undefined"},
    {"%10 = local buffer i64 4 %11 = load i64 %10[%2] %12 = load i64 %0[%11]", -100, "used as index"},
    {"%10 = local buffer i64 4 %11 = load i64 %10[%2] for %12 = %2 to %11 step 1 { }", -100, "used as bound"},
    {"%10 = local buffer i64 4 %11 = load i64 %10[%2] call @f(%11)", -100, "used as argument"},
    {"%10 = local buffer bool 4 %11 = load bool %10[%2] if %11 { }", -100, "used as condition"},
    {"%10 = local buffer bool 4 %11 = load bool %10[%2] check %11 code -9 node 0 \"\"", -100, "used as condition"},
    {"%10 = local buffer bool 4 %11 = load boolx4 %10[%2] %12 = load i64x4 %0[%2] mask %11", -100, "used as mask"},
    {"%10 = local buffer i8 8 %11 = const i8 1 store %10[%2], %11 %12 = offset buffer i64 %10, %2 %13 = load i64 %12[%2] "
     "store %1[%2], %13",
     -100, "undefined"}, /* seven of its eight bytes */
    {"%10 = local buffer i64 4 %11 = load i64x4 %10[%2] %12 = hreduce i64 add %11 store %1[%2], %12", -100,
     "undefined"},
    {"call @f()", -100, "nobody to call"},
    {"launch @k() count %2 grain 0 node 0", -100, "nobody to launch"},
};

static void test_bad_programs(void **state)
{
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct plan_run p = run_plan(*state, bad[i].body, NULL);
        if (p.r.code != bad[i].code || !strstr(p.r.text, bad[i].says))
            fail_msg("%d, %s\nin %s", p.r.code, p.r.text ? p.r.text : "", bad[i].body);
    }
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

static void test_parallel_range(void **state)
{
    struct lfunc *f = loops_load(*state, "kernel @k { arg %0 : buffer i64 out arg %1 : index %2 = const index 2 "
                                         "parallel %3 = %2 to %1 { store %0[%3], %3 } }");
    int64_t out[10] = {0};
    struct linterp_arg args[] = {{.buffer = {out, sizeof out}}, {.index = 8}};
    assert_int_equal(lf_interpret(f, args, 0, 5, NULL).code, 0);
    assert_true(out[1] == 0 && out[2] == 2 && out[4] == 4 && out[5] == 0);
    assert_int_equal(lf_interpret(f, args, 5, 100, NULL).code, 0);
    assert_true(out[7] == 7 && out[8] == 0);
}

/* What one index left in a local is undefined to the next. */
static void test_locals_are_forgotten(void **state)
{
    struct lfunc *f = loops_load(
        *state,
        "kernel @k { arg %0 : buffer i64 out arg %1 : index %2 = const index 0 %3 = local buffer i64 1 "
        "parallel %4 = %2 to %1 { %5 = eq bool %4, %2 if %5 { store %3[%2], %4 } %6 = load i64 %3[%2] store %0[%4], %6 } }");
    int64_t out[2];
    struct linterp_arg args[] = {{.buffer = {out, sizeof out}}, {.index = 2}};
    assert_int_equal(lf_interpret(f, args, 0, 1, NULL).code, 0);
    assert_int_equal(lf_interpret(f, args, 0, 2, NULL).code, -100);
}

static void test_argument_alignment(void **state)
{
    struct lfunc *f = loops_load(*state, "plan @p { arg %0 : buffer i64 in align 64 }");
    _Alignas(64) int64_t data[16];
    struct linterp_arg arg = {.buffer = {data, sizeof data}};
    assert_int_equal(lf_interpret(f, &arg, 0, 0, NULL).code, 0);
    arg.buffer.data = data + 1;
    assert_int_equal(lf_interpret(f, &arg, 0, 0, NULL).code, -100);
}

/* ---- programs and their host ------------------------------------------------------------------------------------- */

struct host_log {
    int launches, calls;
    int64_t count, index;
    int64_t segment[4];
    int launch_code;
    int64_t call_result;
    bool fail;
};

static int log_launch(void *user, const struct lstmt *launch, const struct linterp_arg *args, uint32_t n, int64_t count)
{
    struct host_log *log = user;
    assert_string_equal(launch->name, "k7");
    assert_int_equal(n, 2);
    log->launches++;
    log->count = count;
    log->index = args[1].index;
    if (args[0].buffer.bytes >= 8)
        *(int64_t *)args[0].buffer.data = 99;
    return log->launch_code;
}

static int64_t log_call(void *user, const char *name, const struct linterp_arg *args, uint32_t n, bool *failed)
{
    struct host_log *log = user;
    (void)args, (void)n;
    log->calls++;
    *failed = log->fail;
    return strcmp(name, "mcc_rt_segment") == 0 && log->call_result == 0 ? (int64_t)(uintptr_t)log->segment
                                                                        : log->call_result;
}

static struct plan_run run_hosted(struct context *ctx, const char *body, struct host_log *log)
{
    struct linterp_host host = {.user = log, .launch = log_launch, .call = log_call};
    return run_plan(ctx, body, &host);
}

static void test_launch(void **state)
{
    struct host_log log = {0};
    struct plan_run p = run_hosted(*state, "launch @k7(%1, %4) count %5 grain 10 node 3", &log);
    assert_int_equal(p.r.code, 0);
    assert_true(log.launches == 1 && log.count == 8 && log.index == 2 && p.out[0] == 99);
    /* what a launch writes into a local counts as defined */
    p = run_hosted(*state,
                   "%10 = local buffer i64 2 launch @k7(%10, %4) count %5 grain 0 node 3 %11 = load i64 %10[%2] "
                   "store %1[%2], %11",
                   &log);
    assert_true(p.r.code == 0 && p.out[0] == 99);
    log.launch_code = -9;
    p = run_hosted(*state, "launch @k7(%1, %4) count %5 grain 10 node 3 launch @k7(%1, %4) count %5 grain 10 node 4",
                   &log);
    assert_true(p.r.code == -9 && p.r.node == 3 && log.launches == 3);
}

static void test_call(void **state)
{
    struct host_log log = {.call_result = -5};
    struct plan_run p = run_hosted(*state, "%10 = call @f(%2) store %1[%2], %10", &log);
    assert_true(p.r.code == 0 && p.out[0] == -5);
    p = run_hosted(*state, "%10 = call @f(%2) mayfail store %1[%2], %10", &log);
    assert_true(p.r.code == -5 && p.out[0] == 0);
    log.fail = true;
    log.call_result = 1;
    assert_int_equal(run_hosted(*state, "call @f()", &log).r.code, -100);
}

/* Segments have the size that was asked for. */
static void test_segments(void **state)
{
    struct host_log log = {0};
    struct plan_run p = run_hosted(
        *state,
        "%10 = const index 32 %11 = call @mcc_rt_segment(%10) mayfail "
        "%12 = address buffer i64 %11 store %12[%4], %5 %13 = load i64 %12[%4] store %1[%2], %13",
        &log);
    assert_true(p.r.code == 0 && p.out[0] == 8 && log.segment[2] == 8);
    p = run_hosted(*state,
                   "%10 = const index 32 %11 = call @mcc_rt_segment(%10) mayfail "
                   "%12 = address buffer i64 %11 %14 = const index 4 store %12[%14], %5",
                   &log);
    assert_int_equal(p.r.code, -100);
}

/* ---- what callers observe and ask for ---------------------------------------------------------------------------- */

struct seen {
    int loads, stores;
    void *last;
};

static void see_load(void *user, enum elem elem, void *at)
{
    (void)at;
    ((struct seen *)user)->loads += elem == ELEM_F32;
}

static void see_store(void *user, enum elem elem, void *at)
{
    struct seen *seen = user;
    seen->stores += elem == ELEM_F32;
    seen->last = at;
}

static const char copies[] = "kernel @k { arg %0 : buffer f32 in arg %1 : buffer f32 out %2 = const index 0 "
                             "%3 = const index 4 %4 = local buffer f32 4 parallel %5 = %2 to %3 { "
                             "%6 = load f32 %0[%5] store %4[%2], %6 %7 = load f32 %4[%2] store %1[%5], %7 } }";

static void test_observers(void **state)
{
    float in[4] = {1, 2, 3, 4}, out[4] = {0};
    struct seen seen = {0};
    const struct linterp_host host = {.user = &seen, .load = see_load, .store = see_store};
    struct linterp_arg args[] = {{.buffer = {in, sizeof in}}, {.buffer = {out, sizeof out}}};
    assert_int_equal(lf_interpret(loops_load(*state, copies), args, 0, 3, &host).code, 0);
    assert_true(seen.loads == 3 && seen.stores == 3 && seen.last == &out[2]); /* of arguments, not of locals */
}

static void test_work(void **state)
{
    float in[4] = {1, 2, 3, 4}, out[4] = {0};
    struct linterp_arg args[] = {{.buffer = {in, sizeof in}}, {.buffer = {out, sizeof out}}};
    struct lfunc *f = loops_load(*state, copies);
    const int64_t all = lf_interpret(f, args, 0, 4, NULL).work, one = lf_interpret(f, args, 0, 1, NULL).work;
    assert_true(all > one && one > 0);
    memset(out, 0, sizeof out);
    assert_int_equal(lf_interpret(f, args, 0, 4, &(struct linterp_host){.work = all - 1}).code, LINTERP_ENDED);
    assert_true(out[2] == 3 && out[3] == 0);
    assert_int_equal(lf_interpret(f, args, 0, 4, &(struct linterp_host){.work = all}).code, 0);
}

static void test_unfused(void **state)
{
    struct lfunc *f = loops_load(*state, "kernel @k { arg %0 : buffer f32 in out %1 = const index 0 %2 = const index 1 "
                                         "parallel %3 = %1 to %2 { %4 = load f32 %0[%1] %5 = const f32 -1 "
                                         "%6 = fma f32 %4, %4, %5 store %0[%1], %6 } }");
    const float x = 1 + 0x1p-20f;
    float memory = x;
    struct linterp_arg arg = {.buffer = {&memory, sizeof memory}};
    assert_int_equal(lf_interpret(f, &arg, 0, 1, NULL).code, 0);
    assert_true(memory == 0x1p-19f + 0x1p-40f);
    memory = x;
    assert_int_equal(lf_interpret(f, &arg, 0, 1, &(struct linterp_host){.unfused = true}).code, 0);
    assert_true(memory == 0x1p-19f);
}

/* Lanes for which L_LDEXP has no meaning may be computed, and go nowhere. */
static void test_ldexp_domain(void **state)
{
    struct lfunc *f = loops_load(*state,
                                 "kernel @k { arg %0 : buffer f32 in arg %1 : buffer f32 out %2 = const index 0 "
                                 "%3 = const index 1 parallel %4 = %2 to %3 { %5 = load f32 %0[%2] "
                                 "%6 = load f32 %0[%3] %7 = ldexp f32 %5, %6 store %1[%2], %7 } }");
    static const float inside[][2] = {{1, 252}, {-4, -252}, {0.25f, 0}, {NAN, 3}, {1, NAN}},
                       outside[][2] = {{1, 253}, {5, 0},        {0.125f, 0},    {1, 0.5f},
                                       {0, 1},   {1, INFINITY}, {NAN, INFINITY}};
    float in[2], out;
    struct linterp_arg args[] = {{.buffer = {in, sizeof in}}, {.buffer = {&out, sizeof out}}};
    for (size_t i = 0; i < COUNT_OF(inside); i++) {
        memcpy(in, inside[i], sizeof in);
        assert_int_equal(lf_interpret(f, args, 0, 1, NULL).code, 0);
    }
    for (size_t i = 0; i < COUNT_OF(outside); i++) {
        memcpy(in, outside[i], sizeof in);
        assert_int_equal(lf_interpret(f, args, 0, 1, NULL).code, LINTERP_BROKEN);
    }
}

/* ---- bounds of rounding ------------------------------------------------------------------------------------------ */

struct errors {
    double in, out; /* of what is read, of what was written last */
};

static double read_error(void *user, enum elem elem, const void *at)
{
    (void)elem, (void)at;
    return ((struct errors *)user)->in;
}

static void write_error(void *user, enum elem elem, void *at, double error)
{
    (void)elem, (void)at;
    ((struct errors *)user)->out = error;
}

static double error_of(struct context *ctx, const char *text, const float *in, float *out, uint32_t n, double error)
{
    struct errors e = {error, -1};
    struct linterp_arg args[] = {{.buffer = {(void *)(uintptr_t)in, n * (int64_t)sizeof *in}},
                                 {.buffer = {out, sizeof *out}}};
    const struct linterp_host host = {.user = &e, .read_error = read_error, .write_error = write_error};
    const struct linterp_result r = lf_interpret(loops_load(ctx, text), args, 0, 1, &host);
    if (r.code)
        fail_msg("%s: %s", text, r.text);
    return e.out;
}

/* A product of 1,000 elements: the bound holds, and is not a hundred times what was rounded. */
static void test_error_of_a_sum(void **state)
{
    enum { K = 1000 };
    static float in[2 * K];
    double exact = 0;
    float out;
    for (int i = 0; i < 2 * K; i++)
        in[i] = (float)sin(i * 0.7) + 0.3f;
    for (int i = 0; i < K; i++)
        exact += (double)in[i] * in[K + i];
    const double bound = error_of(
        *state,
        "kernel @k { arg %0 : buffer f32 in arg %1 : buffer f32 out %2 = const index 0 %3 = const index 1 "
        "%4 = const index 1000 parallel %5 = %2 to %3 { %6 = const f32x8 0 %7 = for %8 = %2 to %4 step 8 "
        "carry(%9 = %6) { %10 = load f32x8 %0[%8] %11 = add index %8, %4 %12 = load f32x8 %0[%11] "
        "%13 = fma f32x8 %10, %12, %9 yield %13 } %14 = hreduce f32 add %7 store %1[%2], %14 } }",
        in, &out, 2 * K, 0);
    const double off = fabs(out - exact);
    assert_true(off > 0 && off <= bound && bound <= 100 * off);
}

/* What statements make of a, which is off by 1/4, and b, which is by as much. */
static void test_errors_of_statements(void **state)
{
    static const struct {
        const char *text; /* %10: a; %11: b; the result is %20, of f32 */
        float a, b;
        double error;
    } cases[] = {
        {"%20 = neg f32 %10", 1.5f, 4, 0.25},
        {"%20 = add f32 %10, %11", 1.5f, 4, 0.5},
        {"%20 = mul f32 %10, %11", 1.5f, 4, 0.25 * 4 + 0.25 * 1.5 + 0.0625},
        {"%20 = fma f32 %10, %11, %11", 1.5f, 4, 0.25 * 4 + 0.25 * 1.5 + 0.0625 + 0.25},
        {"%20 = div f32 %10, %11", 4, 4, 0.5 / 3.75},
        {"%20 = div f32 %11, %10", 0.125f, 4, INFINITY},
        {"%20 = sqrt f32 %10", 0.25f, 4, 0.5},
        {"%20 = floor f32 %10", 1.5f, 4, 0},
        {"%20 = floor f32 %10", 1.125f, 4, 1},
        {"%20 = max f32 %10, %11", 1.5f, 4, 0.25},
        {"%12 = const f32 3 %20 = max f32 %10, %12", 1.5f, 4, 0},
        {"%12 = const f32 3 %20 = max f32 %10, %12", 3.125f, 4, 0.25},
        {"%12 = const f32 0x1.99999ap-4 %20 = min f32 %12, %12", 0, 0, 0x1p-28},
        {"%12 = const f32 1 %13 = lt bool %10, %12 %20 = select f32 %13, %11, %12", 0.5f, 4, 0.25},
        {"%12 = const f32 1 %13 = lt bool %10, %12 %20 = select f32 %13, %11, %12", 0.875f, 4, 3},
        {"%12 = convert i32 %10 %20 = convert f32 %12", 1.5f, 4, 0},
        {"%12 = convert i32 %10 %13 = add i32 %12, %12 %20 = convert f32 %13", 1.875f, 4, 2},
        {"%12 = bitcast i32 %10 %20 = bitcast f32 %12", 1.5f, 4, INFINITY},
        {"%12 = const f32 1 %13 = lt bool %10, %12 %20 = if %13 { yield %11 } else { yield %12 }", 0.5f, 4, INFINITY},
        {"%12 = splat f32x4 %10 %20 = hreduce f32 add %12", 1.5f, 4, 1},
        {"%12 = const f32 1 %13 = lt bool %10, %12 %14 = convert f32 %13 %20 = mul f32 %14, %12", 9, 4, 0},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const char *text = arena_printf(
            &((struct context *)*state)->session,
            "kernel @k { arg %%0 : buffer f32 in arg %%1 : buffer f32 out %%2 = const index 0 %%3 = const index 1 "
            "parallel %%4 = %%2 to %%3 { %%10 = load f32 %%0[%%2] %%11 = load f32 %%0[%%3] %s store %%1[%%2], %%20 } }",
            cases[i].text);
        float out, in[2] = {cases[i].a, cases[i].b};
        const double error = error_of(*state, text, in, &out, 2, 0.25), want = cases[i].error;
        if (error != want && !(fabs(error - want) <= 1e-9 * want))
            fail_msg("%s: %g instead of %g", cases[i].text, error, want);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, loops_setup, loops_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_i8),
        TEST(test_i16),
        TEST(test_i32),
        TEST(test_u8),
        TEST(test_u16),
        TEST(test_u32),
        TEST(test_i64),
        TEST(test_bool),
        TEST(test_f32),
        TEST(test_f64),
        TEST(test_f16),
        TEST(test_good_programs),
        TEST(test_bad_programs),
        TEST(test_parallel_range),
        TEST(test_locals_are_forgotten),
        TEST(test_argument_alignment),
        TEST(test_launch),
        TEST(test_call),
        TEST(test_segments),
        TEST(test_observers),
        TEST(test_work),
        TEST(test_unfused),
        TEST(test_ldexp_domain),
        TEST(test_error_of_a_sum),
        TEST(test_errors_of_statements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

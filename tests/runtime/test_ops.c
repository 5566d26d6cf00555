/* Whole-buffer operators, called as programs call them, against plain definitions written here. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/ops/rt_ops.h"
#include "tests/runtime/models.h"

static mcc_model *model;
static mcc_ctx *ctx;
static struct mcc_rt_run *run;

static int setup(void **state)
{
    (void)state;
    if (mcc_rt_open(NULL, &model, NULL) || mcc_rt_ctx_new(model, NULL, 0, &ctx, NULL))
        return 1;
    run = &ctx->run;
    return rt_run_begin(ctx, &ctx, &ctx, NULL);
}

static int teardown(void **state)
{
    (void)state;
    rt_run_end(ctx);
    mcc_rt_ctx_free(ctx);
    mcc_rt_close(model);
    return 0;
}

static uint32_t random_state = 1;
static uint32_t random_word(void)
{
    return random_state = random_state * 1664525 + 1013904223, random_state >> 8;
}

static void test_elements(void **state)
{
    (void)state;
    for (int64_t e = 1; e < RT_ELEM_COUNT; e++) {
        assert_int_equal(rt_elem_of(rt_elem_dtype(e)), e);
        assert_true(rt_elem_bytes(e) > 0);
    }
    assert_int_equal(rt_elem_of((DLDataType){kDLFloat, 24, 1}), RT_ELEM_NONE);
    assert_int_equal(rt_elem_of((DLDataType){kDLFloat, 32, 4}), RT_ELEM_NONE);
}

static int float_order(float a, float b)
{
    if (isnan(a) || isnan(b))
        return (isnan(a) != 0) - (isnan(b) != 0);
    return (a > b) - (a < b);
}

static void check_sorted(const float *x, const float *values, const int64_t *at, int64_t outer, int64_t n,
                         int64_t inner, bool descending)
{
    for (int64_t line = 0; line < outer * inner; line++) {
        int64_t base = line / inner * n * inner + line % inner;
        bool seen[1024] = {false};
        for (int64_t k = 0; k < n; k++) {
            int64_t from = at[base + k * inner];
            assert_true(from >= 0 && from < n && !seen[from]);
            seen[from] = true;
            assert_memory_equal(&values[base + k * inner], &x[base + from * inner], 4);
            if (k == 0)
                continue;
            int sign = float_order(values[base + (k - 1) * inner], values[base + k * inner]);
            assert_true(descending ? sign >= 0 : sign <= 0);
            assert_true(sign != 0 || at[base + (k - 1) * inner] < from);
        }
    }
}

/* R6: NaN, infinities, both zeros, many ties. */
static void test_sort_floats(void **state)
{
    static const float some[] = {0.0f, -0.0f, 1, -1, INFINITY, -INFINITY, NAN, -NAN, 1e-40f, -1e-40f, 3, 3};
    float x[3 * 40 * 5], values[3 * 40 * 5];
    int64_t at[3 * 40 * 5];
    (void)state;
    for (int64_t n = 1; n <= 40; n += 3)
        for (int descending = 0; descending < 2; descending++) {
            for (int64_t i = 0; i < 3 * n * 5; i++)
                x[i] = some[random_word() % 12];
            assert_int_equal(mcc_rt_sort(run, RT_ELEM_F32, x, values, at, 3, n, 5, descending, n), 0);
            check_sorted(x, values, at, 3, n, 5, descending);
        }
    assert_int_equal(mcc_rt_sort(run, RT_ELEM_F32, x, values, NULL, 3, 0, 5, 0, 0), 0);
    assert_int_equal(mcc_rt_sort(run, RT_ELEM_F32, x, NULL, at, 1, 7, 1, 0, 7), 0);
}

/* The first of each line, against those of the whole line: counts at both ends and between, lines in order and turned
 * round, equal elements, so many that a selection takes turns; every element type that is chosen as words, and one that
 * is not. */
static void test_sort_first(void **state)
{
    static const int64_t elems[] = {RT_ELEM_F32, RT_ELEM_F16, RT_ELEM_I8, RT_ELEM_U32, RT_ELEM_I64},
                         counts[] = {1, 5, 24, 25, 60, 249, 251, 999};
    enum { N = 1000, INNER = 3 };
    static uint32_t x[2 * N * INNER], all[2 * N * INNER], some[2 * N * INNER];
    static int64_t all_at[N * INNER], some_at[N * INNER];
    (void)state;
    for (int round = 0; round < 5 * 4 * 8; round++) {
        int64_t elem = elems[round % 5], size = rt_elem_bytes(elem), count = counts[round / 20],
                descending = random_word() & 1;
        int64_t inner = random_word() % 2 ? INNER : 1;
        for (int64_t i = 0; i < 2 * N * INNER; i++) {
            uint32_t draws[] = {random_word(), random_word() % 7, (uint32_t)i, (uint32_t)-i};
            float f = (float)(int32_t)draws[round / 5 % 4];
            memcpy(&x[i], elem == RT_ELEM_F32 && random_word() % 64 ? (void *)&f : &draws[round / 5 % 4], 4);
        }
        assert_int_equal(mcc_rt_sort(run, elem, x, all, all_at, 1, N, inner, descending, N), 0);
        assert_int_equal(mcc_rt_sort(run, elem, x, some, some_at, 1, N, inner, descending, count), 0);
        assert_memory_equal(some, all, (size_t)(count * inner * size));
        assert_memory_equal(some_at, all_at, (size_t)(count * inner) * 8);
        if (elem == RT_ELEM_F32)
            check_sorted((const float *)x, (const float *)all, all_at, 1, N, inner, descending);
    }
}

static void test_sort_others(void **state)
{
    int64_t at[8];
    int8_t i8[] = {5, -3, 127, -128, 0}, i8_up[] = {-128, -3, 0, 5, 127}, i8_out[5];
    uint64_t u64[] = {1, UINT64_MAX, 0, INT64_MAX}, u64_down[] = {UINT64_MAX, INT64_MAX, 1, 0}, u64_out[4];
    int64_t i64[] = {INT64_MIN, 3, -1, INT64_MAX}, i64_up[] = {INT64_MIN, -1, 3, INT64_MAX}, i64_out[4];
    uint16_t half[] = {0x3c00, 0xbc00, 0x7e00, 0x0000, 0x7c00}, half_up[] = {0xbc00, 0, 0x3c00, 0x7c00, 0x7e00};
    uint16_t half_out[5];
    uint8_t fnuz[] = {0x80, 0x81, 0x7f, 0x00, 0xff}, fnuz_up[] = {0xff, 0x81, 0x00, 0x7f, 0x80}, fnuz_out[5];
    struct rt_string text[] = {{"b", 1}, {"", 0}, {"ab", 2}, {"a", 1}, {"b", 1}}, text_out[5];
    (void)state;
    mcc_rt_sort(run, RT_ELEM_I8, i8, i8_out, at, 1, 5, 1, 0, 5);
    assert_memory_equal(i8_out, i8_up, sizeof i8);
    mcc_rt_sort(run, RT_ELEM_U64, u64, u64_out, at, 1, 4, 1, 1, 4);
    assert_memory_equal(u64_out, u64_down, sizeof u64);
    mcc_rt_sort(run, RT_ELEM_I64, i64, i64_out, at, 1, 4, 1, 0, 4);
    assert_memory_equal(i64_out, i64_up, sizeof i64);
    mcc_rt_sort(run, RT_ELEM_F16, half, half_out, at, 1, 5, 1, 0, 5);
    assert_memory_equal(half_out, half_up, sizeof half);
    mcc_rt_sort(run, RT_ELEM_F8E4M3FNUZ, fnuz, fnuz_out, at, 1, 5, 1, 0, 5);
    assert_memory_equal(fnuz_out, fnuz_up, sizeof fnuz);
    mcc_rt_sort(run, RT_ELEM_STR, text, text_out, at, 1, 5, 1, 1, 5);
    assert_true(at[0] == 0 && at[1] == 4 && at[2] == 2 && at[3] == 3 && at[4] == 1);
}

static void test_unique(void **state)
{
    float x[] = {2, 1, NAN, 1, 2, NAN, 0.0f, -0.0f}, values[8];
    int64_t first[8], inverse[8], counts[8];
    (void)state;
    assert_int_equal(mcc_rt_unique(run, RT_ELEM_F32, x, 1, 8, 1, 1, values, first, inverse, counts), 4);
    assert_true(values[0] == 0 && values[1] == 1 && values[2] == 2 && isnan(values[3]));
    assert_memory_equal(first, ((int64_t[]){6, 1, 0, 2}), 32);
    assert_memory_equal(inverse, ((int64_t[]){2, 1, 3, 1, 2, 3, 0, 0}), 64);
    assert_memory_equal(counts, ((int64_t[]){2, 2, 2, 2}), 32);
    assert_int_equal(mcc_rt_unique(run, RT_ELEM_F32, x, 1, 8, 1, 0, values, first, inverse, counts), 4);
    assert_true(values[0] == 2 && values[1] == 1 && isnan(values[2]) && values[3] == 0);
    assert_memory_equal(inverse, ((int64_t[]){0, 1, 2, 1, 0, 2, 3, 3}), 64);
    /* columns of a 2 x 4 matrix */
    int32_t m[] = {1, 0, 1, 0, 5, 2, 5, 1}, out[8];
    assert_int_equal(mcc_rt_unique(run, RT_ELEM_I32, m, 2, 4, 1, 1, out, first, inverse, NULL), 3);
    assert_memory_equal(out, ((int32_t[]){0, 0, 1, 1, 2, 5}), 24);
    assert_memory_equal(inverse, ((int64_t[]){2, 1, 2, 0}), 32);
    assert_int_equal(mcc_rt_unique(run, RT_ELEM_I32, m, 1, 0, 1, 1, out, first, inverse, counts), 0);
}

static void test_nonzero(void **state)
{
    float x[] = {0, 1, -0.0f, NAN, 0, -3};
    int64_t dims[] = {2, 3}, at[6];
    (void)state;
    assert_int_equal(mcc_rt_nonzero_count(run, RT_ELEM_F32, x, 6), 3);
    assert_int_equal(mcc_rt_nonzero(run, RT_ELEM_F32, x, 2, dims, at, 3), 3);
    assert_memory_equal(at, ((int64_t[]){0, 1, 1, 1, 0, 2}), 48);
    uint8_t flags[] = {0, 2, 1};
    assert_int_equal(mcc_rt_nonzero_count(run, RT_ELEM_BOOL, flags, 3), 2);
    assert_int_equal(mcc_rt_nonzero(run, RT_ELEM_BOOL, flags, 0, dims, at, 0), 0);
    float complex_zero[] = {0, -0.0f, 0, 1};
    assert_int_equal(mcc_rt_nonzero_count(run, RT_ELEM_C64, complex_zero, 2), 1);
}

/* Every size of element, lines around 8 and 64 elements, three dims; an element is zero when its bits but the sign
 * are. */
static void test_nonzero_drawn(void **state)
{
    static const struct {
        int64_t elem, size;
        uint64_t mask;
    } elems[] = {{RT_ELEM_BOOL, 1, 0xff},      {RT_ELEM_F8E5M2, 1, 0x7f},   {RT_ELEM_F4E2M1, 1, 0x7},
                 {RT_ELEM_F16, 2, 0x7fff},     {RT_ELEM_U16, 2, 0xffff},    {RT_ELEM_F32, 4, 0x7fffffff},
                 {RT_ELEM_I32, 4, 0xffffffff}, {RT_ELEM_F64, 8, INT64_MAX}, {RT_ELEM_I64, 8, UINT64_MAX}};
    static const int64_t lines[] = {1, 7, 8, 9, 63, 64, 65, 130};
    static uint8_t x[6 * 130 * 8];
    static int64_t at[3 * 6 * 130];
    (void)state;
    for (uint32_t round = 0; round < 9 * 8; round++) {
        int64_t line = lines[round / 9], dims[] = {2, 3, line}, n = 6 * line, size = elems[round % 9].size, want = 0;
        for (int64_t i = 0; i < n * size; i++)
            x[i] = (uint8_t)(random_word() % 4 ? 0 : 1u << random_word() % 8);
        int64_t count = mcc_rt_nonzero_count(run, elems[round % 9].elem, x, n);
        assert_int_equal(mcc_rt_nonzero(run, elems[round % 9].elem, x, 3, dims, at, count), count);
        for (int64_t i = 0; i < n; i++) {
            uint64_t word = 0;
            memcpy(&word, x + i * size, (size_t)size);
            if (word & elems[round % 9].mask) {
                assert_true(want < count && at[want] == i / line / 3 && at[count + want] == i / line % 3 &&
                            at[2 * count + want] == i % line);
                want++;
            }
        }
        assert_int_equal(want, count);
    }
}

/* Fewer rows of a class are the first ones of more. */
static void test_nms_fewer(void **state)
{
    enum { N = 400 };
    static float boxes[4 * N], scores[2 * N];
    static int64_t all[3 * 2 * N], some[3 * 2 * N];
    float iou = 0.4f, least = 0.1f;
    int64_t most = N;
    (void)state;
    for (int64_t i = 0; i < N; i++) {
        float y = (float)(random_word() % 100), x = (float)(random_word() % 100);
        memcpy(boxes + 4 * i, (float[]){y, x, y + 20, x + 20}, 16);
        scores[i] = random_word() % 16 ? (float)(random_word() % 300) / 300 : NAN;
        scores[N + i] = i % 2 ? scores[i] : -1;
    }
    int64_t rows = mcc_rt_nms(run, boxes, scores, 1, N, 2, &most, &iou, &least, 0, all), first = 0;
    while (first < rows && all[3 * first + 1] == 0)
        first++;
    assert_true(first > 20 && rows > first + 10);
    for (int64_t max = 1; max <= first; max += 1 + max / 4) {
        int64_t second = max < rows - first ? max : rows - first;
        assert_int_equal(mcc_rt_nms(run, boxes, scores, 1, N, 2, &max, &iou, &least, 0, some), max + second);
        assert_memory_equal(some, all, (size_t)max * 24);
        assert_memory_equal(some + 3 * max, all + 3 * first, (size_t)second * 24);
    }
}

static void test_nms(void **state)
{
    float boxes[] = {0, 0, 1, 1, 0, 0.1f, 1, 1.1f, 0, -0.1f, 1, 0.9f, 0, 10, 1, 11, 0, 10.1f, 1, 11.1f, 0, 100, 1, 101};
    float scores[] = {0.9f, 0.75f, 0.6f, 0.95f, NAN, 0.3f}, iou = 0.5f, least = 0;
    int64_t max = 3, rows[3 * 6];
    (void)state;
    assert_int_equal(mcc_rt_nms(run, boxes, scores, 1, 6, 1, &max, &iou, &least, 0, rows), 3);
    assert_true(rows[2] == 3 && rows[5] == 0 && rows[8] == 5);
    least = 0.4f;
    assert_int_equal(mcc_rt_nms(run, boxes, scores, 1, 6, 1, &max, &iou, &least, 0, rows), 2);
    assert_int_equal(mcc_rt_nms(run, boxes, scores, 1, 6, 1, NULL, &iou, &least, 0, rows), 0);
    max = INT64_MIN;
    assert_int_equal(mcc_rt_nms(run, boxes, scores, 1, 6, 1, &max, &iou, &least, 0, rows), 0);
    assert_null(run->segments); /* temporary memory is gone */
}

static void check_dft(int64_t n, bool inverse)
{
    double *x = calloc((size_t)n, 16), *y = calloc((size_t)n, 16);
    for (int64_t i = 0; i < 2 * n; i++)
        x[i] = (double)random_word() / (1 << 24) - 0.5;
    assert_int_equal(mcc_rt_dft(run, RT_ELEM_F64, x, y, 1, n, 1, 2, n, n, 2, inverse, 0), 0);
    for (int64_t k = 0; k < n; k++) {
        double re = 0, im = 0;
        for (int64_t j = 0; j < n; j++) {
            double angle = (inverse ? 2 : -2) * M_PI * (double)(j * k % n) / (double)n;
            re += x[2 * j] * cos(angle) - x[2 * j + 1] * sin(angle);
            im += x[2 * j] * sin(angle) + x[2 * j + 1] * cos(angle);
        }
        double scale = inverse ? (double)n : 1;
        assert_true(fabs(re / scale - y[2 * k]) < 1e-12 && fabs(im / scale - y[2 * k + 1]) < 1e-12);
    }
    free(x);
    free(y);
}

static void test_dft(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 40; n++)
        check_dft(n, n % 2);
    check_dft(128, false);
    check_dft(243, true);
    float real[] = {1, 2, 3, 4, 5}, half[8] = {0}, back[4];
    assert_int_equal(mcc_rt_dft(run, RT_ELEM_F32, real, half, 1, 5, 1, 1, 4, 3, 2, 0, 0), 0); /* cut to 4 */
    assert_true(half[0] == 10 && half[2] == -2 && half[3] == 2 && half[4] == -2);
    assert_int_equal(mcc_rt_dft(run, RT_ELEM_F32, half, back, 1, 3, 1, 2, 4, 4, 1, 1, 1), 0);
    assert_memory_equal(back, real, 16);
}

static void test_det(void **state)
{
    float m[] = {1, 2, 3, 4, 0, 1, 1, 0}, det[2];
    uint16_t half[] = {0x4000, 0, 0, 0x4200}, half_det;
    (void)state;
    assert_int_equal(mcc_rt_det(run, RT_ELEM_F32, m, det, 2, 2), 0);
    assert_true(det[0] == -2 && det[1] == -1);
    assert_int_equal(mcc_rt_det(run, RT_ELEM_F16, half, &half_det, 1, 2), 0);
    assert_int_equal(half_det, 0x4600); /* 6 */
    assert_int_equal(mcc_rt_det(run, RT_ELEM_F32, m, det, 1, 0), 0);
    assert_true(det[0] == 1);
}

static struct rt_string string_of(const char *s)
{
    return (struct rt_string){s, strlen(s)};
}

static bool is_text(struct rt_string s, const char *text)
{
    return s.bytes == strlen(text) && !memcmp(s.utf8, text, s.bytes);
}

static void test_split(void **state)
{
    struct rt_string src[] = {string_of("a.bc.d"), string_of(""), string_of(".x."), string_of("  two words ")};
    struct rt_string dot = string_of("."), out[4 * 3];
    int64_t counts[4];
    (void)state;
    assert_int_equal(mcc_rt_str_split_count(run, src, 3, &dot, -1, counts), 3);
    assert_memory_equal(counts, ((int64_t[]){3, 1, 3}), 24);
    mcc_rt_str_split(run, src, 3, &dot, -1, 3, out);
    assert_true(is_text(out[1], "bc") && is_text(out[3], "") && is_text(out[6], "") && is_text(out[7], "x"));
    assert_int_equal(mcc_rt_str_split_count(run, src, 3, &dot, 1, counts), 2);
    mcc_rt_str_split(run, src, 3, &dot, 1, 2, out);
    assert_true(is_text(out[0], "a") && is_text(out[1], "bc.d"));
    assert_int_equal(mcc_rt_str_split_count(run, src + 3, 1, NULL, -1, counts), 2);
    mcc_rt_str_split(run, src + 3, 1, NULL, 0, 1, out);
    assert_true(is_text(out[0], "two words"));
}

static void test_strings(void **state)
{
    struct rt_string a[] = {string_of("Monday"), string_of("x"), string_of("")}, out[3];
    struct rt_string b[] = {string_of("monday"), string_of("x"), string_of("!")};
    uint8_t same[3];
    (void)state;
    mcc_rt_str_equal(run, a, b, same, 3);
    assert_true(!same[0] && same[1] && !same[2]);
    static const uint8_t list[] = "\3\0\0\0"
                                  "\1\0\0\0x"
                                  "\0\0\0\0"
                                  "\1\0\0\0x";
    int64_t found[3];
    mcc_rt_str_find(run, a, 3, list, found);
    assert_memory_equal(found, ((int64_t[]){0, 3, 2}), sizeof found);
    assert_int_equal(mcc_rt_str_pick(run, (int64_t[]){2, 0}, 2, a, 3, out), 0);
    assert_true(out[0].utf8 == a[2].utf8 && out[1].utf8 == a[0].utf8);
    assert_int_equal(mcc_rt_str_concat(run, a, b, out, 3), 0);
    assert_true(is_text(out[0], "Mondaymonday") && is_text(out[2], "!"));
    assert_int_equal(mcc_rt_str_normalize(run, a, 2, 2, b, 1, 1, out), 2);
    assert_true(is_text(out[0], "MONDAY") && is_text(out[1], "X"));
    assert_int_equal(mcc_rt_str_normalize(run, a, 2, 0, b, 1, 0, out), 1);
    assert_true(is_text(out[0], "x"));
    assert_int_equal(mcc_rt_str_normalize(run, a, 2, 1, b, 2, 0, out), 1);
    assert_true(is_text(out[0], ""));
}

static int64_t bits_of(double x)
{
    int64_t bits;
    memcpy(&bits, &x, 8);
    return bits;
}

/* numpy: RandomState(0).uniform(0, 1, 3); RandomState(42).normal(0, 1, 3) */
static void test_rng(void **state)
{
    static const double uniform[] = {0.5488135039273248, 0.7151893663724195, 0.6027633760716439};
    static const double normal[] = {0.4967141530112327, -0.13826430117118466, 0.6476885381006925};
    double x[3];
    (void)state;
    assert_int_equal(mcc_rt_rng(run, RT_ELEM_F64, x, 3, 0, 0, bits_of(0), bits_of(1)), 0);
    assert_memory_equal(x, uniform, sizeof x);
    assert_int_equal(mcc_rt_rng(run, RT_ELEM_F64, x, 3, 1, 42, bits_of(0), bits_of(1)), 0);
    for (int i = 0; i < 3; i++)
        assert_true(fabs(x[i] - normal[i]) < 1e-15);
}

static void test_fmod(void **state)
{
    (void)state;
    for (int i = 0; i < 20000; i++) {
        uint32_t a = random_word() << 16 ^ random_word(), b = random_word() << 16 ^ random_word();
        float x, y;
        memcpy(&x, &a, 4);
        memcpy(&y, &b, 4);
        float mine = mcc_rt_fmodf(x, y), theirs = fmodf(x, y);
        assert_true((isnan(mine) && isnan(theirs)) || memcmp(&mine, &theirs, 4) == 0);
    }
    assert_true(mcc_rt_fmod(-7.5, 2) == -1.5 && isnan(mcc_rt_fmod(1, 0)) && mcc_rt_fmod(1e300, 3) == fmod(1e300, 3));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_elements), TEST(test_sort_floats), TEST(test_sort_first),    TEST(test_sort_others),
        TEST(test_unique),   TEST(test_nonzero),     TEST(test_nonzero_drawn), TEST(test_nms_fewer),
        TEST(test_nms),      TEST(test_dft),         TEST(test_det),           TEST(test_rng),
        TEST(test_fmod),     TEST(test_split),       TEST(test_strings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* See panel.h. Sums of the field are reduced once for each result: sums of products are held as their lower bits and
 * what is above these. */
#include "ir/eval/panel.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "ir/ops/field.h"

enum { PANEL = 4, WIDE = 8, PRODUCTS = 4 /* of residues are below 2^64 with another 2^32: 4 N^2 */ };
typedef double pair __attribute__((vector_size(16)));
typedef uint64_t words __attribute__((vector_size(16)));

/* Written out, so that the sums stay in registers. */
static void panel_floats(const union word *a, const union word *b, int64_t k, int64_t rows, union word *c)
{
    pair s[PANEL][2], s00 = {0, 0}, s01 = s00, s10 = s00, s11 = s00, s20 = s00, s21 = s00, s30 = s00, s31 = s00;
    (void)rows;
    for (int64_t i = 0; i < k; i++, a += PANEL, b += PANEL) {
        pair lo = {b[0].f, b[1].f}, hi = {b[2].f, b[3].f};
        pair x0 = {a[0].f, a[0].f}, x1 = {a[1].f, a[1].f}, x2 = {a[2].f, a[2].f}, x3 = {a[3].f, a[3].f};
        s00 += x0 * lo;
        s01 += x0 * hi;
        s10 += x1 * lo;
        s11 += x1 * hi;
        s20 += x2 * lo;
        s21 += x2 * hi;
        s30 += x3 * lo;
        s31 += x3 * hi;
    }
    s[0][0] = s00, s[0][1] = s01, s[1][0] = s10, s[1][1] = s11;
    s[2][0] = s20, s[2][1] = s21, s[3][0] = s30, s[3][1] = s31;
    for (int r = 0; r < PANEL; r++)
        for (int j = 0; j < PANEL; j++)
            c[r * PANEL + j].f = s[r][j / 2][j % 2];
}

static void panel_ints(const union word *a, const union word *b, int64_t k, int64_t rows, union word *c)
{
    uint64_t s[PANEL][PANEL] = {{0}};
    (void)rows;
    for (int64_t i = 0; i < k; i++, a += PANEL, b += PANEL)
        for (int r = 0; r < PANEL; r++)
            for (int j = 0; j < PANEL; j++)
                s[r][j] += (uint64_t)a[r].i * (uint64_t)b[j].i;
    for (int r = 0; r < PANEL; r++)
        for (int j = 0; j < PANEL; j++)
            c[r * PANEL + j].i = (int64_t)s[r][j];
}

/* ---- residues ---------------------------------------------------------------------------------------------------- */

static uint32_t below_n(uint32_t x)
{
    x = x < x - FIELD_N ? x : x - FIELD_N;
    return x < x - FIELD_N ? x : x - FIELD_N;
}

/* (high 2^32 + low) / 2^32; low is below 2^32. */
static uint32_t sum_of(uint64_t high, uint64_t low)
{
    uint64_t x = below_n((uint32_t)high);
    x += field_reduced((high >> 32) * FIELD_SQUARE); /* high is below N 2^32 / FIELD_SQUARE times 2^32 */
    x += field_reduced(low);
    return (uint32_t)(x % FIELD_N);
}

/* Up to PRODUCTS products on sums below 2^32. high: what is above. */
static inline void add_products(const union word *a, const union word *b, int64_t k, words s[PANEL][2],
                                words high[PANEL][2])
{
    for (int64_t i = 0; i < k; i++, a += PANEL, b += PANEL) {
        const words lo = {b[0].u, b[1].u}, hi = {b[2].u, b[3].u};
#pragma GCC unroll 4
        for (int r = 0; r < PANEL; r++) {
            const words x = {a[r].u, a[r].u};
#ifdef __x86_64__
            s[r][0] += (words)_mm_mul_epu32((__m128i)x, (__m128i)lo);
            s[r][1] += (words)_mm_mul_epu32((__m128i)x, (__m128i)hi);
#else
            s[r][0] += x * lo;
            s[r][1] += x * hi;
#endif
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < PANEL; r++) {
        high[r][0] += s[r][0] >> 32, high[r][1] += s[r][1] >> 32;
        s[r][0] &= UINT32_MAX, s[r][1] &= UINT32_MAX;
    }
}

static void panel_field(const union word *a, const union word *b, int64_t k, int64_t rows, union word *c)
{
    words low[PANEL][2] = {{{0}}}, high[PANEL][2] = {{{0}}};
    int64_t i = 0;
    for (; i + PRODUCTS <= k; i += PRODUCTS)
        add_products(a + i * PANEL, b + i * PANEL, PRODUCTS, low, high);
    add_products(a + i * PANEL, b + i * PANEL, k - i, low, high);
    for (int r = 0; r < PANEL && r < rows; r++)
        for (int j = 0; j < PANEL; j++)
            c[r * PANEL + j].u = sum_of(high[r][j / 2][j % 2], low[r][j / 2][j % 2]);
}

#ifdef __x86_64__
/* The same with a row of four results in a register. */
__attribute__((target("avx2"))) static void panel_avx2(const union word *a, const union word *b, int64_t k,
                                                       int64_t rows, union word *c)
{
    const __m256i mask = _mm256_set1_epi64x(UINT32_MAX);
    __m256i s[PANEL], high[PANEL];
#pragma GCC unroll 4
    for (int r = 0; r < PANEL; r++)
        s[r] = high[r] = _mm256_setzero_si256();
    while (k > 0) {
        const int64_t n = k < PRODUCTS ? k : PRODUCTS;
        for (int64_t i = 0; i < n; i++, a += PANEL, b += PANEL) {
            const __m256i row = _mm256_loadu_si256((const __m256i *)b);
#pragma GCC unroll 4
            for (int r = 0; r < PANEL; r++)
                s[r] = _mm256_add_epi64(s[r], _mm256_mul_epu32(_mm256_set1_epi64x(a[r].i), row));
        }
        k -= n;
#pragma GCC unroll 4
        for (int r = 0; r < PANEL; r++) {
            high[r] = _mm256_add_epi64(high[r], _mm256_srli_epi64(s[r], 32));
            s[r] = _mm256_and_si256(s[r], mask);
        }
    }
    for (int r = 0; r < PANEL && r < rows; r++)
        for (int j = 0; j < PANEL; j++)
            c[r * PANEL + j].u = sum_of(((const uint64_t *)&high[r])[j], ((const uint64_t *)&s[r])[j]);
}

/* AVX-512 with products of 52 bits, whose lower and upper halves are added to a sum each. So many lower ones are below
 * 2^64 with another 2^32. */
#define IFMA __attribute__((target("avx512f,avx512ifma"), always_inline)) static inline
enum { HALVES = 1 << 11, HALF_BITS = 52 };

/* sum_of of eight. */
IFMA __m512i sums_of(__m512i high, __m512i low)
{
    const __m512i n = _mm512_set1_epi64(FIELD_N), inverse = _mm512_set1_epi64(FIELD_INVERSE);
    const __m512i mask = _mm512_set1_epi64(UINT32_MAX);
    __m512i x = _mm512_and_si512(high, mask);
    x = _mm512_min_epu32(x, _mm512_sub_epi32(x, n)); /* the upper halves are 0 */
    x = _mm512_min_epu32(x, _mm512_sub_epi32(x, n));
    const __m512i up = _mm512_mul_epu32(_mm512_srli_epi64(high, 32), _mm512_set1_epi64(FIELD_SQUARE));
    const __m512i of[2] = {up, low};
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) { /* field_reduced */
        __m512i taken = _mm512_mul_epu32(_mm512_mul_epu32(of[i], inverse), n);
        __m512i d = _mm512_srli_epi64(_mm512_sub_epi64(of[i], taken), 32);
        d = _mm512_min_epu32(d, _mm512_add_epi32(d, n));
        x = _mm512_add_epi32(x, d);
        x = _mm512_min_epu32(x, _mm512_sub_epi32(x, n));
    }
    return x;
}

IFMA void ifma_rows(const union word *a, const union word *b, int64_t k, int rows, union word *c)
{
    __m512i low[WIDE], high[WIDE], up[WIDE];
    const __m512i mask = _mm512_set1_epi64(UINT32_MAX);
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        low[r] = up[r] = _mm512_setzero_si512();
    while (k > 0) {
        const int64_t n = k < HALVES ? k : HALVES;
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
            high[r] = _mm512_setzero_si512();
        for (int64_t i = 0; i < n; i++, a += WIDE, b += WIDE) {
            const __m512i row = _mm512_loadu_si512(b);
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) {
                const __m512i x = _mm512_set1_epi64(a[r].i);
                low[r] = _mm512_madd52lo_epu64(low[r], x, row);
                high[r] = _mm512_madd52hi_epu64(high[r], x, row);
            }
        }
        k -= n;
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            up[r] = _mm512_add_epi64(up[r], _mm512_srli_epi64(low[r], 32));
            up[r] = _mm512_add_epi64(up[r], _mm512_slli_epi64(high[r], HALF_BITS - 32));
            low[r] = _mm512_and_si512(low[r], mask);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        _mm512_storeu_si512(c + (ptrdiff_t)r * WIDE, sums_of(up[r], low[r]));
}

__attribute__((target("avx512f,avx512ifma"))) static void panel_ifma(const union word *a, const union word *b,
                                                                     int64_t k, int64_t rows, union word *c)
{
    if (rows == 1)
        ifma_rows(a, b, k, 1, c);
    else if (rows <= WIDE / 2)
        ifma_rows(a, b, k, WIDE / 2, c);
    else
        ifma_rows(a, b, k, WIDE, c);
}
#endif

uint32_t panels_of(enum arithmetic arithmetic, struct panel of[PANELS_MOST])
{
    static panel_fn *const plain[] = {[INTEGERS] = panel_ints, [FLOATS] = panel_floats, [FIELD] = panel_field};
    uint32_t n = 0;
#ifdef __x86_64__
    if (arithmetic == FIELD && __builtin_cpu_supports("avx512ifma"))
        of[n++] = (struct panel){WIDE, panel_ifma};
    if (arithmetic == FIELD && __builtin_cpu_supports("avx2"))
        of[n++] = (struct panel){PANEL, panel_avx2};
#endif
    of[n++] = (struct panel){PANEL, plain[arithmetic]};
    return n;
}

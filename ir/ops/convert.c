/* Conversions between all element types, as ONNX Cast and OP_CONVERT want them.
 *
 * Floats round once, to nearest even; float8 and float4 saturate on request, else overflow to infinity or NaN,
 * whichever the format has; float -> integer truncates and saturates, NaN gives 0; integers wrap. Formats: IEEE 754
 * (f16), bfloat16, OCP 8-bit floating point (E4M3, E5M2), the FNUZ variants (no infinities, one NaN at -0), OCP MX
 * (E2M1, E8M0). Everything passes through blocks of doubles or int64, which hold every narrower type exactly.
 */
#include <math.h>

#include "ir/ops/scalar.h"

enum { BLOCK = 256 };

/* ---- small float formats ----------------------------------------------------------------------------------------- */

const struct float_format float_formats[ELEM_COUNT] = {
    [ELEM_F16] = {16, 10, 15, SPECIAL_IEEE, 0x7bff, 0x7c00, 0x7e00},
    [ELEM_BF16] = {16, 7, 127, SPECIAL_IEEE, 0x7f7f, 0x7f80, 0x7fc0},
    [ELEM_F8E4M3FN] = {8, 3, 7, SPECIAL_FN, 0x7e, 0x7f, 0x7f},
    [ELEM_F8E4M3FNUZ] = {8, 3, 8, SPECIAL_FNUZ, 0x7f, 0x80, 0x80},
    [ELEM_F8E5M2] = {8, 2, 15, SPECIAL_IEEE, 0x7b, 0x7c, 0x7e},
    [ELEM_F8E5M2FNUZ] = {8, 2, 16, SPECIAL_FNUZ, 0x7f, 0x80, 0x80},
    [ELEM_F4E2M1] = {4, 1, 1, SPECIAL_NONE, 0x7, 0x7, 0x8},
};

static uint32_t sign_bit(const struct float_format *f)
{
    return 1u << (f->bits - 1);
}

static double small_decode(const struct float_format *f, uint32_t bits)
{
    uint32_t a = bits & (sign_bit(f) - 1);
    double sign = bits & sign_bit(f) ? -1 : 1;
    if (f->special == SPECIAL_FNUZ && bits == f->nan)
        return NAN;
    if (f->special == SPECIAL_IEEE && a >= f->overflow)
        return a == f->overflow ? sign * INFINITY : NAN;
    if (f->special == SPECIAL_FN && a == f->nan)
        return NAN;
    int e = (int)(a >> f->mantissa);
    double m = a & ((1u << f->mantissa) - 1);
    return sign * (e ? ldexp(m + (1 << f->mantissa), e - f->bias - (int)f->mantissa)
                     : ldexp(m, 1 - f->bias - (int)f->mantissa));
}

static uint32_t small_encode(const struct float_format *f, double x, bool saturate)
{
    uint32_t sign = signbit(x) ? sign_bit(f) : 0;
    if (isnan(x))
        return f->special == SPECIAL_FNUZ || f->special == SPECIAL_NONE ? f->nan : sign | f->nan;
    x = fabs(x);
    uint32_t over = saturate ? f->max : f->overflow, code;
    if (isinf(x)) {
        code = over;
    } else {
        int e, low = 1 - f->bias;
        frexp(x, &e);
        e = x > 0 && e - 1 > low ? e - 1 : low; /* zero has no exponent of its own */
        /* one bit more than the mantissa has remains, at most, before the point; carrying into the exponent is what the
         * sum does */
        double q = nearbyint(ldexp(x, (int)f->mantissa - e));
        code = e - low > 300 ? f->max + 1 : ((uint32_t)(e - low) << f->mantissa) + (uint32_t)q;
        if (code > f->max)
            code = over;
    }
    return f->special == SPECIAL_FNUZ && (code == 0 || code == f->nan) ? code : sign | code;
}

bool round_mode_by_name(const char *name, enum round_mode *out)
{
    static const char *const names[] = {"even", "up", "down", "nearest", "normal"};
    const char *const *row = ROW_NAMED(names, COUNT_OF(names), name ? name : "even");
    if (row)
        *out = (enum round_mode)(row - names);
    return row;
}

/* Powers of two only; sign is ignored, NaN and infinities give NaN. ONNX Cast-24, round_mode. */
static uint8_t e8m0_encode(float x, bool saturate, const char *round)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t e = bits >> 23 & 0xff, m = bits & 0x7fffff;
    bool up = strcmp(round, "up") == 0     ? m > 0
              : strcmp(round, "down") == 0 ? false
                                           : m > 0x400000 || (m == 0x400000 && e > 0);
    return e == 0xff ? 0xff : (uint8_t)(up && !(saturate && e == 0xfe) ? e + 1 : e);
}

/* ---- loading ----------------------------------------------------------------------------------------------------- */

void elems_to_f64(enum elem elem, const void *src, double *dst, size_t n)
{
    const uint8_t *p8 = src;
    const uint16_t *p16 = src;
    int64_t ints[BLOCK];
    switch (elem) {
    case ELEM_F64:
    case ELEM_C128: memcpy(dst, src, n * sizeof *dst); return;
    case ELEM_F32:
    case ELEM_C64:
        for (size_t i = 0; i < n; i++)
            dst[i] = ((const float *)src)[i];
        return;
    case ELEM_F16:
    case ELEM_BF16:
        for (size_t i = 0; i < n; i++)
            dst[i] = small_decode(&float_formats[elem], p16[i]);
        return;
    case ELEM_F8E8M0:
        for (size_t i = 0; i < n; i++)
            dst[i] = p8[i] == 0xff ? NAN : ldexp(1, p8[i] - 127);
        return;
    default: break;
    }
    if (elem_class(elem) == 'F') {
        for (size_t i = 0; i < n; i++)
            dst[i] = small_decode(&float_formats[elem], p8[i]);
        return;
    }
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t m = n - at < BLOCK ? n - at : BLOCK;
        elems_to_i64(elem, p8 + at * elem_size(elem), ints, m);
        for (size_t i = 0; i < m; i++)
            dst[at + i] = elem == ELEM_U64 ? (double)(uint64_t)ints[i] : (double)ints[i];
    }
}

/* Bits of a sub-byte signed integer, whatever the rest of the byte holds. */
static int64_t sign_extend(uint64_t v, uint32_t bits)
{
    return (int64_t)(v << (64 - bits)) >> (64 - bits);
}

static int64_t saturated(double x, enum elem elem)
{
    if (isnan(x))
        return 0;
    uint32_t bits = elem_bits(elem);
    if (elem_class(elem) == 'U') {
        double top = ldexp(1, (int)bits);
        if (x >= top)
            return bits == 64 ? -1 : (int64_t)(((uint64_t)1 << bits) - 1);
        return x <= 0 ? 0 : (int64_t)(uint64_t)x;
    }
    double top = ldexp(1, (int)bits - 1);
    int64_t hi = (int64_t)(((uint64_t)1 << (bits - 1)) - 1);
    return x >= top ? hi : x < -top ? -hi - 1 : (int64_t)x;
}

#define LOAD_INTS(T)                           \
    for (size_t i = 0; i < n; i++)             \
        dst[i] = (int64_t)((const T *)src)[i]; \
    return

void elems_to_i64(enum elem elem, const void *src, int64_t *dst, size_t n)
{
    const uint8_t *p8 = src;
    double x;
    switch (elem) {
    case ELEM_I64:
    case ELEM_U64: memcpy(dst, src, n * sizeof *dst); return;
    case ELEM_I32: LOAD_INTS(int32_t);
    case ELEM_I16: LOAD_INTS(int16_t);
    case ELEM_I8: LOAD_INTS(int8_t);
    case ELEM_U32: LOAD_INTS(uint32_t);
    case ELEM_U16: LOAD_INTS(uint16_t);
    case ELEM_U8: LOAD_INTS(uint8_t);
    case ELEM_I4:
    case ELEM_I2:
        for (size_t i = 0; i < n; i++)
            dst[i] = sign_extend(p8[i], elem_bits(elem));
        return;
    case ELEM_U4:
    case ELEM_U2:
        for (size_t i = 0; i < n; i++)
            dst[i] = p8[i] & ((1 << elem_bits(elem)) - 1);
        return;
    case ELEM_BOOL:
        for (size_t i = 0; i < n; i++)
            dst[i] = p8[i] != 0;
        return;
    default:
        for (size_t i = 0; i < n; i++) {
            elems_to_f64(elem, p8 + i * elem_size(elem), &x, 1);
            dst[i] = saturated(x, ELEM_I64);
        }
    }
}

/* ---- storing ----------------------------------------------------------------------------------------------------- */

static void store_floats(enum elem elem, const double *src, void *dst, size_t n, bool saturate, const char *round)
{
    const struct float_format *f = &float_formats[elem];
    if (elem == ELEM_F64 || elem == ELEM_C128) {
        memcpy(dst, src, n * sizeof *src);
    } else if (elem == ELEM_F32 || elem == ELEM_C64) {
        for (size_t i = 0; i < n; i++)
            ((float *)dst)[i] = (float)src[i];
    } else if (elem == ELEM_F16 || elem == ELEM_BF16) {
        for (size_t i = 0; i < n; i++)
            ((uint16_t *)dst)[i] = (uint16_t)small_encode(f, src[i], false);
    } else if (elem == ELEM_F8E8M0) {
        for (size_t i = 0; i < n; i++)
            ((uint8_t *)dst)[i] = e8m0_encode((float)src[i], saturate, round);
    } else {
        for (size_t i = 0; i < n; i++)
            ((uint8_t *)dst)[i] = (uint8_t)small_encode(f, src[i], saturate);
    }
}

#define STORE_INTS(T)              \
    for (size_t i = 0; i < n; i++) \
        ((T *)dst)[i] = (T)src[i]; \
    return

/* An int64 as a double that rounds to any narrower float as the integer itself would: low bits become a sticky bit. */
static double sticky(int64_t v, bool is_unsigned)
{
    bool negative = !is_unsigned && v < 0;
    uint64_t a = negative ? -(uint64_t)v : (uint64_t)v;
    if (a >> 53)
        a = (a & ~(uint64_t)0xfff) | (a & 0xfff ? 0x1000 : 0);
    return negative ? -(double)a : (double)a;
}

static void store_ints(enum elem elem, const int64_t *src, void *dst, size_t n, bool is_unsigned, bool saturate,
                       const char *round)
{
    double x[BLOCK];
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t m = n - at < BLOCK ? n - at : BLOCK;
        for (size_t i = 0; i < m; i++) {
            int64_t v = src[at + i];
            x[i] = elem != ELEM_F64 ? sticky(v, is_unsigned) : is_unsigned ? (double)(uint64_t)v : (double)v;
        }
        store_floats(elem, x, (char *)dst + at * elem_size(elem), m, saturate, round);
    }
}

void elems_from_i64(enum elem elem, const int64_t *src, void *dst, size_t n)
{
    switch (elem) {
    case ELEM_I64:
    case ELEM_U64: memcpy(dst, src, n * sizeof *src); return;
    case ELEM_I32:
    case ELEM_U32: STORE_INTS(uint32_t);
    case ELEM_I16:
    case ELEM_U16: STORE_INTS(uint16_t);
    case ELEM_I8:
    case ELEM_U8: STORE_INTS(uint8_t);
    case ELEM_I4:
    case ELEM_I2:
        for (size_t i = 0; i < n; i++)
            ((int8_t *)dst)[i] = (int8_t)sign_extend((uint64_t)src[i], elem_bits(elem));
        return;
    case ELEM_U4:
    case ELEM_U2:
        for (size_t i = 0; i < n; i++)
            ((uint8_t *)dst)[i] = (uint8_t)(src[i] & ((1 << elem_bits(elem)) - 1));
        return;
    case ELEM_BOOL:
        for (size_t i = 0; i < n; i++)
            ((uint8_t *)dst)[i] = src[i] != 0;
        return;
    default: store_ints(elem, src, dst, n, false, true, "even");
    }
}

void elems_from_f64(enum elem elem, const double *src, void *dst, size_t n)
{
    int64_t ints[BLOCK];
    if (strchr("FC", elem_class(elem))) {
        store_floats(elem, src, dst, n, true, "even");
        return;
    }
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t m = n - at < BLOCK ? n - at : BLOCK;
        for (size_t i = 0; i < m; i++)
            ints[i] = elem == ELEM_BOOL ? src[at + i] != 0 : saturated(src[at + i], elem);
        elems_from_i64(elem, ints, (char *)dst + at * elem_size(elem), m);
    }
}

/* ---- bit code for the pairs that whole networks convert --------------------------------------------------------- */

static float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 0x1f, m = h & 0x3ff, bits;
    float x;
    if (e == 0) {
        x = (float)m * 0x1p-24f;
        return sign ? -x : x;
    }
    bits = sign | (e == 31 ? 0x7f800000u : (e + 112) << 23) | m << 13;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint16_t f32_to_f16(float x)
{
    uint32_t bits, sign;
    memcpy(&bits, &x, sizeof bits);
    sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    if (bits > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (bits >= 0x477ff000) /* rounds to 65536 or more */
        return (uint16_t)(sign | 0x7c00);
    if (bits >= 0x38800000) /* normal: round the 13 bits away to even, rebias */
        return (uint16_t)(sign | (bits - 0x38000000 + 0xfff + (bits >> 13 & 1)) >> 13);
    float a; /* below: adding 0.5 leaves units of 2^-24 in the low bits, rounded by the addition */
    memcpy(&a, &bits, sizeof a);
    a += 0.5f;
    memcpy(&bits, &a, sizeof bits);
    return (uint16_t)(sign | (bits - 0x3f000000));
}

static bool convert_fast(enum elem from, const void *src, enum elem to, void *dst, size_t n)
{
    if (from == ELEM_F16 && to == ELEM_F32) {
        for (size_t i = 0; i < n; i++)
            ((float *)dst)[i] = f16_to_f32(((const uint16_t *)src)[i]);
        return true;
    }
    if (from == ELEM_F32 && to == ELEM_F16) {
        for (size_t i = 0; i < n; i++)
            ((uint16_t *)dst)[i] = f32_to_f16(((const float *)src)[i]);
        return true;
    }
    if (from == ELEM_BF16 && to == ELEM_F32) {
        for (size_t i = 0; i < n; i++)
            ((uint32_t *)dst)[i] = (uint32_t)((const uint16_t *)src)[i] << 16;
        return true;
    }
    if (from == ELEM_F32 && to == ELEM_BF16) {
        for (size_t i = 0; i < n; i++) {
            uint32_t x = ((const uint32_t *)src)[i];
            bool nan = (x & 0x7fffffff) > 0x7f800000;
            ((uint16_t *)dst)[i] = (uint16_t)(nan ? (x >> 16 & 0x8000) | 0x7fc0 : (x + 0x7fff + (x >> 16 & 1)) >> 16);
        }
        return true;
    }
    return false;
}

/* ---- conversion -------------------------------------------------------------------------------------------------- */

static void convert_block(enum elem from, const void *src, enum elem to, void *dst, size_t n, bool saturate,
                          const char *round)
{
    double x[BLOCK];
    int64_t v[BLOCK];
    if (strchr("FC", elem_class(from))) {
        elems_to_f64(from, src, x, n);
        if (strchr("FC", elem_class(to)))
            store_floats(to, x, dst, n, saturate, round);
        else
            elems_from_f64(to, x, dst, n);
        return;
    }
    elems_to_i64(from, src, v, n);
    if (elem_class(to) == 'F')
        store_ints(to, v, dst, n, from == ELEM_U64, saturate, round);
    else
        elems_from_i64(to, v, dst, n);
}

void elems_convert(enum elem from, const void *src, enum elem to, void *dst, size_t n, bool saturate, const char *round)
{
    if (from == to) {
        memcpy(dst, src, n * elem_size(from));
        return;
    }
    if (convert_fast(from, src, to, dst, n))
        return;
    size_t parts = elem_class(from) == 'C' ? 2 : 1, sf = elem_size(from) / parts, st = elem_size(to) / parts;
    n *= parts;
    for (size_t at = 0; at < n; at += BLOCK)
        convert_block(from, (const char *)src + at * sf, to, (char *)dst + at * st, n - at < BLOCK ? n - at : BLOCK,
                      saturate, round);
}

double elem_to_f64(enum elem elem, const void *src)
{
    double x;
    elems_to_f64(elem, src, &x, 1);
    return x;
}

int64_t elem_to_i64(enum elem elem, const void *src)
{
    int64_t v;
    elems_to_i64(elem, src, &v, 1);
    return v;
}

void elem_from_f64(enum elem elem, double x, void *dst)
{
    elems_from_f64(elem, &x, dst, 1);
}

void elem_from_i64(enum elem elem, int64_t v, void *dst)
{
    elems_from_i64(elem, &v, dst, 1);
}

/* Functions of f32 and f64 that C has in its library only, as text: for each type that needs them. */
#include "codegen/c/c_internal.h"

/* $t the type, $w an unsigned of its bits, $s its sign, $i infinity, $q a NaN, $p bits of the mantissa, $e the bias, $m
 * 2^$p. */
static const struct {
    const char *name, *needs, *text;
} reals[] = {
    {"bits", "",
     "INLINE $w $t_bits($t a)\n{\n    $w r;\n    memcpy(&r, &a, sizeof r);\n    return r;\n}\n"
     "INLINE $t $t_of($w a)\n{\n    $t r;\n    memcpy(&r, &a, sizeof r);\n    return r;\n}\n"},
    {"abs", "bits",
     "INLINE $t $t_abs($t a)\n{\n    return $t_of($t_bits(a) & ~$s);\n}\n"
     "INLINE $t $t_sign($t a, $t b)\n{\n    return $t_of(($t_bits(a) & ~$s) | ($t_bits(b) & $s));\n}\n"},
    /* Adding and subtracting 2^p rounds to even; numbers without a fraction and NaN pass; the sign of zero stays. */
    {"rint", "abs",
     "INLINE $t $t_rint($t a)\n{\n    $t m = $t_abs(a), r = m + $m;\n    r = r - $m;\n"
     "    return m < $m ? $t_sign(r, a) : a;\n}\n"},
    {"trunc", "rint",
     "INLINE $t $t_trunc($t a)\n{\n    $t m = $t_abs(a), r = $t_rint(m);\n    r = r > m ? r - 1 : r;\n"
     "    return m < $m ? $t_sign(r, a) : a;\n}\n"},
    {"floor", "rint",
     "INLINE $t $t_floor($t a)\n{\n    $t r = $t_rint(a);\n    r = r > a ? r - 1 : r;\n"
     "    return $t_abs(a) < $m ? $t_sign(r, a) : a;\n}\n"},
    {"ceil", "rint",
     "INLINE $t $t_ceil($t a)\n{\n    $t r = $t_rint(a);\n    r = r < a ? r + 1 : r;\n"
     "    return $t_abs(a) < $m ? $t_sign(r, a) : a;\n}\n"},
    /* The low bits of the sum are those of the power of two, of whose halves the second product alone rounds. */
    {"ldexp", "bits",
     "INLINE $t $t_ldexp($t a, $t n)\n{\n    $w sum = $t_bits(n + ($m + $m / 2 + 2 * $e)), half = sum >> 1;\n"
     "    a = a * $t_of((sum - half) << $p);\n    return a * $t_of(half << $p);\n}\n"},
    /* Without an instruction for it bit by bit, one bit more than the result has: it is never half way. */
    {"sqrt", "bits",
     "INLINE $t $t_sqrt($t a)\n{\n#ifdef SQRT_$t\n    return SQRT_$t(a);\n#else\n"
     "    $w x = $t_bits(a), root = 0, rest = 0;\n    int e = (int)(x >> $p);\n"
     "    if (x == 0 || x == $s || x == $i || a != a)\n        return a;\n"
     "    if (x > $i)\n        return $t_of($q);\n"
     "    x &= (($w)1 << $p) - 1;\n"
     "    if (e == 0)\n        for (e = 1; !(x >> $p); e--)\n            x <<= 1;\n"
     "    x |= ($w)1 << $p;\n    e -= $e;\n    if (e & 1)\n        x <<= 1;\n"
     "    for (int at = $p; at >= -$p - 2; at -= 2) {\n"
     "        rest = rest << 2 | ((at >= 0 ? x >> at : at > -2 ? x << -at : 0) & 3);\n"
     "        root <<= 1;\n        if (rest > 2 * root) {\n            rest -= 2 * root + 1;\n            root++;\n"
     "        }\n    }\n"
     "    root = (root + 1) >> 1;\n"
     "    return $t_of(((($w)((e - (e & 1)) / 2 + $e) - 1) << $p) + root);\n#endif\n}\n"},
    /* C's fmod: the divisor is subtracted, shifted, as in long division. */
    {"fmod", "abs",
     "INLINE $t $t_fmod($t a, $t b)\n{\n    $w x = $t_bits(a) & ~$s, y = $t_bits(b) & ~$s, one = ($w)1 << $p;\n"
     "    int ex = (int)(x >> $p), ey = (int)(y >> $p);\n"
     "    if (a != a || b != b || x >= $i || y == 0)\n        return a != a ? a : b != b ? b : $t_of($q);\n"
     "    if (x < y)\n        return a;\n"
     "    x = ex ? (x & (one - 1)) | one : x;\n    y = ey ? (y & (one - 1)) | one : y;\n"
     "    for (ex = ex ? ex : 1; x < one; ex--)\n        x <<= 1;\n"
     "    for (ey = ey ? ey : 1; y < one; ey--)\n        y <<= 1;\n"
     "    for (; ex > ey; ex--) {\n        x = x >= y ? x - y : x;\n        x <<= 1;\n    }\n"
     "    x = x >= y ? x - y : x;\n"
     "    for (; x && x < one; ex--)\n        x <<= 1;\n"
     "    x = x && ex > 0 ? (x - one) | ($w)ex << $p : x >> (ex > 0 ? 0 : 1 - ex);\n"
     "    return $t_of(x | ($t_bits(a) & $s));\n}\n"},
};

/* Products of f32 are exact in f64; their sum is rounded to odd, so that rounding it again is the one rounding. */
static const char fma_f32[] =
    "INLINE f32 f32_fma(f32 a, f32 b, f32 c)\n{\n#ifdef FMA_f32\n    return FMA_f32(a, b, c);\n#else\n"
    "    f64 p = (f64)a * (f64)b, q = (f64)c, s = p + q, t = s - p, e;\n    u64 bits = f64_bits(s);\n"
    "    e = s - t;\n    e = p - e;\n    t = q - t;\n    e = e + t;\n"
    "    if (e != 0 && s - s == 0 && !(bits & 1))\n"
    "        bits = (e > 0) == (s > 0) ? bits + 1 : bits - 1;\n"
    "    return (f32)f64_of(bits);\n#endif\n}\n";
static const char fma_f64[] =
    "#ifndef FMA_f64\n#error \"the CPU that this file is for has fused multiply-add: -mfma, or another -march of mcc\"\n"
    "#endif\nINLINE f64 f64_fma(f64 a, f64 b, f64 c)\n{\n    return FMA_f64(a, b, c);\n}\n";

static const struct c_var of_f32[] = {{'t', "f32"},         {'w', "u32"}, {'s', "0x80000000u"}, {'i', "0x7f800000u"},
                                      {'q', "0x7fc00000u"}, {'p', "23"},  {'e', "127"},         {'m', "0x1p23f"}};
static const struct c_var of_f64[] = {{'t', "f64"},
                                      {'w', "u64"},
                                      {'s', "UINT64_C(0x8000000000000000)"},
                                      {'i', "UINT64_C(0x7ff0000000000000)"},
                                      {'q', "UINT64_C(0x7ff8000000000000)"},
                                      {'p', "52"},
                                      {'e', "1023"},
                                      {'m', "0x1p52"}};

void c_need_real(struct c_file *c, const char *name, enum elem e)
{
    bool wide = e == ELEM_F64;
    if (!c_first(c, arena_printf(c->arena, "%s_%s", elem_name(e), name)))
        return;
    if (wide)
        c->has_f64 = true;
    if (strcmp(name, "fma") == 0) {
        c_need_real(c, "bits", ELEM_F64);
        strbuf_printf(&c->helpers, "%s", wide ? fma_f64 : fma_f32);
        return;
    }
    for (size_t i = 0; i < COUNT_OF(reals); i++)
        if (strcmp(reals[i].name, name) == 0) {
            if (*reals[i].needs)
                c_need_real(c, reals[i].needs, e);
            c_text(&c->helpers, reals[i].text, wide ? of_f64 : of_f32, COUNT_OF(of_f32));
            return;
        }
}

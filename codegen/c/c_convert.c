/* Conversions between element types as C functions: each pair by way of f32, f64 or integers (the rules are those of
 * docs/loop-ir.md). Small floats are their bits in integers.
 */
#include "codegen/c/c_internal.h"

#include <inttypes.h>

static const char *one(struct c_file *c, enum elem from, enum elem to, bool saturate, const char *rounding);

static const char *power_of_two(struct c_file *c, int32_t exponent)
{
    return arena_printf(c->arena, "0x1p%" PRId32 "f", exponent);
}

/* ---- small floats ------------------------------------------------------------------------------------------------ */

/* Moves the bits into f32's fields and multiplies by the power of two between the biases. */
static void put_widen(struct c_file *c, const char *name, enum elem from)
{
    const struct float_format *f = &float_formats[from];
    struct strbuf *out = &c->helpers;
    c_need_real(c, "bits", ELEM_F32);
    strbuf_printf(out, "INLINE f32 %s(%s a)\n{\n    u32 x = a;\n", name, c_scalar(c, from));
    if (from == ELEM_BF16) {
        strbuf_printf(out, "    return f32_of(x << 16);\n}\n");
        return;
    }
    if (from == ELEM_F8E8M0) {
        strbuf_printf(out, "    return f32_of(x == 0 ? 0x400000u : x == 255 ? 0x7fc00000u : x << 23);\n}\n");
        return;
    }
    uint32_t shift = 23 - f->mantissa, sign = f->bits - 1;
    strbuf_printf(out, "    u32 m = x & 0x%xu, s = (x >> %u & 1) << 31, r;\n", (1u << sign) - 1, sign);
    strbuf_printf(out, "    f32 y = f32_of(m << %u) * %s;\n    r = f32_bits(y);\n", shift,
                  power_of_two(c, 127 - f->bias));
    if (f->special == SPECIAL_IEEE)
        strbuf_printf(out, "    r = m >= 0x%xu ? m << %u | 0x7f800000u : r;\n", f->overflow, shift);
    else if (f->special == SPECIAL_FN)
        strbuf_printf(out, "    r = m == 0x%xu ? 0x7fc00000u : r;\n", f->nan);
    strbuf_printf(out,
                  f->special == SPECIAL_FNUZ ? "    return f32_of(x == 0x%xu ? 0x7fc00000u : r | s);\n}\n"
                                             : "    return f32_of(r | s);\n}\n",
                  f->nan);
}

static void put_narrow_e8m0(struct c_file *c, const char *rounding, bool saturate)
{
    struct strbuf *out = &c->helpers;
    strbuf_printf(out, "    u32 e, r;\n    x &= 0x7fffffffu;\n    e = x >> 23;\n");
    if (strcmp(rounding, "up") == 0)
        strbuf_printf(out, "    r = (x + 0x7fffffu) >> 23;\n");
    else if (strcmp(rounding, "down") == 0)
        strbuf_printf(out, "    r = e;\n");
    else
        strbuf_printf(out, "    r = (x + (e ? 0x400000u : 0x3fffffu)) >> 23;\n");
    if (saturate)
        strbuf_printf(out, "    r = e == 254 ? e : r;\n");
    strbuf_printf(out, "    return (u8)(e == 255 ? e : r);\n}\n");
}

static void put_narrow_bf16(struct c_file *c, bool normal)
{
    struct strbuf *out = &c->helpers;
    strbuf_printf(out, "    if (a != a)\n        return (u16)((x >> 16 & 0x8000u) | 0x7fc0u);\n");
    if (normal && c->machine.bf16)
        strbuf_printf(out, "    x = (x & 0x7fffffffu) < 0x800000u ? x & 0x80000000u : x;\n");
    strbuf_printf(out, "    return (u16)((x + 0x7fffu + (x >> 16 & 1)) >> 16);\n}\n");
}

/* Rounds sign and magnitude as one number. Below the smallest normal number an addition does it, of a power of two
 * whose last bit is the format's smallest step. */
static void put_narrow(struct c_file *c, const char *name, enum elem to, bool saturate, const char *rounding)
{
    const struct float_format *f = &float_formats[to];
    struct strbuf *out = &c->helpers;
    int32_t drop = 23 - (int32_t)f->mantissa;
    c_need_real(c, "bits", ELEM_F32);
    strbuf_printf(out, "INLINE %s %s(f32 a)\n{\n    u32 x = f32_bits(a);\n", c_scalar(c, to), name);
    if (to == ELEM_F8E8M0) {
        put_narrow_e8m0(c, rounding, saturate);
        return;
    }
    if (to == ELEM_BF16) {
        put_narrow_bf16(c, strcmp(rounding, "normal") == 0);
        return;
    }
    bool limits = saturate && f->bits == 8;
    const char *magic = power_of_two(c, 1 - f->bias - (int32_t)f->mantissa + 23);
    strbuf_printf(out, "    u32 m = x & 0x7fffffffu, s = x >> %u & 0x%xu, r;\n", 32 - f->bits, 1u << (f->bits - 1));
    strbuf_printf(out, "    f32 low = f32_of(m) + %s;\n", magic);
    strbuf_printf(out, "    r = ((m + 0x%xu + (m >> %d & 1)) >> %d) - 0x%xu;\n", (1u << (drop - 1)) - 1, drop, drop,
                  (uint32_t)(127 - f->bias) << f->mantissa);
    strbuf_printf(out, "    r = m < 0x%xu ? f32_bits(low) - f32_bits(%s) : r;\n", (uint32_t)(128 - f->bias) << 23,
                  magic);
    uint32_t most = limits ? f->max : f->overflow;
    strbuf_printf(out, "    r = m > 0x7f800000u ? 0x%xu : m == 0x7f800000u || r > 0x%xu ? 0x%xu : r;\n", f->nan, f->max,
                  most);
    if (f->special == SPECIAL_FNUZ)
        strbuf_printf(out, "    s = r == 0 ? 0 : s;\n");
    strbuf_printf(out, "    return (%s)(r | s);\n}\n", c_scalar(c, to));
}

/* f64 -> f32 rounded to odd: rounding that once more gives what one rounding gives. */
static const char f64_odd[] = "INLINE f32 f32_odd_from_f64(f64 a)\n{\n    f32 r = (f32)a;\n    u32 x = f32_bits(r);\n"
                              "    if ((f64)r == a || a != a)\n        return r;\n"
                              "    return f32_of((f64_abs((f64)r) > f64_abs(a) ? x - 1 : x) | 1);\n}\n";

static void float_to_float(struct c_file *c, const char *name, enum elem from, enum elem to, bool saturate,
                           const char *rounding)
{
    struct strbuf *out = &c->helpers;
    const char *to_type = c_scalar(c, to), *from_type = c_scalar(c, from), *up, *down;
    if (c_is_float(from) && c_is_float(to)) {
        strbuf_printf(out, "INLINE %s %s(%s a)\n{\n    return (%s)a;\n}\n", to_type, name, from_type, to_type);
    } else if (from == ELEM_F32) {
        put_narrow(c, name, to, saturate, rounding);
    } else if (to == ELEM_F32) {
        put_widen(c, name, from);
    } else if (from == ELEM_F64) {
        bool plain = to == ELEM_F8E8M0;
        c_need_real(c, "abs", ELEM_F64);
        c_need_real(c, "bits", ELEM_F32);
        down = one(c, ELEM_F32, to, saturate, rounding);
        if (!plain && c_first(c, "f32_odd_from_f64"))
            strbuf_printf(out, "%s", f64_odd);
        strbuf_printf(out, "INLINE %s %s(f64 a)\n{\n    return %s(%s(a));\n}\n", to_type, name, down,
                      plain ? "(f32)" : "f32_odd_from_f64");
    } else {
        up = one(c, from, ELEM_F32, false, "even");
        down = one(c, ELEM_F32, to, saturate, rounding);
        strbuf_printf(out, "INLINE %s %s(%s a)\n{\n    return %s(%s(a));\n}\n", to_type, name, from_type,
                      to == ELEM_F64 ? "(f64)" : down, up);
    }
}

/* ---- integers ---------------------------------------------------------------------------------------------------- */

/* Truncated and saturated, NaN gives 0. */
static void float_to_int(struct c_file *c, const char *name, enum elem from, enum elem to)
{
    struct strbuf *out = &c->helpers;
    uint32_t bits = elem_bits(to), digits = elem_class(to) == 'I' ? bits - 1 : bits;
    bool is_signed = digits < bits, wide = from == ELEM_F64;
    const char *type = c_scalar(c, to), *f = wide ? "" : "f";
    if (!c_is_float(from)) {
        const char *up = one(c, from, ELEM_F32, false, "even"), *down = one(c, ELEM_F32, to, false, "even");
        strbuf_printf(out, "INLINE %s %s(%s a)\n{\n    return %s(%s(a));\n}\n", type, name, c_scalar(c, from), down,
                      up);
        return;
    }
    uint64_t most = digits == 64 ? UINT64_MAX : (UINT64_C(1) << digits) - 1;
    strbuf_printf(out, "INLINE %s %s(%s a)\n{\n", type, name, c_scalar(c, from));
    strbuf_printf(out, "    if (a >= 0x1p%u%s)\n        return (%s)UINT64_C(%" PRIu64 ");\n", digits, f, type, most);
    if (is_signed)
        strbuf_printf(out, "    if (a < -0x1p%u%s)\n        return (%s)(-INT64_C(%" PRIu64 ") - 1);\n", digits, f, type,
                      most);
    strbuf_printf(out, is_signed ? "    return a == a ? (%s)a : (%s)0;\n}\n" : "    return a > 0 ? (%s)a : (%s)0;\n}\n",
                  type, type);
}

/* 64-bit integers past 2^53 keep one sticky bit of those that f64 has no room for. */
static const char sticky[] =
    "INLINE f64 f64_sticky(u64 a)\n{\n"
    "    return (f64)(a >> 53 && a & 0xfff ? (a & ~UINT64_C(0xfff)) | 0x1000 : a >> 53 ? a & ~UINT64_C(0xfff) : a);\n}\n";

static void int_to_float(struct c_file *c, const char *name, enum elem from, enum elem to, bool saturate,
                         const char *rounding)
{
    struct strbuf *out = &c->helpers;
    enum elem via = elem_bits(from) <= 16 ? ELEM_F32 : ELEM_F64;
    const char *type = from == ELEM_BOOL ? "bool" : c_scalar(c, from), *down;
    if (c_is_float(to)) {
        strbuf_printf(out, "INLINE %s %s(%s a)\n{\n    return (%s)a;\n}\n", c_scalar(c, to), name, type,
                      c_scalar(c, to));
        return;
    }
    down = one(c, via, to, saturate, rounding);
    if (elem_bits(from) < 64) {
        strbuf_printf(out, "INLINE %s %s(%s a)\n{\n    return %s((%s)a);\n}\n", c_scalar(c, to), name, type, down,
                      elem_name(via));
        return;
    }
    if (c_first(c, "f64_sticky"))
        strbuf_printf(out, "%s", sticky);
    strbuf_printf(
        out,
        elem_class(from) == 'I'
            ? "INLINE %s %s(%s a)\n{\n    return %s(a < 0 ? -f64_sticky(0 - (u64)a) : f64_sticky((u64)a));\n}\n"
            : "INLINE %s %s(%s a)\n{\n    return %s(f64_sticky(a));\n}\n",
        c_scalar(c, to), name, type, down);
}

static void int_to_int(struct c_file *c, const char *name, enum elem from, enum elem to)
{
    struct strbuf *out = &c->helpers;
    const char *type = c_scalar(c, to), *from_type = from == ELEM_BOOL ? "bool" : c_scalar(c, from);
    uint32_t bits = elem_bits(to);
    strbuf_printf(out, "INLINE %s %s(%s a)\n{\n", type, name, from_type);
    if (bits >= 8)
        strbuf_printf(out, "    return (%s)a;\n}\n", type);
    else if (elem_class(to) == 'U')
        strbuf_printf(out, "    return (u8)((u64)a & %u);\n}\n", (1u << bits) - 1);
    else
        strbuf_printf(out, "    u64 x = (u64)a & %u;\n    return (i8)((i32)(x ^ %u) - %u);\n}\n", (1u << bits) - 1,
                      1u << (bits - 1), 1u << (bits - 1));
}

static void to_bool(struct c_file *c, const char *name, enum elem from)
{
    bool small = elem_class(from) == 'F' && !c_is_float(from);
    const char *up = small ? one(c, from, ELEM_F32, false, "even") : "";
    strbuf_printf(&c->helpers, "INLINE bool %s(%s a)\n{\n    return %s(a) != 0;\n}\n", name, c_scalar(c, from), up);
}

static const char *one(struct c_file *c, enum elem from, enum elem to, bool saturate, const char *rounding)
{
    bool default_rounding = !rounding || strcmp(rounding, "even") == 0;
    const char *name = arena_printf(c->arena, "%s_from_%s%s%s%s", elem_name(to), elem_name(from),
                                    saturate ? "_saturated" : "", default_rounding ? "" : "_",
                                    default_rounding ? "" : rounding);
    bool real[2] = {elem_class(from) == 'F', elem_class(to) == 'F'};
    if (!c_first(c, arena_printf(c->arena, "f %s", name)))
        return name;
    rounding = rounding ? rounding : "even";
    if (from == ELEM_F64 || to == ELEM_F64)
        c->has_f64 = true;
    if (to == ELEM_BOOL)
        to_bool(c, name, from);
    else if (real[0] && real[1])
        float_to_float(c, name, from, to, saturate, rounding);
    else if (real[0])
        float_to_int(c, name, from, to);
    else if (real[1])
        int_to_float(c, name, from, to, saturate, rounding);
    else
        int_to_int(c, name, from, to);
    return name;
}

const char *c_conversion(struct c_file *c, struct ltype from, struct ltype to, bool saturate, const char *rounding)
{
    if (c_class(from.elem) == 'C' || c_class(to.elem) == 'C') {
        c_fail(c, "conversions of complex elements");
        return "";
    }
    /* the instruction that counts subnormal numbers as 0 is one of 8 or 16 lanes */
    bool normal = rounding && strcmp(rounding, "normal") == 0;
    if (normal && !(c->machine.bf16 && (to.lanes == 8 || to.lanes == 16)))
        rounding = NULL;
    const char *lane = one(c, from.elem, to.elem, saturate, rounding), *name;
    if (from.lanes == 1)
        return lane;
    name = arena_printf(c->arena, "%s_from_%s%s", c_name(c, to), c_name(c, from),
                        lane + strlen(elem_name(to.elem)) + strlen("_from_") + strlen(elem_name(from.elem)));
    if (!c_first(c, arena_printf(c->arena, "f %s", name)))
        return name;
    const char *type = c_type(c, to), *from_type = c_type(c, from);
    strbuf_printf(&c->helpers,
                  "INLINE %s %s(%s a)\n{\n    %s r;\n    LANES(%u) r.v[i] = %s(a.v[i]);\n    return r;\n}\n", type,
                  name, from_type, type, to.lanes, lane);
    return name;
}

/* ---- DOT, MATDOT ------------------------------------------------------------------------------------------------- */

/* Are subnormal operands and sums 0? */
static bool flushes(const struct c_file *c, uint32_t lanes)
{
    return c->machine.bf16 && (lanes == 4 || lanes == 8 || lanes == 16);
}

static const char dot_flush[] = "INLINE f32 f32_normal(f32 a)\n{\n    u32 x = f32_bits(a);\n"
                                "    return f32_of((x & 0x7fffffffu) < 0x800000u ? x & 0x80000000u : x);\n}\n";

/* One lane's sum: c plus the products of the elements of words a and b. */
static const char *put_dot_lane(struct c_file *c, enum elem first, enum elem sum, uint32_t lanes, uint32_t group)
{
    bool real = sum == ELEM_F32, flush = real && flushes(c, lanes);
    const struct ltype F = {ELEM_F32, 1};
    const char *name = real ? flush ? "dot_bf16_normal" : "dot_bf16" : first == ELEM_U8 ? "dot_u8" : "dot_i8", *fma;
    if (!real && group > 4)
        name = first == ELEM_U8 ? "dot_u8x16" : "dot_i8x16";
    if (!real) {
        if (c_first(c, name))
            strbuf_printf(&c->helpers,
                          "INLINE i32 %s(const %s *a, const i8 *b, i32 c)\n{\n    u32 r = (u32)c;\n"
                          "    for (int i = 0; i < %u; i++)\n        r += (u32)((i32)a[i] * b[i]);\n"
                          "    return (i32)r;\n}\n",
                          name, first == ELEM_U8 ? "u8" : "i8", group);
        return name;
    }
    if (c->machine.bfdot && lanes != 1)
        c_fail(c, "products of bf16, which this CPU rounds in a way of its own (-march=armv8-a has others)");
    fma = c_operation(c, L_FMA, F, F, 3, false);
    one(c, ELEM_BF16, ELEM_F32, false, NULL);
    if (flush && c_first(c, "f32_normal"))
        strbuf_printf(&c->helpers, "%s", dot_flush);
    if (!c_first(c, name))
        return name;
    strbuf_printf(&c->helpers, "INLINE f32 %s(const u16 *a, const u16 *b, f32 c)\n{\n", name);
    strbuf_printf(&c->helpers, "    for (int i = 1; i >= 0; i--)\n");
    if (flush)
        strbuf_printf(&c->helpers,
                      "        c = f32_normal(%s(f32_normal(f32_from_bf16(a[i])), f32_normal(f32_from_bf16(b[i])), "
                      "f32_normal(c)));\n",
                      fma);
    else
        strbuf_printf(&c->helpers, "        c = %s(f32_from_bf16(a[i]), f32_from_bf16(b[i]), c);\n", fma);
    strbuf_printf(&c->helpers, "    return c;\n}\n");
    return name;
}

const char *c_dot(struct c_file *c, const struct lfunc *f, const struct lstmt *s)
{
    struct ltype a = lf_type(f, s->in[0]), b = lf_type(f, s->in[1]), t = s->type;
    bool matrix = s->op == L_MATDOT;
    uint32_t group = a.lanes / t.lanes;
    const char *lane = put_dot_lane(c, a.elem, t.elem, t.lanes, group);
    const char *name = arena_printf(c->arena, "%s_%s_%s", c_name(c, t), lop_name(s->op), c_name(c, a));
    const char *ta = c_type(c, a), *tb = c_type(c, b), *tc = c_type(c, t);
    struct strbuf *out = &c->helpers;
    if (!c_first(c, arena_printf(c->arena, "f %s", name)))
        return name;
    strbuf_printf(out, "INLINE %s %s(%s a, %s b, %s c)\n{\n    %s x[%u];\n    %s y[%u];\n", tc, name, ta, tb, tc,
                  c_scalar(c, a.elem), a.lanes, c_scalar(c, b.elem), b.lanes);
    strbuf_printf(out, "    memcpy(x, &a, sizeof x);\n    memcpy(y, &b, sizeof y);\n");
    if (t.lanes == 1)
        strbuf_printf(out, "    return %s(x, y, c);\n}\n", lane);
    else if (!matrix)
        strbuf_printf(out, "    LANES(%u) c.v[i] = %s(x + %u * i, y + %u * i, c.v[i]);\n    return c;\n}\n", t.lanes,
                      lane, group, group);
    else
        for (uint32_t step = 0; step < 2; step++)
            strbuf_printf(
                out,
                "    LANES(%u) c.v[i] = %s(x + %u * (i / 4 * 4 + i / 2 %% 2 * 2 + %u), y + %u * (i / 4 * 4 + i %% 2 "
                "* 2 + %u), c.v[i]);\n%s",
                t.lanes, lane, group, step, group, step, step ? "    return c;\n}\n" : "");
    return name;
}

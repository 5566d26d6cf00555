/* Argument reduction of the circular functions, in f64 lanes: x = quadrant pi/2 + high + low.
 *
 * |x| < 2^20: pi/2 in parts of 33 bits, so that quadrant times each is exact. Larger ones: 2/pi in chunks whose
 * products with (half) the significand are exact; whole multiples of 4 drop out of each product, and what remains is
 * added up without loss (after Payne & Hanek 1983). That way is taken, by an `if`, only when some lane needs it; lanes
 * that do not need it are unaffected, so results never depend on neighbours.
 */
#include "ir/loop/math/math.h"

static const double two_over_pi = 0x1.45f306dc9c883p-1;
static const double pio2_parts[4] = {0x1.921fb544p+0, 0x1.0b4611a6p-34, 0x1.3198a2ep-69, 0x1.b839a252049c1p-104};
static const double near_limit = 0x1p20;

static void two_sum(struct math *m, lreg a, lreg b, lreg *s, lreg *error)
{
    *s = m_add(m, a, b);
    lreg b_in_s = m_sub(m, *s, a);
    *error = m_add(m, m_sub(m, a, m_sub(m, *s, b_in_s)), m_sub(m, b, b_in_s));
}

/* a + b with the low 27 bits of the significand in b */
static void halve(struct math *m, lreg x, lreg *a, lreg *b)
{
    *a = m_float(m, m_bin(m, L_AND, m_bits(m, x), m_int(m, -(INT64_C(1) << 27))));
    *b = m_sub(m, x, *a);
}

/* parts: 2 are enough for f32 results, 4 for f64 */
static struct reduced reduce_near(struct math *m, lreg x, int parts)
{
    struct reduced r;
    lreg error, total = m_const(m, 0);
    r.quadrant = m_un(m, L_RINT, m_mulc(m, x, two_over_pi));
    r.high = m_fma(m, r.quadrant, m_const(m, -pio2_parts[0]), x);
    if (parts == 2) {
        r.high = m_fma(m, r.quadrant, m_const(m, -(pio2_parts[1] + pio2_parts[2])), r.high);
        r.low = total;
        return r;
    }
    for (int i = 1; i < 3; i++) {
        two_sum(m, r.high, m_mulc(m, r.quadrant, -pio2_parts[i]), &r.high, &error);
        total = m_add(m, total, error);
    }
    total = m_fma(m, r.quadrant, m_const(m, -pio2_parts[3]), total);
    two_sum(m, r.high, total, &r.high, &r.low);
    return r;
}

/* x c - 4 rint(x c / 4), exact when x c is */
static lreg product_mod_4(struct math *m, lreg x, lreg c)
{
    lreg p = m_mul(m, x, c);
    return m_sub(m, p, m_mulc(m, m_un(m, L_RINT, m_mulc(m, p, 0.25)), 4));
}

/* The sum of the parts, in quarter turns -> quadrant, and the rest times pi/2. */
static struct reduced finish_far(struct math *m, const lreg *parts, uint32_t n)
{
    struct reduced r;
    lreg sum = parts[0], rest = m_const(m, 0), tail = rest, error;
    for (uint32_t i = 1; i < n; i++) {
        two_sum(m, sum, parts[i], &sum, &error);
        two_sum(m, rest, error, &rest, &error);
        tail = m_add(m, tail, error);
    }
    r.quadrant = m_un(m, L_RINT, sum);
    two_sum(m, m_sub(m, sum, r.quadrant), rest, &sum, &rest);
    two_sum(m, sum, m_add(m, rest, tail), &sum, &rest);
    /* pi/2 = first + second, first short enough for exact products with either half of the sum */
    const double first = 0x1.921fb5p+0, second = 0x1.110b4611a6263p-26;
    lreg a, b, e1, e2;
    halve(m, sum, &a, &b);
    lreg small = m_fma(m, sum, m_const(m, second), m_mulc(m, rest, first));
    two_sum(m, m_mulc(m, a, first), m_mulc(m, b, first), &r.high, &e1);
    two_sum(m, r.high, small, &r.high, &e2);
    r.low = m_add(m, e1, e2);
    return r;
}

/* x holds at most 24 significant bits, |x| < 2^128: seven chunks of 29 bits reach 2^-60 below the point. */
static struct reduced reduce_far_f32(struct math *m, lreg x)
{
    static const double chunks[] = {0x1.45f306dp-1,   0x1.9391054p-30,  0x1.4fe13abp-59, 0x1.d1f534dp-88,
                                    0x1.b81b6c5p-117, 0x1.5993c43p-148, 0x1.2083fccp-177};
    lreg parts[COUNT_OF(chunks)];
    for (uint32_t i = 0; i < COUNT_OF(chunks); i++)
        parts[i] = product_mod_4(m, x, m_const(m, chunks[i]));
    return finish_far(m, parts, COUNT_OF(chunks));
}

enum { DIGITS = 49, WINDOW = 9, SHIFTS = 6 };   /* 9 digits of 24 bits: 2^-118 below the point for any exponent */

/* Digits start .. start + 8 of 2/pi in base 2^24 for each lane: a barrel shifter over the constants. */
static void pick_digits(struct math *m, lreg start, lreg *window)
{
    static const int32_t digits[DIGITS] = {
        0xa2f983, 0x6e4e44, 0x1529fc, 0x2757d1, 0xf534dd, 0xc0db62, 0x95993c, 0x439041, 0xfe5163, 0xabdebb,
        0xc561b7, 0x246e3a, 0x424dd2, 0xe00649, 0x2eea09, 0xd1921c, 0xfe1deb, 0x1cb129, 0xa73ee8, 0x8235f5,
        0x2ebb44, 0x84e99c, 0x7026b4, 0x5f7e41, 0x3991d6, 0x398353, 0x39f49c, 0x845f8b, 0xbdf928, 0x3b1ff8,
        0x97ffde, 0x05980f, 0xef2f11, 0x8b5a0a, 0x6d1f6d, 0x367ecf, 0x27cb09, 0xb74f46, 0x3f669e, 0x5fea2d,
        0x7527ba, 0xc7ebe5, 0xf17b3d, 0x0739f7, 0x8a5292, 0xea6bfb, 0x5fb11f, 0x8d5d08, 0x560330};
    lreg pool[WINDOW + (1 << SHIFTS)];
    for (int i = 0; i < WINDOW + (1 << SHIFTS); i++)
        pool[i] = i <= DIGITS ? m_const(m, i < DIGITS ? digits[i] : 0) : pool[DIGITS];
    for (int s = SHIFTS - 1; s >= 0; s--) {
        lreg bit = m_bin(m, L_AND, start, m_int(m, INT64_C(1) << s));
        lreg set = m_cmp(m, L_NE, bit, m_int(m, 0));
        for (int i = 0; i < WINDOW + (1 << s) - 1; i++)
            pool[i] = m_sel(m, set, pool[i + (1 << s)], pool[i]);
    }
    for (int i = 0; i < WINDOW; i++)
        window[i] = pool[i];
}

/* x = M 2^e, M < 2^53. The digits whose weight times 2^e is a multiple of 4 are skipped; the others have x 2^(-24
 * start) below 2^78 before them. */
static struct reduced reduce_far_f64(struct math *m, lreg x)
{
    lreg exponent = m_bin(m, L_AND, m_shift(m, L_SHR, m_bits(m, x), 52), m_int(m, 0x7ff));
    lreg over = m_bin(m, L_MAX, m_bin(m, L_SUB, exponent, m_int(m, 1075 + 2)), m_int(m, 0));
    lreg start = m_shift(m, L_SHR, m_bin(m, L_MUL, over, m_int(m, 2731)), 16); /* over / 24, for over < 1000 */
    lreg down = m_bin(m, L_SUB, m_int(m, 1023), m_bin(m, L_MUL, start, m_int(m, 24)));
    lreg a, b, window[WINDOW], parts[2 * WINDOW];
    pick_digits(m, start, window);
    halve(m, m_mul(m, x, m_float(m, m_shift(m, L_SHL, down, 52))), &a, &b);
    double weight = 1;
    for (uint32_t i = 0; i < WINDOW; i++) {
        weight *= 0x1p-24;
        lreg digit = m_mulc(m, window[i], weight);
        parts[2 * i] = product_mod_4(m, a, digit);
        parts[2 * i + 1] = product_mod_4(m, b, digit);
    }
    return finish_far(m, parts, 2 * WINDOW);
}

static void yield_reduced(struct math *m, struct reduced r)
{
    lf_stmt(m->f, m->b, L_YIELD, (lreg[]){r.high, r.low, r.quadrant}, 3);
}

struct reduced math_reduce(struct math *m, lreg x, bool for_f32)
{
    struct reduced near = reduce_near(m, x, for_f32 ? 2 : 4);
    lreg is_far = m_cmp(m, L_LE, m_const(m, near_limit), m_un(m, L_ABS, x));
    struct math far = *m, stay = *m;
    lreg any = is_far;
    if (m->t.lanes > 1) {
        uint8_t from[256];
        uint32_t lanes = lanes_padded(m->t.lanes, from);
        if (lanes != m->t.lanes) {
            any = lf_op(m->f, m->b, L_SHUFFLE, (struct ltype){ELEM_BOOL, lanes}, (lreg[]){is_far, is_far}, 2);
            struct lstmt *s = lf_last(m->f, m->b);
            s->aux = arena_copy(m->f->arena, from, lanes);
            s->n_aux = lanes;
        }
        any = lf_op(m->f, m->b, L_HREDUCE, (struct ltype){ELEM_BOOL, 1}, &any, 1);
        lf_last(m->f, m->b)->imm = L_OR;
    }
    far.b = lf_block(m->f);
    stay.b = lf_block(m->f);
    struct reduced r = for_f32 ? reduce_far_f32(&far, x) : reduce_far_f64(&far, x);
    r.high = m_sel(&far, is_far, r.high, near.high);
    r.low = m_sel(&far, is_far, r.low, near.low);
    r.quadrant = m_sel(&far, is_far, r.quadrant, near.quadrant);
    yield_reduced(&far, r);
    yield_reduced(&stay, near);
    r = (struct reduced){lf_value(m->f, m->t), lf_value(m->f, m->t), lf_value(m->f, m->t)};
    struct lstmt *s = lf_stmt(m->f, m->b, L_IF, &any, 1);
    s->type = m->t;
    s->out = lf_lregs(m->f, (lreg[]){r.high, r.low, r.quadrant}, 3);
    s->n_out = 3;
    s->block[0] = far.b;
    s->block[1] = stay.b;
    return r;
}

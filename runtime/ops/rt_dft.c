/* DFT-20 and Det-11, computed in f64 whatever the element type.
 *
 * Lengths that are powers of two: radix 2 in place. Others: Bluestein's chirp transform, a circular convolution of a
 * power of two that is at least 2 n - 1. Roots of unity come from a table of exact angles, not from recurrences, so the
 * error stays near log2(n) roundings.
 */
#include "runtime/rt_internal.h"
#include "runtime/ops/rt_math.h"

struct complex {
    double re, im;
};

static struct complex times(struct complex a, struct complex b)
{
    return (struct complex){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

/* Transform of 2^k numbers with roots[j] = exp(2 pi i j / n); forward: conjugate roots. */
static void fft(struct complex *x, int64_t n, const struct complex *roots, bool forward)
{
    for (int64_t i = 1, j = 0; i < n; i++) {
        int64_t bit = n >> 1;
        for (; j & bit; bit >>= 1)
            j ^= bit;
        j ^= bit;
        if (i < j) {
            struct complex t = x[i];
            x[i] = x[j];
            x[j] = t;
        }
    }
    for (int64_t half = 1; half < n; half *= 2)
        for (int64_t low = 0; low < n; low += 2 * half)
            for (int64_t k = 0; k < half; k++) {
                struct complex root = roots[k * (n / (2 * half))];
                if (forward)
                    root.im = -root.im;
                struct complex a = x[low + k], b = times(x[low + k + half], root);
                x[low + k] = (struct complex){a.re + b.re, a.im + b.im};
                x[low + k + half] = (struct complex){a.re - b.re, a.im - b.im};
            }
}

struct transform {
    int64_t n, m;                  /* length; power of two for the convolution, or n when n is one */
    struct complex *roots;         /* m */
    struct complex *chirp;         /* n: exp(pi i k^2 / n); NULL: n is a power of two */
    struct complex *filter;        /* m: transformed chirp */
    struct complex *line, *work;   /* n, m */
};

static struct complex *numbers(struct mcc_rt_run *run, int64_t n)
{
    return rt_run_alloc(run, n * (int64_t)sizeof(struct complex));
}

static bool transform_make(struct mcc_rt_run *run, struct transform *t, int64_t n)
{
    t->n = t->m = n;
    t->chirp = NULL;
    bool power = (n & (n - 1)) == 0;
    if (!power)
        for (t->m = 1; t->m < 2 * n - 1;)
            t->m *= 2;
    t->roots = numbers(run, t->m);
    t->line = numbers(run, n);
    t->work = numbers(run, t->m);
    if (!t->roots || !t->line || !t->work)
        return false;
    for (int64_t k = 0; k < t->m; k++)
        rt_unit_root(k, t->m, &t->roots[k].re, &t->roots[k].im);
    if (power)
        return true;
    t->chirp = numbers(run, n);
    t->filter = numbers(run, t->m);
    if (!t->chirp || !t->filter)
        return false;
    memset(t->filter, 0, (size_t)t->m * sizeof *t->filter);
    for (int64_t k = 0, square = 0; k < n; k++) {
        rt_unit_root(square, 2 * n, &t->chirp[k].re, &t->chirp[k].im);
        t->filter[k] = t->filter[(t->m - k) % t->m] = t->chirp[k];
        square = (square + 2 * k + 1) % (2 * n);       /* (k + 1)^2 mod 2 n */
    }
    fft(t->filter, t->m, t->roots, true);
    return true;
}

/* line -> its forward transform, in place. exp(-2 pi i j k / n) = w(j) w(k) / w(k - j) with w(k) = exp(-pi i k^2 /
 * n). */
static void transform_line(const struct transform *t)
{
    if (!t->chirp) {
        fft(t->line, t->n, t->roots, true);
        return;
    }
    memset(t->work, 0, (size_t)t->m * sizeof *t->work);
    for (int64_t k = 0; k < t->n; k++)
        t->work[k] = times(t->line[k], (struct complex){t->chirp[k].re, -t->chirp[k].im});
    fft(t->work, t->m, t->roots, true);
    for (int64_t k = 0; k < t->m; k++)
        t->work[k] = times(t->work[k], t->filter[k]);
    fft(t->work, t->m, t->roots, false);
    for (int64_t k = 0; k < t->n; k++) {
        struct complex y = times(t->work[k], (struct complex){t->chirp[k].re, -t->chirp[k].im});
        t->line[k] = (struct complex){y.re / (double)t->m, y.im / (double)t->m};
    }
}

struct signal {
    int64_t elem;
    const void *src;
    void *dst;
    int64_t n, inner, parts_in, n_out, parts_out;
    bool inverse, half;
};

/* The inverse is the conjugate of the transform of the conjugate, over n. */
static void read_line(const struct signal *s, const struct transform *t, int64_t outer, int64_t inner)
{
    for (int64_t k = 0; k < t->n; k++) {
        struct complex x = {0, 0};
        int64_t at = ((outer * s->n + k) * s->inner + inner) * s->parts_in;
        if (k < s->n) {
            x.re = rt_load(s->elem, s->src, at);
            x.im = s->parts_in == 2 ? rt_load(s->elem, s->src, at + 1) : 0;
        }
        t->line[k] = x;
    }
    for (int64_t k = t->n / 2 + 1; s->half && k < t->n; k++)
        t->line[k] = (struct complex){t->line[t->n - k].re, -t->line[t->n - k].im};
    for (int64_t k = 0; s->inverse && k < t->n; k++)
        t->line[k].im = -t->line[k].im;
}

static void write_line(const struct signal *s, const struct transform *t, int64_t outer, int64_t inner)
{
    double scale = s->inverse ? (double)t->n : 1;
    for (int64_t k = 0; k < s->n_out; k++) {
        int64_t at = ((outer * s->n_out + k) * s->inner + inner) * s->parts_out;
        rt_store(s->elem, s->dst, at, t->line[k].re / scale);
        if (s->parts_out == 2)
            rt_store(s->elem, s->dst, at + 1, (s->inverse ? -t->line[k].im : t->line[k].im) / scale);
    }
}

int64_t mcc_rt_dft(struct mcc_rt_run *run, int64_t elem, const void *src, void *dst, int64_t outer, int64_t n,
                   int64_t inner, int64_t parts_in, int64_t length, int64_t n_out, int64_t parts_out, int64_t inverse,
                   int64_t half)
{
    struct signal s = {elem, src, dst, n, inner, parts_in, n_out, parts_out, inverse != 0, half != 0};
    struct transform t;
    if (length < 1 || length > INT64_C(1) << 48 || n_out > length) {
        mcc_rt_fail(run, MCC_E_VALUE, 0, "the length of a DFT is out of range", 0);
        return MCC_E_VALUE;
    }
    struct rt_mark mark = rt_run_mark(run);
    if (!transform_make(run, &t, length))
        return MCC_E_NOMEM;
    for (int64_t o = 0; o < outer && mcc_rt_poll(run) == 0; o++)
        for (int64_t i = 0; i < inner; i++) {
            read_line(&s, &t, o, i);
            transform_line(&t);
            write_line(&s, &t, o, i);
        }
    rt_run_reset(run, mark);
    return mcc_rt_poll(run);
}

/* ---- determinants ------------------------------------------------------------------------------------------------ */

/* Gaussian elimination with partial pivots; destroys a. */
static double determinant(double *a, int64_t n)
{
    double det = 1;
    for (int64_t c = 0; c < n; c++) {
        int64_t pivot = c;
        for (int64_t r = c + 1; r < n; r++)
            if (rt_abs(a[r * n + c]) > rt_abs(a[pivot * n + c]))
                pivot = r;
        for (int64_t k = 0; pivot != c && k < n; k++) {
            double t = a[c * n + k];
            a[c * n + k] = a[pivot * n + k];
            a[pivot * n + k] = t;
        }
        det *= pivot != c ? -a[c * n + c] : a[c * n + c];
        if (a[c * n + c] == 0)
            return 0;
        for (int64_t r = c + 1; r < n; r++) {
            double factor = a[r * n + c] / a[c * n + c];
            for (int64_t k = c + 1; k < n; k++)
                a[r * n + k] -= factor * a[c * n + k];
        }
    }
    return det;
}

int64_t mcc_rt_det(struct mcc_rt_run *run, int64_t elem, const void *src, void *dst, int64_t batch, int64_t n)
{
    struct rt_mark mark = rt_run_mark(run);
    int64_t bytes;
    if (__builtin_mul_overflow(n, n, &bytes) || __builtin_mul_overflow(bytes, 8, &bytes))
        bytes = INT64_MAX;
    double *a = rt_run_alloc(run, bytes);
    if (!a)
        return MCC_E_NOMEM;
    for (int64_t i = 0; i < batch && mcc_rt_poll(run) == 0; i++) {
        for (int64_t k = 0; k < n * n; k++)
            a[k] = rt_load(elem, src, i * n * n + k);
        rt_store(elem, dst, i, determinant(a, n));
    }
    rt_run_reset(run, mark);
    return mcc_rt_poll(run);
}

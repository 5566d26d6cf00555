/* Ranges of values: histograms that grow, and what part of one 255 steps are spent on. */
#include <math.h>

#include "cli/commands/quantize/quantize.h"

/* Of values that are cut off at each end, for OPT_RANGES_PERCENTILE; searched parts of the whole range otherwise. */
static const double cut_part = 5e-5, search_step = 0.02, search_least = 0.3;

/* ---- what is seen ------------------------------------------------------------------------------------------------ */

/* Twice the reach: two bins become one, around the middle. */
static void grow(struct seen *s, double most)
{
    if (s->reach == 0)
        s->reach = exp2(ceil(log2(most)));
    for (; s->reach < most; s->reach *= 2) {
        uint64_t half[BINS] = {0};
        for (uint32_t i = 0; i < BINS; i++)
            half[(i + BINS / 2) / 2] += s->bins[i];
        memcpy(s->bins, half, sizeof half);
    }
}

static void count_value(struct seen *s, double v)
{
    double at = (v + s->reach) / (2 * s->reach) * BINS;
    s->bins[at >= BINS ? BINS - 1 : at > 0 ? (uint32_t)at : 0]++;
    s->least = fmin(s->least, v);
    s->most = fmax(s->most, v);
    s->zeros += v == 0;
}

bool seen_add(struct arena *arena, struct seen *s, const float *x, const int64_t *dims, int32_t rank, int32_t axis)
{
    int64_t n = 1, inner = 1, channels = axis >= 0 && axis < rank ? dims[axis] : 0;
    double most = 1e-30;
    for (int32_t d = 0; d < rank; d++) {
        n *= dims[d];
        inner *= d > axis ? dims[d] : 1;
    }
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i]))
            return false;
        most = fmax(most, fabs((double)x[i]));
    }
    if (!s->bins) {
        s->bins = NEW_ARRAY(arena, uint64_t, BINS);
        s->channels = channels > 0 && channels < UINT32_MAX ? (uint32_t)channels : 0;
        s->sum = NEW_ARRAY(arena, double, s->channels + 1);
        s->top = NEW_ARRAY(arena, double, s->channels + 1);
    }
    if (channels != s->channels)
        s->channels = 0; /* another size in each sample */
    grow(s, most);
    for (int64_t i = 0; i < n; i++) {
        double v = (double)x[i];
        count_value(s, v);
        if (s->channels) {
            uint32_t c = (uint32_t)(i / inner % channels);
            s->sum[c] += v;
            s->top[c] = fmax(s->top[c], fabs(v));
        }
    }
    s->count += (uint64_t)n;
    return true;
}

/* ---- what is chosen ---------------------------------------------------------------------------------------------- */

static double bin_middle(const struct seen *s, uint32_t i)
{
    return ((i + 0.5) / BINS * 2 - 1) * s->reach;
}

/* The mean square error of steps from lo to hi. */
static double noise_of(const struct seen *s, double lo, double hi)
{
    double step = (hi - lo) / STEPS_U8, sum = 0, inside = -(double)s->zeros;
    for (uint32_t i = 0; i < BINS; i++) {
        double v = bin_middle(s, i), off = v < lo ? lo - v : v > hi ? v - hi : 0;
        if (off > 0)
            sum += (double)s->bins[i] * off * off;
        else
            inside += (double)s->bins[i];
    }
    return s->count ? (sum + fmax(inside, 0) * step * step / 12) / (double)s->count : 0;
}

static double end_of_percentile(const struct seen *s, bool upper)
{
    double allowed = cut_part * (double)s->count, passed = 0;
    for (uint32_t k = 0; k < BINS; k++) {
        uint32_t i = upper ? BINS - 1 - k : k;
        passed += (double)s->bins[i];
        if (passed > allowed)
            return upper ? fmin(bin_middle(s, i), s->most) : fmax(bin_middle(s, i), s->least);
    }
    return 0;
}

static void search_squared(const struct seen *s, double *lo, double *hi)
{
    double least = noise_of(s, *lo, *hi);
    for (int side = 0; side < 4; side++) {
        double *end = side % 2 ? lo : hi, whole = side % 2 ? s->least : s->most, best = *end;
        for (double part = 1; part >= search_least && whole != 0; part -= search_step) {
            *end = whole * part;
            double noise = noise_of(s, *lo, *hi);
            best = noise < least ? *end : best;
            least = fmin(noise, least);
        }
        *end = best;
    }
}

struct range range_choose(const struct seen *s, enum option_ranges method)
{
    double lo = fmin(s->least, 0), hi = fmax(s->most, 0);
    if (!(hi > lo))
        return (struct range){1, 0};
    if (method == OPT_RANGES_PERCENTILE) {
        lo = fmin(end_of_percentile(s, false), 0);
        hi = fmax(end_of_percentile(s, true), 0);
    }
    if (method == OPT_RANGES_SQUARED || !(hi > lo)) {
        lo = fmin(s->least, 0);
        hi = fmax(s->most, 0);
    }
    if (method == OPT_RANGES_SQUARED)
        search_squared(s, &lo, &hi);
    double scale = fmax((hi - lo) / STEPS_U8, 1e-30);
    return (struct range){(float)scale, (uint8_t)fmin(fmax(rint(-lo / scale), 0), STEPS_U8)};
}

struct operand_range range_ends(struct range r)
{
    const double scale = (double)r.scale;
    return (struct operand_range){r.zero ? -scale * r.zero : 0, scale * (STEPS_U8 - r.zero)};
}

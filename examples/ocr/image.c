/* See image.h. */
#include "image.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void *need(void *p)
{
    if (!p) {
        fprintf(stderr, "ocr: out of memory\n");
        exit(1);
    }
    return p;
}

image image_new(int w, int h)
{
    return (image){w, h, need(calloc((size_t)w * (size_t)h + 1, 3))};
}

void image_free(image *m)
{
    free(m->px);
    m->px = NULL;
}

static const uint8_t *pixel(const image *m, int x, int y)
{
    x = x < 0 ? 0 : x >= m->w ? m->w - 1 : x;
    y = y < 0 ? 0 : y >= m->h ? m->h - 1 : y;
    return m->px + ((size_t)y * (size_t)m->w + (size_t)x) * 3;
}

static uint8_t *row(const image *m, int y)
{
    return m->px + (size_t)y * (size_t)m->w * 3;
}

/* ---- resizing --------------------------------------------------------------------------------------------------- */

/* Where each target position reads: two neighbours, the second's weight in 1/2048. */
struct tap {
    int at, next, weight;
};

/* Past the edge both neighbours are the last one; columns then have no weight, but rows keep theirs (it shows in
 * rounding). */
static struct tap *taps(int from, int to, int keep)
{
    struct tap *t = need(malloc((size_t)to * sizeof *t));
    double scale = (double)from / to;
    for (int i = 0; i < to; i++) {
        float f = (float)((i + 0.5) * scale - 0.5);
        int at = (int)floorf(f), weight = (int)lrintf((f - (float)at) * 2048);
        int outside = at < 0 || at >= from - 1;
        t[i].at = at < 0 ? 0 : at >= from ? from - 1 : at;
        t[i].next = outside ? t[i].at : at + 1;
        t[i].weight = outside && !keep ? 0 : weight;
    }
    return t;
}

/* Exactly half in both directions: means of four. */
static image halve(const image *m)
{
    image out = image_new(m->w / 2, m->h / 2);
    for (int y = 0; y < out.h; y++)
        for (int x = 0; x < out.w; x++)
            for (int c = 0; c < 3; c++) {
                const uint8_t *a = pixel(m, 2 * x, 2 * y) + c, *b = pixel(m, 2 * x, 2 * y + 1) + c;
                row(&out, y)[3 * x + c] = (uint8_t)((a[0] + a[3] + b[0] + b[3] + 2) >> 2);
            }
    return out;
}

image image_resize(const image *m, int w, int h)
{
    if (m->w == 2 * w && m->h == 2 * h)
        return halve(m);
    image out = image_new(w, h);
    struct tap *tx = taps(m->w, w, 0), *ty = taps(m->h, h, 1);
    for (int y = 0; y < h; y++) {
        const uint8_t *a = row(m, ty[y].at), *b = row(m, ty[y].next);
        int wb = ty[y].weight, wa = 2048 - wb;
        for (int x = 0; x < w; x++) {
            int at = 3 * tx[x].at, next = 3 * tx[x].next, vb = tx[x].weight, va = 2048 - vb;
            for (int c = 0; c < 3; c++) {
                int top = a[at + c] * va + a[next + c] * vb, low = b[at + c] * va + b[next + c] * vb;
                row(&out, y)[3 * x + c] = (uint8_t)((((wa * (top >> 4)) >> 16) + ((wb * (low >> 4)) >> 16) + 2) >> 2);
            }
        }
    }
    free(tx);
    free(ty);
    return out;
}

/* ---- turning, framing -------------------------------------------------------------------------------------------- */

image image_rotate(const image *m, int quarters)
{
    image out = quarters & 1 ? image_new(m->h, m->w) : image_new(m->w, m->h);
    for (int y = 0; y < out.h; y++)
        for (int x = 0; x < out.w; x++) {
            const int from_x[] = {x, m->w - 1 - y, m->w - 1 - x, y}, from_y[] = {y, x, m->h - 1 - y, m->h - 1 - x};
            memcpy(row(&out, y) + 3 * x, pixel(m, from_x[quarters], from_y[quarters]), 3);
        }
    return out;
}

image image_letterbox(const image *m, int rows)
{
    image out = image_new(m->w, m->h + 2 * rows);
    memcpy(row(&out, rows), m->px, (size_t)m->w * (size_t)m->h * 3);
    return out;
}

/* ---- cropping ---------------------------------------------------------------------------------------------------- */

/* Weights of four neighbours for a position f behind the second one (the cubic with A = -0.75). */
static void cubic(double f, double w[4])
{
    const double a = -0.75;
    w[0] = ((a * (f + 1) - 5 * a) * (f + 1) + 8 * a) * (f + 1) - 4 * a;
    w[1] = ((a + 2) * f - (a + 3)) * f * f + 1;
    w[2] = ((a + 2) * (1 - f) - (a + 3)) * (1 - f) * (1 - f) + 1;
    w[3] = 1 - w[0] - w[1] - w[2];
}

/* Positions are taken to 1/32 of a pixel. */
static void sample(const image *m, double x, double y, uint8_t out[3])
{
    double fx = nearbyint(x * 32) / 32, fy = nearbyint(y * 32) / 32, wx[4], wy[4], sum[3] = {0};
    int x0 = (int)fmin(fmax(floor(fx), -2), m->w + 1), y0 = (int)fmin(fmax(floor(fy), -2), m->h + 1);
    cubic(fx - floor(fx), wx);
    cubic(fy - floor(fy), wy);
    for (int j = 0; j < 4; j++)
        for (int i = 0; i < 4; i++) {
            const uint8_t *p = pixel(m, x0 - 1 + i, y0 - 1 + j);
            for (int c = 0; c < 3; c++)
                sum[c] += wx[i] * wy[j] * p[c];
        }
    for (int c = 0; c < 3; c++)
        out[c] = (uint8_t)nearbyint(fmin(fmax(sum[c], 0), 255));
}

image image_crop(const image *m, const point quad[4], int w, int h)
{
    const point upright[4] = {{0, 0}, {w, 0}, {w, h}, {0, h}};
    image out = image_new(w, h);
    double map[9];
    if (!perspective(upright, quad, map))
        return out;
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) {
            double k = map[6] * x + map[7] * y + map[8], z = k != 0 ? 1 / k : 0;
            sample(m, (map[0] * x + map[1] * y + map[2]) * z, (map[3] * x + map[4] * y + map[5]) * z,
                   row(&out, y) + 3 * x);
        }
    return out;
}

/* ---- drawing ----------------------------------------------------------------------------------------------------- */

void image_line(image *m, point a, point b, const uint8_t colour[3])
{
    int steps = (int)ceil(fmax(fabs(b.x - a.x), fabs(b.y - a.y))) + 1;
    for (int i = 0; i <= steps; i++)
        for (int thick = 0; thick < 4; thick++) {
            int x = (int)lrint(a.x + (b.x - a.x) * i / steps) + thick % 2,
                y = (int)lrint(a.y + (b.y - a.y) * i / steps) + thick / 2;
            if (x >= 0 && y >= 0 && x < m->w && y < m->h)
                memcpy(row(m, y) + 3 * x, colour, 3);
        }
}

/* See boxes.h. The steps and their limits are those of rapidocr-onnxruntime's detector. */
#include "boxes.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "image.h"
#include "regions.h"

static const double TEXT = 0.3;                      /* a pixel of text has more */
static const double BOX = 0.5;                       /* the mean inside a box has as much */
static const double SHORT_SIDE = 3, GROWN_SIDE = 5;  /* smaller boxes are dust */
static const double GROWTH = 1.6;                    /* of the detector's shrunken boxes: times area over length */
enum { SAME_LINE = 10, GROWN_MAX = 4096 };

struct search {
    const float *map;
    int w, h, width, height, n, seen;
    box *out;
};

static double clamp(double v, double lo, double hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

/* The mean of the map over the polygon with its edges, corners cut to whole pixels. */
static double mean_inside(const struct search *s, const point quad[4])
{
    double sum = 0, left = INFINITY, top = INFINITY, bottom = -INFINITY;
    long count = 0;
    point p[4];
    for (int i = 0; i < 4; i++)
        left = fmin(left, quad[i].x), top = fmin(top, quad[i].y);
    left = clamp(floor(left), 0, s->w - 1), top = clamp(floor(top), 0, s->h - 1);
    for (int i = 0; i < 4; i++) {
        p[i] = (point){left + trunc(quad[i].x - left), top + trunc(quad[i].y - top)};
        bottom = fmax(bottom, p[i].y);
    }
    for (int y = (int)top; y <= bottom && y < s->h; y++) {
        double lo = INFINITY, hi = -INFINITY;
        for (int i = 0; i < 4; i++) {                /* what each edge covers of this row */
            point a = p[i], b = p[(i + 1) % 4];
            double y0 = fmax(fmin(a.y, b.y), y - 0.5), y1 = fmin(fmax(a.y, b.y), y + 0.5),
                   slope = (b.x - a.x) / (b.y - a.y);
            if (y0 > y1)
                continue;
            double x0 = a.y == b.y ? a.x : a.x + (y0 - a.y) * slope, x1 = a.y == b.y ? b.x : a.x + (y1 - a.y) * slope;
            lo = fmin(lo, fmin(x0, x1)), hi = fmax(hi, fmax(x0, x1));
        }
        for (int x = (int)fmax(nearbyint(lo), 0); x <= nearbyint(hi) && x < s->w; x++, count++)
            sum += (double)s->map[(size_t)y * (size_t)s->w + (size_t)x];
    }
    return count ? sum / (double)count : 0;
}

/* The box grown by its area over its length, as the smallest rectangle again; its short side, 0 when nothing is
 * left. */
static double grow(point quad[4])
{
    static point grown[GROWN_MAX];
    double delta = polygon_area(quad, 4) * GROWTH / polygon_length(quad, 4);
    for (int i = 0; i < 4; i++)
        quad[i] = (point){trunc(quad[i].x), trunc(quad[i].y)};
    int n = polygon_grow(quad, 4, delta, grown, GROWN_MAX);
    return n ? min_area_rect(grown, n, quad) : 0;
}

/* In the picture's pixels (rounded from 32-bit floats, as the original has them), in order, inside it; 0 for what has
 * become too small. */
static int place(const struct search *s, point quad[4])
{
    for (int i = 0; i < 4; i++) {
        quad[i].x = clamp((double)nearbyintf((float)quad[i].x / (float)s->w * (float)s->width), 0, s->width);
        quad[i].y = clamp((double)nearbyintf((float)quad[i].y / (float)s->h * (float)s->height), 0, s->height);
    }
    order_corners(quad);
    for (int i = 0; i < 4; i++)
        quad[i] = (point){fmin(quad[i].x, s->width - 1), fmin(quad[i].y, s->height - 1)};
    return trunc(distance(quad[0], quad[1])) > 3 && trunc(distance(quad[0], quad[3])) > 3;
}

static void region(void *user, const point *border, int n)
{
    struct search *s = user;
    point quad[4];
    if (s->seen++ >= BOXES_MAX || s->n >= BOXES_MAX || min_area_rect(border, n, quad) < SHORT_SIDE)
        return;
    order_corners(quad);
    if (mean_inside(s, quad) >= BOX && grow(quad) >= GROWN_SIDE && place(s, quad))
        memcpy(s->out[s->n++].corner, quad, sizeof quad);
}

static int by_y_then_x(const void *a, const void *b)
{
    const point *p = ((const box *)a)->corner, *q = ((const box *)b)->corner;
    return p->y != q->y ? (p->y > q->y) - (p->y < q->y) : (p->x > q->x) - (p->x < q->x);
}

/* Down the page, and from left to right where two boxes start at almost the same height. */
static void sort_to_read(box *b, int n)
{
    qsort(b, (size_t)n, sizeof *b, by_y_then_x);
    for (int i = 1; i < n; i++)
        for (int k = i;
             k > 0 && fabs(b[k].corner->y - b[k - 1].corner->y) < SAME_LINE && b[k].corner->x < b[k - 1].corner->x;
             k--) {
            box t = b[k];
            b[k] = b[k - 1];
            b[k - 1] = t;
        }
}

int boxes_find(const float *map, int w, int h, int width, int height, box out[BOXES_MAX])
{
    struct search s = {map, w, h, width, height, 0, 0, out};
    uint8_t *bitmap = need(malloc((size_t)w * (size_t)h + 1));
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) { /* grown by one pixel down and to the right */
            int set = 0;
            for (int k = 0; k < 4; k++)
                if (y >= k / 2 && x >= k % 2)
                    set |= (double)map[(size_t)(y - k / 2) * (size_t)w + (size_t)(x - k % 2)] > TEXT;
            bitmap[(size_t)y * (size_t)w + (size_t)x] = (uint8_t)set;
        }
    regions_of(bitmap, w, h, region, &s);
    free(bitmap);
    sort_to_read(out, s.n);
    return s.n;
}

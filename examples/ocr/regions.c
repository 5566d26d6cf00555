/* See regions.h. Regions are filled from a stack of pixels; of a border, the first and last pixel of every row are
 * kept. */
#include "regions.h"

#include <string.h>

#include "image.h"

struct fill {
    const uint8_t *bitmap;
    int w, h;
    uint8_t *seen;
    int *stack;
    int *first, *last; /* of the border, by row; first > last: none */
    point *border;
};

static void border_add(struct fill *f, int x, int y)
{
    f->first[y] = x < f->first[y] ? x : f->first[y];
    f->last[y] = x > f->last[y] ? x : f->last[y];
}

static int border_take(struct fill *f, int top, int bottom)
{
    int n = 0;
    for (int y = top < 0 ? 0 : top; y <= bottom && y < f->h; y++) {
        if (f->first[y] <= f->last[y])
            f->border[n++] = (point){f->first[y], y};
        if (f->first[y] < f->last[y])
            f->border[n++] = (point){f->last[y], y};
        f->first[y] = f->w;
        f->last[y] = -1;
    }
    return n;
}

/* Everything connected with the pixel at `start`; returns the number of border points, 0 for what is no hole. */
static int fill(struct fill *f, int start)
{
    static const int dx[] = {1, -1, 0, 0, 1, 1, -1, -1}, dy[] = {0, 0, 1, -1, 1, -1, 1, -1};
    int set = f->bitmap[start], around = set ? 8 : 4, n = 0, top = start / f->w, bottom = top, inside = 1;
    f->stack[n++] = start;
    f->seen[start] = 1;
    while (n > 0) {
        int at = f->stack[--n], x = at % f->w, y = at / f->w;
        top = y < top ? y : top;
        bottom = y > bottom ? y : bottom;
        if (set)
            border_add(f, x, y);
        for (int k = 0; k < around; k++) {
            int x2 = x + dx[k], y2 = y + dy[k], at2 = y2 * f->w + x2;
            if (x2 < 0 || y2 < 0 || x2 >= f->w || y2 >= f->h) {
                inside = 0;
            } else if (f->bitmap[at2] != set) {
                if (!set)
                    border_add(f, x2, y2);
            } else if (!f->seen[at2]) {
                f->seen[at2] = 1;
                f->stack[n++] = at2;
            }
        }
    }
    n = border_take(f, top - 1, bottom + 1);
    return set || inside ? n : 0;
}

void regions_of(const uint8_t *bitmap, int w, int h, region_fn *each, void *user)
{
    size_t n = (size_t)w * (size_t)h, rows = (size_t)h;
    struct fill f = {bitmap,
                     w,
                     h,
                     need(calloc(n + 1, 1)),
                     need(malloc((n + 1) * sizeof(int))),
                     need(malloc((rows + 1) * sizeof(int))),
                     need(malloc((rows + 1) * sizeof(int))),
                     need(malloc((2 * rows + 1) * sizeof(point)))};
    for (int y = 0; y < h; y++)
        f.first[y] = w, f.last[y] = -1;
    for (size_t i = 0; i < n; i++) {
        int points = f.seen[i] ? 0 : fill(&f, (int)i);
        if (points)
            each(user, f.border, points);
    }
    free(f.seen);
    free(f.stack);
    free(f.first);
    free(f.last);
    free(f.border);
}

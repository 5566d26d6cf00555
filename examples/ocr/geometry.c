/* See geometry.h. */
#include "geometry.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double distance(point a, point b)
{
    return hypot(a.x - b.x, a.y - b.y);
}

/* ---- smallest rectangle ------------------------------------------------------------------------------------------ */

static int by_x_then_y(const void *a, const void *b)
{
    const point *p = a, *q = b;
    return p->x != q->x ? (p->x > q->x) - (p->x < q->x) : (p->y > q->y) - (p->y < q->y);
}

static double turn(point a, point b, point c)
{
    return (b.x - a.x) * (c.y - a.y) - (b.y - a.y) * (c.x - a.x);
}

/* Andrew's monotone chain; hull has room for n + 1 points. Returns their number. */
static int convex_hull(point *p, int n, point *hull)
{
    int k = 0;
    qsort(p, (size_t)n, sizeof *p, by_x_then_y);
    for (int i = 0; i < n; hull[k++] = p[i++])
        while (k >= 2 && turn(hull[k - 2], hull[k - 1], p[i]) <= 0)
            k--;
    for (int i = n - 2, low = k + 1; i >= 0; hull[k++] = p[i--])
        while (k >= low && turn(hull[k - 2], hull[k - 1], p[i]) <= 0)
            k--;
    return k > 1 ? k - 1 : k;
}

/* The rectangle with one side along hull[at], hull[at + 1]; returns its area. */
static double rect_along(const point *hull, int n, int at, point corner[4], double *width, double *height)
{
    point a = hull[at], b = hull[(at + 1) % n];
    double length = distance(a, b), ux = length > 0 ? (b.x - a.x) / length : 1,
           uy = length > 0 ? (b.y - a.y) / length : 0;
    double s0 = 0, s1 = 0, t0 = 0, t1 = 0;
    for (int i = 0; i < n; i++) {
        double x = hull[i].x - a.x, y = hull[i].y - a.y, s = x * ux + y * uy, t = y * ux - x * uy;
        s0 = fmin(s0, s), s1 = fmax(s1, s), t0 = fmin(t0, t), t1 = fmax(t1, t);
    }
    const double s[4] = {s0, s1, s1, s0}, t[4] = {t0, t0, t1, t1};
    for (int i = 0; i < 4; i++)
        corner[i] = (point){a.x + s[i] * ux - t[i] * uy, a.y + s[i] * uy + t[i] * ux};
    *width = s1 - s0;
    *height = t1 - t0;
    return *width * *height;
}

/* One side of the smallest rectangle lies on a side of the convex hull. */
double min_area_rect(const point *p, int n, point corner[4])
{
    point *copy = malloc((size_t)n * sizeof *p), *hull = malloc(((size_t)n + 1) * sizeof *p), now[4];
    double best = INFINITY, width = 0, height = 0, side = 0;
    int m = 0;
    if (copy && hull) {
        memcpy(copy, p, (size_t)n * sizeof *p);
        m = convex_hull(copy, n, hull);
    }
    for (int i = 0; i < m; i++) {
        double area = rect_along(hull, m, i, now, &width, &height);
        if (area < best) {
            best = area;
            side = fmin(width, height);
            memcpy(corner, now, sizeof now);
        }
    }
    free(copy);
    free(hull);
    return side;
}

static void sort4(point p[4], int from, int to, int by_y)
{
    for (int i = from + 1; i < to; i++) /* stable */
        for (int k = i; k > from && (by_y ? p[k].y < p[k - 1].y : p[k].x < p[k - 1].x); k--) {
            point t = p[k];
            p[k] = p[k - 1];
            p[k - 1] = t;
        }
}

void order_corners(point c[4])
{
    sort4(c, 0, 4, 0);
    sort4(c, 0, 2, 1);
    sort4(c, 2, 4, 1);
    point left_bottom = c[1];
    c[1] = c[2];
    c[2] = c[3];
    c[3] = left_bottom;
}

/* ---- polygons ---------------------------------------------------------------------------------------------------- */

static double signed_area(const point *p, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += p[i].x * p[(i + 1) % n].y - p[(i + 1) % n].x * p[i].y;
    return sum / 2;
}

double polygon_area(const point *p, int n)
{
    return fabs(signed_area(p, n));
}

double polygon_length(const point *p, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += distance(p[i], p[(i + 1) % n]);
    return sum;
}

/* The arc around a corner, from the normal of the side before it to that of the side behind it. Steps are as large as
 * keeps the chord within a quarter of a unit of the arc (Clipper's default, which the original uses). */
static int arc(point at, point from, point to, double delta, point *out, int max)
{
    double tolerance = 0.25 * fmin(1, delta), all = fmin(acos(-1) / acos(1 - tolerance / delta), delta * acos(-1));
    double angle = atan2(from.x * to.y - from.y * to.x, from.x * to.x + from.y * to.y), step = 2 * acos(-1) / all;
    int steps = (int)fmax(round(fabs(angle) / step), 1), n = 0;
    point v = from;
    for (int i = 0; i < steps && n < max; i++) {
        out[n++] = (point){round(at.x + v.x * delta), round(at.y + v.y * delta)};
        v = (point){v.x * cos(step) - v.y * sin(step), v.x * sin(step) + v.y * cos(step)};
    }
    if (n < max)
        out[n++] = (point){round(at.x + to.x * delta), round(at.y + to.y * delta)};
    return n;
}

int polygon_grow(const point *p, int n, double delta, point *out, int max)
{
    int m = 0;
    double area = signed_area(p, n);
    if (area == 0 || !(delta > 0))
        return 0;
    for (int i = 0; i < n; i++) { /* counter-clockwise in a plane whose y points up */
        point a = p[area > 0 ? i : n - 1 - i], before = p[area > 0 ? (i + n - 1) % n : (n - i) % n];
        point behind = p[area > 0 ? (i + 1) % n : (2 * n - 2 - i) % n];
        double la = distance(before, a), lb = distance(a, behind);
        if (la == 0 || lb == 0)
            continue;
        point na = {(a.y - before.y) / la, (before.x - a.x) / la}, nb = {(behind.y - a.y) / lb, (a.x - behind.x) / lb};
        m += arc(a, na, nb, delta, out + m, max - m);
    }
    return m;
}

/* ---- perspective ------------------------------------------------------------------------------------------------- */

/* Gauss with pivots on the 8 x 8 system of the map's free coefficients. */
int perspective(const point from[4], const point to[4], double map[9])
{
    double a[8][9] = {{0}};
    for (int i = 0; i < 4; i++) {
        double x = from[i].x, y = from[i].y, u = to[i].x, v = to[i].y;
        memcpy(a[2 * i], (double[]){x, y, 1, 0, 0, 0, -x * u, -y * u, u}, sizeof a[0]);
        memcpy(a[2 * i + 1], (double[]){0, 0, 0, x, y, 1, -x * v, -y * v, v}, sizeof a[0]);
    }
    for (int c = 0; c < 8; c++) {
        int pivot = c;
        for (int r = c + 1; r < 8; r++)
            pivot = fabs(a[r][c]) > fabs(a[pivot][c]) ? r : pivot;
        if (fabs(a[pivot][c]) < 1e-12)
            return 0;
        for (int k = 0; k < 9; k++) {
            double t = a[c][k];
            a[c][k] = a[pivot][k];
            a[pivot][k] = t;
        }
        for (int r = 0; r < 8; r++) {
            double f = r == c ? 0 : a[r][c] / a[c][c];
            for (int k = c; k < 9; k++)
                a[r][k] -= f * a[c][k];
        }
    }
    for (int i = 0; i < 8; i++)
        map[i] = a[i][8] / a[i][i];
    map[8] = 1;
    return 1;
}

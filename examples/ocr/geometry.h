/* Geometry of text boxes: smallest rectangles around points, polygons grown by a distance, perspective maps. */
#ifndef GEOMETRY_H
#define GEOMETRY_H

typedef struct {
    double x, y;
} point;

/* The rectangle of smallest area around n points, at any angle: its corners; returns its short side. n >= 1. */
double min_area_rect(const point *p, int n, point corner[4]);

/* Corners as top left, top right, bottom right, bottom left: the two leftmost first told from the others by x. */
void order_corners(point corner[4]);

double polygon_area(const point *p, int n);
double polygon_length(const point *p, int n);
double distance(point a, point b);

/* The polygon grown outwards by delta with round corners, on whole numbers, for convex p on whole numbers; returns the
 * number of points put into out, at most max (0: no polygon is left). */
int polygon_grow(const point *p, int n, double delta, point *out, int max);

/* map[9]: the perspective map (row by row) that takes from[i] to to[i]; 0 when there is none. */
int perspective(const point from[4], const point to[4], double map[9]);

#endif

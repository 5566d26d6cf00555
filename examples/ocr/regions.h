/* Connected regions of a bitmap and the holes in them. */
#ifndef REGIONS_H
#define REGIONS_H

#include <stdint.h>

#include "geometry.h"

/* Called for each region of set pixels (8 neighbours) and each hole (4 neighbours; what touches the edge of the bitmap
 * is no hole) with points that have the same convex hull as its border: for a hole, the set pixels around it. */
typedef void region_fn(void *user, const point *border, int n);

void regions_of(const uint8_t *bitmap, int w, int h, region_fn *each, void *user);

#endif

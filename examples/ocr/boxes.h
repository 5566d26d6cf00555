/* From the detector's probability map to boxes in the order of reading. */
#ifndef BOXES_H
#define BOXES_H

#include "geometry.h"

typedef struct {
    point corner[4];
} box;             /* clockwise from the top left */

enum { BOXES_MAX = 1000 };

/* Boxes around the text in map[h][w], in pixels of a picture of width x height; returns how many, at most BOXES_MAX. */
int boxes_find(const float *map, int w, int h, int width, int height, box out[BOXES_MAX]);

#endif

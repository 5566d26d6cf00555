/* Pictures of three bytes a pixel (blue, green, red), and what is done to them between the networks. Rounding follows
 * OpenCV's, so that the networks see what they see in the original. Memory that runs out ends the program. */
#ifndef IMAGE_H
#define IMAGE_H

#include <stdint.h>
#include <stdlib.h>

#include "geometry.h"

typedef struct {
    int w, h;
    uint8_t *px;
} image;     /* w * h * 3 bytes, row by row */

void *need(void *p);                                 /* p, or the end of the program when it is NULL */
image image_new(int w, int h);                       /* black */
void image_free(image *m);

image image_resize(const image *m, int w, int h);    /* bilinear */
image image_rotate(const image *m, int quarters);    /* by 90 degrees counter-clockwise, 0 to 3 times */
image image_letterbox(const image *m, int rows);     /* so many black rows above and below */

/* The quadrilateral (clockwise from its top left) as an upright w x h picture, bicubic. */
image image_crop(const image *m, const point quad[4], int w, int h);

void image_line(image *m, point a, point b, const uint8_t colour[3]);

/* PNG files (libpng). Transparent pictures are put on a ground as the original does it. */
int png_read(const char *path, image *m);            /* 0 with a message on standard error when it fails */
int png_write(const char *path, const image *m);

#endif

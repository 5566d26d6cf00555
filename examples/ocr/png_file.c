/* PNG files through libpng's simplified interface; see image.h. */
#include <png.h>
#include <stdio.h>
#include <string.h>

#include "image.h"

static uint8_t add_up_to_255(int a, int b)
{
    return (uint8_t)(a + b > 255 ? 255 : a + b);
}

/* As the original: colour counts where anything is opaque; a picture that is black there lies on white, another one is
 * turned into its negative. Grey pictures lie on white. */
static void flatten(const uint8_t *bgra, image *m, int grey)
{
    size_t n = (size_t)m->w * (size_t)m->h;
    int black = 1;
    for (size_t i = 0; i < n; i++)
        for (int c = 0; c < 3; c++) {
            m->px[3 * i + (size_t)c] = bgra[4 * i + 3] ? bgra[4 * i + (size_t)c] : 0;
            black = black && !m->px[3 * i + (size_t)c];
        }
    for (size_t i = 0; i < 3 * n; i++)
        m->px[i] = grey || black ? add_up_to_255(m->px[i], 255 - bgra[4 * (i / 3) + 3]) : (uint8_t)(255 - m->px[i]);
}

int png_read(const char *path, image *m)
{
    png_image png = {.version = PNG_IMAGE_VERSION};
    if (!png_image_begin_read_from_file(&png, path) || png.width > 20000 || png.height > 20000) {
        fprintf(stderr, "ocr: %s: %s\n", path, *png.message ? png.message : "too large");
        png_image_free(&png);
        return 0;
    }
    int alpha = (png.format & PNG_FORMAT_FLAG_ALPHA) != 0, grey = !(png.format & PNG_FORMAT_FLAG_COLOR);
    *m = image_new((int)png.width, (int)png.height);
    png.format = alpha ? PNG_FORMAT_BGRA : PNG_FORMAT_BGR;
    uint8_t *bgra = alpha ? need(malloc((size_t)png.width * png.height * 4)) : m->px;
    int ok = png_image_finish_read(&png, NULL, bgra, 0, NULL);
    if (!ok)
        fprintf(stderr, "ocr: %s: %s\n", path, png.message);
    else if (alpha)
        flatten(bgra, m, grey);
    if (alpha)
        free(bgra);
    if (!ok)
        image_free(m);
    return ok;
}

int png_write(const char *path, const image *m)
{
    png_image png = {.version = PNG_IMAGE_VERSION,
                     .width = (png_uint_32)m->w,
                     .height = (png_uint_32)m->h,
                     .format = PNG_FORMAT_BGR};
    if (png_image_write_to_file(&png, path, 0, m->px, 0, NULL))
        return 1;
    fprintf(stderr, "ocr: %s: %s\n", path, png.message);
    return 0;
}

/* Calls the network on a picture that it draws itself, a bright disc, and prints the mask.
 *
 *     segment ./segment.so [SIZE]
 */
#include <stdio.h>
#include <stdlib.h>

#include "mcc_load.h"

static void draw(float *image, int size)
{
    for (int c = 0; c < 3; c++)
        for (int y = 0; y < size; y++)
            for (int x = 0; x < size; x++) {
                int dx = 2 * x - size, dy = 2 * y - size;
                *image++ = dx * dx + dy * dy < size * size / 2 ? 1.0F - 0.2F * (float)c : 0.1F;
            }
}

static int fail(const char *what)
{
    fprintf(stderr, "segment: %s\n", what);
    return 1;
}

int main(int argc, char **argv)
{
    mcc_lib *lib;
    mcc_ctx *ctx;
    mcc_error error;
    int size = argc > 2 ? atoi(argv[2]) : 32;
    if (argc < 2 || size < 1 || size > 4096)
        return fail("usage: segment ./segment.so [SIZE]");
    if (mcc_load(argv[1], NULL, &lib, &error) || lib->api->ctx_new(lib->model, NULL, 0, &ctx, &error))
        return fail(error.text);

    size_t pixels = (size_t)size * (size_t)size;
    float *image = malloc(3 * pixels * sizeof *image), *mask = malloc(pixels * sizeof *mask), label[5];
    if (!image || !mask)
        return fail("out of memory");
    draw(image, size);
    int64_t image_shape[] = {1, 3, size, size}, mask_shape[] = {1, 1, size, size}, label_shape[] = {1, 5};
    DLTensor in = {image, {kDLCPU, 0}, 4, {kDLFloat, 32, 1}, image_shape, NULL, 0};
    DLTensor out[] = {{mask, {kDLCPU, 0}, 4, {kDLFloat, 32, 1}, mask_shape, NULL, 0},
                      {label, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, label_shape, NULL, 0}};
    const DLTensor *ins[] = {&in};
    DLTensor *outs[] = {&out[0], &out[1]};
    if (lib->api->run(ctx, ins, outs, &error))
        return fail(error.text);

    for (int y = 0; y < size; y += size / 16 > 0 ? size / 16 : 1) {
        for (int x = 0; x < size; x += size / 32 > 0 ? size / 32 : 1)
            putchar(" .:-=+*#%@"[(int)(9.99F * mask[y * size + x])]);
        putchar('\n');
    }
    for (int i = 0; i < 5; i++)
        printf("label %d: %.3f\n", i, (double)label[i]);
    lib->api->ctx_free(ctx);
    mcc_unload(lib);
    free(image);
    free(mask);
    return 0;
}

/* The demo: a compiled network reads handwritten digits that it never saw.  usage: digits digits.so digits.test */
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "mcc_load.h"

enum { SIDE = 8, PIXELS = SIDE * SIDE, RECORD = 1 + PIXELS, PICTURES_MAX = 1000, SHOWN = 4, NEEDED_PERCENT = 97 };

static unsigned char record[PICTURES_MAX][RECORD];   /* the answer, then the pixels, 0 to 16 */
static float picture[PICTURES_MAX][PIXELS], probability[PICTURES_MAX][10];

/* One call for all pictures: the network takes any number at once. Returns milliseconds, negative on an error. */
static double classify(const mcc_api *api, mcc_ctx *ctx, int64_t n)
{
    int64_t in_shape[] = {n, 1, SIDE, SIDE}, out_shape[] = {n, 10};
    DLTensor in = {picture, {kDLCPU, 0}, 4, {kDLFloat, 32, 1}, in_shape, NULL, 0};
    DLTensor out = {probability, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, out_shape, NULL, 0};
    const DLTensor *ins[] = {&in};
    DLTensor *outs[] = {&out};
    struct timespec a, b;
    mcc_error error;
    clock_gettime(CLOCK_MONOTONIC, &a);
    if (api->run(ctx, ins, outs, &error) != MCC_OK) {
        fprintf(stderr, "run: %s\n", error.text);
        return -1;
    }
    clock_gettime(CLOCK_MONOTONIC, &b);
    return (double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) / 1e6;
}

static int answer(int64_t i)
{
    int best = 0;
    for (int k = 1; k < 10; k++)
        if (probability[i][k] > probability[i][best])
            best = k;
    return best;
}

int main(int argc, char **argv)
{
    FILE *file = argc == 3 ? fopen(argv[2], "rb") : NULL;
    int64_t n = file ? (int64_t)fread(record, RECORD, PICTURES_MAX, file) : 0, right = 0;
    mcc_lib *lib;
    mcc_ctx *ctx;
    mcc_error error = {0};
    struct stat st;
    if (n < SHOWN || mcc_load(argv[1], NULL, &lib, &error) || lib->api->ctx_new(lib->model, NULL, 0, &ctx, &error)) {
        fprintf(stderr, "usage: digits digits.so digits.test   %s\n", error.text);
        return 2;
    }
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < PIXELS; k++)
            picture[i][k] = (float)record[i][1 + k] / 16;
    classify(lib->api, ctx, n);                      /* the first run makes the workspace */
    double ms = classify(lib->api, ctx, n);
    for (int64_t i = 0; i < n; i++)
        right += answer(i) == record[i][0];
    for (int y = 0; y < SIDE; y++, putchar('\n'))
        for (int i = 0; i < SHOWN; i++, printf("    "))
            for (int x = 0; x < SIDE; x++)
                printf("%c%c", " .:-=+*#%@@@@@@@@"[record[i][1 + y * SIDE + x]],
                       " .:-=+*#%@@@@@@@@"[record[i][1 + y * SIDE + x]]);
    for (int i = 0; i < SHOWN; i++)
        printf("%-20s", (char[]){' ', ' ', 'r', 'e', 'a', 'd', ':', ' ', (char)('0' + answer(i)), 0});
    printf("\n\n%lld of %lld pictures right: %.1f %%\n", (long long)right, (long long)n,
           100.0 * (double)right / (double)n);
    printf("%s: %lld bytes, %.1f us a picture\n", argv[1], stat(argv[1], &st) == 0 ? (long long)st.st_size : -1LL,
           1e3 * ms / (double)n);
    lib->api->ctx_free(ctx);
    mcc_unload(lib);
    fclose(file);
    return ms < 0 || 100 * right < NEEDED_PERCENT * n;
}

/* Names the type of each file by its content, with the network of the PyPI package magika.
 *
 *     filetype [-s] [-v] magika.so FILE...
 *
 * One line a file: its name and a label. -s adds the network's score, -v its memory, on standard error. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "features.h"
#include "labels.h"
#include "mcc_load.h"

enum { BATCH = 8, LABELS = sizeof labels / sizeof *labels };

/* Files wait here until there are enough for one run of the network. */
struct batch {
    const mcc_api *api;
    mcc_ctx *ctx;
    int scores;                                      /* print them */
    int64_t n;                                       /* files that wait for the network */
    int n_names;
    struct {
        const char *name, *label;
        int row;
    } file[BATCH];
    int32_t in[BATCH][FEATURES];
    float out[BATCH][LABELS];
};

/* One run for all files that wait. */
static int run(struct batch *b)
{
    int64_t in_shape[] = {b->n, FEATURES}, out_shape[] = {b->n, LABELS};
    DLTensor in = {b->in, {kDLCPU, 0}, 2, {kDLInt, 32, 1}, in_shape, NULL, 0};
    DLTensor out = {b->out, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, out_shape, NULL, 0};
    const DLTensor *ins[] = {&in};
    DLTensor *outs[] = {&out};
    mcc_error error;
    if (b->n == 0 || b->api->run(b->ctx, ins, outs, &error) == MCC_OK)
        return 1;
    fprintf(stderr, "filetype: %s\n", error.text);
    return 0;
}

/* The network's answer is taken where its score reaches what that label asks for. */
static const char *answer(const float *score, double *best_score)
{
    int best = 0;
    for (int k = 1; k < LABELS; k++)
        if (score[k] > score[best])
            best = k;
    *best_score = (double)score[best];
    return *best_score >= labels[best].threshold ? labels[best].answer : labels[best].unsure;
}

static int flush(struct batch *b)
{
    int ok = run(b);
    for (int i = 0; ok && i < b->n_names; i++) {
        double score = 1;
        const char *label = b->file[i].label ? b->file[i].label : answer(b->out[b->file[i].row], &score);
        printf("%s: %s", b->file[i].name, label);
        if (b->scores)
            printf(" %d%%", (int)(score * 100));
        putchar('\n');
    }
    b->n = b->n_names = 0;
    return ok;
}

/* A label that needs no network, or NULL with the features in out. */
static const char *look_at(const char *name, int32_t *out)
{
    struct stat st;
    if (stat(name, &st) != 0)
        return errno == EACCES ? "permission_error" : "file_not_found_error";
    if (S_ISDIR(st.st_mode))
        return "directory";
    if (!S_ISREG(st.st_mode))
        return "unknown";
    FILE *file = fopen(name, "rb");
    if (!file)
        return "permission_error";
    const char *label = features_of(file, st.st_size, out);
    fclose(file);
    return label;
}

static int add(struct batch *b, const char *name)
{
    const char *label = look_at(name, b->in[b->n]);
    b->file[b->n_names].name = name;
    b->file[b->n_names].label = label;
    b->file[b->n_names++].row = (int)b->n;
    b->n += !label;
    return b->n_names < BATCH || flush(b);
}

/* The most memory that this process ever had. */
static void report(void)
{
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    while (status && fgets(line, sizeof line, status))
        if (strncmp(line, "VmHWM:", 6) == 0)
            fprintf(stderr, "memory %ld kB\n", strtol(line + 6, NULL, 10));
    if (status)
        fclose(status);
}

int main(int argc, char **argv)
{
    static struct batch b;
    int verbose = 0, ok = 1;
    mcc_lib *lib;
    mcc_error error;
    for (argv++; *argv && **argv == '-' && argv[0][1]; argv++)
        for (const char *c = *argv + 1; *c; c++)
            *c == 's' ? (b.scores = 1) : (verbose = 1);
    if (!*argv || argc < 2) {
        fprintf(stderr, "usage: filetype [-s] [-v] magika.so FILE...\n");
        return 2;
    }
    if (mcc_load(*argv, NULL, &lib, &error) || lib->api->ctx_new(lib->model, NULL, 0, &b.ctx, &error)) {
        fprintf(stderr, "filetype: %s\n", error.text);
        return 2;
    }
    b.api = lib->api;
    for (argv++; ok && *argv; argv++)
        ok = add(&b, *argv);
    ok = ok && flush(&b);
    lib->api->ctx_free(b.ctx);
    mcc_unload(lib);
    if (verbose)
        report();
    return !ok;
}

/* Kernels of a library on another machine than the tests' (tests/codegen/harness.c starts this program under
 * qemu-user).
 *
 * usage: kernels LIBRARY CASES RESULTS
 *
 * CASES, all words of 64 bits: how many cases; of each the kernel's distance from mcc_query, its parallel indices, the
 * bytes of its scratch, how many arguments; of each argument how many bytes of contents follow, or -1 and an index.
 * RESULTS: the contents of all buffers afterwards, one behind the other.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt.h"

enum { ARGS_MOST = 64, ALIGN = 64 };

static void fail(const char *what)
{
    fprintf(stderr, "kernels: %s\n", what);
    exit(1);
}

static int64_t word(FILE *in)
{
    int64_t w;
    if (fread(&w, sizeof w, 1, in) != 1)
        fail("the file of cases ends too early");
    return w;
}

static void *memory(int64_t bytes)
{
    void *p = aligned_alloc(ALIGN, ((size_t)bytes / ALIGN + 2) * ALIGN);
    if (!p)
        fail("no memory");
    return p;
}

static void run(FILE *in, FILE *out, char *query)
{
    int64_t bytes[ARGS_MOST], args[ARGS_MOST], distance = word(in), count = word(in), scratch = word(in), n = word(in);
    void *local = memory(scratch), *buffer[ARGS_MOST] = {0};
    mcc_rt_fn *fn;
    char *address = query + distance;
    memcpy(&fn, &address, sizeof fn);
    if (n < 0 || n > ARGS_MOST)
        fail("too many arguments");
    for (int64_t i = 0; i < n; i++) {
        bytes[i] = word(in);
        if (bytes[i] < 0) {
            args[i] = word(in);
            continue;
        }
        buffer[i] = memory(bytes[i]);
        args[i] = (int64_t)(intptr_t)buffer[i];
        if (fread(buffer[i], 1, (size_t)bytes[i], in) != (size_t)bytes[i])
            fail("the file of cases ends too early");
    }
    /* Two chunks, as two threads would claim them. */
    fn(args, 0, count / 2, local, NULL);
    fn(args, count / 2, count, local, NULL);
    for (int64_t i = 0; i < n; i++) {
        if (buffer[i] && fwrite(buffer[i], 1, (size_t)bytes[i], out) != (size_t)bytes[i])
            fail("the results cannot be written");
        free(buffer[i]);
    }
    free(local);
}

int main(int argc, char **argv)
{
    void *lib = argc == 4 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!lib)
        fail(argc == 4 ? dlerror() : "usage: kernels LIBRARY CASES RESULTS");
    char *query = dlsym(lib, "mcc_query");
    FILE *in = fopen(argv[2], "rb"), *out = fopen(argv[3], "wb");
    if (!query || !in || !out)
        fail("a file is missing");
    for (int64_t n = word(in); n > 0; n--)
        run(in, out, query);
    if (fclose(out))
        fail("the results cannot be written");
    return 0;
}

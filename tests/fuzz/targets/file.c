/* See target.h. */
#include "tests/fuzz/targets/target.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ir/base/file.h"
#include "ir/expr/expr.h"

const char *file_of(const uint8_t *data, size_t size)
{
    static char path[64];
    static int fd = -1;
    if (fd < 0)
        fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 0) != 0 || lseek(fd, 0, SEEK_SET) != 0 || !fd_write(fd, data, size)) {
        perror("memfd_create");
        exit(1);
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return path;
}

int fuzz_bytes(const uint8_t *data, size_t size, void (*use)(struct context *, const char *path))
{
    struct context *ctx = context_new();
    jmp_buf here;
    if (!ctx)
        return 0;
    ctx->unwind = &here;
    if (setjmp(here) == 0)
        use(ctx, file_of(data, size));
    for (uint32_t i = 0; ctx->fail == FAIL_INTERNAL && i < ctx->diags.n; i++)
        fprintf(stderr, "%s\n", ctx->diags.data[i].text);
    if (ctx->fail == FAIL_INTERNAL)
        abort();
    context_free(ctx);
    return 0;
}

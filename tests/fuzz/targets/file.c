/* See target.h. */
#include "tests/fuzz/targets/target.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ir/base/file.h"

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

/* Blocks of memory between pages without access: see guard.h. */
#include "tests/fuzz/guard.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FILL = 0xa5 };

static bool broken;

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

void *guard_alloc(void *user, size_t bytes, size_t align)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), used = round_up(bytes, align), room = round_up(used, page);
    (void)user;
    if (align > page)
        return NULL;
    char *at = mmap(NULL, room + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || mprotect(at, page, PROT_NONE) || mprotect(at + page + room, page, PROT_NONE))
        return NULL;
    memset(at + page, FILL, room);
    return at + page + room - used;
}

static bool filled(const unsigned char *from, const unsigned char *to)
{
    while (from < to && *from == FILL)
        from++;
    return from == to;
}

void guard_release(void *user, void *p, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), before = (uintptr_t)p % page, room = round_up(before + bytes, page);
    unsigned char *block = p;
    (void)user;
    broken |= !filled(block - before, block) || !filled(block + bytes, block - before + room);
    munmap(block - before - page, room + 2 * page);
}

bool guard_broken(void)
{
    return broken;
}

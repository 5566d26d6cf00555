/* MCC_MUTANT=SITE.WAY: that mutant is on. MCC_MUTANT_REACHED: a file of a byte for each site, 1 for those that ran, in
 * any process. */
#include "mutant.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SITES = 1 << 20 };
static unsigned char nowhere[SITES];
int mutant_site = -1, mutant_way;
unsigned char *mutant_reached = nowhere;

__attribute__((constructor)) static void begin(void)
{
    const char *on = getenv("MCC_MUTANT"), *path = getenv("MCC_MUTANT_REACHED");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (on && sscanf(on, "%d.%d", &mutant_site, &mutant_way) != 2)
        abort();
    if (fd < 0)
        return;
    void *at = mmap(NULL, SITES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at != MAP_FAILED)
        mutant_reached = at;
}

/* What a worker may still ask of the kernel once it has started. */
#pragma once

#include <stdbool.h>

/* From now on this process has memory that is not code, threads, the descriptors that it has, files to read and files
 * in memory; everything else fails with EPERM: sockets, other processes, programs, new limits, and whatever writes to a
 * file system. It cannot be left. False: the kernel has no seccomp filters, or does not let this process have one;
 * nothing has changed. */
bool sandbox_enter(void);

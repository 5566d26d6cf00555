/* What the runtime and LLVM's code take from libc whatever the system (os.h has the rest), declared here because the
 * runtime is compiled without libc's headers.
 */
#pragma once

#include <stddef.h>

void *memcpy(void *restrict, const void *restrict, size_t);
void *memmove(void *, const void *, size_t);
void *memset(void *, int, size_t);
int memcmp(const void *, const void *, size_t);
/* Freestanding compilers call the plain names whatever the size; these become a load or a store where it is a small
 * constant. */
#define memcpy(to, from, bytes) __builtin_memcpy(to, from, bytes)
#define memcmp(a, b, bytes) __builtin_memcmp(a, b, bytes)

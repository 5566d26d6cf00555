/* Everything that an artifact takes from libc, declared here because the runtime is compiled without libc's headers for
 * every target. Only symbols that never had an incompatible older version: artifacts bind without version numbers.
 */
#ifndef MCC_RT_LIBC_H
#define MCC_RT_LIBC_H

#include <stddef.h>

void *memcpy(void *restrict, const void *restrict, size_t);
void *memmove(void *, const void *, size_t);
void *memset(void *, int, size_t);
int memcmp(const void *, const void *, size_t);
/* Freestanding compilers call the plain names whatever the size; these become a load or a store where it is a small
 * constant. */
#define memcpy(to, from, bytes) __builtin_memcpy(to, from, bytes)
#define memcmp(a, b, bytes) __builtin_memcmp(a, b, bytes)

void *aligned_alloc(size_t align, size_t size);
void free(void *);

unsigned long getauxval(unsigned long type);

struct timespec {
    long tv_sec, tv_nsec;
}; /* LP64 targets only */
int clock_gettime(int clock, struct timespec *);

/* Perhaps absent (rt_threads.c). pthread_t is one word in every libc of Linux. */
#define RT_WEAK __attribute__((weak))
RT_WEAK int pthread_create(unsigned long *thread, const void *attributes, void *(*main)(void *), void *arg);
RT_WEAK int pthread_join(unsigned long thread, void **result);
RT_WEAK void *dlopen(const char *name, int flags);
RT_WEAK void *dlsym(void *library, const char *name);

#endif

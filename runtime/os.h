/* All that the runtime asks of an operating system beyond memcpy and its like (rt_libc.h). A folder of runtime/ for
 * each system defines these functions, in a header, so that calls of the system stand where they are made, and whatever
 * needs an object of its own. Nothing else of the runtime depends on the system.
 */
#pragma once

#include "runtime/rt_internal.h"
#include "runtime/rt_libc.h"

enum { OS_PATH_BYTES = 4096 };

struct os_path {
    char text[OS_PATH_BYTES]; /* UTF-8, ended by a NUL */
    size_t n;
};

/* ---- threads ---- */

/* Sleeps while *word is `seen`; may also return for no reason. */
static inline void os_wait(uint32_t *word, uint32_t seen);
/* Wakes up to n threads that sleep so. */
static inline void os_wake(uint32_t *word, uint32_t n);
static inline uint64_t os_clock_ns(void); /* monotonic */
/* A bit for each CPU that this process may run on; how many bytes of the mask were written, 0 or less: not known. */
static inline int64_t os_cpus(uint64_t *mask, size_t bytes);
static inline int32_t os_process(void); /* a number that is another one in a fork's child; above 0 */
/* The calling thread takes no signals of the host from here to there, and threads that start meanwhile never do. False:
 * there is nothing to restore. */
static inline bool os_signals_block(uint64_t *saved);
static inline void os_signals_restore(uint64_t *saved);

/* ---- memory ---- */

static inline void *os_memory(size_t align, size_t bytes); /* bytes: a multiple of align; NULL on failure */
static inline void os_memory_free(void *);
/* Asks for large pages behind [p, p + bytes), which must lie on page boundaries; a hint. */
static inline void os_large_pages(void *p, size_t bytes);

/* ---- files: negative results are the system's numbers of errors, negated ---- */

static inline int64_t os_file_open(const char *path); /* for reading */
static inline int64_t os_file_size(int64_t file);
static inline int64_t os_file_map(int64_t file, int64_t size); /* the address; read-only, shared between processes */
static inline void os_file_close(int64_t file); /* mappings stay */
static inline void os_file_unmap(void *, size_t size);
/* The library that holds the model's description. */
static inline bool os_own_path(const struct mcc_model *, struct os_path *);

/* ---- the CPU ---- */

/* A word of features, for CPUs that have no instruction that tells (rt_cpu.def). */
static inline uint64_t os_cpu_word(uint32_t which);
/* Asks for the tile registers of AMX, which a system may save only for processes that ask. False: refused. */
static inline bool os_tiles(void);

static inline bool os_path_add(struct os_path *path, const char *s, size_t n)
{
    if (n >= sizeof path->text - path->n)
        return false;
    memcpy(path->text + path->n, s, n);
    path->n += n;
    path->text[path->n] = 0;
    return true;
}

#if defined(__linux__)
#include "runtime/linux/os_linux.h"
#elif defined(_WIN32)
#include "runtime/windows/os_windows.h"
#elif defined(__APPLE__)
#include "runtime/darwin/os_darwin.h"
#else
#error "no folder of runtime/ for this operating system"
#endif

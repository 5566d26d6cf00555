/* mcc_load.h for DLLs of another system on Linux of their architecture: maps a file, moves it, and stands in for the
 * functions of Windows that artifacts take. For AArch64, whose calling convention is the same on both; it believes the
 * file. What it cannot show: the loader, the scheduler and the files of a real Windows.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "codegen/container/coff.h"
#include "runtime/mcc_load.h"

enum { PATH_BYTES = 4096, EXPORTS = 0, IMPORTS = 1, RELOCATIONS = 5 };

static char *image; /* of the library that was loaded last */
static char image_path[PATH_BYTES];

/* ---- what artifacts take of Windows ---- */

static int wait_on(volatile void *word, void *seen, size_t size, uint32_t ms)
{
    (void)ms;
    if (memcmp((void *)(uintptr_t)word, seen, size) == 0)
        sched_yield(); /* it may return for no reason */
    return 1;
}

static void wake(void *word)
{
    (void)word;
}

static int counter(int64_t *now)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    *now = t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
    return 1;
}

static int frequency(int64_t *rate)
{
    *rate = 1000000000;
    return 1;
}

static int affinity(void *process, uint64_t *mask, uint64_t *system)
{
    (void)process;
    *mask = *system = 3;
    return 1;
}

static void *nothing(void)
{
    return NULL;
}

static uint32_t last_error(void)
{
    return (uint32_t)errno;
}

static void *heap_alloc(void *heap, uint32_t flags, size_t n)
{
    (void)heap, (void)flags;
    return malloc(n);
}

static int heap_free(void *heap, uint32_t flags, void *p)
{
    (void)heap, (void)flags;
    free(p);
    return 1;
}

static void *create_file(const uint16_t *path)
{
    char narrow[PATH_BYTES];
    size_t n = 0;
    do
        narrow[n] = (char)path[n];
    while (path[n] && ++n < sizeof narrow - 1);
    narrow[n] = 0;
    return (void *)(intptr_t)open(narrow, O_RDONLY);
}

static int file_size(void *file, int64_t *size)
{
    struct stat st;
    if (fstat((int)(intptr_t)file, &st) != 0)
        return 0;
    *size = st.st_size;
    return 1;
}

static void *map(void *file)
{
    return (void *)(intptr_t)dup((int)(intptr_t)file);
}

static void *view(void *mapping, uint32_t access, uint32_t high, uint32_t low, size_t size)
{
    (void)access, (void)high, (void)low;
    void *p = mmap(NULL, size, PROT_READ, MAP_PRIVATE, (int)(intptr_t)mapping, 0);
    return p == MAP_FAILED ? NULL : p;
}

static int done(void)
{
    return 1;
}

static int close_handle(void *handle)
{
    if ((uintptr_t)handle < 65536)
        close((int)(intptr_t)handle);
    return 1;
}

static int module_of(uint32_t flags, const uint16_t *address, void **module)
{
    (void)flags, (void)address;
    *module = image;
    return 1;
}

static uint32_t module_path(void *module, uint16_t *path, uint32_t n)
{
    uint32_t i = 0;
    (void)module;
    for (; image_path[i] && i < n - 1; i++)
        path[i] = (unsigned char)image_path[i];
    path[i] = 0;
    return i;
}

static int widen(uint32_t page, uint32_t flags, const char *text, int bytes, uint16_t *wide, int n)
{
    (void)page, (void)flags, (void)bytes;
    for (int i = 0; i < n; i++) {
        wide[i] = (unsigned char)text[i];
        if (!text[i])
            return i + 1;
    }
    return 0;
}

static int narrow(uint32_t page, uint32_t flags, const uint16_t *wide, int n, char *text, int room)
{
    (void)page, (void)flags;
    for (int i = 0; i < n && i < room; i++)
        text[i] = (char)wide[i];
    return n;
}

struct thread {
    uint32_t (*main)(void *);
    void *arg;
};

static void *thread_main(void *p)
{
    struct thread t = *(struct thread *)p;
    free(p);
    t.main(t.arg);
    return NULL;
}

static void *create_thread(void *security, size_t stack, uint32_t (*main)(void *), void *arg)
{
    struct thread *t = malloc(sizeof *t);
    pthread_t id;
    (void)security, (void)stack;
    *t = (struct thread){main, arg};
    return pthread_create(&id, NULL, thread_main, t) ? NULL : (void *)id;
}

static uint32_t wait_for(void *thread)
{
    return (uint32_t)pthread_join((pthread_t)thread, NULL);
}

static int has_feature(uint32_t feature)
{
    unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
    switch (feature) {
    case 30: return (first >> 3 & 15) == 15;
    case 31: return first >> 7 & 1;
    case 34: return first >> 8 & 1;
    case 43: return first >> 20 & 1;
    case 44: return first >> 13 & 1;
    case 45: return first >> 15 & 1;
    case 66: return second >> 13 & 1;
    case 67: return (first >> 9 & 3) == 3;
    case 68: return second >> 14 & 1;
    default: return 0;
    }
}

#define ROW(name, f) {name, (void *)(uintptr_t)f}
static const struct {
    const char *name;
    void *function;
} functions[] = {ROW("WaitOnAddress", wait_on),
                 ROW("WakeByAddressSingle", wake),
                 ROW("WakeByAddressAll", wake),
                 ROW("QueryPerformanceCounter", counter),
                 ROW("QueryPerformanceFrequency", frequency),
                 ROW("GetProcessAffinityMask", affinity),
                 ROW("GetCurrentProcess", nothing),
                 ROW("GetLastError", last_error),
                 ROW("GetProcessHeap", nothing),
                 ROW("HeapAlloc", heap_alloc),
                 ROW("HeapFree", heap_free),
                 ROW("CreateFileW", create_file),
                 ROW("GetFileSizeEx", file_size),
                 ROW("CreateFileMappingW", map),
                 ROW("MapViewOfFile", view),
                 ROW("UnmapViewOfFile", done),
                 ROW("CloseHandle", close_handle),
                 ROW("GetModuleHandleExW", module_of),
                 ROW("GetModuleFileNameW", module_path),
                 ROW("MultiByteToWideChar", widen),
                 ROW("WideCharToMultiByte", narrow),
                 ROW("CreateThread", create_thread),
                 ROW("WaitForSingleObject", wait_for),
                 ROW("IsProcessorFeaturePresent", has_feature)};

/* ---- loading ---- */

static uint32_t word(const char *p)
{
    uint32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

static int fail(mcc_error *error, const char *what)
{
    error->code = MCC_E_IO;
    snprintf(error->text, sizeof error->text, "%s", what);
    return MCC_E_IO;
}

static void move(const char *relocations, uint32_t bytes, uint64_t by)
{
    for (uint32_t at = 0; at < bytes; at += word(relocations + at + 4))
        for (uint32_t k = 8; k < word(relocations + at + 4); k += 2) {
            uint16_t place;
            uint64_t x;
            memcpy(&place, relocations + at + k, sizeof place);
            char *to = image + word(relocations + at) + (place & 0xfff);
            if (place >> 12 != 10)
                continue;
            memcpy(&x, to, sizeof x);
            x += by;
            memcpy(to, &x, sizeof x);
        }
}

/* False: of a function that is not in the table. */
static int bind(const char *libraries)
{
    for (; word(libraries + 12); libraries += 20)
        for (uint64_t *p = (uint64_t *)(void *)(image + word(libraries + 16)); *p; p++) {
            size_t i = 0;
            while (i < sizeof functions / sizeof *functions && strcmp(functions[i].name, image + *p + 2) != 0)
                i++;
            if (i == sizeof functions / sizeof *functions)
                return 0;
            *p = (uintptr_t)functions[i].function;
        }
    return 1;
}

static int load(int fd, mcc_lib *lib, mcc_error *error)
{
    static char head[4096];
    if (pread(fd, head, sizeof head, 0) != (ssize_t)sizeof head || memcmp(head, "MZ", 2) != 0)
        return fail(error, "not a DLL");
    const char *pe = head + word(head + COFF_PE_AT), *optional = pe + 24, *directories = optional + COFF_OPTIONAL_BYTES;
    const struct coff_section *s = (const void *)(optional + *(const uint16_t *)(const void *)(pe + 20));
    uint64_t base;
    if (*(const uint16_t *)(const void *)(pe + 4) != 0xaa64)
        return fail(error, "compiled for another kind of machine");
    memcpy(&base, optional + 24, sizeof base);
    size_t size = word(optional + 56);
    image = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < *(const uint16_t *)(const void *)(pe + 6); i++)
        if (s[i].address + (uint64_t)s[i].size > (size + 65535) / 65536 * 65536 ||
            pread(fd, image + s[i].address, s[i].size, s[i].at) != (ssize_t)s[i].size)
            return fail(error, "cannot be read");
    move(image + word(directories + 8 * RELOCATIONS), word(directories + 8 * RELOCATIONS + 4), (uintptr_t)image - base);
    if (!bind(image + word(directories + 8 * IMPORTS)))
        return fail(error, "takes a function that the test's loader has not");
    for (int i = 0; i < *(const uint16_t *)(const void *)(pe + 6); i++) {
        int writes = s[i].flags >> 31 ? PROT_WRITE : 0, runs = s[i].flags & COFF_CODE ? PROT_EXEC : 0;
        mprotect(image + s[i].address, (s[i].virtual_size + 4095u) / 4096 * 4096, PROT_READ | writes | runs);
    }
    __builtin___clear_cache(image, image + size);
    const char *exports = image + word(directories + 8 * EXPORTS);
    const mcc_api *(*query)(uint32_t) = NULL;
    const void *entry = image + word(image + word(exports + 28));
    memcpy(&query, &entry, sizeof query);
    lib->api = query(MCC_ABI);
    return lib->api ? MCC_OK : fail(error, "serves another version of the interface");
}

int mcc_load(const char *path, const mcc_host *host, mcc_lib **result, mcc_error *error)
{
    mcc_lib *lib = calloc(1, sizeof *lib);
    int fd = open(path, O_RDONLY);
    snprintf(image_path, sizeof image_path, "%s", path);
    int code = fd < 0 ? fail(error, "cannot be opened") : load(fd, lib, error);
    if (fd >= 0)
        close(fd);
    if (!code)
        code = lib->api->open(host, &lib->model, error);
    *result = code ? NULL : lib;
    return code;
}

/* The image stays. */
void mcc_unload(mcc_lib *lib)
{
    if (lib)
        lib->api->close(lib->model);
    free(lib);
}

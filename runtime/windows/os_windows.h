/* Windows 8 and later (os.h), through KERNEL32 and the API set of waiting on addresses. */
#pragma once

#include "runtime/os.h"

#define OS_NOTE ".mccnote"

typedef void *win_handle;
#define WIN(result) __declspec(dllimport) result
WIN(int) WaitOnAddress(volatile void *address, void *compare, size_t size, uint32_t milliseconds);
WIN(void) WakeByAddressSingle(void *address);
WIN(void) WakeByAddressAll(void *address);
WIN(int) QueryPerformanceCounter(int64_t *);
WIN(int) QueryPerformanceFrequency(int64_t *);
WIN(int) GetProcessAffinityMask(win_handle, uint64_t *process, uint64_t *system);
WIN(win_handle) GetCurrentProcess(void);
WIN(uint32_t) GetLastError(void);
WIN(win_handle) GetProcessHeap(void);
WIN(void *) HeapAlloc(win_handle, uint32_t flags, size_t);
WIN(int) HeapFree(win_handle, uint32_t flags, void *);
WIN(win_handle) CreateFileW(const uint16_t *, uint32_t, uint32_t, void *, uint32_t, uint32_t, win_handle);
WIN(int) GetFileSizeEx(win_handle, int64_t *);
WIN(win_handle) CreateFileMappingW(win_handle, void *, uint32_t, uint32_t, uint32_t, const uint16_t *);
WIN(void *) MapViewOfFile(win_handle, uint32_t, uint32_t, uint32_t, size_t);
WIN(int) UnmapViewOfFile(const void *);
WIN(int) CloseHandle(win_handle);
WIN(int) GetModuleHandleExW(uint32_t, const uint16_t *, win_handle *);
WIN(uint32_t) GetModuleFileNameW(win_handle, uint16_t *, uint32_t);
WIN(int) IsProcessorFeaturePresent(uint32_t);
WIN(int) MultiByteToWideChar(uint32_t, uint32_t, const char *, int, uint16_t *, int);
WIN(int) WideCharToMultiByte(uint32_t, uint32_t, const uint16_t *, int, char *, int, const char *, int *);

enum { WIN_UTF8 = 65001 };

/* ---- threads ---- */

static inline void os_wait(uint32_t *word, uint32_t seen)
{
    WaitOnAddress(word, &seen, sizeof seen, 0xffffffffu);
}

static inline void os_wake(uint32_t *word, uint32_t n)
{
    if (n == 1)
        WakeByAddressSingle(word);
    else
        WakeByAddressAll(word);
}

static inline uint64_t os_clock_ns(void)
{
    int64_t now = 0, rate = 1;
    QueryPerformanceCounter(&now);
    QueryPerformanceFrequency(&rate);
    return (uint64_t)(now / rate) * 1000000000u + (uint64_t)(now % rate) * 1000000000u / (uint64_t)rate;
}

/* Those of the process's group: at most 64. */
static inline int64_t os_cpus(uint64_t *mask, size_t bytes)
{
    uint64_t all;
    (void)bytes;
    return GetProcessAffinityMask(GetCurrentProcess(), mask, &all) ? (int64_t)sizeof *mask : 0;
}

/* There is no fork. */
static inline int32_t os_process(void)
{
    return 1;
}

static inline bool os_signals_block(uint64_t *saved)
{
    *saved = 0;
    return false;
}

static inline void os_signals_restore(uint64_t *saved)
{
    (void)saved;
}

/* ---- memory ---- */

/* The heap's own address lies before what is given out. */
static inline void *os_memory(size_t align, size_t bytes)
{
    char *block = HeapAlloc(GetProcessHeap(), 0, bytes + align + sizeof(void *));
    if (!block)
        return NULL;
    char *p = (char *)(((uintptr_t)block + sizeof(void *) + align - 1) & -(uintptr_t)align);
    ((void **)(void *)p)[-1] = block;
    return p;
}

static inline void os_memory_free(void *p)
{
    HeapFree(GetProcessHeap(), 0, ((void **)p)[-1]);
}

static inline void os_large_pages(void *p, size_t bytes)
{
    (void)p;
    (void)bytes;
}

/* ---- files ---- */

static inline int64_t os_failure(void)
{
    int64_t why = GetLastError();
    return why ? -why : -1;
}

static inline int64_t os_file_open(const char *path)
{
    uint16_t wide[OS_PATH_BYTES];
    if (!MultiByteToWideChar(WIN_UTF8, 8 /* MB_ERR_INVALID_CHARS */, path, -1, wide, OS_PATH_BYTES))
        return os_failure();
    win_handle file = CreateFileW(wide, 0x80000000u /* GENERIC_READ */, 5 /* FILE_SHARE_READ, _DELETE */, NULL,
                                  3 /* OPEN_EXISTING */, 128 /* FILE_ATTRIBUTE_NORMAL */, NULL);
    return file == (win_handle)(intptr_t)-1 ? os_failure() : (int64_t)(intptr_t)file;
}

static inline int64_t os_file_size(int64_t file)
{
    int64_t size;
    return GetFileSizeEx((win_handle)(intptr_t)file, &size) ? size : os_failure();
}

static inline int64_t os_file_map(int64_t file, int64_t size)
{
    win_handle mapping = CreateFileMappingW((win_handle)(intptr_t)file, NULL, 2 /* PAGE_READONLY */, 0, 0, NULL);
    if (!mapping)
        return os_failure();
    void *p = MapViewOfFile(mapping, 4 /* FILE_MAP_READ */, 0, 0, (size_t)size);
    int64_t at = p ? (int64_t)(intptr_t)p : os_failure();
    CloseHandle(mapping);
    return at;
}

static inline void os_file_close(int64_t file)
{
    CloseHandle((win_handle)(intptr_t)file);
}

static inline void os_file_unmap(void *p, size_t size)
{
    (void)size;
    UnmapViewOfFile(p);
}

static inline bool os_own_path(const struct mcc_model *model, struct os_path *path)
{
    uint16_t wide[OS_PATH_BYTES];
    win_handle module;
    path->n = 0;
    if (!GetModuleHandleExW(6 /* FROM_ADDRESS, UNCHANGED_REFCOUNT */, (const uint16_t *)(const void *)model->desc,
                            &module))
        return false;
    uint32_t n = GetModuleFileNameW(module, wide, OS_PATH_BYTES);
    if (n == 0 || n >= OS_PATH_BYTES)
        return false;
    int bytes = WideCharToMultiByte(WIN_UTF8, 0, wide, (int)n, path->text, OS_PATH_BYTES - 1, NULL, NULL);
    for (int i = 0; i < bytes; i++)
        if (path->text[i] == '\\')
            path->text[i] = '/';
    path->n = bytes > 0 ? (size_t)bytes : 0;
    path->text[path->n] = 0;
    return bytes > 0;
}

/* ---- the CPU ---- */

static inline bool os_tiles(void)
{
    return false;
}

/* What the system tells of a CPU, as Linux' words have it: the numbers are those of IsProcessorFeaturePresent. */
static inline uint64_t os_cpu_word(uint32_t which)
{
    uint64_t word = 0;
#if defined(__aarch64__)
    static const struct {
        uint8_t feature, second; /* second: of HWCAP2 */
        uint32_t bits;
    } rows[] = {{30, 0, 15u << 3},            /* V8_CRYPTO: AES, PMULL, SHA1, SHA2 */
                {31, 0, 1u << 7},             /* V8_CRC32 */
                {34, 0, 1u << 8},             /* V81_ATOMIC */
                {43, 0, 1u << 20},            /* V82_DP: dot products */
                {44, 0, 1u << 13},            /* V83_JSCVT */
                {45, 0, 1u << 15},            /* V83_LRCPC */
                {66, 1, 1u << 13},            /* V82_I8MM */
                {67, 0, 1u << 9 | 1u << 10},  /* V82_FP16 */
                {68, 1, 1u << 14}};           /* V86_BF16 */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].second == (which != 16 /* AT_HWCAP */) && IsProcessorFeaturePresent(rows[i].feature))
            word |= rows[i].bits;
#endif
    (void)which;
    return word;
}

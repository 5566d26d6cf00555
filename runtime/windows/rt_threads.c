/* Threads of Windows, and what LLVM's code asks of a C library that an artifact does without: memory functions, the
 * probe of large stack frames, and a word that says that floats are in use.
 */
#include "runtime/os.h"

WIN(win_handle) CreateThread(void *, size_t, uint32_t (*)(void *), void *, uint32_t, uint32_t *);
WIN(uint32_t) WaitForSingleObject(win_handle, uint32_t);

struct start {
    void *(*main)(void *);
    void *arg;
};

static uint32_t thread_main(void *p)
{
    struct start start = *(struct start *)p;
    os_memory_free(p);
    start.main(start.arg);
    return 0;
}

static int create(uintptr_t *thread, const void *attributes, void *(*main)(void *), void *arg)
{
    struct start *start = os_memory(sizeof *start, sizeof *start);
    (void)attributes;
    if (!start)
        return 1;
    *start = (struct start){main, arg};
    win_handle handle = CreateThread(NULL, 0, thread_main, start, 0, NULL);
    if (!handle)
        os_memory_free(start);
    *thread = (uintptr_t)handle;
    return handle == NULL;
}

static int join(uintptr_t thread, void **result)
{
    (void)result;
    WaitForSingleObject((win_handle)thread, 0xffffffffu);
    CloseHandle((win_handle)thread);
    return 0;
}

struct rt_threads rt_threads_find(void)
{
    return (struct rt_threads){create, join};
}

/* The library's own name, which the linker stage looks for at the end of the note's section. */
extern const char mcc_rt_name[];
__attribute__((section(OS_NOTE "$z"), used)) const char mcc_rt_name[] = "model.dll";

extern const int _fltused;
const int _fltused = 1;

#undef memcpy
#undef memcmp

#if defined(__x86_64__)

/* x86-64 since Ivy Bridge moves whole lines so. */
void *memcpy(void *restrict to, const void *restrict from, size_t n)
{
    void *d = to;
    __asm__ volatile("rep movsb" : "+D"(d), "+S"(from), "+c"(n) : : "memory");
    return to;
}

void *memset(void *to, int byte, size_t n)
{
    void *d = to;
    __asm__ volatile("rep stosb" : "+D"(d), "+c"(n) : "a"(byte) : "memory");
    return to;
}

#else

enum { BLOCK = 64 };

void *memcpy(void *restrict to, const void *restrict from, size_t n)
{
    char *d = to;
    const char *s = from;
    for (; n >= BLOCK; n -= BLOCK, d += BLOCK, s += BLOCK)
        __builtin_memcpy_inline(d, s, BLOCK);
    for (; n; n--)
        *d++ = *s++;
    return to;
}

void *memset(void *to, int byte, size_t n)
{
    char *d = to;
    uint64_t block[BLOCK / 8];
    for (size_t i = 0; i < BLOCK / 8; i++)
        block[i] = (unsigned char)byte * 0x0101010101010101u;
    for (; n >= BLOCK; n -= BLOCK, d += BLOCK)
        __builtin_memcpy_inline(d, block, BLOCK);
    for (; n; n--)
        *d++ = (char)byte;
    return to;
}

#endif

void *memmove(void *to, const void *from, size_t n)
{
    char *d = to;
    const char *s = from;
    if ((uintptr_t)d - (uintptr_t)s >= n)
        return memcpy(to, from, n);
    for (; n % 8; n--)
        d[n - 1] = s[n - 1];
    for (; n; n -= 8) {
        uint64_t word;
        __builtin_memcpy_inline(&word, s + n - 8, 8);
        __builtin_memcpy_inline(d + n - 8, &word, 8);
    }
    return to;
}

int memcmp(const void *a, const void *b, size_t n)
{
    const unsigned char *x = a, *y = b;
    for (; n; n--, x++, y++)
        if (*x != *y)
            return *x < *y ? -1 : 1;
    return 0;
}

#if defined(__x86_64__)
/* rax: bytes of the frame. Touches each page from the stack's end down; keeps all registers. */
__asm__(".globl __chkstk\n"
        "__chkstk:\n"
        "    pushq %rcx\n"
        "    pushq %rax\n"
        "    leaq 24(%rsp), %rcx\n"
        "1:  cmpq $4096, %rax\n"
        "    jb 2f\n"
        "    subq $4096, %rcx\n"
        "    orq $0, (%rcx)\n"
        "    subq $4096, %rax\n"
        "    jmp 1b\n"
        "2:  subq %rax, %rcx\n"
        "    orq $0, (%rcx)\n"
        "    popq %rax\n"
        "    popq %rcx\n"
        "    ret\n");
#elif defined(__aarch64__)
/* x15: the frame in units of 16 bytes. Touches each page from the stack's end down; changes x16 and x17 alone. */
__asm__(".globl __chkstk\n"
        "__chkstk:\n"
        "    lsl x16, x15, #4\n"
        "    mov x17, sp\n"
        "1:  sub x17, x17, #4096\n"
        "    subs x16, x16, #4096\n"
        "    ldr xzr, [x17]\n"
        "    b.gt 1b\n"
        "    ret\n");
#endif

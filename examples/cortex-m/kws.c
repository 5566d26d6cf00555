/* Keyword spotting on a Cortex-M4 without a system: the network of kws.a says which word each record of words.bin is.
 * Prints through semihosting, which qemu and debuggers have. What a board has instead: its own start and a UART.
 */
#include <stddef.h>
#include <stdint.h>

#include "kws.h"

static const char *const words[] = {"up", "down", "yes", "no", "go", "stop", "silence", "unknown"};
enum { WORDS = sizeof words / sizeof *words, MARK = 0xa5 };
extern const int8_t spoken[WORDS][1][1][49][10];
__asm__(".section .rodata\n.balign 4\n.globl spoken\nspoken: .incbin \"words.bin\"\n"
        ".section .note.GNU-stack,\"\",%progbits\n.text");

static _Alignas(KWS_ARENA_ALIGN) unsigned char arena[KWS_ARENA_BYTES];
extern unsigned char stack_bottom[], stack_top[];
int main(void);
void start(void);

/* ---- the machine ---- */

static long host(long operation, const void *argument)
{
    register long r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

static void end(int code)
{
    const long how[2] = {0x20026, code};
    for (;;)
        host(0x20, how);
}

static void print(const char *text)
{
    host(4, text);
}

static void print_number(uint32_t n)
{
    char text[11], *p = text + sizeof text - 1;
    *p = 0;
    do
        *--p = (char)('0' + n % 10);
    while (n /= 10);
    print(p);
}

/* SysTick counts down with 25 MHz; qemu's -icount shift=0 takes a nanosecond for each instruction. */
#define SYSTICK ((volatile uint32_t *)0xe000e010)
enum { INSTRUCTIONS_PER_TICK = 40, TICKS = 0xffffff };

static void fault(void)
{
    print("fault\n");
    end(99);
}

void start(void)
{
    *(volatile uint32_t *)0xe000ed88 |= 0xf << 20; /* the floating point unit */
    __asm__ volatile("dsb\nisb");
    SYSTICK[1] = SYSTICK[2] = TICKS;
    SYSTICK[0] = 5;
    while (SYSTICK[2] == 0)
        continue;
    end(main());
}

__attribute__((section(".vectors"), used)) static void *const vectors[16] = {stack_top, start, fault, fault,
                                                                             fault,     fault, fault};

/* What compilers call. */
void *memcpy(void *restrict to, const void *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((volatile char *)to)[i] = ((const char *)from)[i];
    return to;
}

void *memset(void *to, int byte, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((volatile char *)to)[i] = (char)byte;
    return to;
}

/* ---- the program ---- */

/* All that lies below this frame. */
static void mark_stack(void)
{
    for (volatile unsigned char *p = stack_bottom; p < (unsigned char *)__builtin_frame_address(0) - 64; p++)
        *p = MARK;
}

static uint32_t stack_used(void)
{
    const volatile unsigned char *p = stack_bottom;
    while (*p == MARK)
        p++;
    return (uint32_t)((unsigned char *)__builtin_frame_address(0) - p);
}

int main(void)
{
    uint32_t ticks = 0;
    int wrong = 0;
    mark_stack();
    for (int i = 0; i < WORDS; i++) {
        int8_t scores[1][WORDS];
        uint32_t before = SYSTICK[2];
        if (kws_run(spoken[i], scores, arena) != KWS_OK)
            return 1;
        ticks = before - SYSTICK[2];
        int best = 0;
        for (int w = 1; w < WORDS; w++)
            best = scores[0][w] > scores[0][best] ? w : best;
        print(words[i]);
        print(best == i ? ": heard\n" : ": not heard\n");
        wrong += best != i;
    }
    print("RAM: ");
    print_number(KWS_ARENA_BYTES);
    print(" bytes of arena, ");
    print_number(stack_used());
    print(" of stack; weights: ");
    print_number(KWS_WEIGHTS_BYTES);
    print(" bytes of flash; instructions: ");
    print_number((ticks & TICKS) * INSTRUCTIONS_PER_TICK);
    print("\n");
    return wrong;
}

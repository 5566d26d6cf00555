/* What this machine's instructions for contractions can do now: products a nanosecond of one thread, the best of many
 * short bursts. Lines "NAME RATE"; 0 where the CPU has no such instruction.
 *
 *   fma-16, fma-8     f32 multiply-adds, 512 and 256 bits
 *   dot-u8            vpdpbusd, 512 bits: four products of u8 by i8 a lane
 *   dot-bf16          vdpbf16ps, 512 bits: two products a lane
 *   madd-i16          vpmaddwd and the vpaddd that takes its sums, 256 bits: what products of bytes take without
 * vpdpbusd
 *
 * Twelve independent chains hide the latency; they are assembly, because compilers drop or reorder them. */
#include <stdio.h>
#include <time.h>

enum { CHAINS = 12, TRIPS = 10000, BURSTS = 60 };
typedef int word16 __attribute__((vector_size(64)));
typedef int word8 __attribute__((vector_size(32)));

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

#ifdef __x86_64__
#define EACH(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11)
#define INIT(i) vec a##i = {0};
#define KEEP(i) __asm__ volatile("" : : "v"(a##i));
#define STEP(i) __asm__ volatile(TEXT : "+v"(a##i) : "v"(x), "v"(y));
#define BURST(name, features, type)                                    \
    __attribute__((noinline, target(features))) static void name(void) \
    {                                                                  \
        typedef type vec;                                              \
        vec x = {0}, y = {0};                                          \
        EACH(INIT)                                                     \
        for (long k = 0; k < TRIPS; k++) {                             \
            EACH(STEP)                                                 \
        }                                                              \
        EACH(KEEP)                                                     \
    }

#define TEXT "vfmadd231ps %1, %2, %0"
BURST(fma_16, "avx512f", word16)
BURST(fma_8, "avx2,fma", word8)
#undef TEXT
#define TEXT "vpdpbusd %1, %2, %0"
BURST(dot_u8, "avx512f,avx512vnni", word16)
#undef TEXT
#define TEXT "vdpbf16ps %1, %2, %0"
BURST(dot_bf16, "avx512f,avx512bf16", word16)
#undef TEXT
#define TEXT "vpmaddwd %1, %2, %%ymm15\n\tvpaddd %%ymm15, %0, %0"
#undef STEP
#define STEP(i) __asm__ volatile(TEXT : "+v"(a##i) : "v"(x), "v"(y) : "xmm15");
BURST(madd_i16, "avx2", word8)

static double rate(void (*burst)(void), double products)
{
    double best = 0;
    for (int k = 0; k < BURSTS; k++) {
        double start = now_ns();
        burst();
        double now = products * CHAINS * TRIPS / (now_ns() - start);
        best = now > best ? now : best;
    }
    return best;
}
#define HAS(name) __builtin_cpu_supports(name)
#else
#define HAS(name) 0
#define rate(burst, products) 0.0
#endif

int main(void)
{
    printf("fma-16 %.1f\n", HAS("avx512f") ? rate(fma_16, 16) : 0);
    printf("fma-8 %.1f\n", HAS("avx2") && HAS("fma") ? rate(fma_8, 8) : 0);
    printf("dot-u8 %.1f\n", HAS("avx512vnni") ? rate(dot_u8, 64) : 0);
    printf("dot-bf16 %.1f\n", HAS("avx512bf16") ? rate(dot_bf16, 32) : 0);
    printf("madd-i16 %.1f\n", HAS("avx2") ? rate(madd_i16, 16) : 0);
    return 0;
}

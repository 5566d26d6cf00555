/* Measures multiply-adds, reading from each level of the memory, and the way between two cores (calibrate.h).
 *
 * x86-64: twelve independent chains of the widest multiply-add that the CPU has for an arithmetic hide its latency;
 * they are assembly, because compilers drop or reorder them. Elsewhere the chains are C, of f32 alone, and may fall
 * short of the peak.
 */
#include "cli/commands/bench/calibrate.h"

#include "runtime/rt_cpu.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { CHAINS = 12, TRIPS = 10000, BURST = 10000, LEVELS_TIMES = 3 };
static const double FLOPS_NS = 10e6, READ_NS = 6e6;
static const uint64_t level_bytes[CALIBRATE_LEVELS] = {16 << 10, 512 << 10, 8 << 20, 32 << 20, 96 << 20, 192 << 20};

/* ---- multiply-adds ----------------------------------------------------------------------------------------------- */

#define EACH(F, text) \
    F(0, text)        \
    F(1, text)        \
    F(2, text) F(3, text) F(4, text) F(5, text) F(6, text) F(7, text) F(8, text) F(9, text) F(10, text) F(11, text)
#define INIT(i, text) vec a##i = x;
#define KEEP(i, text) __asm__ volatile("" : : KEPT(a##i));
/* CHAINS sums, each of which STEP adds a product to. */
#define CHAIN(name, features, VEC, FACTOR, STEP, text)           \
    __attribute__((noinline features)) static void name(long n)  \
    {                                                            \
        typedef VEC vec;                                         \
        vec x = (vec){0} + (FACTOR), y = (vec){0} + (float)1e-9; \
        EACH(INIT, text)                                         \
        for (long k = 0; k < n; k++) {                           \
            EACH(STEP, text)                                     \
        }                                                        \
        EACH(KEEP, text)                                         \
    }
#define FEATURES(text) , target(text)

#ifdef __x86_64__
typedef float vec16 __attribute__((vector_size(64)));
typedef float vec8 __attribute__((vector_size(32)));
#define KEPT(v) "x"(v)
#define INSTRUCTION(i, text) __asm__ volatile(text : "+x"(a##i) : "x"(x), "x"(y) : "xmm15");
CHAIN(fma_512, FEATURES("avx512f"), vec16, 1.0000001f, INSTRUCTION, "vfmadd231ps %1, %2, %0")
CHAIN(int8_512, FEATURES("avx512f,avx512vnni"), vec16, 0, INSTRUCTION, "vpdpbusd %1, %2, %0")
CHAIN(bf16_512, FEATURES("avx512f,avx512bf16"), vec16, 0, INSTRUCTION, "vdpbf16ps %1, %2, %0")
CHAIN(fma_256, FEATURES("avx2,fma"), vec8, 1.0000001f, INSTRUCTION, "vfmadd231ps %1, %2, %0")
CHAIN(int8_256, FEATURES("avx2"), vec8, 0, INSTRUCTION, "%{vex%} vpdpbusd %1, %2, %0")
CHAIN(int16_256, FEATURES("avx2"), vec8, 0, INSTRUCTION, "vpmaddwd %1, %2, %%ymm15\n\tvpaddd %%ymm15, %0, %0")

/* Four tiles of sums and two of operands, zeros, all of 16 rows of 64 bytes. */
#define TILES(name, instruction)                                                                                       \
    static void name(long n)                                                                                           \
    {                                                                                                                  \
        struct {                                                                                                       \
            uint8_t palette, start, reserved[14];                                                                      \
            uint16_t bytes[16];                                                                                        \
            uint8_t rows[16];                                                                                          \
        } shape = {.palette = 1};                                                                                      \
        for (int i = 0; i < 6; i++)                                                                                    \
            shape.bytes[i] = 64, shape.rows[i] = 16;                                                                   \
        __asm__ volatile("ldtilecfg %0\n\ttilezero %%tmm4\n\ttilezero %%tmm5\n\ttilezero %%tmm0\n\t"                   \
                         "tilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3"                                       \
                         :                                                                                             \
                         : "m"(shape));                                                                                \
        for (long k = 0; k < n; k++)                                                                                   \
            __asm__ volatile(instruction " %tmm5, %tmm4, %tmm0\n\t" instruction " %tmm5, %tmm4, %tmm1\n\t" instruction \
                                         " %tmm5, %tmm4, %tmm2\n\t" instruction " %tmm5, %tmm4, %tmm3");               \
        __asm__ volatile("tilerelease");                                                                               \
    }
TILES(int8_tiles, "tdpbusd")
TILES(bf16_tiles, "tdpbf16ps")
#define BIT(id) (1ull << RT_X86_##id)
#elif defined(__aarch64__)
#define KEPT(v) "w"(v)
#else
#define KEPT(v) "m"(v)
#endif

typedef float vec4 __attribute__((vector_size(16)));
#define PLAIN(i, text) a##i = a##i * x + y;
CHAIN(any, , vec4, 0.9999999f, PLAIN, )

/* A burst: so many times as many multiply-adds. The first of an arithmetic that the CPU has counts. */
static const struct burst {
    enum products of;
    uint64_t needs;
    void (*run)(long n);
    int n, products;
} bursts[] = {
#ifdef __x86_64__
    {PRODUCTS_F32, BIT(AVX512F), fma_512, BURST, CHAINS * 16},
    {PRODUCTS_F32, BIT(AVX2) | BIT(FMA), fma_256, BURST, CHAINS * 8},
    {PRODUCTS_BF16, BIT(AVX512F) | BIT(AVX512BF16), bf16_512, BURST, CHAINS * 32},
    {PRODUCTS_INT8, BIT(AVX512F) | BIT(AVX512VNNI), int8_512, BURST, CHAINS * 64},
    {PRODUCTS_INT8, BIT(AVX2) | BIT(AVXVNNI), int8_256, BURST, CHAINS * 32},
    {PRODUCTS_INT8, BIT(AVX2), int16_256, BURST, CHAINS * 16},
    {PRODUCTS_BF16_TILES, BIT(AMXTILE) | BIT(AMXBF16), bf16_tiles, BURST / 10, 4 * 16 * 16 * 32},
    {PRODUCTS_INT8_TILES, BIT(AMXTILE) | BIT(AMXINT8), int8_tiles, BURST / 10, 4 * 16 * 16 * 64},
#endif
    {PRODUCTS_F32, 0, any, BURST, CHAINS * 4},
};

/* The mean of FLOPS_NS, and the best burst of them; 0: the CPU has no such multiply-adds. */
static double flops_rate(enum products of, double *best)
{
    const struct burst *b = NULL;
    for (size_t i = 0; i < COUNT_OF(bursts) && !b; i++)
        if (bursts[i].of == of && rt_cpu_runs(rt_cpu_features(), bursts[i].needs))
            b = &bursts[i];
    *best = 0;
    if (!b)
        return 0;
    double start = time_now() * 1e9, t = 0, flops = 2.0 * b->n * b->products, all = 0;
    do {
        double before = t;
        b->run(b->n);
        all += flops;
        t = time_now() * 1e9 - start;
        *best = fmax(*best, flops / (t - before));
    } while (t < FLOPS_NS);
    return all / t;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Or of all words, in four streams of vectors of T: CPUs prefetch each stream on its own, so that one alone reads
 * memory at two thirds of the rate of four. bytes is a multiple of eight vectors. */
#define OR_BODY(T)                                  \
    const T *p = data;                              \
    T a = {0}, b = {0}, c = {0}, d = {0};           \
    uint64_t part = bytes / sizeof(T) / 4;          \
    for (uint64_t i = 0; i < part; i += 2) {        \
        a |= p[i] | p[i + 1];                       \
        b |= p[part + i] | p[part + i + 1];         \
        c |= p[2 * part + i] | p[2 * part + i + 1]; \
        d |= p[3 * part + i] | p[3 * part + i + 1]; \
    }                                               \
    a |= b | c | d;                                 \
    return a[0]

#ifdef __x86_64__
typedef unsigned long long word8 __attribute__((vector_size(64), may_alias));
typedef unsigned long long word4 __attribute__((vector_size(32), may_alias));
__attribute__((noinline, target("avx512f"))) static unsigned long long read_512(const void *data, uint64_t bytes)
{
    OR_BODY(word8);
}
__attribute__((noinline, target("avx2"))) static unsigned long long read_256(const void *data, uint64_t bytes)
{
    OR_BODY(word4);
}
#endif
typedef unsigned long long word2 __attribute__((vector_size(16), may_alias));
__attribute__((noinline)) static unsigned long long read_any(const void *data, uint64_t bytes)
{
    OR_BODY(word2);
}

static unsigned long long read_all(const void *data, uint64_t bytes)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f"))
        return read_512(data, bytes);
    if (__builtin_cpu_supports("avx2"))
        return read_256(data, bytes);
#endif
    return read_any(data, bytes);
}

/* The best of a few times, since a page that is touched late or an interruption can only slow it down. */
static double read_rate(const void *data, uint64_t bytes)
{
    double best = 0;
    volatile unsigned long long sink;
    for (int k = 0; k < LEVELS_TIMES; k++) {
        double start = time_now() * 1e9, t;
        uint64_t done = 0;
        do {
            for (uint64_t once = 0; once < (1 << 20); once += bytes, done += bytes)
                sink = read_all(data, bytes);
            t = time_now() * 1e9 - start;
        } while (t < READ_NS / LEVELS_TIMES);
        best = (double)done / t > best ? (double)done / t : best;
    }
    (void)sink;
    return best;
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

struct team {
    uint32_t threads;
    bool reading;
    atomic_int go; /* 0: not all are there yet, 1: work, -1: leave */
    pthread_barrier_t barrier;
    _Alignas(128) atomic_long ball;
    _Alignas(128) double flops[CALIBRATE_THREADS][PRODUCTS];
    double best[CALIBRATE_THREADS][PRODUCTS], read[CALIBRATE_THREADS][CALIBRATE_LEVELS], round_trip;
};
struct member {
    struct team *team;
    uint32_t index;
};

/* The index-th CPU that the process may use. */
static void pin(uint32_t index)
{
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all) != 0)
        return;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && index-- == 0) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof one, &one);
            return;
        }
}

static double play(atomic_long *ball, long side)
{
    double start = time_now() * 1e9;
    for (long k = 0; k < TRIPS; k++) {
        while (atomic_load_explicit(ball, memory_order_acquire) != 2 * k + side)
            ;
        atomic_store_explicit(ball, 2 * k + side + 1, memory_order_release);
    }
    return (time_now() * 1e9 - start) / TRIPS;
}

/* Of a thread: all together hold the last level. */
static uint64_t most_bytes(uint32_t threads)
{
    return level_bytes[CALIBRATE_LEVELS - 1] / (threads ? threads : 1) / 4096 * 4096;
}

static void *work(void *arg)
{
    struct member *m = arg;
    struct team *t = m->team;
    uint64_t most = most_bytes(t->threads);
    char *data = NULL;
    int go;
    while ((go = atomic_load(&t->go)) == 0)
        sched_yield();
    if (go < 0)
        return NULL;
    if (t->threads > 1)
        pin(m->index);
    if (t->reading && posix_memalign((void **)&data, 4096, most) == 0)
        memset(data, 1, most);
    for (enum products a = PRODUCTS_F32; a < PRODUCTS; a++) {
        pthread_barrier_wait(&t->barrier);
        t->flops[m->index][a] = flops_rate(a, &t->best[m->index][a]);
    }
    pthread_barrier_wait(&t->barrier);
    if (t->threads > 1 && m->index < 2) {
        double trip = play(&t->ball, (long)m->index);
        if (m->index == 0)
            t->round_trip = trip;
    }
    for (int l = 0; l < CALIBRATE_LEVELS; l++) {
        pthread_barrier_wait(&t->barrier);
        bool larger = l == 0 || level_bytes[l - 1] < most;
        t->read[m->index][l] = data && larger ? read_rate(data, level_bytes[l] < most ? level_bytes[l] : most) : 0;
    }
    free(data);
    return NULL;
}

static void measure(struct calibration *c, uint32_t threads, bool reading)
{
    static struct team team;
    struct member member[CALIBRATE_THREADS];
    pthread_t id[CALIBRATE_THREADS];
    uint32_t started = 0;
    threads = threads < 1 ? 1 : threads > CALIBRATE_THREADS ? CALIBRATE_THREADS : threads;
    *c = (struct calibration){.threads = threads};
    memset(&team, 0, sizeof team);
    team.threads = threads;
    team.reading = reading;
    if (pthread_barrier_init(&team.barrier, NULL, threads) != 0)
        return;
    for (; started < threads; started++) {
        member[started] = (struct member){&team, started};
        if (pthread_create(&id[started], NULL, work, &member[started]) != 0)
            break;
    }
    atomic_store(&team.go, started == threads ? 1 : -1); /* without one of them there is no measurement */
    for (uint32_t i = 0; i < started; i++)
        pthread_join(id[i], NULL);
    pthread_barrier_destroy(&team.barrier);
    for (uint32_t i = 0; i < threads; i++) {
        c->flops += team.flops[i][PRODUCTS_F32];
        for (int a = 0; a < PRODUCTS; a++)
            c->peak[a] += team.best[i][a];
        for (int l = 0; l < CALIBRATE_LEVELS; l++)
            c->level_read[l] += team.read[i][l];
    }
    c->round_trip = team.round_trip;
    for (int l = 0; l < CALIBRATE_LEVELS; l++)
        c->level_bytes[l] = level_bytes[l] < most_bytes(threads) ? level_bytes[l] : most_bytes(threads);
}

void calibrate(struct calibration *c, uint32_t threads)
{
    measure(c, threads, true);
}
void calibrate_flops(struct calibration *c, uint32_t threads)
{
    measure(c, threads, false);
}

double calibration_limit(const struct calibration *c, double compute, uint64_t bytes, int *memory)
{
    int level = 0;
    while (level + 1 < CALIBRATE_LEVELS && c->level_read[level + 1] > 0 && bytes > c->level_bytes[level] * c->threads)
        level++;
    double reading = c->level_read[level] > 0 ? (double)bytes / c->level_read[level] : 0;
    *memory = reading > compute;
    return fmax(reading, compute);
}

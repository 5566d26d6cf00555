/* How threads share a launch: the pool (rt_pool.c) works by these rules, and mcc inspect --threads plays them. Indices
 * are cut into units, units into a home range for each thread; a thread claims chunks from the front of its home, then
 * from the far end of the others'.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SERIAL_NS = 10000, /* less work than this is not worth waking anybody: a futex round trip is 5 to 10 us */
    AWAKE_NS = 5000, /* ... nor this, where all wait without sleeping: some lines from core to core, 0.5 us */
    CHUNK_NS = 30000, /* long against a claim (0.1 us), short against a preemption */
    CHUNK_MIN_NS = 3000,
    CHUNKS_PER_THREAD = 4, /* at least, for balance, where CHUNK_MIN_NS allows */
    UNITS_MAX = 1 << 30 /* of a launch */
};

/* Indices in units of a few, so that both ends of a range fit one word. */
struct rt_cut {
    int64_t unit; /* indices of a unit */
    uint32_t units, most; /* in all; that one claim takes */
};

/* What is left of each thread's home range: its first unit in the lower half of a word, its end in the upper one
 * (atomic). */
struct rt_homes {
    uint64_t *range;
    uint32_t stride, n; /* words from one to the next; threads */
};

static inline int64_t rt_chunk_size(int64_t count, int64_t ns, uint32_t threads)
{
    int64_t chunk = CHUNK_NS / ns, balanced = count / (threads * CHUNKS_PER_THREAD), least = CHUNK_MIN_NS / ns;
    if (chunk > balanced)
        chunk = balanced;
    if (chunk < least)
        chunk = least;
    return chunk < 1 ? 1 : chunk;
}

static inline struct rt_cut rt_cut_of(int64_t count, int64_t chunk)
{
    int64_t unit = count / UNITS_MAX + 1;
    return (struct rt_cut){unit, (uint32_t)((count - 1) / unit + 1), (uint32_t)((chunk - 1) / unit + 1)};
}

static inline uint64_t *rt_home(const struct rt_homes *homes, uint32_t i)
{
    return homes->range + (size_t)i * homes->stride;
}

/* Gives each of the first n threads its range of so many units. */
static inline void rt_homes_fill(const struct rt_homes *homes, uint32_t n, uint32_t units)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t begin = (uint64_t)units * i / n, end = (uint64_t)units * (i + 1) / n;
        __atomic_store_n(rt_home(homes, i), begin | end << 32, __ATOMIC_RELEASE);
    }
}

/* A chunk of at most `most` units from the front or from the back of a range: begin and end in one word, or 0 when
 * nothing is left. Whoever changes the word owns the units of the job that is current then, even if the thread had read
 * the word during an earlier job; as long as units are owned the job's fields stay. */
static inline uint64_t rt_claim(uint64_t *range, uint32_t most, bool back)
{
    uint64_t old = __atomic_load_n(range, __ATOMIC_RELAXED), left, taken;
    do {
        uint32_t begin = (uint32_t)old, end = (uint32_t)(old >> 32);
        if (begin >= end)
            return 0;
        uint32_t cut = end - begin <= most ? (back ? begin : end) : back ? end - most : begin + most;
        left = back ? begin | (uint64_t)cut << 32 : cut | (uint64_t)end << 32;
        taken = back ? cut | (uint64_t)end << 32 : begin | (uint64_t)cut << 32;
    } while (!__atomic_compare_exchange_n(range, &old, left, true, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
    return taken;
}

/* Of thread `self`'s home, else of the nearest that has some left. */
static inline uint64_t rt_claim_near(const struct rt_homes *homes, uint32_t self, uint32_t most)
{
    uint64_t taken = rt_claim(rt_home(homes, self), most, false);
    for (uint32_t i = self + 1; taken == 0 && i < homes->n; i++)
        taken = rt_claim(rt_home(homes, i), most, true);
    for (uint32_t i = self; taken == 0 && i-- > 0;)
        taken = rt_claim(rt_home(homes, i), most, true);
    return taken;
}

/* mcc inspect --threads: one launch, played. */
#include "cli/commands/artifact/bound.h"

#include "ir/target/budget.h"
#include "runtime/rt_share.h"

enum {
    LAUNCH_NS = 500,           /* ranges, the job and the end of it from core to core */
    CLAIM_NS = 100,
    CLAIMS_MOST = 1 << 18      /* that are played; beyond, the last one's unevenness is nothing */
};
_Static_assert((int)SERIAL_NS == (int)RATE_SERIAL_NS, "the compiler counts on what the runtime does");

double bound_launch(int64_t count, int64_t ns, uint32_t threads)
{
    double each = ns < 1 ? 1 : (double)ns, alone = (double)count * each;
    if (count <= 0)
        return 0;
    int64_t chunk = rt_chunk_size(count, ns < 1 ? 1 : ns, threads);
    if (alone < AWAKE_NS || threads < 2 || threads > BOUND_THREADS_MOST || chunk >= count)
        return alone;
    struct rt_cut cut = rt_cut_of(count, chunk);
    if ((cut.units - 1) / cut.most >= CLAIMS_MOST)
        return LAUNCH_NS + alone / threads;
    uint64_t range[BOUND_THREADS_MOST];
    double now[BOUND_THREADS_MOST], end = 0;
    struct rt_homes homes = {range, 1, threads};
    rt_homes_fill(&homes, threads, cut.units);
    for (uint32_t i = 0; i < threads; i++)
        now[i] = LAUNCH_NS;
    for (;;) { /* whoever is free first claims next */
        uint32_t self = 0;
        for (uint32_t i = 1; i < threads; i++)
            if (now[i] < now[self])
                self = i;
        uint64_t taken = rt_claim_near(&homes, self, cut.most);
        if (taken == 0)
            return end;
        int64_t first = (int64_t)(uint32_t)taken * cut.unit, last = (int64_t)(taken >> 32) * cut.unit;
        now[self] += CLAIM_NS + (double)((last < count ? last : count) - first) * each;
        end = now[self] > end ? now[self] : end;
    }
}

uint32_t bound_counts(const char *text, uint32_t out[BOUND_COUNTS_MAX])
{
    uint32_t n = 0;
    for (const char *p = text;; p++) {
        char *end;
        if (*p < '1' || *p > '9' || n == BOUND_COUNTS_MAX)
            return 0;
        unsigned long v = strtoul(p, &end, 10);
        if (v > BOUND_THREADS_MOST || (n && v <= out[n - 1]))
            return 0;
        out[n++] = (uint32_t)v;
        p = end;
        if (*p == 0)
            return n;
        if (*p != ',')
            return 0;
    }
}

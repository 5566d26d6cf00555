/* Random numbers: the Mersenne Twister (Matsumoto and Nishimura, 1998) with 53-bit doubles, normals by Marsaglia's
 * polar method: the stream of numpy's RandomState, which is what ONNX's reference draws from. A run starts it anew, so
 * results do not depend on earlier runs.
 */
#include "runtime/rt_internal.h"
#include "runtime/ops/rt_math.h"

enum { N = 624, M = 397 };

struct twister {
    uint32_t state[N];
    uint32_t at;
    bool has_spare;
    double spare;
};

static void twister_seed(struct twister *t, uint32_t seed)
{
    t->state[0] = seed;
    for (uint32_t i = 1; i < N; i++)
        t->state[i] = 1812433253u * (t->state[i - 1] ^ t->state[i - 1] >> 30) + i;
    t->at = N;
    t->has_spare = false;
}

static uint32_t twister_word(struct twister *t)
{
    if (t->at == N) {
        for (uint32_t i = 0; i < N; i++) {
            uint32_t y = (t->state[i] & 0x80000000u) | (t->state[(i + 1) % N] & 0x7fffffffu);
            t->state[i] = t->state[(i + M) % N] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
        }
        t->at = 0;
    }
    uint32_t y = t->state[t->at++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

/* Uniform in [0, 1): 27 and 26 bits. */
static double uniform(struct twister *t)
{
    double high = twister_word(t) >> 5, low = twister_word(t) >> 6;
    return (high * 67108864 + low) / 9007199254740992;
}

static double normal(struct twister *t)
{
    if (t->has_spare) {
        t->has_spare = false;
        return t->spare;
    }
    double x, y, r;
    do {
        x = 2 * uniform(t) - 1;
        y = 2 * uniform(t) - 1;
        r = x * x + y * y;
    } while (r >= 1 || r == 0);
    double factor = rt_sqrt(-2 * rt_log(r) / r);
    t->spare = factor * x;
    t->has_spare = true;
    return factor * y;
}

int64_t mcc_rt_rng(struct mcc_rt_run *run, int64_t elem, void *dst, int64_t n, int64_t is_normal, int64_t seed,
                   int64_t a_bits, int64_t b_bits)
{
    double a = rt_bits_double((uint64_t)a_bits), b = rt_bits_double((uint64_t)b_bits);
    struct rt_mark mark = rt_run_mark(run);
    struct twister *t = rt_run_alloc(run, sizeof *t);
    if (!t)
        return MCC_E_NOMEM;
    twister_seed(t, (uint32_t)seed);
    for (int64_t i = 0; i < n; i++)
        rt_store(elem, dst, i, is_normal ? a + b * normal(t) : a + (b - a) * uniform(t));
    rt_run_reset(run, mark);
    return 0;
}

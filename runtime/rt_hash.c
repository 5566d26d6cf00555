/* XXH64 (xxHash, 64-bit variant, specification revision 0.1.1) with seed 0: identifies weights and files. Not for
 * adversaries: damage is what it finds. Little-endian machines only, which all targets are.
 */
#include "runtime/rt_internal.h"

#include "runtime/rt_libc.h"

#define P1 0x9E3779B185EBCA87u
#define P2 0xC2B2AE3D27D4EB4Fu
#define P3 0x165667B19E3779F9u
#define P4 0x85EBCA77C2B2AE63u
#define P5 0x27D4EB2F165667C5u

static uint64_t rotate(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

static uint64_t word_at(const unsigned char *p)
{
    uint64_t x;
    memcpy(&x, p, 8);
    return x;
}

static uint64_t round_of(uint64_t acc, uint64_t lane)
{
    return rotate(acc + lane * P2, 31) * P1;
}

uint64_t rt_hash(const void *data, size_t size)
{
    const unsigned char *p = data, *end = p + size;
    uint64_t h = P5;
    if (size >= 32) {
        uint64_t acc[4] = {P1 + P2, P2, 0, 0 - P1};
        for (; end - p >= 32; p += 32)
            for (int i = 0; i < 4; i++)
                acc[i] = round_of(acc[i], word_at(p + 8 * i));
        h = rotate(acc[0], 1) + rotate(acc[1], 7) + rotate(acc[2], 12) + rotate(acc[3], 18);
        for (int i = 0; i < 4; i++)
            h = (h ^ round_of(0, acc[i])) * P1 + P4;
    }
    h += size;
    for (; end - p >= 8; p += 8)
        h = rotate(h ^ round_of(0, word_at(p)), 27) * P1 + P4;
    if (end - p >= 4) {
        uint32_t x;
        memcpy(&x, p, 4);
        h = rotate(h ^ x * P1, 23) * P2 + P3;
        p += 4;
    }
    for (; p < end; p++)
        h = rotate(h ^ *p * P5, 11) * P1;
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}

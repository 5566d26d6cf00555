/* See sip.h. */
#include "codegen/sip.h"

#include <string.h>

struct state {
    uint64_t v[4];
};

static uint64_t rotated(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

static void mix(struct state *s, int rounds)
{
    uint64_t *v = s->v;
    while (rounds-- > 0) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotated(v[1], 13) ^ v[0];
        v[3] = rotated(v[3], 16) ^ v[2];
        v[0] = rotated(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = rotated(v[1], 17) ^ v[2];
        v[3] = rotated(v[3], 21) ^ v[0];
        v[2] = rotated(v[2], 32);
    }
}

static void add(struct state *s, uint64_t word)
{
    s->v[3] ^= word;
    mix(s, 2);
    s->v[0] ^= word;
}

/* Words are in the machine's byte order: every machine that mcc runs on is little-endian. */
uint64_t sip_hash(const struct sip_key *key, const void *data, size_t size)
{
    struct state s = {{key->half[0] ^ 0x736f6d6570736575u, key->half[1] ^ 0x646f72616e646f6du,
                       key->half[0] ^ 0x6c7967656e657261u, key->half[1] ^ 0x7465646279746573u}};
    const unsigned char *p = data;
    uint64_t word;
    size_t left = size;
    for (; left >= 8; left -= 8, p += 8) {
        memcpy(&word, p, 8);
        add(&s, word);
    }
    word = (uint64_t)size << 56;
    for (size_t i = 0; i < left; i++)
        word |= (uint64_t)p[i] << 8 * i;
    add(&s, word);
    s.v[2] ^= 0xff;
    mix(&s, 4);
    return s.v[0] ^ s.v[1] ^ s.v[2] ^ s.v[3];
}

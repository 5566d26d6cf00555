/* SipHash-2-4 (Aumasson, Bernstein 2012): a hash with a key, that nobody can compute without it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct sip_key {
    uint64_t half[2]; /* little-endian halves of its 16 bytes */
};

uint64_t sip_hash(const struct sip_key *, const void *data, size_t size);

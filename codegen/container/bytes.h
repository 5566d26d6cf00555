/* Bytes of files as they are put together, and places in files. */
#pragma once

#include "ir/base/base.h"

/* The low bytes of a number, the lowest first, or the highest. */
static inline void put_little(struct strbuf *out, uint64_t value, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        strbuf_append(out, &(const char){(char)(value >> 8 * i)}, 1);
}
static inline void put_big(struct strbuf *out, uint64_t value, uint32_t bytes)
{
    for (uint32_t i = bytes; i > 0; i--)
        strbuf_append(out, &(const char){(char)(value >> 8 * (i - 1))}, 1);
}

/* Zeros up to so many bytes in all; up to a multiple of `unit`. */
static inline void put_up_to(struct strbuf *out, uint64_t size)
{
    while (out->n < size)
        strbuf_append(out, "", 1);
}
static inline void put_aligned(struct strbuf *out, uint64_t unit)
{
    while (out->n % unit)
        strbuf_append(out, "", 1);
}

/* A name with its NUL; where it begins. */
static inline uint32_t put_name(struct strbuf *names, const char *name)
{
    uint32_t at = (uint32_t)names->n;
    strbuf_append(names, name, strlen(name) + 1);
    return at;
}

static inline uint64_t round_to(uint64_t x, uint64_t unit)
{
    return (x + unit - 1) / unit * unit;
}

/* Does a file of `size` bytes hold so many at this place? */
static inline bool bytes_inside(uint64_t size, uint64_t at, uint64_t bytes)
{
    return at <= size && bytes <= size - at;
}

/* Ad-hoc signatures, which macOS and iOS ask of code for arm64: SHA-256 of each page, no certificate. Whoever ships a
 * library signs it anew; this one says that it may be replaced (linker-signed). Numbers are big-endian.
 */
#include <string.h>

#include "codegen/container/macho.h"

#define MAGIC_ALL 0xfade0cc0u
#define MAGIC_DIRECTORY 0xfade0c02u
enum {
    VERSION = 0x20400, /* that with the code's segment */
    FLAGS = 0x20002, /* ad hoc, by a linker */
    SHA256 = 2,
    PAGE_SHIFT = 12,
    ALL_BYTES = 24, /* one index, padded */
    DIRECTORY_BYTES = 88,
    HASHES_AT = (ALL_BYTES + DIRECTORY_BYTES + sizeof "model" + 15) / 16 * 16
};

static void put32(struct strbuf *out, uint64_t x)
{
    const unsigned char bytes[4] = {(unsigned char)(x >> 24), (unsigned char)(x >> 16), (unsigned char)(x >> 8),
                                    (unsigned char)x};
    strbuf_append(out, bytes, sizeof bytes);
}

static void put64(struct strbuf *out, uint64_t x)
{
    put32(out, x >> 32);
    put32(out, x & UINT32_MAX);
}

static void pad_to(struct strbuf *out, size_t size)
{
    while (out->n < size)
        strbuf_append(out, "", 1);
}

static uint64_t pages(uint64_t limit)
{
    return (limit + MACHO_SIGNED_PAGE - 1) / MACHO_SIGNED_PAGE;
}

uint64_t macho_signature_bytes(uint64_t limit)
{
    return HASHES_AT + pages(limit) * MACHO_DIGEST;
}

struct span macho_signature(struct arena *arena, uint64_t limit, uint64_t code, const unsigned char *digests)
{
    const uint64_t bytes = macho_signature_bytes(limit);
    struct strbuf out = strbuf_of(arena);
    put32(&out, MAGIC_ALL);
    put32(&out, bytes);
    put32(&out, 1);
    put32(&out, 0); /* the code's directory */
    put32(&out, ALL_BYTES);
    pad_to(&out, ALL_BYTES);
    put32(&out, MAGIC_DIRECTORY);
    put32(&out, bytes - ALL_BYTES);
    put32(&out, VERSION);
    put32(&out, FLAGS);
    put32(&out, HASHES_AT - ALL_BYTES);
    put32(&out, DIRECTORY_BYTES); /* where its name is */
    put32(&out, 0);
    put32(&out, pages(limit));
    put32(&out, limit);
    strbuf_append(&out, (const unsigned char[]){MACHO_DIGEST, SHA256, 0, PAGE_SHIFT}, 4);
    for (int i = 0; i < 4; i++) /* nothing scattered, no team, spare */
        put32(&out, 0);
    put64(&out, 0);
    put64(&out, 0); /* the code's segment: from the file's beginning, */
    put64(&out, code);
    put64(&out, 0); /* of a library */
    strbuf_append(&out, "model", sizeof "model");
    pad_to(&out, HASHES_AT);
    strbuf_append(&out, digests, pages(limit) * MACHO_DIGEST);
    return (struct span){out.data, out.n};
}

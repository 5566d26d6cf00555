/* Ad-hoc signatures, which macOS and iOS ask of code for arm64: SHA-256 of each page, no certificate. Whoever ships a
 * library signs it anew; this one says that it may be replaced (linker-signed). Numbers are big-endian.
 */

#include "codegen/container/bytes.h"
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
    const uint32_t all[] = {MAGIC_ALL, (uint32_t)bytes, 1, 0 /* the code's directory */, ALL_BYTES, 0};
    const uint32_t directory[] = {MAGIC_DIRECTORY,
                                  (uint32_t)bytes - ALL_BYTES,
                                  VERSION,
                                  FLAGS,
                                  HASHES_AT - ALL_BYTES,
                                  DIRECTORY_BYTES /* where its name is */,
                                  0,
                                  (uint32_t)pages(limit),
                                  (uint32_t)limit};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        put_big(&out, all[i], 4);
    for (size_t i = 0; i < COUNT_OF(directory); i++)
        put_big(&out, directory[i], 4);
    strbuf_append(&out, (const unsigned char[]){MACHO_DIGEST, SHA256, 0, PAGE_SHIFT}, 4);
    put_up_to(&out, out.n + 4 * 4); /* nothing scattered, no team, spare */
    const uint64_t segment[] = {0, 0, code, 0}; /* the code's: from the file's beginning, of a library */
    for (size_t i = 0; i < COUNT_OF(segment); i++)
        put_big(&out, segment[i], 8);
    put_name(&out, "model");
    put_up_to(&out, HASHES_AT);
    strbuf_append(&out, digests, pages(limit) * MACHO_DIGEST);
    return (struct span){out.data, out.n};
}

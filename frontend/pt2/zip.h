/* ZIP archives in memory: the central directory, and the bytes of each record.
 *
 * A stored record is a part of the archive; a deflated one is inflated into session memory. Sizes come from the central
 * directory, because writers that stream leave them out of the local headers.
 */
#pragma once

#include "ir/base/base.h"

struct zip_record {
    const char *name; /* as the archive has it, NUL-terminated */
    uint64_t header, payload; /* offsets of the local header and of the packed bytes */
    uint64_t packed, size; /* bytes in the archive; inflated */
    uint32_t crc;
    bool deflated, open; /* open: the bytes below are there */
    uint8_t *bytes;
};
struct zip {
    struct context *ctx;
    const char *what; /* the archive in messages: "the archive", "the weights" */
    uint8_t *data; /* ours: records are moved in it */
    uint64_t size;
    struct zip_record *records; /* by name, in ascending order */
    uint32_t n;
    int64_t *inflate_left; /* bytes that may still be inflated; shared by nested archives */
};

/* Reads and checks the directory. False after a diagnostic. */
bool zip_open(struct zip *, struct arena *);
/* NULL: no record has the name. */
struct zip_record *zip_find(const struct zip *, const char *name);
/* The record's bytes, session memory or the archive's, aligned to 16: a stored record whose bytes begin elsewhere is
 * moved over its own local header, which nobody reads again. False after a diagnostic. */
bool zip_read(struct zip *, struct zip_record *, struct span *out);

/* ---- writing, without ZIP64 ---- */

struct zip_writer {
    struct strbuf *out, directory;
    uint32_t n; /* records */
};
/* Can what is written of this archive do without ZIP64? */
bool zip_is_short(const struct zip *);
void zip_store(struct zip_writer *, const char *name, struct span bytes); /* as they are */
void zip_copy(struct zip_writer *, const struct zip *from, const struct zip_record *); /* packed as it is there */
void zip_end(struct zip_writer *);

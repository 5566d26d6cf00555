/* Reading and writing ZIP archives: see zip.h. Source: APPNOTE.TXT 6.3.10 (4.3, 4.4, 4.5.3). */
#include "frontend/pt2/zip.h"

#include <zlib.h>

enum {
    LOCAL_SIZE = 30,
    CENTRAL_SIZE = 46,
    END_SIZE = 22,
    END64_SIZE = 56,
    LOCATOR_SIZE = 20,
    COMMENT_MAX = 65535,
    RECORDS_MAX = 1 << 20,
    ALIGNMENT = 16,
    DEFLATE_RATIO = 1032, /* at most so many bytes come of one */
    FLAG_ENCRYPTED = 1,
    STORED = 0,
    DEFLATED = 8,
    EXTRA_ZIP64 = 1
};

static uint16_t u16_at(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t u32_at(const uint8_t *p)
{
    return (uint32_t)u16_at(p) | (uint32_t)u16_at(p + 2) << 16;
}

static uint64_t u64_at(const uint8_t *p)
{
    return (uint64_t)u32_at(p) | (uint64_t)u32_at(p + 4) << 32;
}

static bool is_within(const struct zip *z, uint64_t at, uint64_t n)
{
    return at <= z->size && n <= z->size - at;
}

#define refuse(z, ...) error_model((z)->ctx, (src_id){0}, __VA_ARGS__)

/* ---- the directory --------------------------------------------------------------------------------------------- */

struct directory {
    uint64_t at, size, n;
};

/* The last end record that fits: an archive may have a comment after it. */
static const uint8_t *end_find(const struct zip *z)
{
    for (uint64_t back = END_SIZE; back <= z->size && back <= END_SIZE + COMMENT_MAX; back++) {
        const uint8_t *p = z->data + z->size - back;
        if (memcmp(p, "PK\5\6", 4) == 0 && u16_at(p + 20) <= back - END_SIZE)
            return p;
    }
    return NULL;
}

static bool directory_find(struct zip *z, struct directory *d)
{
    const uint8_t *end = end_find(z);
    if (!end)
        return refuse(z, "%s has no end record: the zip file was cut short; save or copy it again", z->what);
    *d = (struct directory){u32_at(end + 16), u32_at(end + 12), u16_at(end + 10)};
    uint64_t at = (uint64_t)(end - z->data);
    const uint8_t *locator = at >= LOCATOR_SIZE ? end - LOCATOR_SIZE : NULL;
    if (locator && memcmp(locator, "PK\6\7", 4) == 0) {
        uint64_t at64 = u64_at(locator + 8);
        if (!is_within(z, at64, END64_SIZE) || memcmp(z->data + at64, "PK\6\6", 4) != 0)
            return refuse(z, "%s has no ZIP64 end record where its locator says; save it again", z->what);
        const uint8_t *end64 = z->data + at64;
        *d = (struct directory){u64_at(end64 + 48), u64_at(end64 + 40), u64_at(end64 + 32)};
    }
    if (!is_within(z, d->at, d->size) || d->n > RECORDS_MAX || d->n > d->size / CENTRAL_SIZE)
        return refuse(z, "%s has a directory of %llu records in %llu bytes at %llu, which does not fit into %llu bytes",
                      z->what, (unsigned long long)d->n, (unsigned long long)d->size, (unsigned long long)d->at,
                      (unsigned long long)z->size);
    return true;
}

/* Values that do not fit into 32 bits stand in the ZIP64 field, in this order, where the short one is all ones. */
static bool zip64_read(struct zip_record *r, const uint8_t *extra, size_t n)
{
    uint64_t *values[] = {&r->size, &r->packed, &r->header};
    for (size_t k; n >= 4; extra += k, n -= k) {
        k = 4u + u16_at(extra + 2);
        if (k > n)
            return true; /* padding of writers that align */
        if (u16_at(extra) != EXTRA_ZIP64)
            continue;
        size_t at = 4;
        for (uint32_t i = 0; i < COUNT_OF(values); i++) {
            if (*values[i] != UINT32_MAX)
                continue;
            if (at + 8 > k)
                return false;
            *values[i] = u64_at(extra + at);
            at += 8;
        }
        return true;
    }
    return true;
}

/* *p: a record of the directory, after it afterwards. */
static bool central_read(struct zip *z, const uint8_t **p, const uint8_t *end, struct arena *arena,
                         struct zip_record *r)
{
    const uint8_t *c = *p;
    if ((size_t)(end - c) < CENTRAL_SIZE || memcmp(c, "PK\1\2", 4) != 0)
        return refuse(z, "%s has a damaged directory; save or copy it again", z->what);
    size_t name = u16_at(c + 28), extra = u16_at(c + 30), comment = u16_at(c + 32);
    if (name + extra + comment > (size_t)(end - c) - CENTRAL_SIZE)
        return refuse(z, "%s has a directory that ends within a record; save or copy it again", z->what);
    r->name = arena_strndup(arena, (const char *)c + CENTRAL_SIZE, name);
    r->size = u32_at(c + 24);
    r->packed = u32_at(c + 20);
    r->header = u32_at(c + 42);
    r->crc = u32_at(c + 16);
    *p = c + CENTRAL_SIZE + name + extra + comment;
    if (strlen(r->name) != name)
        return refuse(z, "%s has a record whose name holds a NUL", z->what);
    if (!zip64_read(r, c + CENTRAL_SIZE + name, extra))
        return refuse(z, "record '%s' has a ZIP64 field that is too short", r->name);
    if (u16_at(c + 8) & FLAG_ENCRYPTED)
        return refuse(z, "record '%s' is encrypted; save the file without a password", r->name);
    uint32_t method = u16_at(c + 10);
    if (method != STORED && method != DEFLATED)
        return refuse(z, "record '%s' is compressed by method %u; only stored and deflated ones are read", r->name,
                      method);
    r->deflated = method == DEFLATED;
    if (!r->deflated && r->packed != r->size)
        return refuse(z, "record '%s' is stored with %llu bytes and has %llu", r->name, (unsigned long long)r->packed,
                      (unsigned long long)r->size);
    if (r->deflated && r->size / DEFLATE_RATIO > r->packed)
        return refuse(z, "record '%s' would inflate from %llu to %llu bytes, which deflate cannot do", r->name,
                      (unsigned long long)r->packed, (unsigned long long)r->size);
    if (!is_within(z, r->header, LOCAL_SIZE) || !is_within(z, r->header + LOCAL_SIZE, r->packed))
        return refuse(z, "record '%s' reaches past the end of %s: it was cut short", r->name, z->what);
    return true;
}

ASCENDING(by_header, struct zip_record, header);

ASCENDING_TEXTS(by_name, struct zip_record, name);

/* No byte belongs to two records, so that records can be moved, and a small file cannot pretend to be a large one. */
static bool records_apart(struct zip *z, const struct directory *d)
{
    qsort(z->records, z->n, sizeof *z->records, by_header);
    for (uint32_t i = 0; i < z->n; i++) {
        struct zip_record *r = &z->records[i];
        const uint8_t *local = z->data + r->header;
        uint64_t next = i + 1 < z->n ? z->records[i + 1].header : d->at;
        if (memcmp(local, "PK\3\4", 4) != 0)
            return refuse(z, "record '%s' has no local header where the directory says", r->name);
        r->payload = r->header + LOCAL_SIZE + u16_at(local + 26) +
                     u16_at(local + 28); /* its own name and extra field */
        if (r->payload > next || r->packed > next - r->payload)
            return refuse(z, "record '%s' overlaps what follows it", r->name);
    }
    qsort(z->records, z->n, sizeof *z->records, by_name);
    for (uint32_t i = 0; i + 1 < z->n; i++)
        if (strcmp(z->records[i].name, z->records[i + 1].name) == 0)
            return refuse(z, "two records are called '%s'", z->records[i].name);
    return true;
}

bool zip_open(struct zip *z, struct arena *arena)
{
    struct directory d = {0};
    if (!directory_find(z, &d))
        return false;
    const uint8_t *p = z->data + d.at, *end = p + d.size;
    z->records = NEW_ARRAY(arena, struct zip_record, d.n + 1);
    for (z->n = 0; z->n < d.n; z->n++)
        if (!central_read(z, &p, end, arena, &z->records[z->n]))
            return false;
    return records_apart(z, &d);
}

struct zip_record *zip_find(const struct zip *z, const char *name)
{
    struct zip_record key = {.name = name};
    return bsearch(&key, z->records, z->n, sizeof key, by_name);
}

/* ---- records --------------------------------------------------------------------------------------------------- */

static bool record_inflate(struct zip *z, struct zip_record *r, const uint8_t *packed)
{
    if (r->size > (uint64_t)*z->inflate_left || r->packed > UINT32_MAX || r->size > UINT32_MAX)
        return error_limit(z->ctx, (src_id){0},
                           "record '%s' inflates to %llu bytes, more than all records may (--limit-import-heap); store "
                           "it without compression",
                           r->name, (unsigned long long)r->size);
    *z->inflate_left -= (int64_t)r->size;
    r->bytes = arena_alloc(&z->ctx->session, r->size + 1);
    z_stream s = {.next_in = (Bytef *)(uintptr_t)packed, .avail_in = (uInt)r->packed, .next_out = r->bytes};
    s.avail_out = (uInt)r->size;
    if (inflateInit2(&s, -MAX_WBITS) != Z_OK)
        return error_limit(z->ctx, (src_id){0}, "out of memory while record '%s' was inflated", r->name);
    int status = inflate(&s, Z_FINISH);
    bool whole = status == Z_STREAM_END && s.avail_out == 0;
    inflateEnd(&s);
    if (!whole || crc32(0, r->bytes, (uInt)r->size) != r->crc)
        return refuse(z, "record '%s' does not inflate to what the directory says: it is damaged", r->name);
    return true;
}

bool zip_read(struct zip *z, struct zip_record *r, struct span *out)
{
    if (!r->open) {
        uint8_t *payload = z->data + r->payload;
        size_t over = (uintptr_t)payload % ALIGNMENT;
        if (r->deflated && !record_inflate(z, r, payload))
            return false;
        if (!r->deflated) {
            r->bytes = payload - over;
            if (over)
                memmove(r->bytes, payload, r->size);
        }
        r->open = true;
    }
    *out = (struct span){r->bytes, r->size};
    return true;
}

/* ---- writing --------------------------------------------------------------------------------------------------- */

static void le_put(struct strbuf *out, uint32_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        strbuf_append(out, &(uint8_t){(uint8_t)(value >> 8 * i)}, 1);
}

/* From the version on to the length of the extra field: what both headers of a record say alike. */
static void header_put(struct strbuf *out, const struct zip_record *r)
{
    le_put(out, 20, 2);
    le_put(out, 0x800, 2); /* UTF-8 */
    le_put(out, r->deflated ? DEFLATED : STORED, 2);
    le_put(out, 0x21 << 16, 4); /* 1980-01-01 */
    le_put(out, r->crc, 4);
    le_put(out, (uint32_t)r->packed, 4);
    le_put(out, (uint32_t)r->size, 4);
    le_put(out, (uint32_t)strlen(r->name), 2);
    le_put(out, 0, 2);
}

static void record_put(struct zip_writer *z, const struct zip_record *r, const void *packed)
{
    uint32_t at = (uint32_t)z->out->n;
    strbuf_append(z->out, "PK\3\4", 4);
    header_put(z->out, r);
    strbuf_append(z->out, r->name, strlen(r->name));
    strbuf_append(z->out, packed, r->packed);
    strbuf_append(&z->directory, "PK\1\2", 4);
    le_put(&z->directory, 20, 2);
    header_put(&z->directory, r);
    le_put(&z->directory, 0, 4); /* comment, disk */
    le_put(&z->directory, 0, 2); /* attributes */
    le_put(&z->directory, 0, 4);
    le_put(&z->directory, at, 4);
    strbuf_append(&z->directory, r->name, strlen(r->name));
    z->n++;
}

bool zip_is_short(const struct zip *z)
{
    return z->size < UINT32_MAX / 2 && z->n < UINT16_MAX;
}

void zip_store(struct zip_writer *z, const char *name, struct span bytes)
{
    struct zip_record r = {.name = name, .packed = bytes.size, .size = bytes.size};
    r.crc = (uint32_t)crc32_z(0, bytes.data, bytes.size);
    record_put(z, &r, bytes.data);
}

void zip_copy(struct zip_writer *z, const struct zip *from, const struct zip_record *r)
{
    record_put(z, r, r->open && !r->deflated ? r->bytes : from->data + r->payload);
}

void zip_end(struct zip_writer *z)
{
    uint32_t at = (uint32_t)z->out->n;
    strbuf_append(z->out, z->directory.data, z->directory.n);
    strbuf_append(z->out, "PK\5\6", 4);
    le_put(z->out, 0, 4);
    le_put(z->out, z->n, 2);
    le_put(z->out, z->n, 2);
    le_put(z->out, (uint32_t)z->directory.n, 4);
    le_put(z->out, at, 4);
    le_put(z->out, 0, 2);
}

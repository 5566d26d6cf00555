/* Mutations of protobuf's wire format that keep it well formed: a message is a list of fields, and what changes is one
 * field somewhere below the root, whose enclosing lengths are written anew. Without it nearly every change of a byte
 * ends in the scanner. See target.h.
 */
#include "tests/fuzz/targets/target.h"

#include <stdlib.h>
#include <string.h>

enum { FIELDS_MAX = 512, DEPTH_MAX = 10, VARINT_MAX = 10 };

struct field {
    size_t at, payload, end; /* payload: behind the tag, and behind the length where there is one */
    unsigned wire;
    uint64_t number;
};

struct bytes {
    uint8_t *data;
    size_t n, max;
};

/* A generator of its own: libFuzzer gives a seed for each call. */
static uint64_t draw(struct mutation *m, uint64_t below)
{
    m->state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t x = m->state;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return below ? (x ^ x >> 31) % below : 0;
}

/* ---- reading ---- */

static bool varint(const uint8_t *p, size_t n, size_t *at, uint64_t *out)
{
    *out = 0;
    for (unsigned k = 0; k < VARINT_MAX && *at < n; k++) {
        uint8_t byte = p[(*at)++];
        *out |= (uint64_t)(byte & 0x7f) << (7 * k);
        if (byte < 0x80)
            return true;
    }
    return false;
}

/* The fields of a message; 0 where the bytes are none. */
static size_t fields_of(const uint8_t *p, size_t n, struct field *out)
{
    size_t count = 0;
    for (size_t at = 0; at < n && count < FIELDS_MAX; count++) {
        struct field *f = &out[count];
        uint64_t tag, size = 0;
        f->at = at;
        if (!varint(p, n, &at, &tag) || tag >> 3 == 0)
            return 0;
        f->wire = (unsigned)(tag & 7);
        f->number = tag >> 3;
        f->payload = at;
        if (f->wire == 0 && !varint(p, n, &at, &size))
            return 0;
        if (f->wire == 2) {
            if (!varint(p, n, &at, &size))
                return 0;
            f->payload = at;
        }
        size = f->wire == 1 ? 8 : f->wire == 5 ? 4 : f->wire == 2 ? size : 0;
        if (f->wire == 3 || f->wire == 4 || f->wire > 5 || size > n - at)
            return 0;
        f->end = at += (size_t)size;
    }
    return count;
}

/* ---- writing ---- */

static void put(struct bytes *b, const void *data, size_t n)
{
    if (n > b->max - b->n)
        n = b->max - b->n; /* cut off: the scanner's business */
    if (n)
        memcpy(b->data + b->n, data, n);
    b->n += n;
}

static void put_varint(struct bytes *b, uint64_t x)
{
    uint8_t text[VARINT_MAX];
    size_t n = 0;
    do {
        text[n] = (uint8_t)(x & 0x7f);
        x >>= 7;
        text[n++] |= x ? 0x80 : 0;
    } while (x);
    put(b, text, n);
}

static void put_field(struct bytes *b, uint64_t number, const uint8_t *payload, size_t n)
{
    put_varint(b, number << 3 | 2);
    put_varint(b, n);
    put(b, payload, n);
}

/* ---- changing ---- */

static uint64_t number_worth_trying(struct mutation *m)
{
    static const int64_t edges[] = {0,     1,         2,         3,         7,         16, 100, 255,
                                    65536, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, -1, -2};
    uint64_t k = draw(m, sizeof edges / sizeof *edges + 2);
    return k < sizeof edges / sizeof *edges ? (uint64_t)edges[k] : draw(m, 40);
}

/* The payload of bytes, changed by libFuzzer's own mutations. */
static void put_changed(struct mutation *m, struct bytes *out, const struct field *f, const uint8_t *p)
{
    size_t n = f->end - f->payload, room = n + 16;
    uint8_t *copy = malloc(room);
    if (!copy)
        return;
    memcpy(copy, p + f->payload, n);
    n = m->mutate(copy, n, room);
    put_field(out, f->number, copy, n);
    free(copy);
}

static void put_message(struct mutation *m, struct bytes *out, const uint8_t *p, size_t n, unsigned depth);

/* One field instead of field f: gone, twice, with another number, with a message in which something changed. */
static void put_instead(struct mutation *m, struct bytes *out, const struct field *f, size_t count, const uint8_t *p,
                        unsigned depth)
{
    static struct field inner[FIELDS_MAX];
    const struct field *other = &f[draw(m, count)];
    size_t n = f->end - f->payload;
    if (f->wire == 2 && depth < DEPTH_MAX && draw(m, 5) && fields_of(p + f->payload, n, inner)) {
        struct bytes child = {malloc(out->max), 0, out->max};
        if (child.data)
            put_message(m, &child, p + f->payload, n, depth + 1);
        put_field(out, f->number, child.data, child.n);
        free(child.data);
        return;
    }
    switch (draw(m, 8)) {
    case 0: break;
    case 1:
        put(out, p + f->at, f->end - f->at);
        put(out, p + f->at, f->end - f->at);
        break;
    case 2: put(out, p + other->at, other->end - other->at); break;
    case 3:
        put(out, p + f->at, f->end - f->at);
        put(out, m->other, m->n_other);
        break;
    default:
        if (f->wire == 2) {
            put_changed(m, out, f, p);
        } else if (f->wire == 0) {
            put_varint(out, f->number << 3);
            put_varint(out, number_worth_trying(m));
        } else {
            put(out, p + f->at, f->end - f->at);
        }
    }
}

static void put_message(struct mutation *m, struct bytes *out, const uint8_t *p, size_t n, unsigned depth)
{
    struct field *f = malloc(FIELDS_MAX * sizeof *f);
    size_t count = f ? fields_of(p, n, f) : 0, chosen = draw(m, count);
    size_t done = 0;
    for (size_t i = 0; i < count; i++) {
        if (i == chosen)
            put_instead(m, out, &f[i], count - i, p, depth);
        else
            put(out, p + f[i].at, f[i].end - f[i].at);
        done = f[i].end;
    }
    put(out, p + done, n - done); /* of a message with more fields than FIELDS_MAX */
    free(f);
}

size_t wire_mutate(struct mutation *m, uint8_t *data, size_t n, size_t max)
{
    struct bytes out = {malloc(max), 0, max};
    if (!out.data || n == 0 || draw(m, 16) == 0) {
        free(out.data);
        return m->mutate(data, n, max);
    }
    put_message(m, &out, data, n, 0);
    memcpy(data, out.data, out.n);
    free(out.data);
    return out.n;
}

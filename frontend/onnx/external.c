/* Tensor data in files beside the model, and nowhere else.
 *
 * A location is resolved by the kernel below the directory of the opened model (openat2 with RESOLVE_BENEATH; where
 * that is missing, component by component without following links); when the model is reached through a link, also
 * below the directory of its real path, which is how model caches lay files out. The descriptor is then checked: a
 * regular file with one name. Each byte range is read once per import; ranges stay in session memory.
 */
#include "frontend/onnx/import.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { OPEN_FLAGS = O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY };

struct range {
    dev_t dev;
    ino_t ino;
    int64_t offset;
    size_t size;
    struct span bytes;
};
struct external {
    VEC(struct range) ranges;
    uint32_t *slots, n_slots;      /* by hash of (device, inode, offset, size), indices + 1 */
    struct names paths;            /* already in the file list */
    int64_t holes;                 /* bytes of all ranges that no disk stores */
};
/* The parsed entries of TensorProto.external_data. */
struct entries {
    const char *location;
    int64_t offset, length;
    bool has_offset, has_length;
};

/* ---- entries --------------------------------------------------------------------------------------------- */

/* Decimal digits only, at most 2^63 - 1. */
static bool number_parse(const ProtobufCBinaryData *b, int64_t *out)
{
    int64_t v = 0;
    for (size_t i = 0; i < b->len; i++)
        if (b->data[i] < '0' || b->data[i] > '9' || !mul_i64(v, 10, &v) || !add_i64(v, b->data[i] - '0', &v))
            return false;
    *out = v;
    return b->len > 0;
}

static bool number_entry(struct importer *im, const Onnx__StringStringEntryProto *e, struct where w, bool *has,
                         int64_t *out)
{
    if (*has)
        return refuse(im, w, "external data gives %s twice", e->key);
    *has = true;
    return number_parse(&e->value, out) ||
           refuse(im, w, "external data has %s '%.*s', which is not a number from 0 to 2^63 - 1", e->key,
                  (int)(e->value.len < 100 ? e->value.len : 100), (const char *)e->value.data);
}

static bool location_entry(struct importer *im, const Onnx__StringStringEntryProto *e, struct where w,
                           struct entries *out)
{
    if (out->location)
        return refuse(im, w, "external data gives two locations");
    if (e->value.len >= PATH_MAX)
        return refuse(im, w, "the external data's location is %zu bytes long", e->value.len);
    if (e->value.len && memchr(e->value.data, 0, e->value.len))
        return refuse(im, w, "the external data's location holds a NUL byte");
    out->location = arena_strndup(&im->scratch, e->value.len ? (const char *)e->value.data : "", e->value.len);
    if (!out->location[strspn(out->location, "./")])
        return refuse(im, w, "the external data's location '%s' names no file", out->location);
    return true;
}

/* Keys that are not listed (checksum, basepath, what comes later) are ignored. */
static bool entries_parse(struct importer *im, const Onnx__TensorProto *t, struct where w, struct entries *out)
{
    *out = (struct entries){0};
    for (size_t i = 0; i < t->n_external_data; i++) {
        const Onnx__StringStringEntryProto *e = t->external_data[i];
        const char *key = e->key ? e->key : "";
        bool ok = strcmp(key, "location") == 0 ? location_entry(im, e, w, out)
                  : strcmp(key, "offset") == 0 ? number_entry(im, e, w, &out->has_offset, &out->offset)
                  : strcmp(key, "length") == 0 ? number_entry(im, e, w, &out->has_length, &out->length)
                                               : true;
        if (!ok)
            return false;
    }
    return out->location ? true : refuse(im, w, "the external data has no location");
}

/* ---- opening --------------------------------------------------------------------------------------------- */

/* Without openat2: every component by itself, no links, no "..". */
static int open_componentwise(int dir, const char *location)
{
    char part[NAME_MAX + 1];
    int at = dup(dir);
    for (const char *p = location; at >= 0;) {
        while (*p == '/')
            p++;
        size_t n = strcspn(p, "/");
        const char *rest = p + n + strspn(p + n, "/");
        if (n == 0 || n > NAME_MAX || (n == 2 && p[0] == '.' && p[1] == '.')) {
            close(at);
            errno = n > NAME_MAX ? ENAMETOOLONG : EXDEV;
            return -1;
        }
        memcpy(part, p, n);
        part[n] = 0;
        int next = openat(at, part, *rest ? O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC : OPEN_FLAGS | O_NOFOLLOW);
        int why = errno;
        close(at);
        errno = why;
        if (!*rest)
            return next;
        at = next;
        p = rest;
    }
    return -1;
}

static int open_beneath(int dir, const char *location)
{
    if (location[0] == '/') {
        errno = EXDEV;
        return -1;
    }
    struct open_how how = {.flags = OPEN_FLAGS, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    int fd = (int)syscall(SYS_openat2, dir, location, &how, sizeof how);
    return fd >= 0 || (errno != ENOSYS && errno != EPERM) ? fd : open_componentwise(dir, location);
}

/* The directory of a path, opened; of its real path when asked. */
static int dir_open(const char *path, bool real)
{
    char *resolved = real ? realpath(path, NULL) : NULL;
    const char *p = resolved ? resolved : path, *slash = strrchr(p, '/');
    char dir[PATH_MAX] = ".";
    size_t n = slash ? (slash == p ? 1 : (size_t)(slash - p)) : 0;
    int fd = -1;
    if (n < sizeof dir && (!real || resolved)) {
        if (n) {
            memcpy(dir, p, n);
            dir[n] = 0;
        }
        fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    }
    free(resolved);
    return fd;
}

static int location_open(struct importer *im, const char *location)
{
    int fd = -1, why = ENOENT;
    for (int real = 0; real < 2 && fd < 0; real++) {
        int dir = dir_open(im->path, real);
        if (dir < 0)
            continue;
        fd = open_beneath(dir, location);
        if (fd < 0 && (!real || errno != ENOENT))
            why = errno;
        close(dir);
    }
    errno = why;
    return fd;
}

/* A wrong location is the model's fault; the rest is the machine's. */
static enum fail open_failure(int why)
{
    static const int environment[] = {EACCES, EIO, EMFILE, ENFILE, ENOMEM, EINTR, EAGAIN};
    for (uint32_t i = 0; i < COUNT_OF(environment); i++)
        if (environment[i] == why)
            return FAIL_ENV;
    return FAIL_MODEL;
}

/* ---- reading ---------------------------------------------------------------------------------------------- */

/* Bytes of the range that the file does not store: parts of a sparse file that nobody wrote, all zeros. 0 where the
 * file system does not tell. Counts no further than `most`. */
static int64_t range_holes(int fd, const struct range *r, int64_t most)
{
    int64_t end = r->offset + (int64_t)r->size, holes = 0;
    for (int64_t at = r->offset; at < end && holes <= most;) {
        int64_t data = lseek(fd, at, SEEK_DATA);
        if (data < 0 && errno != ENXIO)
            return holes;
        if (data < 0 || data > end) /* a hole up to the end of the file, or of the range */
            data = end;
        holes += data - at;
        at = data < end ? lseek(fd, data, SEEK_HOLE) : end;
        if (at <= data && data < end)
            return holes;
    }
    return holes;
}

/* A file of a few bytes on disk must not become an output of many. */
static bool holes_allowed(struct importer *im, int fd, struct where w, const struct range *r)
{
    int64_t limit = im->ctx->limits.sparse_bytes;
    im->external->holes += range_holes(fd, r, limit - im->external->holes);
    return im->external->holes <= limit ||
           refuse_as(im, w, FAIL_LIMIT,
                     "the external data is in a sparse file with holes of more than %lld bytes (--limit-sparse-bytes)",
                     (long long)limit);
}

static bool range_read(struct importer *im, int fd, struct where w, struct range *r)
{
    if (!holes_allowed(im, fd, w, r))
        return false;
    char *data = arena_alloc(&im->ctx->session, r->size);
    for (size_t done = 0; done < r->size;) {
        ssize_t n = pread(fd, data + done, r->size - done, r->offset + (int64_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return refuse_as(im, w, FAIL_ENV, "cannot read the external data: %s",
                             n < 0 ? strerror(errno) : "the file was cut short meanwhile");
        done += (size_t)n;
    }
    r->bytes = (struct span){data, r->size};
    return true;
}

static bool range_equal(const struct range *a, const struct range *b)
{
    return a->dev == b->dev && a->ino == b->ino && a->offset == b->offset && a->size == b->size;
}

static uint32_t *range_slot(const struct external *x, const struct range *r)
{
    uint64_t h = hash_mix(hash_mix((uint64_t)r->dev, (uint64_t)r->ino), hash_mix((uint64_t)r->offset, r->size));
    uint32_t i = (uint32_t)h & (x->n_slots - 1);
    while (x->slots[i] && !range_equal(&x->ranges.data[x->slots[i] - 1], r))
        i = (i + 1) & (x->n_slots - 1);
    return &x->slots[i];
}

static void ranges_grow(struct importer *im, struct external *x)
{
    x->n_slots = x->n_slots ? x->n_slots * 2 : 64;
    x->slots = NEW_ARRAY(&im->scratch, uint32_t, x->n_slots);
    for (uint32_t i = 0; i < x->ranges.n; i++)
        *range_slot(x, &x->ranges.data[i]) = i + 1;
}

static bool file_check(struct importer *im, int fd, struct where w, const struct entries *e, size_t size,
                       struct range *r)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return refuse_as(im, w, FAIL_ENV, "cannot read the external file '%s': %s", e->location, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return refuse_as(im, w, FAIL_ENV, "the external file '%s' is not a regular file", e->location);
    if (st.st_nlink > 1 && !(im->options && im->options->allow_hard_links))
        return refuse(
            im, w,
            "the external file '%s' has %lu names (hard links), one of which may be outside the model's directory; use "
            "--allow-hard-links to read it",
            e->location, (unsigned long)st.st_nlink);
    if (e->has_length && (uint64_t)e->length != size)
        return refuse(im, w, "the external data has %lld bytes, and the tensor %zu", (long long)e->length, size);
    if ((int64_t)size > st.st_size || e->offset > st.st_size - (int64_t)size)
        return refuse(
            im, w,
            "the external data at offset %lld, %zu bytes, reaches past the end of '%s' (%lld bytes): copy that file again",
            (long long)e->offset, size, e->location, (long long)st.st_size);
    *r = (struct range){st.st_dev, st.st_ino, e->offset, size, {0}};
    return true;
}

static struct external *external_tables(struct importer *im)
{
    if (!im->external) {
        im->external = NEW(&im->scratch, struct external);
        names_init(&im->external->paths, &im->scratch);
    }
    struct external *x = im->external;
    if (2 * (x->ranges.n + 1) >= x->n_slots)
        ranges_grow(im, x);
    return x;
}

static void path_record(struct importer *im, const char *location)
{
    if (!im->files || name_lookup(&im->external->paths, location))
        return;
    name_bind(&im->external->paths, location, (value_id){0}, 0);
    const char *model = im->path, *slash = strrchr(model, '/');
    const char *path = arena_printf(&im->ctx->session, "%.*s%s", slash ? (int)(slash - model + 1) : 0, model, location);
    VEC_PUSH(&im->ctx->session, &im->files->paths, path);
}

/* An open file, and what of it is asked for. */
struct opened {
    struct importer *im;
    struct where w;
    const struct entries *entries;
    size_t size;
    int fd;
    struct range r;
    uint32_t *slot;
};

static bool opened_read(void *user)
{
    struct opened *o = user;
    if (!file_check(o->im, o->fd, o->w, o->entries, o->size, &o->r))
        return false;
    o->slot = range_slot(o->im->external, &o->r);
    return *o->slot || range_read(o->im, o->fd, o->w, &o->r);
}

static void opened_close(void *user)
{
    close(((struct opened *)user)->fd);
}

bool external_read(struct importer *im, const Onnx__TensorProto *t, struct where w, size_t size, struct span *out)
{
    struct entries e;
    if (!entries_parse(im, t, w, &e))
        return false;
    struct external *x = external_tables(im);
    struct opened o = {.im = im, .w = w, .entries = &e, .size = size, .fd = location_open(im, e.location)};
    if (o.fd < 0)
        return refuse_as(im, w, open_failure(errno), "cannot open the external file '%s': %s", e.location,
                         errno == EXDEV ? "it is outside the model's directory" : strerror(errno));
    if (!run_guarded(im->ctx, opened_read, opened_close, &o))
        return false;
    if (!*o.slot) {
        *o.slot = x->ranges.n + 1;
        VEC_PUSH(&im->scratch, &x->ranges, o.r);
    }
    *out = x->ranges.data[*o.slot - 1].bytes;
    path_record(im, e.location);
    return true;
}

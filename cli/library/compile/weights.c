/* The weights segment: every stored constant in its storage order, evaluated piece by piece as it is written.
 *
 * A constant is read row-major in ranges (const_read), or taken from where it lies, and scattered to where its storage
 * function puts each element. One slab of the outermost dim is in memory at a time when that dim is also outermost in
 * storage, else the whole tensor.
 */
#include "cli/library/compile/backend.h"
#include "codegen/queue.h"

enum { SLAB_BYTES = 4 << 20, KEEP_BYTES = 4 * SLAB_BYTES, BIG_BYTES = 32 << 20 };

/* A buffer kept from constant to constant: fresh pages for each cost as much as packing does. */
struct room {
    char *data;
    size_t size;
};

/* What is packed goes into the one of two that is not being written. */
struct rooms {
    struct room src, dst[2];
    uint32_t turn;
};

struct packer {
    struct module *m;
    const struct weight *w;
    struct rooms *rooms;
    int32_t rank;
    int64_t dims[RANK_MAX], outer[RANK_MAX], inner[RANK_MAX], block[RANK_MAX];
    uint32_t size;                   /* bytes per element */
    const char *plain;               /* all elements, where they lie so in memory; NULL: they are read */
};

static void packer_init(struct packer *p, struct module *m, const struct weight *w, struct rooms *rooms)
{
    const struct type *t = value_type(m->g, w->value);
    struct exprs *x = m->ctx->exprs;
    *p = (struct packer){.m = m, .w = w, .rooms = rooms, .rank = t->rank, .size = elem_size(t->elem)};
    p->plain = const_bytes(m->g, w->value);
    for (int32_t d = 0; d < t->rank; d++) {
        const struct dim_layout *l = &m->fused.storage[w->value.i].dim[d];
        ex_is_const(x, t->dims[d], &p->dims[d]);
        ex_is_const(x, l->outer, &p->outer[d]);
        p->block[d] = l->block ? l->block : 1;
        p->inner[d] = l->block ? l->inner : 0;
    }
}

static int64_t place_of(const struct packer *p, int32_t d, int64_t i)
{
    return i / p->block[d] * p->outer[d] + i % p->block[d] * p->inner[d];
}

/* Is storage order row-major order, dense? */
static bool is_dense(const struct packer *p)
{
    int64_t stride = 1;
    for (int32_t d = p->rank - 1; d >= 0; d--) {
        if (p->block[d] != 1 || (p->dims[d] != 1 && p->outer[d] != stride))
            return false;
        stride *= p->dims[d];
    }
    return true;
}

/* One row of the innermost dim: whole blocks where they are contiguous, else element by element. */
static void scatter_row(const struct packer *p, const char *src, char *dst, int64_t row)
{
    int32_t d = p->rank - 1;
    int64_t block = p->block[d], step = p->outer[d];
    if (block > 1 && p->inner[d] == 1) {
        for (int64_t i = 0; i < row; i += block)
            memcpy(dst + i / block * step * p->size, src + i * p->size,
                   (size_t)(row - i < block ? row - i : block) * p->size);
    } else if (p->size == 4 && block == 1) {
        for (int64_t i = 0; i < row; i++)
            memcpy(dst + i * step * 4, src + i * 4, 4);
    } else {
        for (int64_t i = 0; i < row; i++)
            memcpy(dst + place_of(p, d, i) * p->size, src + i * p->size, p->size);
    }
}

/* Copies the elements with leading index in [first, first + count) of src (row-major) to their places in dst. */
static void scatter(const struct packer *p, int64_t first, int64_t count, const char *src, char *dst, int64_t origin)
{
    int64_t at[RANK_MAX] = {0}, row = p->rank ? p->dims[p->rank - 1] : 1, rows = count;
    int32_t last = p->rank - 1;
    if (p->rank == 0) {
        memcpy(dst, src, p->size);
        return;
    }
    if (p->rank == 1) {
        for (int64_t i = 0; i < count; i++)
            memcpy(dst + (place_of(p, 0, first + i) - origin) * p->size, src + i * p->size, p->size);
        return;
    }
    for (int32_t d = 1; d < last; d++)
        rows *= p->dims[d];
    at[0] = first;
    for (int64_t r = 0; r < rows; r++) {
        int64_t base = -origin;
        for (int32_t d = 0; d < last; d++)
            base += place_of(p, d, at[d]);
        scatter_row(p, src + r * row * p->size, dst + base * p->size, row);
        for (int32_t d = last - 1; d >= 0; d--) {
            if (++at[d] < p->dims[d] || d == 0)
                break;
            at[d] = 0;
        }
    }
}

/* The same where dim 0 is split into blocks of contiguous lanes (panels of output channels) and elements are words:
 * block by block, each line of lanes gathered from as many rows of src, so that every line is written once. */
static void scatter_panels(const struct packer *p, int64_t first, int64_t count, const char *src, char *dst,
                           int64_t origin)
{
    int64_t slab = 1, lanes = p->block[0];
    for (int32_t d = 1; d < p->rank; d++)
        slab *= p->dims[d];
    for (int64_t b = 0; b < count; b += lanes) {
        int64_t at[RANK_MAX] = {0}, n = count - b < lanes ? count - b : lanes;
        int64_t base = place_of(p, 0, first + b) - origin;
        for (int64_t k = 0; k < slab; k++) {
            int64_t place = base;
            for (int32_t d = 1; d < p->rank; d++)
                place += at[d] * p->outer[d];
            for (int64_t o = 0; o < n; o++)
                memcpy(dst + (place + o) * 4, src + ((b + o) * slab + k) * 4, 4);
            for (int32_t d = p->rank - 1; d > 0; d--) {
                if (++at[d] < p->dims[d])
                    break;
                at[d] = 0;
            }
        }
    }
}

static bool has_panels(const struct packer *p)
{
    for (int32_t d = 1; d < p->rank; d++)
        if (p->block[d] != 1)
            return false;
    return p->rank > 1 && p->size == 4 && p->block[0] > 1 && p->inner[0] == 1;
}

typedef bool put_fn(void *sink, const void *, size_t);

/* Null after a diagnostic. What is in it is of no meaning. */
static char *room_take(const struct packer *p, struct room *r, size_t size)
{
    if (size > r->size) {
        free(r->data);
        r->size = size > SLAB_BYTES ? size : SLAB_BYTES;
        r->data = malloc(r->size);
    }
    if (!r->data) {
        r->size = 0;
        error_limit(p->m->ctx, (src_id){0}, "no memory for a constant of %lld bytes", (long long)size);
    }
    return r->data;
}

static void room_free(struct room *r)
{
    free(r->data);
    *r = (struct room){0};
}

/* Room for so many elements at a time. False after a diagnostic. */
static bool source_begin(const struct packer *p, int64_t n)
{
    return p->plain || room_take(p, &p->rooms->src, (size_t)(n + 1) * p->size);
}

/* Elements first .. first + n; NULL after a diagnostic. */
static const char *source_read(const struct packer *p, int64_t first, int64_t n)
{
    if (p->plain)
        return p->plain + first * p->size;
    return const_read(p->m->g, p->w->value, first, n, p->rooms->src.data) ? p->rooms->src.data : NULL;
}

static char *result_take(const struct packer *p, size_t size)
{
    return room_take(p, &p->rooms->dst[p->rooms->turn], size);
}

/* The result goes on its way, and the other buffer is free: except for small ones, which are copied at once. */
static bool result_put(const struct packer *p, const char *data, size_t size, put_fn *put, void *sink)
{
    if (size > QUEUE_COPY)
        p->rooms->turn ^= 1;
    return put(sink, data, size);
}

/* Row-major: streamed in pieces. */
static bool write_dense(const struct packer *p, put_fn *put, void *sink)
{
    int64_t total = 1, piece = SLAB_BYTES / p->size;
    for (int32_t d = 0; d < p->rank; d++)
        total *= p->dims[d];
    bool ok = true;
    for (int64_t i = 0; ok && i < total; i += piece) {
        int64_t n = total - i < piece ? total - i : piece;
        if (p->plain) {
            ok = put(sink, p->plain + i * p->size, (size_t)n * p->size);
            continue;
        }
        char *buffer = result_take(p, SLAB_BYTES);
        ok = buffer && const_read(p->m->g, p->w->value, i, n, buffer) &&
             result_put(p, buffer, (size_t)n * p->size, put, sink);
    }
    return ok;
}

/* Any order. Dims that take no room are read at index 0 only: the packer's dim is cut to 1. */
static bool write_packed(const struct packer *p, put_fn *put, void *sink)
{
    int64_t slab = 1, stored = (int64_t)p->w->bytes / p->size;
    for (int32_t d = 1; d < p->rank; d++)
        slab *= p->dims[d];
    bool outermost = p->rank > 1 && p->outer[0] * ((p->dims[0] + p->block[0] - 1) / p->block[0]) >= stored;
    int64_t step = outermost ? SLAB_BYTES / p->size / (slab ? slab : 1) / p->block[0] * p->block[0] : p->dims[0];
    int64_t lead = p->rank ? p->dims[0] : 1;
    if (step < p->block[0])
        step = p->block[0];
    if (!p->rank || step > lead)
        step = lead;
    int64_t out_piece = outermost ? p->outer[0] * ((step + p->block[0] - 1) / p->block[0]) : stored;
    bool holes = stored != lead * slab; /* what lies in no hole is written in any case */
    bool ok = source_begin(p, step * slab);
    for (int64_t i = 0; ok && i < lead; i += step) {
        char *dst = result_take(p, (size_t)(out_piece + 1) * p->size);
        if (!dst)
            return false;
        int64_t n = lead - i < step ? lead - i : step;
        int64_t out = outermost ? p->outer[0] * ((n + p->block[0] - 1) / p->block[0]) : stored;
        if (holes)
            memset(dst, 0, (size_t)out * p->size);
        const char *src = source_read(p, i * slab, n * slab);
        ok = src;
        if (ok)
            (has_panels(p) ? scatter_panels : scatter)(p, i, n, src, dst, outermost ? place_of(p, 0, i) : 0);
        ok = ok && result_put(p, dst, (size_t)out * p->size, put, sink);
    }
    return ok;
}

/* Is the innermost dim the one whose blocks lie farthest apart, as in panels of a matrix f32[K,N] of columns? Then big
 * constants go column group by column group. */
static bool is_columnwise(const struct packer *p)
{
    int32_t last = p->rank - 1;
    int64_t stored = (int64_t)p->w->bytes / p->size;
    return p->rank > 1 && p->w->bytes > BIG_BYTES && p->block[last] > 1 &&
           p->outer[last] * ((p->dims[last] + p->block[last] - 1) / p->block[last]) >= stored;
}

/* Only two groups' panels and one row are in memory: an eighth of the constant. */
static bool write_columns(const struct packer *p, put_fn *put, void *sink)
{
    int32_t last = p->rank - 1;
    int64_t row = p->dims[last], block = p->block[last], rows = 1;
    int64_t step = (row / 16 + block - 1) / block * block;
    for (int32_t d = 0; d < last; d++)
        rows *= p->dims[d];
    bool ok = source_begin(p, step);
    for (int64_t c = 0; ok && c < row; c += step) {
        char *dst = result_take(p, (size_t)(step / block * p->outer[last]) * p->size);
        if (!dst)
            return false;
        int64_t n = row - c < step ? row - c : step, at[RANK_MAX] = {0};
        size_t bytes = (size_t)((n + block - 1) / block * p->outer[last]) * p->size;
        memset(dst, 0, bytes);
        for (int64_t r = 0; ok && r < rows; r++) {
            int64_t base = 0;
            for (int32_t d = 0; d < last; d++)
                base += place_of(p, d, at[d]);
            const char *src = source_read(p, r * row + c, n);
            ok = src;
            if (ok)
                scatter_row(p, src, dst + base * p->size, n);
            for (int32_t d = last - 1; d >= 0 && ++at[d] == p->dims[d]; d--)
                at[d] = 0;
        }
        ok = ok && result_put(p, dst, bytes, put, sink);
    }
    return ok;
}

/* Buffers of more than KEEP_BYTES are given back: not kept for one large constant. */
static bool write_one(struct module *m, const struct weight *w, struct rooms *rooms, put_fn *put, void *sink)
{
    struct packer p;
    packer_init(&p, m, w, rooms);
    bool ok = (is_dense(&p) ? write_dense : is_columnwise(&p) ? write_columns : write_packed)(&p, put, sink);
    if (rooms->src.size > KEEP_BYTES)
        room_free(&rooms->src);
    for (int k = 0; k < 2; k++)
        if (rooms->dst[k].size > KEEP_BYTES) {
            ok = put(sink, rooms->dst[k].data, 0) && ok;
            room_free(&rooms->dst[k]);
        }
    return ok;
}

static bool write_each(struct module *m, struct rooms *rooms, put_fn *put, void *sink)
{
    static const char zeros[64];
    uint64_t at = 0;
    for (uint32_t i = 0; i < m->plan.weights.n; i++) {
        const struct weight *w = &m->plan.weights.data[i];
        if (!put(sink, zeros, (size_t)(w->offset - at)))
            return false;
        if (w->bytes && !write_one(m, w, rooms, put, sink)) /* 0: a dim is empty */
            return false;
        at = w->offset + w->bytes;
    }
    return put(sink, zeros, (size_t)(m->plan.weights_bytes - at));
}

/* An unwinding passes on when nobody reads the buffers any more and they are given back. */
static bool write_all(void *user, put_fn *put, void *sink)
{
    static const char nothing[1];
    struct module *m = user;
    struct rooms *rooms = NEW(&m->ctx->session, struct rooms); /* not a local: it changes before an unwinding */
    jmp_buf *outer = m->ctx->unwind, here;
    volatile bool ok = false, unwound = false;
    m->ctx->unwind = &here;
    if (setjmp(here) == 0)
        ok = write_each(m, rooms, put, sink);
    else
        unwound = true;
    m->ctx->unwind = outer;
    ok = put(sink, nothing, 0) && ok;
    room_free(&rooms->src);
    room_free(&rooms->dst[0]);
    room_free(&rooms->dst[1]);
    if (unwound && outer)
        longjmp(*outer, 1);
    return ok;
}

bool weight_is_dense(struct module *m, const struct weight *w)
{
    struct packer p;
    packer_init(&p, m, w, NULL);
    return is_dense(&p);
}

uint64_t weight_elements_bytes(const struct module *m, const struct weight *w)
{
    const struct type *t = value_type(m->g, w->value);
    uint64_t bytes = elem_size(t->elem);
    int64_t n = 0;
    for (int32_t d = 0; d < t->rank && ex_is_const(m->ctx->exprs, t->dims[d], &n); d++)
        bytes *= (uint64_t)n;
    return bytes < w->bytes ? bytes : w->bytes;
}

struct weights_writer weights_of(struct module *m)
{
    uint64_t padding = m->plan.weights_bytes;
    for (uint32_t i = 0; i < m->plan.weights.n; i++)
        padding -= weight_elements_bytes(m, &m->plan.weights.data[i]);
    return (struct weights_writer){.size = m->plan.weights_bytes, .padding = padding, .user = m, .write = write_all};
}

const char *weight_name(const struct module *m, value_id v)
{
    const struct value *value = graph_value(m->g, v);
    const struct source *src = value->def.i ? source_get(m->ctx, graph_node(m->g, value->def)->src) : NULL;
    if (value->name)
        return value->name;
    return src && src->name && *src->name ? src->name : src && src->output ? src->output : "";
}

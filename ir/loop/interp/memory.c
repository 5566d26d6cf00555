/* The interpreter's statements that touch memory: every access within bounds and aligned as promised.
 * What of a local was written is known byte by byte. */
#include "ir/loop/interp/internal.h"

#include <inttypes.h>
#include <math.h>

/* Address of lane i's element, checked; NULL after a broken rule. */
static uint8_t *lane_address(struct interp *in, const struct lstmt *s, struct lmem m, uint32_t size, uint32_t i)
{
    const struct memory *mem = &slot_in(in, s, 0)->mem;
    const struct slot *index = slot_in(in, s, 1);
    int64_t at = loop_int_lane(index->elem, index->data, index->lanes > 1 ? i : 0), step = 0;
    bool indirect = s->op == L_GATHER || s->op == L_SCATTER;
    if (index->elem == ELEM_U8 && mem->bytes / size < LOOP_TABLE) {
        interp_broken(in, s, arena_printf(&in->arena, "a table of %" PRId64 " elements", mem->bytes / size));
        return NULL;
    }
    if (!indirect && m.stride < 0)
        step = i;
    else if (!indirect && !mul_i64(slot_index(slot_in(in, s, (uint32_t)m.stride)), i, &step))
        at = -1;
    if (!add_i64(at, step, &at) || at < 0 || at >= mem->bytes / size) {
        interp_broken(in, s,
                      arena_printf(&in->arena, "element %" PRId64 " (lane %u) of a buffer of %" PRId64, at, i,
                                   mem->bytes / size));
        return NULL;
    }
    uint8_t *p = mem->data + at * size;
    uint32_t align = i == 0 && s->align > size ? s->align : s->align && s->align < size ? s->align : size;
    if ((uintptr_t)p % align != 0)
        interp_broken(in, s, arena_printf(&in->arena, "element %" PRId64 " is not aligned to %u bytes", at, align));
    return in->stopped ? NULL : p;
}

static bool access_defined(struct interp *in, const struct lstmt *s, struct lmem m)
{
    return interp_defined(in, s, slot_in(in, s, 1), "index") &&
           (m.stride < 0 || interp_defined(in, s, slot_in(in, s, (uint32_t)m.stride), "stride")) &&
           (m.mask < 0 || interp_defined(in, s, slot_in(in, s, (uint32_t)m.mask), "mask"));
}

/* Of an element; if it was written in parts, the largest of theirs. */
static double element_error(struct interp *in, const struct memory *mem, enum elem elem, const uint8_t *at)
{
    double most = 0;
    if (in->vague)
        return INFINITY;
    if (!mem->init)
        return in->host->read_error(in->host->user, elem, at);
    for (uint32_t b = 0; b < elem_size(elem); b++)
        most = fmax(most, mem->error[at - mem->data + b]);
    return most;
}

void exec_load(struct interp *in, const struct lstmt *s)
{
    struct lmem m = lstmt_mem(s);
    struct slot *r = slot_out(in, s);
    const struct memory *mem = &slot_in(in, s, 0)->mem;
    uint32_t size = elem_size(r->elem);
    if (!access_defined(in, s, m))
        return;
    slot_define(r);
    for (uint32_t i = 0; i < r->lanes; i++) {
        uint8_t *to = r->data + (size_t)i * size;
        if (m.mask > 0 && !slot_in(in, s, (uint32_t)m.mask)->data[i]) {
            memset(to, 0, size);
            if (in->host->read_error)
                r->error[i] = 0;
            continue;
        }
        uint8_t *p = lane_address(in, s, m, size, i);
        if (!p)
            return;
        if (!mem->init && in->host->load)
            in->host->load(in->host->user, r->elem, p);
        memcpy(to, p, size);
        if (r->elem == ELEM_BOOL)
            *to = *to != 0;
        if (in->host->read_error)
            r->error[i] = element_error(in, mem, r->elem, p);
        r->any_error |= in->host->read_error && r->error[i] != 0;
        for (uint32_t b = 0; mem->init && b < size; b++)
            r->undef[i] |= !mem->init[p - mem->data + b];
        r->any_undef |= r->undef[i];
    }
}

void exec_store(struct interp *in, const struct lstmt *s)
{
    struct lmem m = lstmt_mem(s);
    const struct slot *v = slot_in(in, s, (uint32_t)m.value);
    const struct memory *mem = &slot_in(in, s, 0)->mem;
    uint32_t size = elem_size(v->elem);
    if (!access_defined(in, s, m))
        return;
    for (uint32_t i = 0; i < v->lanes; i++) {
        if (m.mask > 0 && !slot_in(in, s, (uint32_t)m.mask)->data[i])
            continue;
        uint8_t *p = lane_address(in, s, m, size, i);
        if (!p)
            return;
        if (v->undef[i] && !mem->init) {
            interp_broken(in, s, arena_printf(&in->arena, "lane %u of the stored value is undefined", i));
            return;
        }
        if (!mem->init && in->host->store)
            in->host->store(in->host->user, v->elem, p);
        memcpy(p, v->data + (size_t)i * size, size);
        const double error = in->vague ? (double)INFINITY : v->any_error ? v->error[i] : 0;
        if (!mem->init && in->host->write_error)
            in->host->write_error(in->host->user, v->elem, p, error);
        for (uint32_t b = 0; mem->error && b < size; b++)
            mem->error[p - mem->data + b] = error;
        if (mem->init)
            memset(mem->init + (p - mem->data), !v->undef[i], size);
    }
}

/* n elements from element `at` on, all defined; NULL after a broken rule. */
static const uint8_t *elements_at(struct interp *in, const struct lstmt *s, uint32_t operand, int64_t at, int64_t n)
{
    const struct slot *of = slot_in(in, s, operand);
    int64_t size = elem_size(of->elem), have = of->mem.bytes / size;
    bool there = at >= 0 && at <= have && n <= have - at, defined = true;
    for (int64_t b = at * size; there && of->mem.init && b < (at + n) * size; b++)
        defined &= of->mem.init[b];
    if (!there || !defined) {
        interp_broken(in, s,
                      arena_printf(&in->arena, "elements %" PRId64 " and %" PRId64 " more of a buffer of %" PRId64 "%s",
                                   at, n - 1, have, defined ? "" : ", some of them undefined"));
        return NULL;
    }
    return of->mem.data + at * size;
}

/* One row by the columns of one vector at one trip, into sums of the first and of the second products of a group,
 * which of integers are one. */
static void matmul_row(enum elem a_elem, enum elem b_elem, const uint8_t *a, const uint8_t *b, int64_t k, void *sums)
{
    float *f = sums;
    int32_t *i = sums;
    for (int64_t at = 0; at < k; at++)
        for (int64_t c = 0; c < MATMUL_COLUMNS; c++) {
            if (a_elem == ELEM_BF16) {
                int64_t from = (at / 2 * MATMUL_COLUMNS + c) * 2 + at % 2;
                float x[2];
                const uint16_t h[2] = {((const uint16_t *)(const void *)a)[at],
                                       ((const uint16_t *)(const void *)b)[from]};
                for (int o = 0; o < 2; o++) {
                    uint32_t bits = (uint32_t)h[o] << 16;
                    memcpy(&x[o], &bits, sizeof bits);
                }
                float *sum = &f[at % 2 * MATMUL_COLUMNS + c];
                *sum = fmaf(x[0], x[1], *sum);
                continue;
            }
            uint8_t y = b[(at / 4 * MATMUL_COLUMNS + c) * 4 + at % 4];
            int32_t product = (a_elem == ELEM_U8 ? a[at] : (int8_t)a[at]) * (b_elem == ELEM_U8 ? y : (int8_t)y);
            i[c] = (int32_t)((uint32_t)i[c] + (uint32_t)product);
        }
}

/* What is added at one trip to the errors of a row of c: of operands, and of sums that are rounded. */
static void matmul_error(struct interp *in, const struct lstmt *s, const uint8_t *a, const uint8_t *b, int64_t k,
                         const uint32_t *sums)
{
    const struct slot *sa = slot_in(in, s, 1), *sb = slot_in(in, s, 3);
    const uint32_t size = elem_size(sa->elem), group = 4 / size;
    const struct memory *c = &slot_in(in, s, 0)->mem;
    for (int64_t i = 0; i < MATMUL_COLUMNS; i++) {
        float sum;
        memcpy(&sum, &sums[i], sizeof sum);
        double error = 0, most = fabs((double)sum);
        for (int64_t at = 0; at < k; at++) {
            const uint8_t *x = a + at * size, *y = b + ((at / group * MATMUL_COLUMNS + i) * group + at % group) * size;
            const double ex = element_error(in, &sa->mem, sa->elem, x), ey = element_error(in, &sb->mem, sb->elem, y);
            error += ex > 0 || ey > 0 ? (double)INFINITY : 0;
            if (sa->elem == ELEM_BF16)
                most += fabs(elem_to_f64(ELEM_BF16, x) * elem_to_f64(ELEM_BF16, y));
        }
        if (sa->elem == ELEM_BF16)
            error += (double)(k / 2 + 2) * most * 0x1p-24 + 0x1p-126 * most;
        for (uint32_t byte = 0; c->error && byte < 4; byte++)
            c->error[(const uint8_t *)&sums[i] - c->data + byte] += error;
    }
}

/* All of a row of c at one trip: index[l] of each loop. */
static void matmul_trip(struct interp *in, const struct lstmt *s, const struct lmatmul *m, const int64_t *index,
                        int64_t row_a, uint32_t *c)
{
    int64_t a = slot_index(slot_in(in, s, 2)) + row_a, b = slot_index(slot_in(in, s, 4));
    for (uint32_t l = 0; l < m->n_loops; l++) {
        a += index[l] * m->loop[l].a;
        b += index[l] * m->loop[l].b;
    }
    enum elem ea = slot_in(in, s, 1)->elem, eb = slot_in(in, s, 3)->elem;
    for (int64_t v = 0; v < (m->apart ? 2 : 1); v++) {
        const uint8_t *pa = elements_at(in, s, 1, a, m->k);
        const uint8_t *pb = elements_at(in, s, 3, b + v * m->apart, m->k * MATMUL_COLUMNS);
        uint32_t sums[2 * MATMUL_COLUMNS] = {0}, *to = c + v * MATMUL_COLUMNS;
        if (!pa || !pb)
            return;
        matmul_row(ea, eb, pa, pb, m->k, sums);
        if (in->host->read_error)
            matmul_error(in, s, pa, pb, m->k, to);
        for (int64_t i = 0; i < MATMUL_COLUMNS; i++) {
            float f[3];
            memcpy(&f[0], &sums[i], sizeof *f);
            memcpy(&f[1], &sums[MATMUL_COLUMNS + i], sizeof *f);
            memcpy(&f[2], &to[i], sizeof *f);
            f[2] += f[0] + f[1];
            if (ea == ELEM_BF16)
                memcpy(&to[i], &f[2], sizeof *f);
            else
                to[i] += sums[i];
        }
    }
}

void exec_matmul(struct interp *in, const struct lstmt *s)
{
    int64_t constants[MATMUL_FIXED - MATMUL_FIRST + 3 * MATMUL_LOOPS];
    struct memory *c = &slot_in(in, s, 0)->mem;
    struct lmatmul m;
    for (uint32_t i = MATMUL_FIRST; i < s->n_in; i++)
        constants[i - MATMUL_FIRST] = slot_index(slot_in(in, s, i));
    if (!interp_defined(in, s, slot_in(in, s, 2), "index") || !interp_defined(in, s, slot_in(in, s, 4), "index") ||
        !lmatmul_of(constants, s->n_in - MATMUL_FIRST, elem_size(slot_in(in, s, 1)->elem), &m) ||
        !elements_at(in, s, 1, slot_index(slot_in(in, s, 2)), m.k) || /* others are some way from these: no overflow */
        !elements_at(in, s, 3, slot_index(slot_in(in, s, 4)), m.k * MATMUL_COLUMNS))
        return;
    int64_t width = MATMUL_COLUMNS * (m.apart ? 2 : 1), trips = 1;
    for (uint32_t l = 0; l < m.n_loops; l++)
        trips *= m.loop[l].n;
    for (int64_t row = 0; row < (m.place ? 2 : 1) * m.rows && !in->stopped; row++) {
        bool second = row >= m.rows;
        int64_t r = row % m.rows, at = (second ? m.place : 0) + r, index[MATMUL_LOOPS];
        uint32_t *to = (uint32_t *)(void *)(c->data + at * width * 4);
        memset(to, 0, (size_t)width * 4);
        for (int64_t i = 0; c->error && i < width * 4; i++)
            c->error[at * width * 4 + i] = 0;
        for (int64_t trip = 0; trip < trips && !in->stopped; trip++) {
            int64_t left = trip;
            for (uint32_t l = m.n_loops; l > 0; l--) {
                index[l - 1] = left % m.loop[l - 1].n;
                left /= m.loop[l - 1].n;
            }
            matmul_trip(in, s, &m, index, r * m.stride + (second ? m.second : 0), to);
        }
        if (c->init)
            memset(c->init + at * width * 4, 1, (size_t)width * 4);
    }
}

void exec_local(struct interp *in, const struct lstmt *s)
{
    struct slot *r = slot_out(in, s);
    int64_t bytes = s->imm * elem_size(r->elem);
    if (!r->mem.data) {
        uint8_t *raw = arena_alloc(&in->arena, (size_t)bytes + 64);
        r->mem = (struct memory){raw + (64 - (uintptr_t)raw % 64) % 64, arena_alloc(&in->arena, (size_t)bytes), bytes,
                                 in->host->read_error ? NEW_ARRAY(&in->arena, double, (size_t)bytes) : NULL};
        VEC_PUSH(&in->arena, &in->locals, s->out[0].i);
    }
    memset(r->mem.init, 0, (size_t)bytes);
}

void exec_offset(struct interp *in, const struct lstmt *s)
{
    const struct memory *mem = &slot_in(in, s, 0)->mem;
    int64_t by = slot_index(slot_in(in, s, 1));
    if (!interp_defined(in, s, slot_in(in, s, 1), "offset"))
        return;
    if (by < 0 || by > mem->bytes) {
        interp_broken(in, s, arena_printf(&in->arena, "byte %" PRId64 " of a buffer of %" PRId64, by, mem->bytes));
        return;
    }
    slot_out(in, s)->mem = (struct memory){mem->data + by, mem->init ? mem->init + by : NULL, mem->bytes - by,
                                           mem->error ? mem->error + by : NULL};
}

/* Segments have their size; of other addresses only the caller knows how far they reach. */
void exec_address(struct interp *in, const struct lstmt *s)
{
    int64_t address = slot_index(slot_in(in, s, 0)), bytes = INT64_MAX;
    if (!interp_defined(in, s, slot_in(in, s, 0), "address"))
        return;
    for (uint32_t i = 0; i < in->segments.n; i++)
        if (in->segments.data[i].address == address)
            bytes = in->segments.data[i].bytes;
    slot_out(in, s)->mem = (struct memory){(uint8_t *)(uintptr_t)address, NULL, bytes, NULL};
}

void exec_shared(struct interp *in, const struct lstmt *s)
{
    struct slot *r = slot_out(in, s);
    r->data[0] = slot_in(in, s, 0)->mem.data == slot_in(in, s, 1)->mem.data;
    slot_define(r);
}

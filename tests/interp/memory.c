/* The interpreter's statements that touch memory: every access within bounds and aligned as promised.
 * What of a local was written is known byte by byte. */
#include "tests/interp/internal.h"

#include <inttypes.h>
#include <string.h>

/* Address of lane i's element, checked; NULL after a broken rule. */
static uint8_t *lane_address(struct interp *in, const struct lstmt *s, struct lmem m, uint32_t size, uint32_t i)
{
    const struct memory *mem = &slot_in(in, s, 0)->mem;
    const struct slot *index = slot_in(in, s, 1);
    int64_t at = loop_int_lane(ELEM_I64, index->data, index->lanes > 1 ? i : 0), step = 0;
    bool indirect = s->op == L_GATHER || s->op == L_SCATTER;
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
            continue;
        }
        const uint8_t *p = lane_address(in, s, m, size, i);
        if (!p)
            return;
        memcpy(to, p, size);
        if (r->elem == ELEM_BOOL)
            *to = *to != 0;
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
        memcpy(p, v->data + (size_t)i * size, size);
        if (mem->init)
            memset(mem->init + (p - mem->data), !v->undef[i], size);
    }
}

void exec_local(struct interp *in, const struct lstmt *s)
{
    struct slot *r = slot_out(in, s);
    int64_t bytes = s->imm * elem_size(r->elem);
    if (!r->mem.data) {
        uint8_t *raw = arena_alloc(&in->arena, (size_t)bytes + 64);
        r->mem = (struct memory){raw + (64 - (uintptr_t)raw % 64) % 64, arena_alloc(&in->arena, (size_t)bytes), bytes};
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
    slot_out(in, s)->mem = (struct memory){mem->data + by, mem->init ? mem->init + by : NULL, mem->bytes - by};
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
    slot_out(in, s)->mem = (struct memory){(uint8_t *)(uintptr_t)address, NULL, bytes};
}

void exec_shared(struct interp *in, const struct lstmt *s)
{
    struct slot *r = slot_out(in, s);
    r->data[0] = slot_in(in, s, 0)->mem.data == slot_in(in, s, 1)->mem.data;
    slot_define(r);
}

/* Where a module's values lie: invariants 16 to 27 of verify_module.c.
 *
 * Extents, strides and offsets with symbols are checked at some sizes: the least that there are, and a
 * few and many steps above, where no extent is negative then: a run would have ended with an assertion.
 */
#include "passes/module/analysis.h"
#include "passes/module/verify.h"

enum { LINE = 64, SIZES = 3, STEPS = 7 };

/* ---- places ------------------------------------------------------------------------------------------------------ */

static bool is_port(const struct port *ports, uint32_t n, uint32_t k, value_id v)
{
    return k < n && ports[k].value.i == v.i;
}

static bool in_memory(const struct type *t)
{
    return t->kind == TYPE_TENSOR && t->rank >= 0;
}

static void check_place(struct check *c, value_id v)
{
    const struct storage *s = &c->m->fused.storage[v.i];
    const struct type *t = value_type(c->g, v);
    uint32_t number = c->n.value[v.i];
    bool constant = s->place == PLACE_WEIGHTS;
    if ((s->place == PLACE_INPUT && !is_port(c->g->inputs.data, c->g->inputs.n, s->port, v)) ||
        (s->place == PLACE_OUTPUT && !is_port(c->g->outputs.data, c->g->outputs.n, s->port, v)))
        violated(c, 16, "%%%u is not such a port", number);
    if (s->place == PLACE_NONE ? c->m->fused.stored[v.i] && in_memory(t) : !c->m->fused.stored[v.i] && !constant)
        violated(c, 17,
                 s->place == PLACE_NONE ? "%%%u is stored and has no place" : "%%%u has a place and is not stored",
                 number);
    if (constant && !value_is_const(c->g, v))
        violated(c, 17, "%%%u lies in the file and is not a constant", number);
    const struct layout_constraint *w = &c->m->fused.constraint[v.i];
    if (w->grows && s->place != PLACE_INPUT && s->place != PLACE_OUTPUT)
        violated(c, 18, "%%%u has room and is not a port", number);
    if (!(c->m->facts & HAS_CONSTRAINTS))
        return;
    if (w->plain + w->blocked + (w->fastest != 0) > 1 || w->fastest < 0 || w->fastest > (t->rank > 0 ? t->rank : 0))
        violated(c, 18, "%%%u is constrained%s%s%s", number, w->plain ? " plain" : "", w->blocked ? " blocked" : "",
                 w->fastest ? " with a dim of its own" : "");
}

/* ---- storage functions ------------------------------------------------------------------------------------------- */

/* The dims of a value, those in blocks as two: extent and stride, smallest stride first. */
struct axis {
    int64_t extent, stride;
};
static void axis_add(struct axis *axis, uint32_t *n, int64_t extent, int64_t stride)
{
    uint32_t i = (*n)++;
    for (; i > 0 && axis[i - 1].stride > stride; i--)
        axis[i] = axis[i - 1];
    axis[i] = (struct axis){extent, stride};
}

/* Elements below origin and up to the last one of the value with its halo; false where these sizes do not exist, or a
 * run would refuse them. */
static bool measure(const struct check *c, value_id v, const int64_t *sizes, struct axis *axis, uint32_t *n,
                    int64_t *below, int64_t *above)
{
    const struct storage *s = &c->m->fused.storage[v.i];
    const struct layout_constraint *w = &c->m->fused.constraint[v.i];
    const struct type *t = value_type(c->g, v);
    *n = 0;
    *below = *above = 0;
    for (int32_t d = 0; d < s->rank; d++) {
        int64_t extent, stride, blocks, block = s->dim[d].block, part;
        if (!ex_eval(c->x, t->dims[d], sizes, &extent) || !ex_eval(c->x, s->dim[d].outer, sizes, &stride) ||
            extent < 1 || (w->grows == d + 1 && extent > w->room))
            return false;
        blocks = block ? (extent + block - 1) / block : extent;
        axis_add(axis, n, blocks, stride);
        if (block)
            axis_add(axis, n, extent < block ? extent : block, s->dim[d].inner);
        if (!mul_i64(blocks - 1 + (s->halo ? s->halo[s->rank + d] : 0), stride, &part) ||
            !add_i64(*above, part, above) ||
            (block && !add_i64(*above, ((extent < block ? extent : block) - 1) * s->dim[d].inner, above)) ||
            !mul_i64(s->halo ? s->halo[d] : 0, stride, &part) || !add_i64(*below, part, below))
            return false;
    }
    return true;
}

static void check_elements(struct check *c, value_id v, const int64_t *sizes)
{
    const struct storage *s = &c->m->fused.storage[v.i];
    struct axis axis[2 * RANK_MAX];
    uint32_t n;
    int64_t below, above, origin, size, last = 0;
    if (!measure(c, v, sizes, axis, &n, &below, &above) || !ex_eval(c->x, s->origin, sizes, &origin) ||
        !ex_eval(c->x, s->size, sizes, &size))
        return;
    if (origin < below || !add_i64(origin, above, &above) || above >= size)
        violated(c, 20, "elements %lld to %lld of %%%u are not within its %lld", (long long)(origin - below),
                 (long long)above, c->n.value[v.i], (long long)size);
    for (uint32_t i = 0; i < n && s->place != PLACE_WEIGHTS; i++) {
        if (axis[i].extent > 1 && axis[i].stride <= last) {
            violated(c, 21, "elements of %%%u lie in one place: %lld steps of %lld", c->n.value[v.i],
                     (long long)axis[i].extent, (long long)axis[i].stride);
            return;
        }
        if (!mul_i64(axis[i].extent - 1, axis[i].stride, &below) || !add_i64(last, below, &last))
            return;
    }
}

static void check_storage(struct check *c, value_id v, int64_t *const sizes[SIZES])
{
    const struct module *m = c->m;
    const struct storage *s = &m->fused.storage[v.i];
    const struct type *t = value_type(c->g, v);
    bool ok = s->dim && s->size.i && s->origin.i && s->rank == t->rank;
    for (int32_t d = 0; ok && d < s->rank; d++)
        ok = s->dim[d].outer.i && s->dim[d].block >= 0 && s->dim[d].block != 1 &&
             (!s->dim[d].block || s->dim[d].inner >= 1);
    if (!ok) {
        violated(c, 19, "%%%u has no whole storage function", c->n.value[v.i]);
        return;
    }
    for (int k = 0; k < SIZES && sizes[k]; k++)
        check_elements(c, v, sizes[k]);
    bool arena = s->place == PLACE_ARENA || s->place == PLACE_SEGMENT;
    if (arena && (s->buffer >= m->plan.buffers.n ||
                  m->plan.buffers.data[s->buffer].bytes.i != ex_mulc(c->x, s->size, elem_size(t->elem)).i))
        violated(c, 22, "%%%u has no buffer of its size", c->n.value[v.i]);
    const struct weight *w = s->place == PLACE_WEIGHTS && s->buffer < m->plan.weights.n
                                 ? &m->plan.weights.data[s->buffer]
                                 : NULL;
    bool number = w && m->fused.storage[w->value.i].size.i == s->size.i && splats_equal(c->g, v, w->value);
    if (s->place == PLACE_WEIGHTS && !(w && (w->value.i == v.i || number)))
        violated(c, 23, "%%%u has no weight", c->n.value[v.i]);
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

static void check_order(struct check *c)
{
    const struct module *m = c->m;
    uint32_t *times = NEW_ARRAY(&c->arena, uint32_t, m->fused.kernels.n + 1);
    for (uint32_t i = 0; i < m->fused.order.n; i++) {
        uint32_t k = m->fused.order.data[i];
        if (k >= m->fused.kernels.n || m->fused.kernels.data[k].region.i != 1 || times[k]++)
            violated(c, 24, "k%u does not belong into the order, or not again", k);
        else if (i && m->fused.order.data[i - 1] < m->fused.kernels.n &&
                 m->fused.kernels.data[m->fused.order.data[i - 1]].order > m->fused.kernels.data[k].order)
            violated(c, 24, "k%u comes too late in the order", k);
    }
    for (uint32_t k = 0; k < m->fused.kernels.n; k++)
        if (m->fused.kernels.data[k].region.i == 1 && !times[k])
            violated(c, 24, "k%u is not in the order", k);
}

static void check_weights(struct check *c)
{
    const struct module *m = c->m;
    uint64_t at = 0;
    for (uint32_t i = 0; i < m->plan.weights.n; i++) {
        const struct weight *w = &m->plan.weights.data[i];
        int64_t n = 0;
        ex_is_const(c->x, m->fused.storage[w->value.i].size, &n);
        if (w->offset % LINE || w->offset < at ||
            w->bytes < (uint64_t)n * elem_size(value_type(c->g, w->value)->elem) ||
            w->offset + w->bytes > m->plan.weights_bytes)
            violated(c, 25, "weight %u of %llu bytes cannot lie at %llu", i, (unsigned long long)w->bytes,
                     (unsigned long long)w->offset);
        at = w->offset + w->bytes;
    }
}

/* When kernels of region r run; UINT32_MAX: never. */
static uint32_t time_of(const struct check *c, uint32_t kernel)
{
    const struct kernel *k = &c->m->fused.kernels.data[kernel];
    for (region_id r = k->region; r.i != 1;) {
        node_id owner = graph_get_region(c->g, r)->owner;
        if (!owner.i || !c->m->fused.kernel_of[owner.i])
            return UINT32_MAX;
        kernel = c->m->fused.kernel_of[owner.i] - 1;
        r = graph_node(c->g, owner)->parent;
    }
    for (uint32_t i = 0; i < c->m->fused.order.n; i++)
        if (c->m->fused.order.data[i] == kernel)
            return i;
    return UINT32_MAX;
}

static void check_life(struct check *c, uint32_t index, value_id v)
{
    const struct storage *s = &c->m->fused.storage[v.i];
    uint32_t at = time_of(c, index);
    if ((s->place != PLACE_ARENA && s->place != PLACE_SEGMENT) || s->buffer >= c->m->plan.buffers.n || at == UINT32_MAX)
        return;
    const struct buffer *b = &c->m->plan.buffers.data[s->buffer];
    if (at < b->first || at > b->last || b->first == UINT32_MAX)
        violated(c, 26, "k%u runs at %u and needs %%%u, whose buffer %u lives from %d to %u", index, at,
                 c->n.value[v.i], s->buffer, (int)b->first, b->last);
}

struct span_of {
    int64_t at, end;
};
static void check_buffers(struct check *c, const int64_t *sizes)
{
    const struct module *m = c->m;
    struct span_of *span = NEW_ARRAY(&c->arena, struct span_of, m->plan.buffers.n + 1);
    int64_t total, bytes;
    if (!ex_eval(c->x, m->plan.arena_bytes, sizes, &total))
        return;
    for (uint32_t i = 0; i < m->plan.buffers.n; i++) {
        const struct buffer *b = &m->plan.buffers.data[i];
        if (b->segment || b->first == UINT32_MAX || !b->offset.i || !ex_eval(c->x, b->offset, sizes, &span[i].at) ||
            !ex_eval(c->x, b->bytes, sizes, &bytes) || bytes < 1)
            continue;
        span[i].end = span[i].at + bytes;
        if (span[i].at % LINE || span[i].at < 0 || span[i].end > total)
            violated(c, 27, "buffer %u cannot lie at %lld of %lld bytes", i, (long long)span[i].at, (long long)total);
        for (uint32_t j = 0; j < i; j++) {
            const struct buffer *o = &m->plan.buffers.data[j];
            if (span[j].end && o->first <= b->last && b->first <= o->last && span[j].at < span[i].end &&
                span[i].at < span[j].end)
                violated(c, 27, "buffers %u and %u lie in one place at one time", j, i);
        }
    }
}

static void check_run(struct check *c, int64_t *const sizes[SIZES])
{
    for (uint32_t i = 0; i < c->m->fused.kernels.n; i++) {
        const struct kernel *k = &c->m->fused.kernels.data[i];
        for (uint32_t o = 0; o < k->outs.n; o++)
            check_life(c, i, k->outs.data[o]);
        kernel_reads(c, i, check_life);
    }
    for (int k = 0; k < SIZES && sizes[k]; k++)
        check_buffers(c, sizes[k]);
}

static int64_t *symbol_sizes(struct check *c, int64_t steps)
{
    uint32_t n = sym_count(c->x);
    int64_t *size = NEW_ARRAY(&c->arena, int64_t, n + 1);
    for (uint32_t i = 1; i <= n; i++) {
        const struct symbol *s = sym_get(c->x, (sym_id){i});
        int64_t step = s->divisor > 1 ? s->divisor : 1, least = s->lo > 1 ? s->lo : 1;
        least = (least + step - 1) / step * step;
        size[i] = s->hi / step > least / step + steps ? least + steps * step : least;
    }
    return size;
}

/* Is no extent negative? */
static bool is_possible(const struct check *c, const int64_t *sizes)
{
    for (uint32_t v = 1; v < c->m->fused.n_values; v++) {
        const struct type *t = value_type(c->g, (value_id){v});
        int64_t n;
        for (int32_t d = 0; c->n.value[v] && t->kind == TYPE_TENSOR && d < t->rank; d++)
            if (ex_eval(c->x, t->dims[d], sizes, &n) && n < 0)
                return false;
    }
    return true;
}

void verify_memory(struct check *c)
{
    struct module *m = c->m;
    int64_t *sizes[SIZES] = {NULL};
    uint32_t n_sizes = 0;
    for (int64_t k = 0, steps = 0; k < SIZES; k++, steps = steps * STEPS + STEPS) {
        int64_t *size = symbol_sizes(c, steps);
        if (is_possible(c, size))
            sizes[n_sizes++] = size;
    }
    if (!(m->facts & HAS_PLACES))
        return;
    for (uint32_t v = 1; v < m->fused.n_values; v++) {
        enum place place = m->fused.storage[v].place;
        if (!c->n.value[v])
            continue;
        check_place(c, (value_id){v});
        if ((m->facts & HAS_STORAGE) && place != PLACE_NONE && in_memory(value_type(c->g, (value_id){v})))
            check_storage(c, (value_id){v}, sizes);
    }
    if (m->facts & HAS_ORDER)
        check_order(c);
    if (m->facts & HAS_WEIGHTS)
        check_weights(c);
    if (m->facts & HAS_OFFSETS)
        check_run(c, sizes);
}

/* prepare-winograd: where a Winograd kernel has its transformed weights U = G g G' from: the kernel derives them, open
 * has derived them for all runs, or the file has them. Auto never stores them: U is 1.8 to 7 times as large as g.
 *
 * U of open and of the file is computed in double and rounded once, and lies the same for every variant of an artifact:
 * [point][block of 16 output channels][input channel][16].
 */
#include "passes/schedule/winograd.h"

#include "passes/module/access.h"
#include "passes/module/compressed.h"

#include <math.h>
#include <string.h>

enum { UNKNOWN_EXTENT = 64 };

int64_t winograd_extent(const struct module *m, expr_id e)
{
    int64_t n;
    return ex_is_const(m->ctx->exprs, e, &n) ? n : UNKNOWN_EXTENT;
}

/* What is stored of a convolution's weights. perm[d]: the dim of it that dim d of the weights is. */
static value_id weights_root(const struct module *m, value_id w, int64_t perm[4])
{
    for (int32_t d = 0; d < 4; d++)
        perm[d] = d;
    while (m->storage[w.i].place == PLACE_NONE && weight_step(m->g, &w, perm))
        ;
    return w;
}

bool winograd_weights(const struct module *m, value_id w, value_id *stored, int64_t stride[4])
{
    struct exprs *x = m->ctx->exprs;
    int64_t perm[4];
    w = weights_root(m, w, perm);
    const struct storage *s = &m->storage[w.i];
    static const int32_t order[4] = {0, 2, 3, 1};
    if (s->place != PLACE_WEIGHTS || s->dim[perm[0]].block != CHANNEL_BLOCK || s->dim[perm[0]].inner != 1)
        return false;
    for (int32_t i = 0; i < 4; i++)
        if (!ex_is_const(x, s->dim[perm[order[i]]].outer, &stride[i]) || (i > 0 && s->dim[perm[order[i]]].block))
            return false;
    *stored = w;
    return true;
}

bool winograd_computes(const struct module *m, value_id w)
{
    return m->storage[w.i].place == PLACE_NONE && constant_maps(m, w) > 0;
}

/* Channels and bytes of U. */
static bool prepared_size(const struct module *m, const struct kernel *k, struct prepared *p)
{
    const struct type *w = value_type(m->g, graph_node(m->g, k->anchor)->in[1]);
    const struct winograd_form *f = winograd_form(k->form.winograd);
    int64_t oc = 0, n;
    if (!ex_is_const(m->ctx->exprs, w->dims[0], &oc) || !ex_is_const(m->ctx->exprs, w->dims[1], &p->ic))
        return false;
    p->blocks = (oc + CHANNEL_BLOCK - 1) / CHANNEL_BLOCK;
    if (!mul_i64(p->blocks * CHANNEL_BLOCK, p->ic, &n) || !mul_i64(n, (int64_t)f->alpha * f->alpha * 4, &n))
        return false;
    p->bytes = (uint64_t)n;
    return true;
}

/* Another kernel's that is the same: its number + 1. */
static uint32_t prepared_find(const struct module *m, const struct prepared *p)
{
    for (uint32_t i = 0; i < m->prepared.n; i++) {
        const struct prepared *q = &m->prepared.data[i];
        if (q->value.i == p->value.i && q->winograd == p->winograd && q->ic == p->ic && q->blocks == p->blocks &&
            q->stored == p->stored && !memcmp(q->stride, p->stride, sizeof p->stride))
            return i + 1;
    }
    return 0;
}

static uint32_t prepared_add(struct module *m, const struct prepared *p)
{
    VEC_PUSH(m->arena, &m->prepared, *p);
    return m->prepared.n;
}

/* ---- from open, or not ------------------------------------------------------------------------------------------- */

/* Deriving costs about as much as reading the result at 40 bytes a cycle: open pays but where a cache near the core
 * holds the result and many chunks use it. */
static bool is_kept(const struct module *m, const struct kernel *k, const struct prepared *p)
{
    const struct type *y = value_type(m->g, graph_node(m->g, k->anchor)->out[0]);
    int64_t images, tile = k->form.winograd, size[2];
    if (m->winograd_weights != WEIGHTS_AUTO)
        return m->winograd_weights == WEIGHTS_OPEN;
    images = ex_is_const(m->ctx->exprs, y->dims[0], &images) ? images : 1;
    for (int32_t d = 0; d < 2; d++)
        size[d] = (winograd_extent(m, y->dims[2 + d]) + tile - 1) / tile;
    return p->bytes <= (uint64_t)winograd_kept_bytes(m) &&
           (double)images * (double)size[0] * (double)size[1] >= RATE_WINOGRAD_KEPT_TILES;
}

bool prepare_winograd(struct module *m)
{
    for (uint32_t i = 0; i < m->kernels.n; i++) {
        struct kernel *k = &m->kernels.data[i];
        struct prepared p = {.winograd = k->form.winograd, .offset = m->prepared_bytes};
        if (!k->form.winograd || k->form.prepared)
            continue;
        value_id w = graph_node(m->g, k->anchor)->in[1];
        if (!winograd_weights(m, w, &p.value, p.stride) || !prepared_size(m, k, &p)) {
            if (!winograd_computes(m, w)) /* else the kernel derives U of them */
                k->form.winograd = 0;
            continue;
        }
        if (!is_kept(m, k, &p))
            continue;
        k->form.prepared = prepared_find(m, &p);
        if (k->form.prepared)
            continue;
        k->form.prepared = prepared_add(m, &p);
        m->prepared_bytes += (p.bytes + 63) / 64 * 64;
    }
    return true;
}

/* ---- in the file ------------------------------------------------------------------------------------------------- */

bool winograd_store(struct module *m, struct kernel *k)
{
    struct prepared p = {.winograd = k->form.winograd, .stored = true};
    if (!k->form.winograd || m->winograd_weights != WEIGHTS_STORE || !prepared_size(m, k, &p))
        return false;
    value_id w = graph_node(m->g, k->anchor)->in[1];
    p.value = weights_root(m, w, p.stride); /* of the same constant and the same order: the same */
    k->form.prepared = prepared_find(m, &p);
    if (k->form.prepared)
        return true;
    struct storage *s = NEW(m->arena, struct storage);
    *s = (struct storage){
        .place = PLACE_WEIGHTS, .buffer = m->weights.n, .size = ex_const(m->ctx->exprs, (int64_t)(p.bytes / 4))};
    p.weight = m->weights.n;
    k->form.prepared = prepared_add(m, &p);
    VEC_PUSH(m->arena, &m->weights, ((struct weight){.value = w, .storage = s, .winograd = k->form.winograd}));
    return true;
}

/* As emit_winograd_weights adds up: sum of c[i] * v[i], without what is 0. */
static double scaled_sum(const double *c, const double *v)
{
    double sum = 0;
    bool any = false;
    for (int i = 0; i < 3; i++) {
        if (c[i] == 0)
            continue;
        sum = any ? fma(v[i], c[i], sum) : v[i] * c[i];
        any = true;
    }
    return sum;
}

void winograd_transform(const struct winograd_form *f, const float taps[9], uint32_t first, uint32_t n, float *out,
                        size_t stride)
{
    double row[3];
    for (uint32_t p = first; p < first + n; p++) {
        if (p == first || p % f->alpha == 0)
            for (int c = 0; c < 3; c++)
                row[c] = scaled_sum(f->g[p / f->alpha], (double[3]){taps[c], taps[3 + c], taps[6 + c]});
        out[(p - first) * stride] = (float)scaled_sum(f->g[p % f->alpha], row);
    }
}

/* Which convolutions pass all taps of a row in one step (emit/row_taps.c), and what that costs. For those of few output
 * channels: in 27 of the 554 networks of ../shared/models that compile, and in 2 of the 14 of `make bench`.
 */
#include "passes/schedule/schedule.h"

enum { LEAST_TAPS = 2, MOST_APART = 64 };

struct row_taps row_taps_of(const struct module *m, const struct node *n)
{
    struct row_taps none = {.dim = -1}, r = {0};
    uint32_t c;
    if (n->op != OP_CONV || node_int(n, "groups", 1) != 1 || dot_group(m, n) > 1 || conv_pixel_lanes(m, n))
        return none;
    const struct type *w = value_type(m->g, n->in[1]);
    r.dim = w->rank - 3; /* among the spatial dims */
    if (w->rank < 3 || elem_size(register_elem(value_type(m->g, n->out[0])->elem)) > 4 ||
        node_ints(n, "xdil", &c)[r.dim] != 1 || !ex_is_const(m->ctx->exprs, w->dims[w->rank - 1], &r.taps) ||
        r.taps < LEAST_TAPS || r.taps > ROW_TAPS_MOST || conv_bounded(m, n, r.dim))
        return none;
    r.stride = node_ints(n, "strides", &c)[r.dim];
    r.dilation = node_ints(n, "dilations", &c)[r.dim];
    return r.stride <= MOST_APART && r.dilation <= MOST_APART ? r : none;
}

/* Where the output channels are one vector. */
struct row_taps row_taps(const struct site *site, const struct node *n)
{
    struct row_taps r = row_taps_of(site->m, n);
    int64_t channels;
    if (r.dim >= 0 && (!ex_is_const(site->x, value_type(site->g, n->in[1])->dims[0], &channels) ||
                       channels > module_numerics(site->m, site->mach)->vector_bytes / 4))
        r.dim = -1;
    return r;
}

int64_t row_places(const struct row_taps *r, int64_t points)
{
    int64_t places = 0;
    for (int64_t p = 0; p < points; p++)
        for (int64_t t = 0; t < r->taps; t++) {
            bool seen = false; /* by a point before it, at a later tap */
            for (int64_t q = 0; q < p && !seen; q++) {
                int64_t ahead = (p - q) * r->stride + t * r->dilation;
                seen = ahead % r->dilation == 0 && ahead / r->dilation < r->taps;
            }
            places += !seen;
        }
    return places;
}

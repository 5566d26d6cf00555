/* The lanes of scans and scatters, along the dim where memory is contiguous. A scan is serial along its axis; a scatter
 * stores updates one after another, and only what an index names as a whole, rows of consecutive elements, may lie in
 * lanes.
 */
#include "passes/schedule/schedule.h"

bool lines_serve(const struct site *site, int32_t vec)
{
    const struct node *n = graph_node(site->g, site->k->anchor);
    const struct type *t = value_type(site->g, n->out[0]);
    if (vec < 0 || vec >= t->rank)
        return false;
    if (n->op == OP_CUMULATE)
        return vec != node_int(n, "axis", 0);
    const struct type *indices = value_type(site->g, n->in[1]);
    int64_t depth;
    return n->op == OP_SCATTER_ND && ex_is_const(site->x, indices->dims[indices->rank - 1], &depth) && vec >= depth;
}

void lines_choose(const struct site *site, struct schedule *out)
{
    value_id v = site->k->outs.data[0];
    const struct type *t = value_type(site->g, v);
    int32_t fast = value_fast_dim(site->m, v);
    out->lines = (struct lines_schedule){.vec = -1, .lanes = 1};
    if (site->k->anchor.i && lines_serve(site, fast)) {
        int64_t extent = extent_hint(site->x, t->dims[fast]);
        uint32_t one = machine_vector_lanes(site->mach, t->elem), lanes = LINE_REGISTERS * one;
        while (lanes > one && (extent + lanes - 1) / lanes * lanes > extent + extent / 8)
            lanes /= 2;
        while (lanes > 1 && (int64_t)lanes > extent)
            lanes /= 2;
        if (lanes > 1) {
            out->lines.vec = fast;
            out->lines.lanes = lanes;
        }
    }
}

int64_t lines_estimate(const struct site *site, const struct schedule *s)
{
    const struct node *n = graph_node(site->g, site->k->anchor);
    bool scan = s->kind == SCHEDULE_SCAN;
    int64_t steps = scan ? extent_hint(site->x, value_type(site->g, n->out[0])->dims[node_int(n, "axis", 0)]) : 1,
            each = scan ? RATE_SCAN_NS : RATE_SCATTER_NS;
    return steps * each;
}

int64_t halo_estimate(const struct site *site, uint32_t lanes)
{
    value_id v = site->k->outs.data[0];
    const struct storage *s = &site->m->storage[v.i];
    const struct type *t = value_type(site->g, v);
    int64_t inside = 1, whole = 1, stores, channels = extent_hint(site->x, t->dims[1]);
    for (int32_t d = 2; d < t->rank; d++) {
        int64_t n = extent_hint(site->x, t->dims[d]), more;
        if (!add_i64(s->halo[d], s->halo[s->rank + d], &more) || !add_i64(n, more, &more) ||
            !mul_i64(inside, n, &inside) || !mul_i64(whole, more, &whole))
            return RATE_INDEX_NS;
    }
    stores = whole - inside < INT32_MAX ? whole - inside : INT32_MAX;
    if (!s->dim[1].block) /* lane by lane */
        stores *= channels < lanes ? channels : lanes;
    return RATE_INDEX_NS + stores * RATE_MAP_LINE / RATE_CYCLES_PER_NS;
}

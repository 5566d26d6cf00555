/* Loop nests (struct nest_schedule): what is asked of them, and those of scans, scatters and halos. A scan is serial
 * along its axis, and its nest is over the lines along it. A scatter stores updates one after another, and only what an
 * index names as a whole, rows of consecutive elements, may lie in lanes.
 */
#include "passes/schedule/kinds.h"

bool nest_is_last(const struct nest_schedule *s, uint32_t at)
{
    for (uint32_t i = at + 1; i < s->n_loops; i++)
        if (s->loop[i] == s->loop[at])
            return false;
    return true;
}

uint32_t nest_lanes(const struct nest_schedule *s)
{
    uint32_t at = s->n_loops;
    while (at > 0 && s->loop[at - 1] != s->vec)
        at--;
    return at ? (uint32_t)s->step[at - 1] : 1;
}

uint32_t nest_packed(const struct nest_schedule *s)
{
    uint32_t n = s->n_loops;
    bool last = n >= 2 && s->loop[n - 1] == s->vec && s->loop[n - 2] != s->vec && s->step[n - 2] > 1;
    return last ? (uint32_t)s->step[n - 2] : 0;
}

uint32_t nest_transposed(const struct nest_schedule *s)
{
    uint32_t n = s->n_loops;
    return n >= 2 && s->loop[n - 2] == s->vec && s->loop[n - 1] != s->vec && s->step[n - 1] > 1
               ? (uint32_t)s->step[n - 1]
               : 0;
}

void nest_insert(struct nest_schedule *s, uint32_t at, int32_t dim, int64_t step)
{
    for (uint32_t i = s->n_loops++; i > at; i--) {
        s->loop[i] = s->loop[i - 1];
        s->step[i] = s->step[i - 1];
    }
    s->loop[at] = dim;
    s->step[at] = step;
}

void nest_add(struct nest_schedule *s, int32_t dim, int64_t step)
{
    nest_insert(s, s->n_loops, dim, step);
}

void nest_last(struct nest_schedule *s, int32_t dim)
{
    uint32_t at = 0;
    while (s->loop[at] != dim)
        at++;
    int64_t step = s->step[at];
    for (; at + 1 < s->n_loops; at++) {
        s->loop[at] = s->loop[at + 1];
        s->step[at] = s->step[at + 1];
    }
    s->loop[at] = dim;
    s->step[at] = step;
}

/* ---- scans, scatters, halos -------------------------------------------------------------------------------------- */

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

static bool lines_choose(const struct site *site, struct schedule *out)
{
    const struct node *n = graph_node(site->g, site->k->anchor);
    value_id v = site->k->outs.data[0];
    const struct type *t = value_type(site->g, v);
    int32_t fast = value_fast_dim(site->m, v);
    uint32_t lanes = 1;
    if (lines_serve(site, fast)) {
        int64_t extent = extent_hint(site->x, t->dims[fast]);
        uint32_t one = machine_vector_lanes(site->mach, t->elem);
        lanes = LINE_REGISTERS * one;
        while (lanes > one && (extent + lanes - 1) / lanes * lanes > extent + extent / 8)
            lanes /= 2;
        while (lanes > 1 && (int64_t)lanes > extent)
            lanes /= 2;
    }
    out->nest = (struct nest_schedule){.vec = lanes > 1 ? fast : -1};
    for (int32_t d = 0; d < t->rank; d++)
        if (out->kind == SCHEDULE_SCATTER || d != node_int(n, "axis", 0))
            nest_add(&out->nest, d, d == out->nest.vec ? lanes : 1);
    out->nest.parallel = out->kind == SCHEDULE_SCAN ? out->nest.n_loops : 0;
    return true;
}

static bool halo_choose(const struct site *site, struct schedule *out)
{
    out->nest = (struct nest_schedule){.vec = 1, .parallel = 2};
    nest_add(&out->nest, 0, 1);
    nest_add(&out->nest, 1, machine_vector_lanes(site->mach, value_type(site->g, site->k->outs.data[0])->elem));
    return true;
}

static int64_t lines_ns(const struct site *site, const struct schedule *s)
{
    const struct node *n = graph_node(site->g, site->k->anchor);
    bool scan = s->kind == SCHEDULE_SCAN;
    int64_t steps = scan ? extent_hint(site->x, value_type(site->g, n->out[0])->dims[node_int(n, "axis", 0)]) : 1,
            each = scan ? RATE_SCAN_NS : RATE_SCATTER_NS;
    return steps * each;
}

static int64_t halo_ns(const struct site *site, const struct nest_schedule *nest)
{
    value_id v = site->k->outs.data[0];
    const struct storage *s = &site->m->fused.storage[v.i];
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
        stores *= channels < nest_lanes(nest) ? channels : nest_lanes(nest);
    return RATE_INDEX_NS + stores * RATE_MAP_LINE / RATE_CYCLES_PER_NS;
}

/* ---- the kinds --------------------------------------------------------------------------------------------------- */

static void lines_facts(const struct site *site, const struct schedule *s, struct schedule_facts *f)
{
    f->ns = lines_ns(site, s);
}

static void halo_facts(const struct site *site, const struct schedule *s, struct schedule_facts *f)
{
    f->ns = halo_ns(site, &s->nest);
}

static bool is_scan(const struct kernel *k)
{
    return k->kind == KERNEL_SCAN;
}

static bool is_scatter(const struct kernel *k)
{
    return k->kind == KERNEL_SCATTER;
}

static bool is_halo(const struct kernel *k)
{
    return k->kind == KERNEL_HALO;
}

const struct kind scan_kind = {.owns = is_scan, .choose = lines_choose, .facts = lines_facts};
const struct kind scatter_kind = {.owns = is_scatter, .choose = lines_choose, .facts = lines_facts};
const struct kind halo_kind = {.owns = is_halo, .choose = halo_choose, .facts = halo_facts};

/* The rules of loop nests' fields (fields.def): of maps, scans, scatters and halos. */
#include "passes/schedule/fields.h"

static const struct type *domain(const struct check *c)
{
    return value_type(c->site->g, c->s->kind == SCHEDULE_MAP ? c->site->k->domain : c->site->k->outs.data[0]);
}

const char *rule_nest_vec(struct check *c)
{
    int32_t vec = c->s->nest.vec;
    switch (c->s->kind) {
    case SCHEDULE_MAP: return unless(vec < domain(c)->rank, "it is not a dim of the result; -1 is possible always");
    case SCHEDULE_HALO: return unless(vec == 1, "it is 1, the channels");
    default:
        return unless(vec == -1 || lines_serve(c->site, vec),
                      "it is not a dim of the result that may lie in lanes: -1 is possible always");
    }
}

/* The dims that the kind's nest is over, as bits. */
static uint32_t dims_of(const struct check *c)
{
    uint32_t all = (uint32_t)((1ull << domain(c)->rank) - 1);
    bool scan = c->s->kind == SCHEDULE_SCAN;
    return c->s->kind == SCHEDULE_HALO ? 3
           : scan                      ? all & ~(1u << node_int(graph_node(c->site->g, c->site->k->anchor), "axis", 0))
                                       : all;
}

const char *rule_nest_loops(struct check *c)
{
    const struct nest_schedule *s = &c->s->nest;
    uint32_t seen = 0;
    for (uint32_t i = 0; i < s->n_loops; i++)
        seen |= 1u << s->loop[i];
    return unless(seen == dims_of(c),
                  "loops are over the dims of the result, each of them: of a scan all but its axis, of "
                  "a halo 0 and 1");
}

/* Rows before the others. A scatter's updates have an order; zeros around images are the inner dims. */
const char *rule_nest_loop(struct check *c)
{
    const struct kernel *k = c->site->k;
    const struct nest_schedule *s = &c->s->nest;
    if (c->s->kind == SCHEDULE_SCATTER || c->s->kind == SCHEDULE_HALO)
        return unless(s->loop[c->item] == (int32_t)c->item, "loops are the dims in their order, each once");
    bool late = c->item && k->has_rows && (k->row_mask >> s->loop[c->item] & 1) &&
                !(k->row_mask >> s->loop[c->item - 1] & 1);
    return unless(c->s->kind != SCHEDULE_MAP || !late, "loops are the dims of the result, rows outermost");
}

/* The most elements of a lane that a contraction of the kernel takes at once. */
static uint32_t largest_group(const struct check *c)
{
    uint32_t most = 1;
    for (uint32_t i = 0; i < c->site->k->nodes.n; i++) {
        const struct node *n = graph_node(c->site->g, c->site->k->nodes.data[i]);
        uint32_t group = n->op == OP_DOT || n->op == OP_CONV ? dot_group(c->site->m, n) : 1;
        most = group > most ? group : most;
    }
    return most;
}

static const char *lanes_hold(const struct check *c, int64_t lanes)
{
    bool map = c->s->kind == SCHEDULE_MAP, halo = c->s->kind == SCHEDULE_HALO;
    uint32_t bytes = elem_size(register_elem(domain(c)->elem)), n = (uint32_t)lanes;
    if (halo)
        return unless(is_power(n) && n > 1 && n <= CHANNEL_BLOCK, "lanes are a power of two, 2 to 16");
    return unless(is_vector(c, n, bytes, map ? MAP_REGISTERS : LINE_REGISTERS) &&
                      lanes * (map ? largest_group(c) : 1) <= LOOP_LANES_MAX,
                  map ? "lanes are a power of two, 2 at least, at most four registers of them; 128 elements that a "
                        "product takes at once"
                      : "lanes are a power of two, 2 at least, at most eight registers of them");
}

/* Two dims in a vector. */
static const char *tile_holds(const struct check *c)
{
    const struct nest_schedule *s = &c->s->nest;
    uint32_t n = s->n_loops;
    if (nest_packed(s))
        return unless(packed_serves(c->site, s),
                      "a vector holds points of the last loop but one, a power of two of them, where each has 2 to 4 "
                      "that lie together, which the last loop takes; here 1");
    int64_t lanes = s->step[n - 2], columns = s->step[n - 1];
    return unless(
        lanes <= TRANSPOSE_LANES_MOST && is_power((uint32_t)lanes) && is_power((uint32_t)columns) && lanes >= columns &&
            !c->site->k->has_rows && transpose_serves(c->site, s->vec, s->loop[n - 1], lanes, columns),
        "no operand can be transposed in such tiles: lanes are a power of two, at most 32, points of the last "
        "loop as many at most, and such elements of the operand fill 16 bytes");
}

const char *rule_nest_step(struct check *c)
{
    const struct nest_schedule *s = &c->s->nest;
    uint32_t at = c->item;
    int64_t around = 0;
    for (uint32_t i = 0; i < at; i++)
        around = s->loop[i] == s->loop[at] ? s->step[i] : around;
    if (around % s->step[at])
        return "it divides the step of the loop of its dim around it";
    if (!nest_is_last(s, at))
        return NULL;
    if (at + 2 >= s->n_loops && (nest_packed(s) || nest_transposed(s)))
        return c->s->kind == SCHEDULE_MAP ? tile_holds(c) : "it is 1 in loops that are not over lanes.dim";
    return s->loop[at] == s->vec ? lanes_hold(c, s->step[at])
                                 : unless(s->step[at] == 1, "it is 1 in the last loop of a dim that is not lanes.dim");
}

const char *rule_nest_parallel(struct check *c)
{
    const struct nest_schedule *s = &c->s->nest;
    uint32_t seen = 0, twice = 0, most = s->n_loops - (nest_packed(s) || nest_transposed(s) ? 2 : 0);
    for (uint32_t i = 0; i < s->parallel && i < s->n_loops; i++) {
        twice |= seen & 1u << s->loop[i];
        seen |= 1u << s->loop[i];
    }
    if (c->s->kind == SCHEDULE_SCATTER)
        return unless(!s->parallel, "updates have an order: it is 0");
    if (c->s->kind == SCHEDULE_HALO)
        return unless(s->parallel == 2, "it is 2");
    return unless(s->parallel <= most && !twice,
                  "more parallel loops than there are, one for each dim at most; packed or transposed points need two "
                  "inside");
}

RULE(nest_peel, peels_serve(c->site, &c->s->nest),
     "peeled segments begin at points of the lanes' dim, ascending, whose loop is the last one and not parallel");

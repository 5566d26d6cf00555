/* The rules of maps' fields (fields.def). */
#include "passes/schedule/fields.h"

static const struct type *domain(const struct check *c)
{
    return value_type(c->site->g, c->site->k->domain);
}

const char *rule_map_vec(struct check *c)
{
    return unless(c->s->map.vec < domain(c)->rank, "it is no dim of the result; -1 is possible always");
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

const char *rule_map_lanes(struct check *c)
{
    const struct map_schedule *s = &c->s->map;
    if (s->vec < 0)
        return unless(s->lanes == 1, "it is 1 where lanes.dim is -1");
    return unless(is_vector(c, s->lanes, elem_size(register_elem(domain(c)->elem)), 4) &&
                      s->lanes * largest_group(c) <= LOOP_LANES_MAX,
                  "lanes are a power of two, 2 at least, at most four registers of them; 128 elements that a product "
                  "takes at once");
}

/* Each dim once, rows before the others. */
const char *rule_map_loop(struct check *c)
{
    const struct kernel *k = c->site->k;
    const struct map_schedule *s = &c->s->map;
    uint32_t seen = 0, rows = k->has_rows ? (uint32_t)__builtin_popcount(k->row_mask) : 0;
    for (uint32_t i = 0; i < c->item; i++)
        seen |= 1u << s->loop[i];
    int32_t dim = s->loop[c->item];
    return unless(dim < (int32_t)s->n_loops && !(seen >> dim & 1) &&
                      (!k->has_rows || (k->row_mask >> dim & 1) == (c->item < rows)),
                  "loops are the dims of the result, each once, rows outermost");
}

const char *rule_map_peel(struct check *c)
{
    return unless(cuts_serve(c->site, &c->s->map),
                  "cuts are points of the lanes' dim, ascending, whose loop is the last one and not parallel");
}

const char *rule_map_parallel(struct check *c)
{
    const struct map_schedule *s = &c->s->map;
    return unless(s->parallel <= s->n_loops && (!s->transpose.columns || s->parallel < s->n_loops),
                  "more parallel loops than there are; transposed tiles need one inside");
}

const char *rule_map_split(struct check *c)
{
    return unless(!c->s->map.split || map_split_serves(c->site, &c->s->map),
                  "it is of a last parallel loop of known extent, where nothing is turned; here 0");
}

const char *rule_map_remainder(struct check *c)
{
    return unless(!c->s->map.remainder || tail_serves(c->site, &c->s->map),
                  "it is of a vector that is not full, in a parallel loop or around others; here 0");
}

const char *rule_map_packed(struct check *c)
{
    return unless(!c->s->map.packed || packed_serves(c->site, &c->s->map),
                  "a vector holds points of the last loop but one, a power of two of them, where each has 2 to 4 that "
                  "lie together; here 0");
}

/* ---- tiles ----------------------------------------------------------------------------------------------------- */

const char *rule_transpose_columns(struct check *c)
{
    const struct map_schedule *s = &c->s->map;
    uint32_t columns = s->transpose.columns;
    return unless(
        !columns || (columns > 1 && is_power(columns) && s->n_loops >= 2 && s->vec >= 0 &&
                     s->loop[s->n_loops - 2] == s->vec && !c->site->k->has_rows),
        "no operand can be transposed in such tiles: 0, or 2, 4, 8 or 16 where lanes.dim is the last loop but "
        "one");
}

const char *rule_transpose_lanes(struct check *c)
{
    const struct map_schedule *s = &c->s->map;
    return unless(
        !s->transpose.columns || (is_power(s->transpose.lanes) && s->transpose.lanes >= s->transpose.columns &&
                                  transpose_serves(c->site, s->vec, s->loop[s->n_loops - 1], &s->transpose)),
        "no operand can be transposed in such tiles: transpose.lanes are a power of two, transpose.columns at least, and "
        "transpose.columns elements of the operand fill 16 bytes");
}

const char *rule_transpose_tiles(struct check *c)
{
    return unless(!c->s->map.transpose.columns || c->s->map.transpose.tiles,
                  "it is at least 1 where something is turned");
}

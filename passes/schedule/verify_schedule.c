/* Is a record possible for this kernel on this CPU?
 *
 * Its kind is one of schedule_kinds, and Winograd's m that of the weights where the file has only those; every field is
 * within its bounds; and the rules of the fields hold, one after another (fields.def). Rules ask what follows from the
 * kernel, its layouts and the CPU, and never run the cost model, so a record stays possible when that changes. Here are
 * the driver and the rules of reductions; the others are in verify_nest.c, verify_tiled.c and verify_deep.c.
 */
#include "passes/schedule/kinds.h"

bool is_vector(const struct check *c, uint32_t lanes, uint32_t bytes, uint32_t registers)
{
    return is_power(lanes) && lanes > 1 && lanes * bytes <= registers * c->site->mach->vector_bytes;
}

const char *rule_any(struct check *c)
{
    (void)c;
    return NULL;
}

/* ---- reductions -------------------------------------------------------------------------------------------------- */

static const struct reduce_schedule *reduction(const struct check *c)
{
    return &c->s->reduce[c->item];
}

static const struct node *reduced_node(const struct check *c)
{
    return graph_node(c->site->g, c->reductions[c->item]);
}

const char *rule_reduce_lanes(struct check *c)
{
    const struct node *n = reduced_node(c);
    uint32_t lanes = reduction(c)->lanes, bytes = elem_size(reduce_elem(c->site->g, n));
    if (!reduce_horizontal(c->site->m, n))
        return unless(!lanes, "memory is not contiguous along the innermost reduced dim; here 0");
    return unless(!lanes || is_vector(c, lanes, bytes, 4),
                  "lanes are 0, or a power of two, at most four registers of them");
}

const char *rule_reduce_sums(struct check *c)
{
    if (!reduction(c)->lanes)
        return unless(reduction(c)->sums == 1, "it is 1 where the reduction has no lanes");
    return unless(is_power(reduction(c)->sums), "1, 2, 4 and 8 are possible");
}

RULE(reduce_row, !reduction(c)->row || row_taps(c->site, reduced_node(c)).dim >= 0,
     "the taps of a row do not share what they read; here 0");
RULE(reduce_prefetch, !reduction(c)->prefetch || reduce_is_apart(c->site, reduced_node(c)),
     "there are no blocks of input channels an image apart; here 0");
RULE(reduce_by_lane, !reduction(c)->by_lane || tile_by_lane(c->site, reduced_node(c)),
     "this CPU's multiply-adds take no lanes here, or there are too few steps; here 0");
RULE(reduce_matrix, !reduction(c)->matrix || (reduction(c)->by_lane && tile_matrix(c->site, reduced_node(c))),
     "this CPU multiplies no rows by columns here, the panels lie otherwise, or by_lane is 0; here 0");
RULE(reduce_scaled,
     !reduction(c)->scaled || block_factor(c->site, reduced_node(c), &(struct block_factor){.factor = 0}),
     "no factor of the second operand is the same for a block; here 0");

const char *rule_reduce_halves(struct check *c)
{
    bool may = c->s->kind == SCHEDULE_TILED && c->reductions[c->item].i == c->site->k->anchor.i &&
               !reduction(c)->scaled;
    return unless(!reduction(c)->halves || (may && reduction(c)->halves <= tile_halves(c->site, reduced_node(c))),
                  "only a product that f16-sums allows is summed so, on a CPU with FP16 arithmetic; here 0");
}

const char *rule_producer_lanes(struct check *c)
{
    uint32_t lanes = c->s->producer[c->item].lanes;
    value_id v = producer_value(c->site->k, c->item);
    if (c->item >= c->site->k->locals.n)
        return unless(is_power(lanes) && lanes <= CHANNEL_BLOCK, "lanes are 2, 4, 8 or 16: a part of a block");
    return unless(is_vector(c, lanes, elem_size(register_elem(value_type(c->site->g, v)->elem)), 4),
                  "lanes are a power of two, at most four registers of them");
}

/* ---- versions ---------------------------------------------------------------------------------------------------- */

const char *rule_version_size(struct check *c)
{
    const struct version_schedule *v = &c->s->version;
    if (v->size && c->site->m->whole)
        return "this is the record of a version, which has none; here 0";
    return unless(!v->size || version_range(c->site->x, v).size.i, "the network has fewer sizes that runs may choose");
}

const char *rule_version_most(struct check *c)
{
    const struct version_schedule *v = &c->s->version;
    struct size_range r = version_range(c->site->x, v);
    if (!v->size)
        return unless(!v->least && !v->most, "without version.size, here 0, and version.least is 0");
    return unless(version_serves(c->site, &r),
                  "version.least is 1 or more and no more than that, the size is one of the kernel's, and takes all "
                  "values between");
}

/* ---- all of a record --------------------------------------------------------------------------------------------- */

/* The first item of the field that is impossible is said; with: by its rule, else by its bounds. */
static bool field_holds(struct check *c, const struct field *f, bool with, struct strbuf *why)
{
    struct arena *a = c->site->m->arena;
    for (c->item = 0; c->item < field_count(f, c->s); c->item++) {
        int64_t value = field_get(f, c->s, c->item);
        const char *text = with ? f->rule(c) : field_bounds(f, c->item, value, a);
        if (!text)
            continue;
        if (with)
            strbuf_printf(why, "%s is %lld: %s", field_name(f, c->item, a), (long long)value, text);
        else
            strbuf_printf(why, "%s%s", why->n ? "; " : "", text);
        return false;
    }
    return true;
}

bool schedule_verify(const struct site *site, const struct schedule *s, struct strbuf *why)
{
    node_id *reductions = NEW_ARRAY(site->arena, node_id, s->n_reduce + 1);
    const struct kind *kind = kind_of(s->kind);
    struct check c = {.site = site, .s = s, .reductions = reductions};
    if (!(schedule_kinds(site) >> s->kind & 1)) {
        strbuf_printf(why, "the kernel cannot be of that kind");
        return false;
    }
    for (uint32_t i = 0; i < schedule_field_count; i++)
        if (field_is_of(&schedule_fields[i], s->kind))
            field_holds(&c, &schedule_fields[i], false, why);
    if (why->n)
        return false;
    kernel_reductions(site, s->kind, reductions);
    if (kind->check && !kind->check(&c, why))
        return false;
    for (uint32_t i = 0; i < schedule_field_count && !why->n; i++)
        if (field_is_of(&schedule_fields[i], s->kind))
            field_holds(&c, &schedule_fields[i], true, why);
    return !why->n;
}

/* The rules of the fields of Winograd's and attention's records (fields.def). */
#include "passes/module/choices.h"
#include "passes/schedule/fields.h"

/* ---- Winograd ---------------------------------------------------------------------------------------------------- */

const char *rule_winograd_vectors(struct check *c)
{
    const struct winograd_schedule *s = &c->s->winograd;
    return unless(winograd_registers(s->mr, s->nr, s->by_lane) <= (int64_t)c->site->mach->registers,
                  "the tile does not fit the registers: take fewer vectors or tile.tiles");
}

/* V and M of a chunk: at most 16 MiB each, unless the chunk is two register tiles of very many channels. */
const char *rule_winograd_chunk(struct check *c)
{
    const struct winograd_schedule *s = &c->s->winograd;
    const struct winograd_shape *w = &c->winograd;
    int64_t v, m;
    if (s->chunk % s->mr != 0)
        return "a group of tiles has whole register tiles: chunk is a multiple of tile.tiles";
    bool small = mul_i64(s->chunk, w->points * w->icv * w->lanes * 4, &v) &&
                 mul_i64(s->chunk, w->points * s->nr * w->lanes * 4, &m) && v <= CHUNK_BYTES_MOST &&
                 m <= CHUNK_BYTES_MOST;
    return unless(small || s->chunk <= 2 * s->mr, "so many tiles take more scratch than 16 MiB a thread: take fewer");
}

const char *rule_winograd_group(struct check *c)
{
    const struct winograd_schedule *s = &c->s->winograd;
    return s->group >= s->nr && c->winograd.ocv % s->group == 0
               ? NULL
               : arena_printf(c->site->m->arena,
                              "it is not a part of the %lld vectors of output channels, or less than tile.vectors",
                              (long long)c->winograd.ocv);
}

/* Where the channels fill no whole vectors they are one slice, however large U of it is. */
const char *rule_winograd_slice(struct check *c)
{
    const struct winograd_schedule *s = &c->s->winograd;
    const struct winograd_shape *w = &c->winograd;
    bool uneven = w->ic % w->lanes != 0, whole = s->resident || uneven;
    if (s->slice > w->icv || w->icv % s->slice != 0 || (whole && s->slice != w->icv))
        return arena_printf(c->site->m->arena, "it is not a part of the %lld vectors of input channels%s",
                            (long long)w->icv, whole ? ", which come all at once here" : "");
    return unless(winograd_held(s, w) <= CHUNK_BYTES_MOST / 4 || (uneven && !s->resident),
                  "U of so many channels takes more scratch than 16 MiB a thread: take a smaller slice, not resident");
}

const char *rule_winograd_early(struct check *c)
{
    const struct winograd_schedule *s = &c->s->winograd;
    bool computed = winograd_computes(c->site->m, graph_node(c->site->g, c->site->k->anchor)->in[1]);
    return unless(!s->early || !(s->resident || computed),
                  "U is not derived by slices, or of weights that the kernel computes; here 0");
}

RULE(winograd_by_lane, !c->s->winograd.by_lane || winograd_by_lane(c->site->mach),
     "this CPU's multiply-adds take no lanes; here 0");

/* ---- attention --------------------------------------------------------------------------------------------------- */

static bool points_fit(const struct check *c, int64_t points, int64_t vectors)
{
    return points * vectors <= TILE_POINTS_MOST && points * vectors + vectors + 1 <= (int64_t)c->site->mach->registers;
}

RULE(attention_lanes, c->s->attention.lanes == machine_lanes(c->site->mach, ELEM_F32), "lanes follow from the CPU");

const char *rule_attention_rows(struct check *c)
{
    const struct attention_schedule *s = &c->s->attention;
    int64_t rows;
    return unless(s->nv == 1 || !ex_is_const(c->site->x, c->attention.rows, &rows) ||
                      s->nv <= (rows + s->lanes - 1) / s->lanes,
                  "more vectors of rows than there are");
}

RULE(attention_scores, points_fit(c, c->s->attention.mr, c->s->attention.nv),
     "a tile of so many keys by vectors of rows does not fit the registers: take fewer");
RULE(attention_few, !c->s->attention.few || attention_few_possible(c->site, &c->attention, &c->s->attention),
     "a power of 2 below the lanes, for one vector of rows, keys in spans, and keys that lie along their row, in whole "
     "vectors; else 0");
RULE(attention_few_keys,
     !c->s->attention.few ||
         (c->s->attention.few_keys >= 1 && points_fit(c, c->s->attention.few_keys, c->s->attention.few)),
     "a tile of so many keys by few rows does not fit the registers: take fewer");
RULE(attention_values, points_fit(c, c->s->attention.pr, c->s->attention.pc),
     "a tile of values.rows by so many vectors does not fit the registers: take fewer");

const char *rule_attention_span(struct check *c)
{
    const struct attention_schedule *s = &c->s->attention;
    int64_t keys = s->span, bytes;
    if (!keys && !ex_is_const(c->site->x, c->attention.keys, &keys))
        return "keys whose number is open come in spans: it is at least 1";
    int64_t line = attention_line(s), wide = attention_wide_line(&c->attention, s);
    return unless(mul_i64(keys, (line > wide ? line : wide) * 4, &bytes) && bytes <= CHUNK_BYTES_MOST,
                  "so many keys take more scratch than 16 MiB a thread: take fewer");
}

RULE(attention_reach, !c->s->attention.reach || (c->s->attention.span && attention_reach(c->site, &c->attention)),
     "it is of keys in spans whose masks are bounds; here 0");
RULE(attention_parts, !c->s->attention.parts || c->s->attention.span, "parts are of keys in spans; 0 where span is 0");
RULE(attention_part, !c->s->attention.parts || c->s->attention.part >= 1, "it is at least 1 where there are parts");

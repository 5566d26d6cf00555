/* Is a record possible for this kernel on this CPU?
 *
 *  0. its kind is one of schedule_kinds, and Winograd's m that of the weights where the file has only those
 *  1. dims, lanes and what is staged are those of the kernel: layouts decided them
 *  2. every number of points, vectors, tiles is at least 1, and within the extent where that is known
 *  3. a register tile and what it is multiplied with fit the registers, that of a staged contraction too
 *  4. a dim of open extent has one vector
 *  5. scratch of a parallel index is at most 16 MiB
 *  6. a block of the reduced dim has whole units and is less than the dim; the dim may be cut, and nothing is staged
 *  7. a chunk has whole register tiles; groups and slices divide the vectors of channels; U is resident in one slice
 *  8. keys come in spans where their number is open
 *  9. loops of a map are its dims, rows outermost; the parallel ones leave the squares inside; vectors are of a power
 * of two, of at most four registers
 * 10. squares fill 16 bytes along their columns with elements of some operand that lies so, and fit the dims
 * 11. vectors begin anew at points of a dim of known extent whose loop is the innermost, not parallel, without squares
 * 12. lanes of a scan or a scatter lie along a dim of whole slices, not the one that it is serial in
 * 13. vectors along a reduced dim are of a power of two, their partial results 1 to 8; taps of a row go together where
 * they can
 * 14. vectors hold points of the last loop but one where the last one has 2 to 4 that lie together
 * 15. the vector that is not full has code of its own where there is one, in a loop around others or a parallel one
 * 16. parts are of a contraction's or reduction's tiles that nothing staged or summed up beside them binds together
 */
#include "passes/schedule/schedule.h"
#include "passes/module/choices.h"
#include "passes/schedule/winograd.h"

struct check {
    const struct site *site;
    struct strbuf *why;
};

static void say(const struct check *c, bool ok, const char *text)
{
    if (!ok)
        strbuf_printf(c->why, "%s%s", c->why->n ? "; " : "", text);
}

static bool is_power(uint32_t n)
{
    return n && !(n & (n - 1));
}

static bool within(const struct check *c, const struct type *t, int32_t d, int64_t n)
{
    int64_t extent;
    return n >= 1 && (d < 0 ? n == 1 : !ex_is_const(c->site->x, t->dims[d], &extent) || n <= (extent > 1 ? extent : 1));
}

static void blocked(const struct check *c, const struct node *n, const struct type *t, struct tile_schedule *s)
{
    struct cut cut;
    s->blocks = 0;
    if (!s->block)
        return;
    int64_t sums;
    bool may = !s->chunk && s->vec >= 0 && reduced_cut(c->site, n, &cut);
    for (int32_t d = 0; may && d < t->rank; d++)
        may = d == s->vec || ex_is_const(c->site->x, t->dims[d], &sums);
    say(c, may, "this contraction's sums can't be cut into blocks");
    if (!may)
        return;
    say(c, s->block > 0 && s->block < cut.extent && s->block % cut.unit == 0,
        "reduce.block is no part of the reduced dim in whole units");
    sums = tile_block_points(c->site->x, n, t, s) * s->nr * s->lanes * 4;
    say(c, sums <= CHUNK_BYTES_MOST, "the sums between two blocks take more than 16 MiB");
    s->cut = cut;
    s->blocks = s->block > 0 ? (cut.extent + s->block - 1) / s->block : 0;
    s->lines_last = true;
}

/* was: what the cost model says. */
static void tiled(const struct check *c, const struct tile_schedule *was, struct tile_schedule *s)
{
    const struct node *n = graph_node(c->site->g, c->site->k->anchor);
    const struct type *t = value_type(c->site->g, n->out[0]);
    int64_t columns = 1, rows = 1, width = 1;
    say(c, s->vec == was->vec && s->a == was->a && s->b == was->b && s->lanes == was->lanes && s->flat == was->flat,
        "lanes.dim, lanes, tile.a, tile.b and tile.flat follow from the layout");
    if (c->why->n)
        return;
    bool inside = s->flat ? s->ta >= 1 && s->tb == 1 : within(c, t, s->a, s->ta) && within(c, t, s->b, s->tb);
    if (s->flat && ex_is_const(c->site->x, t->dims[s->a], &columns) && ex_is_const(c->site->x, t->dims[s->b], &rows))
        inside &= s->ta <= rows * columns;
    bool open = s->vec < 0 || !ex_is_const(c->site->x, t->dims[s->vec], &width);
    say(c, inside, "the tile is larger than the result");
    say(c, s->nr >= 1 && (open ? s->nr == 1 : s->nr <= (width + s->lanes - 1) / s->lanes || s->nr == 1),
        "more vectors than the result has");
    if (c->why->n)
        return;
    say(c, tile_fits(c->site, n, s), "the tile does not fit the registers");
    say(c, s->windows == was->windows && s->by_piece == was->by_piece && !s->chunk == !was->chunk,
        "what is staged follows from the kernel");
    say(c, s->decode >= 0 && (!s->decode || decode_bytes(c->site, s)),
        "decode.above is of a product whose second operand is computed, and takes at most 16 MiB a thread");
    bool panels = (n->op == OP_DOT || n->op == OP_CONV) && c->site->m->storage[n->in[1].i].place != PLACE_NONE;
    say(c, s->near >= 0 && s->early >= 0, "prefetch distances are not negative");
    say(c, panels || (!s->near && !s->early), "prefetch.near and prefetch.early are of a stored second operand");
    say(c, !s->next || next_serves(c->site, n, s),
        "prefetch.next is of a product by a constant, of whose panels a step reads whole lines");
    say(c, s->weave >= 1 && s->weave <= 32, "weave is 1 to 32");
    say(c, s->weave_least >= 1, "weave.least is at least 1");
    say(c,
        !s->chunk ? s->stage_lanes == was->stage_lanes && !s->stage_ahead
                  : is_power(s->stage_lanes) && s->stage_lanes > 1 && s->stage_lanes <= CHANNEL_BLOCK &&
                        (!s->stage_ahead || s->flat),
        "staged.lanes and prefetch.staged are of a staged operand");
    say(c,
        !s->stage_columns == !was->stage_columns &&
            (!s->stage_columns || stage_columns_fit(c->site, s->stage_columns, s->nr)),
        "staged.columns are points of a row of a staged contraction that the registers hold");
    uint32_t piece = s->nr * s->lanes;
    say(c, !s->by_piece || (piece <= CHANNEL_BLOCK && (CHANNEL_BLOCK % piece == 0 || piece >= width)),
        "a staged piece is no part of a block of channels");
    say(c, !s->windows || c->site->k->outs.n == 1 || s->tb == 1, "rows that are summed up come one by one");
    if (c->why->n)
        return;
    if (s->chunk) {
        say(c, !s->windows || (ex_is_const(c->site->x, t->dims[s->b], &rows) && rows % s->tb == 0),
            "tile.rows is no part of the rows");
        say(c, stage_bytes(c->site, s) <= CHUNK_BYTES_MOST, "so many tiles take more scratch than 16 MiB a thread");
    }
    if (!was->block && s->block != 0)
        say(c, !s->windows, "a staged operand and blocks of sums exclude one another");
    blocked(c, n, t, s);
    say(c, s->split == 0 || (s->split > 0 && tile_split_serves(c->site, s)),
        "the tiles of this kernel can't be cut into parts");
}

static void winograd(const struct check *c, const struct winograd_schedule *was, const struct winograd_schedule *s)
{
    struct winograd_shape w;
    winograd_shape(c->site, s->m, &w);
    say(c, s->lanes == was->lanes, "lanes follow from the CPU");
    say(c, !s->by_lane || winograd_by_lane(c->site->mach), "by_lane: this CPU's multiply-adds take no lanes");
    say(c,
        s->mr >= 1 && s->nr >= 1 && s->mr <= 64 && s->nr <= 64 &&
            winograd_registers(s->mr, s->nr, s->by_lane) <= (int64_t)c->site->mach->registers,
        "the tile does not fit the registers");
    if (c->why->n)
        return;
    say(c, s->chunk >= s->mr && s->chunk % s->mr == 0, "a chunk has whole register tiles");
    say(c, s->group >= s->nr && s->group <= w.ocv && w.ocv % s->group == 0,
        "group is no part of the vectors of output channels");
    say(c, s->span >= 1, "span is at least 1");
    say(c, s->source == was->source || (s->source == WEIGHTS_BY_KERNEL && was->source == WEIGHTS_BY_OPEN),
        "weights are derived by the kernel, or come from where the constants were laid out for");
    bool whole = s->resident || s->source || w.ic % s->lanes != 0;
    say(c, s->slice >= 1 && s->slice <= w.icv && w.icv % s->slice == 0 && (!whole || s->slice == w.icv),
        "slice is no part of the vectors of input channels");
    say(c, !s->resident || !s->source, "U of this kernel is not derived by it");
    bool computed = winograd_computes(c->site->m, graph_node(c->site->g, c->site->k->anchor)->in[1]);
    say(c, s->early >= 0 && s->early <= (s->resident || s->source || computed ? 0 : 9),
        "prefetch.taps is 0 to 9, and 0 where U is not derived by slices, or of weights that the kernel computes");
    say(c,
        s->input_rows >= 1 && s->input_rows <= WINOGRAD_ALPHA_MAX && s->output_rows >= 1 &&
            s->output_rows <= WINOGRAD_ALPHA_MAX,
        "input.rows and output.rows are 1 to 8");
    say(c, s->near >= 0 && s->near <= 64, "prefetch.near is 0 to 64");
    int64_t v, m, held = winograd_held(s, w.points);
    say(c,
        mul_i64(s->chunk, w.points * w.icv * s->lanes * 4, &v) &&
            mul_i64(s->chunk, w.points * s->nr * s->lanes * 4, &m) && v <= CHUNK_BYTES_MOST && m <= CHUNK_BYTES_MOST &&
            (s->source || held <= CHUNK_BYTES_MOST / 4 || held <= winograd_held(was, w.points)),
        "so many tiles take more scratch than 16 MiB a thread");
}

static void attention(const struct check *c, const struct attention_schedule *was, const struct attention_schedule *s)
{
    struct attention_shape t;
    int64_t keys, rows;
    if (!attention_shape(c->site, &t))
        return;
    int64_t registers = c->site->mach->registers;
    say(c, s->lanes == was->lanes, "lanes follow from the CPU");
    say(c,
        s->nv >= 1 && s->mr >= 1 && s->nv <= ATTENTION_VECTORS && s->mr <= 32 && s->mr * s->nv <= 32 &&
            s->mr * s->nv + s->nv + 1 <= registers && s->pr >= 1 && s->pc >= 1 && s->pc <= ATTENTION_COLUMNS &&
            s->pr <= 32 && s->pr * s->pc <= 32 && s->pr * s->pc + s->pc + 1 <= registers,
        "a tile does not fit the registers");
    if (c->why->n)
        return;
    say(c, !ex_is_const(c->site->x, t.rows, &rows) || s->nv <= (rows + s->lanes - 1) / s->lanes,
        "more vectors of rows than there are");
    bool known = ex_is_const(c->site->x, t.keys, &keys);
    say(c, s->terms >= 1 && s->terms <= 4, "terms.vectors are 1 to 4");
    say(c, s->span > 0 || (known && s->span == 0), "keys whose number is open come in spans");
    say(c, !s->reach || (s->span && attention_reach(c->site, &t)), "reach is of keys in spans whose masks are bounds");
    say(c, s->parts >= 0 && s->parts <= ATTENTION_PARTS && (!s->parts || (s->span && s->part >= 1)),
        "parts are 0 to 16, of keys in spans, part.keys 1 at least");
    int64_t bytes;
    say(c,
        mul_i64(s->span ? s->span
                : known ? keys
                        : 1,
                attention_line(s) * 4, &bytes) &&
            bytes <= CHUNK_BYTES_MOST,
        "so many keys take more scratch than 16 MiB a thread");
}

/* Loops: each dim once, rows before the others. */
static bool is_order(const struct kernel *k, const struct map_schedule *s)
{
    uint32_t seen = 0, rows = k->has_rows ? (uint32_t)__builtin_popcount(k->row_mask) : 0;
    for (uint32_t i = 0; i < s->n_loops; i++) {
        if (s->loop[i] < 0 || s->loop[i] >= (int32_t)s->n_loops || (seen >> s->loop[i] & 1) ||
            (k->has_rows && (k->row_mask >> s->loop[i] & 1) != (i < rows)))
            return false;
        seen |= 1u << s->loop[i];
    }
    return true;
}

static void squares(const struct check *c, const struct map_schedule *s)
{
    const struct turn_schedule *w = &s->turn;
    if (!w->columns)
        return;
    bool sizes = s->n_loops >= 2 && s->vec >= 0 && s->loop[s->n_loops - 2] == s->vec && w->line >= 1 && w->line <= 64 &&
                 !c->site->k->has_rows && w->columns <= TURN_COLUMNS_MOST && w->lanes <= TURN_LANES_MOST &&
                 !(w->lanes & (w->lanes - 1)) && w->lanes >= w->columns &&
                 (w->columns == 2 || w->columns == 4 || w->columns == 8 || w->columns == 16);
    say(c, sizes && turn_serves(c->site, s->vec, s->loop[s->n_loops - 1], w),
        "no operand can be turned by such squares");
}

static void map(const struct check *c, const struct map_schedule *s)
{
    const struct kernel *k = c->site->k;
    const struct type *t = value_type(c->site->g, k->domain);
    uint32_t bytes = elem_size(register_elem(t->elem));
    say(c, is_order(k, s), "loops are the dims of the result, each once, rows outermost");
    say(c, s->vec >= -1 && s->vec < t->rank && (s->vec >= 0 || s->lanes == 1), "lanes.dim is no dim of the result");
    say(c,
        s->lanes >= 1 && !(s->lanes & (s->lanes - 1)) && (s->vec < 0 || s->lanes > 1) &&
            s->lanes * bytes <= 4 * c->site->mach->vector_bytes,
        "lanes are a power of two, at most four registers of them");
    say(c, s->parallel <= s->n_loops && (!s->turn.columns || s->parallel < s->n_loops),
        "more parallel loops than there are");
    if (!c->why->n && s->split)
        say(c, s->split > 0 && map_split_serves(c->site, s),
            "split is of a last parallel loop of known extent, where nothing is turned");
    say(c, cuts_serve(c->site, s),
        "cuts are points of the lanes' dim, ascending, whose loop is the last one and not parallel");
    if (!c->why->n)
        squares(c, s);
    say(c, !s->tail || tail_serves(c->site, s),
        "tail is of a vector that is not full, in a parallel loop or around others");
    say(c, !s->beside || beside_serves(c->site, s),
        "a vector holds points of the last loop but one where each has 2 to 4 that lie together");
}

static void lines(const struct check *c, const struct lines_schedule *s)
{
    uint32_t bytes = elem_size(register_elem(value_type(c->site->g, c->site->k->outs.data[0])->elem));
    say(c, s->vec == -1 ? s->lanes == 1 : lines_serve(c->site, s->vec),
        "lanes.dim is no dim of the result that may lie in lanes");
    say(c,
        s->lanes >= 1 && !(s->lanes & (s->lanes - 1)) && (s->vec < 0 || s->lanes > 1) &&
            s->lanes * bytes <= LINE_REGISTERS * c->site->mach->vector_bytes,
        "lanes are a power of two, at most eight registers of them");
}

static void reductions(const struct check *c, const struct schedule *was, const struct schedule *s)
{
    for (uint32_t i = 0; i < s->n_reduce; i++) {
        const struct reduce_schedule *r = &s->reduce[i], *w = &was->reduce[i];
        const struct node *n = graph_node(c->site->g, r->node);
        uint32_t bytes = elem_size(register_elem(value_type(c->site->g, n->out[0])->elem));
        say(c,
            r->lanes == w->lanes || (w->lanes && (!r->lanes || (is_power(r->lanes) && r->lanes > 1 &&
                                                                r->lanes * bytes <= 4 * c->site->mach->vector_bytes))),
            "reduce.lanes are a power of two, at most four registers of them, where memory is contiguous");
        say(c, is_power(r->sums) && r->sums <= SUMS_MOST && (r->sums == 1 || r->lanes), "reduce.sums are 1, 2, 4 or 8");
        say(c, r->unroll >= 1 && r->unroll <= 1024, "reduce.unroll is 1 to 1024");
        say(c, !r->row || w->row, "reduce.row: the taps of a row do not share what they read");
        say(c, !r->prefetch || w->prefetch, "reduce.prefetch: there are no blocks of input channels an image apart");
        say(c, !r->by_lane || w->by_lane,
            "reduce.by_lane: this CPU's multiply-adds take no lanes here, or there are too few steps");
        say(c, !r->matrix || (w->matrix && r->by_lane),
            "reduce.matrix: this CPU multiplies no rows by columns here, the panels lie otherwise, or not by_lane");
        say(c, r->halves == 0 || (w->halves && r->halves > 0 && r->halves <= w->halves && !r->scaled),
            "reduce.halves: at most 64 steps of a product that f16-sums allows, on a CPU with FP16 arithmetic");
        say(c, !r->scaled || block_factor(c->site, n, &(struct block_factor){.factor = 0}),
            "reduce.scaled: no factor of the second operand is the same for a block");
    }
    for (uint32_t i = 0; i < s->n_kept; i++)
        say(c, is_power(s->kept[i].lanes) && s->kept[i].lanes > 1 && s->kept[i].lanes <= was->kept[i].lanes * 4,
            "kept.lanes are a power of two");
}

static void halo(const struct check *c, uint32_t lanes)
{
    say(c, lanes >= 2 && lanes <= CHANNEL_BLOCK && !(lanes & (lanes - 1)), "lanes are a power of two, at most 16");
}

bool schedule_verify(const struct site *site, struct schedule *s, struct strbuf *why)
{
    struct check c = {site, why};
    struct schedule was = {.kind = s->kind, .winograd.m = s->winograd.m};
    say(&c, schedule_kinds(site) >> s->kind & 1, "the kernel cannot be of that kind");
    say(&c, s->kind != SCHEDULE_WINOGRAD || winograd_form(s->winograd.m), "winograd.m is 2, 4 or 6");
    say(&c,
        s->kind != SCHEDULE_WINOGRAD || s->winograd.m == site->k->form.winograd ||
            winograd_weights_from(site->m, site->k, site->k->form.winograd) != WEIGHTS_IN_FILE,
        "the file has the weights of another winograd.m");
    if (why->n || !schedule_choose(site, &was))
        return false;
    reductions(&c, &was, s);
    switch (s->kind) {
    case SCHEDULE_TILED: tiled(&c, &was.tile, &s->tile); break;
    case SCHEDULE_WINOGRAD: winograd(&c, &was.winograd, &s->winograd); break;
    case SCHEDULE_ATTENTION: attention(&c, &was.attention, &s->attention); break;
    case SCHEDULE_MAP: map(&c, &s->map); break;
    case SCHEDULE_SCAN:
    case SCHEDULE_SCATTER: lines(&c, &s->lines); break;
    case SCHEDULE_HALO: halo(&c, s->halo_lanes); break;
    default: break;
    }
    return !why->n;
}

/* The sizes of an attention kernel, by cost: the block of rows, the register tiles of both products, the span of
 * keys. */
#include "passes/module/attention_bounds.h"
#include "passes/schedule/kinds.h"

enum {
    MAX_MR = 14,
    POINTS_MOST = 32, /* sums of a register tile: half of what the emitter keeps track of */
    GUESS = 64, /* a dynamic extent, for costs */
    SPAN_OPEN = 128,
    SPAN_LEAST = 32, /* keys of a span: at most, so that few are computed for nothing; at least, to hide the scaling */
    EXP_REGISTERS = 16, /* that an exponential takes, constants included */
    STRICT_LINE = 48, /* of scores, where rows and lanes must not decide: three vectors of the widest CPU */
    FEW_KEYS = 1 << 20, /* more cost the same: long enough for any thread */
    FEW_LEAST = 4,
    FEW_KEYS_MOST = 4, /* of a tile: the adders are busy then */
    CODE = 24, /* of an attention, in sums of products, and of each point and vector of the scores' tiles */
    CODE_OF_POINT = 5
};

static int64_t extent_or_guess(const struct site *site, expr_id e, bool *known)
{
    int64_t n, most = ex_hi(site->x, e);
    *known = ex_is_const(site->x, e, &n);
    return *known ? n : most > 0 && most < GUESS ? most : GUESS;
}

static bool fits(const struct site *site, int64_t points, int64_t vectors)
{
    return points * vectors + vectors + 1 <= (int64_t)site->mach->registers && points * vectors <= POINTS_MOST;
}

/* Dynamic rows, and not those of the keys: a decoder with a cache, which mostly has one token. A
 * block of one vector computes least for nothing: half the time of two at one row, 1.05 times at 128. */
static bool decodes(const struct attention_shape *t, bool known_rows)
{
    return !known_rows && t->rows.i != t->keys.i;
}

/* Vectors of rows per block, evenly split, and keys per register tile: the least cost of all scores. */
static void choose_scores(const struct site *site, const struct attention_shape *t, struct attention_schedule *s)
{
    bool known_rows, known_keys;
    int64_t rows = extent_or_guess(site, t->rows, &known_rows), keys = extent_or_guess(site, t->keys, &known_keys),
            best = INT64_MAX;
    int64_t vectors = decodes(t, known_rows) ? 1 : (rows + s->lanes - 1) / s->lanes;
    const struct machine *m = site->mach;
    for (int64_t most = 1; most <= ATTENTION_VECTORS && most <= vectors; most++)
        for (int64_t mr = 1; mr <= MAX_MR && fits(site, mr, most); mr++) {
            struct even blocks = even_split(vectors, most);
            int64_t nv = blocks.small, large = blocks.large;
            int64_t cost = (blocks.tiles - large) * tile_line_cost(m, keys, known_keys, mr, nv, (uint64_t)t->size);
            if (large)
                cost += large * tile_line_cost(m, keys, known_keys, mr, nv + 1, (uint64_t)t->size);
            if (cost >= best)
                continue;
            best = cost;
            s->mr = mr;
            s->nv = nv + (large > 0);
        }
}

bool attention_few_possible(const struct site *site, const struct attention_shape *t,
                            const struct attention_schedule *s)
{
    const struct attention *a = site->k->form.attention;
    return s->nv == 1 && s->span && s->few >= 2 && s->few < s->lanes && !(s->few & (s->few - 1)) &&
           t->size % s->lanes == 0 && value_fast_dim(site->m, t->scores->in[1 - a->rows_of]) == t->of_key.contract;
}

/* The rows of one token are a multiple of some number: as many heads share keys. */
static void choose_few(const struct site *site, const struct attention_shape *t, struct attention_schedule *s)
{
    int64_t rows, heads = ex_divisor(site->x, t->rows);
    if (site->m->asked.strict || !s->span || !decodes(t, ex_is_const(site->x, t->rows, &rows)))
        return;
    s->few = FEW_LEAST;
    while (s->few < heads && s->few < ATTENTION_FEW)
        s->few *= 2;
    if (heads > s->few || 2 * s->few > s->lanes || !attention_few_possible(site, t, s))
        s->few = 0;
    while (s->few && s->few_keys < FEW_KEYS_MOST && fits(site, s->few_keys + 1, s->few))
        s->few_keys++;
}

/* A block of an open number of rows computes whole tiles, into scratch if keys come in spans. */
static void choose_values(const struct site *site, const struct attention_shape *t, struct attention_schedule *s)
{
    bool known, known_rows;
    int64_t keys = extent_or_guess(site, t->keys, &known), vectors = (t->columns + s->lanes - 1) / s->lanes,
            rows = s->nv * s->lanes, best = INT64_MAX;
    const struct machine *m = site->mach;
    extent_or_guess(site, t->rows, &known_rows);
    for (int64_t pc = 1; pc <= ATTENTION_COLUMNS && pc <= vectors; pc++)
        for (int64_t pr = 1; pr <= MAX_MR && fits(site, pr, pc); pr++) {
            int64_t rest = vectors % pc;
            if (s->span && !known_rows && rows % pr)
                continue;
            int64_t cost = vectors / pc * tile_line_cost(m, rows, true, pr, pc, (uint64_t)keys);
            if (rest)
                cost += tile_line_cost(m, rows, true, pr, rest, (uint64_t)keys);
            if (cost >= best)
                continue;
            best = cost;
            s->pr = pr;
            s->pc = pc;
        }
}

/* All keys at once where the scores of a block fill no more than a quarter of L2, and where no more are widened than
 * an open number; else spans of equal length that L1 holds. */
static void choose_span(const struct site *site, const struct attention_shape *t, struct attention_schedule *s)
{
    const struct machine *m = module_numerics(site->m, site->mach);
    int64_t keys, line = (site->m->asked.strict ? STRICT_LINE : attention_line(s)) * 4,
                  most = budget(m, SHARE_L1_SPAN) / line, limit = ex_hi(site->x, t->keys);
    bool known = ex_is_const(site->x, t->keys, &keys);
    bool widened = attention_wide_line(t, s) > 0;
    if (known && keys <= (widened ? SPAN_OPEN : budget(m, SHARE_L2_SCORES) / line))
        return;
    most = most < SPAN_LEAST ? SPAN_LEAST : most;
    s->span = SPAN_OPEN < most ? SPAN_OPEN : most;
    if (limit > 0 && limit < s->span)
        s->span = limit;
    if (known)
        s->span = (keys + (keys + s->span - 1) / s->span - 1) / ((keys + s->span - 1) / s->span);
}

/* Open keys, a cache's, are cut where rows and batches may leave threads without a block: not where rows grow with
 * them. */
static void choose_parts(const struct site *site, const struct attention_shape *t, struct attention_schedule *s)
{
    const struct type *y = value_type(site->g, t->values->out[0]);
    int64_t keys, blocks = (ex_lo(site->x, t->rows) + s->nv * s->lanes - 1) / (s->nv * s->lanes);
    if (!s->span || site->m->asked.strict || ex_is_const(site->x, t->keys, &keys) || t->rows.i == t->keys.i)
        return;
    for (uint32_t d = 0; d < t->of_p.n_batch; d++)
        if (ex_lo(site->x, y->dims[d]) > 1 && !mul_i64(blocks, ex_lo(site->x, y->dims[d]), &blocks))
            return;
    if (blocks > RATE_KEY_INDICES / 2)
        return;
    s->parts = RATE_KEY_INDICES;
    s->part = site->m->asked.always ? 1 : RATE_KEY_PART;
}

/* ns of a block of rows over that many keys. */
static int64_t block_ns(const struct site *site, const struct attention_shape *t, const struct attention_schedule *s,
                        int64_t keys)
{
    int64_t vectors = (keys < FEW_KEYS ? keys : FEW_KEYS) * s->nv;
    int64_t cycles = vectors * (t->size + t->columns) / site->mach->fma_per_cycle + vectors * RATE_EXP_CYCLES +
                     s->nv * s->lanes * t->size;
    return RATE_BLOCK_INDEX_NS + cycles / RATE_CYCLES_PER_NS;
}

static int64_t code_of(const struct site *site, const struct schedule *of)
{
    const struct attention_schedule *s = &of->attention;
    struct attention_shape t;
    bool known = true;
    int64_t keys = attention_shape(site, &t) ? extent_or_guess(site, t.keys, &known) : 1;
    return CODE + (known ? 0 : CODE_OF_POINT * s->nv * tile_line_points(keys, false, s->mr));
}

static int64_t whole_ns(const struct site *site, const struct size_at *at, const struct schedule *of)
{
    const struct attention_schedule *s = &of->attention;
    struct attention_shape t;
    bool known;
    if (!attention_shape(site, &t))
        return 0;
    const struct type *y = value_type(site->g, t.values->out[0]);
    int64_t rows = extent_or_guess(site, size_at(site->x, t.rows, at), &known), block = s->nv * s->lanes,
            whole = block_ns(site, &t, s, extent_or_guess(site, size_at(site->x, t.keys, at), &known));
    if (!mul_i64(whole, (rows + block - 1) / block, &whole))
        return 0;
    for (uint32_t d = 0; d < t.of_p.n_batch; d++)
        if (!mul_i64(whole, extent_hint(site->x, size_at(site->x, y->dims[d], at)), &whole))
            return 0;
    return whole;
}

static void facts(const struct site *site, const struct schedule *of, struct schedule_facts *f)
{
    const struct attention_schedule *s = &of->attention;
    struct attention_shape shape, *t = &shape;
    if (!attention_shape(site, &shape))
        return;
    const struct type *y = value_type(site->g, t->values->out[0]);
    bool known;
    int64_t keys = s->parts ? s->part : extent_or_guess(site, t->keys, &known),
            counted = extent_counted(site->m, t->keys);
    uint64_t points = 1;
    for (int32_t d = 0; d + 1 < y->rank; d++)
        points *= (uint64_t)extent_counted(site->m, y->dims[d]);
    f->flops = 2 * points * (uint64_t)counted * (uint64_t)(t->size + t->columns);
    f->ns = block_ns(site, t, s, keys);
}

/* Is an operand of f32 computed in the kernel from narrower elements (fuse: demand_keys)? */
static bool widens(const struct site *site, value_id v)
{
    const struct node *n = value_node(site->g, v);
    for (; n && !site->m->fused.stored[v.i] && op_shape(n->op) == SHAPE_VIEW; n = value_node(site->g, v))
        v = n->in[0];
    return n && op_shape(n->op) == SHAPE_MAP && !site->m->fused.stored[v.i] && !value_is_const(site->g, v);
}

bool attention_shape(const struct site *site, struct attention_shape *t)
{
    const struct attention *a = site->k->form.attention;
    *t = (struct attention_shape){.scores = graph_node(site->g, a->scores), .values = graph_node(site->g, a->values)};
    if (!attention_dims(site->g, t->scores, a->rows_of, &t->of_row) ||
        !attention_dims(site->g, t->scores, 1 - a->rows_of, &t->of_key) ||
        !attention_dims(site->g, t->values, 0, &t->of_p) || !attention_dims(site->g, t->values, 1, &t->of_v))
        return error_internal(site->m->ctx, t->values->src, "an attention's operands have changed");
    const struct type *p = value_type(site->g, t->values->in[0]);
    t->rows = p->dims[t->of_p.free];
    t->keys = p->dims[t->of_p.contract];
    ex_is_const(site->x, value_type(site->g, t->scores->in[a->rows_of])->dims[t->of_row.contract], &t->size);
    ex_is_const(site->x, value_type(site->g, t->values->in[1])->dims[t->of_v.free], &t->columns);
    t->widens_keys = widens(site, t->scores->in[1 - a->rows_of]);
    t->widens_values = widens(site, t->values->in[1]);
    return true;
}

static void no_bound(void *user, value_id v, const expr_id *idx, bool end, bool more, double low)
{
    (void)user, (void)v, (void)idx, (void)end, (void)more, (void)low;
}

bool attention_reach(const struct site *site, const struct attention_shape *t)
{
    const struct attention *a = site->k->form.attention;
    struct exprs *x = site->x;
    expr_id idx[RANK_MAX], side[2];
    for (uint32_t i = 0; i < 2; i++)
        side[i] = ex_sym(x, sym_new(x, SYM_LOOP, arena_printf(site->arena, "w%u", sym_count(x)), 0, INT64_MAX));
    for (uint32_t i = 0; i < t->of_p.n_batch; i++)
        idx[t->of_p.batch[i]] = ex_const(x, 0);
    idx[t->of_p.free] = side[0];
    idx[t->of_p.contract] = side[1];
    attention_walk(site->g, &a->to_z, idx);
    return attention_bounds(site->m, a, idx, side[1], no_bound, NULL) > 0;
}

static bool choose(const struct site *site, struct schedule *out)
{
    struct attention_shape t;
    struct attention_schedule *s = &out->attention;
    if (!attention_shape(site, &t))
        return false;
    *s = (struct attention_schedule){.lanes = machine_lanes(site->mach, ELEM_F32),
                                     .terms = site->mach->registers >= 2 * EXP_REGISTERS ? 2 : 1};
    choose_scores(site, &t, s);
    choose_span(site, &t, s);
    choose_values(site, &t, s);
    s->reach = s->span && attention_reach(site, &t);
    choose_few(site, &t, s);
    choose_parts(site, &t, s);
    return true;
}

/* ---- the kind ---------------------------------------------------------------------------------------------------- */

static bool owns(const struct kernel *k)
{
    return k->form.attention != NULL;
}

static bool check(struct check *c, struct strbuf *why)
{
    (void)why;
    return attention_shape(c->site, &c->attention);
}

static bool computes(const struct kernel *k, node_id id)
{
    return id.i == k->form.attention->scores.i || id.i == k->form.attention->values.i;
}

static const char *words(const struct module *m, const struct kernel *k, const struct schedule *s,
                         const struct schedule_facts *f)
{
    const struct attention_schedule *t = &s->attention;
    struct arena *a = m->arena;
    (void)k, (void)f;
    const char *how = t->span ? "spans of keys with a running maximum" : "all keys, exact softmax";
    const char *note = arena_printf(a,
                                    "attention: blocks of %lld rows by %s, scores in tiles of %lld keys by %lld "
                                    "vectors, results of %lld rows by %lld vectors of %u lanes",
                                    (long long)(t->nv * t->lanes), how, (long long)t->mr, (long long)t->nv,
                                    (long long)t->pr, (long long)t->pc, t->lanes);
    return t->parts ? arena_printf(a, "%s; few blocks in parts of %lld keys", note, (long long)t->part) : note;
}

static bool is_cut(const struct site *site, const struct schedule *s, sym_id size)
{
    struct attention_shape shape;
    (void)s;
    return attention_shape(site, &shape) && (ex_uses(site->x, shape.rows, size) || ex_uses(site->x, shape.keys, size));
}

static const struct kind_versions versions = {whole_ns, code_of, is_cut};
const struct kind attention_kind = {.owns = owns,
                                    .choose = choose,
                                    .facts = facts,
                                    .check = check,
                                    .computes = computes,
                                    .words = words,
                                    .versions = &versions};

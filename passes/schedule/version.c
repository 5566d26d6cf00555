/* Versions of kernels: a second record for sizes within a range, which the program selects by a test.
 *
 * A dynamic extent has one record for all sizes, made for many points: of one row of a product, a tile of 13 rows by 2
 * vectors leaves two sums that wait for one another. If the cost model says that a record made for few points is much
 * faster at them, the kernel has both. The estimates are of the two records at single sizes of the range.
 */
#include "passes/schedule/kinds.h"

enum { SIZES_MOST = 8 /* of the network that are looked at */, NODE_CODE = 2, LOOP_CODE = 8 };

/* ---- the range --------------------------------------------------------------------------------------------------- */

struct size_range version_range(const struct exprs *x, const struct version_schedule *v)
{
    sym_id s = {0};
    for (uint32_t i = 0; i < v->size && (!i || s.i); i++)
        s = sym_next(x, SYM_SHAPE, s);
    return (struct size_range){s, v->least, v->most};
}

struct site version_site(const struct site *site, const struct size_range *r)
{
    struct site within = *site;
    within.m = module_within(site->m, r);
    within.g = within.m->g;
    return within;
}

static bool type_uses(const struct exprs *x, const struct type *t, sym_id s)
{
    bool uses = false;
    for (int32_t d = 0; t->kind == TYPE_TENSOR && d < t->rank; d++)
        uses |= ex_uses(x, t->dims[d], s);
    return uses;
}

uint32_t version_size(const struct site *site)
{
    const struct type *t = value_type(site->g, site->k->outs.data[0]);
    for (int32_t d = 0; t->kind == TYPE_TENSOR && d < t->rank; d++) {
        uint32_t number = 1;
        for (sym_id s = sym_next(site->x, SYM_SHAPE, (sym_id){0}); s.i; s = sym_next(site->x, SYM_SHAPE, s), number++)
            if (ex_uses(site->x, t->dims[d], s))
                return number;
    }
    return 0;
}

/* Has a result of the kernel less than no elements there? A check that refuses such sizes comes before it in a run. */
static bool is_negative(const struct site *within)
{
    bool negative = false;
    for (uint32_t i = 0; i < within->k->nodes.n; i++) {
        const struct node *n = graph_node(within->g, within->k->nodes.data[i]);
        for (uint32_t k = 0; k <= n->n_in; k++) {
            value_id v = k < n->n_in ? n->in[k] : n->out[0];
            const struct type *t = v.i ? value_type(within->g, v) : NULL;
            for (int32_t d = 0; t && t->kind == TYPE_TENSOR && d < t->rank; d++)
                negative |= ex_hi(within->x, t->dims[d]) < 0;
        }
    }
    return negative;
}

bool version_serves(const struct site *site, const struct size_range *r)
{
    bool uses = false;
    const struct kernel *k = site->k;
    if (!r->size.i || site->m->whole || r->least < 1 || r->least > r->most)
        return false;
    const struct symbol *s = sym_get(site->x, r->size);
    for (uint32_t i = 0; i < k->nodes.n && !uses; i++)
        uses = type_uses(site->x, value_type(site->g, graph_node(site->g, k->nodes.data[i])->out[0]), r->size);
    if (!uses || r->least < s->lo || r->most > s->hi || r->most / s->divisor * s->divisor < r->least)
        return false;
    const struct site within = version_site(site, r);
    return !is_negative(&within);
}

/* ---- estimates --------------------------------------------------------------------------------------------------- */

/* ns of the whole kernel where the size is that; 0: not known. */
static int64_t whole_ns(const struct site *site, sym_id size, int64_t n, const struct schedule *s)
{
    const struct kind_versions *v = kind_of(s->kind)->versions;
    return v ? v->whole(site, &(struct size_at){size, n}, s) : 0;
}

/* Its code, in sums of products of a register tile. */
static int64_t code_of(const struct site *site, const struct schedule *s)
{
    const struct kind_versions *v = kind_of(s->kind)->versions;
    return NODE_CODE * (int64_t)site->k->nodes.n + LOOP_CODE + (v ? v->code(site, s) : 0);
}

/* The kernels whose code is likely to be the same have the same key. */
static uint64_t key_of(const struct site *site)
{
    const struct kernel *k = site->k;
    uint64_t key = hash_mix(k->kind, k->nodes.n);
    for (uint32_t i = 0; i < k->nodes.n; i++) {
        const struct node *n = graph_node(site->g, k->nodes.data[i]);
        key = hash_mix(key, (uint64_t)n->op);
        for (uint32_t j = 0; j < n->n_in + 1; j++) {
            value_id v = j < n->n_in ? n->in[j] : n->out[0];
            const struct type *t = v.i ? value_type(site->g, v) : NULL;
            key = hash_mix(key, t ? (uint64_t)t->elem : 0);
            for (int32_t d = 0; t && t->kind == TYPE_TENSOR && d < t->rank; d++)
                key = hash_mix(key, t->dims[d].i);
        }
    }
    return key;
}

/* ---- what versions gain ------------------------------------------------------------------------------------------ */

/* A version of kernels of like code: what the kernel as it is takes more at the sizes in the range, in per cent, added
 * up. */
struct candidate {
    struct version_schedule version;
    uint32_t group;
    int64_t gain, code;
};

/* Kernels of like code, by open addressing. */
struct group {
    uint64_t key; /* 0: none */
    int64_t code, gain; /* of the version at hand */
    struct version_schedule version;
};

/* Is the version much faster, on the whole? */
static bool range_gains(const struct site *site, const struct schedule *s, struct candidate *c)
{
    const struct size_range r = version_range(site->x, &c->version);
    int64_t sizes = 0;
    struct schedule made = {.kind = s->kind};
    if (!version_serves(site, &r))
        return false;
    struct site within = version_site(site, &r);
    if (!schedule_choose(&within, &made))
        return false;
    c->gain = 0;
    for (int64_t n = r.least; n <= r.most; n *= 2, sizes++) {
        int64_t as_it_is = whole_ns(site, r.size, n, s), fast = whole_ns(&within, within.m->within, n, &made);
        if (as_it_is <= 0 || fast <= 0 || as_it_is > INT64_MAX / 100)
            return false;
        c->gain += 100 * as_it_is / fast - 100;
    }
    c->code = code_of(&within, &made);
    return c->gain >= sizes * (RATE_VERSION_PER_CENT - 100);
}

typedef VEC(struct candidate) candidates;

/* A few ranges of each size. */
static void kernel_candidates(const struct site *site, const struct schedule *s, uint32_t group, struct arena *a,
                              candidates *out)
{
    static const int64_t most[] = {1, RATE_VERSION_ROWS / 4, RATE_VERSION_ROWS};
    const struct kind_versions *v = kind_of(s->kind)->versions;
    uint32_t number = 0;
    for (sym_id id = sym_next(site->x, SYM_SHAPE, (sym_id){0}); id.i && number < SIZES_MOST;
         id = sym_next(site->x, SYM_SHAPE, id)) {
        int64_t least = sym_get(site->x, id)->lo;
        number++;
        for (size_t i = 0; i < COUNT_OF(most) && v && v->is_cut(site, s, id); i++) {
            struct candidate c = {{number, least > 1 ? least : 1, most[i]}, .group = group};
            if (range_gains(site, s, &c))
                VEC_PUSH(a, out, c);
        }
    }
}

/* ---- which there are --------------------------------------------------------------------------------------------- */

/* By what they gain for their code. */
static int by_gain(const void *a, const void *b)
{
    const struct candidate *p = a, *q = b;
    double left = (double)p->gain / (double)p->code, right = (double)q->gain / (double)q->code;
    if (left != right)
        return left > right ? -1 : 1;
    if (p->group != q->group)
        return p->group < q->group ? -1 : 1;
    return (p->version.most > q->version.most) - (p->version.most < q->version.most);
}

/* Those that gain most for their code, then larger ones in their place, while their code is a small part of all. */
static void take_versions(candidates *c, struct group *groups, int64_t left)
{
    if (c->n)
        qsort(c->data, c->n, sizeof *c->data, by_gain);
    for (uint32_t i = 0; i < c->n; i++) {
        struct group *g = &groups[c->data[i].group];
        if (c->data[i].gain <= g->gain || c->data[i].code - g->code > left)
            continue;
        left -= c->data[i].code - g->code;
        g->code = c->data[i].code;
        g->gain = c->data[i].gain;
        g->version = c->data[i].version;
    }
}

/* Tests: a version of every kernel of dynamic size, however slow. */
static void take_all(struct module *m, const struct machine *mach, struct schedule *of)
{
    for (uint32_t i = 0; i < m->fused.kernels.n; i++) {
        struct site site = {m, &m->fused.kernels.data[i], m->g, m->ctx->exprs, m->arena, mach};
        struct version_schedule v = {of[i].kind == SCHEDULE_NONE ? 0 : version_size(&site), 1, RATE_VERSION_ROWS / 4};
        struct size_range r = version_range(site.x, &v);
        if (r.size.i && sym_get(site.x, r.size)->lo > 1)
            r.least = v.least = sym_get(site.x, r.size)->lo;
        if (i % 2) /* of one size */
            r.most = v.most = v.least;
        if (r.size.i && version_serves(&site, &r))
            of[i].version = v;
    }
}

bool versions_choose(struct module *m, const struct machine *mach, struct schedule *of)
{
    struct arena scratch;
    candidates all = {0};
    uint32_t n = m->fused.kernels.n;
    int64_t code = 0;
    if (m->asked.opt_level < 2 || !sym_next(m->ctx->exprs, SYM_SHAPE, (sym_id){0}).i)
        return true;
    if (m->asked.always) {
        take_all(m, mach, of);
        return true;
    }
    arena_init(&scratch, m->ctx);
    struct group *groups = NEW_ARRAY(&scratch, struct group, 2 * n + 1);
    uint32_t *group_of = NEW_ARRAY(&scratch, uint32_t, n + 1);
    for (uint32_t i = 0; i < n && m->ctx->fail == FAIL_NONE; i++) {
        struct site site = {m, &m->fused.kernels.data[i], m->g, m->ctx->exprs, &scratch, mach};
        if (of[i].kind == SCHEDULE_NONE)
            continue;
        uint64_t key = key_of(&site) | 1;
        group_of[i] = (uint32_t)(key % (2 * n));
        while (groups[group_of[i]].key && groups[group_of[i]].key != key)
            group_of[i] = (group_of[i] + 1) % (2 * n);
        if (groups[group_of[i]].key)
            continue;
        groups[group_of[i]].key = key;
        code += code_of(&site, &of[i]);
        kernel_candidates(&site, &of[i], group_of[i], &scratch, &all);
    }
    take_versions(&all, groups, code * RATE_VERSION_CODE / 100);
    for (uint32_t i = 0; i < n; i++)
        if (of[i].kind != SCHEDULE_NONE)
            of[i].version = groups[group_of[i]].version;
    arena_release(&scratch);
    return m->ctx->fail == FAIL_NONE;
}

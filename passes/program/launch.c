/* Launches of kernels: one program serves several CPU levels if its launches say what differs between them.
 *
 * Levels whose kernel reads the same buffers share a launch: each one's kernel is in the row of the artifact's table, a
 * count that differs is selected by the level, and arguments are passed that only some use (emit/frame.c). Other levels
 * have a launch of their own in a branch.
 */
#include "passes/program/program.h"

/* A kernel, at some levels (a bit each) in the same form. */
struct launch {
    uint32_t number;
    uint64_t levels;
    bool version; /* as it runs where the size is within the range */
};

static uint64_t all_levels(const struct prog *p)
{
    return UINT64_MAX >> (64 - p->n_levels);
}

static uint32_t first_level(const struct launch *l)
{
    return (uint32_t)__builtin_ctzll(l->levels);
}

static struct kernel *at_level(const struct prog *p, const struct launch *l, uint32_t level)
{
    struct kernel *k = &p->levels[level][l->number];
    return l->version ? k->version.of : k;
}

/* Does the model run at this level? */
static lreg is_level(struct prog *p, uint32_t level)
{
    if (!p->is_level[level].i) {
        lblock here = p->block;
        p->block = (lblock){1};
        p->at_start = true;
        if (!p->level.i)
            p->level = prog_call(p, "mcc_rt_variant_number", NULL, 0, false);
        p->is_level[level] = prog_op2(p, L_EQ, p->level, prog_const(p, level));
        p->at_start = false;
        p->block = here;
    }
    return p->is_level[level];
}

/* Parallel indices of the kernel: none for the first piece of a concat that lies there already. */
static lreg launch_count(struct prog *p, const struct launch *l)
{
    const struct kernel *k = NULL;
    lreg count = {0};
    expr_id last = {0};
    for (uint32_t i = p->n_levels; i-- > 0;) {
        if (!(l->levels >> i & 1))
            continue;
        k = at_level(p, l, i);
        lreg own = count.i && k->count.i == last.i ? count : prog_index(p, k->count);
        lreg in[3] = {own, own, count};
        if (!count.i)
            last = k->count;
        else if (k->count.i != last.i)
            in[0] = is_level(p, i);
        count = in[0].i == own.i ? own : prog_op(p, L_SELECT, prog_i64, in, 3);
    }
    if (!k->shares || !k->piece)
        return count;
    enum elem e = value_type(p->g, k->domain)->elem;
    lreg at[2] = {prog_buffer(p, k->domain, e), prog_buffer(p, k->outs.data[0], e)};
    lreg in[3] = {prog_op(p, L_SHARED, (struct ltype){ELEM_BOOL, 1}, at, 2), prog_const(p, 0), count};
    return prog_op(p, L_SELECT, prog_i64, in, 3);
}

static lreg shared(struct prog *p)
{
    if (!p->shared.i) {
        lblock here = p->block;
        p->block = (lblock){1};
        p->at_start = true;
        p->shared = prog_offset(p, p->arena_base, p->m->plan.arena_bytes, ELEM_I64);
        p->at_start = false;
        p->block = here;
        prog_zeroed(p, p->shared, SHARED_COUNTERS, true); /* the workspace of other runs has no bytes */
    }
    return prog_offset(p, p->shared, ex_const(p->x, 0), ELEM_F32);
}

void prog_launch_one(struct prog *p, struct kernel *const *of, const char *name, const lreg *args, uint32_t n,
                     uint32_t node)
{
    struct lstmt *s = lf_stmt(p->f, p->block, L_LAUNCH, args, n);
    s->node = node;
    if (p->n_levels == 1) {
        s->name = of[0]->name;
        s->imm = p->m->asked.grain_ns ? p->m->asked.grain_ns : of[0]->ns;
        return;
    }
    s->name = name;
    s->imm = p->m->plan.rows.n;
    s->flags = L_FLAG_ROW;
    VEC_PUSH(p->arena, &p->m->plan.rows, ((struct launch_row){of}));
}

/* Those of the other levels are its first ones. */
static const struct kernel *most_arguments(const struct prog *p, const struct launch *l)
{
    const struct kernel *most = NULL;
    for (uint32_t i = first_level(l); i < p->n_levels; i++)
        if (l->levels >> i & 1 && (!most || at_level(p, l, i)->args.n > most->args.n))
            most = at_level(p, l, i);
    return most;
}

static void launch_one(struct prog *p, const struct launch *l)
{
    const struct kernel *k = most_arguments(p, l);
    lreg args[256];
    uint32_t n = 0;
    if (k->args.n + 1 > COUNT_OF(args)) {
        p->failed = true;
        error_limit(p->m->ctx, k->nodes.n ? graph_node(p->g, k->nodes.data[0])->src : (src_id){0},
                    "a kernel reads more than %u values", (unsigned)COUNT_OF(args) - 1);
        return;
    }
    for (uint32_t i = 0; i < k->args.n; i++) {
        struct karg a = k->args.data[i];
        enum elem e = a.value.i ? value_type(p->g, a.value)->elem : ELEM_F32;
        args[n++] = a.start.i   ? prog_offset(p, prog_buffer(p, a.value, e), ex_mulc(p->x, a.start, elem_size(e)), e)
                    : a.value.i ? prog_buffer(p, a.value, e)
                    : a.shared  ? shared(p)
                                : prog_index(p, a.size);
    }
    args[n++] = launch_count(p, l);
    struct kernel **of = NEW_ARRAY(p->arena, struct kernel *, p->n_levels);
    for (uint32_t i = 0; i < p->n_levels; i++)
        of[i] = l->levels >> i & 1 ? at_level(p, l, i) : NULL;
    prog_launch_one(p, of, arena_printf(p->arena, "k%u%s", l->number, l->version ? "version" : ""), args, n,
                    k->nodes.n ? graph_node(p->g, k->nodes.data[0])->src.i : 0);
}

/* Is the size within the range? */
static lreg in_range(struct prog *p, const struct size_range *r)
{
    lreg size = prog_symbol(p, r->size), most = prog_const(p, r->most);
    if (r->least == r->most)
        return prog_op2(p, L_EQ, size, most);
    lreg upper = prog_op2(p, L_LE, size, most);
    return sym_get(p->x, r->size)->lo >= r->least
               ? upper
               : prog_op2(p, L_AND, upper, prog_op2(p, L_LE, prog_const(p, r->least), size));
}

/* Does the model run at one of the levels? {0}: at any. */
static lreg at_levels(struct prog *p, uint64_t levels)
{
    lreg any = {0};
    if (levels == all_levels(p))
        return any;
    for (uint32_t i = 0; i < p->n_levels; i++)
        if (levels >> i & 1)
            any = any.i ? prog_op2(p, L_OR, any, is_level(p, i)) : is_level(p, i);
    return any;
}

/* Where a version runs: its levels, at sizes within the range. */
static lreg version_runs(struct prog *p, const struct launch *l)
{
    lreg size = in_range(p, &p->levels[first_level(l)][l->number].version.range), level = at_levels(p, l->levels);
    return level.i ? prog_op2(p, L_AND, level, size) : size;
}

/* Do the arguments of one begin with those of the other? */
static bool same_arguments(const struct kernel *a, const struct kernel *b)
{
    bool same = true;
    for (uint32_t i = 0; same && i < a->args.n && i < b->args.n; i++)
        same = karg_same(&a->args.data[i], &b->args.data[i]);
    return same;
}

/* May one launch serve another level, too? */
static bool joins(const struct prog *p, const struct launch *l, uint32_t level)
{
    const struct kernel_version *v = &p->levels[first_level(l)][l->number].version,
                                *w = &p->levels[level][l->number].version;
    const struct launch one = {l->number, 0, l->version};
    bool same = !l->version || (v->range.size.i == w->range.size.i && v->range.least == w->range.least &&
                                v->range.most == w->range.most && v->as.i == w->as.i);
    for (uint32_t i = 0; same && i < level; i++)
        same = !(l->levels >> i & 1) || same_arguments(at_level(p, l, i), at_level(p, &one, level));
    return same;
}

/* Takes as many of the levels as one launch serves. */
static struct launch take_levels(const struct prog *p, struct launch *all)
{
    struct launch l = {all->number, all->levels & -all->levels, all->version};
    for (uint32_t i = first_level(&l) + 1; i < p->n_levels; i++)
        if (all->levels >> i & 1 && joins(p, &l, i))
            l.levels |= (uint64_t)1 << i;
    all->levels &= ~l.levels;
    return l;
}

/* Versions first, each under its condition, and what they leave; in blocks one inside of the other. */
static void launch_rest(struct prog *p, struct launch *versions, struct launch *others)
{
    struct launch *from = versions->levels ? versions : others, l = take_levels(p, from);
    if (!l.version && !others->levels) {
        launch_one(p, &l);
        return;
    }
    lreg cond = l.version ? version_runs(p, &l) : at_levels(p, l.levels);
    lblock outer = p->block, block[2] = {lf_block(p->f), lf_block(p->f)};
    const struct kernel_version *v = &p->levels[first_level(&l)][l.number].version;
    uint32_t bound = p->syms.n;
    p->block = block[0];
    if (l.version && v->as.i)
        prog_bind(p, v->as, prog_symbol(p, v->range.size));
    launch_one(p, &l);
    prog_unbind(p, bound);
    p->block = block[1];
    launch_rest(p, versions, others);
    prog_unbind(p, bound);
    p->block = outer;
    struct lstmt *s = lf_stmt(p->f, outer, L_IF, &cond, 1);
    s->type = prog_i64;
    s->block[0] = block[0];
    s->block[1] = block[1];
}

void prog_launch(struct prog *p, uint32_t number)
{
    const struct kernel *k = &p->m->fused.kernels.data[number];
    struct launch versions = {number, 0, true}, others = {number, all_levels(p), false};
    for (uint32_t i = 0; i < p->n_levels; i++)
        versions.levels |= (uint64_t)(p->levels[i][number].version.of != NULL) << i;
    for (uint32_t i = 0; i < k->outs.n; i++)
        prog_place(p, k->outs.data[i]);
    launch_rest(p, &versions, &others);
}

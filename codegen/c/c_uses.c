/* Which values of a loop-IR function its C text uses, and how often it would say each. */
#include "codegen/c/c_internal.h"

#include "ir/loop/internal.h"

static bool has_effect(const struct lstmt *s)
{
    return lop_table[s->op].class == LCLASS_STORE || s->op == L_CHECK || s->op == L_CALL || s->op == L_LAUNCH ||
           s->op == L_PARALLEL || s->op == L_PREFETCH || s->op == L_PREFETCH2;
}

static void use(struct c_uses *u, lreg r)
{
    u->more |= !u->of[r.i].live;
    u->of[r.i].live = true;
}

/* Bounds of parallel loops are the count; one lane has no stride, and is inserted into nothing; mcc_rt_kept has
 * variables in place of memory. */
static bool takes(const struct c_uses *u, const struct lstmt *s, uint32_t i)
{
    bool strided = s->op == L_LOADS || s->op == L_STORES;
    struct ltype t = s->op == L_STORES ? lf_type(u->f, s->in[lstmt_mem(s).value]) : s->type;
    bool keeper = s->op == L_CALL && i == 0 && strcmp(s->name, "mcc_rt_kept") == 0;
    return s->op != L_PARALLEL && !(strided && i == 2 && t.lanes == 1) &&
           !(s->op == L_INSERT && i == 0 && t.lanes == 1) && !keeper;
}

const struct lstmt *c_yield(const struct lfunc *f, lblock b)
{
    const struct lblk *blk = &f->blocks.data[b.i];
    const struct lstmt *last = blk->stmts.n ? &blk->stmts.data[blk->stmts.n - 1] : NULL;
    return last && last->op == L_YIELD ? last : NULL;
}

static void mark_block(struct c_uses *, lblock);

static void mark_for(struct c_uses *u, const struct lstmt *s)
{
    const struct lblk *body = &u->f->blocks.data[s->block[0].i];
    const struct lstmt *yield = c_yield(u->f, s->block[0]);
    use(u, s->in[0]);
    use(u, s->in[1]);
    for (uint32_t i = 0; i + 2 < s->n_in; i++) {
        bool first = i == 0 && s->flags & L_FLAG_WHILE;
        if (!first && !u->of[body->params.data[i + 1].i].live && !u->of[s->out[i].i].live)
            continue;
        use(u, body->params.data[i + 1]);
        use(u, s->in[i + 2]);
        use(u, yield->in[i]);
    }
    mark_block(u, s->block[0]);
}

static void mark(struct c_uses *u, const struct lstmt *s)
{
    if (s->op == L_FOR) {
        mark_for(u, s);
        return;
    }
    if (s->op == L_YIELD)
        return;
    bool used = has_effect(s);
    for (uint32_t i = 0; i < s->n_out; i++)
        used |= u->of[s->out[i].i].live && s->op != L_IF;
    for (uint32_t i = 0; i < s->n_in && (used || s->op == L_IF); i++)
        if (takes(u, s, i))
            use(u, s->in[i]);
    for (uint32_t k = 0; k < 2 && s->block[k].i; k++) {
        const struct lstmt *yield = s->op == L_IF ? c_yield(u->f, s->block[k]) : NULL;
        for (uint32_t i = 0; yield && i < s->n_out; i++)
            if (u->of[s->out[i].i].live)
                use(u, yield->in[i]);
        mark_block(u, s->block[k]);
    }
}

static void mark_block(struct c_uses *u, lblock b)
{
    const struct lblk *blk = &u->f->blocks.data[b.i];
    for (uint32_t i = blk->stmts.n; i > 0; i--)
        mark(u, &blk->stmts.data[i - 1]);
}

bool c_is_used(const struct c_uses *u, const struct lstmt *s)
{
    bool used = has_effect(s) || s->op == L_FOR || s->op == L_IF;
    for (uint32_t i = 0; i < s->n_out; i++)
        used |= u->of[s->out[i].i].live;
    return used;
}

/* Twice where the text may stand for more than one evaluation, or be of another time. */
static void count_statement(struct c_uses *u, const struct lstmt *s)
{
    bool is_loop = s->op == L_FOR;
    if (s->op == L_YIELD || s->op == L_PARALLEL || !c_is_used(u, s))
        return;
    for (uint32_t i = 0; i < (is_loop ? 2 : s->n_in); i++)
        if (takes(u, s, i))
            u->of[s->in[i].i].n += is_loop ? 2 : 1;
    for (uint32_t k = 0; k < 2 && s->block[k].i; k++) {
        const struct lstmt *yield = c_yield(u->f, s->block[k]);
        const struct lblk *body = &u->f->blocks.data[s->block[k].i];
        for (uint32_t i = 0; yield && i < yield->n_in; i++) {
            if (!u->of[(is_loop ? body->params.data[i + 1] : s->out[i]).i].live)
                continue;
            u->of[yield->in[i].i].n += 2;
            if (is_loop)
                u->of[s->in[i + 2].i].n += 2;
        }
    }
}

static void count_uses(struct c_uses *u)
{
    for (uint32_t b = 1; b < u->f->blocks.n; b++)
        for (uint32_t k = 0; k < u->f->blocks.data[b].stmts.n; k++)
            count_statement(u, &u->f->blocks.data[b].stmts.data[k]);
}

struct c_uses c_uses(struct arena *arena, const struct lfunc *f)
{
    struct c_uses u = {.f = f, .of = NEW_ARRAY(arena, struct c_use, f->types.n)};
    do {
        u.more = false;
        mark_block(&u, (lblock){1});
    } while (u.more);
    count_uses(&u);
    return u;
}

/* lf_tidy: equal computations of a loop-IR function once, and those that nothing uses not at all.
 *
 * A statement without effects whose operation, type, constants and operands are those of an earlier one that is visible
 * gives the earlier one's value: blocks are walked in order, and what a block has defined is forgotten at its end.
 * Memory is left alone, since a load may come after another store. Then, backwards, whatever neither has an effect nor
 * is used by something that stays goes. A narrow float that is widened and narrowed again is itself. Every statement
 * that is not printed is one that no worker parses and LLVM does not see: index sums repeat their terms for each of a
 * tile's points.
 */
#include "ir/loop/internal.h"

struct known {
    const struct lstmt *s;
    uint64_t key;
    uint32_t next;
};
struct tidy {
    struct lfunc *f;
    struct arena *arena;
    uint32_t n;                  /* values */
    lreg *same;                  /* by value: the one that it equals, itself if none */
    lreg *narrow;                /* by value: what it is the widened form of; {0}: of nothing */
    bool *live;                  /* by value: used by a statement that stays */
    uint32_t *heads, mask;       /* of chains through known, by key; 0: empty */
    VEC(struct known) known;     /* those of open blocks; [0] unused */
};

/* Nothing but operands decides the results, and nothing else can tell whether it ran. */
static bool is_pure(const struct lstmt *s)
{
    return lop_table[s->op].class <= LCLASS_PLACE && s->n_out == 1;
}

/* ---- equal statements -------------------------------------------------------------------------------------------- */

/* Integer sums and products: the order of the operands makes no difference. */
static bool commutes(const struct lstmt *s)
{
    return (s->op == L_ADD || s->op == L_MUL) && s->n_in == 2 && elem_class(s->type.elem) != 'F';
}

static uint64_t key_of(const struct lstmt *s)
{
    uint64_t fimm, key = (uint64_t)s->op << 32 | (uint64_t)s->type.elem << 16 | s->type.lanes;
    bool swap = commutes(s) && s->in[0].i > s->in[1].i;
    memcpy(&fimm, &s->fimm, sizeof fimm);
    key = hash_mix(hash_mix(key, (uint64_t)s->imm), fimm);
    for (uint32_t i = 0; i < s->n_in; i++)
        key = hash_mix(key, s->in[swap ? 1 - i : i].i);
    return s->n_aux ? hash_mix(key, hash_bytes(s->aux, s->n_aux)) : key;
}

static bool equal_operands(const struct lstmt *a, const struct lstmt *b)
{
    if (a->n_in == 0 || memcmp(a->in, b->in, a->n_in * sizeof *a->in) == 0)
        return true;
    return commutes(a) && a->in[0].i == b->in[1].i && a->in[1].i == b->in[0].i;
}

static bool equal(const struct lstmt *a, const struct lstmt *b)
{
    return a->op == b->op && ltype_equal(a->type, b->type) && a->flags == b->flags && a->imm == b->imm &&
           memcmp(&a->fimm, &b->fimm, sizeof a->fimm) == 0 && a->n_in == b->n_in && equal_operands(a, b) &&
           (a->name == b->name || (a->name && b->name && !strcmp(a->name, b->name))) && a->n_aux == b->n_aux &&
           (!a->n_aux || memcmp(a->aux, b->aux, a->n_aux) == 0);
}

/* f16 and bf16 to f32 and back: nothing happens. */
static bool is_way_back(struct tidy *t, const struct lstmt *s)
{
    if (s->op != L_CONVERT)
        return false;
    lreg narrow = t->narrow[s->in[0].i];
    enum elem from = lf_type(t->f, s->in[0]).elem;
    if (s->type.elem == ELEM_F32 && (from == ELEM_F16 || from == ELEM_BF16))
        t->narrow[s->out[0].i] = s->in[0];
    if (!narrow.i || !ltype_equal(lf_type(t->f, narrow), s->type))
        return false;
    t->same[s->out[0].i] = narrow;
    return true;
}

static void note(struct tidy *t, struct lstmt *s)
{
    if (is_way_back(t, s))
        return;
    uint64_t key = key_of(s);
    uint32_t *head = &t->heads[key & t->mask];
    for (uint32_t k = *head; k; k = t->known.data[k].next)
        if (t->known.data[k].key == key && equal(t->known.data[k].s, s)) {
            t->same[s->out[0].i] = t->known.data[k].s->out[0];
            return;
        }
    VEC_PUSH(t->arena, &t->known, ((struct known){s, key, *head}));
    *head = t->known.n - 1;
}

static void merge_block(struct tidy *t, lblock b, uint32_t depth)
{
    struct lblk *blk = &t->f->blocks.data[b.i];
    uint32_t before = t->known.n;
    if (depth > LOOP_DEPTH_MAX) /* the verifier will say so */
        return;
    for (uint32_t i = 0; i < blk->stmts.n; i++) {
        struct lstmt *s = &blk->stmts.data[i];
        for (uint32_t k = 0; k < s->n_in; k++)
            if (s->in[k].i < t->n)
                s->in[k] = t->same[s->in[k].i];
        for (uint32_t k = 0; k < COUNT_OF(s->block); k++)
            if (s->block[k].i)
                merge_block(t, s->block[k], depth + 1);
        if (is_pure(s))
            note(t, s);
    }
    while (t->known.n > before) {
        const struct known *last = &t->known.data[--t->known.n];
        t->heads[last->key & t->mask] = last->next;
    }
}

/* ---- what is used ------------------------------------------------------------------------------------------------ */

static bool has_effect(const struct tidy *t, const struct lstmt *s, uint32_t depth)
{
    if (is_pure(s) || lop_table[s->op].class == LCLASS_LOAD || s->op == L_LOCAL || s->op == L_YIELD)
        return false;
    if (s->op != L_FOR && s->op != L_IF)
        return true;
    for (uint32_t k = 0; k < COUNT_OF(s->block); k++) {
        const struct lblk *blk = &t->f->blocks.data[s->block[k].i];
        for (uint32_t i = 0; s->block[k].i && i < blk->stmts.n; i++)
            if (depth > LOOP_DEPTH_MAX || has_effect(t, &blk->stmts.data[i], depth + 1))
                return true;
    }
    return false;
}

static bool is_wanted(const struct tidy *t, const struct lstmt *s)
{
    for (uint32_t k = 0; k < s->n_out; k++)
        if (t->live[s->out[k].i])
            return true;
    return s->op == L_YIELD || has_effect(t, s, 0);
}

/* Marks backwards what the statements that stay use, and closes the gaps of those that go. */
static void sweep_block(struct tidy *t, lblock b, uint32_t depth)
{
    struct lblk *blk = &t->f->blocks.data[b.i];
    uint32_t to = blk->stmts.n;
    if (depth > LOOP_DEPTH_MAX)
        return;
    for (uint32_t i = blk->stmts.n; i > 0; i--) {
        struct lstmt *s = &blk->stmts.data[i - 1];
        if (!is_wanted(t, s))
            continue;
        for (uint32_t k = 0; k < COUNT_OF(s->block); k++)
            if (s->block[k].i)
                sweep_block(t, s->block[k], depth + 1);
        for (uint32_t k = 0; k < s->n_in; k++)
            if (s->in[k].i < t->n)
                t->live[s->in[k].i] = true;
        blk->stmts.data[--to] = *s;
    }
    if (to)
        memmove(blk->stmts.data, blk->stmts.data + to, (blk->stmts.n - to) * sizeof *blk->stmts.data);
    blk->stmts.n -= to;
}

void lf_tidy(struct lfunc *f)
{
    uint32_t n = f->types.n, size = 64;
    while (size < n && size < UINT32_C(1) << 20)
        size *= 2;
    struct tidy t = {.f = f,
                     .arena = f->arena,
                     .n = n,
                     .same = NEW_ARRAY(f->arena, lreg, n),
                     .narrow = NEW_ARRAY(f->arena, lreg, n),
                     .live = NEW_ARRAY(f->arena, bool, n),
                     .heads = NEW_ARRAY(f->arena, uint32_t, size),
                     .mask = size - 1};
    for (uint32_t v = 0; v < n; v++)
        t.same[v] = (lreg){v};
    VEC_PUSH(f->arena, &t.known, (struct known){0});
    merge_block(&t, (lblock){1}, 0);
    sweep_block(&t, (lblock){1}, 0);
}

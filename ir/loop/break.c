/* lf_break: a function that computes something else than it was made for, so that tests see how wrong code is found. */
#include "ir/loop/internal.h"

static const struct {
    enum lop right, wrong;
} swaps[] = {{L_ADD, L_SUB}, {L_SUB, L_ADD}, {L_MUL, L_ADD}, {L_MAX, L_MIN}};

/* fused: multiply-adds, which lose the addend. */
static bool break_block(struct lfunc *f, lblock b, uint32_t depth, bool fused)
{
    struct lblk *blk = &f->blocks.data[b.i];
    for (uint32_t i = 0; i < blk->stmts.n && depth <= LOOP_DEPTH_MAX; i++) {
        struct lstmt *s = &blk->stmts.data[i];
        if (fused && s->op == L_FMA) {
            s->op = L_MUL;
            s->n_in = 2;
            return true;
        }
        for (size_t k = 0; k < COUNT_OF(swaps); k++)
            if (s->op == swaps[k].right && (loop_elem_classes(s->type.elem) & E_F)) {
                s->op = swaps[k].wrong;
                return true;
            }
        for (size_t k = 0; k < COUNT_OF(s->block); k++)
            if (s->block[k].i && break_block(f, s->block[k], depth + 1, fused))
                return true;
    }
    return false;
}

bool lf_break(struct lfunc *f)
{
    return break_block(f, (lblock){1}, 0, false) || break_block(f, (lblock){1}, 0, true);
}

/* ---- mutants ----------------------------------------------------------------------------------------------------- */

/* Of vectors of integers, the wrong operation in the place of this one; 0: it has none. */
static enum lop wrong_integer(const struct lfunc *f, const struct lstmt *s)
{
    static const enum lop pairs[][2] = {{L_ADD, L_SUB}, {L_MUL, L_ADD}, {L_AND, L_OR},  {L_OR, L_AND},  {L_XOR, L_OR},
                                        {L_SHL, L_SHR}, {L_SHR, L_SHL}, {L_MIN, L_MAX}, {L_MAX, L_MIN}, {L_LT, L_LE},
                                        {L_LE, L_LT},   {L_EQ, L_LE},   {L_NE, L_LT}};
    const struct ltype t = s->n_in > 1 ? lf_type(f, s->in[0]) : (struct ltype){0};
    for (size_t k = 0; k < COUNT_OF(pairs) && t.lanes > 1 && loop_elem_classes(t.elem) & E_I; k++)
        if (s->op == pairs[k][0] && s->in[0].i != s->in[1].i)
            return pairs[k][1];
    return (enum lop)0;
}

/* Does it change what is computed? Then it is one of the sites, and changed where the count ends. */
static bool mutate_statement(struct lfunc *f, struct lstmt *s, int64_t *site)
{
    const bool real = loop_elem_classes(s->type.elem) & E_F, index = s->type.elem == ELEM_I64 && s->type.lanes == 1;
    const bool vector = loop_elem_classes(s->type.elem) & E_I && s->type.lanes > 1;
    const bool drop = (s->op == L_FMA && real) || (s->op == L_DOT && (real || vector)), factor = s->op == L_MUL && real;
    const bool swap = s->op == L_SUB && (real || vector) && s->in[0].i != s->in[1].i, down = s->op == L_RINT;
    const bool number = s->op == L_CONST && real, distance = s->op == L_CONST && index && s->imm >= 2;
    const bool lanes = s->op == L_SHUFFLE && s->n_aux > 1 && s->aux[0] != s->aux[1];
    const enum lop wrong = wrong_integer(f, s);
    if (!(drop || factor || swap || down || number || distance || lanes || wrong) || (*site)--)
        return false;
    if (wrong && !swap) {
        s->op = wrong;
    } else if (factor) { /* one of them */
        s->op = L_MIN;
        s->in[1] = s->in[0];
    } else if (down) {
        s->op = L_FLOOR;
    } else if (drop) { /* the product: the smaller one of the addend and itself */
        s->op = L_MIN;
        s->in[0] = s->in[1] = s->in[2];
        s->n_in = 2;
    } else if (swap) {
        const lreg x = s->in[0];
        s->in[0] = s->in[1];
        s->in[1] = x;
    } else if (number) {
        s->fimm = s->fimm == 0 || s->fimm == s->fimm / 2 ? 1 : s->fimm / 2;
        s->flags &= ~(uint32_t)L_FLAG_RESIDUE;
    } else if (distance) {
        s->imm--;
    } else {
        uint8_t *aux = arena_copy(f->arena, s->aux, s->n_aux);
        aux[0] = s->aux[1];
        aux[1] = s->aux[0];
        s->aux = aux;
    }
    return true;
}

/* Is it a loop over elements in the program, which has none but those that convert residues for functions of the
 * runtime (mcc prove)? Others launch kernels or call. */
static bool converts(const struct lfunc *f, const struct lstmt *s)
{
    bool elements = f->role == LROLE_PROGRAM && s->op == L_FOR;
    const struct lblk *body = elements ? &f->blocks.data[s->block[0].i] : NULL;
    for (uint32_t i = 0; elements && i < body->stmts.n; i++)
        elements = body->stmts.data[i].op != L_LAUNCH && body->stmts.data[i].op != L_CALL &&
                   !body->stmts.data[i].block[0].i;
    return elements;
}

static bool mutate_block(struct lfunc *f, lblock b, int64_t *site)
{
    struct lblk *blk = &f->blocks.data[b.i];
    for (uint32_t i = 0; i < blk->stmts.n; i++) {
        struct lstmt *s = &blk->stmts.data[i];
        if (mutate_statement(f, s, site))
            return true;
        for (size_t k = 0; k < COUNT_OF(s->block) && !converts(f, s); k++)
            if (s->block[k].i && mutate_block(f, s->block[k], site))
                return true;
    }
    return false;
}

bool lf_mutate(struct lfunc *f, int64_t *site)
{
    return mutate_block(f, (lblock){1}, site);
}

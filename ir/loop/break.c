/* lf_break: a function that computes something else than it was made for, so that tests see how wrong code is found. */
#include "ir/loop/internal.h"

static const struct {
    enum lop right, wrong;
} swaps[] = {{L_ADD, L_SUB}, {L_SUB, L_ADD}, {L_MUL, L_ADD}, {L_MAX, L_MIN}};

static bool break_block(struct lfunc *f, lblock b, uint32_t depth)
{
    struct lblk *blk = &f->blocks.data[b.i];
    for (uint32_t i = 0; i < blk->stmts.n && depth <= LOOP_DEPTH_MAX; i++) {
        struct lstmt *s = &blk->stmts.data[i];
        for (size_t k = 0; k < COUNT_OF(swaps); k++)
            if (s->op == swaps[k].right && (loop_elem_classes(s->type.elem) & E_F)) {
                s->op = swaps[k].wrong;
                return true;
            }
        for (size_t k = 0; k < COUNT_OF(s->block); k++)
            if (s->block[k].i && break_block(f, s->block[k], depth + 1))
                return true;
    }
    return false;
}

bool lf_break(struct lfunc *f)
{
    return break_block(f, (lblock){1}, 0);
}

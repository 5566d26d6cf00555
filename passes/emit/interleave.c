/* Interleaving: computations that stand one after another in a block, statement by statement in turn.
 *
 * An epilogue with an erf or an exp is a chain of forty statements, each of which waits four cycles for the one before.
 * A core looks a hundred instructions ahead, so two or three chains one after another overlap; four in turn overlap as
 * a whole, and a constant that a statement of each of them takes is loaded once. LLVM keeps the order (its scheduler is
 * off).
 */
#include "passes/emit/emit.h"

void em_interleave_begin(struct em *em, struct em_interleave *w)
{
    *w = (struct em_interleave){.block = em->level[em->top], .value = em->f->types.n};
    em_interleave_next(em, w);
}

void em_interleave_next(struct em *em, struct em_interleave *w)
{
    if (w->n < COUNT_OF(w->at))
        w->at[w->n++] = em->f->blocks.data[w->block.i].stmts.n;
}

/* Computations touch the memory of their own point only, so loads and stores keep their order within each. */
static bool may_move(const struct lstmt *s)
{
    switch (s->op) {
    case L_FOR:
    case L_PARALLEL:
    case L_IF:
    case L_YIELD:
    case L_CHECK:
    case L_CALL:
    case L_LAUNCH:
    case L_LOCAL: return false;
    default: return true;
    }
}

/* Are all operands defined? pending: by value, from w->value on. */
static bool is_ready(const struct em_interleave *w, const struct lstmt *s, const bool *pending)
{
    for (uint32_t i = 0; i < s->n_in; i++)
        if (s->in[i].i >= w->value && pending[s->in[i].i - w->value])
            return false;
    return true;
}

/* Computations first .. last - 1: each in turn gives its next statement, unless that waits for one of an earlier
 * computation. */
static void interleave(struct em *em, const struct em_interleave *w, uint32_t first, uint32_t last)
{
    struct lstmt *s = em->f->blocks.data[w->block.i].stmts.data;
    uint32_t n = w->at[last] - w->at[first], done = 0, next[EM_POINTS];
    struct lstmt *from = arena_copy(em->arena, s + w->at[first], n * sizeof *s);
    bool *pending = NEW_ARRAY(em->arena, bool, em->f->types.n - w->value + 1);
    for (uint32_t i = 0; i < n; i++) {
        if (!may_move(&from[i]))
            return;
        for (uint32_t k = 0; k < from[i].n_out; k++)
            if (from[i].out[k].i >= w->value)
                pending[from[i].out[k].i - w->value] = true;
    }
    for (uint32_t c = first; c < last; c++)
        next[c - first] = w->at[c] - w->at[first];
    while (done < n)
        for (uint32_t c = first; c < last; c++) {
            uint32_t *i = &next[c - first];
            if (*i == w->at[c + 1] - w->at[first] || !is_ready(w, &from[*i], pending))
                continue;
            for (uint32_t k = 0; k < from[*i].n_out; k++)
                if (from[*i].out[k].i >= w->value)
                    pending[from[*i].out[k].i - w->value] = false;
            s[w->at[first] + done++] = from[(*i)++];
        }
}

void em_interleave_end(struct em *em, struct em_interleave *w, uint32_t at_once, uint32_t least)
{
    uint32_t n = w->n - 1;
    if (n < 2 || w->at[n] - w->at[0] < (uint64_t)n * least)
        return;
    uint32_t groups = (n + at_once - 1) / at_once;
    for (uint32_t g = 0; g < groups; g++)
        interleave(em, w, n * g / groups, n * (g + 1) / groups);
}

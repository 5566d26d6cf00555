/* Facts: what a checked condition says of a shape symbol, and starting over with it.
 *
 * A condition that every run checks may become bounds of its symbol, which the plan checks before anything runs; then
 * everything may rely on them. Expressions simplify when they are made, so what was made with the wider bounds is made
 * again: exprs_mark, narrow the symbols, exprs_rewind.
 */
#pragma once

#include "ir/expr/expr.h"

/* The values of sym for which a condition can hold. */
struct sym_range {
    sym_id sym;
    struct sym_bounds bounds;
};
/* What cond says about its only shape symbol; cond is not a conjunction. False: it has none or several, or it says
 * nothing that the symbol's bounds do not say. */
bool fact_of(struct exprs *, expr_id cond, struct sym_range *);
/* What cond, of several symbols or one, excludes of shape symbol s whatever the others are: its least values, and those
 * beyond a number in it. False: nothing that is seen. */
bool fact_excludes(struct exprs *, expr_id cond, sym_id s, struct sym_range *);
/* Narrows the symbol: true when it got narrower, which what was made before it does not know (exprs_rewind). */
bool fact_apply(struct exprs *, const struct sym_range *);

/* The part of a size because of which it is less simple than it may be: a choice, a minimum or maximum, an equality, a
 * division by what is not a constant. {0}: none. */
expr_id fact_missing(const struct exprs *, expr_id);

struct exprs_mark {
    uint32_t nodes, syms;
};
struct exprs_mark exprs_mark(const struct exprs *);
/* Forgets all expressions and symbols made since the mark. The others get the bounds that follow from what their
 * symbols are now, also where those are wider than before, and nothing that was concluded from other bounds stays. */
void exprs_rewind(struct exprs *, struct exprs_mark);

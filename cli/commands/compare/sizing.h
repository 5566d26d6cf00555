/* Sizes of the inputs at which a network is run and compared (mcc prove): the free symbols, which are those that --dim
 * does not give and no condition of the network fixes. */
#pragma once

#include "cli/commands/artifact/session.h"
#include "ir/graph/graph.h"

/* A condition of the network: a bound of a symbol, or an expression. */
struct sizing_condition {
    const struct size_check *check; /* NULL: `holds` */
    expr_id holds;
    bool numbers;    /* it is of numbers that inputs hold */
    uint32_t branch; /* 1 for the first branch of an If or a loop's body, which may not run; 0: outside of them */
    bool asked; /* of those that sizing_mend asks */
};

/* A symbol that is an element of an input. */
struct sizing_number {
    sym_id symbol;
    uint32_t input;
};

struct sizing {
    struct session *session;
    const struct options *given; /* the command's */
    struct options running;      /* the session's: a copy with a size for each free symbol */
    struct graph *graph;         /* its conditions on sizes have to hold */
    VEC(struct sizing_condition) conditions; /* of sizes and numbers; empty: not looked for, or there are none */
    VEC(struct sizing_number) numbers;       /* of which a condition is */
    bool of_numbers; /* conditions on numbers are asked, not those on sizes */
    uint32_t branch; /* of which sizing_mend lets conditions hold first */
    int64_t spent; /* of the work that sizes may take (SIZES_WORK) */
    int64_t numbers_spent;
    VEC(const int64_t *) tried;  /* by symbol: sizes that need not be drawn again */
    const int64_t *first;        /* the first at which the conditions held; NULL: there are none yet */
};

/* How the free symbols share a size. Forms from SIZES_OTHERS on have one symbol each: first all but that one are of the
 * size, then only that one is; the rest is 1. SIZES_DRAWN, of two symbols or more: each has a size of its own, which
 * the size only seeds. */
enum { SIZES_SAME, SIZES_APART, SIZES_OTHERS, SIZES_DRAWN = 1 << 30 };

bool sizing_is_free(const struct sizing *, uint32_t symbol);
uint32_t sizing_forms(const struct sizing *); /* 0: no symbol is free */
/* Parts of conditions that may be computed to find sizes; then no others are drawn. Sizes that are drawn count, too. */
#define SIZES_WORK ((int64_t)1 << 29)

bool sizing_is_alone(const struct sizing *, uint32_t form); /* is one symbol of the size, and no other? */
/* Elements of the inputs as they are; those of inputs without free symbols count little. */
uint64_t sizing_elements(const struct sizing *);
/* Draws inputs of these sizes. False: the network takes no such size, the form needs more symbols, the inputs would
 * have more than `most` elements, SIZES_WORK is used up, or after a diagnostic. */
bool sizing_put(struct sizing *, int64_t size, uint32_t form, uint64_t most);
/* Do the network's conditions hold, of those that sizes alone decide? Those inside of branches and loops included. */
bool sizing_holds(struct sizing *);
/* Do those hold that are not inside? */
bool sizing_holds_outside(struct sizing *);
/* Draws inputs of the first sizes but for one symbol: graph.size_checks[check] does not hold for it, as it is too small
 * (way 0), too large (1) or no multiple, or another one than its equal (2). False: no such size is given to the code.
 */
enum { SIZING_WAYS = 3 };
bool sizing_break(struct sizing *, uint32_t check, uint32_t way);
/* The first time that it is asked of the sizes at hand? */
bool sizing_is_new(struct sizing *);
/* Draws inputs of sizes at which they do, near those at hand: free symbols change one after the other, from the last or
 * from the first on. Inside of branches and loops as many hold as possible, first those of `branch` (1, 2), since two
 * branches may exclude each other. False: none were found, or SIZES_WORK is used up. */
bool sizing_mend(struct sizing *, bool last, uint32_t branch);
/* Changes numbers of the inputs at hand, one after the other from one of them on, so that more of the conditions on
 * them hold: a shape gets as many elements as what is reshaped. */
void sizing_mend_numbers(struct sizing *, uint32_t first);
/* Symbols that are elements of tensors of expressions, such as extents that a shape decides, in the order of the run,
 * and what they are of others. How many; at most `most`. */
uint32_t sizing_computed(const struct graph *, sym_id *symbol, expr_id *by, uint32_t most);

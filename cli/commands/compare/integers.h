/* mcc prove: integers of the run. They stay what they are, and draws compare what the code and the network compute of
 * them (docs/reference/proof.md); so they are drawn over all bits, and what a kernel has shown of them counts.
 */
#pragma once

#include "cli/commands/compare/capture.h"

/* What values of a graph come from, by value; none of these: constants, sizes and positions. */
enum { FROM_FLOATS = 1, FROM_BYTES = 2, FROM_INTEGERS = 4 };

/* What an input has to be so that the run goes on. */
struct integer_role {
    bool decides;   /* sizes, trips, or indices by way of arithmetic: few numbers serve */
    bool divides;   /* 0 does not serve */
    bool shifts;    /* beyond the width all is lost */
    bool counts;    /* floats that become integers: of others the integers are hashes */
    int64_t extent; /* it indexes a dimension of so many; 0: it does not */
};

/* What the draws have shown of a value. */
struct integer_history {
    struct tensor last; /* in the draw before; without data: it had no elements */
    int64_t dims[RANK_MAX];
    char *data;
    int64_t room;    /* elements there */
    double moved;    /* shares of elements that were others than in the draw before, where that had them */
    double differed; /* draws in which neighbours were not all equal, or it is one element */
};

struct number_list {
    int64_t *data;
    uint32_t n, cap;
};

struct integers {
    struct integer_role *role; /* by value of the legalized graph */
    struct number_list compared; /* constants that it compares integers with */
    struct number_list deciding; /* small ones of comparisons that decide sizes, trips or branches */
    struct number_list floats;   /* residues of constants that it asks whether floats are equal to */
    uint8_t *origin;           /* by value of the kernels' graph: FROM_... */
    bool *watched;             /* by value: some kernel computes with it */
    bool *uniform; /* by value, if it is watched: all its elements are computed of the same numbers */
    struct integer_history *history; /* by value */
};

/* The roles of the values of the legalized graph, and the constants that it compares. */
void integers_roles(struct integers *, struct graph *legal);
uint64_t integer_random(uint64_t *state); /* 64 random bits: splitmix64 */
/* A number of which sizes can be made, from random bits; attempt: so many draws before ended the run. */
int64_t integer_deciding(uint64_t random, uint32_t attempt);
/* In the place of such a number: for vectors of up to 16 lanes, their loops and what these leave, if anything. */
int64_t integer_many(uint64_t random);
/* Draws elements of an integer type. compared: most of them are constants that the graph compares, or next to one. */
void integers_draw(struct file_tensor *, const struct integer_role *, const struct integers *, bool compared,
                   uint64_t *state, uint32_t draw, uint32_t attempt);

/* Origins in the kernels' graph. */
void integers_origins(struct integers *, struct graph *);
/* Does it compute with integers of which a few draws say little? *why: none does. Then what it reads and computes is
 * watched. */
bool integers_need_draws(struct integers *, struct graph *, const struct node *, const char **why);
/* Has the integer one value in all runs? (fixed.c) */
bool integer_is_fixed(struct graph *, value_id);
/* Watches a value of which a few draws say little. */
void integers_watch(struct integers *, value_id);
/* What draws have shown of it. */
double integers_shown_of(const struct integers *, value_id);
/* Counts what a watched value is in the draw at hand. */
void integers_count(struct integers *, struct arena *, value_id, const struct tensor *);
/* Of all that the node computes with and is watched, the least of what draws have shown. */
double integers_shown(const struct integers *, const struct graph *, const struct node *);

/* So many draws where integers are compared: a third over all bits, a third over all magnitudes, a third of the ends of
 * their types. */
enum { INTEGER_DRAWS = 96, INTEGER_ATTEMPTS = 64 };
enum { INTEGER_EACH = 8 }; /* attempts in which numbers that decide sizes are drawn from the same ones */
/* The most draws for integers that have shown few values, where that many will do. */
enum { INTEGER_MOST = 1024 };
/* From this attempt on sizes and trips are 0 or 1, then 1 or 2. */
enum { INTEGER_FEW = INTEGER_ATTEMPTS / 2 };
